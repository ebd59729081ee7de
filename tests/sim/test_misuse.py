"""Callers that give something else than what is asked for get an error of ours that says what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.forged_states import forged_state

from openinfer import ExecutionError, Executor, OpenInferError, SimSession, Simulator, bind, format_truncated, graph
from openinfer.errors import Code
from openinfer.ops import apply
from openinfer.sim import Breakpoint, on_change, on_nan, on_write

SMALL = graph("dynamic { x: f32[3]; } volatile { y: f32[3]; } block entry { op add(x, x) >> y; return; }")
KEEPING = graph("""
    constant { c: f32 @init(2.0); }
    volatile { v: f32[2]; }
    persistent { step: i32; K(t): f32[2] @table; N(l, r): f32[1, 2] @table @auto_dim(r) @fixed(l=3); }
    block entry { cache.increment step; return; }
""")


ONE = np.ones(1, np.float32)


def small() -> Executor:
    return Simulator().make_executor(SMALL)


def code_of(call: Callable[[], Any]) -> Code:
    with pytest.raises(OpenInferError) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: Simulator().make_executor("block entry { return; }"), Code.BAD_SOURCE_FILE),  # type: ignore[arg-type]
        (lambda: bind(None), Code.BAD_SOURCE_FILE),  # type: ignore[arg-type]
        (lambda: SimSession().run("text"), Code.BAD_SOURCE_FILE),  # type: ignore[arg-type]
        (lambda: Simulator("model.oinf"), Code.NOT_A_MODEL_FILE),  # type: ignore[arg-type]
        (lambda: bind(SMALL, "model.oinf"), Code.NOT_A_MODEL_FILE),  # type: ignore[arg-type]
        (lambda: Simulator(sizes=[1, 2]), Code.UNKNOWN_SIZE),  # type: ignore[arg-type]
        (lambda: Simulator(node_budget=True), Code.BAD_PARAMETER),
        (lambda: Simulator(scheduler=lambda _strands: None).make_executor(KEEPING).run_step(), Code.BAD_PARAMETER),  # type: ignore[arg-type, return-value]
        (lambda: apply("nope", ONE), Code.UNKNOWN_OP),
        (lambda: apply("sum_axis", ONE, acc=[]), Code.BAD_PARAMETER),
        (lambda: apply("topk", ONE, k=1 << 64), Code.BAD_PARAMETER),
        (lambda: apply("tile", ONE, repeats=[1 << 45]), Code.OUT_OF_MEMORY),
    ],
)
def test_what_is_no_graph_model_or_size_is_refused_at_once(call: Callable[[], Any], code: Code) -> None:
    assert code_of(call) is code


@pytest.mark.parametrize(
    "value",
    [
        None,
        len,
        "abc",
        {1, 2, 3},
        np.array([1, 2, 3], object),
        np.array([1j, 2, 3]),
        np.ma.masked_array(np.zeros(3, np.float32), np.array([0, 1, 0], bool)),
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
        [1e300, 0.0, 0.0],
        [10**400, 0, 0],
        [[1], 2, 3],
    ],
    ids=str,
)
def test_what_is_no_value_for_an_input_is_refused_and_changes_nothing(value: Any) -> None:
    executor = small()
    executor.insert(x=[1.0, 2.0, 3.0])
    assert code_of(lambda: executor.insert(x=value)).startswith("E30")
    executor.run_step()
    assert executor.fetch("y").tolist() == [2.0, 4.0, 6.0]


@pytest.mark.parametrize("names", [(), (None,), (["y"],), ("y", []), ("y", "f33"), (b"y",)])
def test_fetch_takes_names(names: tuple[Any, ...]) -> None:
    assert code_of(lambda: small().fetch(*names)) is Code.UNKNOWN_VARIABLE


@pytest.mark.parametrize("state", [None, 5, ["state"]])
def test_a_state_is_bytes_or_a_path(state: Any) -> None:
    assert code_of(lambda: small().load_state(state)) is Code.BAD_STATE


def test_a_state_is_loaded_from_anything_that_holds_bytes() -> None:
    executor = Simulator().make_executor(KEEPING)
    executor.run_step()
    saved = executor.save_state()
    assert saved is not None
    for state in (saved, bytearray(saved), memoryview(saved)):
        executor.reset()
        executor.load_state(state)  # type: ignore[arg-type]
        assert executor.fetch("step") == 1


def test_an_error_in_the_bytes_of_a_state_names_no_file_of_ours() -> None:
    with pytest.raises(ExecutionError) as caught:
        small().load_state(b"junk")
    assert "tmp" not in str(caught.value)


def test_breakpoints_on_variables_that_do_not_exist_are_refused_instead_of_never_met() -> None:
    for wrong in (on_write("z"), on_change("z"), on_nan("z")):
        assert code_of(lambda: small().run_until(wrong)) is Code.UNKNOWN_VARIABLE  # noqa: B023  (called at once)
    not_one: Any = "y"
    assert code_of(lambda: small().run_until(not_one)) is Code.BAD_PARAMETER
    executor = small()
    executor.insert(x=[1.0, 2.0, 3.0])
    assert executor.run_until(Breakpoint("any", lambda node: node.event.op_name == "add")) is not None


@pytest.fixture
def forged(tmp_path: Path) -> Callable[[dict[str, Any]], Executor]:
    """An executor that has loaded a state made by hand, which says of itself that it fits."""
    executor = Simulator().make_executor(KEEPING)
    honest = executor.save_state()
    assert honest is not None

    def load(tensors: dict[str, Any]) -> Executor:
        executor.load_state(forged_state(honest, tensors, tmp_path))
        return executor

    return load


HONEST = {"step": np.int32(7), "K.table": np.zeros((2, 2), np.float32)}


@pytest.mark.parametrize(
    "tensors",
    [
        HONEST | {"v": np.ones(2, np.float32)},
        HONEST | {"c": np.float32(9)},
        HONEST | {"step.table": np.int32(1)},
        HONEST | {"N.tablejunk.0": np.zeros((1, 2), np.float32)},
        HONEST | {"N.table.00": np.zeros((1, 2), np.float32)},
        HONEST | {"N.table.3": np.zeros((1, 2), np.float32)},
        {"step": np.int32(7)},
        {"K.table": np.zeros((2, 2), np.float32)},
    ],
    ids=["volatile", "constant", "no table", "junk", "zeros", "beyond its bound", "no K", "no step"],
)
def test_a_forged_state_is_refused(forged: Callable[[dict[str, Any]], Executor], tensors: dict[str, Any]) -> None:
    assert code_of(lambda: forged(tensors)) is Code.BAD_STATE


def test_an_honest_state_is_accepted(forged: Callable[[dict[str, Any]], Executor]) -> None:
    executor = forged(HONEST | {"N.table.2": np.ones((1, 2), np.float32)})
    assert executor.fetch("step") == 7
    assert executor.fetch("N").tolist() == [[[0, 0]], [[0, 0]], [[1, 1]]]


def test_a_table_that_no_memory_holds_is_an_error_of_ours_when_it_is_fetched() -> None:
    text = "persistent { N(l, r): f32[1, 2] @table @auto_dim(r); } volatile { z: f32[1, 2]; } "
    executor = Simulator().make_executor(
        graph(text + "block entry { cache.write z >> N[1000000000000, 0..1]; return; }")
    )
    executor.run_step()
    assert code_of(lambda: executor.fetch("N")) is Code.OUT_OF_MEMORY


def test_a_table_with_more_indices_than_a_tensor_has_axes_is_refused_when_it_is_bound() -> None:
    indices = ", ".join(f"k_{number}" for number in range(20))
    built = graph(f"persistent {{ K({indices}): f32 @table; }} block entry {{ return; }}")
    assert code_of(lambda: bind(built)) is Code.BAD_SHAPE


@pytest.mark.parametrize("values", [None, "abc", [1, "a"], np.array([1j]), {"a": 1}], ids=str)
def test_what_is_no_array_of_numbers_has_no_preview(values: Any) -> None:
    assert code_of(lambda: format_truncated(values)) is Code.UNSUPPORTED_ARRAY


def test_a_preview_of_no_elements_is_dots() -> None:
    assert [format_truncated([1, 2, 3], shown) for shown in (-1, 0, 2, 3)] == [
        "[...]",
        "[...]",
        "[1, 2, ...]",
        "[1, 2, 3]",
    ]
