"""A step in one call, of the executor and of compiled code: inputs in, what the graph returns out."""

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import pytest
from tests.synth.both_ways import planned
from tests.synth.flags import QUICK

from openinfer import DeviceArch, GraphBuilder, SimSession, Simulator, Synthesizer, bind, graph
from openinfer.check.results import Outputs
from openinfer.errors import ExecutionError, counted

TWO = """
dynamic { x: f32[2]; }
volatile { y: f32[2]; z: f32[2]; }
persistent { n: i32; K(t): f32[2] @table @fixed(t=4); }
block entry { op relu(x) >> y; op neg(x) >> z; cache.write x >> K[n]; cache.increment n; return z, y, n, K; }
"""
ONE = "dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { op relu(x) >> y; return y; }"
NAMELESS = ONE.replace("return y", "return")
X = np.array([1, -2], np.float32)


@pytest.fixture(params=["simulator", "compiled"])
def make(request: pytest.FixtureRequest) -> Any:
    if request.param == "simulator":
        return lambda text: Simulator().make_executor(graph(text))
    return lambda text: planned(text).build(flags=QUICK)


def test_one_output_is_an_array(make: Any) -> None:
    for text in (ONE, NAMELESS):
        found = make(text)(x=X)
        assert isinstance(found, np.ndarray)
        assert found.tolist() == [1, 0]


def test_several_outputs_are_a_tuple_with_names(make: Any) -> None:
    one = make(TWO)
    one(x=X)
    found = one({"x": X})
    z, y, n, table = found
    assert isinstance(found, Outputs)
    assert found.names == ("z", "y", "n", "K")
    assert (z.tolist(), y.tolist(), n.item(), table.shape) == ([-1, 2], [1, 0], 2, (2, 2))
    assert found["y"] is y
    assert found.y is y
    assert dict(found)["z"] is z
    assert repr(found).startswith("Outputs(z=array(")
    with pytest.raises(KeyError, match="there is no output 'w'"):
        found["w"]
    with pytest.raises(AttributeError):
        _ = found.w
    one(x=X * 0)
    assert z.tolist() == [-1, 2]  # a copy, which the next step leaves alone


def test_values_are_given_by_name(make: Any) -> None:
    with pytest.raises(ExecutionError) as caught:
        make(ONE)(X)
    assert "inputs are given by name, not as ndarray" in str(caught.value)
    assert "write x=..." in str(caught.value)


def test_objects_say_what_they_are() -> None:
    built = graph(ONE)
    plan = planned(ONE, device="generic")
    assert repr(built) == "<Graph: inputs x; 2 variables, 1 block, 2 nodes>"
    assert repr(bind(built)) == "<BoundGraph without a model: x: f32[2] -> y: f32[2]; 2 nodes>"
    assert repr(Simulator()) == "<Simulator without a model>"
    executor = Simulator().make_executor(built)
    executor.insert(x=X)
    assert repr(executor) == "<Executor: x: f32[2] -> y: f32[2]>"
    executor.begin_step()
    assert repr(executor) == "<Executor: x: f32[2] -> y: f32[2], in a step>"
    assert repr(plan) == "<Plan 'net' for generic C11: x: f32[2] -> y: f32[2]>"
    assert repr(plan.build(flags=QUICK)) == "<CompiledModule 'net': x: f32[2] -> y: f32[2]>"
    assert repr(DeviceArch.named("generic")) == "<DeviceArch 'generic C11': generic, 1 core>"
    assert repr(Synthesizer("generic")) == "<Synthesizer for generic C11>"
    assert repr(SimSession()) == "<SimSession without a model>"
    assert repr(GraphBuilder()) == "<GraphBuilder: 0 variables, 0 blocks>"


@pytest.mark.parametrize(
    ("count", "noun", "text"), [(1, "call", "1 call"), (2, "index", "2 indices"), (0, "x", "0 xs")]
)
def test_counts_agree_with_their_nouns(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_type_checkers_know_what_fetch_gives() -> None:
    executor = Simulator().make_executor(graph(ONE))
    executor(x=X)
    assert_type(executor.fetch("y"), npt.NDArray[Any])
    assert_type(executor.fetch("y", "f32"), npt.NDArray[Any])
    assert_type(executor.fetch("x", "y"), tuple[npt.NDArray[Any], ...])
    module = planned(ONE).build(flags=QUICK)
    module(x=X)
    assert_type(module.fetch("y"), npt.NDArray[Any])
