"""Traces of circuits: where they stop, they tell the simulator's nodes with the simulator's values."""

import numpy as np
import pytest
from tests.synth.test_trace_in_c import GRAPHS, compared, task, values_of
from tests.synth.vhdl.suite import traced_failure

from openinfer import ModelLoader, Simulator, Synthesizer, graph
from openinfer.oinf import save_file
from openinfer.ops import Array
from openinfer.synth.run.circuit import CircuitModule, TracedCircuitModule
from openinfer.synth.targets.target import NODE_BY_NODE


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelLoader:
    path = tmp_path_factory.mktemp("trace") / "m.oinf"
    rng = np.random.default_rng(9)
    tensors: dict[str, Array] = {f"W.{layer}": rng.integers(-3, 4, (4, 4), dtype=np.int32) for layer in range(3)}
    save_file(path, {**tensors, "b": np.arange(4, dtype=np.int32)})
    return ModelLoader.open(path)


@pytest.mark.parametrize("which", ["loops and tables", "yield and await"])
def test_every_node_and_its_values_are_the_simulators(which: str, model: ModelLoader) -> None:
    """Dynamic sizes, indices of loops, slices of tables, weights that a block is called with, tasks."""
    text, inputs = GRAPHS[which]
    own = model if "W(l)" in text else None
    executor = Simulator(own).with_trace("full").make_executor(graph(text))
    plan = Synthesizer("generic-fpga", passes=NODE_BY_NODE).synthesize(own, graph(text))
    module = plan.build(trace="full")
    assert isinstance(module, TracedCircuitModule)
    for step in range(2):
        for machine in (executor, module):
            machine.insert(inputs(step))
            machine.run_step()
        wanted, found = executor.trace(), module.trace()
        result = compared(wanted, found)
        assert result.difference is None, result.difference
        assert result.absent == ()
        assert values_of(found) == values_of(wanted)
        places = [
            [(one["node_index"], one.get("indices")) for one in sorted(each, key=task)] for each in (wanted, found)
        ]
        assert places[0] == places[1]


@pytest.mark.parametrize("is_true", [True, False])
def test_a_block_that_is_written_out_twice_reports_each_of_its_runs(is_true: bool) -> None:
    """Its last row stands next to its first in the table of rows, and is about the same node."""
    text = """
    dynamic { x: i32[4]; c: bool; }
    block entry { branch c again again; return x; }
    block again { return; }
    """
    executor = Simulator().with_trace("full").make_executor(graph(text))
    module = Synthesizer("generic-fpga").synthesize(None, graph(text)).build(trace="full")
    for machine in (executor, module):
        machine(x=np.ones(4, np.int32), c=np.array(is_true))
    nodes = [[event["node_index"] for event in machine.trace()] for machine in (executor, module)]
    assert nodes[0] == nodes[1]


def test_a_random_program_is_traced_alike() -> None:
    assert traced_failure(1) is None


def test_a_circuit_that_is_not_made_for_traces_takes_the_clocks_that_the_plan_says() -> None:
    """Stops take none where nothing is traced, whatever the steps between them."""
    text = """
    dynamic { x: i32[8]; }
    volatile { y: i32[8]; }
    persistent { n: i32 @init(0); }
    block entry { op add(x, 3) >> y; cache.increment n; cache.increment n; op mul(y, n) >> y; return y; }
    """
    plan = Synthesizer("generic-fpga").synthesize(None, graph(text))
    module, traced = plan.build(), plan.build(trace="basic")
    x = np.arange(8, dtype=np.int32)
    for machine in (module, traced):
        np.testing.assert_array_equal(machine(x=x), (x + 3) * 2)
    assert isinstance(module, CircuitModule)
    assert module.cycles == plan.facts()["circuit"]["clocks"]
    assert [event.node_index for event in traced.events] == sorted(event.node_index for event in traced.events)
    assert len(traced.events) == 5
