"""Graphs cut into stages: one after the other they give what the whole graph gives, and each has a model of its own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import openinfer

from openinfer import ModelLoader, Simulator, graph
from openinfer.check import bind
from openinfer.errors import GraphError
from openinfer.oinf import save_file
from openinfer.stages import StageFolder, split, write_stages
from openinfer.stages.pipeline import needed_behind

LAYERS = """sizes { T <= 5; }
dynamic { x: f32[T, D]; flag: bool; k: i64; }
volatile { y: f32[T]; h: f32[T, D]; z: f32[D]; }
constant { W(l): f32[D, D] @pattern("W.{l}"); b: f32[D]; last: f32[D, D] @ref("head"); }
block entry {
    assign scratch: f32[T, D];
    scope "embed" { op add(x, b) >> h; t = op mul(h, 0.5); op sum_axis(h, axis=0) >> z; }
    loop layers (l in 0..layers) {
        op matmul(h, W[l]) >> scratch;
        op tanh(scratch) >> scratch;
        op add(h, scratch) >> h;
    }
    scope "gate" { branch flag twice once; }
    loop rounds (i in 0..k) { op add(h, 1) >> h; }
    scope "head" {
        op matmul(h, last) >> scratch;
        op add(scratch, t) >> scratch;
        op add(scratch, z) >> scratch;
        op sum_axis(scratch, axis=1) >> y;
    }
    return y, z;
}
block twice { op add(h, h) >> h; return; }
block once { op neg(h) >> h; return; }
"""
CUTS = ["layers", "layers[1]", "layers[3]", "gate", "rounds", "head"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("model") / "m.oinf"
    names = [*(f"W.{number}" for number in range(4)), "head"]
    tensors = {name: random.standard_normal((3, 3)).astype(np.float32) * 0.3 for name in names}
    save_file(
        path, {**tensors, "b": np.ones(3, np.float32), "unused": np.ones(100, np.float32)}, {"D": 3}, {"layers": 4}
    )
    return ModelLoader.open(path)


def inputs(length: int, *, flag: bool, k: int) -> dict[str, Any]:
    x = np.random.default_rng(length).standard_normal((length, 3)).astype(np.float32)
    return {"x": x, "flag": np.bool_(flag), "k": np.int64(k)}


def simulated(stages: StageFolder, given: Mapping[str, Any]) -> dict[str, Any]:
    """Stages one after the other, each by itself in the simulator."""
    values = dict(given)
    for stage, needed in zip(stages.stages, needed_behind(stages), strict=True):
        loader = None if stage.model is None else ModelLoader.open(stage.model)
        executor = Simulator(loader).make_executor(graph(Path(stage.graph).read_text()))
        executor.insert({name: values[name] for name in stage.awaits})
        executor.run_step()
        values |= {name: executor.fetch(name) for name in stage.yields}
        values = {name: values[name] for name in needed}
    return values


@pytest.mark.parametrize("cuts", [[one] for one in CUTS] + [CUTS, ["layers[1]", "head"], ["embed", "layers"]])
def test_stages_give_what_the_whole_graph_gives(model: ModelLoader, cuts: list[str], tmp_path: Path) -> None:
    bound = bind(graph(LAYERS), model)
    stages = write_stages(tmp_path, bound, split(bound, cuts))
    assert len(stages.stages) == len(cuts) + (cuts[0] != "embed")
    whole = Simulator(model).make_executor(graph(LAYERS))
    for given in (inputs(5, flag=True, k=2), inputs(1, flag=False, k=0), inputs(3, flag=True, k=1)):
        whole.insert(given)
        whole.run_step()
        found = simulated(stages, given)
        assert sorted(found) == ["y", "z"]
        for name in ("y", "z"):
            assert np.array_equal(found[name], whole.fetch(name)), name


def test_a_stage_has_the_tensors_that_it_reads(model: ModelLoader, tmp_path: Path) -> None:
    bound = bind(graph(LAYERS), model)
    stages = write_stages(tmp_path, bound, split(bound, ["layers[1]", "layers[3]", "gate"]))
    found = [sorted(ModelLoader.open(one.model).tensors) for one in stages.stages if one.model is not None]
    assert found == [["W.0", "b"], ["W.1", "W.2"], ["W.3"], ["head"]]


def test_values_pass_by_stages_that_do_not_need_them(model: ModelLoader) -> None:
    first, second, third = split(bind(graph(LAYERS), model), ["layers[2]", "head"])
    assert {"t", "z"} <= set(first.yields)
    assert {"t", "z"} <= set(second.carried)
    assert not {"t", "z", "scratch"} & set(second.awaits)
    assert "t" in third.awaits
    assert "scratch" not in third.awaits, "what is written before it is read is a stage's own"


DECODER = """persistent { pos: i64; seen(l, p): f32[2] @table; total: f32[2]; }
dynamic { x: f32[2]; }
volatile { y: f32[2]; }
block entry {
    scope "in" { op add(total, x) >> total; op add(total, 0) >> y; }
    loop layers (l in 0..3) {
        cache.write y >> seen[l, pos];
        loop back (p in 0..pos + 1) { op add(y, seen[l, p]) >> y; }
    }
    scope "out" { op mul(y, 2) >> y; }
    cache.increment pos;
    return y;
}"""


@pytest.mark.parametrize("cuts", [["layers"], ["layers[1]"], ["layers[1]", "layers[2]", "out"]])
def test_counters_are_counted_and_tables_divided_by_the_loop_that_is_cut(cuts: list[str], tmp_path: Path) -> None:
    bound = bind(graph(DECODER))
    stages = write_stages(tmp_path, bound, split(bound, cuts))
    whole = Simulator().make_executor(graph(DECODER))
    executors = [Simulator().make_executor(graph(Path(one.graph).read_text())) for one in stages.stages]
    for number in range(4):
        given = {"x": np.array([number, 1.0], np.float32)}
        values: dict[str, Any] = dict(given)
        for stage, executor in zip(stages.stages, executors, strict=True):
            executor.insert({name: values[name] for name in stage.awaits})
            executor.run_step()
            values |= {name: executor.fetch(name) for name in stage.yields}
        whole.insert(given)
        whole.run_step()
        assert np.array_equal(values["y"], whole.fetch("y")), number


@pytest.mark.parametrize(
    ("text", "cuts", "said"),
    [
        (LAYERS, [], "no cut"),
        (LAYERS, ["nowhere"], "no scope or loop 'nowhere'"),
        (LAYERS, ["head", "gate"], "gate"),
        (LAYERS, ["layers[0]"], "runs from 0 to 4"),
        (LAYERS, ["layers[4]"], "runs from 0 to 4"),
        (LAYERS, ["layers[x]"], "cannot cut at"),
        (LAYERS, ["rounds[1]"], "not known before a step"),
        (DECODER.replace('scope "out" { op', 'scope "out" { op add(y, total) >> y; op'), ["out"], "'total'"),
        (DECODER.replace("seen[l, p]", "seen[2-l, p]"), ["layers[1]"], "'seen'"),
    ],
)
def test_what_cannot_be_cut_is_refused(model: ModelLoader, text: str, cuts: list[str], said: str) -> None:
    with pytest.raises(GraphError) as caught:
        split(bind(graph(text), model if text is LAYERS else None), cuts)
    assert caught.value.code == "E911"
    assert said in caught.value.diagnostics[0].message


def test_blocks_that_run_beside_entry_are_not_cut() -> None:
    text = """dynamic { x: f32; } block entry { scope "a" { op add(x, 1) >> x; } yield x; await x; return x; }
    block side { await x; op add(x, 1) >> x; yield x; }"""
    with pytest.raises(GraphError, match="E911"):
        split(bind(graph(text)), ["a"])


def test_the_command_writes_a_folder_for_each_stage(model: ModelLoader, tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_text(LAYERS)
    command = ("split", str(tmp_path / "g.oig"), "--model", str(model.path), "--at", "head")
    done = openinfer(*command, "-o", str(tmp_path / "stages"))
    assert done.out.endswith(f"2 stages: {tmp_path / 'stages'}\n"), done.err
    assert StageFolder.load(tmp_path / "stages").outputs == ("y", "z")
    refused = openinfer(*command, "--at", "nowhere", "-o", str(tmp_path / "other"), "--json")
    assert json.loads(refused.out)["diagnostics"][0]["code"] == "E911"
    assert not (tmp_path / "other").exists()


def test_a_folder_of_stages_is_checked(tmp_path: Path) -> None:
    for text in ("", "[]", json.dumps({"inputs": [], "outputs": [], "stages": [{"folder": "../x"}]})):
        (tmp_path / "stages.json").write_text(text)
        with pytest.raises(GraphError, match="E911"):
            StageFolder.load(tmp_path)


def test_a_scope_with_brackets_in_its_name_is_a_place_to_cut_at() -> None:
    text = """dynamic { x: f32[2]; } block entry { scope "a" { op add(x, 1) >> x; } scope "b[3]" { op mul(x, 2) >> x; }
    return x; }"""
    assert [one.name for one in split(bind(graph(text)), ["b[3]"])] == ["start", "b[3]"]
