"""Rows that stay in registers from one loop to the next: in those of which threads, and in how many groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.ir import Scalar
from openinfer.loops.teams import needed_words
from openinfer.synth.targets.simt.group_team import exchange_words
from openinfer.synth.targets.simt.kept import KeptRow
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.row_loops import RowLoop
from openinfer.synth.targets.simt.team import chunks_of
from openinfer.synth.targets.simt.wide import WideLoop

_WORKING = 24
"""Registers of a thread that hold no part of a row, at least."""
_NEIGHBOURS = 8
"""Adjacent threads whose accesses together are one memory transaction."""


@dataclass(frozen=True)
class HeldRow:
    """What stays in registers between loops."""

    team: int
    """The threads of a group that share a row."""
    rows: dict[tuple[Scalar, ...], KeptRow]
    """What they keep, by the extents of the loops."""
    chunks: int = 0
    """The chunks that a thread keeps, if it has more."""
    groups: int = 1
    """The groups that share a row."""


@dataclass(frozen=True)
class Holders:
    """Decides which threads keep a row in registers."""

    machine: SimtMachine
    loops: Sequence[RowLoop]
    widths: Mapping[tuple[Scalar, ...], int]
    count: int
    """The number of rows."""
    shares: bool
    """Whether several groups may share a row: either all of them end early, or none does."""

    def held(self) -> HeldRow | None:
        """What of a row stays in registers between loops; None if nothing does."""
        longest = max(self.loops, key=lambda one: most_elements(one.extents))
        if any(map(is_symbolic, longest.extents)) or most_elements(longest.extents) < self.machine.least_row:
            return None
        same = [one for one in self.loops if one.shape == longest.shape]
        row, width = KeptRow(same), self.widths[longest.shape]
        if not row.words:
            return None
        chunks, words = chunks_of(longest, width), width * row.words
        alone = self._smallest(chunks, words, is_long=any(WideLoop(one.indices[-1], one.body).is_long for one in same))
        found = self._in_one(chunks, words, alone)
        if found is None or found.chunks or self._is_alone(chunks, words, found.team):
            found = self._in_groups(chunks, words) or found
        if found is None:
            return None
        edges = [one.edge for one in same if one.edge is not None]
        rows = {edges[0].shape: KeptRow(edges)} if edges else {}
        return replace(found, rows={longest.shape: row, **rows})

    def _smallest(self, chunks: int, words: int, *, is_long: bool) -> int | None:
        """The threads of one group that can hold a row; None if no group can."""
        machine = self.machine
        usual = self._fitting(chunks, words, machine.kept_elements, is_long=is_long)
        if usual is not None and usual <= machine.subgroup:
            return usual
        return self._fitting(chunks, words, machine.most_kept, is_long=is_long) or usual

    def _fitting(self, chunks: int, words: int, room: int, *, is_long: bool) -> int | None:
        """The threads that can hold a row with ``room`` registers each."""
        # Long code is replicated less often, if a subgroup is too small anyway and there are enough threads.
        is_long = is_long and chunks * words > room * self.machine.subgroup
        limits = (room // 2, room) if is_long else (room,)
        teams = (self._holders(chunks, limit // words, words) for limit in limits)
        return next((one for one in teams if one is not None), None)

    def _holders(self, chunks: int, each: int, words: int) -> int | None:
        """The number of threads for a row of ``chunks``, at most ``each`` per thread: enough to keep all units busy.

        A chunk takes ``words`` registers.
        """
        machine = self.machine
        if not each:
            return None
        if not machine.subgroup:
            return machine.group if machine.group // 2 <= chunks <= machine.group * each else None
        team = max(_power(-(-chunks // each)), min(_NEIGHBOURS, _power(chunks // 2 + 1)))
        while 2 * team <= min(chunks, machine.group) and self.count * team < machine.units * machine.busy:
            team *= 2
        is_possible = 1 < team <= max(machine.group, machine.largest_group)
        return team if is_possible and -(-chunks // team) * words <= self._room(team) else None

    def _room(self, team: int) -> int:
        """The registers of each of ``team`` threads that may hold a row: half of those that one group can have."""
        registers = self.machine.unit_registers
        return registers // team // 2 if registers else self.machine.kept_elements

    # --- several groups -----------------------------------------------------------------------------------------------

    def _is_alone(self, chunks: int, words: int, team: int) -> bool:
        """Whether a unit has room for one group with such a row only: while its threads wait, nothing is on its way."""
        registers = self.machine.unit_registers
        return registers > 0 and -(-chunks // team) * words > registers // (2 * team) - _WORKING

    def _in_groups(self, chunks: int, words: int) -> HeldRow | None:
        """Several groups for a row."""
        machine, wanted = self.machine, self.machine.shared_rows
        if wanted is None or not self.shares or not any(one.reductions for one in self.loops):
            return None
        threads, each = min(wanted.threads, machine.group), wanted.elements // words
        most = min(wanted.most, machine.subgroup)
        if threads <= machine.subgroup or not each:
            return None
        groups = min(-(-chunks // (threads * each)), most)
        if groups == 1 or needed_words(exchange_words(self.loops, groups, self.count)) > wanted.words:
            return None
        is_part = chunks > groups * threads * each
        return HeldRow(threads, {}, _beside_others(each) if is_part else 0, groups)

    # --- one group ----------------------------------------------------------------------------------------------------

    def _in_one(self, chunks: int, words: int, alone: int | None) -> HeldRow | None:
        """A group with fewer threads than ``alone`` if each can keep more, or with a part of the row."""
        team = alone
        if team is None:
            team = self._half_the_threads(chunks, words, groups=1)
        elif team == self.machine.largest_group:
            team = self._half_the_threads(chunks, words, groups=2) or team
        return self._part(chunks, words) if team is None else HeldRow(team, {})

    def _half_the_threads(self, chunks: int, words: int, *, groups: int) -> int | None:
        """Half as many threads as a group can have, if ``groups`` of them with a row each fit on a compute unit.

        Each then has more registers, so that fewer of all hold no part of a row. If the largest group can hold it, too,
        that pays only where two groups run at once: one loads while the other computes.
        """
        machine, team = self.machine, self.machine.largest_group // 2
        if team <= machine.group:
            return None
        most = (machine.unit_registers // (groups * team) - _WORKING) // words
        return team if -(-chunks // team) <= most else None

    def _part(self, chunks: int, words: int) -> HeldRow | None:
        """The first chunks of a row that is too long for registers."""
        machine = self.machine
        team = max(machine.group, machine.largest_group)
        each = min(machine.kept_elements, self._room(team)) // words
        if not machine.subgroup or not each or chunks <= team * each:
            return None
        return HeldRow(team, {}, _beside_others(each))


def _beside_others(each: int) -> int:
    """The chunks that stay in registers of ``each``: others need room while they are on their way."""
    return max(each * 3 // 4, 1)


def _power(least: int) -> int:
    """The smallest power of two that is at least ``least``."""
    return 1 << (least - 1).bit_length()
