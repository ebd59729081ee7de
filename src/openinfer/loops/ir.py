"""The loop IR, which every target prints. Typed, frozen, small.

Statements and kernels are defined here. Their expressions are those of ``openinfer.loops.scalar``, and what threads do
together is in ``openinfer.loops.thread_steps``; all are re-exported, so that there is one import.
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
from openinfer.loops.thread_steps import (
    Combine,
    Exchange,
    GroupBarrier,
    Leave,
    Ready,
    TeamWords,
    Unfailed,
    WideLoad,
    WideStore,
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
    "Exchange",
    "Fail",
    "For",
    "GroupBarrier",
    "If",
    "Kernel",
    "Leave",
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
    "TeamWords",
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
    """Each iteration of a parallel loop is a team: the groups of the ``GROUP`` loop in it can exchange values."""
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
    | Exchange
    | Leave
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
        case Exchange(values=values, row=row):
            return (*values, row)
        case Leave(row=row):
            return (row,)
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
