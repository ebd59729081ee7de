"""Transforms and filters against SciPy, PyTorch and the plain formulas."""

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, OpenInferError
from openinfer.ops import OPS, Array, apply

WINDOWS = {"hann": "hann", "hamming": "hamming", "blackman": "blackman", "rectangular": "boxcar"}


def as_complex(pairs: Array) -> Any:
    result = np.zeros(pairs.shape[:-1], np.result_type(pairs.dtype, np.complex64))
    result.real, result.imag = pairs[..., 0], pairs[..., 1]
    return result


def as_pairs(numbers: Array) -> Array:
    return np.stack([numbers.real, numbers.imag], -1)


def spoiled(result: Array, operand: Array, axis: int) -> Array:
    """NaN for every transform with an operand that is not finite."""
    bad = np.logical_not(np.isfinite(operand)).any(axis=axis)
    result = np.moveaxis(result.copy(), axis, 0)
    result[:, bad] = complex(np.nan, np.nan) if result.dtype.kind == "c" else np.nan
    return np.moveaxis(result, 0, axis)


def transformed(function: Callable[..., Any]) -> Judge:
    def judge(question: Question) -> Any:
        numbers, axis, count = as_complex(question.doubles[0]), question.params["axis"], question.params["n"]
        if numbers.size == 0:
            return np.zeros(question.outputs[0].shape)
        kept = np.take(numbers, range(min(numbers.shape[axis], count or 10**6)), axis)
        return as_pairs(spoiled(function(numbers, n=count, axis=axis), kept, axis % numbers.ndim))

    return judge


def rfft_judge(question: Question) -> Any:
    x = question.doubles[0]
    return as_pairs(spoiled(scipy.fft.rfft(x), x, x.ndim - 1)) if x.size else np.zeros(question.outputs[0].shape)


def irfft_judge(question: Question) -> Any:
    numbers, count = as_complex(question.doubles[0]), question.outputs[0].shape[-1]
    if numbers.size == 0:
        return np.zeros(question.outputs[0].shape)
    kept = numbers[..., : count // 2 + 1].copy()
    kept.imag[..., 0] = 0
    if count % 2 == 0 and kept.shape[-1] == count // 2 + 1:
        kept.imag[..., -1] = 0
    return spoiled(scipy.fft.irfft(kept, n=count), kept, numbers.ndim - 1)


def stft_judge(question: Question) -> Any:
    (x, window), params, (kind,) = question.doubles, question.params, question.outputs
    frame, hop = params["frame"], params["hop"]
    weights = scipy.signal.get_window(WINDOWS[params["window_type"]], frame) if window is None else window
    if params["center"]:
        places = np.abs(np.arange(-(frame // 2), x.shape[-1] + frame // 2))
        last = x.shape[-1] - 1
        x = x[..., np.where(places > last, 2 * last - places, places)]
    y = np.zeros(kind.shape, x.dtype)
    for at in range(kind.shape[-3]):
        part = x[..., at * hop : at * hop + frame] * weights
        if part.size:
            y[..., at, :, :] = as_pairs(spoiled(scipy.fft.rfft(part), part, part.ndim - 1))
    return y


def fir_judge(question: Question) -> Any:
    """Integers are Python's own, and so is their sum."""
    x, taps = question.doubles
    if x.size == 0 or taps.size == 0:
        return np.zeros(x.shape, x.dtype)
    if x.dtype.kind == "f":
        return scipy.signal.lfilter(taps, np.ones(1, x.dtype), x)
    y = x.astype(object)
    for place in np.ndindex(x.shape):
        *row, t = place
        y[place] = sum(int(taps[k]) * int(x[(*row, t - k)]) for k in range(min(len(taps), t + 1)))
    return y


def mel_judge(question: Question) -> Any:
    """The formula, one weight after another."""
    power, params = question.doubles[0], question.params
    exact = np.longdouble
    top = exact(params["rate"]) / 2
    high = top if params["high"] is None else exact(params["high"])
    first, last = (exact(2595) * np.log10(exact(1) + edge / exact(700)) for edge in (exact(params["low"]), high))
    step = (last - first) / (params["bins"] + 1)
    edges = [exact(700) * (exact(10) ** ((first + step * at) / 2595) - 1) for at in range(params["bins"] + 2)]
    count = power.shape[-1]
    y = np.zeros(question.outputs[0].shape, exact)
    for m in range(params["bins"]):
        left, middle, right = edges[m : m + 3]
        for f in range(count):
            hertz = top * f / (count - 1) if count > 1 else exact(0)
            if left < hertz <= middle:
                y[..., m] += power[..., f] * (hertz - left) / (middle - left)
            elif middle < hertz < right:
                y[..., m] += power[..., f] * (right - hertz) / (right - middle)
    return y


JUDGES: dict[str, Judge] = {
    "fft": transformed(scipy.fft.fft),
    "ifft": transformed(scipy.fft.ifft),
    "rfft": rfft_judge,
    "irfft": irfft_judge,
    "stft": stft_judge,
    "fir": fir_judge,
    "mel_filterbank": mel_judge,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


# --- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 8, 15])
def test_a_transform_is_the_sum_of_its_definition(count: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 2))
    turns = np.exp(-2j * np.pi * np.outer(np.arange(count), np.arange(count)) / count)
    want = turns @ as_complex(x)
    np.testing.assert_allclose(as_complex(apply("fft", x)), want, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(as_complex(apply("ifft", as_pairs(want))), as_complex(x), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_the_inverse_gives_the_real_signal_back(count: int) -> None:
    x = np.random.default_rng(4).normal(size=(3, count))
    np.testing.assert_allclose(apply("irfft", apply("rfft", x), n=count), x, rtol=1e-13, atol=1e-13)


def test_axes_count_without_the_pairs() -> None:
    x = np.random.default_rng(5).normal(size=(3, 4, 2))
    last = apply("fft", x, axis=-1)
    np.testing.assert_array_equal(last, apply("fft", x, axis=1))
    np.testing.assert_allclose(as_complex(last), np.fft.fft(as_complex(x), axis=1), rtol=1e-13, atol=1e-13)


def test_one_operand_that_is_not_finite_spoils_its_own_transform_only() -> None:
    x = np.ones((2, 4, 2), np.float32)
    x[0, 1, 0] = np.inf
    for name in ("fft", "ifft"):
        got = apply(name, x)
        assert np.isnan(got[0]).all()
        assert np.isfinite(got[1]).all()
    assert np.isnan(apply("irfft", x)[0]).all()
    assert np.isfinite(apply("fft", x, axis=0)[:, [0, 2, 3]]).all()
    assert np.isfinite(apply("fft", x, n=1)).all(), "what is cut off does not count"


@pytest.mark.parametrize("center", [False, True])
def test_stft_is_that_of_torch(center: bool) -> None:
    x = np.random.default_rng(6).normal(size=(2, 50))
    want = torch.stft(
        torch.from_numpy(x),
        n_fft=16,
        hop_length=5,
        window=torch.hann_window(16, dtype=torch.float64),
        center=center,
        return_complex=True,
    )
    got = apply("stft", x, frame=16, hop=5, center=center)
    np.testing.assert_allclose(as_complex(got), want.numpy().swapaxes(1, 2), rtol=1e-12, atol=1e-12)


def test_a_signal_shorter_than_a_frame_has_no_frames() -> None:
    assert apply("stft", np.ones((2, 7)), frame=8, hop=1).shape == (2, 0, 5, 2)


def test_fir_by_hand() -> None:
    x, taps = np.array([1, 2, 3, 4], np.int32), np.array([1, 10, 100], np.int32)
    assert apply("fir", x, taps).tolist() == [1, 12, 123, 234]
    assert apply("fir", np.array([7], DTYPES["u4"].array), np.array([3], DTYPES["u4"].array)).astype(int).tolist() == [
        5
    ]


def test_fir_has_no_terms_before_the_start() -> None:
    assert apply("fir", np.ones(2), np.array([1, np.inf])).tolist() == [1, np.inf]


def test_mel_triangles_by_hand() -> None:
    # Three points at 0, 700 and 2100 Hz: 2595 * log10(1), log10(2), log10(4) are at equal distances.
    power = np.zeros(43)
    power[[7, 14, 28, 35, 42]] = 1, 10, 100, 1000, 10000  # at 350, 700, 1400, 1750 and 2100 Hz
    got = apply("mel_filterbank", power, bins=1, rate=4200)
    np.testing.assert_allclose(got, [0.5 * 1 + 1 * 10 + 0.5 * 100 + 0.25 * 1000], rtol=1e-13)


def test_what_is_outside_a_triangle_does_not_count() -> None:
    power = np.ones(65, np.float32)
    power[60] = np.inf
    got = apply("mel_filterbank", power, bins=8, rate=8000)
    assert np.isfinite(got[:7]).all()
    assert got[7] == np.inf


# --- refusals ---------------------------------------------------------------------------------------------------------

SHAPE, PARAMETER = Code.SHAPE_MISMATCH, Code.BAD_PARAMETER


@pytest.mark.parametrize(
    ("name", "shapes", "params", "code", "message"),
    [
        ("fft", ((4,),), {}, SHAPE, "[..., 2], not f32[4]"),
        ("fft", ((2,),), {}, SHAPE, "[..., 2], not f32[2]"),
        ("ifft", ((4, 3),), {}, SHAPE, "[..., 2], not f32[4, 3]"),
        ("fft", ((4, 2),), {"axis": 1}, PARAMETER, "there is no axis 1"),
        ("fft", ((4, 2),), {"n": 0}, PARAMETER, "a transform has at least one point, not 0"),
        ("fft", ((0, 2),), {}, SHAPE, "f32[0, 2] leaves a transform no points"),
        ("rfft", ((),), {}, SHAPE, "f32 leaves a transform no points"),
        ("rfft", ((3, 0),), {}, SHAPE, "f32[3, 0] leaves a transform no points"),
        ("irfft", ((1, 2),), {}, SHAPE, "f32[1, 2] leaves a transform no points"),
        ("irfft", ((3, 1),), {}, SHAPE, "[..., 2], not f32[3, 1]"),
        ("irfft", ((3, 2),), {"n": -2}, PARAMETER, "a transform has at least one point, not -2"),
        ("stft", ((8,),), {"frame": 0, "hop": 1}, PARAMETER, "'frame' is at least 1, not 0"),
        ("stft", ((8,),), {"frame": 4, "hop": 0}, PARAMETER, "'hop' is at least 1, not 0"),
        ("stft", ((8,), (5,)), {"frame": 4, "hop": 1}, SHAPE, "the window is f32[5], but a frame has 4 elements"),
        ("stft", ((),), {"frame": 4, "hop": 1}, SHAPE, "a signal has at least one axis, and f32 has none"),
        ("stft", ((2,),), {"frame": 4, "hop": 1, "center": True}, SHAPE, "f32[2] is too short to be reflected"),
        ("stft", ((8,),), {"frame": 4, "hop": 1, "window_type": "kaiser"}, PARAMETER, "'window_type' of 'stft' is"),
        ("fir", ((), (2,)), {}, SHAPE, "a signal has at least one axis, and f32 has none"),
        ("fir", ((4,), (2, 2)), {}, SHAPE, "the taps have one axis, not f32[2, 2]"),
        (
            "mel_filterbank",
            ((),),
            {"bins": 2, "rate": 8000},
            SHAPE,
            "a spectrum has at least one axis, and f32 has none",
        ),
        ("mel_filterbank", ((9,),), {"bins": 0, "rate": 8000}, PARAMETER, "there is at least one mel bin, not 0"),
        ("mel_filterbank", ((9,),), {"bins": 2, "rate": 0}, PARAMETER, "a sample rate is positive, not 0"),
        ("mel_filterbank", ((9,),), {"bins": 2, "rate": float("nan")}, PARAMETER, "a sample rate is positive, not nan"),
        ("mel_filterbank", ((9,),), {"bins": 2, "rate": 80, "low": 40}, PARAMETER, "to below the highest, 40, not 40"),
        ("mel_filterbank", ((9,),), {"bins": 2, "rate": 80, "low": -1}, PARAMETER, "the lowest frequency is from 0"),
        (
            "mel_filterbank",
            ((9,),),
            {"bins": 2, "rate": 80, "high": 41},
            PARAMETER,
            "at most half the rate, 40, not 41",
        ),
        ("mel_filterbank", ((9,),), {"bins": 9, "rate": 1e-6}, PARAMETER, "is too narrow for this many bins"),
    ],
)
def test_refuses(name: str, shapes: Any, params: dict[str, Any], code: Code, message: str) -> None:
    with pytest.raises(OpenInferError) as raised:
        apply(name, *(np.ones(shape, np.float32) for shape in shapes), **params)
    assert raised.value.code is code
    assert message in raised.value.message


def test_costs_grow_with_the_points() -> None:
    from openinfer.ops import Call, TensorType, infer

    def flops(points: int) -> int:
        call = infer(OPS["fft"], Call((TensorType(DTYPES["f32"], (3, points, 2)),), {"axis": -1, "n": None}))
        return OPS["fft"].cost(call).flops

    assert (flops(1), flops(8), flops(16)) == (0, 3 * 5 * 8 * 3, 3 * 5 * 16 * 4)
