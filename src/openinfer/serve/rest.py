"""The protocol over HTTP, as an ASGI application."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from openinfer import __version__
from openinfer.errors import Code, Diagnostic, OpenInferError, ServingError
from openinfer.serve.json_codec import (
    HEADER_LENGTH,
    WantedForm,
    decoded_json,
    decoded_request,
    encoded_answer,
    encoded_error,
)
from openinfer.serve.messages import InferRequest
from openinfer.serve.options import ServeOptions
from openinfer.serve.problems import bad_request, require_size, status_of, told
from openinfer.serve.service import Inference
from openinfer.serve.watching import EventLog, Metrics

EXTENSIONS = ("binary_tensor_data", "model_repository", "sequence")
Endpoint = Callable[[Request], Awaitable[Response]]
Failed = Callable[[Exception], Response]
Awaited = TypeVar("Awaited")


class RestProtocol:
    """The endpoints of the Open Inference Protocol."""

    def __init__(self, inference: Inference, options: ServeOptions, metrics: Metrics, log: EventLog) -> None:
        self._inference = inference
        self._options = options
        self._metrics = metrics
        self._log = log

    def application(self, more: tuple[Route, ...] = ()) -> Starlette:
        """All endpoints."""
        model, version = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
        routes = [
            Route("/v2/health/live", self._live),
            Route("/v2/health/ready", self._ready),
            Route("/v2", self._server),
            Route("/metrics", self._show_metrics),
            Route("/v2/repository/index", self.guarded(self._index), methods=["GET", "POST"]),
            Route("/v2/repository/models/{model}/load", self.guarded(self._load), methods=["POST"]),
            Route("/v2/repository/models/{model}/unload", self.guarded(self._unload), methods=["POST"]),
        ]
        for path in (model, version):
            routes += [
                Route(path, self.guarded(self._model)),
                Route(f"{path}/ready", self.guarded(self._model_ready)),
                Route(f"{path}/infer", self.guarded(self._infer), methods=["POST"]),
                Route(f"{path}/infer_stream", self.guarded(self._infer_stream), methods=["POST"]),
            ]
        handlers: Any = {404: self._unknown, 405: self._unknown}
        found = Starlette(routes=[*routes, *more], exception_handlers=handlers)
        found.router.redirect_slashes = False  # a redirect would send clients wherever their Host header says
        return found

    # --- endpoints ------------------------------------------------------------------------------------------------

    async def _live(self, _request: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, _request: Request) -> Response:
        is_ready = self._inference.repository.is_ready
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    async def _server(self, _request: Request) -> Response:
        return JSONResponse({"name": "openinfer", "version": __version__, "extensions": EXTENSIONS})

    async def _show_metrics(self, _request: Request) -> Response:
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def _model(self, request: Request) -> Response:
        name, version = _names(request)
        served = self._inference.repository.found(name, version)
        return JSONResponse(served.metadata(self._inference.repository.versions(name)))

    async def _model_ready(self, request: Request) -> Response:
        self._inference.repository.found(*_names(request))
        return JSONResponse({"ready": True})

    async def _infer(self, request: Request) -> Response:
        decoded, form = await self._decoded(request)
        name, version = _names(request)
        answer = await unless_gone(request, self._inference.infer(name, version, decoded, "http"))
        encoded = encoded_answer(answer, form)
        if encoded.header_length is None:
            return Response(encoded.body, media_type="application/json")
        headers = {HEADER_LENGTH: str(encoded.header_length)}
        return Response(encoded.body, media_type="application/octet-stream", headers=headers)

    async def _infer_stream(self, request: Request) -> Response:
        decoded, _form = await self._decoded(request)
        name, version = _names(request)
        answers = self._inference.stream(name, version, decoded, "sse")
        first = encoded_answer(await unless_gone(request, first_of(answers)), WantedForm()).body

        async def texts() -> AsyncIterator[bytes]:
            yield first
            async for answer in answers:
                yield encoded_answer(answer, WantedForm()).body

        return event_stream(texts(), self.failed)

    async def _decoded(self, request: Request) -> tuple[InferRequest, WantedForm]:
        return decoded_request(await self.body(request), request.headers.get(HEADER_LENGTH))

    async def _index(self, request: Request) -> Response:
        only_ready = request.method == "POST" and _parameters(await self.body(request)).get("ready", False)
        entries = await run_in_threadpool(self._inference.repository.index)
        return JSONResponse([vars(one) for one in entries if one.state == "READY" or not only_ready])

    async def _load(self, request: Request) -> Response:
        if _parameters(await self.body(request)).get("parameters"):
            raise bad_request("a model is loaded as it is stored: files and settings in a request are not accepted")
        await run_in_threadpool(self._inference.repository.load, request.path_params["model"])
        return JSONResponse({})

    async def _unload(self, request: Request) -> Response:
        await self.body(request)
        await run_in_threadpool(self._inference.repository.unload, request.path_params["model"])
        return JSONResponse({})

    async def _unknown(self, request: Request, error: Exception) -> Response:
        """Answer requests for unknown paths and methods."""
        message = f"there is no {request.method} {request.url.path[:200]}"
        found = self.failed(ServingError(Diagnostic(Code.UNKNOWN_MODEL, message)))
        if isinstance(error, HTTPException) and error.status_code == 405:
            found.status_code = 405
            found.headers.update(error.headers or {})
        return found

    # --- bodies and errors ----------------------------------------------------------------------------------------

    async def body(self, request: Request) -> bytes:
        """Read the body of a request, with limits on its size and time."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise bad_request("compressed requests are not accepted")
        most, chunks, size = self._options.max_request_bytes, [], 0
        stated = request.headers.get("content-length", "0")
        require_size(int(stated[:18]) if stated.isdigit() else 0, most)
        try:
            async with asyncio.timeout(self._options.read_timeout):
                async for chunk in request.stream():
                    size += len(chunk)
                    require_size(size, most)
                    chunks.append(chunk)
        except TimeoutError:
            message = f"the request did not arrive within {self._options.read_timeout:g} seconds"
            raise ServingError(Diagnostic(Code.DEADLINE, message)) from None
        return b"".join(chunks)

    def guarded(self, endpoint: Endpoint, failed: Failed | None = None) -> Endpoint:
        """An endpoint whose errors become answers, in the protocol's form unless ``failed`` makes another one."""
        failed = failed or self.failed

        async def answer(request: Request) -> Response:
            try:
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=499)
            except Exception as error:  # noqa: BLE001  (the server survives its own bugs)
                return failed(error)

        return answer

    def failed(self, error: Exception) -> Response:
        """The answer for an error."""
        if not isinstance(error, OpenInferError):
            self._log.write("internal error", 40, {"error": repr(error)})
            return JSONResponse({"error": "internal error"}, 500)
        status = status_of(error).http
        headers = {"Retry-After": "1"} if status == 429 else {"WWW-Authenticate": "Bearer"} if status == 401 else {}
        return Response(encoded_error(error, told(error)), status, headers, "application/json")


def event_stream(texts: AsyncIterator[bytes], failed: Failed) -> Response:
    """Texts as server-sent events; an error becomes the last event."""

    async def events() -> AsyncIterator[bytes]:
        try:
            async for text in texts:
                yield b"data: " + text + b"\n\n"
        except Exception as error:  # noqa: BLE001  (the answer has begun, so an error must be part of it)
            yield b"data: " + bytes(failed(error).body) + b"\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def first_of(answers: AsyncIterator[Awaited]) -> Awaited:
    """The first of several answers; awaited before the response begins, so that its errors still set the status."""
    return await anext(answers)


async def unless_gone(request: Request, work: Coroutine[Any, Any, Awaited]) -> Awaited:
    """Await ``work``, but cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ServingError(Diagnostic(Code.INTERRUPTED, "the client has hung up"))
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _names(request: Request) -> tuple[str, str]:
    return request.path_params["model"], request.path_params.get("version", "")


def _parameters(body: bytes) -> dict[str, Any]:
    return decoded_json(body) if body.strip() else {}


def json_bytes(facts: object) -> bytes:
    """JSON without spaces."""
    return json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()
