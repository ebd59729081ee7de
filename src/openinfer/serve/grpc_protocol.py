"""The protocol over gRPC."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import grpc

from openinfer import __version__
from openinfer.errors import OpenInferError, ServingError
from openinfer.serve.grpc_codec import SERVICE, decoded_message, encoded_message, message, parsed
from openinfer.serve.messages import InferRequest
from openinfer.serve.options import ServeOptions
from openinfer.serve.problems import bad_request, status_of, told
from openinfer.serve.rest import EXTENSIONS
from openinfer.serve.security import require_token
from openinfer.serve.service import Inference
from openinfer.serve.watching import EventLog

Method = Callable[[Any, Any], Awaitable[Any]]
_OPEN_METHODS = ("ServerLive", "ServerReady")


class GrpcProtocol:
    """The methods of the service."""

    def __init__(self, inference: Inference, options: ServeOptions, log: EventLog) -> None:
        self._inference = inference
        self._options = options
        self._log = log

    def handler(self) -> grpc.GenericRpcHandler:
        """All methods, for a server."""
        methods: dict[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server,
            "ModelMetadata": self._model,
            "ModelInfer": self._infer,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                self._guarded(name, self._traced(name, method)),
                response_serializer=message(f"{name}Response").SerializeToString,
            )
            for name, method in methods.items()
        }
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._infer_stream,
            response_serializer=message("ModelStreamInferResponse").SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _guarded(self, name: str, method: Method) -> Method:
        """Wrap a method so that it parses its message and its errors become statuses; malformed bytes are an error."""

        async def answer(data: bytes, context: Any) -> Any:
            if name not in _OPEN_METHODS:
                await self._authorized(context)
            try:
                return await method(parsed(f"{name}Request", data), context)
            except OpenInferError as error:
                await context.abort(getattr(grpc.StatusCode, status_of(error).grpc), told(error))
            except (grpc.aio.AbortError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001  (the server survives its own bugs)
                self._log.write("internal error", 40, {"error": repr(error)})
                await context.abort(grpc.StatusCode.INTERNAL, "internal error")

        return answer

    def _traced(self, name: str, method: Method) -> Method:
        """Wrap a method so that its calls have spans, if the server makes spans; health checks have none."""
        telemetry = self._inference.telemetry
        if telemetry is None or name in _OPEN_METHODS:
            return method

        async def answer(request: Any, context: Any) -> Any:
            with telemetry.grpc_span(SERVICE, name, context.invocation_metadata() or ()):
                return await method(request, context)

        return answer

    async def _authorized(self, context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        try:
            require_token(self._options.token, given if isinstance(given, str) else "")
        except ServingError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, told(error))

    # --- methods --------------------------------------------------------------------------------------------------

    async def _live(self, _request: Any, _context: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def _ready(self, _request: Any, _context: Any) -> Any:
        return message("ServerReadyResponse")(ready=self._inference.repository.is_ready)

    async def _model_ready(self, request: Any, _context: Any) -> Any:
        try:
            self._inference.repository.found(request.name, request.version)
        except OpenInferError:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=True)

    async def _server(self, _request: Any, _context: Any) -> Any:
        return message("ServerMetadataResponse")(name="openinfer", version=__version__, extensions=EXTENSIONS)

    async def _model(self, request: Any, _context: Any) -> Any:
        repository = self._inference.repository
        served = repository.found(request.name, request.version)
        return message("ModelMetadataResponse")(**served.metadata(repository.versions(request.name)))

    async def _infer(self, request: Any, context: Any) -> Any:
        decoded = _in_time(decoded_message(request), context)
        answer = await self._inference.infer(request.model_name, request.model_version, decoded, "grpc")
        return encoded_message(answer)

    async def _infer_stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Answer in request order; errors are sent as answers too, and the stream continues."""
        await self._authorized(context)
        telemetry, given = self._inference.telemetry, context.invocation_metadata() or ()
        with nullcontext() if telemetry is None else telemetry.grpc_span(SERVICE, "ModelStreamInfer", given):
            async for answer in self._answers(requests):
                yield answer

    async def _answers(self, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        made, unnamed = message("ModelStreamInferResponse"), message("ModelInferRequest")()
        async for data in requests:
            request = unnamed
            try:
                request = parsed("ModelInferRequest", data)
                names = request.model_name, request.model_version
                async for answer in self._inference.stream(*names, decoded_message(request), "grpc"):
                    yield made(infer_response=encoded_message(answer))
            except OpenInferError as error:
                yield made(error_message=told(error), infer_response=message("ModelInferResponse")(id=request.id))
            except Exception as error:  # noqa: BLE001  (the stream survives our own bugs)
                self._log.write("internal error", 40, {"error": repr(error)})
                yield made(error_message="internal error", infer_response=message("ModelInferResponse")(id=request.id))

    async def _index(self, request: Any, _context: Any) -> Any:
        found = message("RepositoryIndexResponse")()
        for one in await asyncio.to_thread(self._inference.repository.index):
            if one.state == "READY" or not request.ready:
                found.models.add(**vars(one))
        return found

    async def _load(self, request: Any, _context: Any) -> Any:
        if request.parameters:
            raise bad_request("a model is loaded as it is stored: files and settings in a request are not accepted")
        await asyncio.to_thread(self._inference.repository.load, request.model_name)
        return message("RepositoryModelLoadResponse")()

    async def _unload(self, request: Any, _context: Any) -> Any:
        await asyncio.to_thread(self._inference.repository.unload, request.model_name)
        return message("RepositoryModelUnloadResponse")()


def _in_time(request: InferRequest, context: Any) -> InferRequest:
    """Limit the timeout of a request to the deadline of its call."""
    left = context.time_remaining()
    if left is None or (request.timeout is not None and request.timeout <= left):
        return request
    return replace(request, timeout=max(left, 0.0))
