"""``yield`` and ``await``: what consumers see, what entry sees, and what is refused before anything runs."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, step, step_error, text_codes

from openinfer import Executor
from openinfer.check import check
from openinfer.errors import Code
from openinfer.lang import parse
from openinfer.sim.task import Task


def last(tasks: Sequence[Task]) -> Task:
    """The schedule that is furthest from the sequential one."""
    return tasks[-1]


SCHEDULERS: list[Any] = ["sequential", "threaded", last]
every_schedule = pytest.mark.parametrize("scheduler", SCHEDULERS, ids=["sequential", "threaded", "last"])
PAIR = "dynamic { x: i32; z: i32; } volatile { y: i32; w: i32; }"
OVERVIEW = f"""{PAIR} block entry {{
        op add(x, x) >> x; yield x; op mul(z, z) >> z; await x; op add(x, z) >> y; return y, w; }}
    block change {{ await x; op neg(x) >> x; op add(x, x) >> x; yield x; }}
    block look {{ await x; op add(x, x) >> w; yield x; }}"""


def ran(text: str, scheduler: Any, **inputs: Any) -> Executor:
    """A graph that has run one step under a schedule."""
    return step(executor(text, scheduler=scheduler), **inputs)


# --- legal ------------------------------------------------------------------------------------------------------------


@sentence("yield.parked")
@every_schedule
def test_a_consumer_runs_once_its_variables_have_been_yielded_and_not_before(scheduler: Any) -> None:
    text = f"""{PAIR} persistent {{ n: i32; }} block entry {{ branch b; op neg(x) >> x; yield x; await x; return; }}
        block b {{ op add(x, x) >> x; return; }}
        block c {{ await x; transfer x >> w; cache.increment n; yield x; }}"""
    ready = ran(text, scheduler, x=3, z=0)
    assert ready.fetch("w") == -6
    assert ready.fetch("n") == 1
    names = [event.block_name for event in ready.events]
    assert names.index("c") > names.index("entry") + 1
    assert step(ready, x=1, z=0).fetch("n") == 2


@sentence("yield.parked")
@every_schedule
def test_a_consumer_waits_for_all_that_it_awaits(scheduler: Any) -> None:
    text = f"""{PAIR} block entry {{ yield x; op neg(z) >> z; yield z; await x, z; return; }}
        block c {{ await x, z; op sub(x, z) >> w; yield x, z; }}"""
    assert ran(text, scheduler, x=3, z=10).fetch("w") == 13


@sentence("yield.not-a-target")
def test_a_consumer_may_not_be_the_target_of_a_branch() -> None:
    text = f"{PAIR} block entry {{ yield x; branch c; await x; return; }} block c {{ await x; yield x; }}"
    assert text_codes(text) == [Code.BAD_BRANCH_TARGET]


@sentence("yield.value", "yield.one-writer")
@every_schedule
def test_every_consumer_gets_the_value_at_the_moment_of_the_yield(scheduler: Any) -> None:
    ready = ran(OVERVIEW, scheduler, x=3, z=5)
    assert ready.fetch("w") == 12  # of the x that entry yielded, 6, whatever 'change' did
    assert ready.fetch("x") == -12
    assert ready.fetch("y") == 13


@sentence("yield.value")
@every_schedule
def test_what_entry_does_after_a_yield_is_not_seen_by_a_consumer(scheduler: Any) -> None:
    text = f"""{PAIR} block entry {{ transfer x >> y; yield x; op neg(y) >> y; await x; return y, w; }}
        block c {{ await x; loop l (i in 0..3) {{ op add(w, x) >> w; }} yield x; }}"""
    ready = ran(text, scheduler, x=4, z=0)
    assert (ready.fetch("w"), ready.fetch("y")) == (12, -4)


@sentence("await.all")
@every_schedule
def test_entry_waits_until_every_consumer_has_yielded(scheduler: Any) -> None:
    consumers = "\n".join(
        f"block c{number} {{ await x; loop l (i in 0..{10 * number}) {{"
        f" op add(r{number}, x) >> r{number}; }} yield x; }}"
        for number in range(4)
    )
    results = " ".join(f"r{number}: i32;" for number in range(4))
    total = " ".join(f"op add(y, r{number}) >> y;" for number in range(4))
    text = f"""dynamic {{ x: i32; }} volatile {{ y: i32; {results} }}
        block entry {{ yield x; await x; {total} return y; }} {consumers}"""
    assert ran(text, scheduler, x=1).fetch("y") == 60


@sentence("yield.one-writer")
@every_schedule
def test_different_consumers_may_write_different_variables(scheduler: Any) -> None:
    text = """dynamic { a: i32; b: i32; c: i32; } volatile { y: i32; }
        block entry { yield a, b, c; await a, b, c; op add(a, b) >> y; op add(y, c) >> y; return y; }
        block b1 { await a; op neg(a) >> a; yield a; }
        block b2 { await b, c; op add(b, c) >> b; op sub(b, c) >> c; yield b, c; }"""
    ready = ran(text, scheduler, a=1, b=10, c=100)
    assert [int(value) for value in ready.fetch("a", "b", "c", "y")] == [-1, 110, 10, 119]


@sentence("yield.several")
@every_schedule
def test_variables_may_be_awaited_one_after_the_other(scheduler: Any) -> None:
    text = f"""{PAIR} block entry {{ yield x, z; await x; op add(x, x) >> y; await z; op sub(y, z) >> y; return y; }}
        block c {{ await x; op neg(x) >> x; yield x; }}
        block d {{ await z; op neg(z) >> z; yield z; }}"""
    assert ran(text, scheduler, x=3, z=5).fetch("y") == -1


@sentence("await.other-results")
@every_schedule
def test_after_an_await_entry_may_use_the_consumers_other_results(scheduler: Any) -> None:
    text = """dynamic { x: f32[3]; } volatile { total: f32; y: f32[3]; } persistent { n: i32; K(i): f32[3] @table; }
        block entry { yield x; await x; op sub(x, total) >> y; cache.read K[n - 1] >> x; return y; }
        block measure { await x; op sum_axis(x) >> total; cache.write x >> K[n]; cache.increment n; yield x; }"""
    ready = ran(text, scheduler, x=[1.0, 2.0, 3.0])
    assert ready.fetch("y").tolist() == [-5.0, -4.0, -3.0]
    assert ready.fetch("x").tolist() == [1.0, 2.0, 3.0]
    assert step(ready, x=[0.0, 0.0, 1.0]).fetch("K").shape == (2, 3)


@sentence("yield.never-awaited")
@every_schedule
def test_a_consumer_that_is_never_awaited_has_run_when_the_step_ends(scheduler: Any) -> None:
    text = f"""{PAIR} persistent {{ n: i32; }} block entry {{ yield x; op neg(z) >> z; return z; }}
        block c {{ await x; op neg(x) >> x; cache.increment n; yield x; }}"""
    ready = ran(text, scheduler, x=3, z=1)
    assert [int(value) for value in ready.fetch("x", "z", "n")] == [-3, -1, 1]


@sentence("yield.branches")
@every_schedule
def test_consumers_may_have_loops_and_branches_of_their_own(scheduler: Any) -> None:
    text = """dynamic { x: i32; c: bool; } volatile { w: i32; }
        block entry { yield x, c; await x; return x; }
        block consumer { await x, c; loop l (i in 0..3) { branch c up down; } transfer x >> w; yield x, c; }
        block up { op add(x, x) >> x; return; }
        block down { op neg(x) >> x; return; }"""
    for condition, expected in ((True, 24), (False, -3)):
        ready = ran(text, scheduler, x=3, c=condition)
        assert (ready.fetch("x"), ready.fetch("w")) == (expected, expected)


@sentence("yield.schedules")
def test_all_schedulers_give_the_same_values() -> None:
    found = []
    for scheduler in SCHEDULERS:
        ready = executor(OVERVIEW, scheduler=scheduler)
        found.append([[int(v) for v in step(ready, x=x, z=z).fetch("x", "y", "w")] for x, z in ((1, 2), (-3, 7))])
    assert found[0] == found[1] == found[2]


@sentence("yield.schedules")
def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    ready = executor(OVERVIEW, scheduler="threaded")
    for _ in range(5):
        step(ready, x=1, z=2)
    failing = executor(OVERVIEW.replace("op mul(z, z) >> z", "op div(z, z) >> z"), scheduler="threaded")
    assert step_error(failing, x=1, z=0).code is Code.BAD_VALUE
    consumer = executor(OVERVIEW.replace("op add(x, x) >> w", "op div(x, x) >> w"), scheduler="threaded")
    assert step_error(consumer, x=0, z=1).code is Code.BAD_VALUE
    assert threading.active_count() == before


@sentence("yield.sizes")
@every_schedule
def test_what_a_consumer_binds_is_known_to_entry_only_after_the_await(scheduler: Any) -> None:
    text = """sizes {{ T <= 8; }} dynamic {{ x: i32[2]; }}
        persistent {{ K(i): i32[2] @table; }} volatile {{ y: i32[T, 2]; }}
        block entry {{ assign h: i32[T, 2]; assign out: i32[T, 2];
            yield x; {0} await x; {1} op add(h, out) >> y; return y; }}
        block c {{ await x; cache.write x >> K[0]; cache.read K[] >> out; yield x; }}"""
    early = executor(text.format("op neg(h) >> h;", ""), scheduler=scheduler)
    assert step_error(early, x=[1, 2]).code is Code.SIZE_CONFLICT
    assert ran(text.format("", "op neg(h) >> h;"), scheduler, x=[1, 2]).fetch("y").tolist() == [[1, 2]]


@sentence("yield.sizes")
@every_schedule
def test_initial_values_in_a_consumer_have_the_sizes_that_it_bound(scheduler: Any) -> None:
    text = """sizes { T <= 8; } dynamic { x: i32; } persistent { K(i): i32 @table; } volatile { y: i32[T] @init(5); }
        block entry { assign out: i32[T]; yield x; await x; return out; }
        block c { await x; cache.write x >> K[1]; cache.read K[] >> out; op add(out, y) >> out; yield x; }"""
    assert ran(text, scheduler, x=2).fetch("out").tolist() == [5, 7]


@sentence("yield.sizes")
@every_schedule
def test_entry_and_a_consumer_that_bind_a_size_differently_disagree_at_the_await(scheduler: Any) -> None:
    text = """sizes { T <= 8; } dynamic { x: i32; } persistent { K(i): i32 @table; L(i): i32 @table; }
        block entry { assign a: i32[T]; assign b: i32[T]; cache.write x >> K[1]; cache.write x >> L[2];
            yield x; cache.read K[] >> a; await x; return; }
        block c { await x; cache.read L[] >> b; yield x; }"""
    error = step_error(executor(text, scheduler=scheduler), x=1)
    assert error.code is Code.SIZE_CONFLICT
    assert "Await" in "".join(error.diagnostics[0].notes)


# --- illegal ----------------------------------------------------------------------------------------------------------


@sentence("yield.touched")
@pytest.mark.parametrize("node", ["op neg(x) >> y;", "op neg(z) >> x;", "transfer x >> y;", "branch b;"])
def test_entry_touching_a_yielded_variable_before_its_await_is_an_error(node: str) -> None:
    text = f"""{PAIR} block entry {{ yield x; {node} await x; return; }}
        block c {{ await x; op neg(x) >> w; yield x; }} block b {{ op neg(x) >> y; return; }}"""
    assert Code.TOUCHED_WHILE_YIELDED in binding_codes(text)
    after_step(text.replace(f"{node} await x;", f"await x; {node}"), x=1, z=1)


@sentence("yield.two-writers")
def test_two_consumers_writing_the_same_variable_are_an_error() -> None:
    text = f"""{PAIR} block entry {{ yield x; await x; return; }}
        block c {{ await x; op neg(x) >> x; yield x; }} block d {{ await x; op add(x, x) >> x; yield x; }}"""
    assert binding_codes(text) == [Code.TWO_WRITERS]


@sentence("yield.race")
@pytest.mark.parametrize(
    ("entry", "consumer"),
    [
        ("op neg(z) >> z;", "op neg(z) >> w;"),
        ("op neg(z) >> y;", "op neg(x) >> z;"),
        ("op neg(z) >> y;", "op neg(x) >> y;"),
        ("cache.increment n;", "cache.read n >> w;"),
        ("cache.write z >> K[0];", "cache.read K[1] >> w;"),
        ("loop l (i in 0..n) { barrier; }", "cache.increment n;"),
        ("cache.read K[n] >> y;", "cache.increment n;"),
        ("branch b;", "op neg(x) >> y;"),
    ],
)
def test_a_variable_written_on_one_side_and_touched_on_the_other_is_an_error(entry: str, consumer: str) -> None:
    text = f"""{PAIR} persistent {{ n: i32; K(i): i32 @table; }}
        block entry {{ yield x; {entry} await x; return; }}
        block c {{ await x; {consumer} yield x; }}
        block b {{ op neg(z) >> y; return; }}"""
    assert set(binding_codes(text)) == {Code.RACE}
    after_step(text.replace(f"yield x; {entry} await x;", f"{entry} yield x; await x; {entry}"), x=1, z=1)


@sentence("yield.race")
def test_two_consumers_that_run_at_the_same_time_may_not_write_what_the_other_touches() -> None:
    text = f"""{PAIR} block entry {{ yield x; await x; return; }}
        block c {{ await x; op neg(x) >> w; yield x; }} block d {{ await x; op add(w, x) >> y; yield x; }}"""
    assert set(binding_codes(text)) == {Code.RACE}


@sentence("yield.race")
def test_variables_that_both_sides_only_read_are_no_race() -> None:
    text = f"""{PAIR} block entry {{ yield x; op neg(z) >> y; await x; return y, w; }}
        block c {{ await x; op add(x, z) >> w; yield x; }}"""
    assert after_step(text, x=1, z=2).fetch("w") == 3


@sentence("yield.never")
def test_a_consumer_awaiting_what_entry_never_yields_is_an_error() -> None:
    text = f"{PAIR} block entry {{ yield x; await x; return; }} block c {{ await x, z; yield x, z; }}"
    assert Code.BAD_YIELD in text_codes(text)


@sentence("await.unsatisfied")
def test_an_await_that_can_never_be_satisfied_is_an_error() -> None:
    late = f"""{PAIR} block entry {{ yield x; await x; yield z; await z; return; }}
        block c {{ await x, z; yield x, z; }}"""
    assert binding_codes(late) == [Code.NEVER_SATISFIED]
    assert Code.BAD_YIELD in text_codes(f"{PAIR} block entry {{ await x; return; }} block c {{ await x; yield x; }}")


@sentence("yield.twice")
def test_yielding_a_variable_twice_before_awaiting_it_is_an_error() -> None:
    text = f"{PAIR} block entry {{ yield x; yield x; await x; return; }} block c {{ await x; yield x; }}"
    assert text_codes(text) == [Code.BAD_YIELD]


@sentence("yield.again")
@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_a_consumer_runs_again_when_all_it_awaits_has_been_yielded_again(scheduler: str) -> None:
    text = f"""{PAIR} block entry {{
            yield x; yield z; await x, z; op add(x, z) >> x; yield z; yield x; await x; await z; return x, z;
        }}
        block c {{ await x, z; op add(x, x) >> x; op sub(z, x) >> z; yield x, z; }}"""
    ready = step(executor(text, scheduler=scheduler), x=1, z=2)
    # x, z: 1, 2; then 2, 0; entry makes it 2, 0; then 4, -4
    assert (ready.fetch("x"), ready.fetch("z")) == (4, -4)


@sentence("yield.unconsumed")
def test_a_yield_that_nobody_consumes_is_a_warning() -> None:
    text = f"{PAIR} block entry {{ yield z; await z; op neg(z) >> y; return y; }}"
    outcome = check(parse(text).graph)
    assert [problem.code for problem in outcome.problems] == [Code.UNCONSUMED_YIELD]
    assert after_step(text, x=0, z=3).fetch("y") == -3


@sentence("yield.gives-back")
@pytest.mark.parametrize("end", ["return;", "yield z;"])
def test_a_consumer_must_yield_all_that_entry_awaits_from_it(end: str) -> None:
    text = f"{PAIR} block entry {{ yield x, z; await x; return; }} block c {{ await x, z; {end} }}"
    assert Code.BAD_YIELD in text_codes(text)


@sentence("yield.tables")
@pytest.mark.parametrize("declared", ["persistent { K(i): i32 @table; }", "persistent { K(i): i32[1] @auto_dim(i); }"])
def test_tables_are_not_handed_over(declared: str) -> None:
    text = f"{declared} block entry {{ yield K; await K; return; }} block c {{ await K; yield K; }}"
    assert binding_codes(text) == [Code.BAD_YIELD]
