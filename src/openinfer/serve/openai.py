"""Language models behind OpenAI's API: /v1/completions, /v1/chat/completions and /v1/models."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from time import monotonic, perf_counter, time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from openinfer.errors import Code, Diagnostic, OpenInferError, ServingError
from openinfer.serve.json_codec import decoded_json
from openinfer.serve.models import Served
from openinfer.serve.problems import bad_request, told
from openinfer.serve.rest import RestProtocol, event_stream, first_of, json_bytes, unless_gone
from openinfer.serve.service import Inference
from openinfer.serve.text import Sampling, TextJob, TextPiece, TextPool, TextRecord
from openinfer.tokenizer import Message
from openinfer.tokenizer.chat import Role

if TYPE_CHECKING:
    from openinfer.serve.telemetry import Telemetry

_UNSUPPORTED = (
    *("n", "best_of", "logprobs", "top_logprobs", "echo", "suffix", "tools", "tool_choice", "functions", "logit_bias"),
    *("response_format", "presence_penalty", "frequency_penalty", "audio", "modalities", "prediction"),
)
"""Unsupported parameters; only their default values are accepted."""
_DEFAULTS = {"n": 1, "best_of": 1, "response_format": {"type": "text"}, "tool_choice": "none", "modalities": ["text"]}
_ROLES: tuple[Role, ...] = ("system", "user", "assistant")
_MOST_STOPS, _LONGEST_STOP = 4, 256
_DEFAULT_TOKENS = 16


@dataclass(frozen=True)
class TextRequest:
    """A request for text."""

    tokens: tuple[int, ...]
    most: int
    sampling: Sampling
    stops: tuple[str, ...]
    is_streamed: bool
    has_usage: bool
    """Whether a stream ends with token counts."""


@dataclass(frozen=True)
class TextForm:
    """The format of answers: a completion, or a message of a conversation."""

    prefix: str
    whole: str
    part: str
    is_chat: bool

    def choice(self, piece: TextPiece, *, is_part: bool, is_first: bool = False) -> dict[str, Any]:
        """The JSON of a piece of an answer, or of a whole one."""
        facts: dict[str, Any] = {"index": 0, "finish_reason": piece.finish, "logprobs": None}
        if not self.is_chat:
            return facts | {"text": piece.text}
        said: dict[str, Any] = {"content": piece.text}
        if is_part:
            return facts | {"delta": {"role": "assistant", **said} if is_first else said}
        return facts | {"message": {"role": "assistant", **said, "refusal": None}}


_COMPLETION = TextForm("cmpl", "text_completion", "text_completion", is_chat=False)
_CHAT = TextForm("chatcmpl", "chat.completion", "chat.completion.chunk", is_chat=True)


class OpenAiProtocol:
    """The endpoints."""

    def __init__(self, inference: Inference, rest: RestProtocol) -> None:
        self._inference = inference
        self._rest = rest

    def routes(self) -> tuple[Route, ...]:
        """The routes of all endpoints."""
        guarded, failed = self._rest.guarded, self._failed
        return (
            Route("/v1/models", guarded(self._models, failed)),
            Route("/v1/models/{model}", guarded(self._model, failed)),
            Route("/v1/completions", guarded(self._completions, failed), methods=["POST"]),
            Route("/v1/chat/completions", guarded(self._chat, failed), methods=["POST"]),
        )

    def _failed(self, error: Exception) -> Response:
        """An error in the format of this API."""
        answer = self._rest.failed(error)
        code = str(error.code) if isinstance(error, OpenInferError) else None
        message = told(error) if isinstance(error, OpenInferError) else "internal error"
        facts = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        return JSONResponse({"error": facts}, answer.status_code)

    async def _models(self, _request: Request) -> Response:
        names = sorted({one.name for one in self._inference.repository.models() if one.text is not None})
        return JSONResponse({"object": "list", "data": [_model_facts(name) for name in names]})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(_model_facts(self._served(request.path_params["model"])[0].name))

    async def _completions(self, request: Request) -> Response:
        facts = decoded_json(await self._rest.body(request))
        served, pool = self._served(facts.get("model"))
        prompt = facts.get("prompt", "")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
            prompt = prompt[0]
        if isinstance(prompt, str):
            pool.require_room([prompt])
            tokens = await asyncio.to_thread(pool.graphs.tokenizer.encode, prompt, is_begin=True)
        else:
            tokens = _given_tokens(prompt, len(pool.graphs.tokenizer.vocabulary.pieces))
        return await self._answer(request, served, pool, _text_request(facts, tokens), _COMPLETION)

    async def _chat(self, request: Request) -> Response:
        facts = decoded_json(await self._rest.body(request))
        served, pool = self._served(facts.get("model"))
        if pool.graphs.form is None:
            raise bad_request(f"the model {served.name!r} was not trained for conversations", "ask /v1/completions")
        messages = _messages(facts.get("messages"))
        pool.require_room(one.text for one in messages)
        tokens = await asyncio.to_thread(pool.graphs.form.encode, pool.graphs.tokenizer, messages)
        bounds = (facts.get(name) for name in ("max_completion_tokens", "max_tokens"))
        facts["max_tokens"] = next((one for one in bounds if one is not None), pool.graphs.context)
        return await self._answer(request, served, pool, _text_request(facts, tokens), _CHAT)

    def _served(self, name: object) -> tuple[Served, TextPool]:
        if not isinstance(name, str):
            raise bad_request("the request names no model")
        served = self._inference.repository.found(name)
        if served.text is None:
            message = f"the model {name!r} does not generate text"
            raise ServingError(Diagnostic(Code.UNKNOWN_MODEL, message, None, "it answers at /v2/models"))
        return served, served.text

    async def _answer(
        self, request: Request, served: Served, pool: TextPool, wanted: TextRequest, form: TextForm
    ) -> Response:
        head = {"id": f"{form.prefix}-{uuid4().hex}", "created": int(time()), "model": served.name}
        record = TextRecord()
        pieces = _pieces(pool, wanted, self._inference.timeout, record)
        answer = _Watched(served, pieces, record, self._inference.telemetry)
        if wanted.is_streamed:
            first = await unless_gone(request, first_of(answer.pieces()))
            return event_stream(_parts(first, answer, head, wanted, form), self._failed)
        said = await unless_gone(request, _all(answer))
        whole = TextPiece("".join(one.text for one in said), said[-1].tokens, said[-1].finish)
        choices = [form.choice(whole, is_part=False)]
        return JSONResponse(head | {"object": form.whole, "choices": choices, "usage": _usage(wanted, whole.tokens)})


class _Watched:
    """Pieces of an answer; records how they end."""

    def __init__(
        self, served: Served, pieces: AsyncIterator[TextPiece], record: TextRecord, telemetry: "Telemetry | None"
    ) -> None:
        self._served, self._start = served, perf_counter()
        self._record, self._telemetry = record, telemetry
        self._pieces = self._noted(pieces)

    def pieces(self) -> AsyncIterator[TextPiece]:
        return self._pieces

    async def _noted(self, pieces: AsyncIterator[TextPiece]) -> AsyncIterator[TextPiece]:
        code = str(Code.INTERRUPTED)
        try:
            async for piece in pieces:
                yield piece
            code = "ok"
        except OpenInferError as error:
            code = str(error.code)
            raise
        finally:
            trace_id = None if self._telemetry is None else self._telemetry.text(self._record, self._served, code)
            self._served.watcher.answered("openai", code, perf_counter() - self._start, trace_id=trace_id)


async def _all(answer: _Watched) -> list[TextPiece]:
    return [piece async for piece in answer.pieces()]


async def _pieces(pool: TextPool, wanted: TextRequest, timeout: float, record: TextRecord) -> AsyncIterator[TextPiece]:
    """The pieces of an answer as they are generated; generation stops once the consumer is gone."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[TextPiece | Exception] = asyncio.Queue()

    def emit(piece: TextPiece | Exception) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, piece)

    job = TextJob(wanted.tokens, wanted.most, wanted.sampling, wanted.stops, monotonic() + timeout, emit, record)
    pool.submit(job)
    try:
        while True:
            piece = await queue.get()
            if isinstance(piece, Exception):
                raise piece
            yield piece
            if piece.finish is not None:
                return
    finally:
        pool.drop(job)


async def _parts(
    first: TextPiece, answer: _Watched, head: Mapping[str, Any], wanted: TextRequest, form: TextForm
) -> AsyncIterator[bytes]:
    """The events of a streamed answer."""
    facts = {**head, "object": form.part}
    count = first.tokens
    yield json_bytes(facts | {"choices": [form.choice(first, is_part=True, is_first=True)]})
    async for piece in answer.pieces():
        count = piece.tokens
        yield json_bytes(facts | {"choices": [form.choice(piece, is_part=True)]})
    if wanted.has_usage:
        yield json_bytes(facts | {"choices": [], "usage": _usage(wanted, count)})
    yield b"[DONE]"


# --- requests ---------------------------------------------------------------------------------------------------------


def _text_request(facts: Mapping[str, Any], tokens: list[int]) -> TextRequest:
    for name in _UNSUPPORTED:
        if facts.get(name) not in (None, 0, False, [], {}, _DEFAULTS.get(name)):
            raise bad_request(f"{name!r} is not implemented", "leave it out")
    usage = facts.get("stream_options") or {}
    stops = facts.get("stop") or ()
    stops = (stops,) if isinstance(stops, str) else stops
    is_fit = isinstance(stops, list | tuple) and len(stops) <= _MOST_STOPS
    if not is_fit or not all(isinstance(one, str) and 0 < len(one) <= _LONGEST_STOP for one in stops):
        raise bad_request(f"stop is a text, or a list of at most {_MOST_STOPS}")
    if not isinstance(usage, dict) or not isinstance(facts.get("stream") or False, bool):
        raise bad_request("stream is true or false, and stream_options an object")
    sampling = Sampling(
        _number(facts, "temperature", 1.0, 2.0), _number(facts, "top_p", 1.0, 1.0), _seed(facts.get("seed"))
    )
    most = facts.get("max_tokens")
    if most is not None and (type(most) is not int or most < 1):
        raise bad_request("max_tokens is a number of at least 1")
    return TextRequest(
        tuple(tokens),
        _DEFAULT_TOKENS if most is None else most,
        sampling,
        tuple(stops),
        bool(facts.get("stream")),
        bool(usage.get("include_usage")),
    )


def _number(facts: Mapping[str, Any], name: str, usual: float, most: float) -> float:
    value = facts.get(name)
    value = usual if value is None else value
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise bad_request(f"{name} is a number from 0 to {most:g}")
    return float(value)


def _seed(value: object) -> int | None:
    if value is not None and (type(value) is not int or not -(1 << 63) <= value < 1 << 63):
        raise bad_request("seed is a number")
    return None if value is None else value % (1 << 64)


def _given_tokens(prompt: object, size: int) -> list[int]:
    is_tokens = isinstance(prompt, list) and all(type(one) is int and 0 <= one < size for one in prompt)
    if not is_tokens or not isinstance(prompt, list):
        raise bad_request("the prompt is a text, or a list of tokens of the model")
    return prompt


def _messages(given: object) -> list[Message]:
    if not isinstance(given, list) or not given:
        raise bad_request("messages is a list of at least one message")
    return [_message(one) for one in given]


def _message(facts: object) -> Message:
    role = facts.get("role") if isinstance(facts, dict) else None
    role = "system" if role == "developer" else role
    content = facts.get("content") if isinstance(facts, dict) else None
    if isinstance(content, list) and all(isinstance(one, dict) and one.get("type") == "text" for one in content):
        texts = [one.get("text") for one in content]
        content = "".join(texts) if all(isinstance(one, str) for one in texts) else None
    known = next((one for one in _ROLES if one == role), None)
    if known is None or not isinstance(content, str):
        raise bad_request("a message has a role (system, user or assistant) and a text as its content")
    return Message(known, content)


def _usage(wanted: TextRequest, said: int) -> dict[str, int]:
    read = len(wanted.tokens)
    return {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}


def _model_facts(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "openinfer"}
