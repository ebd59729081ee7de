"""Sorting: a group sorts as many elements as fit in shared memory; further launches merge the sorted runs.

A group runs a sorting network, which compares pairs at fixed positions, so that no thread waits for another's result.
Elements are ordered by key, then by original position: the sort is stable.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, cast, index, load, pair, unflat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.expand import plain
from openinfer.loops.expand_order import comes_before
from openinfer.loops.ir import (
    INDEX,
    ORIGIN,
    RANKED,
    Alloc,
    Axis,
    Binary,
    Bind,
    Buffer,
    Compare,
    Const,
    For,
    GroupBarrier,
    If,
    Kernel,
    Let,
    Local,
    LoopKind,
    Order,
    Result,
    Scalar,
    ScalarVar,
    Scan,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
)
from openinfer.loops.rewrite import Statements, map_statements, replaced, variables_of
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.partials import shared_type
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import int_extent, lets_of, nest
from openinfer.synth.targets.simt.wide import FreshNames

_I32, _I64 = DTYPES["i32"], DTYPES["i64"]
_MOST = 2048
"""Elements that a group sorts at most."""


# --- selection --------------------------------------------------------------------------------------------------------


def with_orders(kernel: Kernel, machine: SimtMachine) -> Kernel:
    """A kernel whose orders each fit a group, with longer ones split into runs and merges; others become loops."""
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    names = FreshNames(taken | {var.name for var in variables_of(kernel.body)})
    found: list[Statement] = []
    for one in kernel.body:
        around, order = _lone_order(one)
        if order is None or order.axis.extent < 2 or any(is_symbolic(int_extent(loop.extent)) for loop in around):
            found += _without(one, kernel)
        elif order.axis.extent <= _fitting(order, machine):
            found.append(one)
        else:
            found += _Runs(around, order, _fitting(order, machine), names).statements()
    return replace(kernel, body=tuple(found))


def _lone_order(one: Statement) -> tuple[tuple[For, ...], Order | None]:
    """Parallel loops, and the order that is their entire body, if there is one with static extents."""
    loops = tuple(nest(one))
    inner = loops[-1].body if loops else (one,)
    is_alone = len(inner) == 1 and isinstance(inner[0], Order)
    order = inner[0] if is_alone and isinstance(inner[0], Order) else None
    if order is not None and any(is_symbolic(axis.extent) for axis in order.axes):
        order = None
    return loops, order


def _without(one: Statement, kernel: Kernel) -> Statements:
    if not any(isinstance(each, Order) for each in _inside(one)):
        return (one,)
    return plain(replace(kernel, body=(one,)), frozenset({Scan})).body


def _inside(one: Statement) -> Iterator[Statement]:
    found: list[Statement] = []

    def seen(each: Statement) -> Statements:
        found.append(each)
        return (each,)

    map_statements((one,), seen)
    yield from found


def _fitting(order: Order, machine: SimtMachine) -> int:
    """The number of elements that fit in shared memory, with their original positions."""
    each = shared_type(order.key.dtype).bits // 8 + 4
    found = _MOST
    while found * each > machine.shared_bytes or found > 16 * machine.group:
        found //= 2
    return found


# --- sorting within a group -------------------------------------------------------------------------------------------


def sorted_by_groups(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """An order of few elements: a group sorts for each iteration of the enclosing parallel loops."""
    *before, last = part.body
    loops, order = _lone_order(last)
    if order is None:
        return None
    count: int = 1
    for one in loops:
        count = count * int_extent(one.extent)
    return _Network(order, machine, FreshNames(taken)).formed(tuple(before), loops, count)


class _Network:
    def __init__(self, order: Order, machine: SimtMachine, names: FreshNames) -> None:
        self._order, self._names = order, names
        self._count = order.axis.extent
        self._size = 1 << (self._count - 1).bit_length()
        self._threads = max(min(self._size // 2, machine.group), 1)
        self._most_groups = machine.most_groups
        dtype = shared_type(order.key.dtype)
        self._keys = Buffer(names.name("shared_keys"), dtype, (self._size,), Space.GROUP)
        self._places = Buffer(names.name("shared_places"), _I32, (self._size,), Space.GROUP)
        self._lane = names.var("lane")

    def formed(self, before: Statements, loops: Sequence[For], needed: int) -> Formed:
        names, group, row = self._names, self._names.var("group"), self._names.var("row")
        count = min(needed, self._most_groups)
        lets = lets_of(tuple(one.index for one in loops), unflat(row, tuple(int_extent(one.extent) for one in loops)))
        body: Statements = (*lets, *self._loaded(), *self._stages(), *self._results())
        if needed > count:
            turn = names.var("turn")
            turns = (index(needed) - group + (count - 1)) // count
            body = (For(turn, turns, (Let(row, turn * count + group), *body, GroupBarrier())),)
        else:
            body = (Let(row, group), *body)
        threads = For(self._lane, index(self._threads), (*before, *body), LoopKind.PARALLEL, Bind.THREAD)
        inside = (Alloc(self._keys), Alloc(self._places), threads)
        loop = For(group, index(count), inside, LoopKind.PARALLEL, Bind.GROUP)
        return Formed((loop,), count * self._threads, f"order: {self._size} elements a group")

    def _turns(self, count: int, make: Callable[[ScalarVar], Statements]) -> Iterator[Statement]:
        """Distributes ``count`` positions over the threads, round robin."""
        turn, at = self._names.var("turn"), self._names.var("at")
        turns = (index(count) - self._lane + (self._threads - 1)) // self._threads
        yield For(turn, turns, (Let(at, turn * self._threads + self._lane), *make(at)))

    def _loaded(self) -> Iterator[Statement]:
        """Loads keys and positions; padding after the last element sorts to the end."""
        order, keys = self._order, self._keys

        def one(at: ScalarVar) -> Statements:
            key = cast(replaced(order.key, {order.axis.index: at}), keys.dtype)
            there, behind = Store(keys, (at,), key), Store(keys, (at,), Const(0, keys.dtype))
            place = Store(self._places, (at,), cast(at, _I32))
            if self._size == self._count:
                return there, place
            return If(at < self._count, (there,), (behind,)), place

        yield from self._turns(self._size, one)
        yield GroupBarrier()

    def _stages(self) -> Iterator[Statement]:
        """Sorts runs of two elements, then of four, and so on, each from two runs in opposite orders."""
        names, stage, step = self._names, self._names.var("stage"), self._names.var("step")
        length, reach = names.var("length", _I32), names.var("reach", _I32)
        inner = (
            *self._turns(self._size // 2, partial(self._pair, reach=reach, length=length)),
            SetLocal(reach, Binary("shr", reach, Const(1, _I32))),
            GroupBarrier(),
        )
        body = (
            Local(reach, length),
            SetLocal(length, length + length),
            For(step, stage + 1, inner),
        )
        yield Local(length, Const(1, _I32))
        yield For(stage, index(self._size.bit_length() - 1), body)

    def _pair(self, at: ScalarVar, reach: ScalarVar, length: ScalarVar) -> Statements:
        """Compares two elements, and swaps them if they are out of order for their run."""
        names, keys, places = self._names, self._keys, self._places
        number, first = names.var("number", _I32), names.var("first", _I32)
        low, high = names.var("low"), names.var("high")
        key, other = (names.var("key", keys.dtype) for _ in range(2))
        place, second = (names.var("place", _I32) for _ in range(2))
        lets: list[Statement] = [Let(number, cast(at, _I32))]
        lets += [Let(first, number + number - Binary("and", number, reach - 1))]
        lets += [Let(low, cast(first, INDEX)), Let(high, cast(first + reach, INDEX))]
        lets += [Let(key, load(keys, low)), Let(other, load(keys, high))]
        lets += [Let(place, load(places, low)), Let(second, load(places, high))]
        swapped = self._before((other, second), (key, place))
        is_reversed = Compare("ne", Binary("and", first, length), Const(0, _I32))
        swapped = (swapped & ~is_reversed) | (~swapped & is_reversed)
        stores = (
            Store(keys, (low,), other),
            Store(keys, (high,), key),
            Store(places, (low,), second),
            Store(places, (high,), place),
        )
        return (*lets, If(swapped, stores))

    def _before(self, one: tuple[Scalar, Scalar], other: tuple[Scalar, Scalar]) -> Scalar:
        found = _comes_first(one, other, is_descending=self._order.is_descending)
        if self._size == self._count:
            return found
        limit = Const(self._count, _I32)
        return (one[1] < limit) & ((other[1] >= limit) | found) | (
            (one[1] >= limit) & (other[1] >= limit) & (one[1] < other[1])
        )

    def _results(self) -> Iterator[Statement]:
        order = self._order

        def one(at: ScalarVar) -> Statements:
            parts: dict[Scalar, Scalar] = {order.rank.index: at}
            parts |= {order.ranked: cast(load(self._keys, at), order.key.dtype)}
            parts |= {order.origin: cast(load(self._places, at), _I64)}
            return tuple(_stores(order, parts))

        yield from self._turns(order.rank.extent, one)


def _comes_first(one: tuple[Scalar, Scalar], other: tuple[Scalar, Scalar], *, is_descending: bool) -> Scalar:
    """Whether a key and its position come strictly before another pair."""
    ahead = comes_before(one[0], other[0], is_descending=is_descending)
    behind = comes_before(other[0], one[0], is_descending=is_descending)
    return ahead | (~behind & (one[1] < other[1]))


def _stores(order: Order, parts: dict[Scalar, Scalar]) -> Iterator[Statement]:
    for result in order.outs:
        place = tuple(replaced(position, parts) for position in result.index)
        yield Store(result.buffer, place, replaced(result.value, parts))


# --- merging runs -----------------------------------------------------------------------------------------------------


class _Runs:
    """Runs that groups sort, and launches that merge pairs of them, back and forth between two buffers."""

    def __init__(self, loops: Sequence[For], order: Order, run: int, names: FreshNames) -> None:
        self._loops, self._order, self._run, self._names = loops, order, run, names
        shape = (*(int_extent(one.extent) for one in loops), order.axis.extent)
        self._keys, self._places = (
            [Buffer(names.name(f"{hint}_{side}"), dtype, shape, Space.SCRATCH) for side in range(2)]
            for hint, dtype in (("keys", order.key.dtype), ("places", _I32))
        )

    def statements(self) -> Iterator[Statement]:
        yield from map(Alloc, (*self._keys, *self._places))
        count, side, width = self._order.axis.extent, 0, self._run
        whole = count // width
        block = self._names.var("block")
        yield self._around((For(block, index(whole), (self._sorted(block * width, width),), LoopKind.PARALLEL),))
        if count % width:
            yield self._around((self._sorted(index(whole * width), count % width),))
        while width < count:
            yield self._merged(side, width)
            side, width = 1 - side, 2 * width
        yield self._result(side)

    def _around(self, body: Statements) -> Statement:
        for one in reversed(self._loops):
            body = (replace(one, body=body),)
        return body[0]

    @property
    def _row(self) -> tuple[ScalarVar, ...]:
        return tuple(one.index for one in self._loops)

    def _sorted(self, start: Scalar, count: int) -> Order:
        """One run, sorted on its own."""
        order, names = self._order, self._names
        along, rank = Axis(names.var("along"), count), Axis(names.var("rank"), count)
        key = replaced(order.key, {order.axis.index: start + along.index})
        where = (*self._row, start + rank.index)
        origin = cast(ScalarVar(ORIGIN, _I64) + cast(start, _I64), _I32)
        outs = (
            Result(self._keys[0], where, ScalarVar(RANKED, order.key.dtype)),
            Result(self._places[0], where, origin),
        )
        return Order(along, rank, key, outs, is_descending=order.is_descending)

    def _merged(self, side: int, width: int) -> Statement:
        """Merges pairs of runs: an element moves to its position in its own run plus its rank in the other one."""
        count, builder = self._order.axis.extent, Builder(self._names.taken)
        keys, places = self._keys, self._places
        with builder.loop(count, LoopKind.PARALLEL) as at:
            own = builder.let(load(keys[side], *self._row, at)), builder.let(load(places[side], *self._row, at))
            run = builder.let(at // width)
            is_right = builder.let((run % 2).eq(1))
            first = builder.let(run // 2 * (2 * width))
            # The other run, which is empty past the last element.
            begin = builder.let(pair("min", first + _choice(is_right, 0, width), index(count)))
            low = builder.local(begin, begin.dtype)
            high = builder.local(pair("min", begin + width, index(count)), begin.dtype)
            with builder.repeat_while(low < high):
                middle = builder.let((low + high) // 2)
                other = load(keys[side], *self._row, middle), load(places[side], *self._row, middle)
                is_before = builder.let(_comes_first(other, own, is_descending=self._order.is_descending))
                builder.assign(high, _choice(is_before, high, middle))
                builder.assign(low, _choice(is_before, middle + 1, low))
            target = builder.let(at - _choice(is_right, width, 0) + (low - begin))
            builder.store(keys[1 - side], (*self._row, target), own[0])
            builder.store(places[1 - side], (*self._row, target), own[1])
        self._names.taken |= {var.name for var in variables_of(builder.body)}
        return self._around(builder.body)

    def _result(self, side: int) -> Statement:
        order = self._order
        parts: dict[Scalar, Scalar] = {
            order.ranked: load(self._keys[side], *self._row, order.rank.index),
            order.origin: cast(load(self._places[side], *self._row, order.rank.index), _I64),
        }
        body = tuple(_stores(order, parts))
        return self._around((For(order.rank.index, index(order.rank.extent), body, LoopKind.PARALLEL),))


def _choice(cond: Scalar, then: Scalar | int, otherwise: Scalar | int) -> Scalar:
    return Select(cond, index(then), index(otherwise))
