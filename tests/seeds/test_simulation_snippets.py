"""The documented programs that simulate graphs, in Python: every snippet runs, and the documented values come out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.seeds.language.frames import ACCESSES, FRAMES, access_frame

from openinfer import (
    Device,
    Event,
    Executor,
    Graph,
    GraphError,
    ModelLoader,
    SimBackend,
    SimSession,
    Simulator,
    TraceLevel,
    format_truncated,
    graph,
)
from openinfer.errors import Code, ExecutionError
from openinfer.ir import MemoryKind
from openinfer.oinf import save_file

SNIPPETS = Path(__file__).parent / "language"
SIZES = {"B": 3, "D": 4, "H": 4, "Dh": 4, "T": 3, "N": 1, "C": 5, "W": 7}
DOCUMENTED_KEYS = {"block_name", "node_index", "node_uuid", "kind", "params", "output", "micros"}
UNTYPABLE = {"002_19_yield": Code.WRONG_DTYPE}
"""Snippets whose own types do not agree with each other, and how that is said."""


def snippet(name: str) -> str:
    return FRAMES[name].around((SNIPPETS / f"{name}.oig.txt").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelLoader]:
    """A model with everything that the snippets mention."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    tensors = {f"W.{layer}": weights(4, 4) for layer in range(10)}
    tensors |= {"a": weights(3), "scale": weights(3), "w": weights(4, 4), "bias": weights(4), "wo": weights(4, 4)}
    tensors |= {name: weights() for name in ("alpha", "beta", "gamma")} | {"W": weights(4, 4)}
    path = tmp_path_factory.mktemp("model") / "model.oinf"
    save_file(path, {name: np.asarray(value, np.float32) for name, value in tensors.items()}, SIZES, {"num_layers": 2})
    with ModelLoader.open(path) as opened:
        yield opened


def example_inputs(executor: Executor) -> dict[str, Any]:
    """A value for every input of a graph."""
    rng = np.random.default_rng(1)
    return {
        name: np.ones(variable.shape, variable.dtype.array)
        if variable.dtype.kind == "int"
        else rng.standard_normal(variable.shape).astype(variable.dtype.array)
        for name, variable in executor.bound.vars.items()
        if variable.kind is MemoryKind.DYNAMIC
    }


# --- every snippet runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMES)
def test_a_snippet_runs_in_its_frame_and_the_same_under_both_schedulers(name: str, model: ModelLoader) -> None:
    built = graph(snippet(name))
    if name in UNTYPABLE:
        with pytest.raises(GraphError) as caught:
            Simulator(model).make_executor(built)
        assert caught.value.code is UNTYPABLE[name]
        return
    found = []
    for scheduler in ("sequential", "threaded"):
        executor = Simulator(model, scheduler=scheduler).make_executor(built)
        for _ in range(2):
            executor.insert(example_inputs(executor))
            executor.run_step()
        names = [
            name for name, variable in executor.bound.vars.items() if not (variable.decl and variable.decl.pattern)
        ]
        found.append({name: executor.fetch(name).tobytes() for name in names})
    assert found[0] == found[1]


@pytest.mark.parametrize(("declarations", "access"), ACCESSES)
def test_a_documented_access_reads_what_the_documents_say(declarations: str, access: str) -> None:
    text = access_frame(declarations, ACCESSES[declarations, access]).around(access)
    executor = Simulator(sizes={"D": 2, "H": 3}).make_executor(graph(text))
    executor.insert(l=1, i=2, j=1)
    executor.run_step()
    grown = {
        "A[]": (0, 2) if declarations == "tables" else (2, 3),
        "A[0..-3]": (0, 2),
        "A[0..i]": (2, 2),
        "B[0..i, 0..j]": (2, 1, 2),
        "C[0..i]": (2, 2, 3),
        "A[0..D+i, ]": (4, 3),
        "A[, 0..H+j]": (2, 4),
        "A[0..D+i, 0..H+j]": (4, 4),
        "A[i, ]": (3,),
        "A[, j]": (2,),
        "A[i, j]": (4, 4),
        "B[i, j]": (4, 4),
        "C[l, i, j]": (4, 4),
        "C[0..4, i, j]": (4, 4, 4),
    }
    assert executor.fetch("out").shape == grown.get(access, executor.bound.vars["out"].shape)


# --- the minimal examples ---------------------------------------------------------------------------------------------


def test_the_minimal_example(model: ModelLoader) -> None:
    g = graph(snippet("002_01_minimal"))

    sim = Simulator(model, Device.CPU)
    executor = sim.make_executor(g)

    rng = np.random.default_rng()
    length = model.size_of("B")
    values = [rng.uniform(-10.0, 10.0) + index * 0.001 for index in range(length)]

    executor.insert({"x": values})
    executor.run_step()

    y = executor.fetch("y", "f32")
    expected = np.float32(5.0) * (np.array(values, np.float32) + model.load("a").to_numpy())
    np.testing.assert_array_equal(y, expected)


def test_the_classic_minimal_example(model: ModelLoader) -> None:
    g = graph(snippet("001_01_minimal"))
    sim = SimSession(model, SimBackend.CPU)
    result = sim.run(g, {"x": [1.0, 2.0, 3.0]})
    np.testing.assert_array_equal(result.fetch("y"), np.array([2, 4, 6], np.float32) * model.load("scale").to_numpy())


def test_several_variables_are_fetched_at_once_and_their_types_checked() -> None:
    g = graph(
        "dynamic { x: f32[3]; } volatile { y: f32[3]; z: i64[3]; }"
        "block entry { op neg(x) >> y; op cast(x, to=i64) >> z; return y, z; }"
    )
    executor = Simulator().make_executor(g)
    executor.insert(x=[1.0, 2.0, 3.0])
    executor.run_step()
    y, z = executor.fetch("y", "z")
    assert (y.dtype, z.dtype) == (np.float32, np.int64)
    with pytest.raises(ExecutionError):
        executor.fetch("z", "f32")
    with pytest.raises(ExecutionError):
        executor.insert(x=[1.0, 2.0])


# --- several steps with a cache ---------------------------------------------------------------------------------------


def test_each_step_reuses_the_cache_writes_the_next_entries_and_advances_the_cursor(model: ModelLoader) -> None:
    g = graph(snippet("002_17_single_step"))
    first_token, second_token = np.ones((3, 4), np.float32), np.full((3, 4), -2.0, np.float32)

    sim = Simulator(model, Device.CPU)
    executor = sim.make_executor(g)

    executor.insert(x=first_token)
    executor.run_step()
    assert executor.fetch("step") == 1
    assert executor.fetch("K").shape == (10, 1, 4, 4)

    executor.insert(x=second_token)
    executor.run_step()
    assert executor.fetch("step") == 2
    assert executor.fetch("V").shape == (10, 2, 4, 4)
    assert not executor.fetch("h").any()  # attention over a cache of zeros


DECODE = """
graph! {
  sizes { S <= 32; }
  dynamic { x: f32[1, D]; }
  volatile { W(l): f32[D, D] @pattern("W.{l}"); }
  persistent {
    step: i32 @init(0);
    K(l, t): f16[D] @table;
    V(l, t): f16[D] @table;
  }
  block entry {
    assign h: f32[1, D];
    assign half: f16[1, D];
    assign k: f16[S, D];
    assign v: f16[S, D];
    transfer x >> h;
    loop layers (l in 0..10) {
      op cast(h, to=f16) >> half;
      cache.write half >> K[l, step..step+1];
      cache.write half >> V[l, step..step+1];
      cache.read K[l, 0..step+1] >> k;
      cache.read V[l, 0..step+1] >> v;
      op attn(h, k, v, W[l]) >> h;
    }
    cache.increment step;
    return h;
  }
}
"""


def attended(history: list[Any], weights: Any) -> Any:
    """What attention over all that a layer has seen gives for the last of it."""
    past = np.stack([one.astype(np.float16).astype(np.float32) for one in history])
    scores = past @ (history[-1] @ weights) / np.sqrt(np.float32(4))
    share = np.exp(scores - scores.max())
    return (share / share.sum()) @ past


def test_decoding_with_a_cache_attends_over_every_earlier_step(model: ModelLoader) -> None:
    executor = Simulator(model).make_executor(graph(DECODE))
    rng = np.random.default_rng(3)
    seen: list[list[Any]] = [[] for _ in range(10)]
    for step in range(4):
        token = rng.standard_normal(4).astype(np.float32)
        executor.insert(x=token[None])
        executor.run_step()
        for layer in range(10):
            seen[layer].append(token)
            token = attended(seen[layer], model.load(f"W.{layer}").to_numpy())
        np.testing.assert_allclose(executor.fetch("h")[0], token, rtol=2e-2, atol=2e-3)
        assert executor.fetch("K").shape == (10, step + 1, 4)


# --- stepping ---------------------------------------------------------------------------------------------------------


def test_stepping_through_nodes_with_logging_and_timing(model: ModelLoader) -> None:
    executor = Simulator(model, Device.CPU).make_executor(graph(snippet("002_01_minimal")))
    executor.insert(x=[0.5, 1.0, 2.0])
    lines = []
    for node in executor.iterate():
        ev = node.event
        y = node.fetch("y", "f32")
        lines.append(f"y={format_truncated(y):<32} -- [{ev.kind}] {ev.block_name} :: {ev.op_name} ({ev.micros})")
    assert [re.sub(r"^y=\[.*?\] +-- | \(.*", "", line) for line in lines] == [
        "[Assign] entry :: ",
        "[OpExecute] entry :: add",
        "[OpExecute] entry :: mul",
        "[Return] entry :: ",
    ]
    assert lines[0].startswith("y=[5, 5, 5] ")
    assert not lines[2].startswith("y=[5, 5, 5] ")


def test_iterating_is_what_a_step_does(model: ModelLoader) -> None:
    g = graph(snippet("002_01_minimal"))
    whole, parts = (Simulator(model).make_executor(g) for _ in range(2))
    for executor in (whole, parts):
        executor.insert(x=[1.0, 2.0, 3.0])
    whole.step()
    for _node in parts.iterate():
        pass
    np.testing.assert_array_equal(whole.fetch("y"), parts.fetch("y"))
    assert [event.kind for event in whole.events] == [event.kind for event in parts.events]


def test_stepping_through_the_events_of_a_session(model: ModelLoader) -> None:
    sim = SimSession(model, SimBackend.CPU).with_trace(TraceLevel.VERBOSE).with_timing(True)
    executor = sim.prepare(graph(snippet("001_01_minimal")), {"x": [1.0, 2.0, 3.0]})
    events: list[Event] = []
    while executor.is_running():
        ev = executor.step()
        events.append(ev)
    out = executor.finish()

    np.testing.assert_array_equal(out.fetch("y"), np.array([2, 4, 6], np.float32) * model.load("scale").to_numpy())
    assert [(ev.kind, ev.block_name, ev.op_name) for ev in events] == [
        ("BlockEnter", "entry", ""),
        ("Assign", "entry", ""),
        ("OpExecute", "entry", "add"),
        ("OpExecute", "entry", "mul"),
        ("Return", "entry", ""),
        ("BlockExit", "entry", ""),
    ]
    assert all(len(ev.micros) == 3 and all(part >= 0 for part in ev.micros) for ev in events)
    assert any(sum(ev.micros) > 0 for ev in events)
    assert events[2].details["inputs"] == [{"name": "x", "dtype": "f32", "shape": [3]}] * 2
    with pytest.raises(ExecutionError) as caught:
        executor.step()
    assert caught.value.code is Code.WRONG_MOMENT


def test_a_session_that_is_finished_early_runs_the_rest(model: ModelLoader) -> None:
    executor = SimSession(model).prepare(graph(snippet("001_01_minimal")), {"x": [1.0, 2.0, 3.0]})
    executor.step()
    out = executor.finish()
    assert not executor.is_running()
    assert out.fetch("t0").tolist() == [2.0, 4.0, 6.0]


# --- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_has_the_documented_keys_kinds_params_and_outputs(model: ModelLoader, tmp_path: Path) -> None:
    executor = Simulator(model).make_executor(graph(snippet("002_01_minimal")))
    executor.insert(x=[1.0, 2.0, 3.0])
    executor.run_step()

    trace = executor.trace()
    (tmp_path / "trace.json").write_text(json.dumps(trace, indent=2))

    read = json.loads((tmp_path / "trace.json").read_text())
    assert read == trace
    assert [(ev["block_name"], ev["node_index"], ev["kind"], ev["params"], ev["output"]) for ev in read] == [
        ("entry", 0, "Assign", [], ["t0"]),
        ("entry", 1, "OpExecute", ["x", "a"], ["t0"]),
        ("entry", 2, "OpExecute", ["y", "t0"], ["y"]),
        ("entry", 3, "Return", [], []),
    ]
    for event in read:
        assert event.keys() == DOCUMENTED_KEYS | {"op_name"}
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", event["node_uuid"])
        assert len(event["micros"]) == 3
        assert all(isinstance(part, int) and 0 <= part < 1000 for part in event["micros"])
    assert [event["op_name"] for event in read] == ["", "add", "mul", ""]
    assert len({event["node_uuid"] for event in read}) == 4


def test_a_trace_without_timing_says_that_nothing_took_any_time(model: ModelLoader) -> None:
    executor = Simulator(model).with_timing(False).make_executor(graph(snippet("002_01_minimal")))
    executor.insert(x=[1.0, 2.0, 3.0])
    executor.run_step()
    assert [event["micros"] for event in executor.trace()] == [[0, 0, 0]] * 4


# --- serialization ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["001_09_serialize", "002_01_minimal", "002_17_single_step", "002_18_branch"])
def test_a_graph_that_was_written_to_json_runs_as_before(name: str, model: ModelLoader, tmp_path: Path) -> None:
    g = graph(snippet(name))
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(g.to_json(), indent=2))
    again = Graph.from_json(json.loads(path.read_text()))
    assert again == g
    traces = []
    for one in (g, again, graph(again.to_text())):
        executor = Simulator(model).with_timing(False).with_trace("full").make_executor(one)
        executor.insert(example_inputs(executor))
        executor.run_step()
        traces.append(executor.trace())
    assert traces[0] == traces[1] == traces[2]
