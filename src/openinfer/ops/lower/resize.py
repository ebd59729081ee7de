"""Resizing: where each result lies among the input's elements, and the weights of its neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, cast, const, index, load, pair, select, stored_position, unary
from openinfer.loops.ir import INDEX, Buffer, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.resize import CUBIC, TAPS
from openinfer.ops.types import F64


@dataclass(frozen=True)
class _Axis:
    """One spatial axis: its extents, and the scale where one is given and matters."""

    old: int
    new: int
    coordinates: str
    factor: float | None

    def fraction(self, result: ScalarVar) -> tuple[Scalar, Scalar]:
        """Where a result lies, as a quotient of integers with a divisor above 0, if no scale is given."""
        # Nothing is computed for an extent of 0, but compilers see the division.
        divisor = self.new or 1
        match self.coordinates:
            case "align_corners":
                return result * index(self.old - 1), pair("max", index(self.new - 1), 1)
            case "asymmetric":
                return result * index(self.old), index(divisor)
            case _:
                return (result * index(2) + 1) * index(self.old) - index(divisor), index(2 * divisor)

    def source(self, result: ScalarVar) -> Scalar:
        """Where a result lies, in f64 and rounded as the reference rounds it."""
        if self.factor is None:
            above, below = self.fraction(result)
            return cast(above, F64) / cast(below, F64)
        place, factor = cast(result, F64), const(self.factor, F64)
        return place / factor if self.coordinates == "asymmetric" else (place + 0.5) / factor - 0.5

    def clipped(self, place: Scalar) -> Scalar:
        """An index in place of a whole number in f64; the first and last elements stand for all outside."""
        last = cast(index(self.old - 1), F64)
        return cast(pair("min", pair("max", place, 0.0), last), INDEX)


def _axes(call: Call, x: KernelInput, out: Buffer) -> list[_Axis]:
    spatial, coordinates = x.shape[2:], call.params["coordinates"]
    scale = call.params["scale"]
    factors: Sequence[float | None] = [None] * len(spatial)
    if scale is not None and coordinates != "align_corners":
        factors = tuple(scale) * len(spatial) if len(scale) == 1 else tuple(scale)
    pairs = zip(spatial, out.shape[2:], factors, strict=True)
    return [_Axis(old, new, coordinates, factor) for old, new, factor in pairs]


# --- the nearest neighbour --------------------------------------------------------------------------------------------


def _nearest(axis: _Axis, rounding: str, result: ScalarVar) -> Scalar:
    """The index of the nearest neighbour."""
    if axis.factor is not None:
        at = axis.source(result)
        match rounding:
            case "floor":
                at = unary("floor", at)
            case "ceil":
                at = unary("ceil", at)
            case "round_prefer_ceil":
                at = unary("floor", at + 0.5)
            case _:
                at = unary("ceil", at - 0.5)
        return axis.clipped(at)
    above, below = axis.fraction(result)
    match rounding:
        case "floor":
            pass
        case "ceil":
            above = above + below - 1
        case "round_prefer_ceil":
            above, below = above * index(2) + below, below * index(2)
        case _:
            above, below = above * index(2) + below - 1, below * index(2)
    # Division truncates, which is the floor from 0 on; what is below 0 becomes the first element anyway.
    return pair("min", pair("max", above, 0) // below, axis.old - 1)


def _moved(call: Call, builder: Builder, x: KernelInput, out: Buffer) -> None:
    axes = _axes(call, x, out)
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        places = [_nearest(axis, call.params["nearest"], one) for axis, one in zip(axes, where[2:], strict=True)]
        builder.store(out, where, x[(*where[:2], *places)])


# --- weighted neighbours ----------------------------------------------------------------------------------------------


def _cubic(distance: Scalar) -> Scalar:
    """The weight of a neighbour; products of differences, which are small where the weight is and lose nothing."""
    near = (distance - 1) * (((CUBIC + 2) * distance - 1) * distance - 1)
    far = (distance - 1) * (distance - 2) * (distance - 2) * CUBIC
    return select(distance <= 1, near, far)


def _tables(call: Call, builder: Builder, axis: _Axis, dtype: DType) -> tuple[Buffer, Buffer]:
    """Index and weight of each neighbour of every result along an axis."""
    taps = TAPS[call.params["mode"]]
    places = builder.buffer(stored_position(axis.old), (axis.new, taps), "places")
    weights = builder.buffer(dtype, (axis.new, taps), "weights")
    first = 0 if taps == 2 else -1
    with builder.loop(axis.new, LoopKind.PARALLEL) as result:
        at = builder.let(axis.source(result), "at")
        below = builder.let(unary("floor", at), "below")
        for tap in range(taps):
            neighbour = builder.let(below + float(first + tap), "neighbour")
            distance = builder.let(unary("abs", at - neighbour), "distance")
            weight = 1.0 - distance if taps == 2 else _cubic(distance)
            builder.store(places, (result, tap), cast(axis.clipped(neighbour), places.dtype))
            builder.store(weights, (result, tap), cast(weight, dtype))
    return places, weights


def _weighted(call: Call, builder: Builder, x: KernelInput, out: Buffer) -> None:
    taps, dtype = TAPS[call.params["mode"]], x.dtype.compute
    tables = [_tables(call, builder, axis, dtype) for axis in _axes(call, x, out)]
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:

        def total(axis: int, found: tuple[Scalar, ...]) -> Scalar:
            """The sum over the neighbours along an axis and all after it."""
            if axis == len(tables):
                return x[(*where[:2], *found)]
            places, weights = tables[axis]
            result = where[2 + axis]
            own = builder.local(0, dtype, "total")
            with builder.loop(taps, hint="tap") as tap:
                part = total(axis + 1, (*found, cast(load(places, result, tap), INDEX)))
                builder.assign(own, own + part * load(weights, result, tap))
            return own

        builder.store(out, where, total(0, ()))


@lowers("resize")
def resize(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """The nearest neighbour moves; otherwise tables of neighbours are made first, one for each axis."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    if call.params["mode"] == "nearest":
        _moved(call, builder, x, out)
    else:
        _weighted(call, builder, x, out)
