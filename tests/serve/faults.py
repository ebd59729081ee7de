"""What goes wrong around a server: it is killed, clients send nonsense, or stop in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from tests.serve.running import LISTENING, RUN, running, written
from tests.serve.test_limits import LONG, ROWS, count, rows
from tests.serve.test_sessions import SUM, part

from openinfer.serve import ModelFiles


def started(*options: str) -> tuple["subprocess.Popen[str]", int]:
    """The command as a process of its own, and its port."""
    command = [sys.executable, "-m", "openinfer", "serve", *options, "--port", "0", "--grpc-port", "-1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
    assert process.stderr is not None
    for line in process.stderr:
        facts = json.loads(line)
        if facts["event"] == "listening":
            return process, facts["port"]
    raise AssertionError(process.wait())


def asked(port: int, body: Any) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v2/models/graph/infer", json.dumps(body))
    facts = json.loads(connection.getresponse().read())
    connection.close()
    return facts.get("code") or facts["outputs"][0]["data"][0]


def test_sessions_that_were_saved_come_back_after_kill_9(tmp_path: Path) -> None:
    options = (written(tmp_path, SUM), "--state-dir", str(tmp_path / "states"), "--instances", "1")
    process, port = started(*options)
    for name in ("a", "b"):
        assert asked(port, part(3, name, start=True, save=True)) == 3
    process.kill()
    process.communicate()
    process, port = started(*options)
    assert asked(port, part(1, "a")) == 4
    assert asked(port, part(1, "c")) == "E907"
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert json.loads(said.splitlines()[-1])["event"] == "ended"
    process, port = started(*options)
    assert asked(port, part(1, "a")) == 5, "an orderly end saves what has changed"
    process.kill()
    process.communicate()


def _again(port: int, body: Any) -> Any:
    """An answer; the second one where the first says that a process has ended."""
    found = asked(port, body)
    return asked(port, body) if found == "E910" else found


def worker_of(process: "subprocess.Popen[str]") -> int:
    """The process of the only instance."""
    lists = Path(f"/proc/{process.pid}/task").glob("*/children")  # of the thread that has started it
    (found,) = {int(one) for path in lists for one in path.read_text().split() if _is_worker(int(one))}
    return found


def test_a_worker_that_is_killed_takes_no_other_with_it(tmp_path: Path) -> None:
    options = (written(tmp_path, SUM), "--state-dir", str(tmp_path / "states"), "--instances", "1", "--isolate")
    process, port = started(*options)
    assert asked(port, part(3, "saved", start=True, save=True)) == 3
    assert asked(port, part(3, "changed", start=True, save=True)) == 3
    assert asked(port, part(4, "changed")) == 7
    first = worker_of(process)
    os.kill(first, signal.SIGKILL)
    while Path(f"/proc/{first}").exists() and " Z " not in Path(f"/proc/{first}/stat").read_text():
        pass
    assert _again(port, part(1, "saved")) == 4, "it comes back from what was saved"
    assert _again(port, part(1, "changed")) in (4, 8), "from what was saved: by a request, or by the server meanwhile"
    assert asked(port, part(2, "new", start=True)) == 2
    assert worker_of(process) != first
    process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in process.communicate(timeout=60)[1].splitlines()]
    assert process.returncode == 0
    assert "ended" in {line["event"] for line in lines}


def test_a_step_whose_worker_is_killed_has_an_answer_with_a_code(tmp_path: Path) -> None:
    run = replace(RUN, instances=1, is_isolated=True)
    with running(ModelFiles(written(tmp_path, LONG)), run) as found:
        assert found.ask("/v2/models/m/infer", count(5)).facts["outputs"][0]["data"] == [5]
        children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        (pid,) = {int(one) for path in children for one in path.read_text().split() if _is_worker(int(one))}
        killer = threading.Timer(0.5, os.kill, (pid, signal.SIGKILL))
        killer.start()
        lost = found.ask("/v2/models/m/infer", count(1 << 60))
        assert (lost.status, lost.facts["code"]) == (503, "E910")
        late = found.ask("/v2/models/m/infer", count(1 << 60, timeout=500_000))
        assert (late.status, late.facts["code"]) == (504, "E904")
        assert found.ask("/v2/models/m/infer", count(5)).facts["outputs"][0]["data"] == [5]
        assert b"openinfer_worker_losses_total" in found.ask("/metrics").body
        assert "worker lost" in {line["event"] for line in found.lines()}


def _is_worker(pid: int) -> bool:
    try:
        return b"openinfer.workers" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_full_disk_costs_no_session(tmp_path: Path) -> None:
    """A file system of a few kilobytes for states: what cannot be saved has a code, and goes on in memory."""
    states = tmp_path / "states"
    states.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(states)], check=True)
    try:
        process, port = started(written(tmp_path, SUM), "--state-dir", str(states), "--instances", "1")
        assert asked(port, part(3, "first", start=True, save=True)) == 3
        (states / "filler").write_bytes(b"x" * (48 << 10))
        with suppress(OSError), (states / "more").open("ab", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        assert asked(port, part(1, "second", start=True, save=True)) == "E731"
        assert asked(port, part(1, "second")) == 2, "the step has run, and the session goes on"
        assert asked(port, part(1, "first")) == 4
        for one in ("filler", "more"):
            (states / one).unlink()
        assert asked(port, part(1, "second", save=True)) == 3
        process.kill()
        process.communicate()
        process, port = started(written(tmp_path, SUM), "--state-dir", str(states), "--instances", "1")
        assert asked(port, part(1, "second")) == 4
        assert asked(port, part(1, "first")) in (4, 5), "as it was saved: after the first step, or after the second"
        process.kill()
        process.communicate()
    finally:
        subprocess.run(["umount", str(states)], check=True)


def test_ten_thousand_malformed_requests_are_answered(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    good = json.dumps(rows([1.0, 2.0])).encode()
    with running(ModelFiles(written(tmp_path, ROWS))) as found:
        connection = HTTPConnection("127.0.0.1", found.server.port, timeout=60)
        for number in range(10_000):
            data = bytearray(good)
            for at in random.integers(0, len(data), 1 + number % 4):
                data[at] = random.integers(0, 256)
            headers = {"Inference-Header-Content-Length": str(random.integers(0, 200))} if number % 3 == 0 else {}
            connection.request("POST", "/v2/models/m/infer", bytes(data), headers)
            answer = connection.getresponse()
            facts = json.loads(answer.read())
            assert answer.status in (200, 400), (bytes(data), facts)
            assert answer.status == 200 or facts["code"].startswith("E"), (bytes(data), facts)
        connection.close()
        assert not [line for line in found.lines() if line["event"] == "internal error"]
        assert found.ask("/v2/models/m/infer", rows([1.0])).status == 200


def test_clients_that_stop_in_the_middle_keep_no_instance(tmp_path: Path) -> None:
    options = replace(LISTENING, read_timeout=0.5)
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    with running(ModelFiles(written(tmp_path, ROWS)), options=options) as found:
        slow = [socket.create_connection(("127.0.0.1", found.server.port)) for _ in range(20)]
        for number, one in enumerate(slow):
            one.sendall(head)
            if number % 2:
                one.shutdown(socket.SHUT_WR)
        assert found.ask("/v2/models/m/infer", rows([1.0])).status == 200
        answers = [one.recv(4096) for one in slow[::2]]
        assert all(b" 504 " in one.split(b"\r\n")[0] for one in answers)
        for one in slow:
            one.close()
        assert found.ask("/v2/models/m/infer", rows([1.0])).status == 200
