"""Checks as records: what is looked at, and the number of the failure where it is not as it must be.

Every step of a program has a record of its kind, in the order of the steps; printers say the same in their language.
A check that an earlier one makes sure of is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from openinfer.ir.expr import BinaryExpr, Expr
from openinfer.synth.program.ir import Comparison

# --- dynamic sizes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Known:
    """A dynamic size has a value."""

    size: str
    failure: int


@dataclass(frozen=True)
class InRange:
    """An extent can be computed, is not negative, and no larger than there is memory for."""

    extent: int
    most: int
    can_be_negative: bool
    can_be_more: bool
    failure: int


@dataclass(frozen=True)
class Even:
    """A division has no remainder."""

    quotient: BinaryExpr
    failure: int


@dataclass(frozen=True)
class Refused:
    """Comparisons are not all true; or none of them is, if any is refused."""

    comparisons: tuple[Comparison, ...]
    is_any: bool
    failure: int


@dataclass(frozen=True)
class Computable:
    """The integers of the check before could be computed."""

    failure: int


@dataclass(frozen=True)
class Room:
    """A length that was found is no more than its axis can have."""

    most: int
    failure: int


@dataclass(frozen=True)
class BindsSize:
    """The one size of an extent gets its value from the length that was found, if it has none."""

    size: str
    extent: int
    failure: int


@dataclass(frozen=True)
class BindsAmong:
    """The same for one of several sizes, if the others have values."""

    size: str
    extent: int
    others: tuple[str, ...]
    """Those of which it is not certain."""
    failure: int


@dataclass(frozen=True)
class Agrees:
    """An extent is the length that was found."""

    extent: int
    failure: int


SizeCheck: TypeAlias = Known | InRange | Even | Refused | Computable | Room | BindsSize | BindsAmong | Agrees
SizeChecks: TypeAlias = tuple[SizeCheck, ...]


@dataclass(frozen=True)
class WhenKnown:
    """Something is done only if sizes have values, and ones that make shapes; something else if they have none."""

    unknown: tuple[str, ...]
    extents: tuple[int, ...]
    quotients: tuple[BinaryExpr, ...]
    """Divisions without remainder."""


# --- indices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexFailure:
    """Failures of an index expression, and what else is wrong if it could be computed."""

    by_zero: int
    too_long: int
    otherwise: int | None = None


@dataclass(frozen=True)
class IndexSpan:
    """An index is not below the first and not above the last that there is."""

    expr: Expr
    first: int
    last: int
    can_be_below: bool
    can_be_above: bool


@dataclass(frozen=True)
class ChosenTensor:
    """Indices choose one of a family's tensors: those that could choose none are looked at."""

    spans: tuple[IndexSpan, ...] = ()
    failure: int | IndexFailure | None = None
    gap: int | None = None
    """The failure where the family has no tensor at the indices."""


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchPoint:
    """A number of nodes are about to be executed; the failure of an interruption, then that of the budget."""

    nodes: int
    failure: int


@dataclass(frozen=True)
class NoChecks:
    """Nothing is checked."""


@dataclass(frozen=True)
class KernelChecks:
    """Checks of a call of a kernel."""

    when: WhenKnown | None
    extents: SizeChecks
    inputs: tuple[ChosenTensor | None, ...]
    failure: int | None
    """What it is if the kernel fails."""


@dataclass(frozen=True)
class MoveChecks:
    """Checks of a move that copies."""

    when: WhenKnown | None
    extents: SizeChecks
    source: ChosenTensor | None


@dataclass(frozen=True)
class LoopChecks:
    """Checks of a loop's bounds, and of every iteration."""

    bounds: IndexFailure | None
    watch: WatchPoint | None
    body: tuple["StepChecks", ...]


@dataclass(frozen=True)
class ExtentChecks:
    """Checks of a step that does nothing else."""

    checks: SizeChecks


@dataclass(frozen=True)
class AsideSizes:
    """The sizes that are set aside while a consumer runs: all that it may bind and that have no value yet."""

    sizes: tuple[str, ...]


@dataclass(frozen=True)
class JoinedSizes:
    """The failure where a consumer has bound other values than the block that goes on."""

    failure: int | None


@dataclass(frozen=True)
class LengthChecks:
    """Checks of the length that a slice has along an axis."""

    axis: int
    checks: SizeChecks


@dataclass(frozen=True)
class SliceChecks:
    """Checks of an access to a slice of a table or a tensor, in the order in which they are made."""

    whole: SizeChecks = ()
    """Of the tensor that it is a slice of."""
    indices: IndexFailure | None = None
    negative: int | None = None
    """The failure of an index below zero, where one can be."""
    outside: int = -1
    lengths: tuple[LengthChecks, ...] = ()
    extents: SizeChecks = ()
    """Of what is read."""
    memory: int | None = None
    """The failure of a table that cannot grow."""
    value: ChosenTensor | None = None
    source: ChosenTensor | None = None


@dataclass(frozen=True)
class EntryChecks:
    """Checks of an entry of a prefix table."""

    chosen: ChosenTensor


@dataclass(frozen=True)
class IntegerChecks:
    """Checks of an integer that is computed."""

    sizes: SizeChecks
    failure: IndexFailure | None


@dataclass(frozen=True)
class CallChecks:
    """Checks of what a block is called with."""

    sizes: SizeChecks
    args: tuple[ChosenTensor | None, ...]
    failure: IndexFailure | None
    """Indices that cannot be computed."""


StepChecks: TypeAlias = (
    NoChecks
    | KernelChecks
    | MoveChecks
    | LoopChecks
    | ExtentChecks
    | AsideSizes
    | JoinedSizes
    | SliceChecks
    | EntryChecks
    | IntegerChecks
    | CallChecks
)


@dataclass(frozen=True)
class BlockChecks:
    """Checks of a block: before its first step, and of each step."""

    watch: WatchPoint | None
    steps: tuple[StepChecks, ...]


@dataclass(frozen=True)
class InputChecks:
    """Checks of what the caller gives, before anything runs."""

    sizes: Mapping[str, int]
    """The failure of each size that is out of range."""
    inputs: Mapping[str, "InputFailures"]


@dataclass(frozen=True)
class InputFailures:
    """Failures of an input: it is missing, or lies where the step writes; then those of its extents."""

    missing: int
    shared: int
    extents: SizeChecks


@dataclass(frozen=True)
class Checks:
    """All checks of a program."""

    blocks: Mapping[str, BlockChecks]
    inputs: InputChecks
