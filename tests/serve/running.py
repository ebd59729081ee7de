"""A server of this process, on ports of its own, for as long as a test needs it."""

import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from openinfer.serve import Inference, ModelFiles, Repository, ServeOptions
from openinfer.serve.models import Serving
from openinfer.serve.options import RunOptions, SessionOptions
from openinfer.serve.server import Server
from openinfer.serve.telemetry import Telemetry
from openinfer.serve.watching import EventLog, Metrics

RUN = RunOptions(device="host", instances=2)
SESSIONS = SessionOptions()
LISTENING = ServeOptions()


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def facts(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A server, and what it has logged."""

    server: Server
    log: io.StringIO
    repository: Repository

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def grpc_address(self) -> str:
        return f"127.0.0.1:{self.server.grpc_port}"

    def ask(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None, method: str = "") -> Reply:
        """One request; JSON of anything that is not bytes."""
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method or ("GET" if data is None else "POST"), path, data, dict(headers or {}))
        answer = connection.getresponse()
        found = Reply(answer.status, answer.read(), dict(answer.headers))
        connection.close()
        return found

    def events(self, path: str, body: Any) -> list[Any]:
        """The server-sent events of an answer."""
        reply = self.ask(path, body)
        assert reply.status == 200, reply
        lines = [line.removeprefix(b"data: ") for line in reply.body.split(b"\n\n") if line]
        return [line if line == b"[DONE]" else json.loads(line) for line in lines]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


def serving(run: RunOptions = RUN, sessions: SessionOptions = SESSIONS, log: EventLog | None = None) -> Serving:
    return Serving(run, sessions, Metrics(), EventLog(io.StringIO()) if log is None else log)


def written(folder: Path, text: str, name: str = "graph.oig") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@contextmanager
def running(
    source: ModelFiles | Path,
    run: RunOptions = RUN,
    sessions: SessionOptions = SESSIONS,
    options: ServeOptions = LISTENING,
    telemetry: Telemetry | None = None,
) -> Iterator[Running]:
    """A server of one graph, called ``m``, or of a folder."""
    log = io.StringIO()
    own = serving(run, sessions, EventLog(log, level=10))
    if isinstance(source, Path):
        repository = Repository.of_folder(str(source), own)
    else:
        repository = Repository.of_graph("m", source, own)
    options = replace(options, port=0, grpc_port=None if options.grpc_port is None else 0)
    server = Server(Inference(repository, run.timeout, telemetry), options, own.metrics, own.log)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    found = Running(server, log, repository)
    while not any(line["event"] == "listening" for line in found.lines()):
        assert thread.is_alive()
        threading.Event().wait(0.01)
    try:
        yield found
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()
