"""Patterns that exporters write out become one op, with the same results; ``idioms=False`` leaves them as they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.importing.models import model, node, require_agreement

RNG = np.random.default_rng(11)
F = np.float32


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F)


def chain(*specs: tuple[str, list[str], str]) -> list[Any]:
    return [node(kind, inputs, [output]) for kind, inputs, output in specs]


LAYER_NORM = [
    node("ReduceMean", ["x"], ["m"], axes=[-1]),
    *chain(("Sub", ["x", "m"], "d"), ("Sub", ["x", "m"], "d2"), ("Pow", ["d2", "two"], "q")),
    node("ReduceMean", ["q"], ["v"], axes=[-1]),
    *chain(("Add", ["v", "eps"], "e"), ("Sqrt", ["e"], "s"), ("Div", ["d", "s"], "n")),
    *chain(("Mul", ["n", "gamma"], "g"), ("Add", ["g", "beta"], "y")),
]
RMS_NORM = [
    *chain(("Pow", ["x", "two"], "q")),
    node("ReduceMean", ["q"], ["v"], axes=[-1]),
    *chain(("Add", ["v", "eps"], "e"), ("Sqrt", ["e"], "s"), ("Reciprocal", ["s"], "r"), ("Mul", ["x", "r"], "n")),
    *chain(("Mul", ["gamma", "n"], "y")),
]
GELU = chain(
    ("Div", ["x", "root2"], "a"),
    ("Erf", ["a"], "b"),
    ("Add", ["b", "one"], "c"),
    ("Mul", ["x", "c"], "d"),
    ("Mul", ["d", "half"], "y"),
)
GELU_FIRST = chain(
    ("Mul", ["x", "half"], "h"),
    ("Div", ["x", "root2"], "a"),
    ("Erf", ["a"], "b"),
    ("Add", ["one", "b"], "c"),
    ("Mul", ["h", "c"], "y"),
)
GELU_TANH = chain(
    *(
        ("Pow", ["x", "three"], "a"),
        ("Mul", ["a", "small"], "b"),
        ("Add", ["x", "b"], "c"),
        ("Mul", ["c", "outer"], "d"),
    ),
    *(("Tanh", ["d"], "e"), ("Add", ["e", "one"], "f"), ("Mul", ["x", "half"], "g"), ("Mul", ["g", "f"], "y")),
)
SILU = chain(("Sigmoid", ["x"], "a"), ("Mul", ["x", "a"], "y"))
HARD_SWISH = [
    *chain(("Add", ["x", "three"], "a"), ("Clip", ["a", "zero", "six"], "b"), ("Div", ["b", "six"], "c")),
    *chain(("Mul", ["x", "c"], "y")),
]
LINEAR = chain(("MatMul", ["x", "w"], "a"), ("Add", ["bias", "a"], "y"))
NUMBERS = {
    "two": F(2),
    "eps": F(1e-5),
    "root2": F(2**0.5),
    "one": F(1),
    "half": F(0.5),
    "three": F(3),
    "zero": F(0),
    "six": F(6),
    "small": F(0.044715),
    "outer": F((2 / np.pi) ** 0.5),
    "gamma": normal(6),
    "beta": normal(6),
    "w": normal(6, 6),
    "bias": normal(6),
}


@pytest.mark.parametrize(
    ("nodes", "op"),
    [
        (LAYER_NORM, "op layer_norm(x, gamma, beta) >> y;"),
        (RMS_NORM, "op rms_norm(x, gamma) >> y;"),
        (GELU, "op gelu(x) >> y;"),
        (GELU_FIRST, "op gelu(x) >> y;"),
        (GELU_TANH, 'op gelu(x, approximate="tanh") >> y;'),
        (SILU, "op silu(x) >> y;"),
        (HARD_SWISH, "op hard_swish(x) >> y;"),
        (LINEAR, "op linear(x, w, bias) >> y;"),
    ],
)
def test_a_pattern_is_one_op(tmp_path: Path, nodes: list[Any], op: str) -> None:
    made = model(nodes, {"x": ("f32", [2, 5, 6])}, {"y": ("f32", None)}, NUMBERS)
    feeds = {"x": normal(2, 5, 6)}
    found = require_agreement(made, tmp_path, feeds, 1e-4)
    assert op in found
    assert found.count("op ") == 1
    assert require_agreement(made, tmp_path, feeds, 1e-4, idioms=False).count("op ") > 1


def test_a_pattern_whose_parts_are_read_elsewhere_stays(tmp_path: Path) -> None:
    made = model(SILU, {"x": ("f32", [4])}, {"y": ("f32", None), "a": ("f32", None)})
    assert "silu" not in require_agreement(made, tmp_path, {"x": normal(4)})


def test_a_norm_with_other_numbers_is_none(tmp_path: Path) -> None:
    made = model(GELU, {"x": ("f32", [4])}, {"y": ("f32", None)}, {**NUMBERS, "half": F(0.4)})
    assert "gelu" not in require_agreement(made, tmp_path, {"x": normal(4)})


@pytest.mark.parametrize(
    ("kind", "number", "stays"),
    [
        ("Mul", 1, False),
        ("Div", 1, False),
        ("Sub", 0, False),
        ("Add", 0, False),
        ("BitwiseAnd", 1, True),
        ("Mul", 2, True),
    ],
)
def test_an_op_that_changes_nothing_is_left_out(tmp_path: Path, kind: str, number: int, stays: bool) -> None:
    made = model(
        [node(kind, ["x", "n"], ["a"]), node("Neg", ["a"], ["y"])],
        {"x": ("i32", [3])},
        {"y": ("i32", None)},
        {"n": np.int32(number)},
        opset=18,
    )
    found = require_agreement(made, tmp_path, {"x": np.array([5, -6, 7], np.int32)})
    assert found.count("op ") == (2 if stays else 1)


def attention(mask: bool) -> Any:
    nodes = [
        node("Transpose", ["q"], ["qt"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v"], ["vt"], perm=[0, 2, 1, 3]),
        *chain(("MatMul", ["qt", "kt"], "s"), ("Div", ["s", "root"], "d")),
        *(chain(("Add", ["d", "mask"], "e")) if mask else []),
        node("Softmax", ["e" if mask else "d"], ["p"], axis=-1),
        node("MatMul", ["p", "vt"], ["y"]),
    ]
    inputs: dict[str, Any] = {name: ("f32", [1, "T", 2, 4]) for name in "qkv"}
    if mask:
        inputs["mask"] = ("f32", [1, 1, 1, "T"])
    return model(nodes, inputs, {"y": ("f32", None)}, {"root": F(2)})


@pytest.mark.parametrize("mask", [True, False])
def test_written_out_attention_is_sdpa(tmp_path: Path, mask: bool) -> None:
    feeds = {name: normal(1, 5, 2, 4) for name in "qkv"}
    if mask:
        feeds["mask"] = np.array([0, 0, -1e9, 0, 0], F).reshape(1, 1, 1, 5)
    found = require_agreement(attention(mask), tmp_path, feeds, 1e-4, sizes={"T": "<=8"})
    assert "op sdpa(" in found
    assert "softmax" not in found


def test_attention_as_dynamo_exports_it_is_sdpa(tmp_path: Path) -> None:
    """Both factors scaled, keys transposed in three dimensions, rows without a key guarded."""
    nodes = [
        node("Reshape", ["k", "flat"], ["k3"]),
        node("Transpose", ["k3"], ["kt"], perm=[0, 2, 1]),
        node("Reshape", ["kt", "heads"], ["k4"]),
        *chain(("Mul", ["q", "root"], "qs"), ("Mul", ["k4", "root"], "ks"), ("MatMul", ["qs", "ks"], "s")),
        *chain(("Add", ["s", "mask"], "m")),
        node("Softmax", ["m"], ["p"], axis=-1),
        *chain(("IsNaN", ["p"], "n"), ("Where", ["n", "zero", "p"], "w"), ("MatMul", ["w", "v"], "y")),
    ]
    inputs: dict[str, Any] = {name: ("f32", [1, 2, 5, 4]) for name in "qkv"}
    numbers = {"root": F(2**-0.5), "zero": F(0), "flat": np.array([2, 5, 4]), "heads": np.array([1, 2, 4, 5])}
    made = model(nodes, {**inputs, "mask": ("f32", [1, 1, 5, 5])}, {"y": ("f32", None)}, numbers)
    mask = np.where(np.tri(5, k=-1) > 0, 0, -np.inf).astype(F).reshape(1, 1, 5, 5)
    found = require_agreement(made, tmp_path, {**{name: normal(1, 2, 5, 4) for name in "qkv"}, "mask": mask}, 1e-4)
    assert "op sdpa(q, k, v, mask) >> y;" in found


def test_a_rotary_embedding_is_rope(tmp_path: Path) -> None:
    nodes = [
        *chain(("Mul", ["angles", "one"], "a")),
        node("Concat", ["a", "a"], ["twice"], axis=-1),
        *chain(("Cos", ["twice"], "cos"), ("Sin", ["twice"], "sin"), ("Mul", ["x", "cos"], "plain")),
        node("Slice", ["x", "zero", "half", "last"], ["low"]),
        node("Slice", ["x", "half", "far", "last"], ["high"]),
        *chain(("Neg", ["high"], "minus")),
        node("Concat", ["minus", "low"], ["turned"], axis=-1),
        *chain(("Mul", ["turned", "sin"], "rest"), ("Add", ["plain", "rest"], "y")),
    ]
    numbers = {
        "one": F(1),
        "zero": np.array([0]),
        "half": np.array([3]),
        "far": np.array([1 << 62]),
        "last": np.array([3]),
    }
    made = model(nodes, {"x": ("f32", [1, 2, 5, 6]), "angles": ("f32", [5, 3])}, {"y": ("f32", None)}, numbers)
    found = require_agreement(made, tmp_path, {"x": normal(1, 2, 5, 6), "angles": normal(5, 3)}, 1e-4)
    assert "op rope_cached(" in found
    assert "neg" not in found


def test_a_batch_norm_behind_a_convolution_goes_into_its_weights(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["b"]),
        node("Relu", ["b"], ["y"]),
    ]
    weights = {name: normal(3) for name in ("gamma", "beta", "mean")}
    made = model(
        nodes,
        {"x": ("f32", [1, 2, 5, 5])},
        {"y": ("f32", None)},
        {"w": normal(3, 2, 3, 3), "var": abs(normal(3)), **weights},
    )
    found = require_agreement(made, tmp_path, {"x": normal(1, 2, 5, 5)}, 1e-4)
    assert found.count("op ") == 2
    assert "batch_norm" not in found
