"""Row kernels: a team of threads shares each iteration of a parallel loop, or a team of groups.

An iteration is a row; its loops reduce values or compute elements from them (norms, softmax, sums, matrix-vector
products). Threads take contiguous chunks of the row in a fixed order and combine their partial results, so an
element that one loop writes and another reads always belongs to the same thread.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openinfer.loops.build import index, pair, unflat
from openinfer.loops.dim import is_symbolic, most_elements, span
from openinfer.loops.ir import (
    Alloc,
    Bind,
    Fail,
    For,
    If,
    Let,
    LoopKind,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    walk,
)
from openinfer.loops.rewrite import Statements
from openinfer.synth.targets.simt.again import with_kept_results
from openinfer.synth.targets.simt.aligned import with_aligned_chunks
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.extremes import has_extreme, searched, with_separate_places
from openinfer.synth.targets.simt.group_team import GroupTeam, exchange_words
from openinfer.synth.targets.simt.held import HeldRow, Holders
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.powers import powers_of
from openinfer.synth.targets.simt.row_loops import RowLoop, row_items
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.team import CHUNKS, LaneTeam, chunks_of, common_widths
from openinfer.synth.targets.simt.threads import int_extent, lets_of, nest
from openinfer.synth.targets.simt.wide import FreshNames

_SUBGROUPS = 8
"""Subgroups per compute unit that keep memory busy."""
_COLUMNS = 32
"""Adjacent rows that a group takes together: as many as one access of a subgroup covers."""


def rows(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """Parallel loops around loops that reduce or compute elements; without a parallel loop, a single row."""
    *before, last = part.body
    if part.is_parallel and not isinstance(last, For):
        return None
    loops = tuple(nest(last)) if part.is_parallel else ()
    body = loops[-1].body if loops else part.body
    items = row_items(body) or row_items(with_separate_places(body, FreshNames(taken)))
    if items is None or not any(isinstance(one, RowLoop) for one in items):
        return None
    extents = tuple(int_extent(one.extent) for one in loops)
    can_fail = any(isinstance(one, Fail) for one in walk(part.body))
    made = _Rows(tuple(one.index for one in loops), extents, items, machine, FreshNames(taken), can_fail=can_fail)
    return made.formed(tuple(before) if loops else ())


class _Rows:
    def __init__(
        self,
        indices: tuple[ScalarVar, ...],
        extents: tuple[int, ...],
        items: Sequence[Statement | RowLoop],
        machine: SimtMachine,
        names: FreshNames,
        *,
        can_fail: bool,
    ) -> None:
        self._indices, self._extents, self._machine, self._names = indices, extents, machine, names
        self._lets, self._items = with_aligned_chunks(items, indices, machine, names)
        self._loops = [one for one in self._items if isinstance(one, RowLoop)]
        self._widths = common_widths(self._loops, machine)
        self._searched = searched(self._items)
        self._own = {best: names.var(f"{best.name}_own", best.dtype) for best in self._searched.values()}
        self._lane, self._member, self._row = names.var("lane"), names.var("member"), names.var("row")
        self._beside = self._columns()
        held: HeldRow | None = None
        if self._beside:
            machine = self._machine = replace(machine, group=self._threads_for_columns())
            self._team = machine.group // self._beside
        else:
            if not self._is_across():
                held = self._held(shares=not can_fail)
            self._team = self._threads_of_a_row() if held is None else held.team
        if held is not None and self._team > machine.subgroup:
            machine = self._machine = replace(machine, group=self._team)
        self._per = machine.group // self._team
        self._needed = (self._rows + (self._per - 1)) // self._per
        self._across = self._other_groups(1 if held is None else held.groups)
        self._powers = None if self._across is None else powers_of(self._items)
        self._factor = names.var("factor", self._powers.total.var.dtype) if self._powers is not None else None
        self._takes_turns = span(self._needed)[1] > self._most
        self._threads = LaneTeam(
            machine,
            names,
            self._team * self._groups,
            self._lane,
            self._member,
            self._widths,
            kept={} if held is None else held.rows,
            kept_chunks=0 if held is None else held.chunks,
            apart=max(self._beside, 1),
            runs_once=not self._takes_turns,
            across=self._across,
        )

    @property
    def _rows(self) -> int:
        total = 1
        for extent in self._extents:
            total = total * extent
        return total

    def _held(self, *, shares: bool) -> HeldRow | None:
        """What of a row stays in registers: results that are computed twice, if groups share it and have room for all.

        In a single group, compilers see that such results are the same.
        """
        count = span(self._rows)[1]
        held = Holders(self._machine, self._loops, self._widths, count, shares=shares).held()
        is_whole = held is not None and held.groups > 1 and not held.chunks
        items = with_kept_results(self._items, self._names) if is_whole else None
        if held is None or items is None:
            return held
        loops = [one for one in items if isinstance(one, RowLoop)]
        found = Holders(self._machine, loops, self._widths, count, shares=shares).held()
        if found is None or replace(found, rows=held.rows) != held:
            return held
        self._items, self._loops = items, loops
        return found

    def _other_groups(self, groups: int) -> GroupTeam | None:
        """How the groups of a row exchange partial results; None if there is only one."""
        if groups == 1:
            return None
        words = exchange_words(self._loops, groups, span(self._rows)[1])
        return GroupTeam(self._names, words, self._names.var("part"), self._lane, self._row)

    @property
    def _groups(self) -> int:
        """The groups that share a row."""
        return 1 if self._across is None else self._across.groups

    @property
    def _most(self) -> int:
        """The most rows that groups, or teams of groups, begin with; they loop over the others."""
        return self._machine.most_groups // self._groups

    def _threads_of_a_row(self) -> int:
        """The threads per row: one, a fraction of a subgroup, a subgroup, or a group."""
        machine, most = self._machine, max(span(chunks_of(one, self._widths[one.shape]))[1] for one in self._loops)
        if max(most_elements(one.extents) for one in self._loops) < machine.least_row or self._is_across():
            return 1
        count = span(self._rows)[1]
        is_few = count < 2 * machine.units
        if not machine.subgroup:
            return machine.group if is_few or most >= machine.group // 2 else 1
        # Rows that are traversed once only need enough subgroups; others stay in the cache between loops.
        is_many = len(self._loops) == 1 and count >= _SUBGROUPS * machine.units
        longest = machine.subgroup * CHUNKS * (CHUNKS if is_many else 1)
        if most > longest or (is_few and most > machine.subgroup):
            return machine.group
        return min(machine.subgroup, 1 << max(most.bit_length() - 1, 0))

    def _columns(self) -> int:
        """The number of rows, adjacent in memory, that a group takes together; 0 if that does not help."""
        count, rows = min(_COLUMNS, self._machine.group // 2), self._rows
        if is_symbolic(rows) or rows < count or not self._is_across(least=1) or self._is_across():
            return 0
        if max(most_elements(one.extents) for one in self._loops) < self._machine.least_row:
            return 0
        # All threads of a group reach its barriers: those without a row would repeat the stores of others.
        is_storing = any(isinstance(one, Store) for loop in self._loops for one in loop.body)
        return 0 if rows % count and is_storing else count

    def _threads_for_columns(self) -> int:
        """Threads per group: enough to keep all units busy."""
        machine, found = self._machine, self._machine.group
        while (
            2 * found <= machine.largest_group and -(-self._rows // self._beside) * found < machine.units * machine.busy
        ):
            found *= 2
        return found

    def _is_across(self, least: int | None = None) -> bool:
        """Whether adjacent rows are contiguous in memory and the elements of a row are not.

        There must be at least ``least`` rows, by default enough to keep all units busy with one thread per row.
        """
        many = 2 * self._machine.units * self._machine.group if least is None else least
        if not self._indices or span(self._rows)[1] < many:
            return False
        found = [(one, where) for one in self._loops for where in one.loads]
        is_beside = any(where.stride(self._indices[-1]) == 1 for _, where in found)
        return is_beside and not any(where.stride(one.indices[-1]) == 1 for one, where in found)

    # --- the launch ---------------------------------------------------------------------------------------------------

    def formed(self, before: Statements) -> Formed | None:
        if self._team == 1:
            return None
        machine, names, per = self._machine, self._names, self._per
        count = self._most if self._takes_turns else self._needed
        group, block, row = names.var("group"), names.var("block"), self._row
        body: Statements = tuple(made for one in self._items for made in self._item(one))
        if self._across is not None:
            body = (*body, self._across.left)
        lets = (*lets_of(self._indices, unflat(row, self._extents)), *self._lets)
        if self._beside:
            place = block * per + self._lane % self._beside
            body = (Let(row, self._clamped(place)), *lets, *body)
        elif per > 1:
            place = block * per + self._lane // self._team
            body = (Let(row, place), If(row < index(self._rows), (*lets, *body)))
        else:
            body = (Let(row, block), *lets, *body)
        if not self._takes_turns:
            body = (Let(block, group), *body)
        else:
            turn = names.var("turn")
            turns = (index(self._needed) - group + (count - 1)) // index(count)
            body = (For(turn, turns, (Let(block, turn * count + group), *body)),)
        body = (*before, Let(self._member, self._number), *body)
        loops = self._grouped(group, count, body)
        return Formed(loops, count * self._groups * machine.group, self._form)

    @property
    def _number(self) -> Scalar:
        """A thread's number among those of its row."""
        if self._beside:
            return self._lane // self._beside
        if self._across is not None:
            return self._across.part * self._team + self._lane
        return self._lane % self._team if self._per > 1 else self._lane

    def _grouped(self, group: ScalarVar, count: int, body: Statements) -> Statements:
        """What a thread does as loops: over groups, or over teams of groups, and the threads of a group."""
        threads = For(self._lane, index(self._machine.group), body, LoopKind.PARALLEL, Bind.THREAD)
        memory = [*self._threads.shared.values(), *(() if self._across is None else self._across.shared.values())]
        shared = tuple(Alloc(one) for buffers in memory for one in buffers)
        if self._across is None:
            return (For(group, index(count), (*shared, threads), LoopKind.PARALLEL, Bind.GROUP),)
        part = self._across.part
        groups = For(part, index(self._groups), (*shared, threads), LoopKind.PARALLEL, Bind.GROUP)
        return (For(group, index(count), (groups,), LoopKind.PARALLEL, Bind.TEAM),)

    @property
    def _form(self) -> str:
        part = ", partly" if self._threads.kept_chunks else ","
        kept = f"{part} in registers" if self._threads.kept else ", beside each other" if self._beside else ""
        groups = "" if self._across is None else f"{self._groups} groups of "
        return f"rows: {groups}{self._team} threads each{kept}"

    def _clamped(self, place: Scalar) -> Scalar:
        """A row that exists: threads past the end take the last one."""
        return pair("min", place, index(self._rows - 1)) if self._rows % self._beside else place

    @property
    def _is_first(self) -> Scalar:
        """Whether a thread stores the results of its row; if several teams have the last row, only the first does."""
        if not self._beside or self._rows % self._beside == 0:
            return self._member.eq(0)
        last = self._rows % self._beside - 1
        is_own = (self._lane % self._beside <= last) | (self._row < index(self._rows - 1))
        return self._member.eq(0) & is_own

    def _item(self, one: Statement | RowLoop) -> Iterator[Statement]:
        match one:
            case RowLoop():
                yield from self._loop(one)
            case Store():
                yield If(self._is_first, (one,))
            case _:
                yield one

    def _loop(self, one: RowLoop) -> Iterator[Statement]:
        threads, powers, across = self._threads, self._powers, self._across
        if powers is not None and across is not None and self._factor is not None:
            if one is powers.first:
                yield from threads.in_groups(one)
                return
            if one is powers.second:
                yield from threads.powers(powers, across, self._factor)
                return
            one = powers.scaled(one, self._factor) if one is powers.third else one
        best = self._searched.get(one)
        only_if = None if best is None else has_extreme(self._own[best], best)
        saved = {var: own for var, own in self._own.items() if any(each.var == var for each in one.reductions)}
        yield from threads.loop(one, only_if, saved)
