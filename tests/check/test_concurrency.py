"""Yield and await: every legal graph has one result whatever the schedule, and illegal ones are refused when bound."""

from random import Random
from time import process_time

import pytest
from tests.check.binding import codes, marked, messages, problems
from tests.check.schedules import outcomes, random_program

from openinfer.check import check
from openinfer.lang import parse

DECLARED = """dynamic { x: f32; y: f32; } volatile { z: f32; v: f32; } constant { c: f32 @init(1); }
    persistent { step: i32; K(i): f32 @table; P: f32; }"""


def step(entry: str, *blocks: str) -> str:
    """A graph with an entry and consumers."""
    return f"{DECLARED} block entry {{ {entry} return; }} " + " ".join(blocks)


ON_X = "block work { await x; op neg(x) >> x; yield x; }"


# --- legal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "blocks"),
    [
        ("yield x; await x; op neg(x) >> z;", [ON_X]),
        ("op neg(x) >> x; yield x; op neg(y) >> z; await x;", [ON_X]),
        ("yield x; op neg(c) >> z; await x;", ["block work { await x; op add(x, c) >> x; yield x; }"]),
        ("yield x; op neg(y) >> z; await x;", ["block work { await x; op add(x, y) >> x; yield x; }"]),
        ("yield x; await x; op neg(z) >> z;", ["block work { await x; op neg(x) >> z; yield x; }"]),
        ("yield x; await x;", [ON_X, "block read { await x; op neg(x) >> z; yield x; }"]),
        ("yield x, y; await y; op neg(y) >> y; await x;", [ON_X, "block other { await y; op neg(y) >> v; yield y; }"]),
        ("yield x; await x; yield y; await y;", [ON_X, "block other { await y; op neg(x) >> x; yield y; }"]),
        ("op neg(x) >> z; yield x;", ["block work { await x; op neg(x) >> v; return; }"]),
        ("yield x; yield y; await x; await y;", ["block both { await x, y; op add(x, y) >> x; yield x, y; }"]),
        (
            "yield x, y; await y; op neg(z) >> z; await x;",
            ["block both { await x, y; op add(x, y) >> z; yield x, y; }"],
        ),
        ("yield x; branch aside; await x;", [ON_X, "block aside { op neg(y) >> z; return; }"]),
        ("yield x; await x;", ["block work { await x; branch b; yield x; }", "block b { op neg(y) >> z; return; }"]),
        ("yield x; await x; cache.increment step;", ["block work { await x; cache.write x >> K[step]; yield x; }"]),
        ("assign h: f32; yield x; await x;", ["block work { await x; op neg(x) >> h; yield x; }"]),
    ],
)
def test_these_graphs_have_one_result(entry: str, blocks: list[str]) -> None:
    assert codes(step(entry, *blocks)) == []


# --- E601 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        "op neg(x) >> z;",
        "op neg(y) >> x;",
        "transfer x >> z;",
        "cache.write x >> P;",
        "cache.read P >> x;",
        "branch aside;",
        'scope "s" { loop l (i in 0..2) { op neg(x) >> z; } }',
    ],
)
def test_entry_does_not_touch_what_it_has_yielded_before_it_awaits_it(node: str) -> None:
    aside = "block aside { op neg(x) >> z; return; }"
    (problem,) = problems(step(f"yield x; {node} await x;", ON_X, aside))
    assert (str(problem.code), problem.help) == ("E601", "await x first")
    assert problem.message == "'x' is touched here, but it has been yielded and not awaited"
    assert node.startswith(marked(problem))
    assert codes(step(f"{node} yield x; await x; {node}", ON_X, aside)) == []


def test_a_yielded_variable_is_away_to_the_end_of_the_step_where_nobody_awaits_it() -> None:
    text = f"{DECLARED} block entry {{ yield x; return x; }} block work {{ await x; op neg(x) >> z; return; }}"
    assert codes(text) == ["E601"]


# --- E602, E603 -----------------------------------------------------------------------------------------------------


def test_two_consumers_do_not_write_the_variable_they_both_await() -> None:
    (problem,) = problems(step("yield x; await x;", ON_X, ON_X.replace("work", "other")))
    assert (str(problem.code), problem.message) == ("E602", "the blocks 'work' and 'other' both write 'x'")


def test_three_writers_are_two_problems() -> None:
    blocks = [ON_X.replace("work", name) for name in ("one", "two", "three")]
    assert messages(step("yield x; await x;", *blocks)) == [
        "the blocks 'one' and 'two' both write 'x'",
        "the blocks 'one' and 'three' both write 'x'",
    ]


@pytest.mark.parametrize(
    ("node", "work", "name"),
    [
        ("op neg(y) >> z;", "op neg(x) >> z;", "z"),
        ("op neg(z) >> v;", "op neg(x) >> z;", "z"),
        ("op neg(y) >> z;", "op add(x, z) >> x;", "z"),
        ("cache.increment step;", "cache.write x >> K[step];", "step"),
        ("cache.reset K;", "cache.read K[0] >> x;", "K"),
        ("cache.read K[1] >> z;", "cache.write x >> K[0];", "K"),
        ("loop l (i in 0..step) { op neg(y) >> v; }", "cache.increment step;", "step"),
        ("branch aside;", "op neg(x) >> v;", "v"),
        ("op neg(y) >> v;", "branch aside;", "v"),
        ("yield y; await y;", "op neg(x) >> y;", "y"),
    ],
)
def test_what_one_side_writes_the_other_does_not_touch_while_both_run(node: str, work: str, name: str) -> None:
    blocks = [f"block work {{ await x; {work} yield x; }}", "block aside { op add(v, y) >> v; return; }"]
    if "yield" in node:
        blocks.append("block other { await y; op neg(y) >> z; yield y; }")
    found = problems(step(f"yield x; {node} await x;", *blocks))
    assert {str(problem.code) for problem in found} == {"E603"}
    assert found[0].message.startswith(f"{name!r} is touched here while the block 'work' runs")
    assert node.startswith(marked(found[0]))
    assert codes(step(f"{node} yield x; await x; ", *blocks)) == []


def test_two_consumers_do_not_share_what_one_of_them_writes_while_both_run() -> None:
    one = "block one { await x; op neg(x) >> z; yield x; }"
    two = "block two { await y; op neg(z) >> v; yield y; }"
    (problem,) = problems(step("yield x, y; await x, y;", one, two))
    assert str(problem.code) == "E603"
    assert problem.message == "the blocks 'one' and 'two' run at the same time, and one of them writes 'z'"
    assert codes(step("yield x; await x; yield y; await y;", one, two)) == []


def test_a_consumer_that_ends_early_does_not_hide_one_that_runs_on() -> None:
    long = "block long { await x; op neg(z) >> v; yield x; }"
    short = "block short { await y; op neg(z) >> y; yield y; }"
    last = "block last { await w; op neg(w) >> z; yield w; }"
    text = step("yield x; yield y; await y; yield w; await w; await x;", long, short, last)
    assert messages(text.replace("y: f32; }", "y: f32; w: f32; }")) == [
        "the blocks 'long' and 'last' run at the same time, and one of them writes 'z'"
    ]


def test_a_copy_does_not_excuse_another_block_that_writes_the_variable_itself() -> None:
    reads = "block reads { await x; op neg(x) >> z; yield x; }"
    writes = "block writes { await y; op neg(y) >> x; yield y; }"
    assert "E603" in codes(step("yield x, y; await x, y;", reads, writes))


def test_a_consumer_that_never_gives_anything_back_runs_to_the_end_of_the_step() -> None:
    work = "block work { await x; op neg(x) >> z; return; }"
    assert codes(step("yield x; op neg(y) >> v;", work)) == []
    assert codes(step("yield x; op neg(y) >> v; op neg(z) >> v;", work)) == ["E603"]


def test_each_conflict_of_a_crowd_is_reported_for_each_block_that_has_one() -> None:
    blocks = [f"block b{number} {{ await x; op neg(x) >> z; yield x; }}" for number in range(5)]
    assert codes(step("yield x; await x;", *blocks)) == ["E603"] * 4


# --- E604 -----------------------------------------------------------------------------------------------------------


def test_an_await_that_comes_before_its_consumer_has_everything_is_refused() -> None:
    both = "block both { await x, y; op add(x, y) >> x; yield x, y; }"
    (problem,) = problems(step("yield x; await x; yield y; await y;", both))
    assert (str(problem.code), marked(problem)) == ("E604", "await x")
    assert problem.message == "the block 'both' also awaits 'y', which is yielded only after this"


BOTH = "block both { await x, y; op add(x, y) >> x; yield x, y; }"


def test_a_consumer_runs_again_when_all_it_awaits_has_been_yielded_again() -> None:
    assert codes(step("yield x; await x; yield x; await x; yield x;", ON_X)) == []
    assert codes(step("yield x, y; await x, y; op neg(y) >> y; yield y; yield x; await x;", BOTH)) == []
    (problem,) = problems(step("yield x, y; await x, y; yield x; await x; yield y;", BOTH))
    assert (str(problem.code), marked(problem)) == ("E604", "await x")
    assert problem.message == "the block 'both' also awaits 'y', which is yielded only after this"


def test_what_both_sides_touch_is_judged_for_every_run() -> None:
    """Between two runs entry may do what it may not while either of them goes on."""
    free = "yield x; await x; op neg(z) >> z; yield x; await x; op neg(z) >> z;"
    reads = "block work { await x; op add(x, z) >> x; yield x; }"
    assert codes(step(free, reads)) == []
    assert codes(step("yield x; await x; yield x; op neg(z) >> z; await x;", reads)) == ["E603"]
    assert codes(step("yield x; await x; yield x; op neg(x) >> z; await x;", ON_X)) == ["E601"]
    other = "block other { await x; op neg(x) >> x; yield x; }"
    assert codes(step("yield x; await x; yield x; await x;", ON_X, other)) == ["E602"]


# --- other rules ----------------------------------------------------------------------------------------------------


def test_tables_are_not_handed_over() -> None:
    (problem,) = problems(step("yield K; await K;", "block work { await K; cache.reset K; yield K; }"))
    assert (str(problem.code), problem.message) == ("E408", "'K' is a table; only single values are handed over")


def test_a_consumer_uses_only_temporaries_that_are_assigned_when_it_starts() -> None:
    work = "block work { await x; op neg(x) >> h; yield x; }"
    (problem,) = problems(step("yield x; await x; assign h: f32;", work))
    assert str(problem.code) == "E210"
    assert problem.message == "'h' is used by the block 'work', which starts before it is assigned"
    late = step("yield x; assign h: f32; yield y; await x;", "block both { await x, y; op neg(x) >> h; yield x; }")
    assert codes(late) == []


# --- against every schedule -----------------------------------------------------------------------------------------


def test_whatever_is_accepted_has_one_result_in_every_schedule() -> None:
    """Refusing everything would pass, too; but what is refused without need touches a variable to no effect."""
    accepted = needless = needed = 0
    for seed in range(1500):
        program = random_program(Random(seed))
        parsed = parse(program.text)
        if any(not problem.code.is_warning for problem in parsed.problems):
            continue
        results = outcomes(program)
        if check(parsed.graph).bound is None:
            needless += len(results) == 1
            needed += len(results) > 1
            continue
        accepted += 1
        assert len(results) == 1, program.text
        assert results != {"stuck"}, program.text
    assert accepted > 50
    assert needed + needless > 250
    assert needed > needless


# --- many -----------------------------------------------------------------------------------------------------------


def test_thousands_of_consumers_are_checked_in_a_moment() -> None:
    count = 4000
    variables = "".join(f"x{number}: f32; " for number in range(count))
    entry = "".join(f"yield x{number}; op neg(y) >> z; await x{number}; " for number in range(count))
    blocks = "".join(
        f"block b{number} {{ await x{number}; op neg(x{number}) >> v; yield x{number}; }} " for number in range(count)
    )
    text = (
        f"dynamic {{ {variables} y: f32; }} volatile {{ z: f32; v: f32; }} block entry {{ {entry} return; }} {blocks}"
    )
    parsed = parse(text)
    started = process_time()
    assert check(parsed.graph).problems == ()
    assert process_time() - started < 10
