"""Tensors joined, cut, repeated and given borders."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_
from typing import Any, TypeAlias

import numpy as np

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Coordinates, Position, const, index, pair, select
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.move import fill_from, is_one, is_zero, moving
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.numeric import leaving
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of


def _shifted(where: Sequence[Position], axis: int, distance: int) -> Coordinates:
    """Coordinates moved by a distance along an axis."""
    return (*where[:axis], index(where[axis]) + index(distance), *where[axis + 1 :])


# --- joining ----------------------------------------------------------------------------------------------------------


@lowers("concat")
def _concat(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """One operand after the other: copies without a test of each element's origin."""
    (out,) = outputs
    axis = axis_of(call.params["axis"], len(out.shape))
    start = 0
    for x in inputs:
        assert x is not None
        with builder.loops(x.shape, LoopKind.PARALLEL) as where:
            builder.store(out, _shifted(where, axis, start), x[where])
        start += x.shape[axis]


@lowers("stack")
def _stack(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (out,) = outputs
    axis = axis_of(call.params["axis"], len(out.shape))
    for slot, x in enumerate(inputs):
        assert x is not None
        with builder.loops(x.shape, LoopKind.PARALLEL) as where:
            builder.store(out, (*where[:axis], slot, *where[axis:]), x[where])


# --- cutting ----------------------------------------------------------------------------------------------------------


@lowers("split")
def _split(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,) = inputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    start = 0
    for out in outputs:
        with builder.loops(out.shape, LoopKind.PARALLEL) as where:
            builder.store(out, where, x[_shifted(where, axis, start)])
        start += out.shape[axis]


_FAR = 1 << 62
"""Bounds further out than any tensor reaches are all alike."""


def _first(start: int, step: int, extent: int) -> Scalar:
    """The first index of a slice, as NumPy counts: from the end where it is negative, and not beyond the borders."""
    if not any(is_symbolic(number) for number in (start, step, extent)):
        return index(slice(start, None, step).indices(extent)[0])
    given = index(start if is_symbolic(start) else min(max(start, -_FAR), _FAR))
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    counted = select(given < 0, given + index(extent), given)
    return pair("min", pair("max", counted, index(low)), index(high))


@moving("slice")
def _slice(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    params, rank = call.params, len(x.shape)
    starts = params["starts"]
    axes = range(len(starts)) if params["axes"] is None else params["axes"]
    steps = (1,) * len(starts) if params["steps"] is None else params["steps"]
    place: list[Position] = list(where)
    for given, start, step in zip(axes, starts, steps, strict=True):
        axis = axis_of(given, rank)
        place[axis] = _first(start, step, x.shape[axis]) + where[axis] * index(step)
    return tuple(place)


# --- repeating --------------------------------------------------------------------------------------------------------


@lowers("expand")
def _expand(_call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    fill_from(builder, out, x.at)


@moving("tile")
def _tile(call: Call, x: KernelInput, where: tuple[ScalarVar, ...]) -> Coordinates:
    repeats = call.params["repeats"]
    rank = len(x.shape)
    counts = ((1,) * rank + repeats)[-rank:] if rank else ()
    own = where[len(where) - rank :]
    return tuple(
        at if is_one(count) else index(0) if is_one(extent) else at % index(extent)
        for at, extent, count in zip(own, x.shape, counts, strict=True)
    )


# --- borders ----------------------------------------------------------------------------------------------------------

Border: TypeAlias = Callable[[Scalar, int, tuple[int, int]], Scalar]
"""The index that one from before 0 to behind the extent takes its element from; how far at most is known."""


def _is_short(extent: int, added: tuple[int, int], most: int) -> bool:
    """Whether a border is known to be no longer than the elements it repeats."""
    return not any(map(is_symbolic, (extent, *added))) and max(added) <= most


def _floor_mod(value: Scalar, count: Scalar) -> Scalar:
    """The rest of a division with the sign of the divisor, which is positive."""
    rest = value % count
    return select(rest < 0, rest + count, rest)


def _edge(at: Scalar, extent: int, _added: tuple[int, int]) -> Scalar:
    return pair("min", pair("max", at, index(0)), index(extent - 1))


def _wrap(at: Scalar, extent: int, added: tuple[int, int]) -> Scalar:
    count = index(extent)
    if _is_short(extent, added, extent):
        return select(at < 0, at + count, select(at >= count, at - count, at))
    return _floor_mod(at, count)


def _reflect(at: Scalar, extent: int, added: tuple[int, int]) -> Scalar:
    last = index(extent - 1)
    if _is_short(extent, added, extent - 1):
        return select(at < 0, index(0) - at, select(at > last, last * 2 - at, at))
    period = pair("max", last * 2, index(1)) if is_symbolic(extent) else index(max(2 * (extent - 1), 1))
    place = _floor_mod(at, period)
    return select(place < index(extent), place, period - place)


_BORDERS: dict[str, Border] = {"edge": _edge, "wrap": _wrap, "reflect": _reflect}


def _fill_value(value: float | None, dtype: DType) -> Scalar:
    """The number that a constant border holds, as it is stored."""
    number = np.array(0 if value is None else value)
    stored: Any = leaving(dtype)(number) if dtype.kind == "float" else number.astype(dtype.array)
    return const(float(stored) if dtype.kind == "float" else int(stored), dtype.compute)


@lowers("pad")
def _pad(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    rank, pads = len(x.shape), call.params["pads"]
    both = pads * (2 * rank) if len(pads) == 1 else pads
    added = list(zip(both[:rank], both[rank:], strict=True))
    if call.params["mode"] == "constant":
        _pad_with(builder, x, out, added, _fill_value(call.params["value"], out.dtype))
        return
    border = _BORDERS[call.params["mode"]]
    for extent, sides in zip(x.shape, added, strict=True):
        if is_symbolic(extent) and not all(map(is_zero, sides)):
            builder.fail(index(extent).eq(0), "an axis is empty: there is nothing to pad it with")

    def element(where: tuple[ScalarVar, ...]) -> Scalar:
        place: list[Position] = []
        for at, extent, sides in zip(where, x.shape, added, strict=True):
            source = builder.let(at - index(sides[0]))
            place.append(source if all(map(is_zero, sides)) else builder.let(border(source, extent, sides)))
        return x[tuple(place)]

    fill_from(builder, out, element)


def _pad_with(builder: Builder, x: KernelInput, out: Buffer, added: Sequence[tuple[int, int]], fill: Scalar) -> None:
    """A border of one value. An element is read where there is one, whatever is taken."""
    if any(is_zero(extent) for extent in x.shape):
        fill_from(builder, out, lambda _where: fill)
        return

    def element(where: tuple[ScalarVar, ...]) -> Scalar:
        place: list[Position] = []
        inside: list[Scalar] = []
        for at, extent, sides in zip(where, x.shape, added, strict=True):
            source = builder.let(at - index(sides[0]))
            if not is_zero(sides[0]):
                inside.append(source >= 0)
            if not is_zero(sides[1]):
                inside.append(source < index(extent))
            place.append(source if all(map(is_zero, sides)) else builder.let(_edge(source, extent, sides)))
        value = x[tuple(place)]
        return select(builder.let(reduce(and_, inside)), value, fill) if inside else value

    fill_from(builder, out, element)
