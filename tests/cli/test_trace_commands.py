"""``openinfer trace`` and ``trace-diff``: documents for programs and viewers, and where runs part."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.in_process import Done, openinfer

SOURCE = """
dynamic { x: f32[4]; }
volatile { a: f32[4]; b: f32[4]; y: f32[4]; c: bool @init(true); }
persistent { n: i32 @init(0); K(t): f32[4] @table @fixed(t=2); }
block entry {
    transfer x >> a;
    yield a;
    scope "outer" {
        op neg(x) >> b;
        loop twice (i in 0..2) { scope "inner" { op add(b, x) >> b; } }
    }
    branch c yes no;
    await a;
    op add(a, b) >> y;
    cache.write y >> K[n];
    cache.increment n;
    return y;
}
block yes { op abs(b) >> b; branch deeper; return; }
block no { return; }
block deeper { op neg(b) >> b; return; }
block worker { await a; op mul(a, a) >> a; scope "work" { op neg(a) >> a; } yield a; }
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "g.oig"
    path.write_text(SOURCE)
    return str(path)


def traced(*arguments: str) -> Any:
    done = openinfer("trace", *arguments)
    assert (done.status, done.err) == (0, "")
    return json.loads(done.out)


def test_the_trace_has_the_documented_keys_of_every_node(source: str) -> None:
    events = traced(source, "-i", "x=1")
    keys = {"block_name", "node_index", "node_uuid", "kind", "op_name", "params", "output", "micros"}
    assert all(keys <= event.keys() for event in events)
    add = next(event for event in events if event["op_name"] == "add")
    assert (add["params"], add["output"], add["indices"], add["scope"]) == (
        ["b", "x"],
        ["b"],
        {"i": 0},
        ["outer", "inner"],
    )
    assert "outputs" not in add


def test_the_full_level_has_values_here_or_from_the_environment(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, level in (["--level", "full"], ""), ([], "full"), (["--level", "full"], "off"):
        monkeypatch.setenv("OPENINFER_TRACE", level)
        events = traced(source, "-i", "x=1", *arguments)
        neg = next(event for event in events if event["op_name"] == "neg")
        assert neg["outputs"][0]["mean"] == -1.0
    monkeypatch.setenv("OPENINFER_TRACE", "off")
    assert "outputs" not in traced(source, "-i", "x=1")[0]


def test_the_last_step_is_written_or_the_one_asked_for(tmp_path: Path, source: str) -> None:
    np.save(tmp_path / "x.npy", np.array([[1] * 4, [2] * 4], np.float32))

    def mean(*arguments: str) -> float:
        events = traced(source, "-i", f"x=@{tmp_path}/x.npy[]", "--level", "full", *arguments)
        found = next(event for event in events if event["op_name"] == "neg")["outputs"][0]["mean"]
        assert isinstance(found, float)
        return found

    assert [mean(), mean("--step", "0"), mean("--step", "1"), mean("--steps", "1")] == [-2, -1, -2, -1]
    assert openinfer("trace", source, "-i", "x=1", "--steps", "2", "--step", "2").status == 2
    assert openinfer("trace", source, "-i", "x=1", "--step", "-1").status == 2
    done = openinfer("trace", source, "-i", f"x=@{tmp_path}/x.npy[]", "--step", "2")
    assert (done.status, "error[E508]" in done.err) == (1, True)


def test_off_is_no_level_to_write(source: str) -> None:
    assert openinfer("trace", source, "-i", "x=1", "--level", "off").status == 2


def test_a_file_is_written_and_nothing_is_printed(tmp_path: Path, source: str) -> None:
    path = tmp_path / "t.json"
    done = openinfer("trace", source, "-i", "x=1", "-o", str(path))
    assert (done.status, done.out, done.err) == (0, "", "")
    assert json.loads(path.read_text())[0]["kind"] == "Transfer"


def test_a_step_that_fails_is_written_as_far_as_it_came(tmp_path: Path, source: str) -> None:
    path = tmp_path / "t.json"
    done = openinfer("trace", source, "-i", "x=1", "--steps", "3", "-o", str(path))
    assert (done.status, "error[E507]" in done.err) == (1, True)
    last = json.loads(path.read_text())[-1]
    assert last["op_name"] == "add"
    assert last["output"] == ["y"]


def test_an_error_before_the_step_writes_nothing(tmp_path: Path, source: str) -> None:
    np.save(tmp_path / "x.npy", np.array([[1] * 4, [0.1] * 4]))
    path = tmp_path / "t.json"
    done = openinfer("trace", source, "-i", f"x=@{tmp_path}/x.npy[]", "-o", str(path))
    assert (done.status, "error[E302]" in done.err) == (1, True)
    assert not path.exists()


def test_ctrl_c_writes_nothing(tmp_path: Path, source: str) -> None:
    sign = tmp_path / "step.json"
    command = [sys.executable, "-m", "openinfer", "trace", source, "-i", "x=1", "--steps", "100000000"]
    text = SOURCE.replace("cache.write y >> K[n];", "")
    Path(source).write_text(text)
    environment = os.environ | {"OPENINFER_TRACE": str(sign)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        for _ in range(600):
            if sign.exists():
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert err.startswith(b"interrupted after ")


# --- for Perfetto -----------------------------------------------------------------------------------------------------


def chrome(source: str, *arguments: str) -> dict[str, Any]:
    found = traced(source, "-i", "x=1", "--format", "chrome", *arguments)
    assert isinstance(found, dict)
    return found


def rows(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The slices of each named thread, in the order of the document."""
    names = {
        event["tid"]: event["args"]["name"]
        for event in document["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    return {name: [event for event in slices if event["tid"] == number] for number, name in names.items()}


def nanoseconds(event: dict[str, Any]) -> tuple[int, int]:
    start, duration = round(event["ts"] * 1000), round(event["dur"] * 1000)
    return start, start + duration


def nested(slices: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The path of names to each slice, as a viewer stacks them: by time, and the document's order where that is equal.

    A slice that begins inside another and ends behind it has no place in a stack: that is an error.
    """
    stack: list[dict[str, Any]] = []
    paths = []
    for event in sorted(slices, key=lambda event: nanoseconds(event)[0]):
        start, end = nanoseconds(event)
        while stack and nanoseconds(stack[-1])[1] <= start and (nanoseconds(stack[-1])[0] < start or end > start):
            stack.pop()
        assert not stack or end <= nanoseconds(stack[-1])[1], (stack[-1]["name"], event["name"])
        stack.append(event)
        paths.append(tuple(one["name"] for one in stack))
    return paths


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_the_chrome_format_follows_the_rules_of_trace_events(source: str, scheduler: str) -> None:
    document = chrome(source, "--scheduler", scheduler, "--level", "full")
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert event["ph"] in ("M", "X")
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert isinstance(event["cat"], str)
        else:
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
    named = {event["tid"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    assert {event["tid"] for event in document["traceEvents"] if event["ph"] == "X"} == named


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_strands_are_threads_and_blocks_and_scopes_are_around_their_nodes(source: str, scheduler: str) -> None:
    found = rows(chrome(source, "--scheduler", scheduler))
    assert list(found) == ["entry", "worker"]
    entry, worker = (nested(found[name]) for name in ("entry", "worker"))
    assert ("block worker", "scope work", "neg") in worker
    assert ("block worker", "mul") in worker
    inner = ("block entry", "scope outer", "scope inner")
    assert (entry.count(inner), entry.count((*inner, "add"))) == (2, 2)
    assert ("block entry", "block yes", "abs") in entry
    assert ("block entry", "block yes", "block deeper", "neg") in entry
    assert ("block entry", "add") in entry
    assert entry.count(("block entry",)) == 1


def test_slices_stand_in_the_order_of_time_with_the_outer_ones_first(source: str) -> None:
    for slices in rows(chrome(source)).values():
        starts = [nanoseconds(event)[0] for event in slices]
        assert starts == sorted(starts)
        for one, other in pairwise(slices):
            if nanoseconds(one)[0] == nanoseconds(other)[0] and other["cat"] == "region":
                assert nanoseconds(one)[1] >= nanoseconds(other)[1]


# --- trace-diff -------------------------------------------------------------------------------------------------------


@pytest.fixture
def traces(tmp_path: Path, source: str) -> dict[str, str]:
    """Traces of one run, of a nearly equal one, of another, without values, and of another graph."""
    other = tmp_path / "other.oig"
    other.write_text(SOURCE.replace("op abs(b)", "op neg(b)"))
    runs = {
        "full": [source, "-i", "x=1", "--level", "full"],
        "threaded": [source, "-i", "x=1", "--level", "full", "--scheduler", "threaded"],
        "near": [source, "-i", "x=[1, 1, 1, 1.000001]", "--level", "full"],
        "far": [source, "-i", "x=[1, 1, 1, 3]", "--level", "full"],
        "basic": [source, "-i", "x=1"],
        "graph": [str(other), "-i", "x=1"],
        "chrome": [source, "-i", "x=1", "--format", "chrome"],
    }
    paths = {name: str(tmp_path / f"{name}.json") for name in runs}
    for name, arguments in runs.items():
        assert openinfer("trace", *arguments, "-o", paths[name]).status == 0
    return paths


def diff(*arguments: str) -> Done:
    return openinfer("trace-diff", *arguments)


def test_equal_runs_exit_0(traces: dict[str, str]) -> None:
    assert diff(traces["full"], traces["threaded"]) == Done(0, "no difference in 25 events\n", "")


def test_the_first_difference_is_shown_and_exits_1(traces: dict[str, str]) -> None:
    done = diff(traces["full"], traces["far"])
    assert (done.status, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("the runs diverge at node 0 (Transfer in block 'entry'), event 0, by value")
    assert "  a max: 1 against 3 (by 2, relative 0.667)" in lines


def test_a_tolerance_is_taken(traces: dict[str, str]) -> None:
    assert diff(traces["full"], traces["near"]).status == 1
    forgiven = diff(traces["full"], traces["near"], "--tolerance", "1e-4")
    assert forgiven == Done(0, "no difference beyond 0.0001 in 25 events\n", "")
    for wrong in ("-1", "nan", "inf", "x"):
        assert diff(traces["full"], traces["near"], "--tolerance", wrong).status == 2


def test_traces_without_values_say_that_only_structure_was_compared(traces: dict[str, str]) -> None:
    done = diff(traces["basic"], traces["far"])
    assert done.status == 0
    assert "only what was executed could be compared" in done.out
    other = diff(traces["basic"], traces["graph"])
    assert other.status == 1
    assert "op_name: abs against neg" in other.out


def test_json_for_programs(traces: dict[str, str]) -> None:
    same = json.loads(diff(traces["full"], traces["threaded"], "--json").out)
    assert (same["same"], same["compared"], same["difference"]) == (True, "values", None)
    done = diff(traces["full"], traces["far"], "--json")
    facts = json.loads(done.out)
    assert (done.status, facts["same"], facts["difference"]["node_index"]) == (1, False, 0)


def test_a_shorter_trace_is_told(tmp_path: Path, traces: dict[str, str]) -> None:
    events = json.loads(Path(traces["full"]).read_text())
    (tmp_path / "short.json").write_text(json.dumps(events[:-1]))
    done = diff(traces["full"], str(tmp_path / "short.json"))
    assert (done.status, done.out.startswith("B ends where A continues with node ")) == (1, True)


@pytest.mark.parametrize(
    ("text", "code"), [("", "E110"), ("[3]", "E111"), ("{", "E110"), (b"\xff", "E112"), ("[" * 99999, "E110")]
)
def test_hostile_documents_are_refused(tmp_path: Path, traces: dict[str, str], text: str | bytes, code: str) -> None:
    path = tmp_path / "hostile.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = diff(traces["full"], str(path))
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"error[{code}]")
    as_json = diff(str(path), traces["full"], "--json")
    assert (as_json.status, json.loads(as_json.out)["diagnostics"][0]["code"]) == (1, code)


def test_a_trace_for_a_viewer_and_a_missing_one_are_refused(traces: dict[str, str]) -> None:
    assert "--format json" in diff(traces["full"], traces["chrome"]).err
    assert diff(traces["full"], "missing.json").err.startswith("error[E112]")
    assert diff(traces["full"]).status == 2
