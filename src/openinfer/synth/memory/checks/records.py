"""Checks as records: the condition, and the number of the failure if it does not hold.

Every step of a program has a record of its kind, in step order; printers render them in their language. A check that is
implied by an earlier one is left out.
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
    """An extent can be computed, is not negative, and no larger than memory was planned for."""

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
    """The comparisons do not all hold; with ``is_any``, none of them holds."""

    comparisons: tuple[Comparison, ...]
    is_any: bool
    failure: int


@dataclass(frozen=True)
class Computable:
    """The integers of the previous check could be computed."""

    failure: int


@dataclass(frozen=True)
class Room:
    """The actual length is at most the bound of its axis."""

    most: int
    failure: int


@dataclass(frozen=True)
class BindsSize:
    """Binds the single size of an extent from the actual length, if it has no value."""

    size: str
    extent: int
    failure: int


@dataclass(frozen=True)
class BindsAmong:
    """Binds one of several sizes of an extent, if the others have values."""

    size: str
    extent: int
    others: tuple[str, ...]
    """The other sizes that may have no value."""
    failure: int


@dataclass(frozen=True)
class Agrees:
    """An extent equals the actual length."""

    extent: int
    failure: int


SizeCheck: TypeAlias = Known | InRange | Even | Refused | Computable | Room | BindsSize | BindsAmong | Agrees
SizeChecks: TypeAlias = tuple[SizeCheck, ...]


@dataclass(frozen=True)
class WhenKnown:
    """Does something only if sizes have values that make valid shapes, and something else if they have no values."""

    unknown: tuple[str, ...]
    extents: tuple[int, ...]
    quotients: tuple[BinaryExpr, ...]
    """Divisions that must have no remainder."""


# --- indices ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IndexFailure:
    """The failures of an index expression, and the failure if it could be computed."""

    by_zero: int
    too_long: int
    otherwise: int | None = None


@dataclass(frozen=True)
class IndexSpan:
    """An index is between the first and the last valid one."""

    expr: Expr
    first: int
    last: int
    can_be_below: bool
    can_be_above: bool


@dataclass(frozen=True)
class ChosenTensor:
    """Indices select one of a family's tensors; lists only the indices that could be out of range."""

    spans: tuple[IndexSpan, ...] = ()
    failure: int | IndexFailure | None = None
    gap: int | None = None
    """The failure if the family has no tensor at the indices."""


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchPoint:
    """Nodes are about to be executed; ``failure`` is an interruption, the next number an exceeded budget."""

    nodes: int
    failure: int


@dataclass(frozen=True)
class NoChecks:
    """Nothing is checked."""


@dataclass(frozen=True)
class KernelChecks:
    """Checks of a kernel call."""

    when: WhenKnown | None
    extents: SizeChecks
    inputs: tuple[ChosenTensor | None, ...]
    failure: int | None
    """The failure if the kernel fails."""


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
    """The failure if a consumer has bound other values than the block that continues."""

    failure: int | None


@dataclass(frozen=True)
class LengthChecks:
    """Checks of the length of a slice along an axis."""

    axis: int
    checks: SizeChecks


@dataclass(frozen=True)
class SliceChecks:
    """Checks of an access to a slice of a table or a tensor, in the order in which they are made."""

    whole: SizeChecks = ()
    """Of the tensor that is sliced."""
    indices: IndexFailure | None = None
    negative: int | None = None
    """The failure of a negative index, if one is possible."""
    outside: int = -1
    lengths: tuple[LengthChecks, ...] = ()
    extents: SizeChecks = ()
    """Of the value that is read."""
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
    """Checks of a block's arguments."""

    sizes: SizeChecks
    args: tuple[ChosenTensor | None, ...]
    failure: IndexFailure | None
    """The failure of indices that cannot be computed."""


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
    """Checks of the caller's inputs, before anything runs."""

    sizes: Mapping[str, int]
    """The failure of each size that is out of range."""
    inputs: Mapping[str, "InputFailures"]


@dataclass(frozen=True)
class InputFailures:
    """Failures of an input: it is missing, it aliases memory that the step writes; then the checks of its extents."""

    missing: int
    shared: int
    extents: SizeChecks


@dataclass(frozen=True)
class Checks:
    """All checks of a program."""

    blocks: Mapping[str, BlockChecks]
    inputs: InputChecks
