"""``openinfer serve``: serve a graph, or a folder of models."""

import logging
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.options import ModelPath, SizeOptions, parsed_sizes
from openinfer.cli.synth import DeviceOption
from openinfer.errors import Code, Diagnostic, FileSpan, MissingExtraError, ServingError

if TYPE_CHECKING:
    from openinfer.serve.options import TelemetryOptions, TlsFiles
    from openinfer.serve.telemetry import Telemetry
    from openinfer.serve.watching import EventLog

_TOKEN_VARIABLE = "OPENINFER_TOKEN"  # noqa: S105  (the name of a variable)

ServedSource = Annotated[
    str, typer.Argument(metavar="GRAPH|FOLDER", help="A graph, or a folder of models: NAME/VERSION/graph.oig.")
]
Name = Annotated[str | None, typer.Option("--name", help="What the model is called; else as the graph's file.")]
Prefill = Annotated[
    str | None, typer.Option("--prefill", metavar="GRAPH", help="The graph that reads prompts of a language model.")
]
TokenizerFile = Annotated[
    str | None, typer.Option("--tokenizer", metavar="FILE.gguf", help="The tokenizer of a language model.")
]
Host = Annotated[
    str, typer.Option("--host", help="Where to listen; beyond this machine, a token or certificates are needed.")
]
HttpPort = Annotated[int, typer.Option("--port", min=0, max=65535, help="The HTTP port; 0 takes a free one.")]
GrpcPort = Annotated[
    int, typer.Option("--grpc-port", min=-1, max=65535, help="The gRPC port; 0 takes a free one, -1 turns gRPC off.")
]
Instances = Annotated[
    int | None, typer.Option("--instances", min=1, max=1024, help="Compiled instances of a model; else one per core.")
]
InstanceThreads = Annotated[int, typer.Option("--threads", min=1, max=1024, help="Threads of each instance.")]
Isolate = Annotated[bool, typer.Option("--isolate", help="Run each instance in a process of its own.")]
MapWeights = Annotated[
    bool, typer.Option("--map-weights", help="Read weights through a file of the cache, instead of holding them.")
]
MaxQueue = Annotated[int, typer.Option("--max-queue", min=1, help="Requests that may wait; others get 429.")]
MaxBatch = Annotated[int, typer.Option("--max-batch", min=1, help="Rows of several requests that run as one step.")]
MaxWait = Annotated[float, typer.Option("--max-wait-ms", min=0.0, help="How long a request waits for others.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds after which a request is given up.")]
MaxRequest = Annotated[int, typer.Option("--max-request-bytes", min=1024, help="The largest request.")]
MaxConnections = Annotated[int, typer.Option("--max-connections", min=1, help="Maximum number of open connections.")]
StateDir = Annotated[
    str | None, typer.Option("--state-dir", metavar="DIR", help="Where sessions are saved, and loaded from.")
]
SessionBytes = Annotated[int, typer.Option("--session-memory", min=1, help="Bytes for sessions of a model.")]
SessionIdle = Annotated[
    float, typer.Option("--session-idle", min=0.1, help="Seconds until an idle session is dropped from memory.")
]
StateAge = Annotated[float, typer.Option("--state-age", min=1.0, help="Seconds until a saved session is removed.")]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help=f"The token that requests must have; else ${_TOKEN_VARIABLE}."),
]
TlsCert = Annotated[str | None, typer.Option("--tls-cert", metavar="FILE", help="The server's certificate.")]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")]
TlsClientCa = Annotated[
    str | None, typer.Option("--tls-client-ca", metavar="FILE", help="Clients need a certificate of this authority.")
]
OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        "--otlp-endpoint", metavar="URL", help="Send OpenTelemetry spans there; else as the OTEL_... variables say."
    ),
]
NodeTraces = Annotated[
    bool, typer.Option("--node-traces", help="Let requests ask for spans of nodes, at the cost of an instance.")
]


class LogLevel(StrEnum):
    """What to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"


LogOption = Annotated[LogLevel, typer.Option("--log-level", help="debug logs every request, info those that fail.")]


def serve(
    source: ServedSource,
    model: ModelPath = None,
    device: DeviceOption = "host",
    size: SizeOptions = None,
    name: Name = None,
    prefill: Prefill = None,
    tokenizer: TokenizerFile = None,
    host: Host = "127.0.0.1",
    port: HttpPort = 8000,
    grpc_port: GrpcPort = 8001,
    instances: Instances = None,
    threads: InstanceThreads = 1,
    isolate: Isolate = False,
    map_weights: MapWeights = False,
    max_queue: MaxQueue = 64,
    max_batch: MaxBatch = 1,
    max_wait_ms: MaxWait = 2.0,
    timeout: Timeout = 60.0,
    max_request_bytes: MaxRequest = 64 << 20,
    max_connections: MaxConnections = 1000,
    state_dir: StateDir = None,
    session_memory: SessionBytes = 1 << 30,
    session_idle: SessionIdle = 600.0,
    state_age: StateAge = 7 * 86400.0,
    token_file: TokenFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    otlp_endpoint: OtlpEndpoint = None,
    node_traces: NodeTraces = False,
    log_level: LogOption = LogLevel.INFO,
) -> None:
    """Answer requests with a graph, by the Open Inference Protocol (V2) over HTTP and gRPC.

    Graphs with persistent memory are sessions: a request names its sequence. A language model with --prefill and
    --tokenizer also answers /v1/completions and /v1/chat/completions. The log is lines of JSON on standard error.
    """
    sizes = parsed_sizes(size)
    _require_fitting(source, {"--model": model, "--name": name, "--prefill": prefill, "--tokenizer": tokenizer})
    try:
        from openinfer.serve.models import ModelFiles, Serving
        from openinfer.serve.options import RunOptions, ServeOptions, SessionOptions, telemetry_options
        from openinfer.serve.repository import Repository
        from openinfer.serve.security import require_safe
        from openinfer.serve.server import Server
        from openinfer.serve.service import Inference
        from openinfer.serve.watching import EventLog, Metrics
    except ModuleNotFoundError as error:
        raise missing_extra(error, "serve") from error
    listening = ServeOptions(
        host,
        port,
        None if grpc_port < 0 else grpc_port,
        _token(token_file),
        _tls(tls_cert, tls_key, tls_client_ca),
        max_request_bytes=max_request_bytes,
        max_connections=max_connections,
    )
    require_safe(listening)
    spans = telemetry_options(otlp_endpoint, os.environ)
    if node_traces and (spans is None or isolate):
        message = "spans of nodes are recorded in the process of the server" if isolate else "the server sends no spans"
        advice = "leave out --isolate, or --node-traces" if isolate else "give --otlp-endpoint URL, too"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, advice))
    count = len(os.sched_getaffinity(0)) if instances is None else instances
    run = RunOptions(
        *(device, sizes, count, threads, max_queue, max_batch, max_wait_ms / 1e3, timeout, isolate, map_weights),
        traces_nodes=node_traces,
    )
    sessions = SessionOptions(session_memory, session_idle, state_dir, kept=state_age)
    log = EventLog(level=getattr(logging, log_level.upper()))
    serving = Serving(run, sessions, Metrics(), log)
    telemetry = None if spans is None else _telemetry(spans, log)
    if Path(source).is_dir():
        repository = Repository.of_folder(source, serving)
    else:
        files = ModelFiles(source, model, prefill, tokenizer)
        repository = Repository.of_graph(name or Path(source).stem, files, serving)
    Server(Inference(repository, timeout, telemetry), listening, serving.metrics, log).run()


def _require_fitting(source: str, given: Mapping[str, str | None]) -> None:
    """Reject options that would be ignored, and names that no request can have."""
    named, name = [option for option, value in given.items() if value is not None], given["--name"]
    message, advice = "", None
    if named and Path(source).is_dir():
        message, advice = (
            f"{named[0]} is for one graph, and {source!r} is a folder of models",
            "NAME/VERSION/model.oinf",
        )
    elif given["--prefill"] is not None and given["--tokenizer"] is None:
        message, advice = (
            "a graph for prompts is of a language model, which has a tokenizer",
            "add --tokenizer FILE.gguf",
        )
    elif name is not None and (not name or "/" in name or not name.isprintable()):
        message, advice = f"no request can ask for a model called {name!r}", "letters, digits, '-', '_' and '.'"
    if message:
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, advice))


def _telemetry(spans: "TelemetryOptions", log: "EventLog") -> "Telemetry":
    try:
        from openinfer.serve.telemetry import Telemetry
    except ModuleNotFoundError as error:
        raise missing_extra(error, "otel") from error
    return Telemetry.of(spans, log)


def missing_extra(error: ModuleNotFoundError, extra: str) -> MissingExtraError:
    """The error for missing packages of an extra; a missing module of our own is raised as it is."""
    if error.name is None or error.name.partition(".")[0] == "openinfer":
        raise error
    message = f"this needs the package {error.name.partition('.')[0]!r}, which is not installed"
    return MissingExtraError(Diagnostic(Code.MISSING_EXTRA, message, None, f'pip install "openinfer[{extra}]"'))


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get(_TOKEN_VARIABLE) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        message = f"the token cannot be read from {path!r}: {error}"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, FileSpan(path))) from error


def _tls(certificate: str | None, key: str | None, authority: str | None) -> "TlsFiles | None":
    from openinfer.serve.options import TlsFiles

    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None:
        message = "TLS needs a certificate and its key"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "give --tls-cert and --tls-key"))
    return TlsFiles(certificate, key, authority)
