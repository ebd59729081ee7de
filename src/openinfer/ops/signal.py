"""Fourier transforms.

Complex numbers are pairs: a trailing axis of extent 2 with the real and the imaginary part.
"""

from collections.abc import Callable, Iterator
from math import ceil, log2
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import case, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import REQUIRED, Call, Case, Cases, CostRule, OpCost, Param, op, row
from openinfer.ops.shapes import axis_of, bytes_moved
from openinfer.ops.types import FLOATS, Shape, TensorType, parameter_error, shape_error

FAMILY = "Signal"
TRANSFORM = row(16)
"""About 2.5 units in the last place of the largest value for each of six stages of radix 2: up to 64 points."""
LENGTH = "absent means the extent. Elements beyond it are left out; missing ones are zeros."


def _length(call: Call, x: TensorType, default: int) -> int:
    """How many points a transform has."""
    given = call.params["n"]
    if given is not None and given < 1:
        raise parameter_error("n", f"a transform has at least one point, not {given}")
    if given is None and default < 1:
        raise shape_error(f"{x} leaves a transform no points", 0, "n=... says how many there are")
    return default if given is None else given


def _require_pairs(x: TensorType) -> int:
    """The number of axes before the pair."""
    if len(x.shape) < 2 or x.shape[-1] != 2:
        raise shape_error(f"the operand ends in pairs of a real and an imaginary part: [..., 2], not {x}", 0)
    return len(x.shape) - 1


def _fitted(x: Array, axis: int, count: int) -> Array:
    """As many elements along an axis, cut off or filled up with zeros."""
    kept = x[(slice(None),) * axis + (slice(count),)]
    missing = count - kept.shape[axis]
    borders = [(0, missing if at == axis else 0) for at in range(x.ndim)]
    return np.pad(kept, borders) if missing else kept


def _complex(pairs: Array) -> Array:
    """Pairs as complex numbers, without the arithmetic that makes NaN of infinities."""
    pairs = np.ascontiguousarray(pairs)
    return pairs.view(np.result_type(pairs.dtype, np.complex64))[..., 0]


def _pairs(numbers: Array) -> Array:
    return np.stack([numbers.real, numbers.imag], axis=-1)


def _finite(result: Array, operand: Array, axis: int) -> Array:
    """Results of a transform with NaN wherever an operand of theirs is not finite, whatever the algorithm does."""
    nan = complex(np.nan, np.nan) if result.dtype.kind == "c" else np.nan
    return np.where(np.isfinite(operand).all(axis=axis, keepdims=True), result, nan)


def _transform_cost(measure: Callable[[Call], tuple[int, int]]) -> CostRule:
    """From how many real numbers are transformed, and how many points a transform has."""

    def cost(call: Call) -> OpCost:
        numbers, points = measure(call)
        return OpCost(ceil(2.5 * numbers * log2(points)), *bytes_moved(call))

    return cost


def _cases(*settings: tuple[Shape, dict[str, Any]]) -> Cases:
    """For each shape and its parameters; the first also with values that are not finite."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for shape, params in settings:
            yield case(dtype, random(rng, dtype, shape), **params)
        shape, params = settings[0]
        for bad in (np.nan, np.inf, -np.inf):
            values = random(rng, dtype, shape)
            values.reshape(-1)[rng.integers(values.size)] = bad
            yield case(dtype, values, **params)

    return cases


# --- complex transforms -----------------------------------------------------------------------------------------------

AXIS = Param("axis", "int", -1, "The axis to transform, counted without the one of the pairs.")


def _complex_shape(call: Call) -> tuple[Shape, ...]:
    x = call.input(0)
    axis = axis_of(call.params["axis"], _require_pairs(x))
    count = _length(call, x, x.shape[axis])
    return ((*x.shape[:axis], count, *x.shape[axis + 1 :]),)


def _complex_points(call: Call) -> tuple[int, int]:
    result = call.outputs[0]
    return result.size, result.shape[axis_of(call.params["axis"], len(result.shape) - 1)]


def _transformed(call: Call, x: Array, transform: Callable[..., Array]) -> Array:
    axis = axis_of(call.params["axis"], x.ndim - 1)
    numbers = _complex(_fitted(wide(x), axis, call.outputs[0].shape[axis]))
    return _pairs(_finite(transform(numbers, axis=axis), numbers, axis))


_complex_cases = _cases(
    ((3, 8, 2), {}),
    ((1, 2), {}),
    ((7, 2), {}),
    ((64, 2), {"axis": 0}),
    ((5, 3, 2), {"axis": 0}),
    ((2, 5, 3, 2), {"axis": -2}),
    ((6, 2), {"n": 4}),
    ((6, 2), {"n": 9}),
    ((0, 2), {"n": 3}),
    ((0, 4, 2), {}),
)


@op(
    FAMILY,
    "x: T -> T",
    AXIS,
    Param("n", "int", None, f"The number of points; {LENGTH}"),
    shape=_complex_shape,
    cost=_transform_cost(_complex_points),
    tolerance=TRANSFORM,
    cases=_complex_cases,
    T=FLOATS,
)
def fft(call: Call, x: Array) -> Array:
    """The discrete Fourier transform, `y[k] = sum over j of x[j] * exp(-2i * pi * j * k / n)`.

    The last axis of `x` and `y` holds real and imaginary part. A transform with an operand that is not finite is NaN.
    """
    return _transformed(call, x, np.fft.fft)


@op(
    FAMILY,
    "x: T -> T",
    AXIS,
    Param("n", "int", None, f"The number of points; {LENGTH}"),
    shape=_complex_shape,
    cost=_transform_cost(_complex_points),
    tolerance=TRANSFORM,
    cases=_complex_cases,
    T=FLOATS,
)
def ifft(call: Call, x: Array) -> Array:
    """The inverse discrete Fourier transform, `y[j] = 1/n * sum over k of x[k] * exp(2i * pi * j * k / n)`.

    The last axis of `x` and `y` holds real and imaginary part. A transform with an operand that is not finite is NaN.
    """
    return _transformed(call, x, np.fft.ifft)


# --- transforms of real numbers ---------------------------------------------------------------------------------------


def _real_shape(call: Call) -> tuple[Shape, ...]:
    x = call.input(0)
    if not x.shape or x.shape[-1] == 0:
        raise shape_error(f"{x} leaves a transform no points", 0)
    return ((*x.shape[:-1], x.shape[-1] // 2 + 1, 2),)


@op(
    FAMILY,
    "x: T -> T",
    shape=_real_shape,
    cost=_transform_cost(lambda call: (call.input(0).size, call.shape(0)[-1])),
    tolerance=TRANSFORM,
    cases=_cases(((3, 8), {}), ((1,), {}), ((2,), {}), ((7,), {}), ((2, 3, 5), {}), ((64,), {}), ((0, 4), {})),
    T=FLOATS,
)
def rfft(_call: Call, x: Array) -> Array:
    """The first half of the Fourier transform of real numbers along the last axis, with `n` points.

    `y[k] = sum over j of x[j] * exp(-2i * pi * j * k / n)` for `k` from 0 to `floor(n / 2)`; a last axis holds real
    and imaginary part. A transform with an operand that is not finite is NaN.
    """
    points = wide(x)
    return _pairs(_finite(np.fft.rfft(points), points, -1))


def _half_shape(call: Call) -> tuple[Shape, ...]:
    x = call.input(0)
    _require_pairs(x)
    return ((*x.shape[:-2], _length(call, x, 2 * (x.shape[-2] - 1))),)


@op(
    FAMILY,
    "x: T -> T",
    Param("n", "int", None, "The number of real points; absent means the even one, twice the extent of `x` less two."),
    shape=_half_shape,
    cost=_transform_cost(lambda call: (call.outputs[0].size, call.outputs[0].shape[-1])),
    tolerance=TRANSFORM,
    cases=_cases(
        ((3, 5, 2), {}),
        ((2, 2), {}),
        ((1, 2), {"n": 1}),
        ((4, 2), {"n": 7}),
        ((4, 2), {"n": 4}),
        ((3, 2), {"n": 12}),
        ((33, 2), {}),
        ((0, 2), {"n": 3}),
        ((2, 0, 3, 2), {}),
    ),
    T=FLOATS,
)
def irfft(call: Call, x: Array) -> Array:
    """The real numbers whose `rfft` is `x`, `y[j] = 1/n * sum over k of X[k] * exp(2i * pi * j * k / n)`.

    `X` is `x` continued by its conjugate mirrored: `X[n - k] = conj(x[k])`. The imaginary parts of `x[0]` and, for even
    `n`, of `x[n / 2]` do not count. Missing elements of `x` are zeros. A transform with an operand that is not finite
    is NaN.
    """
    count = call.outputs[0].shape[-1]
    half = np.array(_fitted(wide(x), x.ndim - 2, count // 2 + 1))
    half[..., 0, 1] = 0
    if count % 2 == 0:
        half[..., -1, 1] = 0
    numbers = _complex(half)
    return _finite(np.fft.irfft(numbers, count), numbers, -1)


# --- short-time transform ---------------------------------------------------------------------------------------------

WINDOWS = {
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "rectangular": (1.0,),
}
"""The coefficients of the cosines of a window, with alternating signs."""


def _window(name: str, frame: int, kind: "np.dtype[Any]") -> Array:
    """A periodic window."""
    phase = 2 * np.arccos(kind.type(-1)) * np.arange(frame).astype(kind) / frame
    terms = [(-1) ** at * part * np.cos(at * phase) for at, part in enumerate(WINDOWS[name])]
    return np.sum(terms, axis=0)


def _stft_shape(call: Call) -> tuple[Shape, ...]:
    x, frame, hop = call.input(0), call.params["frame"], call.params["hop"]
    for name, value in (("frame", frame), ("hop", hop)):
        if value < 1:
            raise parameter_error(name, f"{name!r} is at least 1, not {value}")
    window = call.inputs[1]
    if window is not None and window.shape != (frame,):
        raise shape_error(f"the window is {window}, but a frame has {counted(frame, 'element')}", 1)
    if not x.shape:
        raise shape_error(f"a signal has at least one axis, and {x} has none", 0)
    length = x.shape[-1]
    if call.params["center"]:
        if length <= frame // 2:
            raise shape_error(f"{x} is too short to be reflected by half a frame, {counted(frame // 2, 'element')}", 0)
        length += 2 * (frame // 2)
    frames = max(0, (length - frame) // hop + 1)
    return ((*x.shape[:-1], frames, frame // 2 + 1, 2),)


def _stft_points(call: Call) -> tuple[int, int]:
    frame = call.params["frame"]
    return call.outputs[0].size // (2 * (frame // 2 + 1)) * frame, frame


STFT_SETTINGS: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((32,), {"frame": 8, "hop": 4}),
    ((2, 33), {"frame": 8, "hop": 3, "window_type": "hamming"}),
    ((2, 3, 20), {"frame": 5, "hop": 5, "window_type": "blackman"}),
    ((19,), {"frame": 16, "hop": 16, "window_type": "rectangular", "center": True}),
    ((17,), {"frame": 7, "hop": 2, "center": True}),
    ((4,), {"frame": 1, "hop": 1, "window_type": "rectangular"}),
    ((3,), {"frame": 8, "hop": 2}),
    ((0, 16), {"frame": 8, "hop": 2}),
)


def _stft_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, params in STFT_SETTINGS:
        yield case(dtype, random(rng, dtype, shape), None, **params)
        yield case(dtype, random(rng, dtype, shape), random(rng, dtype, (params["frame"],)), **params)
    bad = random(rng, dtype, (24,))
    bad[[3, 17]] = np.nan, np.inf
    yield case(dtype, bad, None, frame=8, hop=4)


@op(
    FAMILY,
    "x: T, window?: T -> T",
    Param("frame", "int", REQUIRED, "The elements of a frame."),
    Param("hop", "int", REQUIRED, "The distance between the beginnings of frames."),
    Param(
        "window_type",
        "str",
        "hann",
        "The periodic window that frames are multiplied with; the input `window` is used instead where it is given.",
        choices=tuple(WINDOWS),
    ),
    Param("center", "bool", default=False, doc="Extend the signal by half a frame at both ends, reflected."),
    shape=_stft_shape,
    cost=_transform_cost(_stft_points),
    tolerance=TRANSFORM,
    cases=_stft_cases,
    T=FLOATS,
)
def stft(call: Call, x: Array, window: Array | None = None) -> Array:
    """The Fourier transforms of overlapping frames, `y[t] = rfft(window * x[t * hop : t * hop + frame])`.

    The signal is the last axis of `x`; frames that would go beyond its end are left out. The result is
    [..., frames, frame / 2 + 1, 2] with real and imaginary part in the last axis. `hann` is
    `0.5 - 0.5 * cos(2 * pi * j / frame)`, `hamming` the same with 0.54 and 0.46, and `blackman`
    `0.42 - 0.5 * cos(2 * pi * j / frame) + 0.08 * cos(4 * pi * j / frame)`.
    """
    frame, hop = call.params["frame"], call.params["hop"]
    signal = wide(x)
    if call.params["center"]:
        signal = np.pad(signal, [(0, 0)] * (x.ndim - 1) + [(frame // 2, frame // 2)], mode="reflect")
    if signal.shape[-1] < frame:
        return np.zeros(call.outputs[0].shape, signal.dtype)
    weights = _window(call.params["window_type"], frame, signal.dtype) if window is None else wide(window)
    frames = np.lib.stride_tricks.sliding_window_view(signal, frame, axis=-1)[..., ::hop, :] * weights
    return _pairs(_finite(np.fft.rfft(frames), frames, -1))
