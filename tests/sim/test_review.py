"""Behaviour that a review found missing: each test is named after what a user may rely on."""

import gc
import json
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openinfer import ExecutionError, GraphError, ModelLoader, OpenInferError, SimSession, Simulator, TraceLevel, graph
from openinfer.errors import Code
from openinfer.oinf import QuantParams, QuantScale, QuantZeroPoint, TensorSpec, save_file
from openinfer.ops import apply
from openinfer.sim.growable import GrowableArray
from openinfer.tensor import Tensor

DIVIDE = """
    inputs { x: i32[2]; }
    outputs { y: i32[2]; }
    block entry { s = op add(a=x, b=x); y = op div(a=s, b=x); return y; }
"""


def error_code(call: Any) -> Code:
    with pytest.raises(OpenInferError) as caught:
        call()
    return caught.value.code


# --- SimSession -------------------------------------------------------------------------------------------------------


def test_a_prepared_run_has_executed_no_more_than_the_events_it_has_given() -> None:
    run = SimSession().prepare(graph(DIVIDE), {"x": [1, 2]})
    seen = []
    while run.is_running():
        event = run.step()
        seen.append((event.kind, run.fetch("s").tolist(), run.fetch("y").tolist()))
    assert seen == [
        ("BlockEnter", [0, 0], [0, 0]),
        ("Assign", [0, 0], [0, 0]),
        ("OpExecute", [2, 4], [0, 0]),
        ("OpExecute", [2, 4], [2, 2]),
        ("Return", [2, 4], [2, 2]),
        ("BlockExit", [2, 4], [2, 2]),
    ]


def test_a_prepared_run_gives_all_events_before_the_node_that_fails_and_has_then_ended() -> None:
    run = SimSession().prepare(graph(DIVIDE), {"x": [1, 0]})
    assert [run.step().kind for _ in range(3)] == ["BlockEnter", "Assign", "OpExecute"]
    assert error_code(run.step) is Code.BAD_VALUE
    assert not run.is_running()
    assert error_code(run.step) is Code.WRONG_MOMENT
    assert error_code(run.finish) is Code.WRONG_MOMENT


# --- OPENINFER_TRACE --------------------------------------------------------------------------------------------------

COUNTING = graph("persistent { n: i32; } block entry { cache.increment n; return; }")


@pytest.mark.parametrize(
    ("wanted", "level"), [("OFF", "off"), ("Full", "full"), ("verbose", "full"), ("", "basic"), (" basic ", "basic")]
)
def test_levels_in_the_environment_are_understood_as_with_trace_does(
    wanted: str, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENINFER_TRACE", wanted)
    simulator = Simulator()
    assert simulator._level is TraceLevel(level)
    simulator.make_executor(COUNTING).run_step()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wanted", ["ful", "0", "all"])
def test_a_misspelt_level_in_the_environment_is_an_error_and_no_file(
    wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENINFER_TRACE", wanted)
    assert error_code(Simulator) is Code.BAD_PARAMETER


def test_a_step_whose_trace_cannot_be_written_has_not_happened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENINFER_TRACE", str(tmp_path / "missing" / "trace.json"))
    executor = Simulator().make_executor(COUNTING)
    assert error_code(executor.run_step) is Code.WRITE_FAILED
    assert error_code(lambda: list(executor.iterate())) is Code.WRITE_FAILED
    assert executor.fetch("n") == 0
    assert not executor.is_suspended
    (tmp_path / "missing").mkdir()
    executor.run_step()
    assert len(json.loads((tmp_path / "missing" / "trace.json").read_text())) == 2


# --- dynamic sizes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", ["cache.read A[0..3] >> h;", "op neg(A[0..3]) >> h;", "transfer A[1..4] >> h;"])
def test_a_slice_of_constant_length_binds_a_dynamic_size(read: str) -> None:
    text = "sizes {{ T <= 8; }} persistent {{ A(i): f32 @table; }} block entry {{ assign h: f32[T]; {} return; }}"
    executor = Simulator().make_executor(graph(text.format(read)))
    executor.run_step()
    assert executor.fetch("h").shape == (3,)


def test_a_slice_longer_than_the_bound_of_a_dynamic_size_is_refused_when_the_graph_is_bound() -> None:
    text = "sizes { T <= 2; } persistent { A(i): f32 @table; } block entry { assign h: f32[T]; "
    built = graph(text + "cache.read A[0..3] >> h; return; }")
    assert error_code(lambda: Simulator().make_executor(built)) is Code.RESULT_TYPE


def test_slices_that_bind_a_dynamic_size_differently_are_an_error() -> None:
    text = "sizes { T <= 8; } dynamic { x: f32[T]; } persistent { A(i): f32 @table; } block entry { assign h: f32[T]; "
    executor = Simulator().make_executor(graph(text + "cache.read A[0..3] >> h; return; }"))
    executor.insert(x=[1.0, 2.0])
    assert error_code(executor.run_step) is Code.SIZE_CONFLICT


def test_a_dimension_that_a_dynamic_size_makes_negative_is_an_error_of_ours() -> None:
    text = "sizes { T <= 8; } dynamic { x: f32[T]; } volatile { y: f32[T-1]; } block entry { op neg(y) >> y; return; }"
    executor = Simulator().make_executor(graph(text))
    executor.insert(x=np.zeros(0, np.float32))
    assert error_code(executor.run_step) is Code.BAD_SHAPE


def test_metadata_that_is_no_integer_is_no_size_and_is_not_suggested_as_one(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {}, metadata={"rate": 1.5})
    with ModelLoader.open(tmp_path / "m.oinf") as model, pytest.raises(GraphError) as caught:
        Simulator(model).make_executor(graph("volatile { y: f32[rate]; } block entry { return; }"))
    assert (
        caught.value.diagnostics[0].message == "the entry 'rate' of the model's metadata is f32, which cannot be a size"
    )


# --- tables -----------------------------------------------------------------------------------------------------------

MATRIX = """
    volatile {{ ones: f32[3, 3] @init(1.0); }}
    persistent {{ M(r, c): f32[1, 1] @auto_dim(r, c); }}
    block entry {{ cache.write ones >> M[0..3, 0..3]; cache.reset {}; return; }}
"""


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ("M[1, 0]", [[0, 1, 1], [0, 1, 1], [1, 1, 1]]),
        ("M[1, ]", [[1, 1, 1], [0, 0, 0], [1, 1, 1]]),
        ("M[1]", [[1, 1, 1], [0, 0, 0], [1, 1, 1]]),
        ("M[, 1]", [[1, 0, 1], [1, 0, 1], [1, 0, 1]]),
        ("M[0..2, 1..]", [[1, 0, 0], [1, 0, 0], [1, 1, 1]]),
        ("M[9, 9]", [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        ("M[7, ]", [[1, 1, 1], [1, 1, 1], [1, 1, 1]]),
        ("M[]", [[0]]),
        ("M", [[0]]),
    ],
)
def test_a_reset_of_an_auto_dim_matrix_is_of_what_the_access_reads(target: str, left: list[list[int]]) -> None:
    executor = Simulator().make_executor(graph(MATRIX.format(target)))
    executor.run_step()
    assert executor.fetch("M").tolist() == left


def test_a_table_that_was_reset_has_the_same_extents_after_saving_and_loading() -> None:
    text = """
        dynamic { again: bool; }
        volatile { row: f32[1, 2] @init(1.0); }
        persistent { N(l, r): f32[0, 2] @table @auto_dim(r); }
        block entry { branch again write clear; return; }
        block write { cache.write row >> N[4, 0..1]; return; }
        block clear { cache.reset N; return; }
    """
    executor = Simulator().make_executor(graph(text))
    for again, extents in ((True, (5, 1, 2)), (False, (0, 0, 2))):
        executor.insert(again=again)
        executor.run_step()
        assert executor.fetch("N").shape == extents
        state = executor.save_state()
        assert state is not None
        executor.load_state(state)
        assert executor.fetch("N").shape == extents


def test_a_step_costs_what_it_changes_and_not_what_a_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "volatile { row: f32[1]; } persistent { n: i32; N(l, r): f32[0] @table @auto_dim(r); } "
    executor = Simulator().make_executor(
        graph(text + "block entry { cache.write row >> N[n, 0..1]; cache.increment n; return; }")
    )
    for _ in range(50):
        executor.run_step()
    begun: list[GrowableArray] = []

    def begin(grid: GrowableArray) -> None:
        begun.append(grid)

    monkeypatch.setattr(GrowableArray, "begin", begin)
    executor.run_step()
    assert len(begun) <= 2


# --- quantized tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [None, 0, 1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (0,)])
def test_gather_dequantizes_what_it_picks_and_nothing_else(
    channel: int | None, axis: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    stored = rng.integers(-8, 8, (3, 4, 5)).astype(np.int8)
    count = 1 if channel is None else stored.shape[channel]
    scales, points = rng.uniform(0.1, 2, count).astype(np.float32), rng.integers(-3, 4, count)
    scale = QuantScale.per_tensor(float(scales[0])) if channel is None else QuantScale.per_channel(channel, scales)
    point = (
        QuantZeroPoint.per_tensor(int(points[0])) if channel is None else QuantZeroPoint.per_channel(channel, points)
    )
    quant = QuantParams("asymmetric", scale, point)
    ids = rng.integers(-3, 3, shape)
    expected = np.take(quant.dequantize(stored), ids, axis)
    save_file(tmp_path / "w.oinf", {"w": TensorSpec(stored, "i8", quant=quant)})
    monkeypatch.setattr(QuantParams, "dequantize", None)  # would be of all that is stored
    with ModelLoader.open(tmp_path / "w.oinf") as model:
        executor = Simulator(model).make_executor(
            graph(f"""
                dynamic {{ i: i64{list(shape)}; }}
                constant {{ w: i8[3, 4, 5]; }}
                block entry {{
                    assign y: f32{list(expected.shape)};
                    op gather(w, i, axis={axis}) >> y;
                    return y;
                }}
            """)
        )
        executor.insert(i=ids)
        executor.run_step()
        np.testing.assert_array_equal(executor.fetch("y"), expected)


def test_an_embedding_of_a_quantized_table_has_the_dtype_that_is_asked_for(tmp_path: Path) -> None:
    quant = QuantParams("symmetric", QuantScale.per_channel(0, [0.5, 2.0]))
    save_file(tmp_path / "w.oinf", {"w": TensorSpec(np.array([[1, 2], [3, 4]]), "i4", quant=quant)})
    text = "dynamic { i: i32[3]; } constant { w: i4[2, 2]; } block entry { assign y: f16[3, 2]; "
    with ModelLoader.open(tmp_path / "w.oinf") as model:
        executor = Simulator(model).make_executor(graph(text + "op embedding(w, i) >> y; return y; }"))
        executor.insert(i=[1, 0, -1])
        executor.run_step()
        assert executor.fetch("y", "f16").tolist() == [[6, 8], [0.5, 1], [6, 8]]


def test_a_quantized_operand_that_does_not_fit_is_to_be_dequantized_not_cast(tmp_path: Path) -> None:
    quant = QuantParams("symmetric", QuantScale.per_tensor(0.5))
    save_file(tmp_path / "w.oinf", {"w": TensorSpec(np.array([1, 2]), "i8", quant=quant)})
    built = graph("dynamic { x: f32[2]; } constant { w: i8[2]; } block entry { op add(x, w) >> x; return; }")
    with ModelLoader.open(tmp_path / "w.oinf") as model, pytest.raises(GraphError) as caught:
        Simulator(model).make_executor(built)
    assert caught.value.diagnostics[0].help == "op dequantize(x) >> y"


# --- memory -----------------------------------------------------------------------------------------------------------


def test_temporaries_are_freed_when_the_next_step_begins_without_the_collector() -> None:
    executor = Simulator().make_executor(
        graph("dynamic { x: f32[4]; } block entry { assign t: f32[4]; op add(x, x) >> t; return; }")
    )
    executor.insert(x=[1.0, 2.0, 3.0, 4.0])
    executor.run_step()
    assert executor.fetch("t").tolist() == [2.0, 4.0, 6.0, 8.0]
    last = weakref.ref(executor._values["t"])
    executor.insert(x=[0.0, 0.0, 0.0, 0.0])
    gc.disable()
    try:
        executor.begin_step()
        assert last() is None
    finally:
        gc.enable()


def test_packed_weights_stay_packed_after_a_node_has_used_them(tmp_path: Path) -> None:
    save_file(tmp_path / "w.oinf", {f"W.{layer}": Tensor.from_numpy([1, -2, 3], "i4") for layer in range(3)})
    text = 'dynamic { x: i4[3]; } constant { W(l): i4[3] @pattern("W.{l}"); } '
    with ModelLoader.open(tmp_path / "w.oinf") as model:
        executor = Simulator(model).make_executor(
            graph(text + "block entry { loop q (l in 0..3) { op add(x, W[l]) >> x; } return; }")
        )
        executor.insert(x=[0, 0, 0])
        executor.run_step()
        assert executor.fetch("x").astype(int).tolist() == [3, -6, -7]
        assert list(executor._values) == ["x"]


# --- budgets and traces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
@pytest.mark.parametrize(
    "text",
    [
        "persistent { n: i32; } block entry { loop a (i in 0..10) { cache.increment n; } return; }",
        """volatile { y: f32; } block entry { yield y; await y; return; }
        block c { await y; op add(y, y) >> y; yield y; }""",
    ],
)
def test_a_budget_of_as_many_nodes_as_a_step_executes_is_enough_and_one_less_is_not(text: str, scheduler: Any) -> None:
    first = Simulator(scheduler=scheduler).make_executor(graph(text))
    first.run_step()
    nodes = len(first.trace())
    Simulator(scheduler=scheduler, node_budget=nodes).make_executor(graph(text)).run_step()
    short = Simulator(scheduler=scheduler, node_budget=nodes - 1).make_executor(graph(text))
    assert error_code(short.run_step) is Code.NODE_BUDGET


def test_a_full_trace_has_the_shapes_and_parameters_of_this_step_also_of_tables() -> None:
    text = """
        sizes { T <= 8; }
        dynamic { x: f32[T, 2]; }
        persistent { step: i32 @init(1); K(l, t): f32[2] @table; }
        block entry {
            assign h: f32[T, 2];
            assign w: f32[T*2];
            cache.write x >> K[0, step..step+T];
            op softmax(K[0, step..step+T], axis=1) >> h;
            op reshape(h, shape=[T*2]) >> w;
            op neg(x) >> K[1, 0..T];
            cache.reset K;
            return;
        }
    """
    executor = Simulator().with_trace("full").make_executor(graph(text))
    executor.insert(x=np.ones((3, 2), np.float32))
    executor.run_step()
    write, softmax, reshape, neg, reset = executor.trace()[2:7]
    assert [(one["name"], one["shape"], one["mean"]) for one in write["outputs"]] == [("K[0, step..step+T]", [3, 2], 1)]
    assert softmax["inputs"] == [{"name": "K[0, step..step+T]", "dtype": "f32", "shape": [3, 2]}]
    assert softmax["attrs"] == {"axis": 1}
    assert reshape["attrs"] == {"shape": [6]}
    assert [(one["name"], one["shape"], one["mean"]) for one in neg["outputs"]] == [("K[1, 0..T]", [3, 2], -1)]
    assert "outputs" not in reset


def test_a_basic_trace_takes_little_memory_however_long_the_loop() -> None:
    turns = 20_000
    executor = Simulator().make_executor(
        graph(f"volatile {{ y: f32; }} block entry {{ loop a (i in 0..{turns}) {{ op neg(y) >> y; }} return; }}")
    )
    executor.begin_step()
    tracemalloc.start()
    try:
        executor.run_step()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 80 * turns
    assert executor.events[-2].indices == {"i": turns - 1}


def test_a_trace_has_loop_indices_of_64_bits() -> None:
    text = "persistent { n: u64; } block entry { cache.increment 9223372036854775806 n; loop a (i in n..n+1) { "
    executor = Simulator().make_executor(graph(text + "loop b (j in -1..0) { barrier; } } return; }"))
    executor.run_step()
    assert [event.indices for event in executor.events] == [
        {},
        {},
        {"i": (1 << 63) - 2},
        {"i": (1 << 63) - 2, "j": -1},
        {},
    ]


# --- ops --------------------------------------------------------------------------------------------------------------


def test_a_window_wider_than_all_keys_is_no_window() -> None:
    q = np.random.default_rng(0).normal(size=(1, 3, 4)).astype(np.float32)
    whole = apply("sdpa", q, q, q, causal=True)
    assert np.array_equal(apply("sdpa", q, q, q, causal=True, window=(1 << 63) - 1), whole)


def test_no_channels_make_any_number_of_groups() -> None:
    assert apply("group_norm", np.zeros((2, 0, 3), np.float32), groups=1 << 62).shape == (2, 0, 3)


def test_integers_are_inserted_into_floats_exactly_or_not_at_all() -> None:
    executor = Simulator().make_executor(graph("dynamic { x: f32[2]; } block entry { return; }"))
    for exact in (1 << 24, (1 << 24) + 2, (1 << 63) - (1 << 39), -(1 << 63)):
        executor.insert(x=np.array([exact, 0]))
        assert int(executor.fetch("x")[0]) == exact
    for inexact in ((1 << 24) + 1, (1 << 63) - 1, (1 << 53) + 1):
        with pytest.raises(ExecutionError, match="no f32 form"):
            executor.insert(x=np.array([inexact, 0]))
    executor.insert(x=np.array([1 << 63, (1 << 64) - (1 << 40)], np.uint64))
    with pytest.raises(ExecutionError, match="no f32 form"):
        executor.insert(x=np.array([(1 << 64) - 1, 0], np.uint64))
