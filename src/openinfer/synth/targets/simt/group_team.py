"""Groups that share a row: how they exchange partial results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import DType
from openinfer.loops.ir import Buffer, GroupBarrier, If, ScalarVar, SetLocal, Space, Statement
from openinfer.loops.reduction import Reduction
from openinfer.synth.targets.simt.partials import part_loaded, part_stored, shared_type
from openinfer.synth.targets.simt.wide import FreshNames


@dataclass(frozen=True)
class GroupTeam:
    """A team of groups, in each of which all threads have the partial results of their group.

    The groups pass these on through memory that no other row uses, and wait for each other once. Then the threads of
    every group combine them in the same order, so that all have the same bits.
    """

    names: FreshNames
    groups: int
    rows: int
    part: ScalarVar
    """A group's number in its team."""
    lane: ScalarVar
    """A thread's number in its group."""
    row: ScalarVar
    memory: list[Buffer] = field(default_factory=list)
    """Memory for partial results: for each exchange, of each group of each row."""

    @property
    def width(self) -> int:
        """The adjacent threads that have the partial results of all groups after an exchange."""
        return 1 << (self.groups - 1).bit_length()

    def exchanged(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        """Each of ``width`` adjacent threads gets what one group has; others get what changes nothing."""
        memory = [self._memory(part.dtype) for part in parts]
        pairs = tuple(zip(memory, parts, strict=True))
        yield If(self.lane.eq(0), tuple(part_stored(buffer, (self.row, self.part), part) for buffer, part in pairs))
        yield GroupBarrier(groups=self.groups)
        place = self.lane % self.width
        loads = tuple(SetLocal(part, part_loaded(buffer, (self.row, place), part)) for buffer, part in pairs)
        if self.groups == self.width:
            yield from loads
            return
        yield from (SetLocal(part, one.first) for one, part in zip(found, parts, strict=True))
        yield If(place < self.groups, loads)

    def _memory(self, dtype: DType) -> Buffer:
        kind = shared_type(dtype)
        made = Buffer(self.names.name("exchanged"), kind, (self.rows, self.groups), Space.SCRATCH)
        self.memory.append(made)
        return made
