"""Groups that share a row: how they exchange partial results."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from openinfer.dtypes import DType
from openinfer.loops.build import cast
from openinfer.loops.ir import Buffer, Exchange, If, Leave, ScalarVar, SetLocal, Space, Statement, TeamWords
from openinfer.loops.reduction import Reduction
from openinfer.loops.teams import digits_of
from openinfer.synth.targets.simt.partials import part_loaded, shared_type
from openinfer.synth.targets.simt.row_loops import RowLoop
from openinfer.synth.targets.simt.wide import FreshNames


def exchange_words(loops: Iterable[RowLoop], groups: int, rows: int) -> TeamWords:
    """The words through which groups exchange the partial results of all loops, once for each."""
    parts = (one.var.dtype for loop in loops for one in loop.reductions)
    return TeamWords(rows, groups, groups * sum(digits_of(shared_type(dtype)) for dtype in parts))


@dataclass
class GroupTeam:
    """A team of groups, in each of which all threads have the partial results of their group.

    The groups exchange these. Then the threads of every group combine them in the same order, so that all have the same
    bits.
    """

    names: FreshNames
    words: TeamWords
    part: ScalarVar
    """A group's number in its team."""
    lane: ScalarVar
    """A thread's number in its group."""
    row: ScalarVar
    shared: dict[DType, list[Buffer]] = field(default_factory=dict)
    """Memory of each group for the partial results of all groups."""
    _place: int = 0
    """The words of a row that have been used."""

    @property
    def groups(self) -> int:
        """The groups that share a row."""
        return self.words.groups

    @property
    def width(self) -> int:
        """The adjacent threads that have the partial results of all groups after an exchange."""
        return 1 << (self.groups - 1).bit_length()

    @property
    def left(self) -> Leave:
        """What a group does after its last exchange."""
        return Leave(self.row, self.words)

    def exchanged(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        """Each of ``width`` adjacent threads gets what one group has; others get what changes nothing."""
        memory = self._memory(parts)
        values = tuple(cast(part, buffer.dtype) for buffer, part in zip(memory, parts, strict=True))
        yield Exchange(values, memory, self.row, self.words, self._place)
        self._place += self.groups * sum(digits_of(buffer.dtype) for buffer in memory)
        place = self.lane % self.width
        pairs = zip(memory, parts, strict=True)
        loads = tuple(SetLocal(part, part_loaded(buffer, (place,), part)) for buffer, part in pairs)
        if self.groups == self.width:
            yield from loads
            return
        yield from (SetLocal(part, one.first) for one, part in zip(found, parts, strict=True))
        yield If(place < self.groups, loads)

    def _memory(self, parts: Sequence[ScalarVar]) -> tuple[Buffer, ...]:
        """Memory for values of all groups, which later exchanges reuse: there is a barrier in between."""
        found: list[Buffer] = []
        for part in parts:
            kind = shared_type(part.dtype)
            known = self.shared.setdefault(kind, [])
            free = [one for one in known if one not in found]
            if not free:
                free = [Buffer(self.names.name(f"exchanged_{kind.name}"), kind, (self.groups,), Space.GROUP)]
                known += free
            found.append(free[0])
        return tuple(found)
