"""Tracks the names that the statements of a source declare."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from openinfer.dtypes import DType
from openinfer.ir.expr import Expr
from openinfer.ir.graph import VarDecl


class Names:
    """The names declared so far: typed temporaries, and those whose type an op infers."""

    def __init__(self, variables: Mapping[str, VarDecl]) -> None:
        self._vars = variables
        self.types: dict[str, tuple[DType, tuple[Expr, ...]]] = {}
        self.inferred: set[str] = set()

    def is_new(self, name: str) -> bool:
        """Whether nothing has declared the name yet."""
        return name not in self._vars and name not in self.types and name not in self.inferred

    @contextmanager
    def block(self, params: Mapping[str, tuple[DType, tuple[Expr, ...]]] | None) -> Iterator[None]:
        """The names inside a block; a block that is called has its own, initially its parameters."""
        if params is None:
            yield
            return
        types, inferred = self.types, self.inferred
        self.types, self.inferred = dict(params), set()
        yield
        self.types, self.inferred = types, inferred

    def dims_of(self, name: str) -> tuple[Expr, ...] | None:
        """The dimensions of a variable, or of an assigned temporary; None if unknown."""
        if name in self._vars:
            return self._vars[name].dims
        return self.types[name][1] if name in self.types else None
