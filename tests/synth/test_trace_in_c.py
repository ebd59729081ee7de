"""Traces of compiled code: the simulator's nodes with the simulator's values, and what is said where there are none."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import openinfer
from tests.differential.exact_graphs import model_of, random_case
from tests.synth.both_ways import planned
from tests.synth.flags import QUICK

from openinfer import Code, ModelLoader, Simulator, graph
from openinfer.errors import ExecutionError, OpenInferError
from openinfer.oinf import save_file
from openinfer.sim.compare import TraceComparison, compare, read_trace
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.targets.target import NODE_BY_NODE, Passes

BRANCHES = """
dynamic { x: i32[4]; go: bool; }
volatile { y: i32[4]; z: i32[4]; }
persistent { p: i32[4] @init(3); n: i32 @init(0); }
block entry {
    assign a: i32[4];
    op add(x, p) >> a;
    op mul(a, a) >> y;
    op neg(x) >> z;
    transfer y >> z;
    branch go good bad;
    op add(y, p) >> y;
    cache.increment n;
    branch always;
    return y;
}
block good { op add(p, y) >> p; return; }
block bad { branch always; op sub(p, y) >> p; return; }
block always { scope "inner" { op max(p, x) >> p; } return; }
"""
LOOPS = """
sizes { T <= 8; }
dynamic { x: i32[T, 4]; }
constant { W(l): i32[4, 4] @pattern("W.{l}"); b: i32[4]; }
volatile { y: i32[T, 4]; s: i32[T]; }
persistent { step: i32 @init(0); K(l, t): i32[4] @table @fixed(l=3, t=16); A(i): i32[2] @auto_dim(i) @fixed(i=9); }
block entry {
    assign h: i32[T, 4];
    assign r: i32[4];
    transfer x >> h;
    loop layers (l in 0..3) {
        op matmul(h, W[l]) >> h;
        op add(h, b) >> h;
        loop twice (k in 0..l) { op neg(h) >> h; }
        op sum_axis(h, axis=0) >> r;
        cache.write r >> K[l, step];
    }
    cache.read K[1, step] >> r;
    op add(h, r) >> y;
    op sum_axis(y, axis=1) >> s;
    cache.reset K[2];
    cache.increment step;
    barrier;
    return y, s;
}
"""
HAND_OVER = """
dynamic { x: i32[8]; go: bool; }
volatile { a: i32[8]; b: i32[8]; y: i32[8]; }
persistent { seen: i32[8] @init(0); }
block entry {
    transfer x >> a;
    op neg(x) >> b;
    yield a, b;
    await a, b;
    op add(a, b) >> y;
    branch go late late;
    return y;
}
block one { await a; op mul(a, a) >> a; op neg(a) >> a; yield a; }
block two { await b; op abs(b) >> b; yield b; }
block late { op neg(x) >> seen; return; }
"""
RESULTS = """
dynamic { x: i32[6]; }
volatile { v: i32[3]; i: i64[3]; y: i32[3]; q: i4[3]; }
persistent { K(t): i32[3] @table @fixed(t=4); }
block entry {
    assign w: i32[2, 3];
    op topk(x, k=3) >> v, i;
    op neg(v) >> y;
    op cast(y, to=i4) >> q;
    op sub(v, y) >> K[1];
    cache.read K[0..2] >> w;
    return y, q;
}
"""


def whole(step: int) -> dict[str, Any]:
    return {"x": np.arange(-2 + step, 2 + step, dtype=np.int32), "go": step % 2 == 0}


GRAPHS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "branches": (BRANCHES, whole),
    "loops and tables": (LOOPS, lambda step: {"x": np.arange(4 * (step + 2), dtype=np.int32).reshape(-1, 4)}),
    "yield and await": (HAND_OVER, lambda step: {"x": np.arange(8, dtype=np.int32) * step, "go": step % 2 == 0}),
    "several results": (RESULTS, lambda step: {"x": np.array([3, 1, 4, 1, 5, 9], np.int32) + step}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path = tmp_path_factory.mktemp("trace") / "m.oinf"
    rng = np.random.default_rng(9)
    tensors = {f"W.{layer}": rng.integers(-3, 4, (4, 4), dtype=np.int32) for layer in range(3)}
    save_file(path, {**tensors, "b": np.arange(4, dtype=np.int32)})
    return ModelLoader.open(path)


def compared(one: Any, other: Any, tolerance: float = 0.0) -> TraceComparison:
    return compare(read_trace(json.dumps(one), "a"), read_trace(json.dumps(other), "b"), tolerance)


@pytest.mark.parametrize(("text", "inputs"), GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("passes", [NODE_BY_NODE, None], ids=["node by node", "fused"])
def test_every_node_and_its_values_are_the_simulators(
    text: str, inputs: Callable[[int], dict[str, Any]], passes: Passes | None, model: ModelLoader
) -> None:
    own = model if "W(l)" in text else None
    executor = Simulator(own).with_trace("full").make_executor(graph(text))
    module = planned(text, own, passes=passes).build(flags=QUICK, trace="full")
    for step in range(3):
        executor.insert(inputs(step))
        module.insert(inputs(step))
        executor.run_step()
        module.run_step()
        wanted, found = executor.trace(), module.trace()
        result = compared(wanted, found)
        assert result.difference is None, result.difference
        assert result.with_values
        assert [(one["node_index"], one.get("indices")) for one in sorted(wanted, key=task)] == [
            (one["node_index"], one.get("indices")) for one in sorted(found, key=task)
        ]
        if passes is NODE_BY_NODE:
            assert result.absent == ()
            assert values_of(found) == values_of(wanted)


def task(event: dict[str, Any]) -> str:
    return str(event.get("thread", ""))


def values_of(trace: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    """The results of all nodes, by name and digest; what a dynamic size makes of a new variable is not compared."""
    events = [event for event in sorted(trace, key=task) if event["kind"] != "Assign"]
    return [[(one["name"], one["digest"]) for one in event.get("outputs", ())] for event in events]


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_are_traced_alike(seed: int, tmp_path: Path) -> None:
    case = random_case(seed)
    model = model_of(case, tmp_path)
    own = graph(case.text)
    for passes in (Passes(), NODE_BY_NODE):
        executor = Simulator(model).with_trace("full").make_executor(own)
        module = Synthesizer(passes=passes).synthesize(model, own).build(flags=QUICK, trace="full")
        for inputs in case.inputs:
            executor.insert(inputs)
            module.insert(inputs)
            executor.run_step()
            module.run_step()
            # A tolerance, for a NaN is a NaN whatever its other bits.
            result = compared(executor.trace(), module.trace(), 1e-12)
            assert result.difference is None, f"{result.difference}\n{case.text}"
            assert passes is not NODE_BY_NODE or result.absent == ()


def test_a_value_that_fusion_removed_is_absent_and_the_trace_says_why() -> None:
    module = planned(BRANCHES).build(flags=QUICK, trace="full")
    module.insert(whole(0))
    module.run_step()
    events = {event["node_index"]: event for event in module.trace()}
    assert events[1]["absent"] == "computed together with node 2"
    assert "outputs" not in events[1]
    assert events[3]["absent"] == "nothing reads it"
    assert "absent" not in events[2]
    assert events[2]["outputs"][0]["sample"] == [1, 4, 9, 16]


def test_a_value_whose_memory_another_has_taken_is_not_shown() -> None:
    text = """dynamic { x: i32[8]; } volatile { y: i32[8]; z: i32[8]; }
    block entry {
        assign a: i32[8];
        assign s: i32[];
        op neg(x) >> a;
        op sum_axis(a) >> s;
        op add(x, s) >> y;
        transfer a >> z;
        return y;
    }"""
    executor = Simulator().with_trace("full").make_executor(graph(text))
    plan = planned(text, passes=Passes(fuse=None))
    module = plan.build(flags=QUICK, trace="full")
    for one in (executor, module):
        one.insert(x=np.arange(8, dtype=np.int32))
        one.run_step()
    result = compared(executor.trace(), module.trace())
    assert result.difference is None
    assert [(event.node_index, event.absent) for event in result.absent] == [(5, "nothing reads it")]
    assert plan.memory.peak == 128  # y lies where a was


def test_a_wrong_value_is_found_in_spite_of_absent_ones() -> None:
    executor = Simulator().with_trace("full").make_executor(graph(BRANCHES))
    module = planned(BRANCHES).build(flags=QUICK, trace="full")
    executor.insert(whole(0))
    module.insert(whole(1))
    executor.run_step()
    module.run_step()
    difference = compared(executor.trace(), module.trace()).difference
    assert difference is not None
    assert (difference.what, difference.event.node_index) == ("value", 2)


def test_only_the_results_that_both_have_are_compared() -> None:
    executor = Simulator().with_trace("full").make_executor(graph(RESULTS))
    executor.insert(x=np.arange(6, dtype=np.int32))
    executor.run_step()
    wanted = executor.trace()
    shortened = json.loads(json.dumps(wanted))
    del shortened[1]["outputs"][0]
    assert compared(wanted, shortened).difference is not None
    shortened[1]["absent"] = "nothing reads it"
    found = compared(wanted, shortened)
    assert found.difference is None
    assert [event.node_index for event in found.absent] == [1]


def test_tracing_changes_nothing_that_is_computed() -> None:
    plan = planned(BRANCHES)
    traced, plain = plan.build(flags=QUICK, trace="full"), plan.build(flags=QUICK)
    for step in range(4):
        for module in (traced, plain):
            module.insert(whole(step))
            module.run_step()
        assert traced.save_state() == plain.save_state()
        assert np.array_equal(traced.fetch("y"), plain.fetch("y"))
    assert plain.trace() == []


def test_the_hook_is_compiled_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    planned(BRANCHES, device="generic").emit(tmp_path)
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-c", "src/net.c"]
    for define, has_hook in ((), False), (("-DNET_TRACE",), True):
        subprocess.run(["gcc", *flags, *define, "-o", "out.o"], cwd=tmp_path, check=True)
        symbols = subprocess.run(["nm", "out.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert ("net_set_trace" in symbols) == has_hook


def test_level_basic_has_no_values_and_an_unknown_level_is_refused() -> None:
    module = planned(BRANCHES).build(flags=QUICK, trace="basic")
    module.insert(whole(0))
    module.run_step()
    assert len(module.events) > 10
    assert not any("outputs" in event or "absent" in event for event in module.trace())
    with pytest.raises(ExecutionError) as caught:
        planned(BRANCHES).build(trace="loud")
    assert caught.value.code is Code.BAD_PARAMETER


def test_a_step_that_fails_is_traced_as_far_as_it_came() -> None:
    text = """dynamic { x: i32[2]; } volatile { y: i32[2]; z: i32[2]; }
    block entry { op neg(x) >> y; op div(y, x) >> z; op abs(z) >> z; return y, z; }"""
    executor = Simulator().with_trace("full").make_executor(graph(text))
    module = planned(text, passes=NODE_BY_NODE).build(flags=QUICK, trace="full")
    for one in (executor, module):
        one.insert(x=np.array([1, 0], np.int32))
        with pytest.raises(OpenInferError):
            one.run_step()
    assert [event["node_index"] for event in module.trace()] == [0]


# --- from the command line --------------------------------------------------------------------------------------------


def test_simulated_and_compiled_runs_are_compared_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_text(BRANCHES)
    inputs = ("--input", "x=arange", "--input", "go=1")
    files = {name: str(tmp_path / f"{name}.json") for name in ("simulated", "fused", "plain")}
    runs = (
        ("trace", "--level", "full", "-o", files["simulated"]),
        ("synth", "--run", "--trace", files["fused"]),
        ("synth", "--run", "--no-fuse", "--trace", files["plain"]),
    )
    for command, *options in runs:
        done = openinfer(command, str(tmp_path / "g.oig"), *inputs, *options)
        assert (done.status, done.err) == (0, "")
    done = openinfer("trace-diff", files["simulated"], files["fused"])
    assert done.status == 0
    assert "the values of 2 events could not be compared, for one trace has none:\n" in done.out
    assert "  node 1: computed together with node 2\n  node 3: nothing reads it\n" in done.out
    assert done.out.endswith("code that is synthesized with --no-fuse has them all\n")
    facts = json.loads(openinfer("trace-diff", files["simulated"], files["fused"], "--json").out)
    assert [one["node_index"] for one in facts["absent"]] == [1, 3]
    done = openinfer("trace-diff", files["simulated"], files["plain"])
    assert (done.status, done.out.count("\n")) == (0, 1)


def test_a_trace_needs_a_run(tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_text(BRANCHES)
    done = openinfer("synth", str(tmp_path / "g.oig"), "--trace", str(tmp_path / "t.json"))
    assert (done.status, done.out) == (2, "")
    assert "--run" in done.err
    assert not (tmp_path / "t.json").exists()
