"""Convolutions against PyTorch in double, and against sums over windows with Python's integers."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op, wrapped

from openinfer.dtypes import DTYPES
from openinfer.errors import Code
from openinfer.oinf.quant import QuantParams, QuantScale
from openinfer.ops import OPS, Array, Call, OpError, ReferenceKernel, TensorType, apply, complete, infer

EVERY: Any = slice(None)


def part(group: int, size: int) -> Any:
    return slice(group * size, (group + 1) * size)


def spread(value: tuple[int, ...], count: int) -> tuple[int, ...]:
    return value * count if len(value) == 1 else value


def padding(value: tuple[int, ...], count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (value[:count], value[count:]) if len(value) == 2 * count else (spread(value, count),) * 2


def by_windows(x: Array, w: Array, params: dict[str, Any]) -> Array:
    """The definition: at each place of the result, what the window sees times the weights."""
    rank, groups = x.ndim - 2, params["groups"]
    strides, dilations = spread(params["strides"], rank), spread(params["dilations"], rank)
    begins, ends = padding(params["pads"], rank)
    sizes = [b + n + e for b, n, e in zip(begins, x.shape[2:], ends, strict=True)]
    padded = np.zeros((*x.shape[:2], *sizes), x.dtype)
    padded[(EVERY, EVERY, *(slice(b, b + n) for b, n in zip(begins, x.shape[2:], strict=True)))] = x
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    places = [(n - r) // s + 1 for n, r, s in zip(padded.shape[2:], reach, strides, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *places), x.dtype)
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for at in product(*map(range, places)):
        area = tuple(slice(a * s, a * s + r, d) for a, s, r, d in zip(at, strides, reach, dilations, strict=True))
        for group in range(groups):
            seen = padded[(EVERY, part(group, inputs), *area)]
            own = w[part(group, outputs)]
            axes = list(range(1, x.ndim))
            made = np.tensordot(seen, own, axes=(axes, axes))
            out[(EVERY, part(group, outputs), *at)] = made
    return out


def by_elements(x: Array, w: Array, params: dict[str, Any]) -> Array:
    """The definition of the transpose: each input element adds its window."""
    rank, groups = x.ndim - 2, params["groups"]
    strides, dilations = spread(params["strides"], rank), spread(params["dilations"], rank)
    begins, ends = padding(params["pads"], rank)
    more = spread(params["output_padding"], rank)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    full = [max((n - 1) * s + r + e, 0) for n, s, r, e in zip(x.shape[2:], strides, reach, more, strict=True)]
    outputs, inputs = w.shape[1], x.shape[1] // groups
    out = np.zeros((x.shape[0], outputs * groups, *full), x.dtype)
    for at in product(*map(range, x.shape[2:])):
        area = tuple(slice(a * s, a * s + r, d) for a, s, r, d in zip(at, strides, reach, dilations, strict=True))
        for group in range(groups):
            channels = part(group, inputs)
            window = np.tensordot(x[(EVERY, channels, *at)], w[channels], axes=([1], [0]))
            out[(EVERY, part(group, outputs), *area)] += window
    crop = tuple(slice(b, n - e) for b, e, n in zip(begins, ends, full, strict=True))
    return out[(EVERY, EVERY, *crop)]


def by_torch(x: Array, w: Array, params: dict[str, Any], *, transposed: bool) -> Array:
    rank = x.ndim - 2
    begins, ends = padding(params["pads"], rank)
    strides, dilations = spread(params["strides"], rank), spread(params["dilations"], rank)
    tensors = torch.tensor(np.ascontiguousarray(x)), torch.tensor(w)
    if transposed:
        function = getattr(torch.nn.functional, f"conv_transpose{rank}d")
        more = spread(params["output_padding"], rank)
        out = function(*tensors, stride=strides, dilation=dilations, groups=params["groups"], output_padding=more)
        crop = tuple(slice(b, n - e) for b, e, n in zip(begins, ends, out.shape[2:], strict=True))
        return np.asarray(out.numpy()[(EVERY, EVERY, *crop)])
    function = getattr(torch.nn.functional, f"conv{rank}d")
    pads = [pad for begin, end in reversed(list(zip(begins, ends, strict=True))) for pad in (begin, end)]
    padded = torch.nn.functional.pad(tensors[0], pads)
    out = function(padded, tensors[1], stride=strides, dilation=dilations, groups=params["groups"])
    return np.asarray(out.numpy())


def convolution_judge(question: Question) -> Array:
    transposed = "transpose" in question.record.name
    x, w, *rest = (
        None if array is None else array.astype(object) if array.dtype.kind != "f" else array
        for array in question.doubles
    )
    assert x is not None
    assert w is not None
    params, last = dict(question.params), question.params["layout"] == "NHWC"
    x = np.moveaxis(x, -1, 1) if last else x
    if x.dtype == np.float64 and x.size and w.size:
        out = by_torch(x, w, params, transposed=transposed)
    else:
        out = by_elements(x, w, params) if transposed else by_windows(x, w, params)
    if rest and rest[0] is not None:
        out = out + rest[0].reshape(-1, *[1] * (x.ndim - 2))
    out = np.moveaxis(out, 1, -1) if last else out
    acc = params["acc"]
    return out if acc is None or acc[0].kind == "float" else wrapped(out, acc[0]).astype(object)


NAMES = [f"{kind}{rank}d" for kind in ("conv", "conv_transpose") for rank in (1, 2, 3)]
JUDGES: dict[str, Judge] = dict.fromkeys(NAMES, convolution_judge)


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


# --- definitions by hand ----------------------------------------------------------------------------------------------


def test_padding_takes_no_part_whatever_the_weights() -> None:
    x, w = np.ones((1, 1, 3), np.float32), np.array([[[np.inf, 1, 1]]], np.float32)
    # The first window has its infinite weight on the padding: 1 + 1, not 0 * inf.
    assert apply("conv1d", x, w, pads=[1, 0]).tolist() == [[[2, np.inf]]]


def test_one_pad_on_each_side_of_one_axis_may_differ() -> None:
    x, w = np.array([[[1, 2, 3]]], np.float32), np.ones((1, 1, 2), np.float32)
    assert apply("conv1d", x, w, pads=[0, 1]).tolist() == [[[3, 5, 3]]]
    assert apply("conv1d", x, w, pads=[1]).tolist() == [[[1, 3, 5, 3]]]


def test_large_windows_are_computed_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=(2, 4, 9, 8)).astype(np.float32), rng.normal(size=(6, 2, 3, 3)).astype(np.float32)
    unfolded = apply("conv2d", x, w, pads=1, strides=2, groups=2)
    monkeypatch.setattr("openinfer.ops.convolution.LARGEST_COLUMNS", 0)
    np.testing.assert_allclose(apply("conv2d", x, w, pads=1, strides=2, groups=2), unfolded, atol=1e-5)


def test_integers_widen_into_the_accumulator() -> None:
    x, w = np.full((1, 2, 3), 100, np.int8), np.full((1, 2, 2), 100, np.int8)
    bias = np.array([-1], np.int32)
    assert apply("conv1d", x, w, bias, acc="i32").tolist() == [[[39999, 39999]]]
    assert apply("conv1d", x, w).tolist() == [[[64, 64]]]


def test_output_padding_adds_elements_without_windows() -> None:
    x, w = np.ones((1, 1, 2), np.float32), np.ones((1, 1, 1), np.float32)
    assert apply("conv_transpose1d", x, w, strides=2, output_padding=1).tolist() == [[[1, 0, 1, 0]]]


def test_quantized_weights_stand_for_their_real_numbers() -> None:
    record, stored = OPS["conv1d"], DTYPES["i8"]
    quant = QuantParams("symmetric", QuantScale.per_channel(0, [0.5, 2]))
    types = (TensorType(DTYPES["f32"], (1, 1, 3)), TensorType(stored, (2, 1, 1), quant))
    call = infer(record, Call((*types, None), complete(record, {})))
    arrays = (np.array([[[1, 2, 3]]], np.float32), np.array([[[4]], [[-1]]], np.int8), None)
    (result,) = ReferenceKernel(record, call, (DTYPES["f32"], stored, None))(arrays)
    assert result.tolist() == [[[2, 4, 6], [-2, -4, -6]]]


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(name: str, *shapes: tuple[int, ...], **params: object) -> OpError:
    record = OPS[name]
    types = tuple(TensorType(DTYPES["f32"], shape) for shape in shapes)
    with pytest.raises(OpError) as caught:
        infer(record, Call(types, complete(record, params)))
    return caught.value


X, W = (1, 4, 5, 5), (6, 4, 3, 3)


@pytest.mark.parametrize(
    ("name", "shapes", "params", "message"),
    [
        ("conv2d", ((4, 5, 5), W), {}, "a convolution over 2 spatial axes takes 4 axes, not f32[4, 5, 5]"),
        ("conv1d", ((1, 4, 5), (6, 4)), {}, "a convolution over 1 spatial axis takes 3 axes, not f32[6, 4]"),
        ("conv2d", (X, (6, 2, 3, 3)), {}, "f32[1, 4, 5, 5] has 4 channels, and f32[6, 2, 3, 3] is for others"),
        ("conv2d", (X, W), {"layout": "NHWC"}, "f32[1, 4, 5, 5] has 5 channels, and f32[6, 4, 3, 3] is for others"),
        ("conv2d", (X, (6, 4, 0, 3)), {}, "the window of f32[6, 4, 0, 3] is empty"),
        (
            "conv2d",
            (X, (6, 4, 3, 7)),
            {},
            "the window spans 7 elements, more than the 5 elements of f32[1, 4, 5, 5] with its padding",
        ),
        ("conv2d", (X, W, (4,)), {}, "the bias is f32[4], but f32[6, 4, 3, 3] makes 6 channels"),
        ("conv_transpose2d", (X, W), {}, "f32[1, 4, 5, 5] has 4 channels, and f32[6, 4, 3, 3] is for others"),
        (
            "conv_transpose1d",
            ((1, 1, 2), (1, 1, 2)),
            {"pads": 2},
            "the padding is more than f32[1, 1, 2] expands to: [-1]",
        ),
    ],
)
def test_refuses_shapes(name: str, shapes: tuple[tuple[int, ...], ...], params: dict[str, Any], message: str) -> None:
    error = refusal(name, *shapes, **params)
    assert (error.code, error.message) == (Code.SHAPE_MISMATCH, message)


@pytest.mark.parametrize(
    ("params", "at", "message"),
    [
        ({"groups": 0}, "groups", "'groups' is at least 1, not 0"),
        ({"groups": 3}, "groups", "the channels of f32[1, 4, 5, 5] and f32[6, 4, 3, 3] do not divide into 3 groups"),
        ({"strides": 0}, "strides", "the elements of 'strides' are at least 1"),
        ({"strides": (1, 1, 1)}, "strides", "'strides' has 3 elements, but there are 2 spatial axes"),
        ({"dilations": -1}, "dilations", "the elements of 'dilations' are at least 1"),
        ({"pads": -1}, "pads", "the elements of 'pads' are at least 0"),
        ({"pads": (1, 1, 1)}, "pads", "'pads' has 3 elements, but there are 2 spatial axes"),
        ({"pads": ()}, "pads", "'pads' has 0 elements, but there are 2 spatial axes"),
    ],
)
def test_refuses_parameters(params: dict[str, Any], at: str, message: str) -> None:
    error = refusal("conv2d", X, W, **params)
    assert (error.code, error.at, error.message) == (Code.BAD_PARAMETER, at, message)


def test_output_padding_stays_below_the_stride() -> None:
    error = refusal("conv_transpose2d", X, (4, 2, 3, 3), strides=2, output_padding=2)
    assert (error.code, error.at) == (Code.BAD_PARAMETER, "output_padding")
    assert error.message == "'output_padding' is less than the stride or the dilation, not 2"


def test_a_bias_of_another_dtype_is_refused() -> None:
    record = OPS["conv1d"]
    kinds = (("f16", (1, 1, 3)), ("f16", (1, 1, 1)), ("f32", (1,)))
    types = tuple(TensorType(DTYPES[name], shape) for name, shape in kinds)
    with pytest.raises(OpError, match=r"the bias is f16 here, not f32\[1\]") as caught:
        infer(record, Call(types, complete(record, {})))
    assert caught.value.code is Code.WRONG_DTYPE


def test_the_cost_of_a_convolution() -> None:
    record = OPS["conv2d"]
    types = (TensorType(DTYPES["f32"], X), TensorType(DTYPES["f32"], (6, 2, 3, 3)))
    cost = record.cost(infer(record, Call(types, complete(record, {"groups": 2}))))
    assert cost.flops == 2 * 6 * 3 * 3 * 2 * 9
