"""Node by node: what ``iterate`` shows, where a suspended step stands, and what may be changed in it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sim.concurrent_graphs import random_graph

from openinfer import ExecutionError, Executor, ModelLoader, Simulator, graph
from openinfer.errors import Code
from openinfer.ir import Access
from openinfer.oinf import save_file

EVERYTHING = """
dynamic { x: f32[2]; }
volatile { h: f32[2]; yes: bool @init(true); no: bool; }
constant { two: f32[2] @init(2); }
persistent { step: i32; K(l, t): f32[2] @table; }
block entry {
    assign sum: f32[2];
    transfer x >> h;
    loop outer (l in 0..2) {
        loop inner (m in 0..l+1) {
            op add(h, two) >> h;
        }
        loop never (k in 3..1) { op neg(h) >> h; }
        scope "store" { cache.write h >> K[l, step]; }
        loop empty (e in 0..3) { }
        branch yes more nothing;
    }
    yield x;
    op add(sum, h) >> sum;
    await x;
    op add(sum, x) >> sum;
    cache.increment step;
    return sum;
}
block more {
    loop again (m in 1..3) { op mul(h, two) >> h; }
    branch no nothing nothing;
    return;
}
block nothing { barrier; return; }
block consumer { await x; op neg(x) >> x; yield x; }
"""


def ready(text: str = EVERYTHING, **inputs: Any) -> Executor:
    executor = Simulator().make_executor(graph(text))
    executor.insert(inputs)
    return executor


def everything() -> Executor:
    return ready(x=[1.0, 2.0])


# --- iterate ----------------------------------------------------------------------------------------------------------


def test_every_turn_comes_after_a_node_has_been_executed() -> None:
    executor = ready("dynamic { x: f32; } volatile { y: f32; } block entry { op neg(x) >> y; return; }", x=3.0)
    seen = [(node.event.kind, float(node.fetch("y"))) for node in executor.iterate()]
    assert seen == [("OpExecute", -3.0), ("Return", -3.0)]


def test_stepping_executes_what_running_executes() -> None:
    run, stepped = everything(), everything()
    run.run_step()
    events = [node.event for node in stepped.iterate()]
    assert [(e.node_index, e.thread, e.indices, e.scope) for e in events] == [
        (e.node_index, e.thread, e.indices, e.scope) for e in run.events
    ]
    for name in ("sum", "h", "x", "step", "K"):
        np.testing.assert_array_equal(run.fetch(name), stepped.fetch(name))


@pytest.mark.parametrize("way", ["iterate", "run_step"])
def test_a_loop_left_early_leaves_the_step_suspended_and_resumable(way: str) -> None:
    whole, parts = everything(), everything()
    whole.run_step()
    assert all(parts.is_suspended for _ in range(7) if next(parts.iterate()))
    if way == "run_step":
        parts.run_step()
    else:
        assert len(list(parts.iterate())) == len(whole.events) - 7
    assert not parts.is_suspended
    np.testing.assert_array_equal(whole.fetch("sum"), parts.fetch("sum"))
    np.testing.assert_array_equal(whole.fetch("K"), parts.fetch("K"))


def test_inputs_cannot_be_inserted_and_state_cannot_be_saved_while_suspended() -> None:
    executor = everything()
    next(executor.iterate())
    for forbidden in (lambda: executor.insert(x=[0.0, 0.0]), executor.save_state, lambda: executor.load_state(b"")):
        with pytest.raises(ExecutionError) as caught:
            forbidden()
        assert caught.value.code is Code.WRONG_MOMENT


def test_cancel_gives_a_suspended_step_up_as_if_it_had_not_begun() -> None:
    executor = everything()
    for node in executor.iterate():
        if node.event.kind == "CacheIncrement":
            break
    assert executor.fetch("step") == 1
    executor.cancel()
    assert not executor.is_suspended
    assert executor.fetch("step") == 0
    assert executor.fetch("K").shape == (0, 0, 2)
    executor.run_step()
    assert executor.fetch("step") == 1


# --- where a step stands ----------------------------------------------------------------------------------------------


def test_the_next_node_is_the_one_that_is_executed_next() -> None:
    executor = everything()
    while True:
        expected = executor.next_node
        indices = dict(executor.place.indices)
        if expected is None:
            break
        event = next(executor.iterate()).event
        assert event.node_index == expected.index
        assert event.indices == indices
    assert executor.is_suspended
    executor.run_step()
    assert not executor.is_suspended


@pytest.mark.parametrize("seed", range(30))
def test_the_next_node_is_known_whatever_is_handed_over(seed: int) -> None:
    executor = Simulator().make_executor(graph(random_graph(seed)))
    executor.begin_step()
    while (expected := executor.next_node) is not None:
        thread = executor.place.thread
        event = next(executor.iterate()).event
        assert (event.node_index, event.thread) == (expected.index, thread)


def test_before_a_step_its_first_node_is_the_next() -> None:
    executor = everything()
    assert executor.next_node is not None
    assert executor.next_node.index == 0
    assert not executor.is_suspended
    assert executor.place.frames == ()
    np.testing.assert_array_equal(executor.place.read(Access("x")), [1, 2])


def test_a_step_can_begin_without_running_a_node() -> None:
    executor = everything()
    executor.begin_step()
    executor.begin_step()
    assert executor.is_suspended
    assert executor.events == []
    executor.place.set("x", [5.0, 5.0])
    executor.run_step()
    assert executor.fetch("x").tolist() == [-5.0, -5.0]


def test_a_step_without_its_inputs_does_not_begin() -> None:
    executor = ready()
    with pytest.raises(ExecutionError) as caught:
        executor.begin_step()
    assert caught.value.code is Code.NOT_INSERTED
    assert not executor.is_suspended


def test_the_place_says_which_branches_loops_and_scopes_are_around_it() -> None:
    executor = everything()
    for node in executor.iterate():
        if node.event.block_name == "more" and node.event.indices == {"m": 1}:
            break
    outer, inner = executor.place.frames
    assert (outer.block, outer.indices, outer.ends) == ("entry", {"l": 0}, (2,))
    assert type(outer.node.kind).__name__ == "Branch"
    assert (inner.block, inner.indices, inner.ends) == ("more", {"m": 2}, (3,))
    for node in executor.iterate():
        if node.event.kind == "Scope":
            break
    assert executor.place.frames[-1].scopes == ("store",)


def test_a_place_reads_parts_with_the_loop_indices_there() -> None:
    executor = everything()
    for node in executor.iterate():
        if node.event.kind == "CacheWrite" and node.event.indices == {"l": 1}:
            break
    place = executor.place
    assert place.read("K[l, step]").tolist() == executor.fetch("h").tolist()
    assert place.read("K[l]").shape == (1, 2)
    assert place.read("K[0..l, step]").shape == (1, 2)
    assert place.read("h[1]").shape == ()
    assert place.read("h[0..9]").shape == (2,)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("q", Code.UNKNOWN_VARIABLE),
        ("h[2]", Code.INDEX_OUT_OF_RANGE),
        ("h[-1]", Code.NEGATIVE_INDEX),
        ("h[0, 0]", Code.BAD_INDEXING),
        ("K[0, 0, 0]", Code.BAD_INDEXING),
        ("h[1/0]", Code.BAD_VALUE),
        ("h[x]", Code.BAD_INDEXING),
        ("h[nobody]", Code.UNKNOWN_SIZE),
        ("h[", Code.BAD_INDEXING),
        ('model["h"]', Code.BAD_INDEXING),
        ("K[0..99999999999, 0..99999999999]", Code.OUT_OF_MEMORY),
    ],
)
def test_what_cannot_be_read_is_an_error_with_a_code(text: str, code: Code) -> None:
    executor = everything()
    executor.begin_step()
    with pytest.raises(ExecutionError) as caught:
        executor.place.read(text)
    assert caught.value.code is code


# --- editing ----------------------------------------------------------------------------------------------------------


def test_a_volatile_value_can_be_edited_and_the_step_goes_on_with_it() -> None:
    executor = ready("dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { op neg(x) >> y; return; }", x=[1, 2])
    for node in executor.iterate():
        if node.event.kind == "OpExecute":
            node.set("y", [7.0, 8.0])
    assert executor.fetch("y").tolist() == [7.0, 8.0]


def test_inputs_and_temporaries_can_be_edited_for_this_step() -> None:
    text = "dynamic { x: f32; } block entry { assign t: f32; op add(x, t) >> t; return t; }"
    executor = ready(text, x=1.0)
    node = next(executor.iterate())
    node.set("x", 10.0)
    node.set("t", np.float32(5))
    executor.run_step()
    assert executor.fetch("t") == 15
    executor.insert(x=1.0)
    executor.run_step()
    assert executor.fetch("t") == 1


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("two", [1, 1], Code.NOT_WRITABLE),
        ("step", 4, Code.NOT_WRITABLE),
        ("K", [1, 1], Code.NOT_WRITABLE),
        ("q", 1, Code.UNKNOWN_VARIABLE),
        ("h", [1, 2, 3], Code.SHAPE_MISMATCH),
        ("h", np.array([0.1, 0.2]), Code.VALUE_OUT_OF_RANGE),
        ("yes", 2, Code.VALUE_OUT_OF_RANGE),
    ],
)
def test_other_edits_are_refused_and_change_nothing(name: str, value: Any, code: Code) -> None:
    executor = everything()
    node = next(executor.iterate())
    with pytest.raises(ExecutionError) as caught:
        node.set(name, value)
    assert caught.value.code is code
    assert executor.fetch("h").tolist() == [0, 0]
    executor.run_step()
    assert executor.fetch("step") == 1


def test_prefix_tables_cannot_be_edited(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"W.0": np.ones(2, np.float32)})
    text = 'volatile { W(l): f32[2] @pattern("W.{l}"); y: f32[2]; } block entry { op neg(W[0]) >> y; return; }'
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        executor = Simulator(model).make_executor(graph(text))
        node = next(executor.iterate())
        with pytest.raises(ExecutionError, match="prefix table") as caught:
            node.set("W", [1, 2])
        assert caught.value.code is Code.NOT_WRITABLE
        assert node.peek("W") is None
        assert executor.place.read("W[0]").tolist() == [1, 1]
        for wrong in ("W", "W[1]", "W[0..1]"):
            with pytest.raises(ExecutionError):
                executor.place.read(wrong)


def test_a_node_whose_step_has_ended_cannot_edit() -> None:
    executor = everything()
    node = next(executor.iterate())
    executor.run_step()
    with pytest.raises(ExecutionError) as caught:
        node.set("h", [0.0, 0.0])
    assert caught.value.code is Code.WRONG_MOMENT
    executor.insert(x=[1.0, 2.0])
    node = next(executor.iterate())
    executor.cancel()
    with pytest.raises(ExecutionError) as caught:
        node.set("h", [0.0, 0.0])
    assert caught.value.code is Code.WRONG_MOMENT
    with pytest.raises(ExecutionError) as caught:
        executor.place.set("h", [0.0, 0.0])
    assert caught.value.code is Code.WRONG_MOMENT


def test_a_consumer_sees_and_edits_its_own_copy_of_what_it_awaits() -> None:
    text = """
    dynamic { x: f32; } volatile { y: f32; z: f32; }
    block entry { transfer x >> y; yield y; await y; return; }
    block writer { await y; op neg(y) >> y; op add(y, y) >> y; yield y; }
    block reader { await y; op add(y, y) >> z; yield y; }
    """
    executor = ready(text, x=3.0)
    for node in executor.iterate():
        if node.event.thread == "writer" and node.event.op_name == "neg":
            assert (node.fetch("y"), executor.fetch("y")) == (-3, 3)
            assert node.peek("y") == -3
            assert executor.place.read(Access("y")) == -3
            node.set("y", 10.0)
            assert executor.fetch("y") == 3
        if node.event.thread == "reader" and node.event.op_name == "add":
            assert (node.fetch("y"), node.fetch("z")) == (3, 6)
    assert executor.fetch("y") == 20


def test_a_node_reads_parts_at_its_own_loop_indices() -> None:
    seen = [
        node.read("K[l, step]").tolist() == node.fetch("h").tolist()
        for node in everything().iterate()
        if node.event.kind == "CacheWrite"
    ]
    assert seen == [True, True]


def test_a_node_says_what_it_wrote_and_whether_that_is_new() -> None:
    text = """
    volatile { a: f32[2]; b: f32[2] @init(3); }
    block entry { transfer b >> a; transfer b >> a; op neg(a) >> b; return; }
    """
    nodes = [(n.written, [(name, v.tolist()) for name, v in n.results], n.changed("a")) for n in ready(text).iterate()]
    assert nodes == [
        (("a",), [("a", [3, 3])], True),
        (("a",), [("a", [3, 3])], False),
        (("b",), [("b", [-3, -3])], False),
        ((), [], False),
    ]


def test_a_temporary_of_unknown_shape_has_nothing_to_show() -> None:
    text = """
    sizes { T <= 4; } persistent { step: i32; K(t): f32 @table; }
    block entry { assign k: f32[T]; cache.read K[0..step+2] >> k; return; }
    """
    executor = ready(text)
    node = next(executor.iterate())
    assert (node.results, node.peek("k"), node.changed("k")) == ((), None, False)
    assert next(executor.iterate()).results[0][1].tolist() == [0, 0]
