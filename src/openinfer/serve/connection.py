"""An HTTP connection: uvicorn's, with bounds on request heads, and error answers that have a code.

A client that closes its side of a connection may still read, so it gets the answers to its complete requests. A client
that is gone looks the same until something is sent, so a half-closed connection is probed with an interim response.
"""

import asyncio
import json
import socket
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from openinfer.errors import Code

_MOST_HEAD = 64 << 10
"""Bytes that may arrive without completing the head of a request or adding to its body."""

_LINGER = 1.0
"""Seconds until a refused connection is closed: closing at once while data still arrives would discard the answer."""

_PROBE = 0.25
"""Seconds until a half-closed connection is probed, and then between checks of its status."""


class BoundedConnection(HttpToolsProtocol):
    """Refuses heads that are too long, and closes connections that send none in time."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._has_progress = False
        self._is_refused = False
        self._pending = 0
        self._patience: asyncio.TimerHandle | None = None
        self._probe: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected; start the timeout of its first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        if self._probe is not None:
            self._probe.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client has closed its side. True keeps the connection open for its answers; TLS always closes."""
        if self.scheme == "https" or self._is_refused:
            return self._is_refused
        if self._pending or (self.cycle is not None and self.cycle.more_body and not self.cycle.response_started):
            if not self._is_answering():
                self._refuse(400, Code.BAD_REQUEST, "the connection ends in the middle of a request")
            return self._is_refused
        if self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        self._probe = self.loop.call_later(_PROBE, self._ask_for_client)
        return True

    def _is_answering(self) -> bool:
        """Whether an earlier request of the connection is still being answered."""
        return bool(self.pipeline) or (self.cycle is not None and self.cycle.response_started)

    def _ask_for_client(self) -> None:
        """Send an interim response, which every client ignores; if the client is gone, the connection is reset."""
        if self.scope["http_version"] != "1.0" and not self.cycle.response_started:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._look_for_client()

    def _look_for_client(self) -> None:
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        self._probe = self.loop.call_later(_PROBE, self._look_for_client)

    def data_received(self, data: bytes) -> None:
        """Parse bytes. The parser buffers what is incomplete: a head, or the trailer after the last chunk."""
        if self._is_refused:
            return
        self._has_progress = False
        super().data_received(data)
        self._pending = 0 if self._has_progress else self._pending + len(data)
        if self._pending > _MOST_HEAD and not self._is_refused:
            self._refuse(431, Code.REQUEST_TOO_LARGE, f"the head of a request has at most {_MOST_HEAD:,} bytes here")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        if self._patience is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._has_progress = True
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """More of a body has arrived."""
        self._has_progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._has_progress = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP."""
        self._refuse(400, Code.BAD_REQUEST, msg.rstrip("."))

    def _await_head(self) -> None:
        self._patience = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """Close a connection that has sent no head in time; with an error answer if it has begun a request."""
        if self._is_refused or self.transport.is_closing():
            return
        if not self._pending:
            self.transport.close()
            return
        message = f"the head of the request did not arrive within {self.timeout_keep_alive:g} seconds"
        self._refuse(408, Code.DEADLINE, message)

    def _refuse(self, status: int, code: Code, message: str) -> None:
        body = json.dumps({"error": f"{code}: {message}", "code": str(code)}).encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self._is_refused = True
        self.loop.call_later(_LINGER, self.transport.close)
