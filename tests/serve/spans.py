"""Spans on their way to a collector, over HTTP and gRPC, and those of sessions, streams, batches and texts.

``make test-serve`` runs these.
"""

import json
import os
import queue
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from tests.serve.faults import asked, started
from tests.serve.running import RUN, SESSIONS, running, written
from tests.serve.test_limits import ROWS, rows
from tests.serve.test_sessions import SUM, part
from tests.serve.test_telemetry import GRAPH, REQUEST, Watched, recorded
from tests.serve.texts import files

from openinfer.serve import ModelFiles

__all__ = ["files"]
Received = trace_service_pb2.ExportTraceServiceRequest
Answer = trace_service_pb2.ExportTraceServiceResponse
STREAM, TEXTS = "POST /v2/models/{model}/infer_stream", "POST /v1/completions"


@contextmanager
def http_collector(received: "queue.Queue[Any]") -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.put(Received.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_given: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@contextmanager
def grpc_collector(received: "queue.Queue[Any]") -> Iterator[int]:
    def export(request: Any, _context: Any) -> Any:
        received.put(request)
        return Answer()

    method = grpc.unary_unary_rpc_method_handler(export, Received.FromString, Answer.SerializeToString)
    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    with ThreadPoolExecutor(1) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Export": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        server.stop(None)


@pytest.mark.parametrize(("protocol", "collector"), [("http/protobuf", http_collector), ("grpc", grpc_collector)])
def test_a_collector_has_all_spans_when_the_server_has_ended(
    protocol: str, collector: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    received: queue.Queue[Any] = queue.Queue()
    with collector(received) as port:
        options = ("--otlp-endpoint", f"http://127.0.0.1:{port}", "--node-traces")
        process, own = started(written(tmp_path, GRAPH), *options)
        assert asked(own, {**REQUEST, "parameters": {"trace_nodes": True}}) == 1
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
        found = [received.get(timeout=10), *(received.get_nowait() for _ in range(received.qsize()))]
    resources = [one for request in found for one in request.resource_spans]
    names = [span.name for one in resources for scope in one.scope_spans for span in scope.spans]
    assert {"POST /v2/models/{model}/infer", "queue", "run", "exp", "cumsum"} <= set(names)
    told = {one.key: one.value.string_value for one in resources[0].resource.attributes}
    assert told["service.name"] == "openinfer"
    assert told["deployment.environment.name"] == "test"


def test_a_collector_that_does_not_answer_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process, own = started(written(tmp_path, GRAPH), "--otlp-endpoint", endpoint)
        for _ in range(20):
            assert asked(own, REQUEST) == 1
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0
    assert json.loads(said.splitlines()[-1])["event"] == "ended"
    assert [json.loads(line) for line in said.splitlines()], "what OpenTelemetry has to say is in lines of JSON, too"


def test_nodes_of_a_session_leave_its_state_as_a_step_does(tmp_path: Path) -> None:
    telemetry, exporter = recorded()
    folder = str(tmp_path / "states")
    run, kept = replace(RUN, traces_nodes=True), replace(SESSIONS, folder=folder)
    with running(ModelFiles(written(tmp_path, SUM)), run, kept, telemetry=telemetry) as server:
        found = Watched(server, exporter)
        sums = []
        for number, (traces, name) in enumerate([(False, "a"), (True, "a"), (True, "b"), (True, "a"), (False, "a")]):
            request = part(number + 1, name, start=number in (0, 2))
            request["parameters"]["trace_nodes"] = traces
            sums.append(found.ask(request)["outputs"][0]["data"][0])
            names = [one.name for one in exporter.get_finished_spans()]
            assert ("add" in names) == traces
            exporter.clear()
        assert sums == [1, 3, 3, 7, 12]
        request = part(1, "a", save=True)
        request["parameters"]["trace_nodes"] = True
        assert found.ask(request)["outputs"][0]["data"] == [13.0]
    assert len(os.listdir(folder)) > 0


def test_every_step_of_a_stream_has_its_spans(tmp_path: Path) -> None:
    telemetry, exporter = recorded()
    with running(ModelFiles(written(tmp_path, SUM)), telemetry=telemetry) as server:
        request = part(1, "a", start=True, steps=3)
        assert len(server.events("/v2/models/m/infer_stream", request)) == 3
    spans = exporter.get_finished_spans()
    (own,) = (one for one in spans if one.name == STREAM)
    runs = [one for one in spans if one.name == "run"]
    assert len(runs) == 3
    assert own.context is not None
    assert all(one.parent is not None and one.parent.span_id == own.context.span_id for one in runs)


def test_a_span_says_with_how_many_requests_a_step_was_shared(tmp_path: Path) -> None:
    telemetry, exporter = recorded()
    run = replace(RUN, instances=1, max_batch=4, max_wait=5.0)
    with (
        running(ModelFiles(written(tmp_path, ROWS)), run, telemetry=telemetry) as server,
        ThreadPoolExecutor(4) as threads,
    ):
        replies = list(threads.map(lambda number: server.ask("/v2/models/m/infer", rows([float(number)])), range(4)))
        assert [one.status for one in replies] == [200] * 4
    shared = [
        (one.attributes or {})["openinfer.step.requests"] for one in exporter.get_finished_spans() if one.name == "run"
    ]
    assert len(shared) == 4
    assert max(int(str(one)) for one in shared) > 1


def test_the_spans_of_a_text_say_how_many_tokens_were_read_and_said(files: ModelFiles) -> None:
    telemetry, exporter = recorded()
    said = 0
    with running(files, RUN, telemetry=telemetry) as server:
        for streamed in (False, True):
            request = {"model": "m", "prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0, "stream": streamed}
            reply = server.ask("/v1/completions", request)
            assert reply.status == 200
            said = said if streamed else reply.facts["usage"]["completion_tokens"]
    spans = exporter.get_finished_spans()
    requests = {one.context.span_id for one in spans if one.name == TEXTS and one.context is not None}
    assert len(requests) == 2
    for name, key in (
        ("queue", None),
        ("prefill", "gen_ai.usage.input_tokens"),
        ("decode", "gen_ai.usage.output_tokens"),
    ):
        found = [one for one in spans if one.name == name]
        assert {one.parent.span_id for one in found if one.parent is not None} == requests
        counts = [(one.attributes or {}).get(key or "") for one in found]
        assert counts == {"queue": [None] * 2, "prefill": [3, 3], "decode": [said] * 2}[name]
