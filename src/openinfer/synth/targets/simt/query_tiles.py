"""Attention with many queries on matrix units: a group for each block of queries, 64 for every team of 128 threads.

Queries, keys and values are in tiles; keys and values arrive one block ahead of the one that is used. If there are few
blocks of queries, two teams share one, and each has half of the keys. Scores stay in registers, become weights there,
and are multiplied with values from there. A thread has two queries, and four threads have a query together. As in
``attention``, a query has a running maximum of its scores; its sums are scaled down where that grows, and divided by
the sum of weights in the end.

Hidden keys have the weight 0, which would not cancel a value that is not finite, and sums may overflow where means do
not. So if the means of a subgroup's queries are not all finite, it computes them again, one query at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from openinfer.dtypes import DTYPES
from openinfer.loops.affine import position
from openinfer.loops.build import const, index, math, pair, select, unflat
from openinfer.loops.dim import is_multiple, is_symbolic
from openinfer.loops.ir import (
    Alloc,
    Axis,
    Bind,
    Buffer,
    Combine,
    Const,
    Element,
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
    WideStore,
)
from openinfer.loops.rewrite import Statements, replaced, straightened, variables_of
from openinfer.loops.tile_steps import (
    MIX_TEAM,
    TILE_ROWS,
    TILE_THREADS,
    TileCopy,
    TileMix,
    TileMoment,
    TileProduct,
    TileSync,
    TileWeights,
)
from openinfer.synth.targets.simt.attention_plan import mean_stored, rises, seen_blocks, sees
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.products import with_fused_sums
from openinfer.synth.targets.simt.query_tiles_plan import PIECE, STAGES, TilePlan, tile_plan
from openinfer.synth.targets.simt.single_queries import single_queries
from openinfer.synth.targets.simt.threads import launch_kernel, lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_F32 = DTYPES["f32"]
_SUBGROUP, _TEAM_ROWS = 32, 16
"""Threads of a subgroup, and the queries that they have together."""


def query_tiles(kernel: Kernel, machine: SimtMachine) -> Launches | None:
    """A kernel that is attention with many queries, as one launch on matrix units; None if it cannot be."""
    plan = None if kernel.can_fail else tile_plan(straightened(kernel.body), machine)
    if plan is None:
        return None
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    taken |= {var.name for var in variables_of(kernel.body)}
    body = with_fused_sums(straightened((_QueryTiles(plan, FreshNames(taken)).loop(),)), machine)
    given = {one.name: one for one in (*kernel.inputs, *kernel.outputs)}
    form = f"attention on matrix units: blocks of {plan.queries} queries and {plan.block} keys"
    launch = Launch(launch_kernel(kernel, body, given), plan.groups * plan.threads, form=form)
    return Launches(kernel, (launch,), ())


@dataclass(frozen=True)
class _Query:
    """One of a thread's two queries."""

    half: int
    row: ScalarVar
    largest: ScalarVar
    total: ScalarVar


class _QueryTiles:
    def __init__(self, plan: TilePlan, names: FreshNames) -> None:
        self._plan, self._one, self._names = plan, plan.one, names
        self._lane, self._head, self._top, self._start = (names.var(one) for one in ("lane", "head", "top", "start"))
        self._corner = names.var("corner")
        kind, depths, wide = plan.one.keys.buffer.dtype, plan.depths, len(plan.widths)
        self._queries = Buffer(names.name("queries"), kind, (depths, plan.queries, plan.deep), Space.GROUP)
        self._keys = Buffer(names.name("keys"), kind, (STAGES * depths, plan.block, plan.deep), Space.GROUP)
        self._values = Buffer(names.name("values"), kind, (STAGES * wide, plan.block, plan.deep), Space.GROUP)
        self._given = Buffer(names.name("given"), _F32, plan.handed_on, Space.GROUP)
        self._scores = Buffer(names.name("scores"), _F32, (plan.keys // 2,), Space.OWN)
        self._means = [Buffer(names.name("means"), _F32, (width // 2,), Space.OWN) for width in plan.widths]

    def _var(self, name: str) -> ScalarVar:
        return self._names.var(name, _F32)

    def loop(self) -> Statement:
        """The loop over the groups of the launch."""
        plan, names, one = self._plan, self._names, self._one
        group, block, first, count = (names.var(name) for name in ("group", "block", "first", "count"))
        # Later queries see more keys where something limits them: these blocks begin first.
        number, *heads, head = unflat(group, (plan.blocks, *plan.extents, one.head.extent))
        number = number if one.until is None else index(plan.blocks - 1) - number
        queries = [_Query(half, names.var("row"), self._var("largest"), self._var("total")) for half in range(2)]
        seen = seen_blocks(one, self._top, plan.queries, plan.block)
        stage = names.var("stage")
        turn = (
            TileSync(TileMoment.ARRIVED),
            GroupBarrier(),
            If(block < count - 1, tuple(self._block_copied(first + block + 1, (block + 1) % STAGES))),
            TileSync(TileMoment.BATCH),
            Let(stage, block % STAGES),
            Let(self._start, (first + block) * plan.block + self._share * plan.keys),
            *self._scored(stage),
            *self._weighed(queries),
            *(self._mixed(part, stage) for part in range(len(plan.widths))),
        )
        start = (*self._queries_copied(), *self._block_copied(first, index(0)))
        body = (
            *lets_of(tuple(each.index for each in plan.loops), tuple(heads)),
            Let(self._head, head),
            Let(self._top, number * plan.queries),
            Let(self._corner, self._team + self._lane % TILE_THREADS // _SUBGROUP * _TEAM_ROWS),
            *(self._row(each) for each in queries),
            *(Local(each.largest, const(-inf, _F32)) for each in queries),
            *(Local(each.total, const(0, _F32)) for each in queries),
            Alloc(self._scores),
            *map(Alloc, self._means),
            *map(self._zeros, self._means),
            Let(first, seen[0]),
            Let(count, seen[1]),
            If(count > 0, start),
            TileSync(TileMoment.BATCH),
            For(block, count, turn),
            *self._joined(queries),
        )
        threads = For(self._lane, index(plan.threads), body, LoopKind.PARALLEL, Bind.THREAD)
        shared = (self._queries, self._keys, self._values, *([self._given] if plan.shares > 1 else []))
        memory = map(Alloc, shared)
        return For(group, index(plan.groups), (*memory, threads), LoopKind.PARALLEL, Bind.GROUP)

    @property
    def _team(self) -> Scalar:
        """The first query of the thread's team in the block."""
        return self._lane // TILE_THREADS % self._plan.teams * TILE_ROWS if self._plan.teams > 1 else index(0)

    @property
    def _share(self) -> Scalar:
        """The share of the keys that the thread's team has."""
        return self._lane // (self._plan.teams * TILE_THREADS) if self._plan.shares > 1 else index(0)

    def _row(self, query: _Query) -> Statement:
        row = self._corner + self._lane % _SUBGROUP // MIX_TEAM
        return Let(query.row, self._top + (row + 8 if query.half else row))

    def _zeros(self, buffer: Buffer) -> Statement:
        number = self._names.var("number")
        zero = Store(buffer, (number,), Const(0, buffer.dtype))
        return For(number, index(int(buffer.shape[0])), (zero,), bind=Bind.UNROLL)

    # --- tiles --------------------------------------------------------------------------------------------------------

    def _queries_copied(self) -> Iterator[Statement]:
        one, plan = self._one, self._plan
        yield self._copied(one.queries, one.row, one.depth, self._top, (self._queries, index(0), plan.queries))

    def _block_copied(self, block: Scalar, stage: Scalar) -> Iterator[Statement]:
        one, plan, start = self._one, self._plan, self._names.var("from")
        yield Let(start, block * plan.block)
        yield self._copied(one.keys, one.key, one.depth, start, (self._keys, stage * plan.depths, plan.block))
        yield self._copied(one.values, one.key, one.column, start, (self._values, stage * len(plan.widths), plan.block))

    def _copied(
        self, element: Element, line: Axis, along: Axis, start: Scalar, to: tuple[Buffer, Scalar, int]
    ) -> Statement:
        """Copies the lines of a block to tiles; zeros past the last line, and past its end."""
        plan, names, (tile, first, lines) = self._plan, self._names, to
        each, tiles = PIECE * 8 // tile.dtype.bits, -(-along.extent // plan.deep)
        pieces, threads = tiles * plan.deep // each, plan.threads
        turn, at, own, place, where = (names.var(name) for name in ("turn", "at", "line", "place", "where"))
        known: dict[Scalar, Scalar] = {self._one.head.index: self._head, line.index: where, along.index: place}
        source = tuple(replaced(part, known) for part in element.index)
        tests = [where < index(line.extent)]
        tests += [place < index(along.extent)] if along.extent % plan.deep else []
        copy = TileCopy(
            tile,
            (first + place // plan.deep, own, place % plan.deep),
            element.buffer,
            source,
            tests[0] if len(tests) == 1 else tests[0] & tests[1],
        )
        body = (Let(own, at // pieces), Let(place, at % pieces * each), Let(where, start + own), copy)
        total = lines * pieces
        inside = body if total % threads == 0 else (If(at < total, body),)
        turns = (Let(at, turn * threads + self._lane), *inside)
        return For(turn, index(-(-total // threads)), turns, bind=Bind.UNROLL)

    # --- a block of keys ----------------------------------------------------------------------------------------------

    def _scored(self, stage: Scalar) -> Iterator[Statement]:
        plan, scores = self._plan, self._scores
        yield self._zeros(scores)
        for part in range(plan.depths):
            rows, keys = (index(part), self._team), (stage * plan.depths + part, self._share * plan.keys)
            yield TileProduct(scores, self._queries, rows, self._keys, keys, plan.keys, self._lane)
        yield TileSync(TileMoment.SUMMED, sums=scores)

    def _weighed(self, queries: list[_Query]) -> Iterator[Statement]:
        """Turns sums into scores, and these into weights; scales down what has been added up before."""
        before = [self._var("before") for _ in queries]
        yield from (Let(old, one.largest) for old, one in zip(before, queries, strict=True))
        whole = tuple(part for one in queries for part in self._masked(one, is_whole=True))
        masked = tuple(part for one in queries for part in self._masked(one, is_whole=False))
        test = self._is_whole()
        yield from masked if test is None else (If(test, whole, masked),)
        others = tuple(self._var("other") for _ in queries)
        largest = tuple(one.largest for one in queries)
        joined = tuple(select(two > one, two, one) for one, two in zip(largest, others, strict=True))
        yield Combine(largest, others, joined, MIX_TEAM)
        for old, one in zip(before, queries, strict=True):
            yield from self._exponentials(one, old)

    def _is_whole(self) -> Scalar | None:
        """Whether the queries of the group see all keys of the block; None if that is not simple to tell."""
        one, plan = self._one, self._plan
        test = self._start + plan.keys <= index(one.key.extent)
        if one.until is not None:
            if not rises(one, one.until):
                return None
            test = test & (self._start + (plan.keys - 1) <= replaced(one.until, {one.row.index: self._top}))
        if one.after is not None:
            if not rises(one, one.after):
                return None
            last = pair("min", self._top + (plan.queries - 1), index(one.row.extent - 1))
            test = test & (replaced(one.after, {one.row.index: last}) < self._start)
        return test

    def _masked(self, query: _Query, *, is_whole: bool) -> Iterator[Statement]:
        """The scores of a query in the thread, and the largest of them; -inf for keys that it does not see."""
        one, names, unit = self._one, self._names, self._names.var("unit")
        body: list[Statement] = []
        for number in range(2):
            key, score, where = names.var("key"), self._var("score"), unit * 4 + (query.half * 2 + number)
            # Past the last query, a row is some other's; the results are unused.
            row = pair("min", query.row, index(one.row.extent - 1)) if self._has_rows_beyond else query.row
            known: dict[Scalar, Scalar] = {
                one.head.index: self._head,
                one.row.index: row,
                one.key.index: key,
                one.total: Load(self._scores, (where,)),
            }
            value = replaced(one.score, known)
            body.append(Let(key, self._start + unit * 8 + self._lane % MIX_TEAM * 2 + number))
            if is_whole:
                body.append(Let(score, value))
            else:
                body += [Local(score, const(-inf, _F32)), If(sees(one, known), (SetLocal(score, value),))]
            body += [
                Store(self._scores, (where,), score),
                SetLocal(query.largest, select(score > query.largest, score, query.largest)),
            ]
        yield For(unit, index(self._plan.keys // 8), tuple(body), bind=Bind.UNROLL)

    @property
    def _has_rows_beyond(self) -> bool:
        rows = self._one.row.extent
        return is_symbolic(rows) or rows % self._plan.queries != 0

    def _exponentials(self, query: _Query, before: Scalar) -> Iterator[Statement]:
        names, total = self._names, query.total
        shift, carried = self._var("shift"), self._var("carried")
        yield Let(shift, select(query.largest.eq(-inf), 0.0, query.largest))
        yield Let(carried, math("exp", before - shift))
        yield SetLocal(total, total * carried)
        yield TileWeights(self._scores, query.half, shift)
        unit = names.var("unit")
        weights = [Load(self._scores, (unit * 4 + (query.half * 2 + number),)) for number in range(2)]
        adds = tuple(SetLocal(total, total + weight) for weight in weights)
        yield For(unit, index(self._plan.keys // 8), adds, bind=Bind.UNROLL)
        for means in self._means:
            unit = names.var("unit")
            places = [(unit * 4 + (query.half * 2 + number),) for number in range(2)]
            scaled = tuple(Store(means, place, Load(means, place) * carried) for place in places)
            yield For(unit, index(int(means.shape[0]) // 4), scaled, bind=Bind.UNROLL)

    def _mixed(self, part: int, stage: Scalar) -> Statement:
        widths = self._plan.widths
        place = (stage * len(widths) + part, self._share * self._plan.keys)
        return TileMix(self._means[part], self._scores, self._values, place, widths[part], self._lane)

    # --- means --------------------------------------------------------------------------------------------------------

    def _joined(self, queries: list[_Query]) -> Iterator[Statement]:
        """Adds what the team with the other share of the keys has found, and ends."""
        if self._plan.shares == 1:
            yield from self._ended(queries)
            return
        thread = self._lane % (self._plan.teams * TILE_THREADS)
        gives = [Store(self._given, (index(2 * one.half), thread), one.largest) for one in queries]
        gives += [Store(self._given, (index(2 * one.half + 1), thread), one.total) for one in queries]
        own: list[Statement] = []
        for means, first in self._parts_given():
            number = self._names.var("number")
            store = Store(self._given, (first + number, thread), Load(means, (number,)))
            own.append(For(number, index(int(means.shape[0])), (store,), bind=Bind.UNROLL))
        takes = [part for one in queries for part in self._taken(one, thread)]
        yield If(self._share > 0, (*gives, *own))
        yield GroupBarrier()
        yield If(self._share.eq(0), (*takes, *self._ended(queries)))

    def _parts_given(self) -> Iterator[tuple[Buffer, int]]:
        """The means, and where they begin among the numbers that a share hands on."""
        first = 4
        for means in self._means:
            yield means, first
            first += int(means.shape[0])

    def _taken(self, query: _Query, thread: Scalar) -> Iterator[Statement]:
        other, before, shift = self._var("other"), self._var("before"), self._var("shift")
        carried, taken = self._var("carried"), self._var("taken")
        yield Let(other, Load(self._given, (index(2 * query.half), thread)))
        yield Let(before, query.largest)
        yield SetLocal(query.largest, select(other > before, other, before))
        yield Let(shift, select(query.largest.eq(-inf), 0.0, query.largest))
        yield Let(carried, math("exp", before - shift))
        yield Let(taken, math("exp", other - shift))
        total = Load(self._given, (index(2 * query.half + 1), thread))
        yield SetLocal(query.total, query.total * carried + total * taken)
        for means, first in self._parts_given():
            unit = self._names.var("unit")
            places = [unit * 4 + (query.half * 2 + number) for number in range(2)]
            sums = tuple(
                Store(means, (at,), Load(means, (at,)) * carried + Load(self._given, (at + first, thread)) * taken)
                for at in places
            )
            yield For(unit, index(int(means.shape[0]) // 4), sums, bind=Bind.UNROLL)

    def _ended(self, queries: list[_Query]) -> Iterator[Statement]:
        names = self._names
        totals = tuple(one.total for one in queries)
        others = tuple(self._var("other") for _ in queries)
        yield Combine(totals, others, tuple(a + b for a, b in zip(totals, others, strict=True)), MIX_TEAM)
        # A sum of products with 0 is 0 if all of them are finite.
        odd, other = self._var("odd"), self._var("other")
        yield Local(odd, (totals[0] + totals[1]) * 0.0)
        for means in self._means:
            number = names.var("number")
            add = SetLocal(odd, odd + Load(means, (number,)) * 0.0)
            yield For(number, index(int(means.shape[0])), (add,), bind=Bind.UNROLL)
        yield Combine((odd,), (other,), (odd + other,), _SUBGROUP)
        stores = tuple(part for one in queries for part in self._stored(one))
        place = self._lane % _SUBGROUP, self._head, self._top + self._corner
        again = single_queries(self._one, names, place, (_TEAM_ROWS, _SUBGROUP))
        yield If(odd.eq(0.0), stores, (again,))

    def _stored(self, query: _Query) -> Iterator[Statement]:
        share, names = self._var("share"), self._names
        yield Let(share, select(query.total.eq(0.0), 0.0, const(1, _F32) / query.total))
        first, body = 0, list[Statement]()
        for means, width in zip(self._means, self._plan.widths, strict=True):
            unit = names.var("unit")
            column = names.var("column")
            numbers = [unit * 4 + (query.half * 2 + number) for number in range(2)]
            values = [Load(means, (number,)) * share for number in numbers]
            inside = (
                Let(column, unit * 8 + self._lane % MIX_TEAM * 2 + first),
                *self._guarded(column, first + width, self._pair(query.row, column, values)),
            )
            body.append(For(unit, index(width // 8), inside, bind=Bind.UNROLL))
            first += width
        yield from (If(query.row < self._one.row.extent, tuple(body)),) if self._has_rows_beyond else body

    def _guarded(self, column: Scalar, end: int, body: Statements) -> Statements:
        count = self._one.column.extent  # which is even, as pieces of values are
        return body if end <= count else (If(column < count, body),)

    def _pair(self, row: Scalar, column: Scalar, values: list[Scalar]) -> Statements:
        """Stores two adjacent means, in one access if possible."""
        first, second = (
            mean_stored(self._one, (self._head, row, column + number if number else column), value)
            for number, value in enumerate(values)
        )
        if not self._is_wide:
            return first, second
        names = tuple(self._names.var("out", one.value.dtype) for one in (first, second))
        lets = (Let(name, one.value) for name, one in zip(names, (first, second), strict=True))
        return (*lets, WideStore(first.buffer, first.index, names))

    @property
    def _is_wide(self) -> bool:
        out, column = self._one.out, self._one.column.index
        found = position(out.buffer, out.index)
        if found is None or out.buffer.name in self._plan.machine.unaligned or out.buffer.dtype.bits != 16:
            return False
        others = [found.first, *(step for name, step in found.strides.items() if name != column.name)]
        return found.stride(column) == 1 and all(is_multiple(each, 2) for each in others)
