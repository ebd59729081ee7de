"""Repeated layers become one loop with prefix tables, and compute what they computed one after the other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.importing.models import imported, model, node, require_agreement, text
from tests.importing.test_states import require_steps

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32) / 3


def layered(count: int, width: int = 8, collects: bool = False) -> Any:
    """Layers with a residual path, each with weights of its own; a mask that the first one computes for all."""
    nodes: list[Any] = []
    weights: dict[str, Any] = {}
    hidden = "x"
    for layer in range(count):
        name = f"net/layers.{layer}"
        weights |= {f"layers.{layer}.up.weight": normal(width, width), f"layers.{layer}.up.bias": normal(width)}
        weights |= {f"onnx::MatMul_{100 + 7 * layer}": normal(width, width)}
        steps = [
            ("MatMul", [hidden, f"layers.{layer}.up.weight"], "up/MatMul"),
            ("Add", [f"{name}/up/MatMul", f"layers.{layer}.up.bias"], "up/Add"),
            ("Sub", ["one", "mask"], "Sub"),
            ("Mul", [f"{name}/up/Add", f"{name}/Sub"], "Mul"),
            ("Tanh", [f"{name}/Mul"], "act/Tanh"),
            ("MatMul", [f"{name}/act/Tanh", f"onnx::MatMul_{100 + 7 * layer}"], "down/MatMul"),
            ("Add", [hidden, f"{name}/down/MatMul"], "Add_1"),
            ("Neg", [f"{name}/Add_1"], "Neg"),
            ("Exp", [f"{name}/Neg"], "Exp"),
            ("Max", [f"{name}/Exp", f"{name}/Add_1"], "Max"),
        ]
        nodes += [node(kind, inputs, [f"{name}/{out}"], name=f"/{name}/{out}") for kind, inputs, out in steps]
        hidden = f"{name}/Max"
    nodes.append(node("Relu", [hidden], ["y"]))
    outputs: dict[str, Any] = {"y": ("f32", None)}
    if collects:
        outputs |= {f"net/layers.{layer}/act/Tanh": ("f32", None) for layer in range(count)}
    inputs: dict[str, Any] = {"x": ("f32", ["T", width]), "mask": ("f32", ["T", width])}
    return model(nodes, inputs, outputs, {**weights, "one": np.float32(1)})


def feeds() -> dict[str, Any]:
    return {"x": normal(3, 8), "mask": np.zeros((3, 8), np.float32)}


@pytest.mark.parametrize("count", [3, 5])
def test_layers_are_one_loop_over_prefix_tables(tmp_path: Path, count: int) -> None:
    found = require_agreement(layered(count), tmp_path, feeds(), sizes={"T": "<=4"})
    assert f"loop layers (l in 0..{count}) {{" in found
    assert 'layers_up_bias(l): f32[8] @pattern("layers.{l}.up.bias");' in found
    assert 'net_layers_down_weight(l): f32[8, 8] @pattern("net.layers.{l}.down.weight");' in found
    assert found.count("op tanh") == 1


def test_without_loops_layers_are_written_one_after_the_other(tmp_path: Path) -> None:
    found = require_agreement(layered(5), tmp_path, feeds(), sizes={"T": "<=4"}, loops=False)
    assert "loop" not in found
    assert found.count("op tanh") == 5


def test_what_every_layer_gives_is_collected(tmp_path: Path) -> None:
    found = require_agreement(layered(4, collects=True), tmp_path, feeds(), sizes={"T": 3})
    assert "loop layers (l in 0..4) {" in found
    assert found.count("op tanh") == 1


def test_layers_that_differ_are_not_joined(tmp_path: Path) -> None:
    made = layered(3)
    next(one for one in made.graph.node if one.name == "/net/layers.1/act/Tanh").op_type = "Sigmoid"
    found = require_agreement(made, tmp_path, feeds(), sizes={"T": "<=4"})
    assert "loop" not in found


def test_a_layer_that_reads_two_layers_back_is_not_in_a_loop(tmp_path: Path) -> None:
    made = layered(4)
    for layer in (2, 3):
        add = next(one for one in made.graph.node if one.name == f"/net/layers.{layer}/Add_1")
        add.input[0] = f"net/layers.{layer - 2}/Max"
    require_agreement(made, tmp_path, feeds(), sizes={"T": "<=4"})


def caches(count: int) -> Any:
    """Layers with a cache each."""
    nodes: list[Any] = []
    hidden = "x"
    inputs: dict[str, Any] = {"x": ("f32", ["now", 4])}
    outputs: dict[str, Any] = {"y": ("f32", None)}
    weights: dict[str, Any] = {}
    for layer in range(count):
        weights[f"layers.{layer}.w"] = normal(4, 4)
        nodes += [
            node("MatMul", [hidden, f"layers.{layer}.w"], [f"k{layer}"]),
            node("Concat", [f"past.{layer}", f"k{layer}"], [f"present.{layer}"], axis=0),
            node("ReduceMean", [f"present.{layer}"], [f"m{layer}"], axes=[0]),
            node("Tanh", [f"m{layer}"], [f"t{layer}"]),
            node("Exp", [f"t{layer}"], [f"e{layer}"]),
            node("Add", [hidden, f"e{layer}"], [f"h{layer}"]),
        ]
        hidden = f"h{layer}"
        inputs[f"past.{layer}"] = ("f32", ["past", 4])
        outputs[f"present.{layer}"] = ("f32", None)
    nodes.append(node("Relu", [hidden], ["y"]))
    return model(nodes, inputs, outputs, weights)


def test_caches_of_layers_are_one_table_with_an_index(tmp_path: Path) -> None:
    tied = {f"present.{layer}": f"past.{layer}" for layer in range(3)}
    found = require_steps(
        *(caches(3), tmp_path, [("present.*", "past.*")], tied, [normal(2, 4), normal(1, 4), normal(3, 4)]),
        sizes={"past": "<=8", "now": "<=4"},
    )
    assert "(l, t): f32[4] @table @fixed(l=3, t=12);" in text(found)
    assert text(found).count("cache.write") == 1
    assert len(set(found.states.values())) == 1


def test_inputs_of_layers_are_stacked(tmp_path: Path) -> None:
    nodes, hidden = [], "x"
    for layer in range(4):
        steps = (
            ("Mul", [hidden, f"s.{layer}"]),
            ("Tanh", [f"a{layer}"]),
            ("Exp", [f"b{layer}"]),
            ("Add", [hidden, f"c{layer}"]),
        )
        nodes += [node(kind, inputs, [f"{word}{layer}"]) for word, (kind, inputs) in zip("abcd", steps, strict=True)]
        hidden = f"d{layer}"
    given = {f"s.{layer}": normal(3) for layer in range(4)}
    inputs: dict[str, Any] = {"x": ("f32", [3]), **{name: ("f32", [3]) for name in given}}
    found = require_agreement(model(nodes, inputs, {hidden: ("f32", None)}), tmp_path, {"x": normal(3), **given})
    assert "loop layers (l in 0..4)" in found
    assert "op stack(s_0, s_1, s_2, s_3, axis=0)" in found


def test_names_are_those_of_modules(tmp_path: Path) -> None:
    found = text(imported(layered(4), tmp_path, sizes={"T": 2}))
    assert "up = op linear(" in found
    assert "act_tanh = op tanh(" in found


def test_zero_points_that_differ_from_layer_to_layer_are_tables_of_numbers(tmp_path: Path) -> None:
    """What 8 bits do not hold of a weight is a number; that it is 0 or 1 in a layer, or twice the same, is chance."""
    nodes: list[Any] = []
    weights: dict[str, Any] = {}
    hidden = "x"
    for layer, points in enumerate([(120, 118), (127, 118), (128, 110), (120, 120)]):
        name = f"/layers.{layer}"
        codes = [f"{name}/{word}" for word in ("codes", "scale", "point")]
        nodes.append(node("DynamicQuantizeLinear", [hidden], codes, name=f"{name}/quantize"))
        results = []
        for word, point in zip(("query", "value"), points, strict=True):
            own = f"{name}/{word}"
            stored = RNG.integers(0, 256, (8, 8)).astype(np.uint8)
            stored[0], stored[1] = 0, 255
            weights |= {f"{own}/w": stored, f"{own}/p": np.uint8(point), f"{own}/s": np.float32(0.001 * (layer + 1))}
            steps = [
                ("MatMulInteger", [codes[0], f"{own}/w", codes[2], f"{own}/p"], "MatMul"),
                ("Cast", [f"{own}/MatMul"], "Cast"),
                ("Mul", [codes[1], f"{own}/s"], "Mul"),
                ("Mul", [f"{own}/Cast", f"{own}/Mul"], "Mul_1"),
            ]
            for kind, inputs, out in steps:
                attributes: dict[str, Any] = {"to": 1} if kind == "Cast" else {}
                nodes.append(node(kind, inputs, [f"{own}/{out}"], name=f"{own}/{out}", **attributes))
            results.append(f"{own}/Mul_1")
        nodes.append(node("Tanh", [results[0]], [f"{name}/Tanh"], name=f"{name}/Tanh"))
        nodes.append(node("Add", [f"{name}/Tanh", results[1]], [f"{name}/Add"], name=f"{name}/Add"))
        hidden = f"{name}/Add"
    nodes.append(node("Relu", [hidden], ["y"]))
    made = model(nodes, {"x": ("f32", [3, 8])}, {"y": ("f32", None)}, weights)
    found = require_agreement(made, tmp_path, {"x": normal(3, 8)}, 1e-4)
    assert "loop layers (l in 0..4)" in found
    assert 'query_excess(l): i32 @pattern("layers.{l}.query.excess")' in found


@pytest.mark.parametrize("count", [3, 4])
def test_integers_that_layers_begin_with_may_be_a_sum_with_zero(tmp_path: Path, count: int) -> None:
    """The loop writes what the sum has declared, so it is no other name of its operand."""
    nodes = [node("Add", ["x", "zero"], ["first"])]
    weights: dict[str, Any] = {"zero": np.zeros(6, np.int32)}
    hidden = "first"
    for layer in range(count):
        name = f"/layers.{layer}"
        weights |= {f"layers.{layer}.{word}": RNG.integers(-9, 9, 6).astype(np.int32) for word in ("scale", "point")}
        for kind, others, out in (
            ("Mul", [f"layers.{layer}.scale"], "Mul"),
            ("Neg", [], "Neg"),
            ("Add", [f"layers.{layer}.point"], "Add"),
            ("Abs", [], "Abs"),
        ):
            nodes.append(node(kind, [hidden, *others], [f"{name}/{out}"], name=f"{name}/{out}"))
            hidden = f"{name}/{out}"
    nodes.append(node("Neg", [hidden], ["y"]))
    made = model(nodes, {"x": ("i32", [6])}, {"y": ("i32", None)}, weights)
    found = require_agreement(made, tmp_path, {"x": np.arange(6, dtype=np.int32)})
    assert f"loop layers (l in 0..{count})" in found
