"""Where ``run_until`` stops: at nodes, ops, writes, NaNs, changes and conditions, wherever values live."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from openinfer import Executor, ModelLoader, Simulator, graph
from openinfer.errors import ExecutionError
from openinfer.oinf import save_file
from openinfer.sim import Breakpoint, NodeView, at_node, on_change, on_nan, on_op, on_write, when
from openinfer.sim.tables import TableStorage

LOOP = """
dynamic { x: f32[2]; }
volatile { h: f32[2]; }
persistent { n: i32; }
block entry {
    transfer x >> h;
    loop l (i in 0..3) { op add(h, x) >> h; op neg(h) >> h; }
    cache.increment n;
    return h;
}
"""


def ready(text: str, model: ModelLoader | None = None, **inputs: Any) -> Executor:
    executor = Simulator(model).make_executor(graph(text))
    executor.insert(inputs)
    return executor


def hits(executor: Executor, *breakpoints: Breakpoint) -> Iterator[NodeView]:
    """Every stop until the end of the step."""
    while (node := executor.run_until(*breakpoints)) is not None:
        yield node


def places(executor: Executor, *breakpoints: Breakpoint) -> list[tuple[int, dict[str, int]]]:
    return [(node.event.node_index, node.event.indices) for node in hits(executor, *breakpoints)]


# --- nodes ------------------------------------------------------------------------------------------------------------


def test_at_node_stops_after_that_node_each_time() -> None:
    assert places(ready(LOOP, x=[1, 1]), at_node(3)) == [(3, {"i": 0}), (3, {"i": 1}), (3, {"i": 2})]


def test_on_op_stops_after_ops_of_that_name() -> None:
    assert places(ready(LOOP, x=[1, 1]), on_op("add")) == [(2, {"i": 0}), (2, {"i": 1}), (2, {"i": 2})]
    assert places(ready(LOOP, x=[1, 1]), on_op("mul")) == []


def test_a_stop_leaves_the_step_suspended_and_the_end_finishes_it() -> None:
    executor = ready(LOOP, x=[1, 1])
    node = executor.run_until(at_node(0))
    assert node is not None
    found = [executor.is_suspended]
    assert node.fetch("h").tolist() == [1, 1]
    assert executor.run_until(at_node(99)) is None
    assert [*found, executor.is_suspended] == [True, False]
    assert executor.fetch("n") == 1


def test_without_breakpoints_the_step_runs_to_its_end() -> None:
    executor = ready(LOOP, x=[1, 1])
    assert executor.run_until() is None
    assert executor.fetch("n") == 1


def test_a_stop_names_all_breakpoints_that_hold() -> None:
    executor = ready(LOOP, x=[1, 1])
    node = executor.run_until(at_node(2), on_op("add"), on_write("n"), when(lambda _: True))
    assert node is not None
    assert [str(one) for one in node.breakpoints] == ["condition"]
    node = executor.run_until(at_node(2), on_op("add"), on_write("n"))
    assert node is not None
    assert [str(one) for one in node.breakpoints] == ["node 2", "op add"]


def test_a_breakpoint_on_the_last_node_stops_before_the_step_is_finished() -> None:
    executor = ready(LOOP, x=[1, 1])
    node = executor.run_until(at_node(5))
    assert node is not None
    assert executor.is_suspended
    assert executor.next_node is None
    assert executor.run_until(at_node(5)) is None
    assert executor.fetch("n") == 1


# --- writes -----------------------------------------------------------------------------------------------------------


def test_on_write_stops_after_nodes_that_write_a_variable() -> None:
    assert [index for index, _ in places(ready(LOOP, x=[1, 1]), on_write("h"))] == [0, 2, 3, 2, 3, 2, 3]
    assert places(ready(LOOP, x=[1, 1]), on_write("n")) == [(4, {})]
    assert places(ready(LOOP, x=[1, 1]), on_write("x")) == []


def test_on_write_sees_writes_to_parts_of_tables_and_resets() -> None:
    text = """
    persistent { K(t): f32[2] @table; A(i, j): f32[1, 1] @auto_dim(i, j); w: f32[3]; }
    volatile { a: f32[2]; s: f32; m: f32[2, 2]; }
    block entry {
        cache.write a >> K[2]; cache.write m >> A[0..2, 0..2]; cache.write s >> w[1]; cache.reset K[2]; cache.reset K;
        return;
    }
    """
    assert [index for index, _ in places(ready(text), on_write("K"))] == [0, 3, 4]
    assert [index for index, _ in places(ready(text), on_write("A"))] == [1]
    assert [index for index, _ in places(ready(text), on_write("w"))] == [2]


# --- NaN and infinity -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_on_nan_stops_where_a_node_writes_one(bad: float) -> None:
    text = """
    dynamic { x: f32[3]; } volatile { y: f32[3]; z: f32[3]; }
    block entry { transfer x >> y; op neg(y) >> z; op add(z, z) >> y; return; }
    """
    assert [index for index, _ in places(ready(text, x=[1, bad, 2]), on_nan())] == [0, 1, 2]
    assert [index for index, _ in places(ready(text, x=[1, bad, 2]), on_nan("z"))] == [1]
    assert places(ready(text, x=[1, 2, 3]), on_nan()) == []


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8"])
def test_on_nan_knows_every_float(dtype: str) -> None:
    text = f"volatile {{ y: {dtype}[2] @init(nan); z: {dtype}[2]; }} block entry {{ transfer y >> z; return; }}"
    assert places(ready(text), on_nan()) == [(0, {})]


@pytest.mark.parametrize("dtype", ["i4", "u8", "i64", "bool", "t2"])
def test_other_values_are_never_nan(dtype: str) -> None:
    text = f"volatile {{ y: {dtype}[2]; z: {dtype}[2]; }} block entry {{ transfer y >> z; return; }}"
    assert places(ready(text), on_nan()) == []


def test_on_nan_looks_at_what_is_written_to_tables_and_parts_and_at_nothing_else() -> None:
    text = """
    dynamic { x: f32[2]; s: f32; }
    volatile { a: f32[2]; m: f32[2, 2] @init(1); }
    persistent { K(t): f32[2] @table; A(i, j): f32[1, 1] @auto_dim(i, j); w: f32[2]; }
    block entry {
        cache.write x >> K[5];
        cache.write a >> K[4];
        cache.write m >> A[0..2, 0..2];
        cache.write x >> A[1, ];
        cache.write s >> w[0];
        cache.write s >> w[1];
        cache.reset K[5];
        return;
    }
    """
    executor = ready(text, x=[0, np.nan], s=1.0)
    assert [index for index, _ in places(executor, on_nan())] == [0, 3]
    executor = ready(text, x=[0, 1], s=np.inf)
    assert [index for index, _ in places(executor, on_nan("w"))] == [4, 5]


def test_a_reset_to_an_infinity_writes_one() -> None:
    text = """
    volatile { a: f32[2]; } persistent { K(t): f32[2] @table @init(inf); w: f32[2] @init(nan); }
    block entry { cache.write a >> K[1]; cache.reset K[1]; cache.reset w; return; }
    """
    assert [index for index, _ in places(ready(text), on_nan())] == [1, 2]


def test_on_nan_reads_only_the_part_of_a_table_that_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
    volatile { a: f32[8]; }
    persistent { K(t): f32[8] @table; }
    block entry { loop t (i in 0..50) { cache.write a >> K[i]; } return; }
    """
    read: list[int] = []
    original = TableStorage.read

    def counted(self: TableStorage, chosen: Any) -> Any:
        found = original(self, chosen)
        read.append(found.size)
        return found

    monkeypatch.setattr(TableStorage, "read", counted)
    assert ready(text).run_until(on_nan(), on_change("K")) is not None
    executor = ready(text)
    read.clear()
    assert executor.run_until(on_nan("K")) is None
    assert read
    assert max(read) == 8


# --- changes ----------------------------------------------------------------------------------------------------------


def test_on_change_stops_where_a_node_leaves_another_value() -> None:
    # h is 1, then 2, -2, -1, 1, 2, -2.
    assert [index for index, _ in places(ready(LOOP, x=[1, 1]), on_change("h"))] == [0, 2, 3, 2, 3, 2, 3]
    assert places(ready(LOOP, x=[1, 1]), on_change("x")) == []
    assert places(ready(LOOP, x=[1, 1]), on_change("n")) == [(4, {})]


def test_writing_the_same_value_is_no_change() -> None:
    text = """
    volatile { a: f32[2] @init(nan); b: f32[2]; c: f32[2] @init(3); }
    block entry {
        transfer a >> a; transfer b >> b; transfer c >> b; transfer c >> b; op neg(a) >> b; op abs(c) >> c; return;
    }
    """
    assert [index for index, _ in places(ready(text), on_change("a"))] == []
    assert [index for index, _ in places(ready(text), on_change("b"))] == [2, 4]
    assert [index for index, _ in places(ready(text), on_change("c"))] == []


def test_the_first_node_of_a_step_can_be_the_change() -> None:
    executor = ready(LOOP, x=[1, 1])
    node = executor.run_until(on_change("h"))
    assert node is not None
    assert node.event.node_index == 0


def test_a_new_step_resets_without_that_being_a_change() -> None:
    text = "dynamic { x: f32; } volatile { y: f32; } block entry { barrier; transfer x >> y; return; }"
    executor = ready(text, x=5.0)
    stop = on_change("y")
    assert [index for index, _ in places(executor, stop)] == [1]
    executor.insert(x=0.0)
    assert places(executor, stop) == []
    executor.insert(x=5.0)
    assert [index for index, _ in places(executor, stop)] == [1]


def test_an_edit_between_nodes_is_not_taken_for_a_change_by_the_next_node() -> None:
    text = "volatile { y: f32; z: f32; } block entry { barrier; op neg(z) >> z; transfer z >> z; return; }"
    executor = ready(text)
    node = executor.run_until(at_node(0))
    assert node is not None
    node.set("z", 4.0)
    assert [(i, float(executor.fetch("z"))) for i, _ in places(executor, on_change("z"))] == [(1, -4.0)]


def test_persistent_values_and_tables_change_too() -> None:
    text = """
    dynamic { x: f32[2]; }
    volatile { zero: f32[2]; }
    persistent { n: i32; w: f32[2, 2]; K(t): f32[2] @table; }
    block entry {
        cache.write x >> K[n];
        cache.write x >> K[n];
        cache.write zero >> K[n+2];
        barrier;
        cache.reset K[0];
        cache.reset K[0];
        cache.reset K;
        cache.reset K;
        cache.write x >> w[0, ];
        cache.write x >> w[0, ];
        return;
    }
    """
    executor = ready(text, x=[1, 2])
    # 0 writes, 2 grows by initial values, 4 resets an entry, 6 makes the table empty; the others repeat what is there.
    assert [index for index, _ in places(executor, on_change("K"))] == [0, 2, 4, 6]
    executor = ready(text, x=[1, 2])
    assert [index for index, _ in places(executor, on_change("w"))] == [8]


def test_auto_dim_matrices_change_when_they_grow() -> None:
    text = """
    volatile { row: f32[1, 2]; one: f32[1, 2] @init(1); }
    persistent { A(i, j): f32[1, 2] @auto_dim(i, j); C(l, i, j): f32[1, 2] @table @auto_dim(i, j); }
    block entry {
        cache.write row >> A[0..1, ];
        cache.write row >> A[1..2, ];
        cache.write one >> A[1..2, ];
        cache.write one >> A[1..2, ];
        cache.write row >> C[0, 0..1, ];
        cache.write row >> C[0, 0..1, ];
        cache.write one >> C[3, 0..1, ];
        return;
    }
    """
    assert [index for index, _ in places(ready(text), on_change("A"))] == [1, 2]
    assert [index for index, _ in places(ready(text), on_change("C"))] == [4, 6]


def test_entries_of_prefix_tables_change(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {f"W.{n}": np.full(2, n + 1, np.float32) for n in range(3)})
    text = """
    volatile { W(l): f32[2] @pattern("W.{l}"); one: f32[2] @init(1); bad: f32[2] @init(nan); }
    block entry { loop all (l in 0..3) { transfer one >> W[l]; } transfer bad >> W[1]; return; }
    """
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        # Entry 0 is one already.
        assert places(ready(text, model), on_change("W")) == [(1, {"l": 1}), (1, {"l": 2}), (2, {})]
        assert places(ready(text, model), on_nan("W")) == [(2, {})]


def test_watching_one_variable_loads_nothing_for_others(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"big": np.ones(4, np.float32), "small": np.ones(4, np.float32)})
    text = """
    volatile { big: f32[4]; small: f32[4]; }
    block entry { op neg(small) >> big; op neg(small) >> small; return; }
    """
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        loaded: list[str] = []
        original = model.load
        model.load = lambda name: (loaded.append(name), original(name))[1]  # type: ignore[method-assign, func-returns-value]
        executor = ready(text, model)
        assert [index for index, _ in places(executor, on_change("small"), on_nan())] == [1]
        assert loaded == ["small"]


# --- consumers --------------------------------------------------------------------------------------------------------

CONSUMERS = """
dynamic { x: f32; }
volatile { y: f32; a: f32; b: f32; }
block entry {
    transfer x >> y;
    yield y;
    op neg(x) >> a;
    await y;
    op log(y) >> y;
    return y;
}
block reader { await y; op add(y, y) >> b; yield y; }
block writer { await y; op neg(y) >> y; op log(y) >> y; op abs(y) >> y; yield y; }
"""


def threads(executor: Executor, *breakpoints: Breakpoint) -> list[tuple[str, str]]:
    return [(node.event.thread, node.event.op_name or node.event.kind) for node in hits(executor, *breakpoints)]


def test_changes_by_consumers_are_seen_once_and_in_the_consumer() -> None:
    assert threads(ready(CONSUMERS, x=-3.0), on_change("y")) == [
        ("entry", "Transfer"),
        ("writer", "neg"),
        ("writer", "log"),
        ("entry", "log"),
    ]


def test_nan_in_a_consumers_copy_is_found_where_it_is_made() -> None:
    found = [(node.event.thread, node.event.op_name) for node in hits(ready(CONSUMERS, x=3.0), on_nan("y"))]
    assert found == [("writer", "log"), ("writer", "abs"), ("entry", "log")]


def test_what_a_consumer_writes_beside_what_it_awaits_is_seen() -> None:
    assert threads(ready(CONSUMERS, x=3.0), on_change("b")) == [("reader", "add")]
    assert threads(ready(CONSUMERS, x=3.0), on_write("b")) == [("reader", "add")]


def test_a_condition_sees_values_as_the_strand_of_its_node_does() -> None:
    seen = {}

    def look(node: NodeView) -> bool:
        seen[node.event.thread, node.event.op_name or node.event.kind] = float(node.fetch("y"))
        return False

    assert ready(CONSUMERS, x=3.0).run_until(when(look)) is None
    assert seen["reader", "add"] == 3
    assert seen["writer", "neg"] == -3
    assert seen["entry", "neg"] == 3
    assert np.isnan(seen["entry", "Await"])


# --- conditions -------------------------------------------------------------------------------------------------------


def test_when_stops_where_a_function_says_so() -> None:
    stop = when(lambda node: bool(np.abs(node.fetch("h")).max() > 1.5), "h is large")
    executor = ready(LOOP, x=[1, 1])
    node = executor.run_until(stop)
    assert node is not None
    assert (node.event.node_index, str(node.breakpoints[0])) == (2, "h is large")


def test_an_error_in_a_condition_is_the_callers_and_leaves_the_step_suspended() -> None:
    executor = ready(LOOP, x=[1, 1])
    with pytest.raises(ExecutionError, match="no variable 'q'"):
        executor.run_until(when(lambda node: bool(node.fetch("q"))))
    assert executor.is_suspended
    executor.run_step()
    assert executor.fetch("n") == 1


def test_values_of_small_floats_compare_by_bits() -> None:
    text = "dynamic { x: bf16[2]; } volatile { y: bf16[2]; } block entry { transfer x >> y; transfer x >> y; return; }"
    executor = ready(text, x=np.array([0, 1], ml_dtypes.bfloat16))
    assert [index for index, _ in places(executor, on_change("y"))] == [0]
