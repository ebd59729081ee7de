"""Running totals along rows that are contiguous in memory: a team of threads scans a row, one stretch at a time.

A thread scans a few contiguous elements, the threads of a subgroup their totals, and the subgroups of a group the
totals of these. All loads of a stretch are in flight together. The total of a stretch is carried to the next.
"""

from collections.abc import Sequence
from functools import partial

from openinfer.loops.build import index, pair, unflat
from openinfer.loops.dim import is_symbolic, most_elements, span
from openinfer.loops.ir import Alloc, Bind, Buffer, For, GroupBarrier, If, Let, LoopKind, Scalar, SetLocal
from openinfer.loops.rewrite import Statements
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.scan_columns import scanned_columns
from openinfer.synth.targets.simt.scan_parts import (
    Carry,
    Folded,
    LoneScan,
    ScanElements,
    StretchLoads,
    Totals,
    TotalVars,
    each_stretch,
    lone_scan,
)
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import int_extent, lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_MOST_CHUNKS = 16
"""Accesses that a thread has in flight at most."""
_BUSY = 1024
"""Threads per compute unit that keep memory busy, and half of them if they load a stretch while they scan another."""
_TEAM, MOST_TEAM = 256, 512
"""Threads of a row, and the same if there are few rows: several groups fit into a compute unit."""
_LEAST_TEAM = 8
"""Adjacent threads whose accesses together are one memory transaction."""


def scanned(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """A scan in parallel loops: a team of threads for each iteration, or for adjacent iterations."""
    *before, last = part.body
    one = lone_scan(last)
    if one is None:
        return None
    names = FreshNames(taken)
    if one.is_across:
        found = scanned_columns(one, tuple(before), machine, names)
        if found is not None:
            return found
    return _RowScan(one, machine, names).formed(tuple(before))


def row_stretch(one: LoneScan, machine: SimtMachine) -> tuple[int, int]:
    """The threads per row, and the elements that they scan at once."""
    found = _RowScan(one, machine, FreshNames(set()))
    return found.team, found.stretch


class _RowScan:
    def __init__(self, one: LoneScan, machine: SimtMachine, names: FreshNames) -> None:
        self._one, self._scan, self._machine, self._names = one, one.scan, machine, names
        extent = one.scan.axis.extent
        self._elements = ScanElements(one.scan, one.scan.axis.index, extent, names, machine.unaligned)
        words = max(one.scan.accumulator.bits // 32, 1) * len(Folded(one.scan, names).neutral)
        room = max(machine.kept_elements // words, 1)
        self._width = self._elements.width(room)
        self._chunks = extent // self._width
        each = max(min(room // self._width, _MOST_CHUNKS), 1)
        is_long = most_elements((self._chunks,)) > each * _TEAM
        if is_long and not is_symbolic(self._chunks):
            each = max(each // 2, 1)  # The next stretch takes as many registers.
        self.team = self._threads_of_a_row(each, _BUSY // 2 if is_long else _BUSY)
        self._lanes = min(self.team, machine.subgroup) if machine.subgroup else self.team
        if not machine.subgroup:
            each = max(min(each, machine.shared_bytes // (8 * words * self.team)), 1)
        self._each = max(min(each, -(-most_elements((self._chunks,)) // self.team)), 1)
        self.stretch = self.team * self._each * self._width
        self._group = self.team if self.team > self._lanes or not machine.subgroup else max(machine.group, self.team)
        self._lane, self._member = names.var("lane"), names.var("member")
        self._memory: tuple[Buffer, ...] = ()

    def _threads_of_a_row(self, each: int, busy: int) -> int:
        """As many threads as have enough elements, and more if there are few rows."""
        machine, chunks, rows = self._machine, most_elements((self._chunks,)), span(self._one.rows)[1]
        most = min(max(machine.group, machine.largest_group), MOST_TEAM)
        if not machine.subgroup:
            return min(_power(chunks), machine.group)
        team = min(max(_power(-(-chunks // each)), min(_LEAST_TEAM, _power(chunks))), most, _TEAM)
        while 2 * team <= min(chunks, most) and rows * team < machine.units * busy:
            team *= 2
        return team

    # --- the launch ---------------------------------------------------------------------------------------------------

    def formed(self, before: Statements) -> Formed:
        """The launch: groups of one team, or of several that are parts of subgroups."""
        machine, names, one = self._machine, self._names, self._one
        per, rows = self._group // self.team, one.rows
        needed = (rows + (per - 1)) // per
        takes_turns = span(needed)[1] > machine.most_groups
        count = machine.most_groups if takes_turns else needed
        group, block, row = names.var("group"), names.var("block"), names.var("row")
        lets = lets_of(tuple(loop.index for loop in one.loops), unflat(row, [int_extent(x.extent) for x in one.loops]))
        body: Statements = (*lets, *one.lets, *self._row())
        if per > 1:
            body = (Let(row, block * per + self._lane // self.team), If(row < index(rows), body))
        else:
            body = (Let(row, block), *body)
        if takes_turns:
            turn = names.var("turn")
            turns = (index(needed) - group + (count - 1)) // index(count)
            # Shared memory must be read before the next row overwrites it.
            after = (GroupBarrier(),) if self._memory else ()
            body = (For(turn, turns, (Let(block, turn * count + group), *body, *after)),)
        else:
            body = (Let(block, group), *body)
        own = Let(self._member, self._lane % self.team if per > 1 else self._lane)
        threads = For(self._lane, index(self._group), (*before, own, *body), LoopKind.PARALLEL, Bind.THREAD)
        loop = For(group, index(count), (*map(Alloc, self._memory), threads), LoopKind.PARALLEL, Bind.GROUP)
        form = f"scan: {self.team} threads each, {self._each * self._width} elements at once"
        return Formed((loop,), count * self._group, form)

    def _row(self) -> Statements:
        """A row: full stretches, then what is left."""
        code, chunks, each = Folded(self._scan, self._names), self._chunks, self.team * self._each
        if not is_symbolic(chunks) and chunks <= each:
            self._last(code, 0, None, is_whole=chunks == each)
            return tuple(code.statements)
        carry = Carry.of(code, -(-most_elements((chunks,)) // each))
        full = (chunks + (each - 1)) // each if is_symbolic(chunks) else chunks // each
        load = partial(self._loads, is_whole=not is_symbolic(chunks))
        each_stretch(code, full, load, lambda inside, turn, loaded: self._stretch(inside, turn, carry, loaded))
        if not is_symbolic(chunks) and chunks % each:
            self._last(code, full, carry, is_whole=False)
        return tuple(code.statements)

    def _last(self, code: Folded, number: int, carry: Carry | None, *, is_whole: bool) -> None:
        loaded = self._loads(index(number), is_whole=is_whole)
        code.add(*loaded.loads)
        self._stretch(code, index(number), carry, loaded)

    def _stretch(self, code: Folded, turn: Scalar, carry: Carry | None, loaded: StretchLoads) -> None:
        """A stretch, by its number."""
        terms = [one[::-1] if self._scan.is_reversed else one for one in loaded.terms(code)]
        runs = [self._scanned(code, one) for one in terms]
        totals = [code.local("total", run[-1]) for run in runs]
        befores = self._before(code, totals)
        strips: list[Totals | None] = [None]
        for total in totals:
            strips.append(code.let("strip", code.joined(strips[-1], total)))
        whole = strips.pop()
        assert whole is not None
        base: Totals | None = None if carry is None else carry.before(code, turn)
        if self.team > self._lanes:
            ahead, whole = self._among_subgroups(code, whole, turn % 2, has_carry=carry is not None)
            base = code.let("base", code.joined(base, ahead))
        for (start, inside), run, before, strip in zip(loaded.places, runs, befores, strips, strict=True):
            own = code.let("base", code.joined(base, strip, before))
            self._stored(code, start, inside, own, run)
        if carry is not None:
            carry.add(code, whole)
        if carry is not None and not self._machine.subgroup:
            code.add(GroupBarrier())

    def _loads(self, turn: Scalar, *, is_whole: bool) -> StretchLoads:
        """The chunks of a thread in a stretch.

        A thread without a chunk takes the last one, with neutral terms: so no load waits for a branch.
        """
        lanes, each, names = self._lanes, self._each, self._names
        last, found = index(self._chunks - 1), StretchLoads()
        for strip in range(each):
            chunk, start = names.var("chunk"), names.var(self._scan.axis.index.name)
            place = self._member // lanes * (lanes * each) + self._member % lanes if self.team > lanes else self._member
            at = chunk if is_whole else pair("min", chunk, last)
            found.loads += [Let(chunk, turn * (self.team * each) + place + strip * lanes)]
            found.loads += [Let(start, (last - at if self._scan.is_reversed else at) * self._width)]
            found.take(start, None if is_whole else chunk <= last, self._elements.terms(start, self._width))
        return found

    def _scanned(self, code: Folded, terms: Sequence[Totals]) -> list[Totals]:
        run = [code.let("run", terms[0])]
        for one in terms[1:]:
            run.append(code.let("run", code.joined(run[-1], one)))
        return run

    def _stored(self, code: Folded, start: Scalar, inside: Scalar | None, base: Totals, run: Sequence[Totals]) -> None:
        parts: list[Totals | None] = [None, *run[:-1]] if self._scan.is_exclusive else [*run]
        own = code if inside is None else Folded(self._scan, self._names)
        totals = [own.let("sum", (own.value(own.let("sum", own.joined(base, one))),))[0] for one in parts]
        own.add(*self._elements.stores(start, totals[::-1] if self._scan.is_reversed else totals).statements)
        if inside is not None:
            code.add(If(inside, tuple(own.statements)))

    # --- totals of other threads --------------------------------------------------------------------------------------

    def _before(self, code: Folded, totals: Sequence[TotalVars]) -> list[Totals | None]:
        """The totals of the threads before each one, by chunk; ``totals`` become those of all."""
        if self._lanes == 1:
            return [None for _ in totals]
        if not self._machine.subgroup:
            return self._before_in_memory(code, totals)
        before = [code.local("before", code.neutral) for _ in totals]
        code.combine(totals, self._lanes, before)
        return [*before]

    def _before_in_memory(self, code: Folded, totals: Sequence[TotalVars]) -> list[Totals | None]:
        """The same without subgroups: each step doubles the number of threads whose terms are in a total."""
        memory = self._shared(code, (2, len(totals), self.team))
        side, reach = 0, 1

        def exchanged(at: Scalar, side: int) -> list[Totals]:
            for strip, total in enumerate(totals):
                code.add(*code.put(memory, (index(side), index(strip), self._member), total))
            code.add(GroupBarrier())
            return [code.got(memory, (index(side), index(strip), at)) for strip in range(len(totals))]

        while reach < self.team:
            others = exchanged(self._member - reach, side)
            joined = [
                SetLocal(var, value)
                for total, other in zip(totals, others, strict=True)
                for var, value in zip(total, code.joined(other, total), strict=True)
            ]
            code.add(If(self._member >= reach, tuple(joined)))
            side, reach = 1 - side, 2 * reach
        others = exchanged(pair("max", self._member - 1, index(0)), side)
        before = [code.let("before", code.choice(self._member > 0, one, code.neutral)) for one in others]
        for strip, total in enumerate(totals):
            code.assign(total, code.got(memory, (index(side), index(strip), index(self.team - 1))))
        return [*before]

    def _among_subgroups(self, code: Folded, whole: Totals, side: Scalar, *, has_carry: bool) -> tuple[Totals, Totals]:
        """The total of the subgroups before that of a thread, and of all of them."""
        lanes, count = self._lanes, self.team // self._lanes
        memory = self._shared(code, (2, count))
        number = self._lane // lanes
        code.add(If((self._lane % lanes).eq(0), tuple(code.put(memory, (side, number), whole))), GroupBarrier())
        other = self._names.var("other")
        code.add(Let(other, self._lane % count))
        total = code.let("other", code.got(memory, (side, other)))
        before = code.local("ahead", code.choice(other < number, total, code.neutral))
        found = [before, code.local("all", total)] if has_carry else [before]
        code.combine(found, count)
        return before, found[-1]

    def _shared(self, code: Folded, shape: tuple[int, ...]) -> tuple[Buffer, ...]:
        self._memory = self._memory or code.shared(shape)
        return self._memory


def _power(least: int) -> int:
    """The smallest power of two that is at least ``least``."""
    return 1 << (max(least, 1) - 1).bit_length()
