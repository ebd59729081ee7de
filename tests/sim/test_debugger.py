"""The debugger without a terminal: commands in, lines out."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.sim.debugging import SOURCE, debugger, executor, inputs, node, say

from openinfer import Graph, Simulator, graph
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.sim.debugger import Debugger
from openinfer.sim.task import Task

# --- showing where we are ---------------------------------------------------------------------------------------------


def test_the_start_shows_the_first_node_with_lines_around_it() -> None:
    session = Debugger(executor(), inputs)
    assert [line.text for line in session.start()] == [
        "g.oig: 11 nodes, 1 step; help lists the commands",
        "g.oig:7, node 0, step 1 of 1, block entry",
        "   5 | persistent { step: i32; K(l, t): f32[2] @table; }",
        "   6 | block entry {",
        "-> 7 |     transfer x >> h;",
        "   8 |     loop layers (l in 0..L) {",
        '   9 |         scope "double" {',
    ]


def test_missing_inputs_are_an_error_at_the_start() -> None:
    with pytest.raises(ExecutionError) as caught:
        Debugger(executor(), lambda _step: {"q": 1}).start()
    assert caught.value.code is Code.UNKNOWN_VARIABLE
    session = debugger(give=lambda _step: {})
    assert "E508" in say(session, "next")


@pytest.mark.parametrize("make", [Graph.from_json, lambda document: Graph.from_json(json.dumps(document))])
def test_a_graph_without_source_is_shown_as_canonical_text(make: Callable[[Any], Graph]) -> None:
    session = Debugger(Simulator().make_executor(make(graph(SOURCE).to_json())), inputs)
    answer = "\n".join(line.text for line in session.start())
    assert "<json> (canonical text): 11 nodes" in answer
    assert "->" in answer
    assert "transfer x >> h;" in answer
    assert "op add(h, h) >> h;" in say(session, "step", "step", "step")
    assert "op neg(h) >> h;" in say(session, "break op neg", "continue")


def test_list_shows_the_source_and_goes_on_when_repeated() -> None:
    session = debugger()
    first = say(session, "list")
    assert first.splitlines()[0].endswith("dynamic { x: f32[2]; }")
    assert len(first.splitlines()) == 11
    assert say(session, "").splitlines()[0].lstrip().startswith("13 |")
    assert say(session, "list 20").splitlines()[-1].endswith("block bad { return; }")
    assert "no more lines" in say(session, "")
    assert "no more lines" in say(session, "list 99")


def test_control_characters_in_the_source_are_escaped() -> None:
    session = Debugger(executor("// \x1b[31m\nvolatile { y: f32; }\nblock entry { op neg(y) >> y; return; }"))
    assert all(line.text.isprintable() for line in [*session.start(), *session.execute("list")])


# --- moving -----------------------------------------------------------------------------------------------------------


def test_next_runs_a_loop_a_scope_and_a_branch_as_a_whole() -> None:
    session = debugger()
    assert node(say(session, "next")) == 1
    answer = say(session, "next")
    assert answer.startswith("10 nodes in ")
    assert node(answer) == 5
    answer = say(session, "next")
    assert answer.startswith("3 nodes in ")
    assert node(answer) == 6
    session = debugger()
    assert node(say(session, "step 2", "next")) == 4  # the scope inside the loop


def test_step_goes_into_loops_scopes_and_branches() -> None:
    session = debugger()
    assert [node(say(session, "step")) for _ in range(6)] == [1, 2, 3, 4, 2, 3]
    assert node(say(session, "break 5", "continue")) == 5
    assert node(say(session, "step")) == 8
    assert "block good" in say(session, "where")


def test_out_leaves_the_loop_scope_or_block() -> None:
    session = debugger()
    assert node(say(session, "step 3")) == 3
    assert node(say(session, "out")) == 4
    assert node(say(session, "out")) == 5
    assert node(say(session, "step")) == 8
    assert node(say(session, "out")) == 6
    assert "step 1 of 1 is done" in say(session, "out")


def test_counts_repeat_moves_until_something_happens() -> None:
    assert node(say(debugger(), "next 2")) == 5
    session = debugger(steps=2)
    answer = say(session, "next 100")
    assert "step 1 of 2 is done" in answer
    assert node(answer) == 0


def test_an_empty_line_repeats_the_last_command() -> None:
    session = debugger()
    assert say(session, "") == ""
    assert node(say(session, "step", "", "  ")) == 3


def test_a_single_node_shows_what_it_wrote() -> None:
    session = debugger()
    assert say(session, "next").splitlines()[0] == "h: f32[2] [1, 2]"
    assert say(session, "step 3").splitlines()[0] == "h: f32[2] [2, 4]"
    assert say(session, "step").splitlines()[0] == "K[l, step]: f32[2] [2, 4]"


def test_where_shows_blocks_loop_indices_and_scopes() -> None:
    session = debugger()
    assert say(session, "where") == "step 1 of 1\n  block entry, not begun yet: line 7, node 0, transfer x >> h"
    say(session, "step 6")
    assert say(session, "where").splitlines()[1] == (
        "  block entry, l=1 in ..3, scope double: line 10, node 3, op add(h, h) >> h"
    )
    say(session, "break op neg", "continue")
    assert say(session, "where").splitlines()[1:] == [
        "  block entry: line 14, node 5, branch c good bad",
        "  block good: line 19, node 8, op neg(h) >> h",
    ]
    assert say(session, "delete", "continue", "where") == "after the last node: 1 step done"


def test_consumers_are_stepped_through_when_entry_waits() -> None:
    text = """
    dynamic { x: f32[2]; } volatile { y: f32[2]; }
    block entry { transfer x >> y; yield y; await y; return y; }
    block other { await y; op neg(y) >> y; yield y; }
    """
    session = debugger(text)
    answers = [say(session, "next") for _ in range(5)]
    assert [node(answer) for answer in answers] == [1, 4, 5, 6, 2]
    assert "block other" in answers[1]
    assert "other is a consumer" in say(debugger(text), "next 3", "where")
    session = debugger(text)
    assert say(session, "next 3", "next").splitlines()[0] == "y: f32[2] [-1, -2]"
    assert "[-1, -2]" in say(session, "print y")
    assert "y: f32[2] [5, 5]" in say(session, "edit y = 5")
    assert "y: f32[2] [5, 5]" in say(session, "continue")


# --- several steps ----------------------------------------------------------------------------------------------------


def test_continue_goes_over_all_steps_and_inputs_are_inserted_for_each() -> None:
    session = debugger(steps=3)
    answer = say(session, "continue")
    assert "step 3 of 3 is done" in answer
    assert "h: f32[2] [-24, -16]" in answer
    assert "i32 3" in say(session, "vars")
    assert "step: i32, persistent\n  3" in say(session, "print step")
    assert "K: f32[3, 3, 2]" in say(session, "print K")


def test_what_a_step_returned_is_shown_even_if_the_stop_is_in_the_next() -> None:
    answer = say(debugger(steps=2), "break op neg", "continue", "continue")
    assert "step 1 of 2 is done\n  h: f32[2] [-8, -16]\nbreakpoint 1" in answer
    assert "step 2 of 2" in answer


def test_finish_goes_to_the_end_of_the_step() -> None:
    session = debugger(steps=2)
    assert "step 1 of 2 is done" in say(session, "step 3", "finish")
    assert say(session, "print h").splitlines()[1] == "  [-8, -16]"
    assert say(session, "print x").splitlines()[1] == "  [1, 2]"
    assert "step 2 of 2 is done" in say(session, "finish")


def test_when_all_steps_are_done_more_can_be_planned() -> None:
    session = debugger()
    say(session, "continue")
    for command in ("next", "step", "continue", "finish", "out"):
        assert "restart goes back, steps 2 plans another" in say(session, command)
    assert session.failures == 5
    assert say(session, "steps 3") == "1 of 3 steps done"
    assert "step 3 of 3 is done" in say(session, "continue")
    assert "3 steps have already started" in say(session, "steps 2")


def test_restart_goes_back_to_initial_memory_and_keeps_breakpoints() -> None:
    session = debugger(steps=2)
    say(session, "break op neg", "watch h", "continue", "continue")
    assert node(say(session, "restart")) == 0
    assert "  0" in say(session, "print step")
    assert "K: f32[0, 0, 2]" in say(session, "print K")
    assert "breakpoint 1: op neg" in say(session, "continue")
    assert "step 1 of 2" in say(session, "run")
    assert "nothing has been executed yet" in say(session, "restart", "history")


def test_restart_goes_back_to_a_loaded_state() -> None:
    saved = executor()
    saved.insert(inputs(0))
    saved.run_step()
    state = saved.save_state()
    assert state is not None
    session = debugger(state=state)
    assert "  1" in say(session, "print step")
    assert "  2" in say(session, "continue", "print step")
    assert "  1" in say(session, "restart", "print step")


# --- breakpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "stops"),
    [
        ("3", [3, 3, 3]),
        ("node 3", [3, 3, 3]),
        ("line 10", [3, 3, 3]),
        ("op neg", [8]),
        ("op cache.write", [4, 4, 4]),
        ("line 11", [4, 4, 4]),
        ("write h", [1, 4, 4, 4, 9]),
        ("write K", [2, 2, 5]),
        ("change h", [1, 4, 4, 4, 9]),
        ("change K", [2, 2, 5]),
        ("nan", []),
        ("nan h", []),
        ("if max(h) > 3", [4, 4, 4]),
        ("if max h > 3", [4, 4, 4]),
        ("if min(h) <= -8", [9]),
        ("if mean(h) == 6", [4]),
        ("if h > 10", [4]),
        ("if h[0] >= 8", [4]),
        ("if K[2, 0] > 0", [5]),
        ("if nan(h) > 0", []),
        ("if inf(h) > 0", []),
        ("if step == 1", [7]),
        ("if l == 1", [2]),
        ("if l != 1", [2, 2]),
    ],
)
def test_a_breakpoint_stops_before_places_and_after_writes(where: str, stops: list[int]) -> None:
    session = debugger()
    assert say(session, f"break {where}").startswith("breakpoint 1: ")
    found = []
    while "is done" not in (answer := say(session, "continue")):
        assert "breakpoint 1: " in answer
        assert ("  by line " in answer) == (where.startswith(("write", "change", "if")) and " l " not in where)
        found.append(node(answer))
    assert found == stops


def test_nan_and_infinity_stop_where_they_are_written() -> None:
    text = "dynamic { x: f32[2]; } volatile { y: f32[2]; } block entry { barrier; op log(x) >> y; return; }"
    session = debugger(text, lambda _step: {"x": [-1.0, 1.0]})
    answer = say(session, "break nan", "break nan x", "break if nan(y) == 1", "continue")
    assert "breakpoint 1: nan" in answer
    assert "breakpoint 2" not in answer
    assert "  by line 1, node 1, op log(x) >> y" in answer
    assert "breakpoint 3: if nan(y) == 1" in answer
    assert node(answer) == 2


def test_breakpoints_inside_are_felt_by_next() -> None:
    session = debugger()
    answer = say(session, "break 3", "next", "next")
    assert node(answer) == 3
    assert "breakpoint 1" in answer


def test_breakpoints_are_listed_and_deleted() -> None:
    session = debugger()
    assert "there are no breakpoints" in say(session, "break")
    say(session, "break 3", "break op neg", "break change h")
    listed = "breakpoint 1: node 3, line 10\nbreakpoint 2: op neg, 1 node\nbreakpoint 3: change h"
    assert say(session, "break") == say(session, "break list") == listed
    assert say(session, "delete 2") == "breakpoint 2 deleted: op neg, 1 node"
    assert say(session, "break delete 1") == "breakpoint 1 deleted: node 3, line 10"
    assert say(session, "break") == "breakpoint 3: change h"
    assert say(session, "break 4") == "breakpoint 4: node 4, line 12"
    assert "there is no breakpoint 2" in say(session, "delete 2")
    assert say(session, "delete") == "2 breakpoints deleted"


def test_a_breakpoint_on_the_first_node_stops_at_the_next_step() -> None:
    session = debugger(steps=2)
    answer = say(session, "break 0", "continue")
    assert "step 1 of 2 is done" in answer
    assert "breakpoint 1: node 0" in answer
    assert "step 2 of 2 is done" in say(session, "continue")


def test_a_condition_that_cannot_be_judged_stops_and_says_why() -> None:
    session = debugger()
    answer = say(session, "break if h[7] > 1", "continue")
    assert "cannot be evaluated: the index 7 of 'h' is outside axis 0, which has 2" in answer
    assert node(answer) == 1


# --- errors and interruptions -----------------------------------------------------------------------------------------

FAILING = """\
dynamic { x: f32[2]; }
volatile { y: f32[2]; }
persistent { step: i32; K(t): f32[2] @table @fixed(t=2); }
block entry {
    cache.write x >> K[step];
    cache.increment step;
    return y;
}
"""


def test_a_failing_step_has_not_happened_and_can_be_looked_into() -> None:
    session = debugger(FAILING, steps=4)
    answer = say(session, "watch step", "continue")
    assert "E507" in answer
    assert "--> g.oig:5:5" in answer
    assert "step 3 of 4 has not happened" in answer
    assert "watch step: i32 2" in answer
    assert node(answer) == 0
    assert session.failures == 1
    assert "E507" in say(session, "next")
    assert "  2" in say(session, "print step")


def test_inputs_that_run_out_are_reported() -> None:
    def give(step: int) -> dict[str, Any]:
        if step:
            raise ExecutionError(Diagnostic(Code.NOT_INSERTED, "there are no more"))
        return inputs(step)

    answer = say(debugger(give=give, steps=2), "continue")
    assert "there are no more" in answer
    assert "step 2 of 2 has not happened" in answer


ENDLESS = """\
volatile { y: f32; one: f32 @init(1); }
persistent { n: i64; }
block entry {
    cache.increment n;
    loop forever (i in 0..1000000000000) { op add(y, one) >> y; }
    return;
}
"""


def test_an_interruption_halts_after_a_node_and_the_step_goes_on_later() -> None:
    session = debugger(ENDLESS, lambda _step: {})
    timer = threading.Timer(0.2, session.interrupt)
    timer.start()
    answer = say(session, "continue")
    timer.join()
    assert "interrupted" in answer
    assert node(answer) == 2
    reached = float(say(session, "print y").splitlines()[1])
    assert reached > 10
    assert float(say(session, "next").splitlines()[0].split()[-1]) == reached + 1


def test_a_second_interruption_during_a_node_gives_the_step_up(monkeypatch: pytest.MonkeyPatch) -> None:
    session = debugger(ENDLESS, lambda _step: {})
    say(session, "next")
    original = Task.advance

    def advance(self: Task) -> None:
        original(self)
        session.interrupt()  # as two signals would, while the node runs
        session.interrupt()

    monkeypatch.setattr(Task, "advance", advance)
    answer = say(session, "continue")
    monkeypatch.undo()
    assert "interrupted in the middle of a node: step 1 of 1 has not happened" in answer
    assert node(answer) == 0
    assert "  0" in say(session, "print n")
    assert node(say(session, "next")) == 1


def test_an_interruption_while_nothing_runs_is_a_keyboard_interrupt() -> None:
    session = debugger()
    with pytest.raises(KeyboardInterrupt):
        session.interrupt()


def test_an_interrupted_look_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    session = debugger()

    def stuck(*_: object) -> None:
        session.interrupt()

    monkeypatch.setattr("openinfer.sim.debugger.described", stuck)
    assert say(session, "print h") == "interrupted"
