"""The studio as a server on this machine: the page, its assets, and its calls."""

import json
import logging
import socket
from collections.abc import Callable
from secrets import token_urlsafe

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server

from openinfer.studio.calls import answered
from openinfer.studio.guard import LOOPBACK, Guard
from openinfer.studio.page import ASSET_TYPES, asset, live_page, policy
from openinfer.studio.workspace import Workspace

_LARGEST = 80 << 20
"""The most bytes of a request."""
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Guarded:
    """Answers 403 to requests that the guard rejects."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            if not self._guard.allows(scope["path"], headers):
                await Response("403: not from the studio's own page\n", 403, _HEADERS)(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)


def studio_app(work: Workspace, guard: Guard) -> ASGIApp:
    """The application; every path is under the token."""

    async def page(_request: Request) -> Response:
        nonce = token_urlsafe(16)
        text = live_page(f"{work.surroundings.name} – openinfer studio", nonce)  # noqa: RUF001  (a title, in print)
        return HTMLResponse(text, headers={**_HEADERS, "Content-Security-Policy": policy(nonce)})

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSET_TYPES:
            return Response("404: there is no such file\n", 404, _HEADERS)
        return Response(asset(name), headers=_HEADERS, media_type=ASSET_TYPES[name])

    async def call(request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _LARGEST:
                return Response("413: too long\n", 413, _HEADERS)
        try:
            arguments = json.loads(bytes(body) or b"{}")
        except (ValueError, RecursionError):
            return Response("400: not JSON\n", 400, _HEADERS)
        found = await run_in_threadpool(answered, work, request.path_params["name"], arguments)
        text = json.dumps(found, allow_nan=False, separators=(",", ":"))
        return Response(text, headers=_HEADERS, media_type="application/json")

    routes = [
        Route(f"{guard.prefix}/", page),
        Route(f"{guard.prefix}/{{name}}", file),
        Route(f"{guard.prefix}/call/{{name}}", call, methods=["POST"]),
    ]
    return _Guarded(Starlette(routes=routes), guard)


class _QuietServer(Server):
    """A server that shuts down without logging the calls in progress."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger = logging.getLogger("uvicorn.error")
        level = logger.level
        logger.setLevel(logging.CRITICAL)
        try:
            await super().shutdown(sockets)
        finally:
            logger.setLevel(level)


class StudioServer:
    """Listens on a port of the loopback interface; ``port`` 0 takes a free one."""

    def __init__(self, work: Workspace, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, port))
        self.guard = Guard.new(self._socket.getsockname()[1])
        config = Config(
            studio_app(work, self.guard),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = _QuietServer(config)

    @property
    def url(self) -> str:
        """The address of the page, with the token of this run."""
        return self.guard.url

    def run(self, when_ready: Callable[[str], None] = lambda _url: None) -> None:
        """Serve until ``stop`` or Ctrl-C."""
        self._socket.listen()
        when_ready(self.url)
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Stop serving; may be called from another thread."""
        self._server.should_exit = True
