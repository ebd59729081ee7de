"""Rotary embeddings. An angle is the unevaluated sum of two f64, so that large positions keep their precision."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from decimal import Context, Decimal

from openinfer.loops.build import Builder, Position, broadcast_index, cast, const, index, load, math
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F64

Double = tuple[Scalar, Scalar]
"""A number as the sum of two f64, the second at most half a unit in the last place of the first."""
_SMALL = 2.0**-20
"""Up to here the second part of an angle is taken for its own sine: the bound leaves open more than that loses."""


# --- rotating pairs ---------------------------------------------------------------------------------------------------


def _rotated(
    call: Call,
    builder: Builder,
    x: KernelInput,
    out: Buffer,
    row: tuple[Position, ...],
    count: int,
    angle: Callable[[ScalarVar], tuple[Scalar, Scalar]],
) -> None:
    """One row of the result: ``count`` pairs rotated by angles, given as cosine and sine, and the rest as it is."""
    with builder.loop(count, hint="p") as one:
        if call.params["interleaved"]:
            first, second = one * index(2), one * index(2) + 1
        else:
            first, second = one, one + index(count)
        a, b = builder.let(x[(*row, first)], "a"), builder.let(x[(*row, second)], "b")
        cos, sin = (builder.let(value) for value in angle(one))
        builder.store(out, (*row, first), a * cos - b * sin)
        builder.store(out, (*row, second), a * sin + b * cos)
    rest = x.shape[-1] - 2 * count
    if rest or is_symbolic(rest):
        with builder.loop(rest, hint="e") as one:
            place = (*row, one + index(2 * count))
            builder.store(out, place, x[place])


@lowers("rope_cached")
def rope_cached(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    """A row for each position, with the cosines and sines that broadcast to it."""
    x, cos, sin = inputs
    assert x is not None
    assert cos is not None
    assert sin is not None
    (out,) = outputs
    with builder.loops(x.shape[:-1], LoopKind.PARALLEL) as row:
        _rotated(call, builder, x, out, row, cos.shape[-1], lambda one: (_last(cos, row, one), _last(sin, row, one)))


def _last(table: KernelInput, row: Sequence[Position], column: Position) -> Scalar:
    """The element of a table that broadcasts to a row; its last axis is as long as the pairs are many."""
    return table[(*broadcast_index(row, table.shape[:-1]), column)]


# --- angles -----------------------------------------------------------------------------------------------------------


def _product(a: Double, b: Double) -> Double:
    """The product of two pairs."""
    high = a[0] * b[0]
    low = math("fma", a[0], b[0], -high) + (a[0] * b[1] + a[1] * b[0])
    return high, low


def _settled(builder: Builder, value: Double) -> Double:
    """A pair whose second part is small again."""
    high, low = (builder.let(part) for part in value)
    total = builder.let(high + low, "high")
    return total, builder.let(low - (total - high), "low")


def _ratio(base: float, count: int) -> Double:
    """By what the rate of a pair of elements differs from that of the next: ``base ** (-2 / count)``."""
    if is_symbolic(count):
        exponent = const(-2.0, F64) / cast(index(count), F64)
        return math("pow", const(base, F64), exponent), const(0.0, F64)
    context = Context(prec=50)
    exact = context.power(Decimal(base), context.divide(Decimal(-2), Decimal(max(count, 1))))
    high = float(exact)
    return const(high, F64), const(float(context.subtract(exact, Decimal(high))), F64)


def _rates(call: Call, builder: Builder, count: int) -> tuple[Buffer, Buffer]:
    """The angle of each pair at position 1, for a table of both parts: powers of one ratio."""
    tables = builder.buffer(F64, (count // 2,), "rates"), builder.buffer(F64, (count // 2,), "rests")
    ratio = tuple(builder.let(part, "ratio") for part in _ratio(call.params["base"], count))
    rate = builder.local(call.params["scale"], F64, "rate"), builder.local(0, F64, "rest")
    with builder.loop(count // 2, hint="p") as one:
        for table, part in zip(tables, rate, strict=True):
            builder.store(table, (one,), part)
        following = _settled(builder, _product(rate, (ratio[0], ratio[1])))
        for variable, value in zip(rate, following, strict=True):
            builder.assign(variable, value)
    return tables


def _circle(builder: Builder, position: Scalar, rate: Double) -> tuple[Scalar, Scalar]:
    """The cosine and sine of a position times a rate: those of the sum of both parts of the angle."""
    high, low = (builder.let(part, "angle") for part in _product((position, const(0.0, F64)), rate))
    cos, sin = builder.let(math("cos", high), "cos"), builder.let(math("sin", high), "sin")
    along, across = builder.local(1.0, F64, "along"), builder.local(low, F64, "across")
    # Small next to the first part is not small next to a full circle: the second part of an angle of 2^63 is up to 512.
    with builder.when(low * low > const(_SMALL**2, F64)):
        builder.assign(along, math("cos", low))
        builder.assign(across, math("sin", low))
    return cos * along - sin * across, sin * along + cos * across


@lowers("rope")
def rope(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """For each position its cosines and sines in scratch memory, then all rows that stand there."""
    x, positions = inputs
    assert x is not None
    assert positions is not None
    (out,) = outputs
    given = call.params["rotary_dim"]
    count = x.shape[-1] if given is None else given
    builder.note("Angles are sums of two f64, so that large positions lose no bits of their angle.")
    rates, rests = _rates(call, builder, count)
    missing = len(x.shape) - 1 - len(positions.shape)
    own = [missing + axis for axis, extent in enumerate(positions.shape) if extent != 1 or is_symbolic(extent)]
    shared = [axis for axis in range(len(x.shape) - 1) if axis not in own]
    with ExitStack() as nest:
        outer = nest.enter_context(builder.loops([x.shape[axis] for axis in own], LoopKind.PARALLEL))
        tables = tuple(builder.buffer(x.dtype.compute, (count // 2,), name) for name in ("cosines", "sines"))
        at: dict[int, Position] = dict(zip(own, outer, strict=True))
        place = tuple(at.get(missing + axis, 0) for axis in range(len(positions.shape)))
        position = builder.let(cast(positions[place], F64), "position")
        with builder.loop(count // 2, hint="p") as one:
            circle = _circle(builder, position, (load(rates, one), load(rests, one)))
            for table, value in zip(tables, circle, strict=True):
                builder.store(table, (one,), cast(value, table.dtype))
        inner = nest.enter_context(builder.loops([x.shape[axis] for axis in shared], LoopKind.PARALLEL))
        at |= dict(zip(shared, inner, strict=True))
        row = tuple(at[axis] for axis in range(len(x.shape) - 1))
        _rotated(call, builder, x, out, row, count // 2, lambda one: (load(tables[0], one), load(tables[1], one)))
