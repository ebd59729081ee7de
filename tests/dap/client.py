"""A small client that holds every message, its own and the adapter's, against the protocol's JSON Schema."""

import json
import queue
import subprocess
import sys
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jsonschema import Draft4Validator

SECONDS = 60


@cache
def _schema() -> Any:
    """The schema of the protocol, which debugpy has with it."""
    found = find_spec("debugpy")
    assert found is not None
    assert found.submodule_search_locations
    folder = Path(found.submodule_search_locations[0]) / "_vendored" / "pydevd" / "_pydevd_bundle" / "_debug_adapter"
    return json.loads((folder / "debugProtocol.json").read_text(encoding="utf-8"))


@cache
def _validator(name: str) -> Any:
    assert name in _schema()["definitions"], name
    return Draft4Validator({"$ref": f"#/definitions/{name}", "definitions": _schema()["definitions"]})


def _of(word: str, kind: str) -> str:
    return f"{word[0].upper()}{word[1:]}{kind}"


class Client:
    """An editor with one adapter."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "openinfer", "dap"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.sent = 0
        self.events: list[dict[str, Any]] = []
        self._arrived: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while line := stream.readline():
            length = int(line.partition(b":")[2])
            stream.readline()
            self._arrived.put(json.loads(stream.read(length)))
        self._arrived.put(None)

    def _next(self) -> dict[str, Any]:
        message = self._arrived.get(timeout=SECONDS)
        assert message is not None, "the adapter has gone away"
        if message["type"] == "event":
            _validator(_of(message["event"], "Event")).validate(message)
        else:
            kind = _of(message["command"], "Response") if message["success"] else "ErrorResponse"
            _validator(kind).validate(message)
        return message

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The response to a request, good or bad."""
        self.sent += 1
        request = {"seq": self.sent, "type": "request", "command": command, "arguments": arguments}
        _validator(_of(command, "Request")).validate(request)
        self.send(request)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The response to the last request; events that come before it are kept."""
        while True:
            message = self._next()
            if message["type"] == "response":
                assert message["request_seq"] == self.sent
                return message
            self.events.append(message)

    def send(self, request: dict[str, Any]) -> None:
        data = json.dumps(request).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.process.stdin.flush()

    def call(self, command: str, **arguments: Any) -> Any:
        """What a request gives that is obeyed."""
        response = self.ask(command, **arguments)
        assert response["success"], response
        return response["body"]

    def refused(self, command: str, **arguments: Any) -> str:
        """Why a request is not obeyed."""
        response = self.ask(command, **arguments)
        assert not response["success"], response
        return str(response["message"])

    def event(self, name: str) -> dict[str, Any]:
        """The next event of a kind; those before it are dropped."""
        while True:
            found = self.events.pop(0) if self.events else self._next()
            if found.get("event") == name:
                body: dict[str, Any] = found["body"]
                return body

    def launch(self, path: Path, **more: Any) -> None:
        """Launch a graph, without the last word."""
        self.call("initialize", adapterID="openinfer", pathFormat="path")
        self.call("launch", program=str(path), **more)
        self.event("initialized")

    def stopped(self, command: str, **arguments: Any) -> tuple[str, int]:
        """Where a request that moves leads: why the run stopped, and on which line."""
        self.call(command, **arguments)
        reason = str(self.event("stopped")["reason"])
        return reason, self.line

    @property
    def line(self) -> int:
        """The line that comes next."""
        return int(self.call("stackTrace", threadId=1)["stackFrames"][0]["line"])

    def variables(self, scope: str) -> dict[str, Any]:
        """The variables of a scope of the innermost frame, by name."""
        frame = self.call("stackTrace", threadId=1)["stackFrames"][0]["id"]
        scopes = {one["name"]: one for one in self.call("scopes", frameId=frame)["scopes"]}
        return self.children(scopes[scope]["variablesReference"])

    def children(self, number: int, **more: Any) -> dict[str, Any]:
        found = self.call("variables", variablesReference=number, **more)["variables"]
        return {one["name"]: one for one in found}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
