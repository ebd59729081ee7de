"""A step that fails, is interrupted or runs out of budget has not happened, wherever it is struck."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openinfer import Executor, Graph, Simulator, graph
from openinfer.errors import Code, ExecutionError
from openinfer.ops import OpError
from openinfer.sim.task import Task

EVERYTHING = """
sizes { T <= 16; }
dynamic { x: f32[4]; }
volatile { y: f32[4]; s: f32[4]; }
persistent {
    step: i32 @init(0);
    total: f32[4] @init(1.0);
    K(l, t): f32[4] @table @fixed(l=3);
    A(i, j): f32[2, 2] @auto_dim(i, j);
    C(l, i, j): f32[1, 2] @table @auto_dim(i, j);
    window: f32[3, 4];
}
block entry {
    assign k: f32[T, 4];
    assign a: f32[2, 2];
    assign late: bool;
    assign limit: f32;
    assign row: f32[1, 2];
    op add(x, total) >> total;
    cache.write x >> K[0, 0];
    loop layers (l in 0..3) {
        cache.write x >> K[l, step];
        cache.read K[l, 0..step+1] >> k;
        op neg(k) >> k;
        cache.write k >> K[l, 0..step+1];
    }
    cache.read A[0..2, 0..2] >> a;
    cache.write a >> A[step..step+2, 0..2];
    cache.write row >> C[step, 0..1, 0..2];
    cache.write x >> window[1, ];
    yield x;
    op exp(total) >> s;
    cache.reset K[0];
    await x;
    op mul(x, s) >> y;
    cache.increment step;
    op is_finite(y) >> late;
    branch late good bad;
    return y;
}
block good { cache.increment 2 step; op add(total, total) >> total; return; }
block bad { cache.reset step; cache.reset A; return; }
block consumer { await x; op add(x, x) >> x; cache.reset C; yield x; }
"""
STEPS = 3


def inputs(step: int) -> dict[str, Any]:
    return {"x": np.full(4, 0.25 * (step + 1), np.float32)}


def fresh(scheduler: str = "sequential", **options: Any) -> Executor:
    return Simulator(scheduler=scheduler, **options).make_executor(graph(EVERYTHING))


def after(steps: int, executor: Executor) -> Executor:
    for step in range(steps):
        executor.insert(inputs(step))
        executor.run_step()
    return executor


def node_count() -> int:
    executor = after(STEPS - 1, fresh())
    executor.insert(inputs(STEPS - 1))
    executor.run_step()
    return len(executor.events)


NODES = node_count()


@contextmanager
def struck(at: int, error: BaseException, *, afterwards: bool) -> Iterator[None]:
    """The node executed at this position fails, before or after it has done its work."""
    original = Task._execute
    lock, seen = threading.Lock(), [0]

    def execute(task: Task, instruction: Any) -> None:
        with lock:
            mine = instruction.is_event and seen[0] == at
            seen[0] += instruction.is_event
        if mine and not afterwards:
            raise error
        original(task, instruction)
        if mine:
            raise error

    Task._execute = execute  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Task._execute = original  # type: ignore[method-assign]


def failures() -> list[BaseException]:
    return [
        OpError(Code.BAD_VALUE, "struck"),
        MemoryError("struck"),
        KeyboardInterrupt("struck"),
        ZeroDivisionError("struck"),
    ]


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
@pytest.mark.parametrize("afterwards", [False, True], ids=["before its work", "after its work"])
def test_a_failure_at_any_node_leaves_persistent_state_untouched(scheduler: str, afterwards: bool) -> None:
    wanted = after(STEPS, fresh()).save_state()
    kinds = failures()
    for at in range(NODES):
        executor = after(STEPS - 1, fresh(scheduler))
        before, values = executor.save_state(), executor.fetch("y", "step", "total")
        executor.insert(inputs(STEPS - 1))
        error = kinds[at % len(kinds)]
        with struck(at, error, afterwards=afterwards), pytest.raises(type(error)):
            executor.run_step()
        assert executor.save_state() == before, f"node {at}"
        for found, old in zip(executor.fetch("y", "step", "total"), values, strict=True):
            np.testing.assert_array_equal(found, old)
        assert not executor.is_suspended
        executor.run_step()  # the inputs are still there: nothing has consumed them
        assert executor.save_state() == wanted, f"node {at}"
    assert [thread.name for thread in threading.enumerate() if "openinfer" in thread.name] == []


def test_a_failure_while_iterating_rolls_back_too() -> None:
    wanted = after(STEPS, fresh()).save_state()
    for at in range(NODES):
        executor = after(STEPS - 1, fresh())
        before = executor.save_state()
        executor.insert(inputs(STEPS - 1))
        with struck(at, MemoryError(), afterwards=True), pytest.raises(MemoryError):
            list(executor.iterate())
        assert executor.save_state() == before
        executor.run_step()
        assert executor.save_state() == wanted


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_every_node_budget_that_is_too_small_leaves_state_untouched(scheduler: str) -> None:
    first = fresh()
    first.insert(inputs(0))
    first.run_step()
    for budget in range(len(first.events)):
        executor = fresh(scheduler, node_budget=budget)
        before = executor.save_state()
        executor.insert(inputs(0))
        with pytest.raises(ExecutionError) as caught:
            executor.run_step()
        assert caught.value.code is Code.NODE_BUDGET
        assert executor.save_state() == before


def test_cancelling_a_suspended_step_at_any_node_leaves_state_untouched() -> None:
    for at in range(NODES):
        executor = after(STEPS - 1, fresh())
        before = executor.save_state()
        executor.insert(inputs(STEPS - 1))
        for position, _ in enumerate(executor.iterate()):
            if position == at:
                break
        executor.cancel()
        assert executor.save_state() == before


def test_a_suspended_step_goes_on_from_any_node() -> None:
    wanted = after(STEPS, fresh()).save_state()
    for at in range(NODES):
        executor = after(STEPS - 1, fresh())
        executor.insert(inputs(STEPS - 1))
        for position, _ in enumerate(executor.iterate()):
            if position == at:
                break
        assert executor.is_suspended
        executor.run_step()
        assert executor.save_state() == wanted


def interrupted(executor: Executor, delay: float) -> None:
    timer = threading.Timer(delay, executor.interrupt)
    timer.start()
    try:
        with pytest.raises(ExecutionError) as caught:
            executor.run_step()
    finally:
        timer.join()
    assert caught.value.code is Code.INTERRUPTED


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_nested_loops_of_a_billion_can_be_interrupted(scheduler: str) -> None:
    endless = graph(
        "persistent { n: i64; } block entry { loop a (i in 0..1000000000) { loop b (j in 0..1000000000) {"
        " cache.increment n; } } return; }"
    )
    executor = Simulator(scheduler=scheduler).with_trace("off").make_executor(endless)
    interrupted(executor, 0.05)
    assert executor.fetch("n") == 0


def test_empty_loops_of_a_billion_can_be_interrupted_and_count_against_the_budget() -> None:
    endless = graph("block entry { loop a (i in 0..1000000000) { loop b (j in 0..1000000000) { } } return; }")
    interrupted(Simulator().make_executor(endless), 0.05)
    with pytest.raises(ExecutionError) as caught:
        Simulator(node_budget=1000).make_executor(endless).run_step()
    assert caught.value.code is Code.NODE_BUDGET


def failing(text: str, values: dict[str, Any]) -> ExecutionError:
    executor = Simulator().make_executor(graph(text, "g.oig"))
    executor.insert(values)
    with pytest.raises(ExecutionError) as caught:
        executor.run_step()
    return caught.value


def test_an_error_names_the_node_its_line_the_loop_and_the_operand_shapes() -> None:
    error = failing(
        "dynamic { a: i32[3]; b: i32[3]; }\nblock entry {\n    assign c: i32[3];\n    loop l (i in 2..4) {\n"
        "        op div(a, b) >> c;\n    }\n    return;\n}\n",
        {"a": [1, 2, 3], "b": [1, 0, 1]},
    )
    assert str(error).splitlines() == [
        "error[E313]: the divisor is zero at [1]",
        " --> g.oig:5:9",
        "  |",
        "5 |         op div(a, b) >> c;",
        "  |         ^^^^^^^^^^^^^^^^^",
        "  = help: div_by_zero_mask=v gives v there instead of an error",
        "  = note: in node 2 ('div') of block 'entry', at i=2",
        "  = note: operands: a is i32[3], b is i32[3]",
    ]


def wrong_moments() -> dict[str, Callable[[Executor], object]]:
    return {
        "insert": lambda executor: executor.insert(inputs(0)),
        "save": lambda executor: executor.save_state(),
        "load": lambda executor: executor.load_state(b""),
    }


@pytest.mark.parametrize("name", list(wrong_moments()))
def test_during_a_step_inputs_and_state_are_left_alone(name: str) -> None:
    executor = fresh()
    executor.insert(inputs(0))
    next(executor.iterate())
    with pytest.raises(ExecutionError) as caught:
        wrong_moments()[name](executor)
    assert caught.value.code is Code.WRONG_MOMENT
    executor.run_step()


def test_the_graph_of_these_tests_survives_json() -> None:
    assert Graph.from_json(graph(EVERYTHING).to_json()) == graph(EVERYTHING)
