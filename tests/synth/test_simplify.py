"""Simplifying: what is computed once, beforehand or not at all, and what must not be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.flags import QUICK

from openinfer import ModelLoader, Simulator, graph
from openinfer.oinf import save_file
from openinfer.synth.passes.simplify import Simplify
from openinfer.synth.program.ir import FOLDED, KernelStep, steps_in
from openinfer.synth.targets.target import Passes

ALONE = Passes(fuse=None)
HEAD = """
dynamic { x: f32[4]; go: bool; }
volatile { y: f32[4]; z: f32[4]; }
persistent { p: f32[4] @init(1.0); K(t): f32[4] @table @fixed(t=4); }
"""


def kernels(text: str, model: ModelLoader | None = None, passes: Passes = ALONE) -> list[str]:
    program = planned(text, model, "generic", passes=passes).project.program
    steps = [step for block in program.blocks.values() for step in steps_in(block)]
    return [step.kernel.name for step in steps if isinstance(step, KernelStep)]


# --- the same twice ---------------------------------------------------------------------------------------------------

SHARED = {
    "in one block": "op square(x) >> y; op square(x) >> z;",
    "of shared operands": "op neg(x) >> y; op square(y) >> y; op neg(x) >> z; op square(z) >> z;",
    "after something else was written": "op square(x) >> y; op abs(x) >> p; op square(x) >> z;",
    "across a branch, of an input": "op square(x) >> y; branch go other other; op square(x) >> z;",
}
NOT_SHARED = {
    "across a barrier": "op square(x) >> y; barrier; op square(x) >> z;",
    "past a node that says no_reorder": (
        "op square(x) >> y; op abs(p) >> p with { no_reorder = true }; op square(x) >> z;"
    ),
    "of a node that says no_reorder": "op square(x) >> y; op square(x) >> z with { no_reorder = true };",
    "between nodes that a dep orders": "op square(x) >> y; dep after(square) before(square); op square(x) >> z;",
    "of a node that says fuse = false": "op square(x) >> y; op square(x) >> z with { fuse = false };",
    "of nodes in two groups": 'op square(x) >> y with { group = "a" }; op square(x) >> z with { group = "b" };',
    "of a variable that a branch changes": "op square(p) >> y; branch go other other; op square(p) >> z;",
    "of a variable that a loop changes": (
        "op square(p) >> y; loop l (i in 0..2) { op add(p, x) >> p; } op square(p) >> z;"
    ),
    "of another operand": "op square(x) >> y; op square(p) >> z;",
    "with another parameter": "op clamp(x, max=1.0) >> y; op clamp(x, max=2.0) >> z;",
}
REST = " return y, z; } block other { op add(p, x) >> p; return; }"


def twin(text: str) -> int:
    """How many kernels of the op that occurs twice are left."""
    name = "clamp" if "clamp" in text else "square"
    return sum(one == name for one in kernels(f"{HEAD} block entry {{ {text} {REST}"))


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED.keys())
def test_the_same_op_on_the_same_operands_is_computed_once(text: str) -> None:
    assert twin(text) == 1
    agree(f"{HEAD} block entry {{ {text} {REST}", inputs=given, flags=QUICK)


@pytest.mark.parametrize("text", NOT_SHARED.values(), ids=NOT_SHARED.keys())
def test_ops_that_differ_or_must_not_meet_are_computed_each(text: str) -> None:
    assert twin(text) == 2


def given(step: int) -> dict[str, Any]:
    return {"x": np.linspace(-1, 1 + step, 4, dtype=np.float32), "go": step % 2 == 0}


def test_what_changed_in_between_is_computed_again() -> None:
    for text in ("of a variable that a branch changes", "of a variable that a loop changes"):
        agree(f"{HEAD} block entry {{ {NOT_SHARED[text]} {REST}", inputs=given, flags=QUICK)


def test_one_value_can_be_two_outputs() -> None:
    module = agree(f"{HEAD} block entry {{ {SHARED['in one block']} {REST}", inputs=given, flags=QUICK)
    assert np.array_equal(module.fetch("y"), module.fetch("z"))


def test_what_nobody_reads_is_left_out_unless_nodes_are_to_be_kept() -> None:
    text = """dynamic { x: f32[4]; } volatile { y: f32[4]; z: f32[4]; }
    block entry { op square(x) >> z; op neg(x) >> y; return y; }"""
    assert kernels(text) == ["neg"]
    assert kernels(text, passes=Passes(Simplify(drop=False), fuse=None)) == ["square", "neg"]
    assert kernels(text, passes=Passes(simplify=None, fuse=None)) == ["square", "neg"]


EMPTY = """
dynamic { x: f32[0, 4]; }
volatile { y: f32[4]; z: f32[0, 4]; }
block entry {
    assign h: f32[0, 4];
    op square(x) >> h;
    op neg(h) >> z;
    op sum_axis(h, axis=0) >> y;
    return y;
}
"""


def test_what_is_empty_is_not_computed() -> None:
    assert kernels(EMPTY) == ["sum_axis"]
    assert kernels(EMPTY, passes=Passes(Simplify(drop=False), fuse=None)) == ["square", "neg", "sum_axis"]
    module = agree(EMPTY, inputs=lambda _step: {"x": np.zeros((0, 4), np.float32)}, flags=QUICK)
    assert module.fetch("y").tolist() == [0, 0, 0, 0]


# --- beforehand -------------------------------------------------------------------------------------------------------

CONSTANT = """
dynamic {{ x: f32[3, 5]; }}
constant {{ w: f32[7, 5]; s: f32[7, 1]; q: i8[4096]; }}
volatile {{ y: f32[3, 7]; z: f32[7, 5]; big: f32[4096]; }}
block entry {{
    assign a: f32[7, 5];
    assign b: f32[5, 7];
    {}
}}
"""
FOLDING = CONSTANT.format("op mul(w, s) >> a; op transpose(a) >> b; op matmul(x, b) >> y; return y;")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path = tmp_path_factory.mktemp("folding") / "m.oinf"
    rng = np.random.default_rng(5)
    tensors = {"w": rng.normal(size=(7, 5)), "s": rng.normal(size=(7, 1))}
    whole = rng.integers(-128, 128, 4096, dtype=np.int8)
    save_file(path, {**{name: one.astype(np.float32) for name, one in tensors.items()}, "q": whole})
    return ModelLoader.open(path)


def test_ops_on_model_tensors_alone_are_computed_beforehand(model: ModelLoader) -> None:
    assert kernels(FOLDING, model, Passes(Simplify(fold=False), fuse=None)) == ["mul", "transpose", "matmul"]
    assert kernels(FOLDING, model) == ["matmul"]
    plan = planned(FOLDING, model, "generic")
    assert [(one["tensor"], one["part"]) for one in plan.facts()["weights"]] == [("node 3", FOLDED)]
    assert kernels(FOLDING, model, Passes(simplify=None, fuse=None)) == ["mul", "transpose", "matmul"]


def test_what_is_computed_beforehand_is_what_the_simulator_computes(model: ModelLoader) -> None:
    text = CONSTANT.format("op exp(w) >> a; op add(a, s) >> a; op tanh(a) >> z; return z;")
    plan = planned(text, model, "generic")
    executor = Simulator(model).make_executor(graph(text))
    executor.insert(x=np.zeros((3, 5), np.float32))
    executor.run_step()
    module = plan.build(flags=QUICK)
    module.insert(x=np.zeros((3, 5), np.float32))
    module.run_step()
    # The last op gives an output, which is no tensor of the model, and is computed in the step.
    assert kernels(text, model) == ["tanh"]
    folded = plan.project.program.folded["node 3"].to_numpy()
    assert folded.tobytes() == executor.fetch("a").tobytes()
    assert np.allclose(module.fetch("z"), executor.fetch("z"), rtol=0, atol=1e-6)


def test_results_that_are_larger_than_their_operands_are_not_stored(model: ModelLoader) -> None:
    text = CONSTANT.format("assign f: f32[4096]; op cast(q, to=f32) >> f; op neg(f) >> big; return big;")
    assert kernels(text, model) == ["cast", "neg"]


def test_an_op_that_has_no_result_still_fails_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "zero.oinf"
    save_file(path, {"a": np.ones(4, np.int32), "b": np.zeros(4, np.int32)})
    text = """constant { a: i32[4]; b: i32[4]; } volatile { y: i32[4]; } block entry {
        assign d: i32[4]; op div(a, b) >> d; op neg(d) >> y; return y; }"""
    model = ModelLoader.open(path)
    assert "div" in kernels(text, model)
    agree(text, model, steps=1, flags=QUICK)


def test_tables_and_branches_read_values_that_are_not_stored(model: ModelLoader) -> None:
    text = """constant { w: f32[7, 5]; } volatile { y: f32[7, 5]; b: bool; }
    persistent { K(t): f32[7, 5] @table @fixed(t=2); }
    block entry { assign a: f32[7, 5]; op neg(w) >> a; cache.write a >> K[0]; op is_finite(w) >> b;
        branch b good good; cache.read K[0] >> y; return y; }
    block good { cache.write w >> K[1]; return; }"""
    assert kernels(text, model) == ["neg", "is_finite"]
    agree(text, model, flags=QUICK)


# --- batch norms ------------------------------------------------------------------------------------------------------

NORM = """dynamic { x: f32[2, 3, 4]; } constant { g: f32[3]; b: f32[3]; m: f32[3]; v: f32[3]; }
volatile { y: f32[2, 3, 4]; } block entry { op batch_norm(x, g, b, m, v) >> y; return y; }"""


def statistics(path: Path, **others: Any) -> ModelLoader:
    given = {"g": [1.5, -2.0, 0.25], "b": [0.5, 0.0, 3.0], "m": [1.0, -4.0, 0.0], "v": [0.3, 2.0, 1e-3]} | others
    save_file(path, {name: np.array(one, np.float32) for name, one in given.items()})
    return ModelLoader.open(path)


def inputs_of(text: str, model: ModelLoader | None, passes: Passes | None = None) -> list[str]:
    steps = planned(text, model, "generic", passes=passes).project.program.steps()
    return [buffer.name for step in steps if isinstance(step, KernelStep) for buffer in step.kernel.inputs]


def test_a_batch_norm_with_statistics_of_the_model_is_a_product_and_a_sum_within_its_bound(tmp_path: Path) -> None:
    model = statistics(tmp_path / "m.oinf")
    assert inputs_of(NORM, model) == ["x", "a", "b"]
    x = np.random.default_rng(3).normal(size=(2, 3, 4)).astype(np.float32)
    found = planned(NORM, model, "generic").build(flags=QUICK)(x=x)
    g, b, m, v = (model.load(name).to_numpy().astype(np.float64)[None, :, None] for name in "gbmv")
    wanted = (x - m) / np.sqrt(v + 1e-5) * g + b
    magnitude = (np.abs(x) + np.abs(m)) * np.abs(g / np.sqrt(v + 1e-5)) + np.abs(b)
    assert np.all(np.abs(found - wanted) <= 10 * 2.0**-24 * magnitude)


def test_a_batch_norm_keeps_its_form_without_factors_or_without_the_pass(tmp_path: Path) -> None:
    usual = ["x", "gamma", "beta", "mean", "var"]
    without_eps = NORM.replace("g, b, m, v)", "g, b, m, v, eps=0.0)")
    assert inputs_of(without_eps, statistics(tmp_path / "zero.oinf", v=[0.0, 1.0, 1.0])) == usual
    assert inputs_of(NORM, statistics(tmp_path / "usual.oinf"), Passes(Simplify(norms=False))) == usual
    assert inputs_of(NORM.replace("} constant {", ""), None) == usual


def test_a_batch_norm_of_an_initial_value_is_one_of_other_operands(tmp_path: Path) -> None:
    """What fills its operand is a step of the same node."""
    text = NORM.replace("dynamic { x: f32[2, 3, 4]; }", "").replace("{ y:", "{ x: f32[2, 3, 4] @init(1); y:")
    assert inputs_of(text, statistics(tmp_path / "m.oinf")) == ["a", "b"]
