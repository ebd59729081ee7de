"""Messages of the protocol on two streams: JSON after a header with its length."""

import json
import threading
from typing import Any, BinaryIO

MOST_BYTES = 1 << 26
_MOST_HEADER = 1 << 12


class ProtocolError(Exception):
    """The channel received something that is not a message."""


class Channel:
    r"""Reads requests and writes responses and events; writing is safe from several threads.

    >>> from io import BytesIO
    >>> sink = BytesIO()
    >>> Channel(BytesIO(b"Content-Length: 16\r\n\r\n{\"command\": \"a\"}"), sink).read()
    {'command': 'a'}
    """

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._lock = threading.Lock()
        self._sent = 0

    def read(self) -> dict[str, Any] | None:
        """The next message, or None if there are no more."""
        length = self._header()
        if length is None:
            return None
        data = self._source.read(length)
        if len(data) < length:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            message = f"a message is not JSON: {error}"
            raise ProtocolError(message) from error
        if not isinstance(found, dict):
            message = "a message is not an object"
            raise ProtocolError(message)
        return found

    def _header(self) -> int | None:
        length = None
        while True:
            line = self._source.readline(_MOST_HEADER)
            if not line:
                return None
            if line in (b"\r\n", b"\n"):
                break
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length" and value.strip().isdigit():
                length = int(value)
        if length is None or length > MOST_BYTES:
            message = "a message has no valid Content-Length"
            raise ProtocolError(message)
        return length

    def event(self, name: str, **body: Any) -> None:
        """Send an event to the client."""
        self._send({"type": "event", "event": name, "body": body})

    def respond(self, request: dict[str, Any], body: dict[str, Any] | None = None) -> None:
        """Answer a request."""
        self._send({**_answer(request), "success": True, "body": body or {}})

    def refuse(self, request: dict[str, Any], message: str) -> None:
        """Answer a request with an error."""
        error = {"id": 1, "format": "{text}", "variables": {"text": message}, "showUser": True}
        self._send({**_answer(request), "success": False, "message": message, "body": {"error": error}})

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._sent += 1
            data = json.dumps({"seq": self._sent, **message}, allow_nan=False).encode()
            self._sink.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
            self._sink.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response", "request_seq": request.get("seq", 0), "command": str(request.get("command", ""))}
