"""Ordering as loops: a stable bottom-up merge sort, starting from runs of one element."""

from collections.abc import Callable
from typing import TypeAlias

from openinfer.loops.build import Builder, cast, index, load, pair, select, unary
from openinfer.loops.ir import INDEX, Buffer, Order, Scalar, ScalarVar
from openinfer.loops.rewrite import replaced

Before: TypeAlias = Callable[[Scalar, Scalar], Scalar]
"""Whether the first of two values comes strictly before the second."""


def before(is_ahead: Scalar, first: Scalar, second: Scalar) -> Scalar:
    """Extend an order to NaN: if only the first value is NaN, it comes first."""
    if first.dtype.kind != "float":
        return is_ahead
    return is_ahead | (unary("isnan", first) & ~unary("isnan", second))


def _ascending(one: Scalar, other: Scalar) -> Scalar:
    """Smaller values first, NaN last."""
    return before(one < other, other, one)


def _descending(one: Scalar, other: Scalar) -> Scalar:
    """Larger values first, NaN before all of them."""
    return before(one > other, one, other)


def comes_before(one: Scalar, other: Scalar, *, is_descending: bool) -> Scalar:
    """Whether one of two keys comes strictly before the other."""
    return _descending(one, other) if is_descending else _ascending(one, other)


def ordered(one: Order, builder: Builder) -> None:
    """Sort the keys and their positions together in scratch memory, then write the results of the first ranks."""
    count = one.axis.extent
    keys = builder.buffer(one.ranked.dtype, (2, count), "keys")
    order = builder.buffer(one.origin.dtype, (2, count), "order")
    with builder.loop(count) as i:
        builder.store(keys, (0, i), replaced(one.key, {one.axis.index: i}))
        builder.store(order, (0, i), cast(i, one.origin.dtype))
    side = _merge_sort(builder, keys, order, _descending if one.is_descending else _ascending)
    with builder.loop(one.rank.extent) as i:
        parts: dict[Scalar, Scalar] = {one.rank.index: i}
        parts |= {one.ranked: load(keys, side, i), one.origin: load(order, side, i)}
        for result in one.outs:
            place = tuple(replaced(position, parts) for position in result.index)
            builder.store(result.buffer, place, replaced(result.value, parts))


def _merge_sort(builder: Builder, keys: Buffer, order: Buffer, comes_before: Before) -> ScalarVar:
    """Sort ``keys[0]`` and, with them, ``order[0]``; both are ``[2, n]``. Returns the side that holds the result.

    Sorted runs are merged pairwise, from one side of the buffers to the other.
    """
    builder.note("Sorted by a stable merge sort, from runs of one element upwards.")
    count = index(keys.shape[1])
    width, side = builder.local(1, INDEX, "width"), builder.local(0, INDEX, "side")
    with builder.repeat_while(width < count):
        pair_width = builder.let(width * 2)
        with builder.loop((count + pair_width - 1) // pair_width) as pair_number:
            low = builder.let(pair_number * pair_width, "low")
            middle = builder.let(pair("min", low + width, count), "middle")
            high = builder.let(pair("min", low + pair_width, count), "high")
            _merge(builder, (keys, order), side, (low, middle, high), comes_before)
        builder.assign(side, 1 - side)
        builder.assign(width, pair_width)
    return side


def _merge(
    builder: Builder, buffers: tuple[Buffer, Buffer], side: ScalarVar, ends: tuple[Scalar, ...], comes_before: Before
) -> None:
    """Merge two adjacent runs into the other side; of equal elements, those of the left run come first."""
    keys, order = buffers
    low, middle, high = ends
    left, right = builder.local(low, INDEX, "left"), builder.local(middle, INDEX, "right")
    with builder.loop(high - low) as taken:
        # An exhausted run is not read past its end.
        one, other = builder.let(pair("min", left, middle - 1)), builder.let(pair("min", right, high - 1))
        first, second = builder.let(load(keys, side, one)), builder.let(load(keys, side, other))
        is_right = builder.let((right < high) & ((left >= middle) | comes_before(second, first)))
        place = (1 - side, low + taken)
        builder.store(keys, place, select(is_right, second, first))
        builder.store(order, place, load(order, side, select(is_right, other, one)))
        builder.assign(left, left + select(is_right, index(0), index(1)))
        builder.assign(right, right + select(is_right, index(1), index(0)))
