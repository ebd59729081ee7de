"""Products of large factors with few vectors, as one launch: groups keep the vectors, subgroups compute whole rows.

Each element of a large factor is read once and used for all vectors. Every group recomputes the prologue that produces
the vectors, such as a norm of few rows: that is faster than a launch of its own. Products with the same rows are fused;
a later one may use the results of earlier ones for its row. Consumers that read few results at a time are fused as well
(``tails``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from openinfer.loops.build import cast, index, pair, rounded, unflat
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Binary,
    Bind,
    Buffer,
    Const,
    Contraction,
    For,
    GroupBarrier,
    If,
    Kernel,
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
    WideLoad,
    visit,
)
from openinfer.loops.rewrite import Statements, changed, changed_statements, replaced, straightened, variables_of
from openinfer.synth.targets.simt.early import EarlyLoads
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.packed import MAGIC, PackedNumbers
from openinfer.synth.targets.simt.products import (
    VectorProduct,
    vector_product,
    with_adjacent_rows,
    with_fused_sums,
)
from openinfer.synth.targets.simt.row_loops import RowLoop, row_loop
from openinfer.synth.targets.simt.staged import GroupMemory, Prologue, loaded, prologue_of, with_memory
from openinfer.synth.targets.simt.tails import ProductTail, tail_of, tail_products
from openinfer.synth.targets.simt.team import CHUNKS, LaneTeam, common_widths
from openinfer.synth.targets.simt.threads import launch_kernel, lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_THREADS, _BUSY = 512, 1024
"""Threads per group, if the device allows that many, and per compute unit: enough to keep memory busy. More groups
would only recompute the vectors."""
_VECTOR_BITS = 16
"""Bits of a large factor for each element of a vector that is read from shared memory, at least."""
_RUN = 4
"""Elements of a vector per access to shared memory, where integers would need one each."""
_FEW_BITS = 4
"""Bits of a weight at most with which a launch loads vectors before weights."""
_ACCESSES = 4
"""Accesses that a thread has in flight to rows of integers: more take the registers of other groups."""
_UNROLLED = 256
"""Unrolled terms of a row of integers."""


def vectors(kernel: Kernel, machine: SimtMachine) -> Launches | None:
    """A kernel that consists of such products and their prologue, as one launch; None if it is something else."""
    body = straightened(kernel.body)
    made = [one.buffer for one in body if isinstance(one, Alloc)]
    parts = _parts(tuple(one for one in body if not isinstance(one, Alloc)))
    if kernel.can_fail or parts is None:
        return None
    before, contractions, after = parts
    products = [vector_product(one, machine) for one in contractions]
    found: Sequence[VectorProduct] = [one for one in products if one is not None]
    prologue = prologue_of(before, made)
    if len(found) < len(products) or prologue is None or not _are_alike(found, made, is_last=after is None):
        return None
    tail = None if after is None else tail_of(after, found[-1])
    if tail is not None and len(found) == 1:
        found = tail_products(found[0], tail)
    if (tail is None) != (after is None) or (tail is not None and len(found) < len(tail.reads)):
        return None
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *made)} | {var.name for var in variables_of(body)}
    own = replace(machine, group=min(_THREADS, max(machine.group, machine.largest_group)))
    if tail is None:
        found = with_adjacent_rows(found, _rows_at_once(found, own))
    return _Vectors(kernel, found, tail, prologue, own, FreshNames(taken)).launches()


def _rows_at_once(products: Sequence[VectorProduct], machine: SimtMachine) -> int:
    """Adjacent rows that a subgroup computes together, as far as all groups have some.

    Reading the vectors from shared memory once for each integer of few bits would take longer than the integers.
    """
    last = products[-1]
    turns = -(-prod(extent for _, extent in last.rows) // (machine.group // machine.subgroup * _groups(machine)))
    count = max(1, _VECTOR_BITS // max(one.large.dtype.bits for one in products))
    while count > 1 and (
        count > turns
        or last.rows[-1][1] % count
        or count * len(products) > _ACCESSES // 2
        or count * len(products) * len(last.places) > _ACCESSES
    ):
        count //= 2
    return count


def _groups(machine: SimtMachine) -> int:
    """Groups that are launched at most."""
    return max(_BUSY // machine.group, 1) * machine.units


def _parts(body: Statements) -> tuple[Statements, list[Contraction], Statement | None] | None:
    """The prologue, the products, and at most one statement on their results; None if there is anything else."""
    places = [place for place, one in enumerate(body) if isinstance(one, Contraction)]
    if not places or places != list(range(places[0], places[-1] + 1)) or places[-1] < len(body) - 2:
        return None
    contractions = [one for one in body if isinstance(one, Contraction)]
    return body[: places[0]], contractions, body[-1] if places[-1] < len(body) - 1 else None


def _are_alike(products: Sequence[VectorProduct], made: Sequence[Buffer], *, is_last: bool) -> bool:
    """Whether products have the same rows, and intermediate results do not leave the kernel."""
    last = products[-1]
    if any((one.one.out in made) != (one is not last or not is_last) for one in products):
        return False
    results = {one.one.out for one in products}
    read = (part for one in products for value in one.one.factors for part in visit(value))
    if any(isinstance(part, Load) and part.buffer in results for part in read):
        return False  # a sum of results needs those of all groups
    return all(
        [extent for _, extent in one.rows] == [extent for _, extent in last.rows]
        and [extent for _, extent in one.inside] == [extent for _, extent in last.inside]
        and (one.width, one.length) == (last.width, last.length)
        for one in products
    )


class _Vectors:
    def __init__(
        self,
        kernel: Kernel,
        products: Sequence[VectorProduct],
        tail: ProductTail | None,
        prologue: Prologue,
        machine: SimtMachine,
        names: FreshNames,
    ) -> None:
        self._kernel, self._products, self._tail, self._prologue = kernel, products, tail, prologue
        self._machine, self._names = machine, names
        self._lane, self._member = names.var("lane"), names.var("member")
        self._width, self._chunks = products[-1].width, products[-1].length // products[-1].width
        rows, per = prod(extent for _, extent in products[-1].rows), machine.group // machine.subgroup
        self._needed = -(-rows // per)
        self._count = min(self._needed, _groups(machine))
        """Groups that there is work for, and groups that are launched."""
        kept = Buffer(names.name("constants"), MAGIC.dtype, (2,), Space.GROUP)
        self._magic = names.var("magic", MAGIC.dtype)
        self._kept = kept if any(one.is_packed for one in products) else None
        """Shared memory for a constant: what compilers do not know, they keep in a register."""
        self._memory: dict[Buffer, GroupMemory] = {}
        """Shared memory for the results of the prologue."""
        self._vectors: dict[Scalar, GroupMemory] = {}
        """Shared memory for vectors that the prologue does not compute, by their values."""
        made = {one.buffer for one in prologue.stores}
        run = _RUN if self._width % _RUN == 0 and all(one.is_packed for one in products) else 1
        for one in products:
            key = _key(one)
            if isinstance(key, Load) and key.buffer in made and key.index[-1] == _ALONG:
                self._memory[key.buffer] = GroupMemory.of(key.buffer, names.name("vector"), self._width, run)
            elif key not in self._vectors:
                whole = Buffer("", one.one.accumulator, (len(one.places), one.length))
                self._vectors[key] = GroupMemory.of(whole, names.name("vector"), self._width, run)
        for buffer in sorted(made - self._memory.keys(), key=lambda one: one.name):
            self._memory[buffer] = GroupMemory.of(buffer, names.name(buffer.name))

    def launches(self) -> Launches | None:
        """The launch; None if there is not enough shared memory."""
        machine, names, rows = self._machine, self._names, self._products[-1].rows
        shared = [one.buffer for one in (*self._memory.values(), *self._vectors.values())]
        if sum(prod(one.shape) * one.dtype.bits // 8 for one in shared) > machine.shared_bytes * 3 // 4:
            return None
        extents, per = tuple(extent for _, extent in rows), machine.group // machine.subgroup
        needed, count = self._needed, self._count
        group, row, turn = names.var("group"), names.var("row"), names.var("turn")
        team = self._team(machine.group, self._lane)
        total, number = prod(extents), self._lane // machine.subgroup
        # The first loads of a row are in flight while vectors are computed; subgroups without a row load the last one.
        first, rest = self._row(pair("min", group * per + number, index(total - 1)))
        early = EarlyLoads({self._lane.name, self._member.name}, names)
        made = early.without_accesses(straightened(tuple(self._made(team))))
        body: list[Statement] = [
            Let(self._member, self._lane % machine.subgroup),
            *self._first(early, first),
            *made,
            *(() if self._kept is None else (Let(self._magic, Load(self._kept, (index(0),))),)),
            If(group * per + number < total, rest),
        ]
        if needed > count:
            turns = (index(needed) - group + (count - 1)) // index(count) - 1
            place = Let(row, ((turn + 1) * count + group) * per + number)
            again = tuple(part for parts in self._row(row) for part in parts)
            body.append(For(turn, turns, (place, If(row < total, again))))
        threads = For(self._lane, index(machine.group), tuple(body), LoopKind.PARALLEL, Bind.THREAD)
        shared += [one for buffers in team.shared.values() for one in buffers]
        shared += [] if self._kept is None else [self._kept]
        loop = For(group, index(count), (*map(Alloc, shared), threads), LoopKind.PARALLEL, Bind.GROUP)
        given = {one.name: one for one in (*self._kernel.inputs, *self._kernel.outputs)}
        form = f"vectors: {count} groups"
        kernel = launch_kernel(self._kernel, straightened((loop,)), given)
        launch = Launch(kernel, count * machine.group, form=form, is_short=True)
        return Launches(self._kernel, (launch,), ())

    def _team(self, count: int, member: ScalarVar) -> LaneTeam:
        return LaneTeam(self._machine, self._names, count, self._lane, member, {})

    # --- vectors ------------------------------------------------------------------------------------------------------

    def _made(self, team: LaneTeam) -> Iterator[Statement]:
        """The threads of a group compute the vectors together."""
        if self._kept is not None:
            yield If(self._lane < 2, (Store(self._kept, (self._lane,), MAGIC),))
        if self._prologue.parts:
            yield from with_memory(self._prologue, self._memory).statements(team)
            yield GroupBarrier()
        for key, memory in self._vectors.items():
            yield from self._loaded(key, memory, team)
        if self._vectors:
            yield GroupBarrier()

    def _loaded(self, key: Scalar, memory: GroupMemory, team: LaneTeam) -> Iterator[Statement]:
        one = next(one for one in self._products if _key(one) == key)
        chunk, place = self._names.var("chunk"), self._names.var("place")
        value = self._in_group(cast(one.vector, one.one.accumulator))
        stores = tuple(
            Store(
                memory.buffer,
                (index(number), *memory.inner(place, chunk)),
                replaced(value, {**at, one.along: self._at(chunk, place)}),
            )
            for number, at in enumerate(one.places)
        )
        loop = self._loop(chunk, place, stores)
        widths = common_widths([loop], team.machine) if one.is_packed else {loop.shape: self._width}
        yield from replace(team, widths=widths).loop(loop)

    def _at(self, chunk: Scalar, place: Scalar) -> Scalar:
        return chunk * self._width + place

    def _in_group(self, value: Scalar) -> Scalar:
        return changed(value, lambda part: loaded(part, self._memory))

    def _loop(self, chunk: ScalarVar, place: ScalarVar, body: Statements) -> RowLoop:
        """A loop over the terms of the sum, one chunk after the other."""
        # Each element of the vectors is stored once.
        kind = LoopKind.PARALLEL if all(isinstance(one, Store) for one in body) else LoopKind.SERIAL
        inner = For(place, index(self._width), body, kind)
        loop = row_loop(For(chunk, index(self._chunks), (inner,), kind))
        assert loop is not None
        return loop

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _row(self, row: Scalar) -> tuple[Statements, Statements]:
        """A row of each product, which a subgroup computes: the first loads, and the rest."""
        last, names, machine = self._products[-1], self._names, self._machine
        chunk, place = names.var("chunk"), names.var("place")
        indices: dict[Scalar, ScalarVar] = {var: names.var(var.name) for var, _ in last.rows}
        lets = lets_of(tuple(indices.values()), unflat(row, tuple(extent for _, extent in last.rows)))
        body: list[Statement] = []
        zeros: list[Statement] = []
        scales: list[tuple[ScalarVar, Scalar]] = []
        sums: list[list[ScalarVar]] = []
        for one in self._products:
            kind, known = one.one.accumulator, self._named_alike(one, indices)
            own = names.var("factor", kind)
            sums.append([names.var(ACCUMULATOR, kind) for _ in one.places])
            along = {**known, one.along: self._at(chunk, place)}
            body.append(Let(own, replaced(self._by_chunks(one, cast(one.factor, kind), chunk), along)))
            if one.scale is not None:
                scale = replaced(self._by_chunks(one, one.scale, chunk), known)
                scales += [(acc, scale) for acc in sums[-1]]
            for acc, value in zip(sums[-1], self._elements(one, chunk, place), strict=True):
                zeros.append(Local(acc, Const(0, kind)))
                body.append(SetLocal(acc, Binary("add", acc, Binary("mul", value, own))))
        team, loop = self._team(self._machine.subgroup, self._member), self._loop(chunk, place, tuple(body))
        integers = [one.large for one in self._products if one.is_packed]
        packed = PackedNumbers(integers, self._magic, names, machine.fuses)
        # A subgroup with a single row of each product has registers for more loads in flight.
        is_single = self._needed <= self._count and not integers
        accesses = _ACCESSES if integers else CHUNKS
        at_once = CHUNKS if is_single else max(1, accesses // len(self._products))
        unrolled = _UNROLLED if integers else 0
        own_team = replace(team, widths={loop.shape: self._width}, at_once=at_once, unrolled=unrolled)
        first, rest = map(packed.converted, own_team.begun(replace(loop, scales=tuple(scales))))
        places = enumerate(last.places)
        stores = [
            one for number, at in places for one in self._stored({**at, **indices}, [own[number] for own in sums])
        ]
        early = EarlyLoads({var.name for var in indices.values()}, names)
        done = early.with_operands(tuple(stores))
        return (*lets, *self._first(early, first)), (*zeros, *with_fused_sums(rest, machine), *done)

    def _first(self, early: EarlyLoads, weights: Statements) -> Statements:
        """Loads at the start; those that may have to wait for the previous launch come last.

        Loads arrive in order. Where weights take so little time that vectors would wait for them, vectors come first,
        after scales.
        """
        if not self._machine.early:
            return *early.statements, *weights
        bits = min(one.large.dtype.bits for one in self._products)
        if self._machine.early == "counted" or bits > _FEW_BITS:
            return *weights, *early.statements
        wide = (replace(one, is_ahead=True) for one in weights if isinstance(one, WideLoad))
        return *(one for one in weights if not isinstance(one, WideLoad)), *early.statements, *wide

    def _named_alike(self, one: VectorProduct, indices: Mapping[Scalar, Scalar]) -> dict[Scalar, Scalar]:
        """Maps a product's indices to those of the last product, or to what ``indices`` has for these."""
        last = self._products[-1]
        pairs = zip((*one.rows, *one.inside), (*last.rows, *last.inside), strict=True)
        return {var: indices.get(other, other) for (var, _), (other, _) in pairs}

    def _by_chunks(self, one: VectorProduct, value: Scalar, chunk: ScalarVar) -> Scalar:
        """A value that names groups of terms by the access that they belong to: all elements of one share a group."""

        def quotient(part: Scalar) -> Scalar | None:
            match part:
                case Binary("div", left, Const(int(divisor))) if left == one.along and divisor % self._width == 0:
                    return chunk // (divisor // self._width)
                case _:
                    return None

        return changed(value, quotient)

    def _elements(self, one: VectorProduct, chunk: ScalarVar, place: ScalarVar) -> Iterator[Scalar]:
        """An element of each vector, from shared memory."""
        key = _key(one)
        for number, at in enumerate(one.places):
            if key in self._vectors:
                memory = self._vectors[key]
                yield Load(memory.buffer, (index(number), *memory.inner(place, chunk)))
            else:
                assert isinstance(key, Load)
                names: dict[Scalar, Scalar] = {
                    ScalarVar(f" {axis}"): at[var] for axis, (var, _) in enumerate(one.inside)
                }
                where = tuple(replaced(part, names) for part in key.index[:-1])
                memory = self._memory[key.buffer]
                yield Load(memory.buffer, (*where, *memory.inner(place, chunk)))

    def _stored(self, at: Mapping[Scalar, Scalar], sums: Sequence[ScalarVar]) -> Iterator[Statement]:
        """The epilogue for the sums of one vector, which the first thread runs."""
        found: dict[Scalar, Scalar] = {}
        done: list[Statement] = []
        for one, acc in zip(self._products, sums, strict=True):
            known = {**self._named_alike(one, at), ScalarVar(ACCUMULATOR, one.one.accumulator): acc}
            where = tuple(replaced(replaced(part, known), at) for part in one.one.out_index)
            value = changed(replaced(replaced(one.one.epilogue, known), at), found.get)
            if self._tail is None and one.one.out == self._products[-1].one.out:
                done.append(Store(one.one.out, where, self._in_group(value)))
            else:
                made = self._names.var(one.one.out.name, value.dtype)
                done.append(Let(made, rounded(self._in_group(value), one.one.out.dtype)))
                found[Load(one.one.out, where)] = made
        if self._tail is not None:
            stored = self._tail.statements({**at}, found, self._names)
            done += changed_statements(stored, lambda part: loaded(part, self._memory))
        yield If(self._member.eq(0), tuple(done))


_ALONG = ScalarVar(" along")


def _key(one: VectorProduct) -> Scalar:
    """The vectors of a product as an expression in canonical indices."""
    known: dict[Scalar, Scalar] = {one.along: _ALONG}
    known |= {var: ScalarVar(f" {place}") for place, (var, _) in enumerate(one.inside)}
    return replaced(cast(one.vector, one.one.accumulator), known)
