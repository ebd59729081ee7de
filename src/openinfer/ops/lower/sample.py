"""Sampling from logits, in the f64 and 64-bit integer operations that the op documents, one for one."""

from collections.abc import Sequence
from math import factorial, inf

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, Position, bits, cast, const, flat, index, load, pair, select, unary
from openinfer.loops.ir import INDEX, ORIGIN, Axis, Buffer, LoopKind, Order, Result, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F64

I64, U64 = DTYPES["i64"], DTYPES["u64"]
_UNIT = 32
_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_DEGREE = 11
_EXPONENT_BIAS, _FRACTION_BITS = 1023, 52
"""Of an f64."""


@lowers("sample")
def _sample(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (logits, seed), (out,) = inputs, outputs
    assert logits is not None
    assert seed is not None
    if call.params["temperature"] == 0:
        with builder.loops(out.shape, LoopKind.PARALLEL) as where:
            builder.store(out, where, cast(_first_largest(builder, logits, where), I64))
        return
    builder.note(
        f"Weights are rint(2^{_UNIT} * exp((logit - largest) / temperature)), by a polynomial of degree {_DEGREE}. The "
        "random number of a row, splitmix64 of the seed, picks the index where the running sum of weights exceeds it."
    )
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        sampler = _Sampler(call, builder, logits)
        sampler.weigh(where)
        sampler.keep(where)
        number = _uniform(builder, seed[()], flat(where, out.shape))
        builder.store(out, where, cast(sampler.pick(number), I64))


def _largest(builder: Builder, logits: KernelInput, where: Sequence[Position]) -> ScalarVar:
    """The largest logit of a row; an error where there is nothing to pick."""
    largest = builder.local(-inf, F64)
    with builder.loop(logits.shape[-1]) as i:
        builder.assign(largest, pair("max", largest, cast(logits[(*where, i)], F64)))
    builder.fail(unary("isnan", largest), "a row of logits has a NaN: there is nothing to pick")
    builder.fail(largest.eq(-inf), "a row of logits is -inf everywhere: there is nothing to pick")
    return largest


def _first_largest(builder: Builder, logits: KernelInput, where: Sequence[Position]) -> ScalarVar:
    """The first index of the largest logit of a row."""
    largest, count = _largest(builder, logits, where), index(logits.shape[-1])
    found = builder.local(0, INDEX)
    with builder.loop(count) as i:
        place = builder.let(count - 1 - i)
        with builder.when(cast(logits[(*where, place)], F64).eq(largest)):
            builder.assign(found, place)
    return found


def _uniform(builder: Builder, seed: Scalar, row: Scalar) -> Scalar:
    """The random number of a row, by splitmix64."""
    number = cast(seed, U64) + cast(row + 1, U64) * const(0x9E3779B97F4A7C15, U64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = builder.let(number)
        number = (state ^ pair("shr", state, shift)) * const(factor, U64)
    state = builder.let(number)
    state = builder.let(state ^ pair("shr", state, 31))
    return cast(pair("shr", state, 11), F64) * 2.0**-53


def _weight(builder: Builder, logit: Scalar, largest: Scalar, temperature: float) -> Scalar:
    """``rint(2**32 * exp((logit - largest) / temperature))``."""
    # Where a logit is the largest it may be infinite, and the difference no number.
    scaled = builder.let(select(logit.eq(largest), 0.0, (logit - largest) / temperature * _LOG2_E))
    nearest = builder.let(unary("rint", scaled))
    is_tiny = builder.let(nearest < -_UNIT - 2)
    whole = builder.let(select(is_tiny, 0.0, nearest))
    part = builder.let(select(is_tiny, 0.0, scaled - whole) * _LN_2)
    power: Scalar = const(1 / factorial(_DEGREE), F64)
    for term in range(_DEGREE - 1, -1, -1):
        power = power * part + 1 / factorial(term)
    exponent = cast(whole, I64) + _UNIT + _EXPONENT_BIAS
    scale = bits(pair("shl", exponent, _FRACTION_BITS), F64)
    return select(is_tiny, 0.0, unary("rint", power * scale))


class _Sampler:
    """The weights of one row in scratch memory, and what becomes of them."""

    def __init__(self, call: Call, builder: Builder, logits: KernelInput) -> None:
        self._builder = builder
        self._logits = logits
        self._temperature: float = call.params["temperature"]
        self._top_k: int = call.params["top_k"]
        self._top_p: float = call.params["top_p"]
        self._count = logits.shape[-1]
        self._weights = builder.buffer(F64, (self._count,), "weights")

    def weigh(self, where: Sequence[Position]) -> None:
        """The weight of every logit of a row."""
        builder = self._builder
        largest = _largest(builder, self._logits, where)
        with builder.loop(self._count) as i:
            logit = builder.let(cast(self._logits[(*where, i)], F64))
            builder.store(self._weights, (i,), _weight(builder, logit, largest, self._temperature))

    def keep(self, where: Sequence[Position]) -> None:
        """Set the weights of all but the candidates to 0."""
        if self._top_k <= 0 and self._top_p >= 1:
            return
        builder = self._builder
        places = self._ordered(where)
        if self._top_k > 0:
            with builder.loop(self._count) as i, builder.when(i >= self._top_k):
                builder.store(self._weights, (cast(load(places, i), INDEX),), const(0, F64))
        if self._top_p < 1:
            self._keep_share(places)

    def _ordered(self, where: Sequence[Position]) -> Buffer:
        """The indices of the logits of a row, the largest first; of equal ones the first comes first."""
        builder = self._builder
        places = builder.buffer(I64, (self._count,), "places")
        along, rank = (Axis(builder.fresh("i"), self._count) for _ in range(2))
        key = cast(self._logits[(*where, along.index)], F64)
        out = Result(places, (rank.index,), ScalarVar(ORIGIN, I64))
        builder.add(Order(along, rank, key, (out,), is_descending=True))
        return places

    def _keep_share(self, places: Buffer) -> None:
        """The first ones in order, until the share of the probability is reached."""
        builder = self._builder
        share = builder.let(const(self._top_p, F64) * self._total())
        before = builder.local(0, F64)
        with builder.loop(self._count) as i:
            place = builder.let(cast(load(places, i), INDEX))
            weight = builder.let(load(self._weights, place))
            with builder.when((i > 0) & (before >= share)):
                builder.store(self._weights, (place,), const(0, F64))
            builder.assign(before, before + weight)

    def _total(self) -> ScalarVar:
        total = self._builder.local(0, F64)
        with self._builder.loop(self._count) as i:
            self._builder.assign(total, total + load(self._weights, i))
        return total

    def pick(self, number: Scalar) -> Scalar:
        """The lowest index up to which the weights sum to more than a share of them all: how many sums are not."""
        builder = self._builder
        drawn = builder.let(unary("floor", number * self._total()))
        total, found = builder.local(0, F64), builder.local(0, INDEX)
        with builder.loop(self._count) as i:
            builder.assign(total, total + load(self._weights, i))
            builder.assign(found, found + select(total <= drawn, index(1), index(0)))
        return found
