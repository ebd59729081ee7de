"""What names stand for before anything runs: constants and sizes, with the dynamic ones at one choice of values."""

from collections.abc import Mapping, Set
from typing import Any

from openinfer.check.bound import BoundVar
from openinfer.check.links import Links, scalar_value
from openinfer.check.problems import ReportedError
from openinfer.check.sizes import Sizes, dimension
from openinfer.ir import MemoryKind
from openinfer.ir.expr import Expr
from openinfer.oinf.model import ModelLoader
from openinfer.ops import Shape


class Named:
    """The values of names. ``vars`` grows while temporaries get their types; ``at`` are the dynamic sizes."""

    def __init__(
        self,
        model: ModelLoader | None,
        sizes: Sizes,
        links: Links,
        temporaries: Set[str],
        at: Mapping[str, int],
    ) -> None:
        self.model = model
        self.sizes = sizes
        self.vars = dict(links.vars)
        self.temporaries = temporaries
        self.at = at
        self._links = links
        self.constants: dict[str, Any] = {}

    @classmethod
    def of(cls, other: "Named", temporaries: Set[str], at: Mapping[str, int]) -> "Named":
        """The same with other temporaries, none of which has a type, and other values of the dynamic sizes."""
        return cls(other.model, other.sizes, other._links, temporaries, at)

    def elsewhere(self, at: Mapping[str, int]) -> "Named":
        """The same with the dynamic sizes at other values, before any temporary has a type."""
        return Named(self.model, self.sizes, self._links, self.temporaries, at)

    @property
    def is_at_bounds(self) -> bool:
        """Whether the dynamic sizes are as large as they can be."""
        return self.at == self.sizes.bounds

    def is_variable(self, name: str) -> bool:
        """Whether the name is a variable, declared or temporary."""
        return name in self._links.declared or name in self.temporaries

    def size(self, name: str) -> int:
        """The value of a size."""
        return self.at[name] if name in self.at else self.sizes.lookup(name)

    def static(self, name: str) -> int | None:
        """What a name in an index is worth, where that never changes: constants and sizes, not other variables."""
        if self.is_variable(name):
            value = self._constant(name)
            return value if isinstance(value, int) else None
        return self.at[name] if name in self.at else self.sizes.get(name)

    def settled(self, name: str) -> int | None:
        """The same, where it is so in every step: dynamic sizes have no such value."""
        return None if name in self.sizes.bounds and not self.is_variable(name) else self.static(name)

    def parameter(self, name: str) -> Any:
        """What a name stands for as the value of a parameter: a constant, a size, or a metadata value."""
        if self.is_variable(name):
            return self._constant(name)
        if name in self.at:
            return self.at[name]
        found = self.sizes.get(name)
        if found is None and self.model is not None and name in self.model.metadata_info:
            value = self.model.metadata[name]
            return value if isinstance(value, str | float | bool) else None
        return found

    def _constant(self, name: str) -> Any:
        variable = self.vars.get(name)
        if name in self._links.unlinked:
            raise ReportedError
        if variable is None or variable.kind is not MemoryKind.CONSTANT or variable.shape:
            return None
        if name not in self.constants:
            self.constants[name] = scalar_value(variable, self.model)
        return self.constants[name]

    def dimension(self, dim: Expr) -> int:
        """The value of a dimension."""
        return dimension(dim, self.at, self.sizes.lookup)

    def shape(self, variable: BoundVar) -> Shape:
        """The shape of a variable, or of an entry of a table."""
        if variable.dims is None or not variable.is_dynamic:
            return variable.shape
        return tuple(self.dimension(dim) for dim in variable.dims)
