"""One node as its translator sees it, and the table of translators."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openinfer.dtypes import DType
from openinfer.importing.draft import (
    DraftFamily,
    DraftOperand,
    DraftPart,
    DraftValue,
    IndexOperand,
    KnownTensor,
    extent,
)
from openinfer.importing.emitter import Emitter
from openinfer.importing.problems import Unsupported
from openinfer.importing.torch_model import AtenGraph, AtenNode
from openinfer.loops.dim import Dim, is_symbolic

OPERANDS = (DraftValue, KnownTensor, DraftPart, IndexOperand, DraftFamily)
FIX = "give the dimension no dynamic size"


@dataclass(frozen=True)
class AtenContext:
    """A node with its arguments resolved: operands for tensors, integers or ``Dim`` for sizes."""

    node: AtenNode
    values: Mapping[str, Any]
    emit: Emitter
    read: frozenset[int]
    """The positions of the results that something reads."""
    inline: Callable[[AtenGraph, Sequence[Any]], tuple[DraftOperand, ...]]
    """Translates a nested graph in place."""

    @property
    def x(self) -> DraftOperand:
        """The first argument."""
        return self.tensor(next(iter(self.values)))

    @property
    def rank(self) -> int:
        """The number of dimensions of the first argument."""
        return len(self.x.shape)

    @property
    def dtype(self) -> DType:
        """The dtype of the first result."""
        found = self.node.dtypes[0] if self.node.dtypes else None
        if found is None:
            raise Unsupported("the dtype of its result is not supported")
        return found

    # --- arguments ------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an argument is given and not None."""
        return self.values.get(name) is not None

    def tensor(self, name: str) -> DraftOperand:
        """A required tensor."""
        found = self.optional(name)
        if found is None:
            raise Unsupported(f"its argument {name!r} is missing")
        return found

    def optional(self, name: str) -> DraftOperand | None:
        """A tensor, or None if it is omitted."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, OPERANDS):
            raise Unsupported(f"its argument {name!r} is not a tensor")
        return found

    def tensors(self, name: str) -> tuple[DraftOperand, ...]:
        """A list of tensors."""
        found = self.values.get(name)
        if not isinstance(found, tuple) or not all(isinstance(one, OPERANDS) for one in found):
            raise Unsupported(f"its argument {name!r} is not a list of tensors")
        return found

    def integer(self, name: str, default: int = 0) -> int:
        """An integer, possibly a size."""
        found = self.values.get(name)
        if found is None:
            return default
        if not isinstance(found, int):
            raise Unsupported(f"its argument {name!r} is computed from data")
        return found

    def ints(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A list of integers, possibly sizes; a single integer is accepted."""
        found = self.values.get(name)
        if found is None:
            return default
        listed = found if isinstance(found, tuple) else (found,)
        if not all(isinstance(one, int) for one in listed):
            raise Unsupported(f"its argument {name!r} is computed from data")
        return listed

    def numbers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """A list of integers, none of them a dynamic size."""
        found = self.ints(name, default)
        if any(map(is_symbolic, found)):
            raise Unsupported(f"its argument {name!r} depends on a size", FIX)
        return tuple(map(int, found))

    def real(self, name: str, default: float = 0.0) -> float:
        """A number known at import."""
        found = self.values.get(name)
        if found is None:
            return default
        if not isinstance(found, bool | int | float) or isinstance(found, Dim):
            raise Unsupported(f"its argument {name!r} is not a known number")
        return float(found)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A boolean."""
        found = self.values.get(name)
        return default if found is None else bool(found)

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        found = self.values.get(name)
        return default if found is None else str(found)

    def operand(self, name: str, dtype: DType) -> DraftOperand:
        """An argument, tensor or number, as an operand of a dtype."""
        return self.as_operand(self.values.get(name), dtype)

    def as_operand(self, value: Any, dtype: DType) -> DraftOperand:
        """A tensor or number as an operand of a dtype."""
        if isinstance(value, OPERANDS):
            return self.cast(value, dtype)
        if isinstance(value, Dim):
            return self.emit.cast(extent(value), dtype)
        if not isinstance(value, bool | int | float):
            raise Unsupported("an operand is neither a tensor nor a number")
        return self.emit.scalar(value, dtype)

    def cast(self, operand: DraftOperand, dtype: DType) -> DraftOperand:
        """Convert as PyTorch does: nonzero is true."""
        if operand.dtype is dtype:
            return operand
        if dtype.kind == "bool":
            return self.emit.op("ne", operand, self.emit.scalar(0, operand.dtype))
        return self.emit.op("cast", operand, to=dtype)

    def axis(self, value: int, rank: int | None = None) -> int:
        """An axis counted from the front."""
        own = self.rank if rank is None else rank
        return value % own if own else 0

    def axes(self, name: str) -> tuple[int, ...]:
        """Axes counted from the front, sorted; all axes if none is given."""
        given = self.ints(name)
        return tuple(sorted({self.axis(one) for one in given})) if given else tuple(range(self.rank))

    def reads(self, position: int) -> bool:
        """Whether something reads the result at a position."""
        return position in self.read


AtenResults = Any
"""What a node yields: an operand or number, or a tuple of them, with None for what it cannot yield."""
AtenTranslator = Callable[[AtenContext], AtenResults]
TABLE: dict[str, AtenTranslator] = {}
"""The translators by op name, without overload."""


def aten_op(*names: str) -> Callable[[AtenTranslator], AtenTranslator]:
    """Register a translator for ATen ops."""
    return python_op(*(f"aten.{name}" for name in names))


def python_op(*names: str) -> Callable[[AtenTranslator], AtenTranslator]:
    """Register a translator for functions by their full names."""

    def register(function: AtenTranslator) -> AtenTranslator:
        for name in names:
            assert name not in TABLE, name
            TABLE[name] = function
        return function

    return register


def word(n: AtenContext) -> str:
    """The name of the op without its namespace."""
    return n.node.op.partition(".")[2]


def paired(values: Sequence[int], count: int) -> tuple[int, ...]:
    """One number per axis; a single number stands for all axes."""
    return tuple(values) * count if len(values) == 1 else tuple(values)
