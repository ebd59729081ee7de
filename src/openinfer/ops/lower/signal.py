"""Fourier transforms: row by row, in f64, from one side of scratch memory of the row to the other.

A transform of ``n = r * m`` points is ``r`` transforms of ``m`` points each, put together; stages go on like that for
every prime factor. Powers of two take steps of four.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import cos, inf, nan, pi, sin
from typing import TypeAlias

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Position, cast, const, index, load, math, pair, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import INDEX, Buffer, LoopKind, Scalar, ScalarVar, Unary
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.lower.reduce import extents_of, placed
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of
from openinfer.ops.signal import WINDOWS
from openinfer.ops.types import F64

Complex: TypeAlias = tuple[Scalar, Scalar]
FORWARD, INVERSE = -1, 1
"""The sign of the exponent."""
UNROLLED = 7
"""The largest factor whose transform is written out."""
LARGE, TAMED = 2.0**900, 2.0**-100
"""A row of f64 with a number above the one is scaled by the other, so that sums of many do not overflow."""


def _factors(count: int) -> list[int]:
    """Factors of a number of points: four as often as it goes, then primes."""
    found: list[int] = []
    for factor in (4, 2):
        while count % factor == 0:
            found.append(factor)
            count //= factor
    factor = 3
    while count > 1:
        if factor * factor > count:
            factor = count
        while count % factor == 0:
            found.append(factor)
            count //= factor
        factor += 2
    return found


class Fourier:
    """The transform of rows of ``count`` points, of values of a dtype."""

    def __init__(self, builder: Builder, dtype: DType, count: int, direction: int) -> None:
        self._builder = builder
        self._dtype = dtype
        self._count = count
        self._direction = direction
        radix = "the least prime factors first" if is_symbolic(count) else " x ".join(map(str, _factors(count))) or "1"
        builder.note(f"By a mixed-radix FFT in f64, out of place; factors: {radix}.")
        self.roots = builder.buffer(F64, (count, 2), "roots")
        """``exp(direction * 2i * pi * j / count)`` for every ``j``."""
        self._fill_roots()

    def _fill_roots(self) -> None:
        """Sines and cosines of angles up to an eighth of the circle; the others are mirrored ones."""
        builder, count = self._builder, index(self._count)
        with builder.loop(count, LoopKind.PARALLEL) as j:
            quadrant = builder.let(j * 4 // count)
            rest = builder.let(j * 4 - quadrant * count)
            beyond = builder.let(rest * 2 > count)
            part = cast(select(beyond, count - rest, rest), F64)
            angle = builder.let(part * (pi / 2) / cast(count, F64))
            sine, cosine = builder.let(math("sin", angle)), builder.let(math("cos", angle))
            # A quarter of the circle further, the one takes the place of the other.
            swapped = builder.let(beyond ^ (quadrant % 2).eq(1))
            across, up = builder.let(select(swapped, sine, cosine)), builder.let(select(swapped, cosine, sine))
            is_left = quadrant.eq(1) | quadrant.eq(2)
            is_down = quadrant >= 2 if self._direction > 0 else quadrant < 2
            builder.store(self.roots, (j, 0), select(is_left, -across, across))
            builder.store(self.roots, (j, 1), select(is_down, -up, up))

    # --- a row ----------------------------------------------------------------------------------------------------

    def start(self, *, clear: bool) -> None:
        """Begin a row, in memory of its own; all its points are zero where asked for."""
        self._work = self._builder.buffer(F64, (2, self._count, 2), "work")
        self._largest = self._builder.local(0, F64, "largest")
        if clear:
            with self._builder.loop(self._count) as j:
                self.put_unseen(j, const(0, F64), const(0, F64))

    def put(self, at: Position, real: Scalar, imaginary: Scalar | None = None) -> None:
        """A point, which makes the results NaN where it is not finite."""
        builder = self._builder
        own, other = builder.let(cast(real, F64)), None
        builder.assign(self._largest, pair("max", self._largest, unary("abs", own)))
        if imaginary is not None:
            other = builder.let(cast(imaginary, F64))
            builder.assign(self._largest, pair("max", self._largest, unary("abs", other)))
        self.put_unseen(at, own, const(0, F64) if other is None else other)

    def put_unseen(self, at: Position, real: Scalar, imaginary: Scalar) -> None:
        """A point that is known to be finite, or has been put elsewhere too."""
        self._builder.store(self._work, (0, at, 0), real)
        self._builder.store(self._work, (0, at, 1), imaginary)

    def run(self) -> None:
        """Transform the points of the row."""
        builder = self._builder
        self._is_finite = builder.let(self._largest < inf)
        self._factor = None
        if self._dtype is F64:
            self._factor = builder.local(1, F64, "factor")
            with builder.when((self._largest > LARGE) & self._is_finite):
                builder.assign(self._factor, 1 / TAMED)
                with builder.loop(self._count) as j:
                    for part in (0, 1):
                        builder.store(self._work, (0, j, part), load(self._work, 0, j, part) * TAMED)
        self._side = self._searched_stages() if is_symbolic(self._count) else self._known_stages()

    def result(self, at: Position, part: int) -> Scalar:
        """A part of a point of the result, in the compute type of the dtype."""
        value: Scalar = load(self._work, self._side, at, part)
        if self._direction == INVERSE:
            value = value / cast(index(self._count), F64)
        if self._factor is not None:
            value = value * self._factor
        compute = self._dtype.compute
        return select(self._is_finite, cast(value, compute), const(nan, compute))

    # --- stages ---------------------------------------------------------------------------------------------------

    def _known_stages(self) -> Scalar:
        """One stage for each factor; on which side of the buffer the result is."""
        done, side = 1, 0
        for factor in _factors(self._count):
            rest = self._count // (done * factor)
            if factor <= UNROLLED:
                self._unrolled(index(side), done, factor, rest)
            else:
                self._stage(index(side), index(done), index(factor), index(rest))
            done, side = done * factor, 1 - side
        return index(side)

    def _searched_stages(self) -> Scalar:
        """The same where the number of points is known when the code runs: the least factor first."""
        builder = self._builder
        left, done, side = builder.local(index(self._count), INDEX), builder.local(1, INDEX), builder.local(0, INDEX)
        with builder.repeat_while(left > 1):
            factor = builder.local(2, INDEX, "factor")
            with builder.repeat_while((left % factor).ne(0)):
                builder.assign(factor, factor + 1)
            rest = builder.let(left // factor)
            self._stage(side, done, factor, rest)
            builder.assign(left, rest)
            builder.assign(done, done * factor)
            builder.assign(side, 1 - side)
        return side

    def _point(self, side: Position, at: Position) -> Complex:
        builder = self._builder
        return builder.let(load(self._work, side, at, 0)), builder.let(load(self._work, side, at, 1))

    def _root(self, at: Scalar) -> Complex:
        builder = self._builder
        return builder.let(load(self.roots, at, 0)), builder.let(load(self.roots, at, 1))

    def _stage(self, side: Scalar, done: Scalar, factor: Scalar, rest: Scalar) -> None:
        """From ``factor * rest`` transforms of ``done`` points to ``rest`` of ``factor * done``.

        ``y[a][k] = sum over p of x[a + rest * p][k mod done] * root(p * k * rest)``
        """
        builder = self._builder
        longer = builder.let(done * factor)
        with builder.loop(rest) as a, builder.loop(longer) as k:
            step, column = builder.let(k * rest), builder.let(k % done)
            root = builder.local(0, INDEX, "root")
            real, imaginary = builder.local(0, F64), builder.local(0, F64)
            with builder.loop(factor) as p:
                x, y = self._times(self._point(side, (a + rest * p) * done + column), self._root(root))
                builder.assign(real, real + x)
                builder.assign(imaginary, imaginary + y)
                further = builder.let(root + step)
                builder.assign(root, select(further >= index(self._count), further - index(self._count), further))
            where = builder.let(a * longer + k)
            builder.store(self._work, (1 - side, where, 0), real)
            builder.store(self._work, (1 - side, where, 1), imaginary)

    def _unrolled(self, side: Scalar, done: int, factor: int, rest: int) -> None:
        """The same with the sum written out for each of the ``factor`` values of ``k`` that share a column."""
        builder = self._builder
        with builder.loop(rest) as a, builder.loop(done) as k:
            points = []
            for p in range(factor):
                point = self._point(side, builder.let((a + rest * p) * done + k))
                is_rotated = p > 0 and done > 1
                points.append(self._times(point, self._root(k * (p * rest))) if is_rotated else point)
            for q, values in enumerate(self._short(points)):
                where = builder.let(a * (done * factor) + (k + q * done))
                for part, value in enumerate(values):
                    builder.store(self._work, (1 - side, where, part), value)

    def _times(self, one: Complex, other: Complex) -> Complex:
        builder = self._builder
        (a, b), (c, d) = one, other
        return builder.let(a * c - b * d), builder.let(a * d + b * c)

    def _plus(self, one: Complex, other: Complex) -> Complex:
        real, imaginary = map(_sum, one, other)
        return self._builder.let(real), self._builder.let(imaginary)

    def _minus(self, one: Complex, other: Complex) -> Complex:
        real, imaginary = map(_difference, one, other)
        return self._builder.let(real), self._builder.let(imaginary)

    def _quarter(self, one: Complex) -> Complex:
        """Rotated by a quarter of the circle."""
        return (one[1], -one[0]) if self._direction == FORWARD else (-one[1], one[0])

    def _short(self, points: Sequence[Complex]) -> list[Complex]:
        """The transform of a few points."""
        if len(points) == 2:
            return [self._plus(*points), self._minus(*points)]
        if len(points) == 4:
            even, even_rest = self._plus(points[0], points[2]), self._minus(points[0], points[2])
            odd, odd_rest = self._plus(points[1], points[3]), self._quarter(self._minus(points[1], points[3]))
            return [
                *(self._plus(even, odd), self._plus(even_rest, odd_rest)),
                *(self._minus(even, odd), self._minus(even_rest, odd_rest)),
            ]
        return self._odd(points)

    def _odd(self, points: Sequence[Complex]) -> list[Complex]:
        """An odd number of points: those at the same distance from the first have conjugate roots."""
        count = len(points)
        half = range(1, count // 2 + 1)
        sums = [self._plus(points[p], points[count - p]) for p in half]
        differences = [self._quarter(self._minus(points[p], points[count - p])) for p in half]
        results = [points[0]] * count
        results[0] = reduce(self._plus, sums, points[0])
        for q in half:
            middle, side = points[0], None
            for p in half:
                angle = 2 * pi * (p * q % count) / count
                middle = self._plus(middle, _scaled(sums[p - 1], cos(angle)))
                term = _scaled(differences[p - 1], sin(angle))
                side = term if side is None else self._plus(side, term)
            assert side is not None
            results[q], results[count - q] = self._plus(middle, side), self._minus(middle, side)
        return results


def _sum(one: Scalar, other: Scalar) -> Scalar:
    """The sum; that with a negative is the difference, to the bit."""
    return one - other.operand if isinstance(other, Unary) and other.op == "neg" else one + other


def _difference(one: Scalar, other: Scalar) -> Scalar:
    """The difference; that of a negative is the sum, to the bit."""
    return one + other.operand if isinstance(other, Unary) and other.op == "neg" else one - other


def _scaled(one: Complex, factor: float) -> Complex:
    return one[0] * factor, one[1] * factor


# --- transforms of rows -----------------------------------------------------------------------------------------------


def _least(one: int, other: int) -> Scalar:
    """The smaller of two extents."""
    if is_symbolic(one) or is_symbolic(other):
        return pair("min", index(one), index(other))
    return index(min(one, other))


def _is_enough(extent: int, count: int) -> bool:
    """Whether an extent is known to be a number."""
    return extent is count or (extent >= count and not is_symbolic(extent) and not is_symbolic(count))


def _complex(call: Call, builder: Builder, x: KernelInput, out: Buffer, direction: int) -> None:
    axis = axis_of(call.params["axis"], len(x.shape) - 1)
    count = out.shape[axis]
    _, kept = extents_of(out.shape[:-1], (axis,))
    transform = Fourier(builder, x.dtype, count, direction)
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        transform.start(clear=not _is_enough(x.shape[axis], count))
        with builder.loop(_least(x.shape[axis], count)) as j:
            place = placed((axis,), (j,), where)
            transform.put(j, x[(*place, 0)], x[(*place, 1)])
        transform.run()
        with builder.loop(count) as k:
            for part in (0, 1):
                builder.store(out, (*placed((axis,), (k,), where), part), transform.result(k, part))


@lowers("fft")
def _fft(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,) = inputs
    assert x is not None
    _complex(call, builder, x, outputs[0], FORWARD)


@lowers("ifft")
def _ifft(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,) = inputs
    assert x is not None
    _complex(call, builder, x, outputs[0], INVERSE)


def _half(
    builder: Builder,
    transform: Fourier,
    out: Buffer,
    where: Sequence[Position],
    count: int,
    point: Callable[[ScalarVar], Scalar],
) -> None:
    """The first half of the transform of real points, one row."""
    transform.start(clear=False)
    with builder.loop(count) as j:
        transform.put(j, point(j))
    transform.run()
    with builder.loop(out.shape[-2]) as k:
        for part in (0, 1):
            builder.store(out, (*where, k, part), transform.result(k, part))


@lowers("rfft")
def _rfft(_call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    count = x.shape[-1]
    transform = Fourier(builder, x.dtype, count, FORWARD)
    with builder.loops(x.shape[:-1], LoopKind.PARALLEL) as where:
        _half(builder, transform, out, where, count, lambda j: x[(*where, j)])


@lowers("irfft")
def _irfft(_call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """All points are put, those of the other half as conjugates; real parts of the result are taken."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    count, extent = out.shape[-1], x.shape[-2]
    half = count // 2 + 1
    transform = Fourier(builder, x.dtype, count, INVERSE)
    with builder.loops(out.shape[:-1], LoopKind.PARALLEL) as where:
        transform.start(clear=not _is_enough(extent, half))
        with builder.loop(_least(extent, half)) as k:
            has_mirror = builder.let((k > 0) & (k * 2 < index(count)))
            imaginary = cast(select(has_mirror, x[(*where, k, 1)], const(0, x.dtype.compute)), F64)
            real, imaginary = builder.let(cast(x[(*where, k, 0)], F64)), builder.let(imaginary)
            transform.put(k, real, imaginary)
            with builder.when(has_mirror):
                transform.put_unseen(index(count) - k, real, -imaginary)
        transform.run()
        with builder.loop(count) as j:
            builder.store(out, (*where, j), transform.result(j, 0))


# --- short-time transform ---------------------------------------------------------------------------------------------


def _weight(name: str, roots: Buffer, at: Scalar, frame: int) -> Scalar:
    """An element of a window: a sum of cosines, which are the real parts of the roots."""
    constant, *parts = WINDOWS[name]
    total: Scalar = const(constant, F64)
    for multiple, part in enumerate(parts, 1):
        turn = at if multiple == 1 else at * multiple % index(frame)
        total = total + load(roots, turn, 0) * ((-1) ** multiple * part)
    return total


@lowers("stft")
def _stft(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x, window), (out,) = inputs, outputs
    assert x is not None
    frame, hop = call.params["frame"], call.params["hop"]
    last = index(x.shape[-1] - 1)
    transform = Fourier(builder, x.dtype, frame, FORWARD)
    with builder.loops(out.shape[:-2], LoopKind.PARALLEL) as where:
        start = builder.let(where[-1] * index(hop))

        def point(j: ScalarVar) -> Scalar:
            at = start + j
            if call.params["center"]:
                at = builder.let(at - index(frame // 2))
                at = builder.let(select(at < 0, 0 - at, select(at > last, last * 2 - at, at)))
            value = cast(x[(*where[:-1], at)], F64)
            if window is not None:
                return value * cast(window[j], F64)
            return value * _weight(call.params["window_type"], transform.roots, j, frame)

        _half(builder, transform, out, where, frame, point)
