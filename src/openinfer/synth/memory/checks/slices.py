"""Plans checks of slices of tables and plain tensors: indices are in bounds, and lengths fit."""

from collections.abc import Iterator, Sequence

from openinfer.ir import Index, Single, Slice
from openinfer.loops.dim import sizes_in
from openinfer.synth.memory.checks.indices import IndexPlanner
from openinfer.synth.memory.checks.records import (
    IndexFailure,
    LengthChecks,
    NoChecks,
    SizeChecks,
    SliceChecks,
    StepChecks,
)
from openinfer.synth.memory.checks.sizes import SizePlanner
from openinfer.synth.memory.state import StateLayout
from openinfer.synth.memory.table_access import TableAccess
from openinfer.synth.program.failures import NEGATIVE, NO_MEMORY, OUTSIDE, FailureNumbers
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Action, PartStep, TableStep, Value


class SlicePlanner:
    """Plans checks of steps on slices."""

    def __init__(self, state: StateLayout, numbers: FailureNumbers, sizes: SizePlanner, indices: IndexPlanner) -> None:
        self._state = state
        self._numbers = numbers
        self._sizes = sizes
        self._indices = indices

    def table(self, step: TableStep) -> StepChecks:
        """Checks of an access to a table; resetting a whole table never fails."""
        if step.action is Action.RESET and not step.indices:
            return NoChecks()
        layout, node = self._state.tables[step.table.variable.name], step.node
        access = TableAccess(layout, step)
        indices, negative, outside = self._inside(access.ordered, access.grown, node)
        if step.action is Action.RESET:
            return SliceChecks(indices=indices, negative=negative, outside=outside)
        assert step.value is not None
        lengths = tuple(self._lengths(step, step.value, kept_axes(access.ordered, access.grown)))
        extents = tuple(self._sizes.guard([step.value], node)) if step.action is not Action.WRITE else ()
        grows = step.action is Action.WRITE and layout.heap is not None
        memory = self._numbers.number(node, NO_MEMORY) if grows else None
        return SliceChecks((), indices, negative, outside, lengths, extents, memory)

    def part(self, step: PartStep) -> SliceChecks:
        """Checks of an access to a tensor."""
        node, grown = step.node, [False] * len(step.whole.shape)
        whole = tuple(self._sizes.guard([step.whole], node)) if isinstance(step.whole, Value) else ()
        inside = self._inside(step.indices, grown, node)
        lengths: tuple[LengthChecks, ...] = ()
        extents: SizeChecks = ()
        if isinstance(step.value, Value) and step.action is not Action.RESET:
            lengths = tuple(self._lengths(step, step.value, kept_axes(step.indices, grown)))
            extents = tuple(self._sizes.guard([step.value], node)) if step.action is not Action.WRITE else ()
        if step.action is Action.CHECK:
            return SliceChecks(whole, *inside, lengths, extents)
        value = None if step.value is None else self._indices.operand(step.value, node)
        return SliceChecks(whole, *inside, lengths, extents, None, value, self._indices.operand(step.whole, node))

    def _inside(
        self, indices: Sequence[Index], grown: Sequence[bool], node: int
    ) -> tuple[IndexFailure | None, int | None, int]:
        """The failures of indices: not computable, negative, out of bounds."""
        ends: list[Computed] = []
        can_be_negative = False
        for index, is_grown in zip(indices, grown, strict=True):
            own = (index.value,) if isinstance(index, Single) else (index.start, index.end)
            found = [self._indices.integer(end) for end in own if end is not None]
            ends += found
            if isinstance(index, Single) and not is_grown:
                can_be_negative = can_be_negative or found[0].least < 0
        failed = self._indices.failure(ends, node)
        negative = self._numbers.number(node, NEGATIVE) if can_be_negative else None
        return failed, negative, self._numbers.number(node, OUTSIDE)

    def _lengths(self, step: TableStep | PartStep, value: Value, kept: Sequence[int]) -> Iterator[LengthChecks]:
        """The lengths of a slice match a tensor's extents; a slice that is read may bind sizes."""
        node = step.node
        for axis, extent in sorted(zip(kept, value.shape, strict=False), key=lambda pair: len(sizes_in(pair[1])) > 1):
            if step.action is Action.WRITE:
                yield LengthChecks(axis, tuple(self._sizes.is_extent(extent, node)))
                continue
            most = step.table.bounds[axis] if isinstance(step, TableStep) else None
            room = tuple(self._sizes.room(extent, most, node))
            agree = self._sizes.agree(extent, node, is_exact=step.is_exact)
            yield LengthChecks(axis, (*room, *agree))


def kept_axes(indices: Sequence[Index], grown: Sequence[bool]) -> tuple[int, ...]:
    """The axes of an access that have a length."""
    return tuple(axis for axis, index in enumerate(indices) if isinstance(index, Slice) or grown[axis])
