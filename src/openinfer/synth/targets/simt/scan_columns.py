"""Running totals along columns: adjacent rows of a scan are contiguous in memory, the elements of a row are not.

Adjacent threads have adjacent columns. If there are few columns, several threads have consecutive chunks of a column,
and exchange their totals through shared memory. All loads of a stretch are in flight together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from openinfer.loops.build import index, pair, unflat
from openinfer.loops.dim import is_symbolic, most_elements, span
from openinfer.loops.ir import Alloc, Bind, Buffer, For, GroupBarrier, If, Let, LoopKind, Scalar, ScalarVar, Statement
from openinfer.loops.rewrite import Statements, renamed
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.scan_parts import (
    Carry,
    Folded,
    LoneScan,
    ScanElements,
    StretchLoads,
    Totals,
    each_stretch,
)
from openinfer.synth.targets.simt.threads import int_extent, lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_LEAST = 8
"""Adjacent threads with adjacent columns, from which these are beside each other."""
_FEW, _MOST = 16, 32
"""The same if there are few columns, and as many as a subgroup makes accesses at once."""
_MOST_GROUP = 512
_ACCESS_BITS = 32
"""Bits per access: adjacent threads are enough to make them wide."""
_EACH = 16
"""Accesses that a thread has in flight."""
_BUSY = 1024
"""Threads per compute unit that keep memory busy."""


def scanned_columns(one: LoneScan, before: Statements, machine: SimtMachine, names: FreshNames) -> Formed | None:
    """The launch; None if there are too few columns beside each other."""
    found = _columns(one, machine, names)
    return None if found is None else _ColumnScan(one, found, machine, names).formed(before)


def column_stretch(one: LoneScan, machine: SimtMachine) -> tuple[int, int] | None:
    """The number of threads, and the elements of a column that are scanned at once; None without such a launch."""
    found = _columns(one, machine, FreshNames(set()))
    return None if found is None else (found.groups * found.beside * found.members, found.members * found.each)


@dataclass(frozen=True)
class _Columns:
    """How a launch divides columns among threads."""

    elements: ScanElements
    width: int
    """Columns of a thread."""
    beside: int
    """Adjacent threads with adjacent columns."""
    members: int
    """Threads with chunks of the same column."""
    each: int
    """Elements of a column that a thread has at once."""
    groups: int


def _columns(one: LoneScan, machine: SimtMachine, names: FreshNames) -> _Columns | None:
    scan, columns = one.scan, int_extent(one.loops[-1].extent)
    elements = ScanElements(scan, one.loops[-1].index, columns, names, machine.unaligned)
    width = elements.width(max(_ACCESS_BITS // elements.element_bits, 1))
    chunks, length = columns // width, most_elements((scan.axis.extent,))
    if is_symbolic(chunks) or chunks < _LEAST or not length:
        return None
    words = max(scan.accumulator.bits // 32, 1) * len(Folded(scan, names).neutral)
    each = max(min(_EACH, machine.kept_elements // (words * width), length), 1)
    outer = span(one.rows)[1] // columns
    beside, most = min(_MOST, machine.group), min(max(machine.group, machine.largest_group), _MOST_GROUP)
    while beside > chunks or (beside > _FEW and 4 * outer * -(-chunks // beside) < 3 * machine.units):
        beside //= 2
    groups, members = outer * -(-chunks // beside), 1
    rows = len(Folded(scan, names).neutral) * max(scan.accumulator.bits, 32) // 8 * width * 2 * beside
    while (
        2 * members * beside <= most
        and members * each < length
        and groups * beside * members < machine.units * _BUSY
        and 2 * members * rows <= machine.shared_bytes
    ):
        members *= 2
    if members == 1:
        while 2 * beside <= machine.group and 2 * beside <= chunks:
            beside *= 2
        groups = outer * -(-chunks // beside)
    return _Columns(elements, width, beside, members, each, groups)


class _ColumnScan:
    def __init__(self, one: LoneScan, columns: _Columns, machine: SimtMachine, names: FreshNames) -> None:
        self._one, self._scan, self._columns, self._machine, self._names = one, one.scan, columns, machine, names
        self._lane, self._member, self._start = names.var("lane"), names.var("member"), names.var("column")
        self._own = names.var("own_column")
        self._memory: tuple[Buffer, ...] = ()

    def formed(self, before: Statements) -> Formed:
        """The launch: a group for some adjacent columns."""
        machine, names, one, columns = self._machine, self._names, self._one, self._columns
        chunks = int_extent(one.loops[-1].extent) // columns.width
        blocks = -(-chunks // columns.beside)
        outer = [int_extent(each.extent) for each in one.loops[:-1]]
        needed: int = blocks
        for extent in outer:
            needed = needed * extent
        takes_turns = span(needed)[1] > machine.most_groups
        count = machine.most_groups if takes_turns else needed
        group, block, chunk = names.var("group"), names.var("block"), names.var("chunk")
        *rows, number = unflat(block, (*outer, blocks))
        # Threads past the last column take it too, and store nothing.
        self._is_own = None if chunks % columns.beside == 0 else chunk < chunks
        at: Scalar = chunk if self._is_own is None else pair("min", chunk, index(chunks - 1))
        body: Statements = (
            *lets_of(tuple(each.index for each in one.loops[:-1]), rows),
            Let(chunk, number * columns.beside + self._lane % columns.beside),
            Let(self._start, at * columns.width),
            *self._column(),
        )
        if takes_turns:
            turn = names.var("turn")
            turns = (index(needed) - group + (count - 1)) // index(count)
            after = (GroupBarrier(),) if self._memory else ()
            body = (For(turn, turns, (Let(block, turn * count + group), *body, *after)),)
        else:
            body = (Let(block, group), *body)
        threads = columns.beside * columns.members
        own = Let(self._member, self._lane // columns.beside)
        inside = For(self._lane, index(threads), (*before, own, *body), LoopKind.PARALLEL, Bind.THREAD)
        loop = For(group, index(count), (*map(Alloc, self._memory), inside), LoopKind.PARALLEL, Bind.GROUP)
        form = f"scan: {columns.beside} columns and {columns.members} threads each, {columns.each} elements at once"
        return Formed((loop,), count * threads, form)

    def _column(self) -> Statements:
        """The columns of a thread: full stretches, then what is left."""
        length, columns = self._scan.axis.extent, self._columns
        each = columns.members * columns.each
        code = Folded(self._scan, self._names)
        if not is_symbolic(length) and length <= each:
            self._last(code, 0, None, is_whole=length == each)
            return tuple(code.statements)
        carry = [Carry.of(code, -(-most_elements((length,)) // each)) for _ in range(columns.width)]
        full = (length + (each - 1)) // each if is_symbolic(length) else length // each
        load = partial(self._loads, is_whole=not is_symbolic(length))
        each_stretch(code, full, load, lambda inside, turn, loaded: self._stretch(inside, turn, carry, loaded))
        if not is_symbolic(length) and length % each:
            self._last(code, full, carry, is_whole=False)
        return tuple(code.statements)

    def _last(self, code: Folded, number: int, carry: Sequence[Carry] | None, *, is_whole: bool) -> None:
        loaded = self._loads(index(number), is_whole=is_whole)
        code.add(*loaded.loads)
        self._stretch(code, index(number), carry, loaded)

    def _stretch(self, code: Folded, turn: Scalar, carry: Sequence[Carry] | None, loaded: StretchLoads) -> None:
        """A stretch, by its number."""
        columns, terms = self._columns, loaded.terms(code)
        runs = [[code.let("run", one)] for one in terms[0]]
        for row in terms[1:]:
            for run, one in zip(runs, row, strict=True):
                run.append(code.let("run", code.joined(run[-1], one)))
        wholes = [run[-1] for run in runs]
        bases = [None] * columns.width if carry is None else [one.before(code, turn) for one in carry]
        if columns.members > 1:
            ahead, wholes = self._among_members(code, wholes, turn % 2, has_carry=carry is not None)
            bases = [code.let("base", code.joined(base, one)) for base, one in zip(bases, ahead, strict=True)]
        for number, (place, inside) in enumerate(loaded.places):
            self._stored(code, place, inside, bases, [self._parts(run, number) for run in runs])
        for total, whole in zip(carry or (), wholes, strict=carry is not None):
            total.add(code, whole)

    def _parts(self, run: Sequence[Totals], number: int) -> Totals | None:
        if self._scan.is_exclusive:
            return run[number - 1] if number else None
        return run[number]

    def _loads(self, turn: Scalar, *, is_whole: bool) -> StretchLoads:
        """The elements of a thread in a stretch: consecutive ones of each of its columns."""
        columns, names, last = self._columns, self._names, index(self._scan.axis.extent - 1)
        found = StretchLoads()
        for number in range(columns.each):
            step, place = names.var("step"), names.var(self._scan.axis.index.name)
            first = turn * (columns.members * columns.each) + self._member * columns.each
            found.loads += [Let(step, first + number)]
            at = step if is_whole else pair("min", step, last)
            found.loads += [Let(place, last - at if self._scan.is_reversed else at)]
            loads, body, values = columns.elements.terms(self._start, columns.width)
            known = {self._scan.axis.index.name: place}
            parts = renamed(loads, known), renamed(body, known), values
            found.take(place, None if is_whole else step <= last, parts)
        return found

    def _stored(
        self,
        code: Folded,
        place: ScalarVar,
        inside: Scalar | None,
        bases: Sequence[Totals | None],
        parts: Sequence[Totals | None],
    ) -> None:
        own = Folded(self._scan, self._names)
        pairs = zip(bases, parts, strict=True)
        totals = [own.let("sum", (own.value(own.let("sum", own.joined(base, one))),))[0] for base, one in pairs]
        made = self._columns.elements.stores(self._start, totals).statements
        own.add(*renamed(made, {self._scan.axis.index.name: place}))
        conditions = [one for one in (inside, self._is_own) if one is not None]
        statements: tuple[Statement, ...] = tuple(own.statements)
        for one in conditions:
            statements = (If(one, statements),)
        code.add(*statements)

    def _among_members(
        self, code: Folded, wholes: Sequence[Totals], side: Scalar, *, has_carry: bool
    ) -> tuple[list[Totals], list[Totals]]:
        """For each column, the total of the threads before this one, and of all."""
        columns, names = self._columns, self._names
        shape = (2, columns.members, columns.width, columns.beside)
        self._memory = memory = self._memory or code.shared(shape)
        beside = names.var("beside")
        code.add(Let(beside, self._lane % columns.beside))
        for number, whole in enumerate(wholes):
            code.add(*code.put(memory, (side, self._member, index(number), beside), whole))
        code.add(GroupBarrier())
        before = [code.local("ahead", code.neutral) for _ in wholes]
        every = [code.local("all", code.neutral) for _ in wholes] if has_carry else []
        other = names.var("other")
        inside = Folded(self._scan, self._names)
        for number, one in enumerate(before):
            total = inside.let("other", inside.got(memory, (side, other, index(number), beside)))
            own = inside.let("own", inside.choice(other < self._member, total, inside.neutral))
            inside.assign(one, inside.joined(one, own))
            if has_carry:
                inside.assign(every[number], inside.joined(every[number], total))
        code.add(For(other, index(columns.members), tuple(inside.statements)))
        return [*before], [*every] if has_carry else [*wholes]
