"""What goes wrong around a server: it is killed, clients send nonsense, or stop in the middle."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
from tests.serve.running import LISTENING, running, written
from tests.serve.test_limits import ROWS, rows
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
