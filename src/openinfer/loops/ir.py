"""The loop IR: what every target prints. Typed, frozen, small.

Scalar values have the dtype that arithmetic is done in; loads of packed or small-float buffers give that type, stores
round or wrap back, so bit extraction is a target's business once and no op's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from openinfer.dtypes import DTYPES, DType
from openinfer.tensor import row_major

INDEX = DTYPES["i64"]
"""The type of loop indices and positions."""
BOOL = DTYPES["bool"]


class Space(StrEnum):
    """Where a buffer lives."""

    WEIGHTS = "weights"
    ARENA = "arena"
    STATE = "state"
    SCRATCH = "scratch"
    """Memory of the arena that only one kernel uses."""


@dataclass(frozen=True)
class Buffer:
    """Memory with a type. ``strides`` count elements; None means row-major."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    space: Space = Space.ARENA
    strides: tuple[int, ...] | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        """How many elements lie between neighbours along each axis."""
        return row_major(self.shape) if self.strides is None else self.strides


# --- expressions ------------------------------------------------------------------------------------------------------


class Scalar:
    """A typed scalar expression. Arithmetic on expressions builds expressions."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        message = f"{type(self).__name__} is no expression"
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
    """A number. An index may be a ``Dim``: known when the code runs."""

    value: float
    type: DType

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.type


@dataclass(frozen=True, slots=True)
class Var(Scalar):
    """A loop index, a ``Let`` or a ``Local``."""

    name: str
    type: DType = INDEX

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
    "neg", "abs", "not", "sqrt", "floor", "ceil", "rint", "trunc", "popcount", "isnan", "isinf", "signbit"
]
BinaryOp = Literal[
    "add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "copysign", "nextafter"
]
"""Integer ``div`` and ``rem`` truncate, as in C; ``min`` and ``max`` of floats propagate NaN and order signed zeros."""
CompareOp = Literal["eq", "ne", "lt", "le", "gt", "ge"]


@dataclass(frozen=True, slots=True)
class Unary(Scalar):
    """An operation on one value. ``not`` is bitwise on integers and logical on bool; tests give bool."""

    op: UnaryOp
    operand: Scalar

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return BOOL if self.op in ("isnan", "isinf", "signbit") else self.operand.dtype


@dataclass(frozen=True, slots=True)
class Binary(Scalar):
    """An operation on two values of one type."""

    op: BinaryOp
    left: Scalar
    right: Scalar

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
    """One of two values; the other one may be computed as well, so it must be harmless."""

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
    """The bits of a value read as another compute type of the same width.

    With a ``storage`` of f8, bf16 or f16: the code that such an element has for a value, or the value of a code.
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
    """A named function of floats: ``exp``, ``log1p``, ``fma``, ... The target brings an implementation."""

    function: str
    args: tuple[Scalar, ...]

    @property
    def dtype(self) -> DType:
        """The type of the value."""
        return self.args[0].dtype


def as_scalar(value: "Scalar | float", dtype: DType) -> Scalar:
    """A number as a constant of a type; an expression as it is."""
    return value if isinstance(value, Scalar) else Const(value, dtype)


def binary(op: BinaryOp, left: Scalar, right: Scalar) -> Scalar:
    """An operation on two values; of two index constants it is a constant."""
    if isinstance(left, Const) and isinstance(right, Const) and left.type is INDEX:
        folded = {"add": left.value + right.value, "sub": left.value - right.value, "mul": left.value * right.value}
        if op in folded:
            return Const(folded[op], INDEX)
    if left.dtype is INDEX:
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Const) and (op, one.value) in (("add", 0), ("mul", 1)):
                return other
            if isinstance(one, Const) and (op, one.value) == ("mul", 0) and type(one.value) is int:
                return one
        if isinstance(right, Const) and (op, right.value) in (("sub", 0), ("div", 1)):
            return left
    return Binary(op, left, right)


# --- statements -------------------------------------------------------------------------------------------------------


class LoopKind(StrEnum):
    """How the iterations of a loop may run."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTOR = "vector"
    UNROLL = "unroll"


@dataclass(frozen=True)
class For:
    """A loop from 0 up to an extent."""

    index: Var
    extent: Scalar
    body: tuple["Statement", ...]
    kind: LoopKind = LoopKind.SERIAL


@dataclass(frozen=True)
class While:
    """A loop as long as a condition holds."""

    cond: Scalar
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Let:
    """A value with a name, which does not change."""

    var: Var
    value: Scalar


@dataclass(frozen=True)
class Local:
    """A variable of its own, with a first value."""

    var: Var
    value: Scalar


@dataclass(frozen=True)
class Assign:
    """Another value for a ``Local``."""

    var: Var
    value: Scalar


@dataclass(frozen=True)
class Store:
    """A value into an element of a buffer, rounded or wrapped to its dtype."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    value: Scalar


@dataclass(frozen=True)
class If:
    """Statements under a condition."""

    cond: Scalar
    then: tuple["Statement", ...]
    otherwise: tuple["Statement", ...] = ()


@dataclass(frozen=True)
class Fail:
    """The kernel ends with an error: a value for which the op has no result."""

    reason: str


@dataclass(frozen=True)
class Tile:
    """How a contraction is computed in tiles of sums that stay in registers; a schedule decides it, for one target.

    ``left`` is memory for ``block`` rows of the factor with the rows, ``right`` for one panel of the other; without
    them the factors are read where they lie. With ``is_direct`` only an incomplete panel is copied. With ``has_panels``
    the other factor already is in panels: ``[..., panel, inner index, column in the panel]``.
    """

    rows: int
    columns: int
    lanes: int
    block: int = 0
    has_panels: bool = False
    is_direct: bool = False
    left: Buffer | None = None
    right: Buffer | None = None


@dataclass(frozen=True)
class Contraction:
    """A sum of products: ``out[o(i)] = epilogue(sum over k of a[x(i, k)] * b[y(i, k)])``.

    ``extents`` are those of the output's free indices, ``reduced`` those that are summed; ``a_index``, ``b_index`` and
    ``out_index`` are expressions over ``free`` and ``bound`` indices. The epilogue is an expression over the variable
    ``ACCUMULATOR`` and loads at the free indices. ``valid`` is a condition under which a term counts, or None.

    A factor that is not the element itself has an expression of its own, ``a_value`` or ``b_value``: it contains
    ``Load(a, a_index)``, as where a quantized weight stands for a real number.
    """

    out: Buffer
    a: Buffer
    b: Buffer
    free: tuple[Var, ...]
    extents: tuple[int, ...]
    bound: tuple[Var, ...]
    reduced: tuple[int, ...]
    out_index: tuple[Scalar, ...]
    a_index: tuple[Scalar, ...]
    b_index: tuple[Scalar, ...]
    accumulator: DType
    epilogue: Scalar
    valid: Scalar | None = None
    a_value: Scalar | None = None
    b_value: Scalar | None = None
    tile: "Tile | None" = None

    @property
    def factors(self) -> tuple[Scalar, Scalar]:
        """The two values that are multiplied, in their own types."""
        return (
            Load(self.a, self.a_index) if self.a_value is None else self.a_value,
            Load(self.b, self.b_index) if self.b_value is None else self.b_value,
        )


ACCUMULATOR = "acc"
"""The name of the variable that an epilogue calls the sum."""

Statement: TypeAlias = For | While | Let | Local | Assign | Store | If | Fail | Contraction


@dataclass(frozen=True)
class Kernel:
    """A function on buffers: parameters, scratch memory, body, and where it comes from."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    scratch: tuple[Buffer, ...] = ()
    doc: tuple[str, ...] = field(default=(), compare=False)
    """What it computes, in mathematics and words; not part of its identity."""
    nodes: tuple[int, ...] = field(default=(), compare=False)


def walk(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """Statements and those inside them, heads before bodies."""
    for statement in statements:
        yield statement
        match statement:
            case For(body=body) | While(body=body):
                yield from walk(body)
            case If(then=then, otherwise=otherwise):
                yield from walk(then)
                yield from walk(otherwise)


def children(value: Scalar) -> tuple[Scalar, ...]:
    """The expressions directly inside one."""
    match value:
        case Unary(operand=operand) | Cast(operand=operand) | Bits(operand=operand) | Round(operand=operand):
            return (operand,)
        case Binary(left=left, right=right) | Compare(left=left, right=right):
            return (left, right)
        case Select(cond, then, otherwise):
            return (cond, then, otherwise)
        case Load(index=index):
            return index
        case Math(args=args):
            return args
        case _:
            return ()


def rebuilt(value: Scalar, parts: tuple[Scalar, ...]) -> Scalar:
    """An expression with others directly inside it."""
    match value:
        case Unary() | Cast() | Bits() | Round():
            return replace(value, operand=parts[0])
        case Binary() | Compare():
            return replace(value, left=parts[0], right=parts[1])
        case Select():
            return Select(*parts)
        case Load():
            return replace(value, index=parts)
        case Math():
            return replace(value, args=parts)
        case _:
            return value


def scalars(statement: Statement) -> tuple[Scalar, ...]:
    """The expressions directly in a statement."""
    match statement:
        case For(extent=extent):
            return (extent,)
        case While(cond=cond) | If(cond=cond):
            return (cond,)
        case Let(value=value) | Local(value=value) | Assign(value=value):
            return (value,)
        case Store(index=index, value=value):
            return (*index, value)
        case Contraction():
            parts: tuple[Any, ...] = (*statement.out_index, *statement.factors, statement.epilogue)
            return (*parts, statement.valid) if statement.valid is not None else parts
        case _:
            return ()


def visit(value: Scalar) -> Iterator[Scalar]:
    """An expression and all inside it."""
    stack = [value]
    while stack:
        one = stack.pop()
        yield one
        stack.extend(children(one))
