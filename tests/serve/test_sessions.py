"""Graphs with persistent memory: each sequence has a state of its own, which outlives requests and servers."""

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serve.running import RUN, SESSIONS, Running, running, written

from openinfer.errors import Code, Diagnostic, OinfError
from openinfer.serve import ModelFiles
from openinfer.serve.states import StateFolder

SUM = """dynamic { x: f32; } volatile { y: f32; } persistent { total: f32 @init(0); }
block entry { op add(total, x) >> total; op add(total, 0.0) >> y; return y; }"""


def part(value: float, sequence: int | str, **flags: Any) -> dict[str, Any]:
    tensor = {"name": "x", "shape": [], "datatype": "FP32", "data": [value]}
    flags = {f"sequence_{name}": flag for name, flag in flags.items() if name != "steps"} | (
        {"steps": flags["steps"]} if "steps" in flags else {}
    )
    return {"inputs": [tensor], "parameters": {"sequence_id": sequence, **flags}}


def total(found: Running, value: float, sequence: int | str, **flags: Any) -> Any:
    facts = found.ask("/v2/models/m/infer", part(value, sequence, **flags)).facts
    return facts.get("code") or facts["outputs"][0]["data"][0]


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return ModelFiles(written(tmp_path, SUM))


def test_sequences_do_not_see_each_other_and_end(files: ModelFiles) -> None:
    with running(files) as found:
        assert total(found, 1, "a") == "E907", "not begun"
        assert total(found, 1, "a", start=True) == 1
        assert total(found, 10, 7, start=True) == 10
        assert (total(found, 1, "a"), total(found, 1, 7)) == (2, 11)
        assert total(found, 5, "a", start=True) == 5, "begun anew"
        assert total(found, 1, "a", end=True) == 6
        assert total(found, 1, "a") == "E907"
        assert total(found, 1, 7, save=True) == "E907", "there is no folder for states"
        tensor = part(1, 1)["inputs"]
        assert found.ask("/v2/models/m/infer", {"inputs": tensor}).facts["code"] == "E907"


def test_steps_of_a_sequence_run_in_their_order_and_sequences_beside_each_other(files: ModelFiles) -> None:
    with running(files) as found, ThreadPoolExecutor(8) as threads:

        def whole(number: int) -> list[Any]:
            first = total(found, number, number, start=True)
            return [first, *(total(found, 1, number) for _ in range(20)), total(found, 0, number, end=True)]

        for number, seen in enumerate(threads.map(whole, range(1, 9)), 1):
            assert seen == [float(number + step) for step in range(21)] + [float(number + 20)]


def test_a_stream_has_an_event_for_each_step(files: ModelFiles) -> None:
    with running(files) as found:
        events = found.events("/v2/models/m/infer_stream", part(2, 1, start=True, end=True, steps=3))
        assert [one["outputs"][0]["data"] for one in events] == [[2.0], [4.0], [6.0]]
        assert [one["parameters"]["step"] for one in events] == [0, 1, 2]
        assert found.ask("/v2/models/m/infer_stream", part(2, 1, steps=3)).facts["code"] == "E907"


def test_saved_sessions_come_back_after_a_restart_and_ended_ones_do_not(files: ModelFiles, tmp_path: Path) -> None:
    sessions = replace(SESSIONS, folder=str(tmp_path / "states"))
    with running(files, sessions=sessions) as found:
        assert total(found, 3, "../../etc/passwd", start=True) == 3
        assert total(found, 4, "b", start=True) == 4
        assert total(found, 4, "b", end=True) == 8
    with running(files, sessions=sessions) as found:
        assert total(found, 1, "../../etc/passwd") == 4
        assert total(found, 1, "b") == "E907"
        (state,) = (path for path in (tmp_path / "states").rglob("*") if path.is_file())
        state.write_bytes(b"no state")
    for path in (tmp_path / "states").rglob("*.oinf"):
        path.write_bytes(b"no state")
    with running(files, sessions=sessions) as found:
        assert total(found, 1, "../../etc/passwd") == "E907"
        assert total(found, 1, "../../etc/passwd", start=True) == 1


def test_a_session_is_on_disk_when_a_request_asks_for_it(files: ModelFiles, tmp_path: Path) -> None:
    sessions = replace(SESSIONS, folder=str(tmp_path / "states"), save_every=3600.0)
    with running(files, sessions=sessions) as found:
        total(found, 3, 1, start=True)
        assert list((tmp_path / "states").rglob("*.oinf")) == []
        assert total(found, 3, 1, save=True) == 6
        assert len(list((tmp_path / "states").rglob("*.oinf"))) == 1


def test_sessions_leave_memory_for_others_and_come_back(files: ModelFiles, tmp_path: Path) -> None:
    sessions = replace(SESSIONS, memory=1, folder=str(tmp_path / "states"))
    with running(files, sessions=sessions) as found:
        line = next(one for one in found.lines() if one["event"] == "model loaded")
        assert (line["sessions"], line["session_bytes"] > 0) == (1, True)
        assert [total(found, number, number, start=True) for number in range(1, 5)] == [1, 2, 3, 4]
        assert [total(found, 1, number) for number in range(1, 5)] == [2, 3, 4, 5]
    with running(files, sessions=replace(SESSIONS, memory=1)) as found:
        assert total(found, 1, 1, start=True) == 1
        assert total(found, 1, 2, start=True) == "E903", "there is room for one, and nowhere to save it"


def test_idle_sessions_leave_memory(files: ModelFiles) -> None:
    with running(files, sessions=replace(SESSIONS, idle=0.1)) as found:
        assert total(found, 1, 1, start=True) == 1
        while b'openinfer_sessions{model="m",version="1"} 0.0' not in found.ask("/metrics").body:
            threading.Event().wait(0.02)
        assert total(found, 1, 1) == "E907"


def test_where_states_cannot_be_written_sessions_go_on_in_memory(
    files: ModelFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OinfError(Diagnostic(Code.WRITE_FAILED, f"cannot write: {os.strerror(28)}"))

    monkeypatch.setattr(StateFolder, "save", full)
    with running(files, sessions=replace(SESSIONS, folder=str(tmp_path / "states"), save_every=0.05)) as found:
        assert total(found, 1, 1, start=True) == 1
        reply = found.ask("/v2/models/m/infer", part(1, 1, save=True))
        assert (reply.status, reply.facts["code"]) == (507, "E731")
        assert total(found, 1, 1) == 3, "the step has run all the same"
        while not any(one["event"] == "state not saved" for one in found.lines()):
            threading.Event().wait(0.02)
        assert total(found, 1, 1) == 4


def test_a_sequence_has_a_name_or_a_number(files: ModelFiles) -> None:
    with running(files, RUN) as found:
        for bad in (1.5, True, None, [1], "x" * 2000):
            assert total(found, 1, bad, start=True) == "E901"  # type: ignore[arg-type]


def test_a_request_that_cannot_be_saved_changes_nothing(files: ModelFiles) -> None:
    with running(files) as found:
        assert total(found, 1, "a", start=True) == 1
        assert total(found, 1, "a", save=True) == "E907", "there is no folder for states"
        assert total(found, 1, "a") == 2


def test_a_model_that_is_loaded_anew_loses_no_step_of_a_session(files: ModelFiles, tmp_path: Path) -> None:
    """While the old one saves, requests are told to come later; none finds an older state."""
    with running(files, sessions=replace(SESSIONS, folder=str(tmp_path / "states"), save_every=3600.0)) as found:
        assert total(found, 1, "a", start=True) == 1
        is_over, seen = threading.Event(), list[Any]()

        def ask() -> None:
            while not is_over.is_set():
                seen.append(total(found, 1, "a"))

        asker = threading.Thread(target=ask)
        asker.start()
        for _ in range(3):
            assert found.ask("/v2/repository/models/m/load", {}).status == 200
        is_over.set()
        asker.join(60)
        assert {one for one in seen if isinstance(one, str)} <= {"E903"}
        sums = [one for one in seen if not isinstance(one, str)]
        assert sums == [float(number + 2) for number in range(len(sums))]


def test_a_model_that_is_unloaded_is_gone(files: ModelFiles) -> None:
    with running(files) as found:
        assert total(found, 1, "a", start=True) == 1
        served = weakref.ref(found.repository.found("m"))
        assert found.ask("/v2/repository/models/m/unload", {}).status == 200
        gc.collect()
        assert served() is None, "its sessions and weights, too"
        assert b"openinfer_sessions{" not in found.ask("/metrics").body


def test_a_step_of_a_session_takes_no_longer_than_a_request_may(tmp_path: Path) -> None:
    """Or one request would have an instance for ever; the session goes on from what was saved."""
    text = """dynamic { n: i64; } volatile { y: i64; } persistent { t: i64 @init(0); }
    block entry { loop rounds (i in 0..n) { op add(t, 1) >> t; } op add(t, 0) >> y; return y; }"""
    run = replace(RUN, instances=1, timeout=0.5)
    sessions = replace(SESSIONS, folder=str(tmp_path / "states"), save_every=0.1)

    def counted(found: Running, n: int, **flags: bool) -> Any:
        tensor = {"name": "n", "shape": [], "datatype": "INT64", "data": [n]}
        parameters = {"sequence_id": "a", **{f"sequence_{name}": flag for name, flag in flags.items()}}
        facts = found.ask("/v2/models/m/infer", {"inputs": [tensor], "parameters": parameters}).facts
        return facts.get("code") or facts["outputs"][0]["data"][0]

    with running(ModelFiles(written(tmp_path, text)), run, sessions) as found:
        assert counted(found, 3, start=True, save=True) == 3
        assert counted(found, 1 << 60) == "E904"
        seen = counted(found, 1)
        while seen == "E904":
            seen = counted(found, 1)
        assert seen == 4
