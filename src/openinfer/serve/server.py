"""The HTTP and the gRPC server in one process and one event loop, from startup to graceful shutdown."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import uvicorn

from openinfer.errors import Code, Diagnostic, FileSpan, ServingError
from openinfer.serve.connection import BoundedConnection
from openinfer.serve.grpc_protocol import GrpcProtocol
from openinfer.serve.openai import OpenAiProtocol
from openinfer.serve.options import ServeOptions, TlsFiles
from openinfer.serve.rest import RestProtocol
from openinfer.serve.security import AsgiApplication, PageGuard, TokenGuard, require_safe
from openinfer.serve.service import Inference
from openinfer.serve.watching import EventLog, Metrics, lines_of
from openinfer.serve.work import GRACE

_BACKLOG = 2048


class _HttpServer(uvicorn.Server):
    """Leaves signals to ``Server``, which stops several servers."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


class Server:
    """Listens for requests until it is stopped."""

    def __init__(self, inference: Inference, options: ServeOptions, metrics: Metrics, log: EventLog) -> None:
        require_safe(options)
        self._inference, self._options, self._log = inference, options, log
        self._socket = _bound_socket(options.host, options.port)
        self.port: int = self._socket.getsockname()[1]
        self.grpc_port: int | None = None
        rest = RestProtocol(inference, options, metrics, log)
        texts = OpenAiProtocol(inference, rest)
        own = rest.application(texts.routes())
        telemetry = inference.telemetry
        traced: AsgiApplication = own if telemetry is None else telemetry.application(own, own.routes)
        guarded = PageGuard(traced) if options.token is None else TokenGuard(traced, options.token)
        for logger in ("uvicorn", "grpc", "asyncio"):
            lines_of(logger, log, "connection")
        self._http = _HttpServer(_config(guarded, options))
        self._is_over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        """Serve until a signal or ``stop``, then answer waiting requests and save sessions."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Stop the server from another thread."""
        if self._loop is not None and self._is_over is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)

    async def _serve(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        channel = await self._grpc()
        http = asyncio.ensure_future(self._http.serve([self._socket]))
        self._handle_signals()
        facts = {"host": self._options.host, "port": self.port, "grpc_port": self.grpc_port}
        self._log.write("listening", facts=facts)
        over = asyncio.ensure_future(self._is_over.wait())
        await asyncio.wait((http, over), return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        self._http.should_exit = True
        if channel is not None:
            await channel.stop(GRACE)
        await http
        await asyncio.to_thread(self._inference.repository.close)
        if self._inference.telemetry is not None:
            await asyncio.to_thread(self._inference.telemetry.close)
        self._log.write("ended")

    def _handle_signals(self) -> None:
        assert self._loop is not None
        assert self._is_over is not None
        for one in (signal.SIGINT, signal.SIGTERM):
            try:
                self._loop.add_signal_handler(one, self._is_over.set)
            except (ValueError, RuntimeError):  # not the main thread, which then has to call ``stop``
                return

    async def _grpc(self) -> Any:
        if self._options.grpc_port is None:
            return None
        most = self._options.max_request_bytes
        limits = [
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
        found = grpc.aio.server(options=limits, maximum_concurrent_rpcs=self._options.max_connections)
        found.add_generic_rpc_handlers((GrpcProtocol(self._inference, self._options, self._log).handler(),))
        address = f"{_bracketed(self._options.host)}:{self._options.grpc_port}"
        try:
            if self._options.tls is None:
                self.grpc_port = found.add_insecure_port(address)
            else:
                self.grpc_port = found.add_secure_port(address, _credentials(self._options.tls))
        except RuntimeError as error:
            raise _no_port(self._options.host, self._options.grpc_port, str(error)) from error
        await found.start()
        return found


def _config(application: Any, options: ServeOptions) -> uvicorn.Config:
    tls = options.tls
    certificates: dict[str, Any] = {}
    if tls is not None:
        certificates = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
        if tls.client_authority is not None:
            import ssl

            certificates |= {"ssl_ca_certs": tls.client_authority, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return uvicorn.Config(
        application,
        http=BoundedConnection,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        limit_concurrency=options.max_connections,
        timeout_keep_alive=int(options.read_timeout),
        timeout_graceful_shutdown=int(GRACE),
        **certificates,
    )


def _bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket, so that the port is known before the first request."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise _no_port(host, port, error.strerror or str(error)) from error
    return found


def _no_port(host: str, port: int, reason: str) -> ServingError:
    message = f"the server cannot listen at {host}:{port}: {reason[:200]}"
    return ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, None, "choose another --port or --grpc-port"))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _credentials(tls: TlsFiles) -> Any:
    key, certificate = _contents(tls.key), _contents(tls.certificate)
    authority = None if tls.client_authority is None else _contents(tls.client_authority)
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=authority is not None
    )


def _contents(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"{path!r} cannot be read: {error.strerror or error}"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message, FileSpan(path))) from error
