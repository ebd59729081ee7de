"""Attention with many queries: a group for each block of queries, which traverses the keys one block at a time.

Queries, then keys, then values are in shared memory, and so are the scores of a block, which become weights in place.
A thread computes some rows and columns of the scores and of the means. As in ``attention``, a query has a running
maximum of its scores and a running sum of its weights, and its running result is always a mean, so that sums of large
values stay finite. If a query does not see all keys of a block, hidden keys are skipped one by one: multiplying by 0
would not cancel a value that is not finite.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, prod

from openinfer.dtypes import DType
from openinfer.loops.build import cast, const, index, math, pair, select, unflat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.expand_attend import HIDDEN
from openinfer.loops.ir import (
    Alloc,
    Attend,
    Axis,
    Bind,
    Buffer,
    Combine,
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
    WideLoad,
)
from openinfer.loops.rewrite import Statements, replaced, straightened, variables_of
from openinfer.synth.targets.simt.attention_plan import access_width, seen_blocks
from openinfer.synth.targets.simt.launches import Launch, Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.products import over_terms, with_fused_sums
from openinfer.synth.targets.simt.threads import int_extent, launch_kernel, lets_of, nest
from openinfer.synth.targets.simt.wide import FreshNames

_Place = Callable[[Scalar, Scalar], tuple[Buffer, tuple[Scalar, ...]]]
_Join = Callable[[Scalar, Scalar], Scalar]
_ROWS = (4, 2, 1)
"""Rows of scores per thread: the most that leave enough groups for all units."""
_COLUMNS = (4, 2)
"""Columns of scores per thread: the most that shared memory allows."""
_ACCESS = 4
"""Elements that one access loads from shared memory."""


@dataclass(frozen=True)
class _KeyBlocks:
    """An attention, and the sizes of its blocks of queries and keys."""

    one: Attend
    loops: tuple[For, ...]
    machine: SimtMachine
    rows: int
    """Rows of scores per thread."""
    columns: int

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(int_extent(one.extent) for one in self.loops)

    @property
    def across(self) -> int:
        """Columns of the grid of threads of a group."""
        bits = self.machine.group.bit_length() - 1
        return 1 << (bits - bits // 2)

    @property
    def down(self) -> int:
        return self.machine.group // self.across

    @property
    def queries(self) -> int:
        """Queries per block."""
        return self.down * self.rows

    @property
    def keys(self) -> int:
        return self.across * self.columns

    @property
    def team(self) -> int:
        """Threads per query that turn its scores into weights."""
        return self.machine.group // self.queries

    @property
    def blocks(self) -> int:
        """Blocks of queries per head."""
        return -(-self.one.row.extent // self.queries)

    @property
    def groups(self) -> int:
        return prod(self.extents) * self.one.head.extent * self.blocks

    @property
    def shared_elements(self) -> int:
        """Elements of keys or values, which use the same memory in turn."""
        return max(self.one.depth.extent * _pitch(self.keys), self.keys * _aligned(self.one.column.extent))

    @property
    def fits(self) -> bool:
        queries, keys = self.queries, self.keys
        count = self.one.depth.extent * _pitch(queries) + self.shared_elements + queries * (_pitch(keys) + 2)
        is_team = 1 <= self.team <= min(self.machine.subgroup, keys)
        return is_team and count * self.one.accumulator.bits // 8 <= self.machine.shared_bytes


def _aligned(count: int) -> int:
    """The elements of a line in shared memory whose accesses are aligned."""
    return -(-count // _ACCESS) * _ACCESS


def _pitch(count: int) -> int:
    """The same for lines of which threads access the same column: these are in different banks."""
    return _aligned(count) + _ACCESS


def query_blocks(kernel: Kernel, machine: SimtMachine) -> Launches | None:
    """A kernel that is attention with many queries, as one launch; None if it is something else."""
    plan = None if kernel.can_fail else _plan(straightened(kernel.body), machine)
    if plan is None or plan.groups > machine.most_groups:
        return None
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    taken |= {var.name for var in variables_of(kernel.body)}
    body = with_fused_sums(straightened((_QueryBlocks(plan, FreshNames(taken)).loop(),)), machine)
    given = {one.name: one for one in (*kernel.inputs, *kernel.outputs)}
    form = f"attention: blocks of {plan.queries} queries and {plan.keys} keys"
    launch = Launch(launch_kernel(kernel, body, given), plan.groups * machine.group, form=form)
    return Launches(kernel, (launch,), ())


def _plan(body: Statements, machine: SimtMachine) -> _KeyBlocks | None:
    loops = tuple(nest(body[0])) if len(body) == 1 else ()
    inner = loops[-1].body if loops else body
    if not machine.subgroup or len(inner) != 1 or not isinstance(inner[0], Attend):
        return None
    one = inner[0]
    known = (*(int_extent(each.extent) for each in loops), *(each.extent for each in _static(one)))
    if any(map(is_symbolic, known)) or 0 in known or one.row.extent < machine.least_block:
        return None
    for columns in _COLUMNS:
        found = [_KeyBlocks(one, loops, machine, rows, columns) for rows in _ROWS]
        fitting = [each for each in found if each.fits]
        if fitting:
            return next((each for each in fitting if each.groups >= machine.units), fitting[-1])
    return None


def _static(one: Attend) -> tuple[Axis, ...]:
    return one.head, one.row, one.depth, one.column


class _QueryBlocks:
    def __init__(self, plan: _KeyBlocks, names: FreshNames) -> None:
        self._plan, self._one, self._names = plan, plan.one, names
        self._kind: DType = plan.one.accumulator
        self._lane, self._ty, self._tx = (names.var(name) for name in ("lane", "down", "across"))
        self._head, self._top, self._start = (names.var(name) for name in ("head", "top", "start"))
        one, queries = plan.one, plan.queries
        self._queries = self._buffer("queries", (one.depth.extent, _pitch(queries)))
        self._others = self._buffer("others", (plan.shared_elements,))
        self._scores = self._buffer("scores", (queries, _pitch(plan.keys)))
        self._carried, self._hides = (self._buffer(name, (queries,)) for name in ("carried", "hides"))

    def _buffer(self, name: str, shape: tuple[int, ...]) -> Buffer:
        return Buffer(self._names.name(name), self._kind, shape, Space.GROUP)

    def _var(self, name: str) -> ScalarVar:
        return self._names.var(name, self._kind)

    @property
    def _zero(self) -> Scalar:
        return const(0, self._kind)

    def loop(self) -> Statement:
        """The loop over the groups of the launch."""
        plan, names, one = self._plan, self._names, self._one
        group, block = names.var("group"), names.var("block")
        *heads, head, own = unflat(group, (*plan.extents, one.head.extent, plan.blocks))
        means = [[self._var("mean") for _ in range(self._width)] for _ in range(plan.rows)]
        largest, total = self._var("largest"), self._var("total")
        first, count = seen_blocks(one, self._top, plan.queries, plan.keys)
        turn = (
            Let(self._start, (first + block) * plan.keys),
            *self._loaded(one.keys, one.key, one.depth, plan.keys, self._key_place),
            GroupBarrier(),
            *self._scored(),
            GroupBarrier(),
            *self._loaded(one.values, one.key, one.column, plan.keys, self._value_place),
            *self._weighed(largest, total),
            GroupBarrier(),
            *self._mixed(means),
            GroupBarrier(),
        )
        body = (
            *lets_of(tuple(each.index for each in plan.loops), tuple(heads)),
            Let(self._head, head),
            Let(self._top, own * plan.queries),
            Let(self._ty, self._lane // plan.across),
            Let(self._tx, self._lane % plan.across),
            *self._loaded(one.queries, one.row, one.depth, plan.queries, self._query_place),
            Local(largest, const(-inf, self._kind)),
            Local(total, self._zero),
            *(Local(mean, self._zero) for line in means for mean in line),
            For(block, count, turn),
            *self._stored(means),
        )
        threads = For(self._lane, index(plan.machine.group), body, LoopKind.PARALLEL, Bind.THREAD)
        memory = (self._queries, self._others, self._scores, self._carried, self._hides)
        return For(group, index(plan.groups), (*map(Alloc, memory), threads), LoopKind.PARALLEL, Bind.GROUP)

    # --- shared memory ------------------------------------------------------------------------------------------------

    def _query_place(self, row: Scalar, depth: Scalar) -> tuple[Buffer, tuple[Scalar, ...]]:
        return self._queries, (depth, row)

    def _key_place(self, key: Scalar, depth: Scalar) -> tuple[Buffer, tuple[Scalar, ...]]:
        return self._others, (depth * _pitch(self._plan.keys) + key,)

    def _value_place(self, key: Scalar, column: Scalar) -> tuple[Buffer, tuple[Scalar, ...]]:
        return self._others, (key * _aligned(self._one.column.extent) + column,)

    def _loaded(self, element: Element, line: Axis, along: Axis, count: int, place: _Place) -> Iterator[Statement]:
        """Loads the lines of a block, zeros past the last line; adjacent threads load contiguous elements."""
        names, machine = self._names, self._plan.machine
        width = 1 if element.value is not None else access_width(element.scalar, along.index, along.extent, machine)
        pieces = along.extent // width
        turn, at, own, first = (names.var(name) for name in ("turn", "at", "line", "first"))
        start = self._top if line is self._one.row else self._start
        where = names.var("where")
        known: dict[Scalar, Scalar] = {
            self._one.head.index: self._head,
            line.index: where,
            along.index: first,
        }
        loaded = tuple(names.var("value", element.scalar.dtype) for _ in range(width))
        if width == 1:
            load: Statement = Let(loaded[0], replaced(element.scalar, known))
        else:
            load = WideLoad(loaded, element.buffer, tuple(replaced(part, known) for part in element.index))
        is_there = start + own < index(line.extent)
        stores = [
            Store(
                *place(own, first + number if number else first), select(is_there, cast(value, self._kind), self._zero)
            )
            for number, value in enumerate(loaded)
        ]
        body = (
            Let(own, at // pieces),
            Let(first, at % pieces * width),
            Let(where, pair("min", start + own, index(line.extent) - 1)),
            load,
            *stores,
        )
        total, threads = count * pieces, machine.group
        inside = body if total % threads == 0 else (If(at < total, body),)
        yield For(turn, index(-(-total // threads)), (Let(at, turn * threads + self._lane), *inside))

    # --- scores -------------------------------------------------------------------------------------------------------

    def _row(self, number: int) -> Scalar:
        return self._ty * self._plan.rows + number

    def _column(self, number: int, width: int) -> Scalar:
        return self._tx * width + number

    def _scored(self) -> Iterator[Statement]:
        one, plan, names = self._one, self._plan, self._names
        sums = [[self._var("sum") for _ in range(plan.columns)] for _ in range(plan.rows)]
        yield from (Local(acc, self._zero) for line in sums for acc in line)
        depth = names.var("depth")
        rows, columns = [self._var("query") for _ in range(plan.rows)], [self._var("key") for _ in range(plan.columns)]
        body: list[Statement] = []
        body += [Let(var, Load(*self._query_place(self._row(at), depth))) for at, var in enumerate(rows)]
        body += [
            Let(var, Load(*self._key_place(self._column(at, plan.columns), depth))) for at, var in enumerate(columns)
        ]
        for row, line in zip(rows, sums, strict=True):
            body += [SetLocal(acc, acc + row * column) for column, acc in zip(columns, line, strict=True)]
        yield over_terms(depth, one.depth.extent, tuple(body), plan.machine, names)
        for place, line in enumerate(sums):
            row = names.var("row")
            yield Let(row, self._top + self._row(place))
            for other, acc in enumerate(line):
                yield from self._score(row, acc, (self._row(place), self._column(other, plan.columns)))

    def _score(self, row: ScalarVar, acc: ScalarVar, where: tuple[Scalar, Scalar]) -> Iterator[Statement]:
        """Stores a score: -inf past the last key, and 0 past the last query."""
        one = self._one
        key = self._names.var("key")
        score = one.score
        if one.until is not None:
            score = select(one.key.index <= one.until, score, -inf)
        if one.after is not None:
            score = select(one.after < one.key.index, score, -inf)
        parts: dict[Scalar, Scalar] = {one.head.index: self._head, one.row.index: row, one.key.index: key}
        parts[one.total] = acc
        stores = [
            (Store(self._scores, where, value),)
            for value in (replaced(score, parts), self._zero, const(-inf, self._kind))
        ]
        inside: Statements = stores[0]
        if one.row.extent % self._plan.queries:
            inside = (If(row < one.row.extent, stores[0], stores[1]),)
        yield Let(key, self._start + where[1])
        yield If(key < index(one.key.extent), inside, stores[2])

    def _weighed(self, largest: ScalarVar, total: ScalarVar) -> Iterator[Statement]:
        """Replaces scores by shares of the running sum of weights; -1 for keys that a query does not see."""
        plan, names = self._plan, self._names
        query, member = names.var("query"), names.var("member")
        yield Let(query, self._lane // plan.team)
        yield Let(member, self._lane % plan.team)
        columns = [member + number * plan.team if number else member for number in range(plan.keys // plan.team)]
        scores, weights = [self._var("score") for _ in columns], [self._var("weight") for _ in columns]
        before, shift, kept, share = (self._var(name) for name in ("before", "shift", "kept", "share"))
        yield Let(before, largest)
        for score, column in zip(scores, columns, strict=True):
            yield Let(score, Load(self._scores, (query, column)))
            yield SetLocal(largest, select(score > largest, score, largest))
        yield from self._joined((largest,), lambda one, other: select(other > one, other, one))
        yield Let(shift, select(largest.eq(-inf), 0.0, largest))
        own, hidden = self._var("own"), self._var("hidden")
        yield from (Local(own, self._zero), Local(hidden, self._zero))
        for score, weight, column in zip(scores, weights, columns, strict=True):
            is_hidden = score.eq(-inf) & (self._start + column < index(self._one.key.extent))
            yield Let(weight, math("exp", score - shift))
            yield SetLocal(own, own + weight)
            yield SetLocal(hidden, select(is_hidden, 1.0, hidden))
        yield from self._joined((own, hidden), lambda one, other: one + other)
        yield Let(kept, total * math("exp", before - shift))
        yield SetLocal(total, kept + own)
        yield Let(share, select(total.eq(0.0), 0.0, const(1, self._kind) / total))
        for score, weight, column in zip(scores, weights, columns, strict=True):
            is_hidden = score.eq(-inf) & (self._start + column < index(self._one.key.extent))
            yield Store(self._scores, (query, column), select(is_hidden, HIDDEN, weight * share))
        stores = (Store(self._carried, (query,), kept * share), Store(self._hides, (query,), hidden))
        yield If(member.eq(0), stores)

    def _joined(self, variables: tuple[ScalarVar, ...], join: _Join) -> Iterator[Statement]:
        """Combines variables across the threads of a query."""
        if self._plan.team > 1:
            others = tuple(self._var("other") for _ in variables)
            values = tuple(join(one, other) for one, other in zip(variables, others, strict=True))
            yield Combine(variables, others, values, self._plan.team)

    # --- means --------------------------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        """Columns of the means per thread."""
        return -(-self._one.column.extent // self._plan.across)

    def _mixed(self, means: list[list[ScalarVar]]) -> Iterator[Statement]:
        """Updates the means with a block; a faster path if a thread's queries see all of its keys."""
        plan = self._plan
        parts = [[self._var("part") for _ in line] for line in means]
        yield from (Local(part, self._zero) for line in parts for part in line)
        hides: Scalar = self._zero
        for number in range(plan.rows):
            hides = hides + Load(self._hides, (self._row(number),))
        ways = [self._added(parts, is_seen=is_seen) for is_seen in (False, True)]
        yield If(hides > 0.0, ways[0], ways[1])
        for number, (line, added) in enumerate(zip(means, parts, strict=True)):
            carried = self._var("carried")
            yield Let(carried, Load(self._carried, (self._row(number),)))
            yield from (SetLocal(mean, mean * carried + part) for mean, part in zip(line, added, strict=True))

    def _added(self, parts: list[list[ScalarVar]], *, is_seen: bool) -> Statements:
        plan, names = self._plan, self._names
        key = names.var("key")
        weights, values = [self._var("weight") for _ in parts], [self._var("value") for _ in range(self._width)]
        body: list[Statement] = []
        for at, weight in enumerate(weights):
            body.append(Let(weight, Load(self._scores, (self._row(at), key))))
        for at, value in enumerate(values):
            # Past the last column, a thread repeats it; the result is unused.
            last = index(self._one.column.extent - 1)
            column = self._column(at, self._width)
            is_inside = self._width * plan.across == self._one.column.extent
            where = column if is_inside else pair("min", column, last)
            body.append(Let(value, Load(*self._value_place(key, where))))
        for weight, line in zip(weights, parts, strict=True):
            sums = tuple(SetLocal(part, part + weight * value) for part, value in zip(line, values, strict=True))
            body += sums if is_seen else [If(~(weight < 0.0), sums)]
        return (over_terms(key, plan.keys, tuple(body), plan.machine, names),)

    def _stored(self, means: list[list[ScalarVar]]) -> Iterator[Statement]:
        one, plan, names = self._one, self._plan, self._names
        for number, line in enumerate(means):
            row = names.var("row")
            stores: list[Statement] = []
            for at, mean in enumerate(line):
                column = names.var("column")
                parts: dict[Scalar, Scalar] = {
                    one.head.index: self._head,
                    one.row.index: row,
                    one.column.index: column,
                    one.total: mean,
                }
                place = tuple(replaced(part, parts) for part in one.out.index)
                store: Statement = Store(one.out.buffer, place, replaced(one.out.value, parts))
                is_inside = self._width * plan.across == one.column.extent
                stores += [
                    Let(column, self._column(at, self._width)),
                    store if is_inside else If(column < one.column.extent, (store,)),
                ]
            yield Let(row, self._top + self._row(number))
            yield from stores if one.row.extent % plan.queries == 0 else (If(row < one.row.extent, tuple(stores)),)
