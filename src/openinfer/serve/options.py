"""The options of a server: all frozen, none taken from a request."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from openinfer.errors import Code, Diagnostic, ServingError
from openinfer.synth.run.step_memory import WeightMemory
from openinfer.workers import Recipe


@dataclass(frozen=True)
class RunOptions:
    """How the graphs of a server run."""

    device: str = "host"
    sizes: Mapping[str, int] = field(default_factory=dict)
    instances: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """Compiled instances of each model that run in parallel."""
    threads: int = 1
    """Threads of each instance."""
    max_queue: int = 64
    """Requests that may wait for a model; further ones are refused."""
    max_batch: int = 1
    """The most rows of several requests that run as one step, for graphs whose batch is a dynamic size."""
    max_wait: float = 0.002
    """Seconds that a request waits for others to join its batch."""
    timeout: float = 60.0
    """Seconds after which a request fails, unless it sets a shorter timeout."""
    is_isolated: bool = False
    """Whether instances run in processes of their own."""
    maps_weights: bool = False
    """Whether weights are mapped from a file of the cache instead of held in memory."""
    traces_nodes: bool = False
    """Whether requests may ask for node spans, which needs an additional recording instance per model."""

    def recipe(self, graph: str, model: str | None) -> Recipe:
        """The recipe that compiles a graph."""
        weights = WeightMemory.MAPPED if self.maps_weights else WeightMemory.HELD
        return Recipe(graph, model, self.device, self.sizes, self.threads, weights)


@dataclass(frozen=True)
class SessionOptions:
    """How sessions of graphs with persistent memory are kept."""

    memory: int = 1 << 30
    """Bytes for the open sessions of a model; limits their number."""
    idle: float = 600.0
    """Seconds without a request after which a session leaves memory."""
    folder: str | None = None
    """Where states are saved; without a folder, a session that leaves memory is lost."""
    save_every: float = 5.0
    """Seconds between saves of changed sessions."""
    kept: float = 7 * 86400.0
    """Seconds after which an unused saved state is deleted."""


@dataclass(frozen=True)
class TelemetryOptions:
    """Where spans are sent; OpenTelemetry reads all other settings from the environment."""

    exporters: tuple[str, ...] = ("otlp",)
    """``otlp`` or ``console``, or both."""
    endpoint: str | None = None
    """The OTLP endpoint, without the path of traces; None takes the environment's."""
    protocol: str = "http/protobuf"
    """The OTLP protocol: this, or ``grpc``."""


_EXPORTERS, _PROTOCOLS = ("otlp", "console"), ("http/protobuf", "grpc")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def telemetry_options(endpoint: str | None, environment: Mapping[str, str]) -> TelemetryOptions | None:
    """Where spans are sent, by an option and by OpenTelemetry's own variables; None if neither asks for spans.

    >>> telemetry_options(None, {}) is None
    True
    >>> telemetry_options(None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}).exporters
    ('otlp',)
    >>> telemetry_options("http://collector:4318", {"OTEL_SDK_DISABLED": "true"}) is None
    True
    """
    named = [one.strip() for one in environment.get("OTEL_TRACES_EXPORTER", "").split(",") if one.strip()]
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or "none" in named:
        return None
    has_endpoint = endpoint is not None or any(environment.get(name) for name in _ENDPOINTS)
    if not named and not has_endpoint:
        return None
    protocols = [environment.get(f"OTEL_EXPORTER_OTLP_{name}PROTOCOL", "") for name in ("TRACES_", "")]
    protocol = next((one for one in protocols if one), _PROTOCOLS[0])
    for name, value, known in (
        *(("OTEL_TRACES_EXPORTER", one, _EXPORTERS) for one in named),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol, _PROTOCOLS),
    ):
        if value not in known:
            message = f"{name} is {value[:80]!r}, which is not supported"
            raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, f"it can be {' or '.join(known)}"))
    _require_address(endpoint)
    return TelemetryOptions(tuple(named) or _EXPORTERS[:1], endpoint, protocol)


def _require_address(endpoint: str | None) -> None:
    if endpoint is None:
        return
    found = urlsplit(endpoint)
    if found.scheme not in ("http", "https") or not found.netloc:
        message = f"{endpoint[:80]!r} is not the address of a collector"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "--otlp-endpoint http://localhost:4318"))


@dataclass(frozen=True)
class TlsFiles:
    """Certificates: the server's, and the authority that must sign those of clients."""

    certificate: str
    key: str
    client_authority: str | None = None


@dataclass(frozen=True)
class ServeOptions:
    """Where a server listens, how clients authenticate, and its limits."""

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = 8001
    token: str | None = None
    tls: TlsFiles | None = None
    max_request_bytes: int = 64 << 20
    read_timeout: float = 30.0
    """Seconds for a client to send a request."""
    max_connections: int = 1000
