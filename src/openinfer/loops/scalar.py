"""Scalar expressions of the loop IR, and the buffers they load from.

Scalars have compute types: loads from packed or small-float buffers convert to them, and stores round or wrap back. So
bit extraction is implemented once per target, and never per op.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import copysign
from operator import attrgetter
from typing import Any, Literal

from openinfer.dtypes import DTYPES, INDEX, DType
from openinfer.loops.dim import Dim
from openinfer.tensor import row_major

BOOL = DTYPES["bool"]


class Space(StrEnum):
    """The memory a buffer lives in."""

    WEIGHTS = "weights"
    ARENA = "arena"
    STATE = "state"
    SCRATCH = "scratch"
    """Arena memory that only one kernel uses."""
    OWN = "own"
    """Private memory of each thread, in its registers."""
    GROUP = "group"
    """Memory shared by the threads of a group, and only by them."""


@dataclass(frozen=True)
class Buffer:
    """Memory with a type. ``strides`` count elements; None means row-major."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    space: Space = Space.ARENA
    strides: tuple[int, ...] | None = None
    stem: str = field(default="", compare=False, repr=False)
    """The name without the number that sets it apart from others of its kernel; empty if it has none."""

    @property
    def actual_strides(self) -> tuple[int, ...]:
        """The stride of each axis, in elements."""
        return row_major(self.shape) if self.strides is None else self.strides


class Scalar:
    """A typed scalar expression. Arithmetic on expressions builds expressions."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        message = f"{type(self).__name__} is not an expression"
        raise TypeError(message)

    def __add__(self, other: "Scalar | float") -> "Scalar":
        return binary("add", self, as_scalar(other, self.dtype))

    def __radd__(self, other: float) -> "Scalar":
        return binary("add", as_scalar(other, self.dtype), self)

    def __sub__(self, other: "Scalar | float") -> "Scalar":
        return binary("sub", self, as_scalar(other, self.dtype))

    def __rsub__(self, other: float) -> "Scalar":
        return binary("sub", as_scalar(other, self.dtype), self)

    def __mul__(self, other: "Scalar | float") -> "Scalar":
        return binary("mul", self, as_scalar(other, self.dtype))

    def __rmul__(self, other: float) -> "Scalar":
        return binary("mul", as_scalar(other, self.dtype), self)

    def __truediv__(self, other: "Scalar | float") -> "Scalar":
        return binary("div", self, as_scalar(other, self.dtype))

    def __rtruediv__(self, other: float) -> "Scalar":
        return binary("div", as_scalar(other, self.dtype), self)

    def __floordiv__(self, other: "Scalar | int") -> "Scalar":
        return binary("div", self, as_scalar(other, self.dtype))

    def __mod__(self, other: "Scalar | int") -> "Scalar":
        return binary("rem", self, as_scalar(other, self.dtype))

    def __neg__(self) -> "Scalar":
        return Unary("neg", self)

    def __lt__(self, other: "Scalar | float") -> "Scalar":
        return Compare("lt", self, as_scalar(other, self.dtype))

    def __le__(self, other: "Scalar | float") -> "Scalar":
        return Compare("le", self, as_scalar(other, self.dtype))

    def __gt__(self, other: "Scalar | float") -> "Scalar":
        return Compare("gt", self, as_scalar(other, self.dtype))

    def __ge__(self, other: "Scalar | float") -> "Scalar":
        return Compare("ge", self, as_scalar(other, self.dtype))

    def __and__(self, other: "Scalar | int") -> "Scalar":
        return binary("and", self, as_scalar(other, self.dtype))

    def __or__(self, other: "Scalar | int") -> "Scalar":
        return binary("or", self, as_scalar(other, self.dtype))

    def __xor__(self, other: "Scalar | int") -> "Scalar":
        return binary("xor", self, as_scalar(other, self.dtype))

    def __invert__(self) -> "Scalar":
        return Unary("not", self)

    def eq(self, other: "Scalar | float") -> "Scalar":
        """Whether two values are equal; ``==`` compares the expressions themselves."""
        return Compare("eq", self, as_scalar(other, self.dtype))

    def ne(self, other: "Scalar | float") -> "Scalar":
        """Whether two values differ."""
        return Compare("ne", self, as_scalar(other, self.dtype))


@dataclass(frozen=True, slots=True)
class Const(Scalar):
    """A number. An index may be a ``Dim``, whose value is known at run time.

    Constants are equal only if they are equal for all sizes: a ``Dim`` never equals a number, not even the one that it
    is at the bounds of its sizes. Zeros have signs.
    """

    value: float
    type: DType

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        distinct = self.value.form if isinstance(self.value, Dim) else copysign(1, self.value)
        return self.value, distinct, self.type

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, slots=True)
class ScalarVar(Scalar):
    """A loop index, a ``Let`` or a ``Local``."""

    name: str
    type: DType = INDEX
    stem: str = field(default="", compare=False, repr=False)
    """The name without its number; empty if it has none."""

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, slots=True)
class Load(Scalar):
    """An element of a buffer, in its compute type."""

    buffer: Buffer
    index: tuple[Scalar, ...]

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.buffer.dtype.compute


UnaryOp = Literal[
    "neg", "abs", "not", "sqrt", "floor", "ceil", "rint", "trunc", "popcount", "isnan", "isinf", "signbit", "steps"
]
STEPS = (-(2**20), 2**20 - 1)
"""The range of ``steps``: an f32 rounded to the nearest i32, halves to even, clamped to these limits; NaN gives 0."""
BinaryOp = Literal[
    "add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "copysign", "nextafter"
]
"""Integer ``div`` and ``rem`` truncate, as in C; ``min`` and ``max`` of floats propagate NaN and order signed zeros."""
CompareOp = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True, slots=True)
class Unary(Scalar):
    """A unary operation. ``not`` is bitwise on integers and logical on bool; tests give bool."""

    op: UnaryOp
    operand: Scalar
    about: DType | None = None
    """For a root: the type that the operand and the rounded result have, if that is narrower than the arithmetic."""

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        if self.op == "steps":
            return DTYPES["i32"]
        return BOOL if self.op in ("isnan", "isinf", "signbit") else self.operand.dtype


@dataclass(frozen=True, slots=True)
class Binary(Scalar):
    """A binary operation on values of one type."""

    op: BinaryOp
    left: Scalar
    right: Scalar
    about: DType | None = None
    """The type of the result that this contributes to, if an error of a few units in its last place does not matter."""

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.left.dtype


@dataclass(frozen=True, slots=True)
class Compare(Scalar):
    """A comparison of two values of one type."""

    op: CompareOp
    left: Scalar
    right: Scalar

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return BOOL


@dataclass(frozen=True, slots=True)
class Select(Scalar):
    """One of two values. Both may be computed, so computing the other one must be harmless."""

    cond: Scalar
    then: Scalar
    otherwise: Scalar

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.then.dtype


@dataclass(frozen=True, slots=True)
class Cast(Scalar):
    """A value in another compute type: integers wrap, floats round, float to integer must be in range."""

    operand: Scalar
    type: DType

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, slots=True)
class Bits(Scalar):
    """The bits of a value, reinterpreted as another compute type of the same width.

    With a ``storage`` of f8, bf16 or f16: the code that stores a value, or the value of a code.
    """

    operand: Scalar
    type: DType
    storage: DType | None = None

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, slots=True)
class Round(Scalar):
    """A value as if it had been stored in a buffer of this dtype and loaded again."""

    operand: Scalar
    storage: DType

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.storage.compute


@dataclass(frozen=True, slots=True)
class Math(Scalar):
    """A named function of floats: ``exp``, ``log1p``, ``fma``, ... The target provides an implementation."""

    function: str
    args: tuple[Scalar, ...]
    about: DType | None = None
    """As in ``Binary``."""

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.args[0].dtype


def as_scalar(value: "Scalar | float", dtype: DType) -> Scalar:
    """A number as a constant of a type; an expression as it is."""
    return value if isinstance(value, Scalar) else Const(value, dtype)


def binary(op: BinaryOp, left: Scalar, right: Scalar) -> Scalar:
    """A binary operation; operations on index constants are folded."""
    if isinstance(left, Const) and isinstance(right, Const) and left.type is INDEX:
        folded = {"add": left.value + right.value, "sub": left.value - right.value, "mul": left.value * right.value}
        if op in folded:
            return Const(folded[op], INDEX)
    if left.dtype is INDEX:
        for one, other in ((left, right), (right, left)):
            if _is_number(one, 0 if op == "add" else 1) and op in ("add", "mul"):
                return other
            if op == "mul" and _is_number(one, 0):
                return one
        if op in ("sub", "div") and _is_number(right, 0 if op == "sub" else 1):
            return left
    return Binary(op, left, right)


def _is_number(value: Scalar, number: int) -> bool:
    """Whether a constant is this number for all dynamic sizes, and not at their bounds only."""
    return isinstance(value, Const) and type(value.value) is int and value.value == number


_PARTS: dict[type[Scalar], Callable[[Any], tuple[Scalar, ...]]] = {
    **dict.fromkeys((Unary, Cast, Bits, Round), lambda one: (one.operand,)),
    **dict.fromkeys((Binary, Compare), lambda one: (one.left, one.right)),
    Select: lambda one: (one.cond, one.then, one.otherwise),
    Load: attrgetter("index"),
    Math: attrgetter("args"),
}
"""Keyed by class, since ``children`` is called more often than anything else."""


def children(value: Scalar) -> tuple[Scalar, ...]:
    """The expressions directly inside one."""
    parts = _PARTS.get(type(value))
    return () if parts is None else parts(value)


def rebuilt(value: Scalar, parts: tuple[Scalar, ...]) -> Scalar:
    """A copy of an expression with other operands."""
    match value:
        case Binary(op=op):
            return Binary(op, parts[0], parts[1], value.about)
        case Compare(op=op):
            return Compare(op, *parts)
        case Load(buffer=buffer):
            return Load(buffer, parts)
        case Cast(type=target):
            return Cast(parts[0], target)
        case Select():
            return Select(*parts)
        case Math(function=function):
            return Math(function, parts, value.about)
        case Unary() | Bits() | Round():
            return replace(value, operand=parts[0])
        case _:
            return value


def visit(value: Scalar) -> Iterator[Scalar]:
    """An expression and all of its subexpressions."""
    stack = [value]
    while stack:
        one = stack.pop()
        yield one
        stack.extend(children(one))
