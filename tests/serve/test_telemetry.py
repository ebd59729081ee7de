"""Spans of requests, over HTTP and gRPC: whose children they are, what they say, and when there are none."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cli.in_process import openinfer
from tests.serve.running import RUN, Running, running, written
from tests.serve.test_protocol import body

from openinfer.errors import ServingError
from openinfer.serve import ModelFiles
from openinfer.serve.grpc_codec import SERVICE, message
from openinfer.serve.options import TelemetryOptions, telemetry_options
from openinfer.serve.telemetry import Telemetry

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-{PARENT}-{flags}" for flags in ("01", "00"))
GRAPH = """sizes { B <= 8; } dynamic { x: f32[B, 2]; } volatile { y: f32[B, 2]; }
block entry { t = op exp(x); scope "tail" { op cumsum(t, axis=1) >> y; } return y; }"""
HTTP, CALL = "POST /v2/models/{model}/infer", f"{SERVICE}/ModelInfer"
"""The names of spans of requests."""
REQUEST = body("FP32", [0.0, 0.0], [1, 2])


class Watched:
    """A server, and the spans that it has made."""

    def __init__(self, server: Running, exporter: InMemorySpanExporter) -> None:
        self.server, self._exporter = server, exporter

    def spans(self, last: str = HTTP) -> dict[str, ReadableSpan]:
        """Those since the last time, by name. The last of them, that of a request, may end after its answer is read."""
        end = monotonic() + 60
        while last not in self._names() and monotonic() < end:
            sleep(0.001)
        names, found = self._names(), self._exporter.get_finished_spans()
        assert last in names
        self._exporter.clear()
        assert len(set(names)) == len(names), names
        return dict(zip(names, found, strict=True))

    def _names(self) -> list[str]:
        return [one.name for one in self._exporter.get_finished_spans()]

    def ask(self, request: Any, traceparent: str = SAMPLED) -> Any:
        return self.server.ask("/v2/models/m/infer", request, {"traceparent": traceparent}).facts


def recorded() -> tuple[Telemetry, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Telemetry(provider), exporter


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    files = ModelFiles(written(tmp_path_factory.mktemp("spans"), GRAPH))
    telemetry, exporter = recorded()
    with running(files, replace(RUN, traces_nodes=True), telemetry=telemetry) as found:
        yield Watched(found, exporter)


def children(spans: dict[str, ReadableSpan], name: str) -> set[str]:
    """The spans right below one."""
    parent = spans[name].context
    assert parent is not None
    return {one.name for one in spans.values() if one.parent is not None and one.parent.span_id == parent.span_id}


def test_a_request_is_a_child_of_what_its_header_names(watched: Watched) -> None:
    assert watched.ask(REQUEST)["outputs"][0]["data"] == [1.0, 2.0]
    spans = watched.spans()
    assert spans.keys() == {HTTP, "queue", "run"}
    own = spans[HTTP]
    assert own.context is not None
    assert own.parent is not None
    assert (format(own.context.trace_id, "032x"), format(own.parent.span_id, "016x")) == (TRACE, PARENT)
    assert children(spans, HTTP) == {"queue", "run"}
    wanted = {"http.response.status_code": 200, "http.route": "/v2/models/{model}/infer", "openinfer.model.name": "m"}
    assert own.attributes is not None
    assert wanted.items() <= dict(own.attributes).items()
    times = [(one.start_time or 0, one.end_time or 0) for one in (spans["queue"], spans["run"], own)]
    assert times[0][0] <= times[0][1] == times[1][0] < times[1][1] <= times[2][1]
    assert watched.server.lines()[-1]["trace_id"] == TRACE


def test_a_call_of_grpc_has_the_same_spans(watched: Watched) -> None:
    request = message("ModelInferRequest")(model_name="m")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.inputs[0].contents.fp32_contents.extend([0.0, 0.0])
    with grpc.insecure_channel(watched.server.grpc_address) as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=message("ModelInferRequest").SerializeToString,
            response_deserializer=message("ModelInferResponse").FromString,
        )
        call(request, metadata=(("traceparent", SAMPLED),), timeout=60)
        good = watched.spans(CALL)
        request.inputs[0].shape[1] = 3
        with pytest.raises(grpc.RpcError):
            call(request, timeout=60)
    parent = good[CALL].parent
    assert parent is not None
    assert format(parent.span_id, "016x") == PARENT
    assert children(good, CALL) == {"queue", "run"}
    assert (good[CALL].attributes or {})["rpc.response.status_code"] == "OK"
    bad = watched.spans(CALL)[CALL]
    assert bad.parent is None
    assert (bad.attributes or {})["rpc.response.status_code"] == "INVALID_ARGUMENT"
    assert not bad.status.is_ok


def test_nodes_have_spans_where_a_request_asks_for_them(watched: Watched) -> None:
    assert watched.ask({**REQUEST, "parameters": {"trace_nodes": True}})["outputs"][0]["data"] == [1.0, 2.0]
    spans = watched.spans()
    assert {"exp", "cumsum", "Scope"} <= children(spans, "run")
    node = spans["cumsum"]
    assert (node.attributes or {})["openinfer.node.scope"] == "tail"
    assert (node.attributes or {})["openinfer.node.output"] == ("y",)
    run, own = spans["run"], (node.start_time or 0, node.end_time or 0)
    assert (run.start_time or 0) <= own[0] <= own[1] <= (run.end_time or 0)
    watched.ask(REQUEST)
    assert "cumsum" not in watched.spans(), "others do not pay for it"


def test_what_nobody_samples_or_looks_at_has_no_spans(watched: Watched) -> None:
    watched.ask({**REQUEST, "parameters": {"trace_nodes": True}}, UNSAMPLED)
    for path in ("/v2/health/live", "/v2/health/ready", "/metrics"):
        watched.server.ask(path)
    watched.ask(REQUEST)
    assert watched.spans().keys() == {HTTP, "queue", "run"}, "of the last request alone"


def test_a_request_that_fails_says_so(watched: Watched) -> None:
    assert watched.ask(body("FP32", [0.0] * 18, [9, 2]))["code"] == "E312"
    spans = watched.spans()
    assert (spans["run"].attributes or {})["error.type"] == "E312"
    own = spans[HTTP]
    assert (own.attributes or {})["http.response.status_code"] == 400
    assert own.status.is_unset, "what a client does wrong is no error of the server"


@pytest.mark.parametrize(
    ("endpoint", "environment", "wanted"),
    [
        (None, {}, None),
        (None, {"OTEL_SERVICE_NAME": "net"}, None),
        ("http://c:4318", {}, TelemetryOptions(endpoint="http://c:4318")),
        ("http://c:4318", {"OTEL_SDK_DISABLED": "TRUE"}, None),
        ("http://c:4318", {"OTEL_TRACES_EXPORTER": "none"}, None),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, TelemetryOptions()),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t"}, TelemetryOptions()),
        (None, {"OTEL_TRACES_EXPORTER": "console, otlp"}, TelemetryOptions(("console", "otlp"))),
        (
            "https://c:4317",
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            TelemetryOptions(endpoint="https://c:4317", protocol="grpc"),
        ),
    ],
)
def test_spans_go_where_the_environment_says(
    endpoint: str | None, environment: dict[str, str], wanted: TelemetryOptions | None
) -> None:
    assert telemetry_options(endpoint, environment) == wanted


@pytest.mark.parametrize(
    ("endpoint", "environment"),
    [
        ("collector:4318", {}),
        ("", {}),
        (None, {"OTEL_TRACES_EXPORTER": "zipkin"}),
        ("http://c", {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}),
    ],
)
def test_what_cannot_be_sent_to_is_refused(endpoint: str | None, environment: dict[str, str]) -> None:
    with pytest.raises(ServingError, match="E908"):
        telemetry_options(endpoint, environment)


def test_nodes_are_refused_where_nothing_records_them(tmp_path: Path) -> None:
    path = written(tmp_path, GRAPH)
    telemetry, _ = recorded()
    with running(ModelFiles(path), telemetry=telemetry) as found:
        reply = found.ask("/v2/models/m/infer", {**REQUEST, "parameters": {"trace_nodes": True}})
        assert (reply.status, reply.facts["code"]) == (400, "E901")
        assert "--node-traces" in reply.facts["error"]
    assert "E908" in openinfer("serve", path, "--node-traces").err
    assert "E908" in openinfer("serve", path, "--node-traces", "--isolate", "--otlp-endpoint", "http://c").err


def test_without_the_package_the_command_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "openinfer.serve.telemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    done = openinfer("serve", written(tmp_path, GRAPH), "--otlp-endpoint", "http://localhost:4318")
    assert done.status != 0
    assert "E751" in done.err
    assert 'pip install "openinfer[otel]"' in done.err
