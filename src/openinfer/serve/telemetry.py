"""OpenTelemetry spans: one per request, with child spans for waiting, running and, on request, its nodes.

The only module that knows OpenTelemetry, which is an extra. Other modules make records, from which spans are made
afterwards.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter_ns, time_ns
from typing import Any

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from starlette.routing import BaseRoute, Match, Route

from openinfer import __version__
from openinfer.check.events import Event
from openinfer.errors import Code, Diagnostic, MissingExtraError, OpenInferError, ServingError
from openinfer.serve.models import Served
from openinfer.serve.options import TelemetryOptions
from openinfer.serve.problems import status_of
from openinfer.serve.security import AsgiApplication, AsgiReceive, AsgiScope, AsgiSend
from openinfer.serve.text import TextRecord
from openinfer.serve.watching import EventLog, lines_of
from openinfer.serve.work import StepRecord

FLUSH_SECONDS = 5.0
"""Seconds that a server waits for a collector when it stops."""
_QUIET_PATHS = ("/v2/health/live", "/v2/health/ready", "/metrics")
"""Paths that are polled every few seconds and get no spans."""


class Telemetry:
    """Makes spans of requests, as children of the spans named in their headers."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("openinfer.serve", __version__)

    @classmethod
    def of(cls, options: TelemetryOptions, log: EventLog) -> "Telemetry":
        """Send spans to the exporters in the options; export errors go to the log."""
        lines_of("opentelemetry", log, "telemetry")
        # The environment is merged last, so it overrides our names.
        named = Resource({SERVICE_NAME: "openinfer", SERVICE_VERSION: __version__})
        provider = TracerProvider(resource=named.merge(_named_resource()), shutdown_on_exit=False)
        try:
            for name in options.exporters:
                provider.add_span_processor(BatchSpanProcessor(_exporter(name, options)))
        except (ValueError, OSError) as error:
            message = f"spans cannot be sent so: {error}"
            raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message[:300])) from error
        return cls(provider)

    def close(self) -> None:
        """Send the remaining spans; wait only ``FLUSH_SECONDS`` for a collector that does not answer."""
        last = threading.Thread(target=self._provider.shutdown, name="last-spans", daemon=True)
        last.start()
        last.join(FLUSH_SECONDS)

    # --- requests -------------------------------------------------------------------------------------------------

    def application(self, inner: AsgiApplication, routes: Sequence[BaseRoute]) -> AsgiApplication:
        """Wrap an ASGI application so that its requests have spans."""

        async def answer(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
            if scope["type"] != "http" or scope["path"] in _QUIET_PATHS:
                await inner(scope, receive, send)
                return
            with self._http_span(scope, routes) as span:

                async def noted(message: Any) -> None:
                    if message["type"] == "http.response.start":
                        _answered(span, message["status"])
                    await send(message)

                await inner(scope, receive, noted)

        return answer

    @contextmanager
    def _http_span(self, scope: AsgiScope, routes: Sequence[BaseRoute]) -> Iterator[Span]:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        route = next((one.path for one in routes if isinstance(one, Route) and _is_full(one, scope)), None)
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"], "url.scheme": scope["scheme"]}
        attributes |= {} if route is None else {"http.route": route}
        name = scope["method"] if route is None else f"{scope['method']} {route}"
        with self._tracer.start_as_current_span(name, extract(headers), SpanKind.SERVER, attributes) as span:
            yield span

    @contextmanager
    def grpc_span(self, service: str, method: str, metadata: Sequence[tuple[str, str | bytes]]) -> Iterator[None]:
        """The span of a gRPC call; an error sets its status and is raised again."""
        headers: dict[str, list[str]] = {}
        for name, value in metadata:
            if isinstance(value, str):
                headers.setdefault(name, []).append(value)
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        with self._tracer.start_as_current_span(
            f"{service}/{method}", extract(headers), SpanKind.SERVER, attributes, record_exception=False
        ) as span:
            try:
                yield
            except OpenInferError as error:
                span.set_attribute("error.type", str(error.code))
                span.set_attribute("rpc.response.status_code", status_of(error).grpc)
                raise
            span.set_attribute("rpc.response.status_code", "OK")

    # --- steps ----------------------------------------------------------------------------------------------------

    def step_record(self, *, wants_nodes: bool) -> StepRecord | None:
        """The record of a step for its spans; None if the request is not sampled."""
        return StepRecord(wants_nodes) if trace.get_current_span().is_recording() else None

    def step(self, record: StepRecord, served: Served, code: str) -> str:
        """Make the spans of a step: waiting, and running with its nodes. Returns the trace id, for the log."""
        model, clock = _model(served), _Clock()
        self._finished("queue", clock, (record.arrived, record.began or record.ended), {})
        if record.began is not None:
            self._run(record, clock, record.began, model, code)
        return _trace_id()

    def _run(self, record: StepRecord, clock: "_Clock", began: int, model: Mapping[str, Any], code: str) -> None:
        attributes = {**model, "openinfer.step.requests": record.jobs}
        if record.dropped_events:
            attributes["openinfer.step.dropped_nodes"] = record.dropped_events
        run = self._tracer.start_span("run", attributes=attributes, start_time=clock.at(began))
        context = trace.set_span_in_context(run)
        for event in record.events:
            start = clock.at(event.start_ns)
            node = self._tracer.start_span(
                event.op_name or event.kind, context, attributes=_node(event), start_time=start
            )
            node.end(start + event.duration_ns)
        _failed(run, code)
        run.end(clock.at(record.ended))

    def text(self, record: TextRecord, served: Served, code: str) -> str | None:
        """Make the spans of a language model's answer: waiting, prefill, decode.

        Returns the trace id; None if the request is not sampled.
        """
        if not trace.get_current_span().is_recording():
            return None
        model, clock = _model(served), _Clock()
        self._finished("queue", clock, (record.arrived, record.began), {})
        if record.began is not None:
            read = {**model, "gen_ai.usage.input_tokens": record.tokens_read}
            self._finished("prefill", clock, (record.began, record.read), read, code if record.read is None else "ok")
        if record.read is not None:
            said = {**model, "gen_ai.usage.output_tokens": record.tokens_said}
            self._finished("decode", clock, (record.read, record.ended), said, code)
        return _trace_id()

    def _finished(
        self,
        name: str,
        clock: "_Clock",
        times: tuple[int, int | None],
        attributes: Mapping[str, Any],
        code: str = "ok",
    ) -> None:
        """Make the span of a finished phase."""
        span = self._tracer.start_span(name, attributes=attributes, start_time=clock.at(times[0]))
        _failed(span, code)
        span.end(clock.at(times[1]))


class _Clock:
    """Converts times of ``perf_counter_ns`` to wall-clock times."""

    def __init__(self) -> None:
        self._now = perf_counter_ns()
        self._offset = time_ns() - self._now

    def at(self, time: int | None) -> int:
        """The wall-clock time of ``time``; None means now, for an unfinished phase."""
        return self._offset + (self._now if time is None else time)


def _model(served: Served) -> dict[str, Any]:
    """Span attributes of a model; also sets them on the span of the request."""
    found = {"openinfer.model.name": served.name, "openinfer.model.version": served.version}
    trace.get_current_span().set_attributes(found)
    return found


def _trace_id() -> str:
    return format(trace.get_current_span().get_span_context().trace_id, "032x")


def _node(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {
        "openinfer.node.index": event.node_index,
        "openinfer.node.kind": event.kind,
        "openinfer.node.block": event.block_name,
        "openinfer.node.output": event.output,
    }
    if event.scope:
        found["openinfer.node.scope"] = "/".join(event.scope)
    if event.indices:
        found["openinfer.node.indices"] = [f"{name}={value}" for name, value in event.indices.items()]
    return found


def _failed(span: Span, code: str) -> None:
    if code != "ok":
        span.set_attribute("error.type", code)
        span.set_status(Status(StatusCode.ERROR, code))


def _answered(span: Span, status: int) -> None:
    """Note the status of an answer. Errors of the client do not fail the server's span."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_attribute("error.type", str(status))
        span.set_status(Status(StatusCode.ERROR))


def _is_full(route: Route, scope: AsgiScope) -> bool:
    return route.matches(scope)[0] is Match.FULL


# --- exporters --------------------------------------------------------------------------------------------------------


def _named_resource() -> Resource:
    """The resource that the environment describes, without a service name if it sets none."""
    found = Resource.create()
    name = str(found.attributes.get(SERVICE_NAME, ""))
    kept = {
        key: value for key, value in found.attributes.items() if key != SERVICE_NAME or "unknown_service" not in name
    }
    return Resource(kept)


def _exporter(name: str, options: TelemetryOptions) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    try:
        return _otlp(options)
    except ModuleNotFoundError as error:
        message = f"OTLP over {options.protocol} needs the package {error.name!r}, which is not installed"
        help_line = 'pip install "openinfer[otel]"'
        raise MissingExtraError(Diagnostic(Code.MISSING_EXTRA, message, None, help_line)) from error


def _otlp(options: TelemetryOptions) -> SpanExporter:
    endpoint = options.endpoint
    if options.protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces")
