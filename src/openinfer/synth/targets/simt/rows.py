"""Rows: launches in which threads together go along what each iteration of a parallel loop goes along.

An iteration is a row. Its loops gather values, or compute elements from them: norms, softmax, sums, products of a
matrix with a vector. The threads of a row take chunks of neighbours in turn, always the same ones, and combine what
they have gathered. So an element that one loop writes and another one reads is the same thread's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import cast, index, unflat
from openinfer.loops.dim import is_symbolic, most_elements, span
from openinfer.loops.ir import (
    Alloc,
    Bind,
    Buffer,
    Combine,
    For,
    GroupBarrier,
    If,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    Store,
)
from openinfer.loops.reduction import Reduction
from openinfer.loops.rewrite import Statements, renamed, replaced
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.row_loops import RowLoop, row_items
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import int_extent, lets_of, nest
from openinfer.synth.targets.simt.wide import FreshNames, WideLoop

_MOST_COPIES = 64
_MOST_LONG_COPIES = 8
"""The most iterations of a loop in a row, and of one that is long code."""
_CHUNKS = 8
"""Accesses of each buffer that a thread has in flight."""
_SUBGROUPS = 8
"""Subgroups of a unit that keep its memory busy."""


def rows(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """Parallel loops around loops that gather or compute elements; without a parallel loop, it is a single row."""
    *before, last = part.body
    if part.is_parallel and not isinstance(last, For):
        return None
    loops = tuple(nest(last)) if part.is_parallel else ()
    body = loops[-1].body if loops else part.body
    items = row_items(body)
    if items is None or not any(isinstance(one, RowLoop) for one in items):
        return None
    extents = tuple(int_extent(one.extent) for one in loops)
    made = _Rows(tuple(one.index for one in loops), extents, items, machine, FreshNames(taken))
    return made.formed(tuple(before) if loops else ())


class _Rows:
    def __init__(
        self,
        indices: tuple[ScalarVar, ...],
        extents: tuple[int, ...],
        items: Sequence[Statement | RowLoop],
        machine: SimtMachine,
        names: FreshNames,
    ) -> None:
        self._indices, self._extents, self._items, self._machine, self._names = indices, extents, items, machine, names
        self._loops = [one for one in items if isinstance(one, RowLoop)]
        self._widths = self._common_widths()
        self._team = self._threads_of_a_row()
        self._lane, self._member = names.var("lane"), names.var("member")
        self._shared: dict[DType, list[Buffer]] = {}

    @property
    def _rows(self) -> int:
        total = 1
        for extent in self._extents:
            total = total * extent
        return total

    def _common_widths(self) -> dict[tuple[Scalar, ...], int]:
        """Loops over the same extents have the same width, so that an element is always the same thread's."""
        found: dict[tuple[Scalar, ...], int] = {}
        for one in self._loops:
            width = WideLoop(one.indices[-1], one.body, self._machine.unaligned).width(one.extents[-1])
            found[one.shape] = min(width, found.get(one.shape, width))
        return found

    def _chunks(self, one: RowLoop) -> int:
        """How many accesses a row has."""
        total = one.extents[-1] // self._widths[one.shape]
        for extent in one.extents[:-1]:
            total = total * extent
        return total

    def _threads_of_a_row(self) -> int:
        """A thread, a part of a subgroup, a subgroup, or a group."""
        machine, most = self._machine, max(span(self._chunks(one))[1] for one in self._loops)
        if max(most_elements(one.extents) for one in self._loops) < machine.least_row or self._is_across():
            return 1
        count = span(self._rows)[1]
        is_few = count < 2 * machine.units
        if not machine.subgroup:
            return machine.group if is_few or most >= machine.group // 2 else 1
        # Rows that are gone along once need no more than enough subgroups; others are kept in caches meanwhile.
        is_many = len(self._loops) == 1 and count >= _SUBGROUPS * machine.units
        longest = machine.subgroup * _CHUNKS * (_CHUNKS if is_many else 1)
        if most > longest or (is_few and most > machine.subgroup):
            return machine.group
        return min(machine.subgroup, 1 << max(most.bit_length() - 1, 0))

    def _is_across(self) -> bool:
        """Whether neighbouring rows are neighbours in memory, and elements of a row are not."""
        if not self._indices or span(self._rows)[1] < 2 * self._machine.units * self._machine.group:
            return False
        found = [(one, where) for one in self._loops for where in one.loads]
        is_beside = any(where.step(self._indices[-1]) == 1 for _, where in found)
        return is_beside and not any(where.step(one.indices[-1]) == 1 for one, where in found)

    # --- the launch ---------------------------------------------------------------------------------------------------

    def formed(self, before: Statements) -> Formed | None:
        if self._team == 1:
            return None
        machine, names = self._machine, self._names
        per = machine.group // self._team
        needed = (self._rows + (per - 1)) // per
        takes_turns = span(needed)[1] > machine.most_groups
        count = machine.most_groups if takes_turns else needed
        group, block, row = names.var("group"), names.var("block"), names.var("row")
        body: Statements = tuple(made for one in self._items for made in self._item(one))
        lets = lets_of(self._indices, unflat(row, self._extents))
        if per > 1:
            place = Let(row, block * per + self._lane // self._team)
            body = (place, If(row < index(self._rows), (*lets, *body)))
        else:
            body = (Let(row, block), *lets, *body)
        if not takes_turns:
            body = (Let(block, group), *body)
        else:
            turn = names.var("turn")
            turns = (index(needed) - group + (count - 1)) // index(count)
            body = (For(turn, turns, (Let(block, turn * count + group), *body)),)
        own = Let(self._member, self._lane % self._team) if per > 1 else Let(self._member, self._lane)
        threads = For(self._lane, index(machine.group), (*before, own, *body), LoopKind.PARALLEL, Bind.THREAD)
        memory = tuple(Alloc(one) for buffers in self._shared.values() for one in buffers)
        loop = For(group, index(count), (*memory, threads), LoopKind.PARALLEL, Bind.GROUP)
        return Formed((loop,), count * machine.group, f"rows: {self._team} threads each")

    def _item(self, one: Statement | RowLoop) -> Iterator[Statement]:
        match one:
            case RowLoop():
                yield from self._loop(one)
            case Store():
                yield If(self._member.eq(0), (one,))
            case _:
                yield one

    # --- loops --------------------------------------------------------------------------------------------------------

    def _loop(self, one: RowLoop) -> Iterator[Statement]:
        parts = {each.var.name: self._names.var(f"{each.var.name}_part", each.var.dtype) for each in one.reductions}
        body = renamed(one.body, parts)
        for each in one.reductions:
            yield Local(parts[each.var.name], each.first)
        yield from self._turns(replace(one, body=body))
        if one.reductions:
            yield from self._gathered(one.reductions, [parts[each.var.name] for each in one.reductions])

    def _turns(self, one: RowLoop) -> Iterator[Statement]:
        """The chunks of a thread: some at once as long as there are enough, then one after the other."""
        names, team, total = self._names, self._team, self._chunks(one)
        at_once = self._at_once(one, total)
        whole = 0 if at_once == 1 else total // (at_once * team)
        if whole:
            turn = names.var("turn")
            chunks = [(turn * at_once + place) * team + self._member for place in range(at_once)]
            yield For(turn, index(whole), tuple(self._copies(one, chunks)))
        done = whole * at_once * team
        rest = total - done
        if not is_symbolic(rest) and rest == 0:
            return
        if not is_symbolic(rest) and rest <= team:
            made = tuple(self._copies(one, [self._member + done]))
            yield from made if rest == team else (If(self._member < rest, made),)
            return
        turn = names.var("turn")
        turns = (index(rest) - self._member + (team - 1)) // team
        yield For(turn, turns, tuple(self._copies(one, [turn * team + self._member + done])))

    def _at_once(self, one: RowLoop, total: int) -> int:
        width = self._widths[one.shape]
        if is_symbolic(total):
            return 1
        is_long = WideLoop(one.indices[-1], one.body).is_long
        most = (_MOST_LONG_COPIES if is_long else _MOST_COPIES) // width
        found = _CHUNKS
        while found > 1 and (found > most or found * self._team > total):
            found //= 2
        return found

    def _copies(self, one: RowLoop, chunks: Sequence[Scalar]) -> Iterator[Statement]:
        width, names = self._widths[one.shape], self._names
        loop = WideLoop(one.indices[-1], one.body, self._machine.unaligned)
        first: list[Statement] = []
        body: list[Statement] = []
        for chunk in chunks:
            at = names.var("chunk")
            places = unflat(at, (*one.extents[:-1], one.extents[-1] // width))
            outer = {var: names.var(var.name) for var in one.indices[:-1]}
            lets = lets_of(tuple(outer.values()), places[:-1])
            start = names.var(one.indices[-1].name)
            made = loop.copies(start, width, names)
            first += [Let(at, chunk), *lets, Let(start, places[-1] * width)]
            first += renamed(made.first, {var.name: new for var, new in outer.items()})
            body += renamed((*made.body, *made.last), {var.name: new for var, new in outer.items()})
        yield from first
        yield from body

    # --- what threads have together -----------------------------------------------------------------------------------

    def _gathered(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        yield from self._combined(found, parts)
        for one, part in zip(found, parts, strict=True):
            yield SetLocal(one.var, one.joined(part))

    def _combined(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        machine = self._machine
        if self._team <= machine.subgroup:
            yield self._combine(found, parts, self._team)
        elif machine.subgroup:
            yield self._combine(found, parts, machine.subgroup)
            yield from self._exchanged(found, parts)
        else:
            yield from self._in_memory(found, parts)

    def _combine(self, found: Sequence[Reduction], parts: Sequence[ScalarVar], width: int) -> Combine:
        others = [self._names.var(f"{part.name}_other", part.dtype) for part in parts]
        pairs = zip(found, parts, others, strict=True)
        values = tuple(_joined(one, part, other) for one, part, other in pairs)
        return Combine(tuple(parts), tuple(others), values, width)

    def _exchanged(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        """What subgroups have goes through memory, and then every subgroup combines all of it."""
        machine = self._machine
        count = machine.group // machine.subgroup
        memory = self._memory(parts, count)
        at = self._lane // machine.subgroup
        stores = tuple(_store(buffer, at, part) for buffer, part in zip(memory, parts, strict=True))
        yield If((self._lane % machine.subgroup).eq(0), stores)
        yield GroupBarrier()
        for buffer, part in zip(memory, parts, strict=True):
            yield SetLocal(part, _loaded(buffer, self._lane % count, part))
        yield self._combine(found, parts, count)
        yield GroupBarrier()

    def _in_memory(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        """Where subgroups are not known: half of the threads join what they have with that of the other half."""
        memory, reach = self._memory(parts, self._machine.group), self._machine.group // 2
        yield from (_store(buffer, self._lane, part) for buffer, part in zip(memory, parts, strict=True))
        while reach:
            joined: list[Statement] = []
            for one, buffer, part in zip(found, memory, parts, strict=True):
                other = _loaded(buffer, self._lane + reach, part)
                joined += [SetLocal(part, _joined(one, part, other)), _store(buffer, self._lane, part)]
            yield GroupBarrier()
            yield If(self._lane < reach, tuple(joined))
            reach //= 2
        yield GroupBarrier()
        for buffer, part in zip(memory, parts, strict=True):
            yield SetLocal(part, _loaded(buffer, index(0), part))
        yield GroupBarrier()

    def _memory(self, parts: Sequence[ScalarVar], count: int) -> list[Buffer]:
        """Memory of the group, which later loops use again."""
        found: list[Buffer] = []
        for part in parts:
            dtype = _shared_type(part.dtype)
            known = self._shared.setdefault(dtype, [])
            free = [one for one in known if one not in found]
            if not free:
                made = Buffer(self._names.name(f"shared_{dtype.name}"), dtype, (count,), Space.GROUP)
                known.append(made)
                free = [made]
            found.append(free[0])
        return found


def _joined(one: Reduction, part: Scalar, other: Scalar) -> Scalar:
    mark = ScalarVar(" other", one.var.dtype)
    return replaced(one.joined(mark), {one.var: part, mark: other})


def _shared_type(dtype: DType) -> DType:
    """Groups share words, or pairs of them."""
    return dtype if dtype.bits >= 32 else DTYPES["i32"]


def _store(buffer: Buffer, at: Scalar, part: ScalarVar) -> Store:
    return Store(buffer, (at,), cast(part, buffer.dtype))


def _loaded(buffer: Buffer, at: Scalar, part: ScalarVar) -> Scalar:
    return cast(Load(buffer, (at,)), part.dtype)
