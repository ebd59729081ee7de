"""Loops: bounds, nesting, what an index is, and loops that would never end in anybody's lifetime."""

import threading
from time import monotonic, process_time, sleep
from typing import Any

import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step_error, text_codes

from openinfer import Simulator
from openinfer.errors import Code, OpenInferError

DECLARED = "persistent { n: i32; K(a): i32 @table; G(a, b): i32 @table; }"
BILLION = "0..1_000_000_000"
HUGE = f"""persistent {{ n: i32; }}
    block entry {{ loop a (i in {BILLION}) {{ loop b (j in {BILLION}) {{ %s }} }} return; }}"""
SECONDS = 20


def counted(loop: str, before: str = "", **sizes: int) -> int:
    """How often the body of a loop runs."""
    ready = executor(f"persistent {{ n: i32; {before} }} block entry {{ {loop} return n; }}", sizes=sizes)
    ready.run_step()
    return int(ready.fetch("n"))


@sentence("loop.half-open")
@pytest.mark.parametrize(
    ("bounds", "expected"), [("0..4", 4), ("2..5", 3), ("3..4", 1), ("3..3", 0), ("-2..1", 3), ("0..0", 0)]
)
def test_a_loop_runs_from_its_start_up_to_before_its_end(bounds: str, expected: int) -> None:
    assert counted(f"loop l (i in {bounds}) {{ cache.increment n; }}") == expected


@sentence("loop.half-open")
def test_the_index_has_every_value_in_order() -> None:
    ready = executor(
        f"{DECLARED} block entry {{ loop l (i in 2..6) {{ cache.increment n; cache.write n >> K[i]; }} return; }}"
    )
    ready.run_step()
    assert ready.fetch("K").tolist() == [0, 0, 1, 2, 3, 4]
    assert [fact["indices"] for fact in ready.trace() if fact["kind"] == "CacheIncrement"] == [
        {"i": index} for index in (2, 3, 4, 5)
    ]


@sentence("loop.start-after-end")
@pytest.mark.parametrize("bounds", ["5..2", "0..-1", "1..0"])
def test_a_start_beyond_the_end_means_no_iterations(bounds: str) -> None:
    assert counted(f"loop l (i in {bounds}) {{ cache.increment n; }}") == 0


@sentence("loop.bounds")
def test_bounds_are_expressions_over_sizes() -> None:
    assert counted("loop l (i in N/2..2*N-1) { cache.increment n; }", N=7) == 10


@sentence("loop.bounds")
def test_bounds_may_use_integer_metadata(make_model: MakeModel) -> None:
    text = 'dynamic { x: f32[1]; } volatile { W(l): f32[1] @pattern("W.{l}"); } block entry { %s return x; }'
    loop = "loop layers (l in 0..num_layers) { op add(x, W[l]) >> x; }"
    model = make_model({f"W.{layer}": floats(10**layer) for layer in range(3)}, metadata={"num_layers": 3})
    assert after_step(text % loop, model, x=[0.0]).fetch("x").tolist() == [111.0]


@sentence("loop.bounds")
def test_bounds_may_be_scalar_integer_variables_and_are_evaluated_when_the_loop_starts() -> None:
    loop = "loop l (i in low..n + high) { cache.increment n; }"
    assert counted(loop, "low: u8 @init(2); high: i64 @init(5);") == 3


@sentence("loop.bounds")
def test_bounds_may_be_a_temporary_a_constant_or_an_input() -> None:
    text = """dynamic { x: i32; } constant { k: i16 @init(2); } persistent { n: i32; }
        block entry { assign t: i32; op add(x, x) >> t;
            loop a (i in 0..t) { cache.increment n; } loop b (i in k..x) { cache.increment 100 n; } return; }"""
    assert after_step(text, x=3).fetch("n") == 106


@sentence("loop.bounds")
@pytest.mark.parametrize("declared", ["f32", "i32[1]", "bool"])
def test_a_bound_that_is_no_scalar_integer_is_an_error(declared: str) -> None:
    text = f"dynamic {{ x: {declared}; }} block entry {{ loop l (i in 0..x) {{ barrier; }} return; }}"
    assert text_codes(text) == [Code.BAD_INDEXING]


@sentence("loop.bounds")
def test_a_bound_that_nothing_knows_is_an_error() -> None:
    assert binding_codes("block entry { loop l (i in 0..num_layers) { barrier; } return; }") == [Code.UNKNOWN_SIZE]


@sentence("loop.nested")
def test_loops_nest_and_inner_bounds_may_use_outer_indices() -> None:
    text = f"""{DECLARED} block entry {{
        loop a (i in 0..4) {{ loop b (j in i..2*i) {{ cache.increment n; cache.write n >> G[i, j]; }} }} return; }}"""
    ready = executor(text)
    ready.run_step()
    assert ready.fetch("G").tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [0, 0, 2, 3, 0, 0],
        [0, 0, 0, 4, 5, 6],
    ]


@sentence("loop.nested")
def test_loops_in_a_row_may_use_the_same_index_and_nested_ones_may_not() -> None:
    assert counted("loop a (i in 0..2) { cache.increment n; } loop b (i in 0..3) { cache.increment 10 n; }") == 32
    nested = "persistent { n: i32; } block entry { loop a (i in 0..2) { loop b (i in 0..2) { barrier; } } return; }"
    assert text_codes(nested) == [Code.DUPLICATE_DECLARATION]


@sentence("loop.body")
def test_a_body_may_be_wrapped_in_a_block() -> None:
    assert counted("loop l (i in 0..3) { block body { cache.increment n; } }") == 3


@sentence("loop.budget")
@pytest.mark.parametrize("body", ["cache.increment n;", ""])
def test_a_loop_of_a_quintillion_iterations_ends_at_the_node_budget(body: str) -> None:
    ready = executor(HUGE % body, node_budget=2000)
    began = process_time()
    error = step_error(ready)
    assert error.code is Code.NODE_BUDGET
    assert "budget of 2000 nodes" in error.diagnostics[0].message
    assert ready.fetch("n") == 0
    assert process_time() - began < SECONDS


@sentence("loop.budget")
@pytest.mark.parametrize("budget", [-1, 1.5, "100"])
def test_a_budget_is_a_number_of_nodes(budget: Any) -> None:
    with pytest.raises(OpenInferError) as caught:
        Simulator(node_budget=budget)
    assert caught.value.code is Code.BAD_PARAMETER


@sentence("loop.budget")
def test_a_step_within_its_budget_is_not_disturbed_and_every_step_has_the_whole_budget() -> None:
    ready = executor("persistent { n: i32; } block entry { cache.increment n; return; }", node_budget=2)
    ready.run_step()
    ready.run_step()
    assert ready.fetch("n") == 2


@sentence("loop.interrupt")
def test_a_huge_loop_can_be_interrupted_and_has_then_not_run() -> None:
    running = executor(HUGE % "cache.increment n;")
    caught: list[OpenInferError] = []
    thread = threading.Thread(target=lambda: caught.append(step_error(running)))
    thread.start()
    deadline = monotonic() + SECONDS
    while not running.is_suspended and monotonic() < deadline:
        sleep(0.001)
    running.interrupt()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert [error.code for error in caught] == [Code.INTERRUPTED]
    assert running.fetch("n") == 0
