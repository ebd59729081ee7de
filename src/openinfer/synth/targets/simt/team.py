"""Threads that share a loop: which iterations each of them runs, and how they combine partial results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import bits, index, unflat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    Binary,
    Buffer,
    Combine,
    Const,
    For,
    GroupBarrier,
    If,
    Let,
    Load,
    Local,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    WideLoad,
    visit,
)
from openinfer.loops.reduction import Reduction
from openinfer.loops.rewrite import Statements, renamed, replaced
from openinfer.synth.targets.simt.group_team import GroupTeam
from openinfer.synth.targets.simt.kept import KeptRow
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.partials import part_loaded, part_stored, shared_type
from openinfer.synth.targets.simt.powers import Powers
from openinfer.synth.targets.simt.row_loops import RowLoop
from openinfer.synth.targets.simt.threads import lets_of
from openinfer.synth.targets.simt.wide import FreshNames, KeptElements, WideCopies, WideLoop

_U32 = DTYPES["u32"]
_MOST_COPIES = 64
_MOST_LONG_COPIES = 8
"""Unrolled iterations of a loop at most, and of one with a long body."""
CHUNKS = 8
"""Accesses to each buffer that a thread has in flight."""
_BESIDE_KEPT = 2
"""The same, if most registers hold part of a row."""


def common_widths(loops: Sequence[RowLoop], machine: SimtMachine) -> dict[tuple[Scalar, ...], int]:
    """The access width for each shape: loops of one shape share it, so that an element always belongs to one thread."""
    found: dict[tuple[Scalar, ...], int] = {}
    for one in loops:
        width = WideLoop(one.indices[-1], one.body, machine.unaligned).width(one.extents[-1])
        found[one.shape] = min(width, found.get(one.shape, width))
        if one.edge is not None:
            found[one.edge.shape] = 1
    return found


def chunks_of(one: RowLoop, width: int) -> int:
    """The number of chunks of a loop, each as wide as one access."""
    total = one.extents[-1] // width
    for extent in one.extents[:-1]:
        total = total * extent
    return total


@dataclass(frozen=True)
class LaneTeam:
    """Threads of a group that share a loop: part of a subgroup, up to the whole group."""

    machine: SimtMachine
    names: FreshNames
    count: int
    lane: ScalarVar
    """A thread's number in its group."""
    member: ScalarVar
    """A thread's number in its team."""
    widths: Mapping[tuple[Scalar, ...], int]
    shared: dict[DType, list[Buffer]] = field(default_factory=dict)
    """Shared memory in which teams larger than a subgroup combine partial results."""
    kept: dict[tuple[Scalar, ...], KeptRow] = field(default_factory=dict)
    """What stays in registers between loops, by their extents."""
    kept_chunks: int = 0
    """Chunks per thread that stay in registers, of rows that have more; 0 if all do."""
    at_once: int = CHUNKS
    """Accesses to each buffer that a thread has in flight at most."""
    unrolled: int = 0
    """Unrolled iterations of a loop at most; 0 if its body is to decide that."""
    apart: int = 1
    """The distance between the threads of a team in the group, if teams are interleaved across all of it."""
    runs_once: bool = False
    """Whether each loop runs once, so that shared memory for partial results is never reused."""
    across: GroupTeam | None = None
    """The groups that share a loop, if it is not one alone."""

    def loop(
        self, one: RowLoop, only_if: Scalar | None = None, saved: Mapping[ScalarVar, ScalarVar] | None = None
    ) -> Iterator[Statement]:
        """A loop, divided among the threads, and its combined reductions.

        Threads for which ``only_if`` is false run none of its iterations. ``saved`` has variables that get what a
        thread has of a reduction before it is combined with those of others.
        """
        parts = self._parts(one)
        yield from self._partial(one, parts, only_if)
        yield from (Let(own, parts[var.name]) for var, own in (saved or {}).items())
        if one.reductions:
            yield from self._reduced(one.reductions, list(parts.values()))

    def in_groups(self, one: RowLoop) -> Iterator[Statement]:
        """A loop of which each group has a result of its own."""
        parts = self._parts(one)
        yield from self._partial(one, parts)
        yield from self._combined(one.reductions, list(parts.values()), is_last=True)
        yield from (SetLocal(each.var, each.joined(parts[each.var.name])) for each in one.reductions)

    def powers(self, found: Powers, across: GroupTeam, factor: ScalarVar) -> Iterator[Statement]:
        """A sum of powers relative to what each group has, and then to what they all have.

        ``factor`` is what powers of a group are multiplied by.
        """
        extreme, total = found.extreme, found.total
        base, top = (self.names.var(extreme.var.name, extreme.var.dtype) for _ in range(2))
        yield Let(base, found.base())
        loop = found.relative_to(base)
        parts = self._parts(loop)
        yield from self._partial(loop, parts)
        (part,) = parts.values()
        yield from self._combined((total,), (part,))
        yield Local(top, extreme.var)
        yield from across.exchanged((extreme, total), (top, part))
        other = self.names.var(f"{extreme.var.name}_other", top.dtype)
        yield Let(other, top)
        yield self._combine((extreme,), (top,), across.width)
        yield SetLocal(part, part * found.of(other - top))
        yield self._combine((total,), (part,), across.width)
        yield Let(factor, found.of(extreme.var - top))
        yield SetLocal(extreme.var, top)
        yield SetLocal(total.var, total.joined(part))

    def _parts(self, one: RowLoop) -> dict[str, ScalarVar]:
        """What a thread has of each reduction."""
        return {each.var.name: self.names.var(f"{each.var.name}_part", each.var.dtype) for each in one.reductions}

    def _partial(
        self, one: RowLoop, parts: Mapping[str, ScalarVar], only_if: Scalar | None = None
    ) -> Iterator[Statement]:
        """The iterations of each thread."""
        yield from (Local(parts[each.var.name], each.first) for each in one.reductions)
        iterations = self._iterations(one.renamed(parts))
        yield from iterations if only_if is None else (If(only_if, tuple(iterations)),)

    def _iterations(self, one: RowLoop) -> Iterator[Statement]:
        """What threads do on their own."""
        kept = self.kept.get(one.shape)
        first, rest = self._edge(one.edge)
        yield from first
        yield from self._turns(one) if kept is None else self._all_chunks(one, kept)
        yield from rest

    def begun(self, one: RowLoop) -> tuple[Statements, Statements]:
        """The first loads of a loop, and the rest of it: threads may synchronize in between."""
        parts = self._parts(one)
        own, total = one.renamed(parts), chunks_of(one, self.widths[one.shape])
        at_once = self._at_once(own, total)
        if is_symbolic(total) or total < self.count:
            return (), tuple(self.loop(one))
        made = [self._chunk(own, self.member + place * self.count) for place in range(at_once)]
        first: list[Statement] = []
        rest: list[Statement] = [Local(parts[each.var.name], each.first) for each in one.reductions]
        for statement in (statement for copies in made for statement in copies.first):
            loaded, lets = as_words(statement, self.names) if isinstance(statement, WideLoad) else (statement, [])
            first.append(loaded)
            rest += lets
        rest += [statement for copies in made for statement in (*copies.body, *copies.last)]
        rest += self._turns(own, skipped=1)
        if one.reductions:
            rest += self._reduced(one.reductions, list(parts.values()))
        return tuple(first), tuple(rest)

    def _turns(self, one: RowLoop, skipped: int = 0, begin: int = 0) -> Iterator[Statement]:
        """The chunks of a thread, from ``begin`` on: several at a time while there are enough, then one by one."""
        names, team, total = self.names, self.count, chunks_of(one, self.widths[one.shape]) - begin
        at_once = self._at_once(one, total)
        if begin:
            at_once = min(at_once, _BESIDE_KEPT)
        whole = 0 if at_once == 1 and not skipped else total // (at_once * team)
        if whole:
            turn = names.var("turn")
            first = turn + skipped if skipped else turn
            chunks = [(first * at_once + place) * team + self.member + begin for place in range(at_once)]
            if whole > skipped:
                yield For(turn, index(whole - skipped), tuple(self._copies(one, chunks)))
        done = whole * at_once * team + begin
        rest = total + begin - done
        if not is_symbolic(rest) and rest == 0:
            return
        if not is_symbolic(rest) and rest <= team:
            made = tuple(self._copies(one, [self.member + done]))
            yield from made if rest == team else (If(self.member < rest, made),)
            return
        turn = names.var("turn")
        turns = (index(rest) - self.member + (team - 1)) // team
        yield For(turn, turns, tuple(self._copies(one, [turn * team + self.member + done])))

    def _at_once(self, one: RowLoop, total: int) -> int:
        width = self.widths[one.shape]
        if is_symbolic(total):
            return 1
        is_long = WideLoop(one.indices[-1], one.body).is_long
        most = (self.unrolled or (_MOST_LONG_COPIES if is_long else _MOST_COPIES)) // width
        found = self.at_once
        while found > 1 and (found > most or found * self.count > total):
            found //= 2
        return found

    def _copies(self, one: RowLoop, chunks: Sequence[Scalar]) -> Iterator[Statement]:
        made = [self._chunk(one, chunk) for chunk in chunks]
        yield from (statement for copies in made for statement in copies.first)
        yield from (statement for copies in made for statement in (*copies.body, *copies.last))

    def _chunk(self, one: RowLoop, chunk: Scalar, kept: KeptElements | None = None) -> WideCopies:
        """One chunk: an access to each buffer, and the iterations that use it."""
        width, names = self.widths[one.shape], self.names
        sums = {var.name: names.var(f"{var.name}_chunk", var.dtype) for var, _ in one.scales}
        loop = WideLoop(one.indices[-1], renamed(one.body, sums) if sums else one.body, self.machine.unaligned)
        at = names.var("chunk")
        places = unflat(at, (*one.extents[:-1], one.extents[-1] // width))
        outer = {var.name: names.var(var.name) for var in one.indices[:-1]}
        lets = lets_of(tuple(outer.values()), places[:-1])
        start = names.var(one.indices[-1].name)
        made = loop.copies(start, width, names, kept)
        before = (Let(at, chunk), *lets, Let(start, places[-1] * width))
        scales = {scale: names.var("scale", scale.dtype) for _, scale in one.scales}
        loads = (*(Let(var, scale) for scale, var in scales.items()), *made.first)
        zeros = (Local(sums[var.name], Const(0, var.dtype)) for var, _ in one.scales)
        added = (SetLocal(var, var + sums[var.name] * scales[scale]) for var, scale in one.scales)
        inside = (*zeros, *made.body, *added)
        first, body, last = (renamed(part, outer) for part in (loads, inside, made.last))
        return replace(made, first=(*before, *first), body=body, last=last)

    def _all_chunks(self, one: RowLoop, kept: KeptRow) -> Iterator[Statement]:
        """All chunks of a thread, unrolled: uses what is in registers, and keeps what is loaded or computed.

        Chunks that are too many for registers follow, one after the other.
        """
        team, total = self.count, chunks_of(one, self.widths[one.shape])
        count = min(self.kept_chunks or total, -(-total // team))
        first, body = self._unrolled(one, kept, count)
        yield from first
        yield from body
        if count * team < total:
            yield from self._turns(one, begin=count * team)

    def _edge(self, one: RowLoop | None) -> tuple[Statements, Statements]:
        """What threads do beside their chunks, one element each: its load, and the rest."""
        if one is None:
            return (), ()
        kept = self.kept.get(one.shape) or KeptRow([one])
        return self._unrolled(one, kept, -(-chunks_of(one, 1) // self.count), loads_first=True)

    def _unrolled(
        self, one: RowLoop, kept: KeptRow, count: int, *, loads_first: bool = False
    ) -> tuple[Statements, Statements]:
        """``count`` chunks of a thread: the loads of those that are wide or kept, or of all, and the rest."""
        team, total = self.count, chunks_of(one, self.widths[one.shape])
        first: list[Statement] = []
        body: list[Statement] = []
        for place in range(count):
            elements = kept.elements(place)
            if loads_first:
                elements = replace(elements, named=kept.loads)
            made = self._chunk(one, self.member + place * team, elements)
            after = tuple(kept.took(place, made, one, self.names))
            if (place + 1) * team <= total:
                first += made.first
                body += (*made.body, *after, *made.last)
            else:
                loads, rest = self._partial_chunk(place, made, after, self.member < total - place * team, kept)
                first += loads
                body += rest
        kept.next_loop()
        return tuple(first), tuple(body)

    def _partial_chunk(
        self, place: int, made: WideCopies, after: Sequence[Statement], cond: Scalar, kept: KeptRow
    ) -> tuple[Statements, Statements]:
        """A chunk that only some threads have: its loads, which come with those of the others, and the rest of it.

        What it loads or keeps goes to variables declared outside the conditions.
        """
        first: list[Statement] = []
        loads: list[Statement] = []
        for one in made.first:
            found = _loaded_by(one)
            first += (Local(var, Const(0, var.dtype)) for var in found)
            own = {var.name: self.names.var(var.name, var.dtype) for var in found}
            (first if not found else loads).extend(renamed((one,), own))
            loads += (SetLocal(var, own[var.name]) for var in found)
        outside = kept.renamed(place, self.names)
        rest = (Local(var, Const(0, var.dtype)) for var in outside.values())
        sets = tuple(SetLocal(var, value) for value, var in outside.items())
        whole = If(cond, (*made.body, *after, *made.last, *sets))
        return (*first, *((If(cond, tuple(loads)),) if loads else ())), (*rest, whole)

    # --- combining partial results ------------------------------------------------------------------------------------

    def _reduced(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        yield from self._combined(found, parts)
        if self.across is not None:
            yield from self.across.exchanged(found, parts)
            yield self._combine(found, parts, self.across.width)
        for one, part in zip(found, parts, strict=True):
            yield SetLocal(one.var, one.joined(part))

    def _combined(
        self, found: Sequence[Reduction], parts: Sequence[ScalarVar], *, is_last: bool = False
    ) -> Iterator[Statement]:
        """The results of a group; ``is_last`` if groups do not exchange them next."""
        machine = self.machine
        if self.apart > 1:
            yield from self._in_memory(found, parts)
        elif self.count <= machine.subgroup:
            yield self._combine(found, parts, self.count)
        elif machine.subgroup:
            yield self._combine(found, parts, machine.subgroup)
            yield from self._exchanged(found, parts, is_last=is_last or self.across is None)
        else:
            yield from self._in_memory(found, parts)

    def _combine(self, found: Sequence[Reduction], parts: Sequence[ScalarVar], width: int) -> Combine:
        others = [self.names.var(f"{part.name}_other", part.dtype) for part in parts]
        pairs = zip(found, parts, others, strict=True)
        values = tuple(_joined(one, part, other) for one, part, other in pairs)
        return Combine(tuple(parts), tuple(others), values, width)

    def _exchanged(
        self, found: Sequence[Reduction], parts: Sequence[ScalarVar], *, is_last: bool
    ) -> Iterator[Statement]:
        """Subgroups exchange partial results through shared memory; then each subgroup combines all of them."""
        machine = self.machine
        count = machine.group // machine.subgroup
        memory = self._memory(parts, count)
        at = self.lane // machine.subgroup
        stores = tuple(part_stored(buffer, (at,), part) for buffer, part in zip(memory, parts, strict=True))
        # Groups that share a row exchange partial results next, which is a barrier, too.
        barrier = GroupBarrier(is_shared=self.across is not None)
        yield If((self.lane % machine.subgroup).eq(0), stores)
        yield barrier
        for buffer, part in zip(memory, parts, strict=True):
            yield SetLocal(part, part_loaded(buffer, (self.lane % count,), part))
        yield self._combine(found, parts, count)
        if not self.runs_once and is_last:
            yield barrier

    def _in_memory(self, found: Sequence[Reduction], parts: Sequence[ScalarVar]) -> Iterator[Statement]:
        """A tree reduction in shared memory, without subgroups: each step halves the number of active threads."""
        memory, reach = self._memory(parts, self.machine.group), self.machine.group // 2
        yield from (part_stored(buffer, (self.lane,), part) for buffer, part in zip(memory, parts, strict=True))
        while reach >= self.apart:
            joined: list[Statement] = []
            for one, buffer, part in zip(found, memory, parts, strict=True):
                other = part_loaded(buffer, (self.lane + reach,), part)
                joined += [SetLocal(part, _joined(one, part, other)), part_stored(buffer, (self.lane,), part)]
            yield GroupBarrier()
            yield If(self.lane < reach, tuple(joined))
            reach //= 2
        yield GroupBarrier()
        for buffer, part in zip(memory, parts, strict=True):
            yield SetLocal(part, part_loaded(buffer, (self.lane % self.apart if self.apart > 1 else index(0),), part))
        yield GroupBarrier()

    def _memory(self, parts: Sequence[ScalarVar], count: int) -> list[Buffer]:
        """Shared memory for partial results, which later loops reuse unless ``runs_once``."""
        found: list[Buffer] = []
        for part in parts:
            dtype = shared_type(part.dtype)
            known = self.shared.setdefault(dtype, [])
            free = [] if self.runs_once else [one for one in known if one not in found]
            if not free:
                made = Buffer(self.names.name(f"shared_{dtype.name}"), dtype, (count,), Space.GROUP)
                known.append(made)
                free = [made]
            found.append(free[0])
        return found


def _loaded_by(one: Statement) -> tuple[ScalarVar, ...]:
    """The variables that a statement sets to what it loads."""
    if isinstance(one, WideLoad):
        return one.variables
    is_load = isinstance(one, Let) and any(isinstance(part, Load) for part in visit(one.value))
    return (one.var,) if isinstance(one, Let) and is_load else ()


def as_words(one: WideLoad, names: FreshNames) -> tuple[WideLoad, list[Let]]:
    """A load as one of words, and the statements that unpack its elements later: until then, nothing waits for it."""
    if one.buffer.dtype.name != "bf16":
        return one, []
    words = [names.var(one.buffer.name, _U32) for _ in range(0, len(one.variables), 2)]
    lets: list[Let] = []
    for place, var in enumerate(one.variables):
        word, high = words[place // 2], place % 2
        shifted = Binary("and", word, Const(0xFFFF0000, _U32)) if high else Binary("shl", word, Const(16, _U32))
        lets.append(Let(var, bits(shifted, var.dtype)))
    return replace(one, variables=tuple(words)), lets


def _joined(one: Reduction, part: Scalar, other: Scalar) -> Scalar:
    mark = ScalarVar(" other", one.var.dtype)
    return replaced(one.joined(mark), {one.var: part, mark: other})
