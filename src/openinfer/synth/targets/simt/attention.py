"""Attention with few queries: a group for each slice of the keys of a head; then the slices of a query are combined.

The queries that share a head traverse its keys together. A group takes one block of keys at a time, with a running
maximum of the scores and a running sum of weights. Its running result is always a mean, so that sums of large values
stay finite. Slices are combined in order, so results are bitwise reproducible: by a launch, or by each group of the
product that reads the result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, prod

from openinfer.dtypes import DTYPES
from openinfer.loops.build import cast, const, index, math, pair, select, unflat
from openinfer.loops.expand_attend import HIDDEN
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Bind,
    Buffer,
    Combine,
    Const,
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
)
from openinfer.loops.rewrite import Statements, replaced, straightened, variables_of
from openinfer.synth.targets.simt.attention_plan import AttentionPlan, attention_plan
from openinfer.synth.targets.simt.baseline import formed
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.products import with_fused_sums
from openinfer.synth.targets.simt.row_loops import row_loop
from openinfer.synth.targets.simt.team import LaneTeam
from openinfer.synth.targets.simt.threads import launch_kernel, lets_of
from openinfer.synth.targets.simt.vectors import vectors
from openinfer.synth.targets.simt.wide import FreshNames

_F32 = DTYPES["f32"]


def attention(kernel: Kernel, machine: SimtMachine) -> Launches | None:
    """A kernel that is attention with few queries, as two launches; None if it is something else.

    If a product with the result follows, it is the second launch.
    """
    whole = straightened(kernel.body)
    made = tuple(one for one in whole if isinstance(one, Alloc))
    first, *rest = (one for one in whole if not isinstance(one, Alloc)) if len(whole) > len(made) else (None,)
    plan = None if first is None or kernel.can_fail else attention_plan(first, machine)
    if plan is None:
        return None
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    taken |= {var.name for var in variables_of(kernel.body)}
    own = _Attention(kernel, plan, FreshNames(taken))
    return own.with_product(made, tuple(rest), machine) if rest else own.launches()


class _Attention:
    def __init__(self, kernel: Kernel, plan: AttentionPlan, names: FreshNames) -> None:
        machine = plan.machine
        self._kernel, self._plan, self._one = kernel, plan, plan.one
        self._machine, self._names = machine, names
        self._sub, self._subgroups = machine.subgroup, machine.group // machine.subgroup
        self._lane, self._member, self._own = (names.var(name) for name in ("lane", "member", "query"))
        heads, queries, columns = plan.extents, plan.queries, self._one.column.extent
        self._means = self._buffer("means", (*heads, plan.parts, queries, columns), Space.SCRATCH)
        self._tops = self._buffer("tops", (*heads, queries, plan.parts), Space.SCRATCH)
        self._totals = self._buffer("totals", (*heads, queries, plan.parts), Space.SCRATCH)
        self._weights = self._buffer("weights", (*heads, queries, plan.parts), Space.SCRATCH)
        self._scores = self._buffer("scores", (queries, plan.block))
        self._carried, self._shares = (self._buffer(name, (queries,)) for name in ("carried", "shares"))
        self._joined = self._buffer("joined", (self._subgroups, queries, columns))

    def _buffer(self, name: str, shape: tuple[int, ...], space: Space = Space.GROUP) -> Buffer:
        return Buffer(self._names.name(name), _F32, shape, space)

    @property
    def _scratch(self) -> tuple[Buffer, ...]:
        return self._means, self._tops, self._totals

    def launches(self) -> Launches:
        """The slices, then their combination."""
        whole = self._second(tuple(self._whole(self._weights_of_parts)))
        join = formed(whole, straightened(whole.body), self._machine)
        return Launches(self._kernel, (self._first(), *join.launches), (*self._scratch, *join.scratch))

    def with_product(self, made: Statements, rest: Statements, machine: SimtMachine) -> Launches | None:
        """The slices, then a product in which each group combines them; None if there is no such product."""
        join = (*self._weighed_parts(), *self._whole(self._kept_weights))
        product = vectors(self._second((*made, Alloc(self._weights), *join, *rest)), machine)
        if product is None:
            return None
        return Launches(self._kernel, (self._first(), *product.launches), self._scratch)

    def _first(self) -> Launch:
        given = {one.name: one for one in (*self._kernel.inputs, *self._kernel.outputs, *self._scratch)}
        count = prod(self._plan.extents) * self._plan.parts
        name = f"{self._kernel.name}_1"
        body = with_fused_sums(straightened((self._parts(count),)), self._machine)
        parts = launch_kernel(replace(self._kernel, name=name), body, given)
        form = f"attention: {self._plan.parts} parts of keys"
        return Launch(parts, count * self._machine.group, form=form, is_short=True)

    def _second(self, body: Statements) -> Kernel:
        inputs = (*self._kernel.inputs, *self._scratch)
        return replace(self._kernel, name=f"{self._kernel.name}_2", inputs=inputs, body=body)

    # --- one slice ----------------------------------------------------------------------------------------------------

    def _parts(self, count: int) -> Statement:
        names, plan, machine = self._names, self._plan, self._machine
        group, part, first, end, block = (names.var(name) for name in ("group", "part", "first", "end", "block"))
        *heads, own = unflat(group, (*plan.extents, plan.parts))
        keys = index(self._one.key.extent)
        length = names.var("length")
        top, total = names.var("top", _F32), names.var("total", _F32)
        own_columns = plan.accesses * plan.width
        means = [[names.var("mean", _F32) for _ in range(own_columns)] for _ in range(plan.queries)]
        head = tuple(one.index for one in plan.loops)
        start = names.var("start")
        loads, adds = self._mixed(start, end, means)
        loop = (
            Let(start, first + block * plan.block),
            *loads,
            *self._scored(start, end),
            GroupBarrier(),
            If(self._own < plan.queries, tuple(self._weighed(top, total))),
            GroupBarrier(),
            *adds,
            GroupBarrier(),
        )
        where = (*head, self._own, part)
        done = (Store(self._tops, where, top), Store(self._totals, where, total))
        body = (
            *lets_of(head, tuple(heads)),
            Let(part, own),
            Let(length, (keys + (plan.parts - 1)) // plan.parts),
            Let(first, part * length),
            Let(end, pair("min", first + length, keys)),
            Let(self._member, self._lane % self._sub),
            Let(self._own, self._lane // self._sub),
            Local(top, const(-inf, _F32)),
            Local(total, const(0, _F32)),
            *(Local(one, const(0, _F32)) for line in means for one in line),
            For(block, (end - first + (plan.block - 1)) // plan.block, loop),
            If((self._own < plan.queries) & self._member.eq(0), done),
            *self._together(means, (*head, part)),
        )
        memory = (self._scores, self._carried, self._shares, self._joined)
        threads = For(self._lane, index(machine.group), body, LoopKind.PARALLEL, Bind.THREAD)
        return For(group, index(count), (*map(Alloc, memory), threads), LoopKind.PARALLEL, Bind.GROUP)

    def _query(self, number: int) -> dict[Scalar, Scalar]:
        """The head and the row of a query."""
        one = self._one
        head, row = divmod(number, one.row.extent)
        return {one.head.index: Const(head, INDEX), one.row.index: Const(row, INDEX)}

    def _team(self, count: int, member: ScalarVar, shape: tuple[Scalar, ...], width: int) -> LaneTeam:
        return LaneTeam(self._machine, self._names, count, self._lane, member, {shape: width})

    def _scored(self, start: ScalarVar, end: ScalarVar) -> Iterator[Statement]:
        """The scores of a block: a team of threads for each key loads it, and the queries with it."""
        one, names, plan = self._one, self._names, self._plan
        per, member = self._machine.group // plan.team, names.var("member")
        first: list[Statement] = [Let(member, self._lane % plan.team)]
        rest: list[Statement] = []
        for turn in range(-(-plan.block // per)):
            place, key = names.var("place"), names.var("key")
            at, own = names.var("at"), names.var("factor", _F32)
            sums = [names.var("acc", _F32) for _ in range(plan.queries)]
            factor = replaced(one.keys.scalar, {one.key.index: key, one.depth.index: at})
            body: list[Statement] = [Let(own, cast(factor, _F32))]
            for number, acc in enumerate(sums):
                query = replaced(one.queries.scalar, {**self._query(number), one.depth.index: at})
                body.append(SetLocal(acc, acc + cast(query, _F32) * own))
            loop = row_loop(For(at, index(one.depth.extent), tuple(body)))
            assert loop is not None
            loads, dots = self._team(plan.team, member, loop.shape, plan.depth).begun(loop)
            seen = [select(start + place < end, self._score(number, key, acc), -inf) for number, acc in enumerate(sums)]
            stores = tuple(Store(self._scores, (index(number), place), score) for number, score in enumerate(seen))
            # Keys past the end are those at the end once more, so that all loads are in flight at once.
            first += [Let(place, turn * per + self._lane // plan.team), Let(key, pair("min", start + place, end - 1))]
            first += loads
            rest += [*(Local(acc, const(0, _F32)) for acc in sums), *dots]
            rest.append(If(member.eq(0) & (place < plan.block), stores))
        yield from (*first, *rest)

    def _score(self, number: int, key: ScalarVar, acc: ScalarVar) -> Scalar:
        one, score = self._one, self._one.score
        if one.until is not None:
            score = select(one.key.index <= one.until, score, -inf)
        if one.after is not None:
            score = select(one.after < one.key.index, score, -inf)
        return replaced(score, {**self._query(number), one.key.index: key, one.total: acc})

    def _weighed(self, top: ScalarVar, total: ScalarVar) -> Iterator[Statement]:
        """Replaces scores by weights; a subgroup for each query keeps its running maximum and sum."""
        names = self._names
        at, score, weight = names.var("at"), names.var("score", _F32), names.var("weight", _F32)
        before, shift, own, share = (names.var(name, _F32) for name in ("before", "shift", "own", "share"))
        found = Load(self._scores, (self._own, at))
        largest = row_loop(
            For(at, index(self._plan.block), (Let(score, found), SetLocal(top, select(score > top, score, top))))
        )
        stored = Store(self._scores, (self._own, at), select(score.eq(-inf), HIDDEN, weight))
        adds = (Let(score, found), Let(weight, math("exp", score - shift)), SetLocal(own, own + weight), stored)
        sums = row_loop(For(at, index(self._plan.block), adds))
        assert largest is not None
        assert sums is not None
        team = self._team(self._sub, self._member, largest.shape, 1)
        yield Let(before, top)
        yield from team.loop(largest)
        yield Let(shift, select(top.eq(-inf), 0.0, top))
        yield Local(own, const(0, _F32))
        yield from team.loop(sums)
        kept = names.var("kept", _F32)
        yield Let(kept, total * math("exp", before - shift))
        yield SetLocal(total, kept + own)
        yield Let(share, select(total.eq(0.0), 0.0, const(1, _F32) / total))
        stores = (
            Store(self._carried, (self._own,), kept * share),
            Store(self._shares, (self._own,), share),
        )
        yield If(self._member.eq(0), stores)

    def _mixed(self, start: ScalarVar, end: ScalarVar, means: list[list[ScalarVar]]) -> tuple[Statements, Statements]:
        """The loads that a block needs for the means, and the updates: a thread has some columns of some keys."""
        one, names, plan = self._one, self._names, self._plan
        shares = [names.var("share", _F32) for _ in means]
        loads: list[Statement] = []
        adds: list[Statement] = []
        for number, (line, share) in enumerate(zip(means, shares, strict=True)):
            carried = names.var("carried", _F32)
            adds.append(Let(carried, Load(self._carried, (index(number),))))
            adds.append(Let(share, Load(self._shares, (index(number),))))
            adds += [SetLocal(mean, mean * carried) for mean in line]
        per = self._subgroups * plan.keys
        for turn in range(plan.block // per):
            place, key = names.var("place"), names.var("key")
            loads.append(Let(place, turn * per + self._own * plan.keys + self._member % plan.keys))
            loads.append(Let(key, pair("min", start + place, end - 1)))
            values: list[ScalarVar] = []
            for first in self._columns():
                column, loaded = names.var("column"), tuple(names.var("value", _F32) for _ in range(plan.width))
                known: dict[Scalar, Scalar] = {one.key.index: key, one.column.index: column}
                where = tuple(replaced(part, known) for part in one.values.index)
                loads += [Let(column, first), WideLoad(loaded, one.values.buffer, where)]
                values += loaded
            adds.append(If(start + place < end, tuple(self._added(place, values, means, shares))))
        return tuple(loads), tuple(adds)

    def _columns(self) -> list[Scalar]:
        """The columns at which the accesses of a thread start; those of adjacent threads are adjacent."""
        own, lanes, width = self._member // self._plan.keys, self._plan.lanes, self._plan.width
        return [own * width if number == 0 else (own + number * lanes) * width for number in range(self._plan.accesses)]

    def _added(
        self,
        place: ScalarVar,
        loaded: Sequence[ScalarVar],
        means: list[list[ScalarVar]],
        shares: list[ScalarVar],
    ) -> Iterator[Statement]:
        """Adds a value to the mean of each query that sees its key, by its weight."""
        for number, (line, share) in enumerate(zip(means, shares, strict=True)):
            weight, part = self._names.var("weight", _F32), self._names.var("part", _F32)
            sums = [SetLocal(mean, mean + part * value) for mean, value in zip(line, loaded, strict=True)]
            yield Let(weight, Load(self._scores, (index(number), place)))
            yield If(~(weight < 0.0), (Let(part, weight * share), *sums))

    def _together(self, means: list[list[ScalarVar]], head: tuple[Scalar, ...]) -> Iterator[Statement]:
        """Adds up the partial means of the threads of a group, in order."""
        one, names, plan = self._one, self._names, self._plan
        keys = plan.keys
        flat_means = [mean for line in means for mean in line]
        others = [names.var("other", _F32) for _ in flat_means]
        if keys > 1:
            values = tuple(mean + other for mean, other in zip(flat_means, others, strict=True))
            yield Combine(tuple(flat_means), tuple(others), values, keys)
        columns = [first + place for first in self._columns() for place in range(plan.width)]
        stores = tuple(
            Store(self._joined, (self._own, index(number), column), mean)
            for number, line in enumerate(means)
            for column, mean in zip(columns, line, strict=True)
        )
        yield If((self._member % keys).eq(0), stores)
        yield GroupBarrier()
        query, at = names.var("query"), names.var("at")
        total: Scalar = Load(self._joined, (index(0), query, at))
        for number in range(1, self._subgroups):
            total = total + Load(self._joined, (index(number), query, at))
        store = Store(self._means, (*head, query, at), total)
        loop = row_loop(For(query, index(plan.queries), (For(at, index(one.column.extent), (store,)),)))
        assert loop is not None
        yield from self._team(self._machine.group, self._lane, loop.shape, 1).loop(loop)

    # --- combining slices ---------------------------------------------------------------------------------------------

    @property
    def _query_number(self) -> Scalar:
        return self._one.head.index * self._one.row.extent + self._one.row.index

    @property
    def _heads(self) -> tuple[Scalar, ...]:
        return tuple(each.index for each in self._plan.loops)

    def _shift(self, heads: tuple[Scalar, ...], query: Scalar, body: list[Statement]) -> Scalar:
        """What is subtracted from all scores of a query: the largest one, if there is any."""
        largest: Scalar = const(-inf, _F32)
        for part in range(self._plan.parts):
            top, made = self._names.var("top", _F32), self._names.var("largest", _F32)
            body.append(Let(top, Load(self._tops, (*heads, query, index(part)))))
            body.append(Let(made, select(top > largest, top, largest)))
            largest = made
        shift = self._names.var("shift", _F32)
        body.append(Let(shift, select(largest.eq(-inf), 0.0, largest)))
        return shift

    def _weight(self, where: tuple[Scalar, ...], shift: Scalar) -> Scalar:
        """The weight of a slice for a query."""
        return Load(self._totals, where) * math("exp", Load(self._tops, where) - shift)

    def _weights_of_parts(self, body: list[Statement]) -> list[Scalar]:
        shift = self._shift(self._heads, self._query_number, body)
        places = [(*self._heads, self._query_number, index(part)) for part in range(self._plan.parts)]
        return [self._weight(where, shift) for where in places]

    def _kept_weights(self, _body: list[Statement]) -> list[Scalar]:
        query = (*self._heads, self._query_number)
        return [Load(self._weights, (*query, index(part))) for part in range(self._plan.parts)]

    def _weighed_parts(self) -> Iterator[Statement]:
        """Stores the weights of all slices, so that each is computed once."""
        query, part = self._names.var("query"), self._names.var("part")
        heads = [(self._names.var(one.index.name), one) for one in self._plan.loops]
        where = (*(var for var, _ in heads), query, part)
        body: list[Statement] = []
        shift = self._shift(where[:-2], query, body)
        body.append(Store(self._weights, where, self._weight(where, shift)))
        inner: Statements = tuple(body)
        for var, extent in ((part, self._plan.parts), (query, self._plan.queries)):
            inner = (For(var, index(extent), inner, LoopKind.PARALLEL),)
        for var, loop in reversed(heads):
            inner = (replace(loop, index=var, body=inner),)
        yield from inner

    def _whole(self, weights_of: Callable[[list[Statement]], list[Scalar]]) -> Iterator[Statement]:
        """The mean of the slices' means, each weighted by its share of the total."""
        one, names, plan = self._one, self._names, self._plan
        body: list[Statement] = []
        weights = [names.var("weight", _F32) for _ in range(plan.parts)]
        total, share, mean = (names.var(name, _F32) for name in ("total", "share", "mean"))
        found = weights_of(body)
        body += [Let(weight, value) for weight, value in zip(weights, found, strict=True)]
        body.append(Let(total, _sum(weights)))
        body.append(Let(share, select(total.eq(0.0), 0.0, const(1, _F32) / total)))
        terms = [
            Load(self._means, (*self._heads, index(part), self._query_number, one.column.index)) * (weight * share)
            for part, weight in enumerate(weights)
        ]
        body.append(Let(mean, _sum(terms)))
        body.append(Store(one.out.buffer, one.out.index, replaced(one.out.value, {one.total: mean})))
        inner: Statements = tuple(body)
        for axis in (one.column, one.row, one.head):
            inner = (For(axis.index, index(axis.extent), inner, LoopKind.PARALLEL),)
        for loop in reversed(plan.loops):
            inner = (replace(loop, body=inner),)
        yield from inner


def _sum(terms: list[Scalar] | list[ScalarVar]) -> Scalar:
    first, *rest = terms
    total: Scalar = first
    for one in rest:
        total = total + one
    return total
