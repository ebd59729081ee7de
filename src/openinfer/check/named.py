"""The values of names before anything runs: constants and sizes, for one choice of the dynamic sizes."""

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
    """The values of names. ``vars`` grows as temporaries get their types; ``at`` are the dynamic sizes."""

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
        """A copy with other values of the dynamic sizes and other temporaries, none of which is typed."""
        return cls(other.model, other.sizes, other._links, temporaries, at)

    def elsewhere(self, at: Mapping[str, int]) -> "Named":
        """A copy with other values of the dynamic sizes, before any temporary is typed."""
        return Named(self.model, self.sizes, self._links, self.temporaries, at)

    @property
    def is_at_bounds(self) -> bool:
        """Whether the dynamic sizes are at their bounds."""
        return self.at == self.sizes.bounds

    def is_variable(self, name: str) -> bool:
        """Whether the name is a variable, declared or temporary."""
        return name in self._links.declared or name in self.temporaries

    def size(self, name: str) -> int:
        """The value of a size."""
        return self.at[name] if name in self.at else self.sizes.lookup(name)

    def static(self, name: str) -> int | None:
        """The value of a name in an index, if it never changes: a constant or a size, but no other variable."""
        if self.is_variable(name):
            value = self._constant(name)
            return value if isinstance(value, int) else None
        return self.at[name] if name in self.at else self.sizes.get(name)

    def settled(self, name: str) -> int | None:
        """The value of a name that is the same in every step, which excludes dynamic sizes."""
        return None if name in self.sizes.bounds and not self.is_variable(name) else self.static(name)

    def parameter(self, name: str) -> Any:
        """The value of a name as a parameter: a constant, a size, or a metadata value."""
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
