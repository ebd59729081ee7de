"""What the debugger shows and changes of values, and what it says to commands that make no sense."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sim.concurrent_graphs import random_graph
from tests.sim.debugging import debugger, executor, inputs, node, say
from tests.sim.test_failed_steps import EVERYTHING

from openinfer import ModelLoader, Simulator, graph
from openinfer.oinf import save_file
from openinfer.sim.debugger import Debugger

# --- watching and printing --------------------------------------------------------------------------------------------


def test_watched_variables_are_shown_at_every_stop_with_what_changed() -> None:
    session = debugger()
    assert say(session, "watch h") == "watch h: f32[2] [0, 0]  new"
    say(session, "watch h[1]", "watch step")
    answer = say(session, "next")
    assert "watch h: f32[2] [1, 2]  changed: 2 of 2, by at most 2" in answer
    assert "watch h[1]: f32 2  changed: was 0" in answer
    assert "watch step: i32 0  same" in answer
    assert say(session, "unwatch h") == "watched: h[1], step"
    assert "watch h:" not in say(session, "next")
    assert "q is not watched" in say(session, "unwatch q")
    assert say(session, "unwatch") == "watched: nothing"
    assert "nothing is watched" in say(session, "watch")


def test_a_watched_table_grows() -> None:
    session = debugger()
    say(session, "watch K", "watch K[0, 0]", "next")
    answer = say(session, "next")
    assert "watch K: f32[3, 1, 2] [2, 4, 4, 8, 8, ...]  changed: was [0, 0, 2]" in answer
    assert "watch K[0, 0]: f32[2] [2, 4]  changed: 2 of 2, by at most 4" in answer


def test_a_watched_value_that_has_no_shape_says_so() -> None:
    text = """
    sizes { T <= 4; } persistent { step: i32; K(t): f32 @table; }
    block entry { assign k: f32[T]; cache.read K[0..step+2] >> k; return; }
    """
    session = debugger(text, lambda _step: {})
    assert "E312" in say(session, "watch k")
    assert "k: f32[2]" in say(session, "next", "next", "print k")
    assert say(session, "print T") == "T = 2, a size"
    assert say(debugger(text, lambda _step: {}), "print T") == "T = at most 4, a size"


def test_print_shows_type_elements_and_statistics() -> None:
    session = debugger()
    assert say(session, "print x") == "x: f32[2], dynamic\n  [1, 2]\n  min 1, max 2, mean 1.5, nan 0"
    assert say(session, "p x[0]") == "x[0]: f32, dynamic\n  1"
    assert say(session, "print big").splitlines() == [
        "big: f32[3, 4], volatile",
        "  [0] [2, 2, 2, 2]",
        "  [1] [2, 2, 2, 2]",
        "  [2] [2, 2, 2, 2]",
        "  min 2, max 2, mean 2, nan 0",
    ]
    assert say(session, "print c") == "c: bool, volatile\n  true"
    assert say(session, "print L") == "L = 3, a size"
    say(session, "step 2")
    assert say(session, "print l") == "l = 0, a loop index"
    assert "E507" in say(session, "print h[l+2]")
    assert say(session, "continue", "print K[2, 0..1]").splitlines()[0] == "K[2, 0..1]: f32[1, 2], persistent"
    assert say(session, "print K[0]").splitlines()[0] == "K[0]: f32[1, 2], persistent"


def test_statistics_count_what_is_not_finite() -> None:
    text = "dynamic { x: f32[4]; } volatile { y: f32[2, 0]; } block entry { op neg(x) >> x; return; }"
    session = debugger(text, lambda _step: {"x": [1.0, np.nan, -np.inf, 3.0]})
    assert say(session, "print x").splitlines()[-1] == "  min -inf, max 3, mean -inf, nan 1, inf 1"
    assert say(session, "print y") == "y: f32[2, 0], volatile\n  []"


def test_large_values_are_shown_in_part() -> None:
    text = "dynamic { x: f32[20, 20]; } block entry { op neg(x) >> x; return; }"
    lines = say(debugger(text, lambda _step: {"x": np.zeros((20, 20), np.float32)}), "print x").splitlines()
    assert lines[1] == "  [0] [0, 0, 0, 0, 0, 0, 0, 0, ...]"
    assert lines[7] == "  ... 14 more rows"


def test_vars_lists_everything_without_loading_weights(tmp_path: Path) -> None:
    save_file(tmp_path / "m.oinf", {"w": np.ones(2, np.float32), "W.0": np.ones(2, np.float32)})
    text = """
    dynamic { x: f32[2]; } volatile { y: f32[2] @init(5); } constant { w: f32[2]; W(l): f32[2] @pattern("W.{l}"); }
    persistent { K(t): f32[2] @table; }
    block entry { assign t: f32[2]; op add(x, w) >> t; op add(t, W[0]) >> y; cache.write y >> K[0]; return y; }
    """
    with ModelLoader.open(tmp_path / "m.oinf") as model:
        loaded: list[str] = []
        original = model.load
        model.load = lambda name: (loaded.append(name), original(name))[1]  # type: ignore[method-assign, func-returns-value]
        session = Debugger(Simulator(model).make_executor(graph(text)), inputs)
        session.start()
        assert say(session, "vars").splitlines() == [
            "dynamic    x  f32[2] [1, 2]",
            "volatile   y  f32[2] still 5.0",
            "constant   w  f32[2] model entry 'w', not read yet",
            "constant   W  f32[2] for each model tensor 'W.{l}'",
            "persistent K  f32[0, 2] table",
            "temporary  t  f32[2] still 0",
        ]
        assert loaded == []
        assert "constant   w  f32[2] [1, 1]" in say(session, "finish", "vars")
        assert say(session, "print W[0]").splitlines()[0] == "W[0]: f32[2], constant"
        assert "E502" in say(session, "print W")


def test_history_lists_executed_nodes_with_places_and_times() -> None:
    session = debugger()
    assert say(session, "history") == "nothing has been executed yet"
    lines = say(session, "next 2", "history").splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("step 1, entry, line 7, node 0, transfer x >> h, ")
    assert lines[-1].startswith("step 1, entry l=2, line 12, node 4, cache.write h >> K[l, step], ")
    assert lines[-1].endswith((" us", " ms"))
    assert len(say(session, "history 2").splitlines()) == 2


# --- editing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "result"),
    [
        ("h = 1.5", [1.5, 1.5]),
        ("h[1] = 7", [1, 7]),
        ("h = [3, 4]", [3, 4]),
        ("h[0..2] = [5, 6]", [5, 6]),
        ("h=-inf", [-np.inf, -np.inf]),
        ("h = [inf, 0]", [np.inf, 0]),
        ("h[1-1] = -0.5", [-0.5, 2]),
    ],
)
def test_volatile_values_are_edited_and_used(edit: str, result: list[float]) -> None:
    session = debugger()
    assert say(session, "next", f"edit {edit}").startswith(edit.partition("=")[0].strip())
    found = np.array(say(session, "print h").splitlines()[1].strip(" []").split(", "), float)
    assert found.tolist() == result
    say(session, "continue")
    expected = -8 * np.array(result)
    assert (
        np.array(say(session, "print h").splitlines()[1].strip(" []").split(", "), float).tolist() == expected.tolist()
    )


def test_an_edit_before_the_first_node_begins_the_step() -> None:
    session = debugger(steps=2)
    assert say(session, "edit x = [5, 5]") == "x: f32[2] [5, 5]"
    assert say(session, "next").splitlines()[0] == "h: f32[2] [5, 5]"
    assert "h: f32[2] [-40, -40]" in say(session, "finish")
    assert say(session, "edit x = 1") == "x: f32[2] [1, 1]"
    assert "step 2 of 2 is done\n  h: f32[2] [-8, -8]" in say(session, "finish")
    assert "h: f32[2] [-8, -16]" in say(session, "restart", "finish")


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ("", "write edit VAR = VALUE"),
        ("h", "write edit VAR = VALUE"),
        ("h =", "write edit VAR = VALUE"),
        ("= 3", "write edit VAR = VALUE"),
        ("q = 3", "there is no variable 'q'"),
        ("3 = 3", "'3' is not a variable"),
        ("h[5] = 3", "E507"),
        ("h = [1, 2, 3]", "h has the shape [2], but the value has [3]"),
        ("h = [[1, 2], 3]", "E303"),
        ("h = seven", "'seven' is neither a number nor a list"),
        ('h = "1"', "neither a number nor a list"),
        ("h = @nowhere.npy", "neither a number nor a list"),
        ("two = 3", "E509"),
        ("step = 3", "E509"),
        ("K = 3", "E509"),
        ("K[0, 0] = 3", "E509"),
        ("c = 2", "E302"),
        ("h = 1" + "0" * 5000, ""),
        ("h = " + "[" * 100_000, ""),
    ],
)
def test_bad_edits_are_refused_in_a_line(edit: str, reason: str) -> None:
    session = debugger()
    before = say(session, "next", "print h")
    answer = say(session, f"edit {edit}")
    assert reason in answer
    assert session.failures == 1
    assert say(session, "print h") == before


def test_values_in_other_forms_come_from_whoever_made_the_debugger() -> None:
    def read(variable: Any, text: str, shape: Any) -> Any:
        assert (variable.name, text, shape) == ("h", "@h.npy", (2,))
        return np.array([8, 9])

    session = debugger(values=read)
    assert say(session, "edit h = @h.npy") == "h: f32[2] [8, 9]"


def test_edits_after_the_last_step_are_refused() -> None:
    session = debugger()
    assert "all steps are done" in say(session, "continue", "edit h = 1")


# --- bad commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("nxt", "did you mean 'next'"),
        ("zzz", "help lists the commands"),
        ("wha", "help lists the commands"),
        ("st", "can be step or steps"),
        ("next x", "'x' is not a number from 1"),
        ("next 0", "is not a number from 1"),
        ("next -1", "is not a number from 1"),
        ("next 99999999999999999999", "is not a number from 1"),
        ("continue 3", "'continue' takes no argument"),
        ("print", "print what"),
        ("print q", "there is no variable 'q'"),
        ("print hh", "did you mean 'h'"),
        ("print h[", "'h[' is not a variable"),
        ("print h + 1", "is not a variable"),
        ('print model["x"]', "is not a variable"),
        ("print h[" + "(" * 1000, "is not a variable"),
        ("watch q", "there is no variable 'q'"),
        ("break 99", "there is no node 99; the last one is 10"),
        ("break line 99", "no node begins on line 99 or after it; the last line is 22"),
        ("break op matmul", "no node is called 'matmul'; there are add, "),
        ("break write q", "there is no variable 'q'"),
        ("break change q", "there is no variable 'q'"),
        ("break nan q", "there is no variable 'q'"),
        ("break if q > 1", "there is no variable 'q'"),
        ("break if h", "a condition is like"),
        ("break if h > x", "a condition is like"),
        ("break if h == nan", "a condition is like"),
        ("break whenever", "cannot understand 'whenever'"),
        ("break line", "cannot understand 'line'"),
        ("break \u0663", "cannot understand"),
        ("list x", "is not a number"),
        ("history x", "is not a number"),
        ("delete x", "is not a number"),
        ("steps x", "is not a number"),
        ("help nothing", "there is no command"),
        ("\x1b[31m", "\\x1b"),
    ],
)
def test_a_bad_command_gets_one_helpful_line(command: str, reason: str) -> None:
    session = debugger()
    (line,) = session.execute(command)
    assert reason in line.text
    assert line.text.isprintable()
    assert session.failures == 1
    assert node(say(session, "next")) == 1


def test_commands_can_be_shortened_when_it_is_clear_what_is_meant() -> None:
    session = debugger()
    assert node(say(session, "ne")) == 1
    assert "breakpoint 1" in say(session, "bre 3")
    assert "breakpoint 1" in say(session, "cont")


def test_help_describes_every_command() -> None:
    session = debugger()
    listed = say(session, "help")
    for name in ("next", "step", "continue", "break", "watch", "print", "edit", "quit", "history", "restart"):
        assert f"  {name}" in listed
    assert say(session, "help b") == say(session, "h break")
    assert "b change h" in say(session, "help break")


def test_completions_are_commands_in_front_and_variables_behind() -> None:
    session = debugger()
    assert session.completions("st", "st") == ["step", "steps"]
    assert session.completions("b", "print b") == ["big"]


def test_quit_gives_up_the_suspended_step() -> None:
    ready = executor()
    session = Debugger(ready, inputs)
    session.start()
    assert session.execute("next")
    assert session.execute("quit") == []
    assert session.is_over
    assert not ready.is_suspended


# --- anything at all --------------------------------------------------------------------------------------------------

NAMES = ["x", "y", "s", "step", "total", "K", "A", "C", "window", "k", "a", "late", "row", "l", "T", "q"]
INDICES = ["0", "1", "l", "step", "0..2", "..", "", "-1", "0..-1", "1/0", "9", "x", "T", "..3", "2..1", str(2**64 - 1)]
VALUES = [
    "1",
    "-2.5",
    "[1,2]",
    "[1,2,3,4]",
    "[[1,2],[3,4]]",
    "nan",
    "null",
    "{}",
    "1e400",
    "1e39",
    "[",
    "@x",
    '["a"]',
    "[]",
]
COMPARED = ["<", ">", "==", "!=", ">="]


def random_access(rng: random.Random) -> str:
    name = rng.choice(NAMES)
    return name if rng.random() < 0.4 else f"{name}[{', '.join(rng.choice(INDICES) for _ in range(rng.randrange(4)))}]"


def random_stop(rng: random.Random) -> str:
    measured = f"{rng.choice(['', 'max', 'min', 'mean', 'nan'])}({random_access(rng)})"
    return rng.choice(
        [
            str(rng.randrange(40)),
            f"line {rng.randrange(60)}",
            "op add",
            "nan",
            f"write {rng.choice(NAMES)}",
            f"change {rng.choice(NAMES)}",
            f"nan {rng.choice(NAMES)}",
            f"if {measured} {rng.choice(COMPARED)} {rng.choice(['1', '-1', 'inf', 'x'])}",
            f"if {random_access(rng)} > 1",
            "if l == 1",
        ]
    )


def random_command(rng: random.Random) -> str:
    return rng.choice(
        [
            rng.choice(["next", "step", "out", "finish", "continue", f"next {rng.randrange(5)}"]),
            f"print {random_access(rng)}",
            f"watch {random_access(rng)}",
            f"edit {random_access(rng)} = {rng.choice(VALUES)}",
            f"break {random_stop(rng)}",
            rng.choice(
                ["vars", "where", "list", "history", "steps", "delete", "break", "", "restart", "run", "unwatch"]
            ),
            "".join(rng.choice("bnpwec hx[]=0.,@\x00\u0663\xe9\t") for _ in range(rng.randrange(12))),
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_command_whatsoever_ends_in_a_traceback(seed: int) -> None:
    rng = random.Random(seed)
    if seed % 2:
        session = debugger(EVERYTHING, lambda step: {"x": np.full(4, 0.25 * (step + 1), np.float32)}, steps=3)
    else:
        session = debugger(random_graph(seed), lambda _step: {}, steps=3)
    for _ in range(50):
        assert all(line.text.isprintable() for line in session.execute(random_command(rng)))
