"""Ops on another device than the CPU: the simulator's side of it, with devices that are made up."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.sim.faulty_device import Faulty

from openinfer import Simulator, graph
from openinfer.dtypes import DType
from openinfer.errors import Code, ExecutionError, GraphError
from openinfer.ops import OPS, Call, OpError, OpRecord
from openinfer.ops.agreement import Contract
from openinfer.sim.backend import HostBackend, NodeKernel

TEXT = """dynamic { x: f32[4]; } volatile { a: f32[4]; y: f32[4]; }
block entry {
    op exp(x) >> a;
    loop twice (i in 0..2) { op neg(a) >> a; }
    op log(a) >> y;
    return y;
}"""
X = np.array([0.5, 1, 2, 3], np.float32)


def test_kernels_that_are_known_beforehand_are_prepared_together_and_the_devices_clock_counts() -> None:
    device = Faulty("nothing", 1)
    executor = Simulator(None, device).make_executor(graph(TEXT))
    assert device.prepared == ["exp", "neg", "log"]
    np.testing.assert_allclose(executor(x=X), X, rtol=1e-6)
    ops = [event for event in executor.events if event.op_name]
    assert {event.duration_ns for event in ops} == {12_345}
    others = [event for event in executor.events if not event.op_name]
    assert 12_345 not in {event.duration_ns for event in others}


def test_the_first_node_that_a_device_gets_wrong_is_named_with_the_iteration() -> None:
    executor = Simulator(None, Faulty("neg", 1.001, right=1), compare="cpu").make_executor(graph(TEXT, "wrong.oig"))
    with pytest.raises(ExecutionError, match=r"-4\.48\d* at \[1\]|in place of") as caught:
        executor(x=X)
    assert caught.value.code is Code.DIFFERENT_RESULT
    notes = caught.value.diagnostics[0].notes
    assert notes[0] == "in node 2 ('neg') of block 'entry', at i=1"
    assert "4 of 4 elements" in str(caught.value)


def test_a_result_that_its_op_allows_is_no_difference() -> None:
    """``exp`` promises a few units in the last place; ``neg`` promises every bit."""
    almost = 1 + 2.0**-23
    np.testing.assert_allclose(
        Simulator(None, Faulty("exp", almost), compare="cpu").make_executor(graph(TEXT))(x=X), X, rtol=1e-5
    )
    with pytest.raises(ExecutionError, match="E808"):
        Simulator(None, Faulty("neg", almost), compare="cpu").make_executor(graph(TEXT))(x=X)


def test_a_device_that_computes_what_the_cpu_refuses_differs() -> None:
    class Lenient(HostBackend):
        def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
            return super().kernel(OPS["mul" if record.name == "div" else record.name], call, stored)

    text = "dynamic { a: i32[2]; b: i32[2]; } volatile { c: i32[2]; } block entry { op div(a, b) >> c; return c; }"
    executor = Simulator(None, Lenient(), compare="cpu").make_executor(graph(text))
    with pytest.raises(ExecutionError, match="the device computes what the CPU refuses") as caught:
        executor(a=[1, 2], b=[1, 0])
    assert caught.value.code is Code.DIFFERENT_RESULT


def test_everything_that_a_device_refuses_is_reported_at_once() -> None:
    class Poor(HostBackend):
        def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
            if record.name == "exp":
                raise OpError(Code.MISSING_FEATURE, "there is no 'exp' here")
            return super().kernel(record, call, stored)

        def prepare(self, kernels: Sequence[NodeKernel]) -> Sequence[OpError | None]:
            return [OpError(Code.MISSING_FEATURE, "the driver refuses"), *[None] * (len(kernels) - 1)]

    with pytest.raises(GraphError) as caught:
        Simulator(None, Poor()).make_executor(graph(TEXT))
    assert [(one.message, one.facts()["line"]) for one in caught.value.diagnostics] == [
        ("there is no 'exp' here", 3),
        ("the driver refuses", 4),
    ]


def test_comparing_with_anything_but_the_cpu_is_refused() -> None:
    with pytest.raises(ExecutionError, match="compare='cpu'"):
        Simulator(None, compare="vulkan")


def test_a_device_that_flushes_subnormals_may_do_so_and_no_other() -> None:
    record = OPS["add"]
    kind = graph("dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { op add(x, x) >> y; return y; }")
    own = Simulator().make_executor(kind).bound.ops[0]
    assert own.call is not None
    contract = Contract(record, own.call, own.stored)
    arrays, results = [np.array([1e-39, 1], np.float32)] * 2, [np.array([0, 2], np.float32)]
    assert contract.disagreement(arrays, results, is_flushed=True) is None
    found = contract.disagreement(arrays, results)
    assert found is not None
    assert (found.place, found.count) == ((0,), 1)
