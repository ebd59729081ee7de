"""Pooling and resizing against definitions in plain Python, PyTorch and ONNX Runtime."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from fractions import Fraction
from itertools import product
from math import ceil, floor, prod
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code
from openinfer.ops import OPS, Array, Call, OpError, TensorType, apply, complete, infer

EVERY: Any = slice(None)


def spread(value: tuple[int, ...], count: int) -> tuple[int, ...]:
    return value * count if len(value) == 1 else value


def pooled(question: Question, x: Array, function: Any) -> Array:
    """``function`` of what each window sees, and of how many of its positions are inside the padding."""
    params, rank = question.params, x.ndim - 2
    kernel, dilations = spread(params["kernel"], rank), spread(params["dilations"], rank)
    strides = kernel if params["strides"] is None else spread(params["strides"], rank)
    pads = params["pads"]
    begins, ends = (pads[:rank], pads[rank:]) if len(pads) == 2 * rank else (spread(pads, rank),) * 2
    out = np.zeros(question.outputs[0].shape, x.dtype)
    for at in product(*map(range, out.shape[2:])):
        places = [
            [a * s - b + k * d for k in range(n)]
            for a, s, b, n, d in zip(at, strides, begins, kernel, dilations, strict=True)
        ]
        inside: list[Any] = [[p for p in own if 0 <= p < n] for own, n in zip(places, x.shape[2:], strict=True)]
        padded = [
            sum(-b <= p < n + e for p in own) for own, b, e, n in zip(places, begins, ends, x.shape[2:], strict=True)
        ]
        area = x[(EVERY, EVERY, *np.ix_(*inside))] if all(inside) else np.zeros((*x.shape[:2], 0), x.dtype)
        out[(EVERY, EVERY, *at)] = function(area.reshape(*x.shape[:2], -1 if area.size else 0), prod(padded))
    return out


def largest(area: Array, least: Any) -> Array:
    """The maximum over the last axis, by Python's rules for order, with +0 above -0."""

    def order(value: Any) -> tuple[bool, Any, bool]:
        return value != value, value, not np.signbit(value)  # noqa: PLR0124  (NaN)

    rows = area.reshape(prod(area.shape[:-1]), area.shape[-1])
    return np.array([max(values, key=order, default=least) for values in rows], area.dtype).reshape(area.shape[:-1])


def max_judge(question: Question) -> Array:
    kind = question.outputs[0].dtype
    least: Any = -np.inf if kind.kind == "float" else kind.minimum

    return pooled(question, question.wide[0], lambda area, _count: largest(area, least))


def mean_judge(question: Question) -> Array:
    included = question.params["count_include_pad"]

    def mean(area: Array, count: int) -> Array:
        total = np.zeros(area.shape[:-1], area.dtype)
        for position in range(area.shape[-1]):
            total += area[..., position]
        return total / (count if included else area.shape[-1])

    return pooled(question, question.doubles[0], mean)


def global_mean_judge(question: Question) -> Array:
    x = question.doubles[0]
    flat = x.reshape(*x.shape[:2], prod(x.shape[2:]))
    mean = np.einsum("nci->nc", flat) / np.float64(flat.shape[-1])
    return np.asarray(mean.reshape(question.outputs[0].shape))


def global_max_judge(question: Question) -> Array:
    kind, x = question.outputs[0].dtype, question.wide[0]
    least: Any = -np.inf if kind.kind == "float" else kind.minimum
    return largest(x.reshape(*x.shape[:2], prod(x.shape[2:])), least).reshape(question.outputs[0].shape)


# --- resize -----------------------------------------------------------------------------------------------------------


def coordinate(params: dict[str, Any], at: int, old: int, new: int, scale: float | None) -> float:
    if params["coordinates"] == "align_corners":
        return float(Fraction(at * (old - 1), new - 1)) if new > 1 else 0.0
    if params["coordinates"] == "asymmetric":
        return float(Fraction(at * old, new)) if scale is None else at / scale
    if scale is None:
        return float((Fraction(at) + Fraction(1, 2)) * Fraction(old, new) - Fraction(1, 2))
    return (at + 0.5) / scale - 0.5


def cubic(distance: Fraction) -> Fraction:
    a = Fraction(-3, 4)
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a


def row(params: dict[str, Any], at: float, old: int) -> dict[int, Fraction]:
    """The weights of one result element, by the input element they belong to."""
    exact = Fraction(at)
    if params["mode"] == "nearest":
        half = Fraction(1, 2)
        rounded = {
            "floor": floor(exact),
            "ceil": ceil(exact),
            "round_prefer_floor": ceil(exact - half),
            "round_prefer_ceil": floor(exact + half),
        }[params["nearest"]]
        pairs = [(rounded, Fraction(1))]
    elif params["mode"] == "linear":
        below = floor(exact)
        pairs = [(below, 1 - (exact - below)), (below + 1, exact - below)]
    else:
        below = floor(exact)
        pairs = [(below + step, cubic(abs(exact - below - step))) for step in (-1, 0, 1, 2)]
    weights: dict[int, Fraction] = {}
    for place, weight in pairs:
        inside = min(max(place, 0), old - 1)
        weights[inside] = weights.get(inside, Fraction(0)) + weight
    return weights


def resize_judge(question: Question) -> Array:
    params = dict(question.params)
    nearest = params["mode"] == "nearest"
    x = question.wide[0].astype(object) if nearest else question.doubles[0].astype(np.longdouble)
    scales = params["scale"]
    for axis, new in enumerate(question.outputs[0].shape[2:], start=2):
        old = x.shape[axis]
        scale = None if scales is None else spread(scales, x.ndim - 2)[axis - 2]
        moved = np.moveaxis(x, axis, 0)
        out = np.zeros((new, *moved.shape[1:]), x.dtype)
        for at in range(new):
            weights = row(params, coordinate(params, at, old, new, scale), old)
            for place, weight in weights.items():
                share = np.longdouble(weight.numerator) / np.longdouble(weight.denominator)
                out[at] = moved[place] if nearest else out[at] + moved[place] * share
        x = np.moveaxis(out, 0, axis)
    return np.asarray(x if not nearest else x.astype(question.wide[0].dtype))


JUDGES: dict[str, Judge] = {
    "max_pool": max_judge,
    "avg_pool": mean_judge,
    "global_avg_pool": global_mean_judge,
    "global_max_pool": global_max_judge,
    "resize": resize_judge,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


# --- other libraries --------------------------------------------------------------------------------------------------


def by_onnx(kind: str, x: Array, extra: dict[str, Array] | None = None, **attributes: Any) -> Array:
    names = ["x", *(extra or {})]
    inputs = names if kind != "Resize" else ["x", "", "scales" if "scales" in names else "", "sizes"][: 2 + len(names)]
    inputs = inputs[:3] if "scales" in names else inputs
    node = onnx.helper.make_node(kind, inputs, ["y"], **attributes)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "one",
        [value("x", onnx.TensorProto.FLOAT, x.shape)],
        [value("y", onnx.TensorProto.FLOAT, [None] * x.ndim)],
        [onnx.numpy_helper.from_array(array, name) for name, array in (extra or {}).items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": x})
    return np.asarray(result)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_pools_as_onnx_runtime(ceil_mode: bool, pads: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = np.random.default_rng(5).normal(size=(2, 3, 9, 8)).astype(np.float32)
    shared: dict[str, Any] = {"ceil_mode": int(ceil_mode), "pads": pads, "strides": strides, "kernel_shape": (3, 2)}
    own: dict[str, Any] = {"ceil_mode": ceil_mode, "pads": pads, "strides": strides, "kernel": (3, 2)}
    np.testing.assert_array_equal(
        apply("max_pool", x, **own, dilations=(1, 2)), by_onnx("MaxPool", x, **shared, dilations=(1, 2))
    )
    np.testing.assert_allclose(apply("avg_pool", x, **own), by_onnx("AveragePool", x, **shared), atol=1e-6)


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_means_as_pytorch(count_include_pad: bool, ceil_mode: bool) -> None:
    x = np.random.default_rng(6).normal(size=(2, 3, 9, 8)).astype(np.float32)
    want = torch.nn.functional.avg_pool2d(torch.tensor(x), 3, 2, 1, ceil_mode, count_include_pad).numpy()
    got = apply("avg_pool", x, kernel=3, strides=2, pads=1, ceil_mode=ceil_mode, count_include_pad=count_include_pad)
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(
    ("mode", "nearest"),
    [("nearest", name) for name in ("round_prefer_floor", "floor", "ceil", "round_prefer_ceil")]
    + [("linear", "floor"), ("cubic", "floor")],
)
@pytest.mark.parametrize("given", [{"size": (8, 6)}, {"size": (3, 13)}, {"scale": (2.0, 0.5)}, {"scale": (0.75, 1.25)}])
def test_resizes_as_onnx_runtime(coordinates: str, mode: str, nearest: str, given: dict[str, Any]) -> None:
    x = np.random.default_rng(7).normal(size=(1, 2, 4, 6)).astype(np.float32)
    if "size" in given:
        extra = {"sizes": np.array([1, 2, *given["size"]], np.int64)}
    else:
        extra = {"scales": np.array([1, 1, *given["scale"]], np.float32)}
    want = by_onnx(
        "Resize",
        x,
        extra,
        mode=mode,
        nearest_mode=nearest,
        coordinate_transformation_mode=coordinates,
        cubic_coeff_a=-0.75,
    )
    got = apply("resize", x, **given, mode=mode, coordinates=coordinates, nearest=nearest)
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(("mode", "name"), [("linear", "bilinear"), ("cubic", "bicubic")])
@pytest.mark.parametrize("corners", [False, True])
def test_resizes_as_pytorch(mode: str, name: str, corners: bool) -> None:
    x = np.random.default_rng(8).normal(size=(1, 2, 5, 6)).astype(np.float32)
    want = torch.nn.functional.interpolate(torch.tensor(x), (9, 4), mode=name, align_corners=corners).numpy()
    coordinates = "align_corners" if corners else "half_pixel"
    got = apply("resize", x, size=(9, 4), mode=mode, coordinates=coordinates)
    np.testing.assert_allclose(got, want, atol=1e-5)


# --- definitions by hand ----------------------------------------------------------------------------------------------


def test_a_maximum_with_a_nan_is_nan() -> None:
    x = np.array([[[1, np.nan, 2, 3]]], np.float32)
    np.testing.assert_array_equal(apply("max_pool", x, kernel=2), [[[np.nan, 3]]])


def test_an_extra_window_needs_an_element_or_padding_at_the_beginning_to_start_on() -> None:
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    assert apply("max_pool", x, kernel=2, strides=2).tolist() == [[[1, 3]]]
    assert apply("max_pool", x, kernel=2, strides=2, ceil_mode=True).tolist() == [[[1, 3, 4]]]
    # With one element of padding, a fourth window would start at 5: past the last element.
    assert apply("max_pool", x, kernel=2, strides=3, pads=1, ceil_mode=True).tolist() == [[[0, 3]]]


def test_padding_counts_only_when_asked() -> None:
    x = np.full((1, 1, 2), 6, np.float32)
    assert apply("avg_pool", x, kernel=3, strides=1, pads=1).tolist() == [[[6, 6]]]
    assert apply("avg_pool", x, kernel=3, strides=1, pads=1, count_include_pad=True).tolist() == [[[4, 4]]]


def test_exact_halves_and_integers_stay_exact_when_a_size_is_given() -> None:
    # The middle of 7 lies exactly on the middle of 3, though 7/3 is not a float.
    x = np.arange(3, dtype=np.float32).reshape(1, 1, 3)
    assert apply("resize", x, size=7, nearest="floor").tolist() == [[[0, 0, 0, 1, 1, 1, 2]]]
    assert apply("resize", x, size=7, nearest="ceil").tolist() == [[[0, 1, 1, 1, 2, 2, 2]]]


def test_resizing_moves_packed_and_boolean_values() -> None:
    x = np.array([[[True, False]]])
    assert apply("resize", x, scale=2).tolist() == [[[True, True, False, False]]]


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(name: str, shape: tuple[int, ...], dtype: str = "f32", **params: Any) -> OpError:
    record = OPS[name]
    with pytest.raises(OpError) as caught:
        infer(record, Call((TensorType(DTYPES[dtype], shape),), complete(record, params)))
    return caught.value


@pytest.mark.parametrize(
    ("name", "shape", "params", "message"),
    [
        ("max_pool", (3, 4), {"kernel": 2}, "pooling takes [N, C, spatial...], not f32[3, 4]"),
        ("global_avg_pool", (3, 4), {}, "pooling takes [N, C, spatial...], not f32[3, 4]"),
        ("global_max_pool", (), {}, "pooling takes [N, C, spatial...], not f32"),
        (
            "avg_pool",
            (1, 1, 3),
            {"kernel": 4},
            "the window spans 4 elements, more than the 3 elements of f32[1, 1, 3] with its padding",
        ),
        ("resize", (3, 4), {"size": 2}, "'resize' takes [N, C, spatial...], not f32[3, 4]"),
        ("resize", (1, 1, 0), {"size": 2}, "f32[1, 1, 0] has no elements to make [2] of"),
    ],
)
def test_refuses_shapes(name: str, shape: tuple[int, ...], params: dict[str, Any], message: str) -> None:
    error = refusal(name, shape, **params)
    assert (error.code, error.message) == (Code.SHAPE_MISMATCH, message)


@pytest.mark.parametrize(
    ("name", "params", "at", "message"),
    [
        ("max_pool", {"kernel": 0}, "kernel", "the elements of 'kernel' are at least 1"),
        ("max_pool", {"kernel": (2, 2, 2)}, "kernel", "'kernel' has 3 elements, but there are 2 spatial axes"),
        ("max_pool", {"kernel": 2, "strides": 0}, "strides", "the elements of 'strides' are at least 1"),
        ("max_pool", {"kernel": 2, "dilations": 0}, "dilations", "the elements of 'dilations' are at least 1"),
        ("avg_pool", {"kernel": 2, "pads": 2}, "pads", "a padding of 2 hides a window that spans 2 elements"),
        ("avg_pool", {"kernel": 2, "pads": -1}, "pads", "the elements of 'pads' are at least 0"),
        ("resize", {"size": -1}, "size", "the elements of 'size' are at least 0"),
        ("resize", {"scale": 0}, "scale", "the elements of 'scale' are finite and above 0"),
        ("resize", {"scale": float("nan")}, "scale", "the elements of 'scale' are finite and above 0"),
        ("resize", {"scale": 1e308}, "scale", "1e+308 times 5 is not an extent"),
        ("resize", {"scale": (1, 1, 1)}, "scale", "'scale' has 3 elements, but there are 2 spatial axes"),
    ],
)
def test_refuses_parameters(name: str, params: dict[str, Any], at: str, message: str) -> None:
    error = refusal(name, (1, 2, 5, 5), **params)
    assert (error.code, error.at, error.message) == (Code.BAD_PARAMETER, at, message)


@pytest.mark.parametrize("params", [{}, {"size": 2, "scale": 2}])
def test_resize_takes_a_size_or_a_scale(params: dict[str, Any]) -> None:
    error = refusal("resize", (1, 2, 5, 5), **params)
    assert (error.code, error.message) == (Code.WRONG_OPERANDS, "'resize' takes either 'size' or 'scale'")


def test_only_floats_are_interpolated() -> None:
    error = refusal("resize", (1, 2, 5), "u8", size=2, mode="linear")
    assert (error.code, error.at) == (Code.BAD_PARAMETER, "mode")
    assert error.message == "the mode 'linear' is for floats, not u8[1, 2, 5]"


def test_no_machine_holds_an_enormous_result() -> None:
    assert refusal("resize", (0, 2, 5), scale=1e30).code is Code.SHAPE_MISMATCH


def test_windows_that_are_almost_all_padding_cost_nothing() -> None:
    x = np.ones((1, 1, 2), np.float32)
    huge = 10**15
    assert apply("max_pool", x, kernel=huge, strides=huge, pads=(huge - 2, 0)).tolist() == [[[1]]]
