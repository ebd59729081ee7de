"""The loop IR, which every target prints. Typed, frozen, small.

Statements and kernels are defined here. Their expressions are those of ``openinfer.loops.scalar``, re-exported so that
all have one import.
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
    """What holds of a loop's iterations, whatever runs them; lowerings declare it."""

    SERIAL = "serial"
    """Each iteration may depend on those before it."""
    PARALLEL = "parallel"
    """Iterations are independent: any order, or all at once, gives the same result."""


class Bind(StrEnum):
    """What runs the iterations of a loop, as schedules decide; the iterations of an unbound loop run in sequence."""

    LANES = "lanes"
    """Adjacent iterations accumulate in separate lanes, which are combined after the loop."""
    PART = "part"
    """The iterations of a parallel loop are divided among the parts of the kernel."""
    ROLLED = "rolled"
    """Iterations copy adjacent elements: the loop stays rolled, however short, so that compilers copy many at once."""
    THREAD = "thread"
    """Each iteration of a parallel loop is a thread: of the launch or, inside a ``GROUP`` loop, of a group."""
    GROUP = "group"
    """Each iteration of a parallel loop is a group of a launch: threads that synchronize and share memory."""
    TEAM = "team"
    """Each iteration of a parallel loop is a team: the groups of the ``GROUP`` loop in it can synchronize."""
    UNROLL = "unroll"
    """Iterations are unrolled in the code, so that compilers see constant indices into registers."""


@dataclass(frozen=True)
class For:
    """A loop from 0 up to, and excluding, an extent."""

    index: ScalarVar
    extent: Scalar
    body: tuple["Statement", ...]
    kind: LoopKind = LoopKind.SERIAL
    bind: Bind | None = None


@dataclass(frozen=True)
class While:
    """A loop that runs while a condition holds."""

    cond: Scalar
    body: tuple["Statement", ...]


@dataclass(frozen=True)
class Let:
    """A named value, which does not change."""

    var: ScalarVar
    value: Scalar


@dataclass(frozen=True)
class Local:
    """A mutable variable with an initial value."""

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
    """Statements that run under a condition."""

    cond: Scalar
    then: tuple["Statement", ...]
    otherwise: tuple["Statement", ...] = ()


@dataclass(frozen=True)
class Alloc:
    """Memory private to each iteration of the enclosing loop, from here to the end of the loop's body.

    Outside of loops it belongs to the kernel. It starts out unwritten, whatever an earlier iteration wrote. Placement
    is up to the target: one that runs iterations in sequence gives all of them the same bytes.
    """

    buffer: Buffer


@dataclass(frozen=True)
class Fail:
    """Ends the kernel with an error: the op has no result for a value."""

    reason: str


@dataclass(frozen=True)
class Template:
    """How a structured statement is computed, as a schedule decided; every target derives its own templates."""

    @property
    def text(self) -> str:
        """The part of a kernel's text that tells it apart from other templates."""
        return f"by {self!r}"

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The memory that it uses, which is allocated before the statement."""
        return ()

    @property
    def prepares_factors(self) -> bool:
        """Whether factors are computed from their elements once, rather than again for each term."""
        return False

    @property
    def facts(self) -> dict[str, Any]:
        """What a plan reports about it."""
        return {}


@dataclass(frozen=True)
class Contraction:
    """A sum of products: ``out[o(i)] = epilogue(sum over k of a[x(i, k)] * b[y(i, k)])``.

    ``extents`` are those of the free (output) indices, ``reduced`` those of the summed ones; ``a_index``, ``b_index``
    and ``out_index`` are expressions over ``free`` and ``bound`` indices. The epilogue is an expression over the
    variable ``ACCUMULATOR`` and loads at the free indices. ``valid`` is a condition under which a term counts, or None.

    A factor that is not the element itself has its own expression, ``a_value`` or ``b_value``, which contains
    ``Load(a, a_index)``: for example, a dequantized weight.
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
        """The index map of the factor in a buffer."""
        return self.a_index if buffer == self.a else self.b_index

    def with_factor(
        self, buffer: Buffer, made: Buffer, index: tuple[Scalar, ...], value: Scalar | None
    ) -> "Contraction":
        """A copy with the factor in ``buffer`` replaced."""
        if buffer == self.a:
            return replace(self, a=made, a_index=index, a_value=value)
        return replace(self, b=made, b_index=index, b_value=value)

    @property
    def factors(self) -> tuple[Scalar, Scalar]:
        """The two factors of a term, in their own types."""
        return (
            Load(self.a, self.a_index) if self.a_value is None else self.a_value,
            Load(self.b, self.b_index) if self.b_value is None else self.b_value,
        )


@dataclass(frozen=True)
class GroupBarrier:
    """All threads of a group, or of a team of groups, reach this point before any continues.

    They then see each other's writes.
    """

    is_shared: bool = False
    """Whether only writes to group memory need to become visible."""
    groups: int = 1
    """The groups that meet: those of a team, or the own group alone."""


@dataclass(frozen=True)
class Ready:
    """From here on, a launch may touch what earlier ones have written; before, it only reads what none of them writes.

    Every thread reaches it once.
    """


@dataclass(frozen=True)
class Unfailed:
    """Ends the launch if an earlier one has failed; without this statement, a launch checks that first."""


@dataclass(frozen=True)
class Combine:
    """Reduces variables across adjacent threads of a subgroup: all of them get the same values, bit for bit.

    ``values`` combine two threads: ``variables`` are those of the thread that comes first, ``others`` those of the
    second. Threads combine with the one whose number differs in the lowest bit, then in the next, up to ``width``.
    """

    variables: tuple[ScalarVar, ...]
    others: tuple[ScalarVar, ...]
    values: tuple[Scalar, ...]
    width: int
    """The number of threads, a power of two; the first thread's number is a multiple of it."""
    before: tuple[ScalarVar, ...] = ()
    """Variables that get what all threads before have in ``variables``, combined, in front of their own value."""


@dataclass(frozen=True)
class WideLoad:
    """Loads adjacent elements in one access, starting at an index, and names their values.

    The access covers whole words, and the offset of the first element is a multiple of their count. If the variables
    are u32 and the elements are not, they are the words, with the first element in the lowest bits of the first.
    """

    variables: tuple[ScalarVar, ...]
    buffer: Buffer
    index: tuple[Scalar, ...]
    is_ahead: bool = False
    """Whether the load must be issued before ``Ready``; a compiler would move it to where its values are needed."""

    @property
    def has_words(self) -> bool:
        """Whether the variables are words."""
        return self.variables[0].dtype.name == "u32" and self.buffer.dtype.compute.name != "u32"

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.variables) * 32 // self.buffer.dtype.bits if self.has_words else len(self.variables)


@dataclass(frozen=True)
class WideStore:
    """Stores values in adjacent elements in one access, laid out as for ``WideLoad``."""

    buffer: Buffer
    index: tuple[Scalar, ...]
    values: tuple[Scalar, ...]
    is_near: bool = False
    """Whether values that lie halfway between two of the buffer may become either: they are not exact anyway."""

    @property
    def has_words(self) -> bool:
        """Whether the values are words."""
        return self.values[0].dtype.name == "u32" and self.buffer.dtype.compute.name != "u32"

    @property
    def count(self) -> int:
        """The number of elements."""
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
    """What it computes, in formulas and words; not part of its identity."""

    @property
    def can_fail(self) -> bool:
        """Whether it may find a value for which its op has no result."""
        return any(isinstance(statement, Fail) for statement in walk(self.body))

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """All memory that it allocates, in statement order."""
        return tuple(statement.buffer for statement in walk(self.body) if isinstance(statement, Alloc))


def factors_of(statement: Statement) -> tuple[Buffer, ...]:
    """The buffers that a statement reads through index maps, where an expression cannot replace the element."""
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
    """Statements and those inside them, in preorder."""
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
        case Combine(variables=variables, values=values, before=before):
            return (*variables, *before, *values)
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
    """The variables that a statement itself assigns."""
    match statement:
        case SetLocal(var=var):
            return (var,)
        case Combine(variables=variables, before=before):
            return (*variables, *before)
        case _:
            return ()
