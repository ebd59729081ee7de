"""Every request of the debug adapter, over standard streams, each message held against the protocol's schema."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dap.client import Client

GRAPH = """\
// openinfer: --size B=2 --input x=[1,2] --steps 2
dynamic { x: f32[B]; }
volatile { y: f32[B]; }
persistent { total: f32[B]; step: i32 @init(0); K(t): f32[B] @table; }
constant { half: f32 @init(0.5); }
block entry {
    assign h: f32[B];
    transfer x >> h;
    loop rounds (i in 0..3) {
        op add(h, h) >> h;
        op add(total, h) >> total;
    }
    call shift(h) >> y;
    cache.write y >> K[step];
    cache.increment step;
    return y;
}
block shift(v: f32[B]) {
    w = op add(v, 0.25);
    return w;
}
"""


@pytest.fixture
def client() -> Iterator[Client]:
    found = Client()
    yield found
    found.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "g.oig"
    found.write_text(GRAPH, encoding="utf-8")
    return found


def begun(client: Client, path: Path, **more: object) -> None:
    client.launch(path, **more)
    client.call("configurationDone")
    assert client.event("stopped")["reason"] == "entry"


def test_stepping_over_in_out_and_back(client: Client, path: Path) -> None:
    begun(client, path)
    assert client.line == 7
    assert client.stopped("next", threadId=1) == ("step", 8)
    assert client.stopped("next", threadId=1) == ("step", 9)
    assert client.stopped("stepIn", threadId=1) == ("step", 10)
    assert client.variables("Loop indices and sizes")["i"]["value"] == "0"
    assert client.stopped("next", threadId=1) == ("step", 11)
    assert client.variables("Values")["h"]["value"] == "f32[2] [2, 4]"
    assert client.stopped("stepBack", threadId=1) == ("step", 10)
    assert client.variables("Values")["h"]["value"] == "f32[2] [1, 2]"
    assert client.stopped("stepOut", threadId=1) == ("step", 13)
    assert client.stopped("stepIn", threadId=1) == ("step", 19)
    frames = client.call("stackTrace", threadId=1)["stackFrames"]
    assert [(one["name"], one["line"]) for one in frames] == [("shift", 19), ("entry", 13)]
    assert client.variables("Block shift")["v"]["value"] == "f32[2] [8, 16]"
    assert client.call("threads")["threads"] == [{"id": 1, "name": "graph"}]
    assert client.call("stackTrace", threadId=1, startFrame=1, levels=1)["totalFrames"] == 2


def test_breakpoints_with_conditions_and_counts(client: Client, path: Path) -> None:
    client.launch(path, stopOnEntry=False)
    source = {"path": str(path)}
    asked = [
        {"line": 10, "condition": "i == 2"},
        {"line": 12, "condition": "max(h) > 100"},
        {"line": 14, "hitCondition": "2"},
        {"line": 15, "condition": "nothing > 1"},
        {"line": 99},
    ]
    answers = client.call("setBreakpoints", source=source, breakpoints=asked)["breakpoints"]
    assert [(one["verified"], one.get("line")) for one in answers] == [
        *((True, 10), (True, 13), (True, 14)),
        *((False, None), (False, None)),
    ]
    assert "there is no variable 'nothing'" in answers[3]["message"]
    client.call("configurationDone")
    assert client.event("stopped")["reason"] == "breakpoint"
    assert (client.line, client.variables("Loop indices and sizes")["i"]["value"]) == (10, "2")
    assert client.stopped("continue", threadId=1) == ("breakpoint", 10)
    assert client.variables("Persistent")["step"]["value"] == "i32 1"
    assert client.stopped("continue", threadId=1) == ("breakpoint", 14)
    assert client.stopped("reverseContinue", threadId=1) == ("step", 10)
    other = client.call("setBreakpoints", source={"path": "/elsewhere.oig"}, breakpoints=[{"line": 1}])["breakpoints"]
    assert not other[0]["verified"]
    client.call("setBreakpoints", source=source, breakpoints=[])
    client.call("continue", threadId=1)
    client.event("terminated")


def test_a_breakpoint_on_the_first_line_stops_before_it(client: Client, path: Path) -> None:
    client.launch(path, stopOnEntry=False)
    client.call("setBreakpoints", source={"path": str(path)}, breakpoints=[{"line": 6}])
    client.call("configurationDone")
    assert (client.event("stopped")["reason"], client.line) == ("breakpoint", 7)


def test_breakpoints_on_ops_changes_and_values_that_are_not_finite(client: Client, path: Path) -> None:
    path.write_text(GRAPH.replace("0.25", "inf"))
    begun(client, path)
    ops = client.call("setFunctionBreakpoints", breakpoints=[{"name": "add"}, {"name": "nope"}])["breakpoints"]
    assert [one["verified"] for one in ops] == [True, False]
    assert client.stopped("continue", threadId=1) == ("breakpoint", 10)
    client.call("setFunctionBreakpoints", breakpoints=[])
    info = client.call("dataBreakpointInfo", name="total")
    assert client.call("dataBreakpointInfo", name="nothing")["dataId"] is None
    client.call("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"], "accessType": "write"}])
    assert client.stopped("continue", threadId=1) == ("data breakpoint", 10)
    client.call("setDataBreakpoints", breakpoints=[])
    client.call("setExceptionBreakpoints", filters=["nan"])
    reason, line = client.stopped("continue", threadId=1)
    assert (reason, line) == ("data breakpoint", 20)


def test_variables_open_into_trees_and_can_be_set(client: Client, path: Path) -> None:
    begun(client, path)
    client.stopped("next", threadId=1)
    client.stopped("next", threadId=1)
    values = client.variables("Values")
    parts = client.children(values["h"]["variablesReference"])
    assert (parts["[0]"]["value"], parts["[1]"]["value"]) == ("1", "2")
    assert "min 1, max 2" in parts["(statistics)"]["value"]
    assert list(client.children(values["h"]["variablesReference"], start=1, count=1)) == ["[1]"]
    assert client.call("setVariable", variablesReference=values["h"]["variablesReference"], name="[1]", value="5") == {
        "value": "f32 5"
    }
    frame = client.call("stackTrace", threadId=1)["stackFrames"][0]["id"]
    scope = client.call("scopes", frameId=frame)["scopes"][0]["variablesReference"]
    assert client.call("setExpression", expression="h[0]", value="3")["value"] == "f32 3"
    assert client.call("evaluate", expression="h")["result"] == "f32[2] [3, 5]"
    assert client.call("evaluate", expression="h[1]", context="hover")["result"] == "f32 5"
    assert client.call("evaluate", expression="B")["result"] == "2"
    assert client.call("evaluate", expression="h = [4, 6]", context="repl")["result"] == "f32[2] [4, 6]"
    assert client.call("setVariable", variablesReference=scope, name="h", value="[2, 2]")["value"] == "f32[2] [2, 2]"
    assert "neither a number" in client.refused("setVariable", variablesReference=scope, name="h", value="x")
    assert "constant" in client.refused("setExpression", expression="half", value="1")
    assert "no variable" in client.refused("evaluate", expression="nothing")
    assert "not shown" in client.refused("variables", variablesReference=999)
    client.call("continue", threadId=1)
    assert client.event("output")["output"] == "step 2 of 2: y: f32[2] [8.25, 16.25]\n"
    client.event("exited")


def test_restart_pause_and_disconnect(client: Client, path: Path) -> None:
    path.write_text(GRAPH.replace("0..3", "0..100000000"))
    client.launch(path, stopOnEntry=False)
    client.call("configurationDone")
    client.call("pause", threadId=1)
    assert client.event("stopped")["reason"] == "pause"
    assert client.stopped("restart") == ("entry", 7)
    client.call("continue", threadId=1)
    assert "is running" in client.refused("stackTrace", threadId=1)
    client.call("disconnect")
    assert client.process.wait(60) == 0


def test_a_failing_step_stops_as_an_exception(client: Client, path: Path) -> None:
    path.write_text(GRAPH.replace("@table", "@table @fixed(t=1)"))
    client.launch(path, stopOnEntry=False)
    client.call("configurationDone")
    assert "E507" in [client.event("output")["output"] for _ in range(2)][1]
    assert client.event("stopped")["reason"] == "exception"
    client.call("terminate")
    client.event("terminated")


def test_graphs_in_json_show_their_canonical_text(client: Client, path: Path) -> None:
    import json

    from openinfer.lang import load_graph

    document = path.with_suffix(".json")
    document.write_text(json.dumps(load_graph(path).to_json()))
    client.launch(document, sizes={"B": 2}, inputs={"x": "ones"}, steps=1)
    client.call("configurationDone")
    client.event("stopped")
    frame = client.call("stackTrace", threadId=1)["stackFrames"][0]
    content = client.call("source", sourceReference=frame["source"]["sourceReference"])["content"]
    assert content.splitlines()[frame["line"] - 1].strip() == "assign h: f32[B];"


def test_what_cannot_be_launched_is_refused_with_the_reason(client: Client, path: Path) -> None:
    client.call("initialize", adapterID="openinfer")
    assert "nothing has been launched" in client.refused("stackTrace", threadId=1)
    assert "E112" in client.refused("launch", program=str(path.with_name("missing.oig")))
    assert "cannot understand" in client.refused("launch", program=str(path), inputs={"x": "@"})
    path.write_text(GRAPH.replace("--input x=[1,2] ", ""))
    assert "E508" in client.refused("launch", program=str(path))
    assert "'program' is missing" in client.refused("launch")
    assert "'gotoTargets' is not supported" in client.refused("gotoTargets", source={"path": str(path)}, line=1)


def test_breakpoints_can_be_set_anew_while_the_graph_runs(client: Client, path: Path) -> None:
    path.write_text(GRAPH.replace("0..3", "0..100000000"))
    begun(client, path)
    client.call("continue", threadId=1)
    for count in range(300):
        asked = [{"line": 10, "condition": f"i == -{1 + one}"} for one in range(count % 7)]
        client.call("setBreakpoints", source={"path": str(path)}, breakpoints=asked)
    client.call("pause", threadId=1)
    assert client.event("stopped")["reason"] == "pause"


def test_a_condition_that_cannot_be_judged_stops_and_says_why(client: Client, path: Path) -> None:
    """It is no mistake of the step, which would have been given up."""
    client.launch(path, stopOnEntry=False)
    asked = [{"line": line, "condition": text} for line, text in ((7, "v > 1"), (10, "h[99] > 1"), (11, "h[1/0] > 0"))]
    client.call("setBreakpoints", source={"path": str(path)}, breakpoints=asked)
    client.call("configurationDone")
    assert (client.event("stopped")["reason"], client.line) == ("breakpoint", 7)
    for line, why in ((10, "outside axis 0"), (11, "divides by zero")):
        client.call("continue", threadId=1)
        stopped = client.event("stopped")
        assert (stopped["reason"], client.line) == ("breakpoint", line)
        assert "cannot be evaluated" in stopped["description"]
        assert why in stopped["description"]


def test_conditions_and_counts_of_ops_and_changes_begin_again_with_the_run(client: Client, path: Path) -> None:
    begun(client, path)
    asked = [{"name": "add", "condition": "max(h) > 2", "hitCondition": "2"}, {"name": "add", "condition": "1"}]
    answers = client.call("setFunctionBreakpoints", breakpoints=asked)["breakpoints"]
    assert [one["verified"] for one in answers] == [True, False]
    for _ in range(2):
        assert client.stopped("continue", threadId=1) == ("breakpoint", 10)
        assert client.variables("Values")["h"]["value"] == "f32[2] [2, 4]"
        assert client.stopped("restart") == ("entry", 7)
    client.call("setFunctionBreakpoints", breakpoints=[])
    client.call("setDataBreakpoints", breakpoints=[{"dataId": "total", "condition": "max(total) > 10"}])
    assert client.stopped("continue", threadId=1) == ("data breakpoint", 10)
    assert client.variables("Persistent")["total"]["value"] == "f32[2] [6, 12]"


def test_a_source_is_known_by_any_path_that_leads_to_it(client: Client, path: Path) -> None:
    link = path.with_name("link.oig")
    link.symlink_to(path)
    begun(client, link)
    for one in (path, path.parent / "nowhere" / ".." / path.name):
        answer = client.call("setBreakpoints", source={"path": str(one)}, breakpoints=[{"line": 10}])
        assert answer["breakpoints"][0]["verified"]


def test_arguments_that_make_no_sense_are_refused_and_the_next_request_is_answered(client: Client, path: Path) -> None:
    begun(client, path)
    for command in ("setFunctionBreakpoints", "setBreakpoints", "scopes", "variables", "setExceptionBreakpoints"):
        for given in (
            "x",
            [1],
            {"source": "x", "breakpoints": [1], "filters": 1},
            {"variablesReference": float("inf")},
        ):
            client.sent += 1
            client.send({"seq": client.sent, "type": "request", "command": command, "arguments": given})
            assert client.answer()["success"] <= isinstance(given, dict)
    assert client.line == 7


def test_a_graph_is_launched_once(client: Client, path: Path) -> None:
    client.call("initialize", adapterID="openinfer")
    assert "less than 1" in client.refused("launch", program=str(path), steps=0)
    client.call("launch", program=str(path))
    assert "launched already" in client.refused("launch", program=str(path))
