"""The loop IR: what every target prints. Typed, frozen, small.

Here are statements and kernels; the expressions in them are of ``openinfer.loops.scalar``, and all have one import.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

from openinfer.dtypes import INDEX, DType
from openinfer.loops.scalar import (
    BOOL,
    Binary,
    BinaryOp,
    Bits,
    Buffer,
    Cast,
    Compare,
    CompareOp,
    Const,
    Load,
    Math,
    Round,
    Scalar,
    ScalarVar,
    Select,
    Space,
    Unary,
    UnaryOp,
    as_scalar,
    binary,
    children,
    rebuilt,
    visit,
)
from openinfer.loops.structures import (
    ACCUMULATOR,
    ORIGIN,
    RANKED,
    Attend,
    Axis,
    Element,
    Order,
    Result,
    Scan,
    Structure,
)
from openinfer.loops.tile_steps import TileStep

__all__ = [
    "ACCUMULATOR",
    "BOOL",
    "INDEX",
    "ORIGIN",
    "RANKED",
    "Alloc",
    "Attend",
    "Axis",
    "Binary",
    "BinaryOp",
    "Bind",
    "Bits",
    "Buffer",
    "Cast",
    "Combine",
    "Compare",
    "CompareOp",
    "Const",
    "Contraction",
    "Element",
    "Fail",
    "For",
    "GroupBarrier",
    "If",
    "Kernel",
    "Let",
    "Load",
    "Local",
    "LoopKind",
    "Math",
    "Order",
    "Ready",
    "Result",
    "Round",
    "Scalar",
    "ScalarVar",
    "Scan",
    "Select",
    "SetLocal",
    "Space",
    "Statement",
    "Store",
    "Structure",
    "Template",
    "TileStep",
    "Unary",
    "UnaryOp",
    "Unfailed",
    "While",
    "WideLoad",
    "WideStore",
    "as_scalar",
    "assigned_by",
    "binary",
    "bodies",
    "children",
    "factors_of",
    "rebuilt",
    "scalars",
    "visit",
    "walk",
]


class LoopKind(StrEnum):
    """What is true of a loop's iterations, whatever runs them; lowerings say so."""

    SERIAL = "serial"
    """Each iteration may build on those before it."""
    PARALLEL = "parallel"
    """Iterations are independent of each other: any order, or all at once, gives the same result."""


class Bind(StrEnum):
    """What runs the iterations of a loop; schedules decide it, and without it they run one after the other."""

    LANES = "lanes"
    """Neighbouring iterations accumulate in separate lanes, which are combined after the loop."""
    PART = "part"
    """Each part of the kernel runs its share of the iterations of a parallel loop."""
    ROLLED = "rolled"
    """Iterations that copy neighbours: a loop in the code, however short, so that compilers copy many at once."""
    THREAD = "thread"
    """Every iteration of a parallel loop is a thread: of a launch, or of a group where it is inside a loop of those."""
    GROUP = "group"
    """Every iteration of a parallel loop is a group of a launch; its threads wait for each other and share memory."""
    UNROLL = "unroll"
    """Iterations stand one after the other in the code: places in registers are numbers that a compiler knows."""


@dataclass(frozen=True)
class For:
    """A loop from 0 up to an extent."""

    index: ScalarVar
    extent: Scalar
    body: tuple["Statement", ...]
    kind: LoopKind = LoopKind.SERIAL
    bind: Bind | None = None


@dataclass(frozen=True)
class While:
    """A loop as long as a condition holds."""

    cond: Scalar
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Let:
    """A value with a name, which does not change."""

    var: ScalarVar
    value: Scalar


@dataclass(frozen=True)
class Local:
    """A variable of its own, with a first value."""

    var: ScalarVar
    value: Scalar


@dataclass(frozen=True)
class SetLocal:
    """Assigns a ``Local``."""

    var: ScalarVar
    value: Scalar


@dataclass(frozen=True)
class Store:
    """Stores a value in an element of a buffer, rounded or wrapped to its dtype."""

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
class Alloc:
    """Memory that each iteration of the loop around it has for itself, from here to the end of the loop's body.

    Outside of loops it is the kernel's. Nothing has been written to it yet, whatever an earlier iteration wrote. Where
    it lies is a target's business: one that runs iterations one after the other gives all of them the same bytes.
    """

    buffer: Buffer


@dataclass(frozen=True)
class Fail:
    """The kernel ends with an error: a value for which the op has no result."""

    reason: str


@dataclass(frozen=True)
class Template:
    """How a structured statement is computed, as a schedule decided; every target derives templates of its own."""

    @property
    def text(self) -> str:
        """Distinguishes it from other templates, as part of a kernel's text."""
        return f"by {self!r}"

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The memory that it uses, which is allocated before the statement."""
        return ()

    @property
    def prepares_factors(self) -> bool:
        """Whether factors are computed from their elements once, not again for each term."""
        return False

    @property
    def facts(self) -> dict[str, Any]:
        """What a plan says of it."""
        return {}


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
    free: tuple[ScalarVar, ...]
    extents: tuple[int, ...]
    bound: tuple[ScalarVar, ...]
    reduced: tuple[int, ...]
    out_index: tuple[Scalar, ...]
    a_index: tuple[Scalar, ...]
    b_index: tuple[Scalar, ...]
    accumulator: DType
    epilogue: Scalar
    valid: Scalar | None = None
    a_value: Scalar | None = None
    b_value: Scalar | None = None
    template: Template | None = None

    def index_of(self, buffer: Buffer) -> tuple[Scalar, ...]:
        """The index of a factor by its buffer."""
        return self.a_index if buffer == self.a else self.b_index

    def with_factor(
        self, buffer: Buffer, made: Buffer, index: tuple[Scalar, ...], value: Scalar | None
    ) -> "Contraction":
        """The same with another factor in place of one of the two."""
        if buffer == self.a:
            return replace(self, a=made, a_index=index, a_value=value)
        return replace(self, b=made, b_index=index, b_value=value)

    @property
    def factors(self) -> tuple[Scalar, Scalar]:
        """The two values that are multiplied, in their own types."""
        return (
            Load(self.a, self.a_index) if self.a_value is None else self.a_value,
            Load(self.b, self.b_index) if self.b_value is None else self.b_value,
        )


@dataclass(frozen=True)
class GroupBarrier:
    """All threads of a group have come here, and see each other's writes."""

    is_shared: bool = False
    """Whether only writes to memory of the group matter."""


@dataclass(frozen=True)
class Ready:
    """From here on a launch touches what earlier ones have written; before, it reads what none of them writes.

    Every thread comes here once.
    """


@dataclass(frozen=True)
class Unfailed:
    """A launch goes on only if none before it has failed; where it does not say so, that is the first thing it does."""


@dataclass(frozen=True)
class Combine:
    """Variables over neighbouring threads of a subgroup: all of them get the same values, bit for bit.

    ``values`` are what two threads have together, over ``variables``, those of the thread that comes first, and
    ``others``. Threads join with those whose number differs in the lowest bit, then in the next, up to ``width``.
    """

    variables: tuple[ScalarVar, ...]
    others: tuple[ScalarVar, ...]
    values: tuple[Scalar, ...]
    width: int
    """How many threads, a power of two: those with numbers from a multiple of it on."""


@dataclass(frozen=True)
class WideLoad:
    """Neighbouring elements in one access, from the one at an index on: names for their values.

    The memory is in whole words, and the first element's position is a multiple of how many there are. Where the
    variables are u32 and the elements are not, they are these words, the first element in the lowest bits of one.
    """

    variables: tuple[ScalarVar, ...]
    buffer: Buffer
    index: tuple[Scalar, ...]
    is_ahead: bool = False
    """Whether it must be on its way before ``Ready``: a compiler would move it to where its values are needed."""

    @property
    def has_words(self) -> bool:
        """Whether the names are for words."""
        return self.variables[0].dtype.name == "u32" and self.buffer.dtype.compute.name != "u32"

    @property
    def count(self) -> int:
        """How many elements there are."""
        return len(self.variables) * 32 // self.buffer.dtype.bits if self.has_words else len(self.variables)


@dataclass(frozen=True)
class WideStore:
    """Values in neighbouring elements, in one access, as ``WideLoad`` reads them."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    values: tuple[Scalar, ...]

    @property
    def has_words(self) -> bool:
        """Whether the values are words."""
        return self.values[0].dtype.name == "u32" and self.buffer.dtype.compute.name != "u32"

    @property
    def count(self) -> int:
        """How many elements there are."""
        return len(self.values) * 32 // self.buffer.dtype.bits if self.has_words else len(self.values)


Statement: TypeAlias = (
    For
    | While
    | Let
    | Local
    | SetLocal
    | Store
    | If
    | Alloc
    | Fail
    | Contraction
    | Structure
    | GroupBarrier
    | Ready
    | Unfailed
    | Combine
    | WideLoad
    | WideStore
    | TileStep
)


@dataclass(frozen=True)
class Kernel:
    """A function on buffers: parameters and body."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    doc: tuple[str, ...] = field(default=(), compare=False)
    """What it computes, in mathematics and words; not part of its identity."""

    @property
    def can_fail(self) -> bool:
        """Whether it can find a value for which its op has no result."""
        return any(isinstance(statement, Fail) for statement in walk(self.body))

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """All memory that it allocates, in the order of its statements."""
        return tuple(statement.buffer for statement in walk(self.body) if isinstance(statement, Alloc))


def factors_of(statement: Statement) -> tuple[Buffer, ...]:
    """The buffers that a statement reads by index maps: an expression cannot stand in their place."""
    match statement:
        case Contraction(a=a, b=b):
            return a, b
        case Structure(elements=elements):
            return tuple(one.buffer for one in elements)
        case _:
            return ()


def bodies(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The statements directly inside a statement: the body of a loop, both branches of a condition."""
    match statement:
        case For(body=body) | While(body=body):
            return (body,)
        case If(then=then, otherwise=otherwise):
            return then, otherwise
        case _:
            return ()


def walk(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """Statements and those inside them, heads before bodies."""
    stack = [*reversed(statements)]
    while stack:
        statement = stack.pop()
        yield statement
        for body in reversed(bodies(statement)):
            stack.extend(reversed(body))


def scalars(statement: Statement) -> tuple[Scalar, ...]:
    """The expressions directly in a statement."""
    match statement:
        case For(extent=extent):
            return (extent,)
        case While(cond=cond) | If(cond=cond):
            return (cond,)
        case Let(value=value) | Local(value=value) | SetLocal(value=value):
            return (value,)
        case Store(index=index, value=value):
            return (*index, value)
        case Combine(variables=variables, values=values):
            return (*variables, *values)
        case WideLoad(index=index):
            return index
        case WideStore(index=index, values=values):
            return (*index, *values)
        case Contraction():
            parts: tuple[Any, ...] = (*statement.out_index, *statement.factors, statement.epilogue)
            return (*parts, statement.valid) if statement.valid is not None else parts
        case Structure() | TileStep():
            return statement.scalars
        case _:
            return ()


def assigned_by(statement: Statement) -> tuple[ScalarVar, ...]:
    """The variables that get another value by a statement itself."""
    match statement:
        case SetLocal(var=var):
            return (var,)
        case Combine(variables=variables):
            return variables
        case _:
            return ()
