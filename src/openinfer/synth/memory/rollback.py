"""Rollback: what a step must save so that its changes can be reverted if it fails.

A step that can only fail before it changes anything persistent saves nothing. Otherwise, variables that it overwrites
are saved when it starts, and slices of tables and tensors when they are written. The number of bytes is known
statically, unless a loop has a dynamic trip count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from openinfer.check.access import static_value
from openinfer.ir import Slice
from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.synth.memory.place import MemoryPlan
from openinfer.synth.program.ir import (
    Action,
    BindSize,
    BranchStep,
    CallStep,
    EntryStep,
    IntegerStep,
    JoinSizes,
    KernelStep,
    LoopStep,
    Move,
    PartStep,
    Program,
    RefuseSizes,
    RequireSize,
    Step,
    StepOperand,
    Steps,
    Storage,
    TableStep,
    Value,
    Weight,
    WeightCheck,
)
from openinfer.synth.program.liveness import definitions
from openinfer.synth.program.positions import Positions, called_by

UNIT = 16
"""The size of a record's header, in bytes; payloads are padded to a multiple of it."""
_MOST = 1 << 26
_UNKNOWN = 1 << 16
"""The bytes reserved if a step may need more than ``_MOST``, or an unknown amount. A step that changes more cannot be
rolled back.
"""


@dataclass(frozen=True)
class Rollback:
    """What is saved: ``homes`` when a step starts, and ``nbytes`` in all."""

    homes: tuple[Value, ...]
    nbytes: int
    is_complete: bool
    """Whether the bytes suffice for whatever a step does."""


def rollback_of(program: Program, plan: MemoryPlan, *, is_interruptible: bool = False) -> Rollback | None:
    """What a step must save; None if it can only fail before it changes anything.

    An interruptible step can fail at the start of any block or loop iteration.
    """
    if not _FailureOrder(program, plan, is_interruptible=is_interruptible).can_tear():
        return None
    return _Amount(program, plan).rollback()


def _written(step: Step, plan: MemoryPlan) -> list[Value]:
    """The persistent variables that a step overwrites as a whole."""
    if isinstance(step, Move) and isinstance(step.src, Value) and plan.is_same(step.src, step.dst):
        return []
    roots = [plan.classes.root(value) for value in definitions(step)]
    return [root for root in roots if root.storage is Storage.STATE]


def is_partly_written(step: Step, plan: MemoryPlan) -> bool:
    """Whether a step writes a slice of a persistent variable in place."""
    if not isinstance(step, PartStep) or not step.action.is_change or not isinstance(step.whole, Value):
        return False
    return plan.classes.root(step.whole).storage is Storage.STATE


@dataclass(frozen=True)
class _Outcome:
    """What steps can do to persistent memory: change it, fail, fail after a change."""

    changes: bool = False
    fails: bool = False
    tears: bool = False

    def then(self, other: "_Outcome") -> "_Outcome":
        """The outcome of both in sequence."""
        return _Outcome(
            self.changes or other.changes,
            self.fails or other.fails,
            self.tears or other.tears or (self.changes and other.fails),
        )


class _FailureOrder:
    """Determines whether a step can fail after a change; loops count as two iterations, and both branches count."""

    def __init__(self, program: Program, plan: MemoryPlan, *, is_interruptible: bool) -> None:
        self._plan = plan
        self._is_interruptible = is_interruptible
        self._blocks: dict[str, _Outcome] = {}
        for name in reversed(Positions(program).blocks):
            self._blocks[name] = self._body(program.blocks[name])

    def can_tear(self) -> bool:
        return self._blocks["entry"].tears

    def _body(self, steps: Steps) -> _Outcome:
        found = _Outcome(fails=self._is_interruptible)
        for step in steps:
            found = found.then(_Outcome(fails=_can_fail(step)))
            if isinstance(step, LoopStep):
                once = self._body(step.body)
                found = found.then(once).then(once)
            for name in called_by(step):
                found = found.then(self._blocks[name])
            if self._changes(step):
                # A kernel or block may fail after it has written something.
                can_fail = isinstance(step, KernelStep) and step.kernel.can_fail
                can_fail = can_fail or (isinstance(step, CallStep) and self._blocks[step.block].fails)
                found = found.then(_Outcome(changes=True, tears=can_fail))
        return found

    def _changes(self, step: Step) -> bool:
        if isinstance(step, TableStep) and step.action.is_change:
            return True
        return bool(_written(step, self._plan)) or is_partly_written(step, self._plan)


def _can_fail(step: Step) -> bool:
    """Whether a step checks anything: indices, run-time sizes, values."""
    match step:
        case KernelStep():
            return step.kernel.can_fail or _has_checks([*step.inputs, *step.outputs, *step.scratch])
        case Move():
            return _has_checks([step.src, step.dst])
        case LoopStep():
            return bool(step.scalars)
        case CallStep():
            return bool(step.integers) or _has_checks(step.args)
        case TableStep():
            return bool(step.indices) or step.action is not Action.RESET
        case _:
            return isinstance(
                step,
                PartStep | EntryStep | WeightCheck | IntegerStep | BindSize | RequireSize | RefuseSizes | JoinSizes,
            )


def _has_checks(operands: Iterable[StepOperand]) -> bool:
    return any(
        bool(one.index) if isinstance(one, Weight) else any(is_symbolic(extent) for extent in one.shape)
        for one in operands
    )


class _Amount:
    """The number of bytes that the records of one step can take."""

    def __init__(self, program: Program, plan: MemoryPlan) -> None:
        self._program = program
        self._plan = plan
        self._constants: Mapping[str, object] = {**program.bound.constants, **program.bound.sizes}
        self._blocks: dict[str, int | None] = {}
        for name in reversed(Positions(program).blocks):
            self._blocks[name] = self._body(program.blocks[name])

    def rollback(self) -> Rollback:
        homes = tuple(dict.fromkeys(home for step in self._program.steps() for home in _written(step, self._plan)))
        most = self._blocks["entry"]
        kept = sum(map(_record, (home.nbytes for home in homes)))
        is_complete = most is not None and most + kept <= _MOST
        return Rollback(homes, kept + (most if is_complete and most is not None else _UNKNOWN), is_complete)

    def _body(self, steps: Steps) -> int | None:
        """The bytes of a body; None if unknown."""
        parts = [self._step(step) for step in steps]
        return sum(part for part in parts if part is not None) if None not in parts else None

    def _step(self, step: Step) -> int | None:
        match step:
            case LoopStep(body=body):
                once, trips = self._body(body), self._trip_count(step)
                return 0 if once == 0 else None if once is None or trips is None else once * trips
            case BranchStep(then_block=then, else_block=otherwise):
                found = [self._blocks[block] for block in (then, otherwise) if block is not None]
                return max(part for part in found if part is not None) if None not in found else None
            case CallStep(block=block):
                return self._blocks[block]
            case TableStep(action=Action.WRITE | Action.RESET):
                return _table_bytes(step, self._plan.alignment)
            case PartStep() if is_partly_written(step, self._plan):
                whole = step.whole if step.action is Action.RESET else step.value
                assert whole is not None
                in_rows = bool(step.indices) and isinstance(step.indices[-1], Slice)
                rows = prod(map(int, whole.shape[:-1] if in_rows else whole.shape))
                return whole.dtype.nbytes(most_elements(whole.shape)) + rows * _record(1)
            case _:
                return 0

    def _trip_count(self, step: LoopStep) -> int | None:
        def static(name: str) -> int | None:
            found = self._constants.get(name)
            return found if isinstance(found, int) else None

        start, end = static_value(step.start, static), static_value(step.end, static)
        return None if start is None or end is None else max(end - start, 0)


def _record(nbytes: int) -> int:
    return UNIT + -(-nbytes // UNIT) * UNIT


def _table_bytes(step: TableStep, alignment: int) -> int | None:
    """The bytes for one change: extents, memory that grows, each cell on its own with the extents of its matrix."""
    table, axes = step.table, len(step.table.bounds)
    entry = prod(map(int, table.entry))
    heads = _record(8 * axes)
    if None in table.bounds:
        heads += _record(8 * axes) + _record(8) + UNIT
    if step.action is Action.WRITE:
        assert step.value is not None
        cells = prod(map(int, step.value.shape)) // max(entry, 1)
    elif None in table.bounds:
        return None
    else:
        cells = prod(bound or 0 for bound in table.bounds)
        heads += _record(alignment)  # alignment padding between the extents of matrices and the cells
    matrix = _record(8 * (axes - table.keys)) if 0 < table.keys < axes else 0
    return heads + cells * (_record(entry * max(table.variable.dtype.bits, 8) // 8) + matrix)
