"""Text generation: a prefill graph reads the prompt, a decode graph generates the answer token by token.

Both graphs share the same persistent memory. A pool has several such pairs, each with its own thread.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter_ns

import numpy as np

from openinfer.errors import Code, Diagnostic, ServingError
from openinfer.ops import Array
from openinfer.serve.options import RunOptions
from openinfer.serve.problems import bad_request
from openinfer.serve.watching import ModelWatcher
from openinfer.serve.work import closing, deadline_error, join_all, queue_full
from openinfer.synth.run.module import CompiledModule
from openinfer.tokenizer import ChatFormat, TextStream, Tokenizer


@dataclass(frozen=True)
class Sampling:
    """How tokens are sampled: the likeliest at temperature 0, else drawn from those that make up ``top_p``."""

    temperature: float = 0.7
    top_p: float = 0.9
    seed: int | None = None


@dataclass(frozen=True)
class TextPiece:
    """A piece of an answer; the last one has the finish reason."""

    text: str
    tokens: int
    finish: str | None = None


@dataclass
class TextRecord:
    """The history of an answer, for the spans of its request. Times are those of ``perf_counter_ns``."""

    arrived: int = field(default_factory=perf_counter_ns)
    began: int | None = None
    read: int | None = None
    """When the prompt had been read."""
    ended: int | None = None
    tokens_read: int = 0
    tokens_said: int = 0


@dataclass
class TextJob:
    """An answer that a client waits for. ``emit`` is called in a thread of the pool, with pieces or an error."""

    tokens: Sequence[int]
    most: int
    sampling: Sampling
    stops: tuple[str, ...]
    deadline: float
    emit: Callable[[TextPiece | Exception], None]
    record: TextRecord
    is_dropped: bool = False


@dataclass(frozen=True)
class TextGraphs:
    """The two graphs of a language model as compiled modules, and its tokenizer."""

    prefill: CompiledModule
    decode: CompiledModule
    tokenizer: Tokenizer
    form: ChatFormat | None
    """The format of conversations; None if the model was not trained for them."""

    @property
    def context(self) -> int:
        """The number of tokens that the tables have room for."""
        tables = [one for one in self.decode.bound.vars.values() if one.is_table and one.fixed]
        return min((list(one.fixed.values())[-1] for one in tables), default=1 << 30)

    @property
    def most_bytes(self) -> int:
        """The longest text in bytes; any longer one has more tokens than the tables have room for."""
        return self.context * max(map(len, self.tokenizer.vocabulary.pieces), default=1)

    @property
    def chunk(self) -> int:
        """The number of prompt tokens read in one step."""
        (variable,) = (one for one in self.prefill.bound.vars.values() if one.name == _only_input(self.prefill))
        return int(variable.shape[0])

    def another(self) -> "TextGraphs":
        """Another pair, with its own state."""
        decode = self.decode.another()
        return TextGraphs(self.prefill.another(state_of=decode), decode, self.tokenizer, self.form)


def text_graphs(
    prefill: CompiledModule, decode: CompiledModule, tokenizer: Tokenizer, form: ChatFormat | None
) -> TextGraphs:
    """Check the prefill and the decode graph of a model, and let them share one state."""
    size = len(tokenizer.vocabulary.pieces)
    for module, rank in ((prefill, 1), (decode, 0)):
        name, outputs = _only_input(module), module.bound.output_names
        variable = module.bound.vars[name]
        is_fit = variable.dtype.kind == "int" and len(variable.shape) == rank and len(outputs) == 1
        if not is_fit or tuple(map(int, module.bound.vars[outputs[0]].shape)) != (size,):
            message = f"a graph of tokens has one input of tokens and one output, the logits of {size} tokens"
            raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message))
    return TextGraphs(prefill.another(state_of=decode), decode, tokenizer, form)


def _only_input(module: CompiledModule) -> str:
    names = module.input_names
    if len(names) != 1:
        message = f"a graph of tokens has one input, not {len(names)}"
        raise ServingError(Diagnostic(Code.BAD_SERVE_OPTION, message))
    return names[0]


class TextPool:
    """Generates answers of one language model, several at a time."""

    def __init__(self, graphs: TextGraphs, options: RunOptions, watcher: ModelWatcher) -> None:
        self.graphs = graphs
        self._most = options.max_queue
        self._watcher = watcher
        self._jobs: list[TextJob] = []
        self._changed = threading.Condition()
        self._is_closed = False
        pairs = [graphs, *(graphs.another() for _ in range(options.instances - 1))]
        self._threads = [
            threading.Thread(target=self._work, args=(one,), name=f"text-{number}", daemon=True)
            for number, one in enumerate(pairs)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: TextJob) -> None:
        """Queue an answer."""
        if not job.tokens:
            raise bad_request("the prompt has no tokens")
        if len(job.tokens) >= self.graphs.context:
            raise self._too_long(f"{len(job.tokens)} tokens")
        with self._changed:
            if self._is_closed:
                raise closing()
            if len(self._jobs) >= self._most:
                raise queue_full(self._most)
            self._jobs.append(job)
            self._changed.notify()

    def require_room(self, texts: Iterable[str]) -> None:
        """Refuse texts that are too long for any tokenization, before they are tokenized."""
        size = sum(len(one.encode(errors="surrogatepass")) for one in texts)
        if size > self.graphs.most_bytes:
            raise self._too_long(f"{size:,} bytes")

    def _too_long(self, size: str) -> ServingError:
        message = f"the prompt has {size}, and the model has room for {self.graphs.context} tokens"
        return bad_request(message, "make the prompt or the conversation shorter")

    def drop(self, job: TextJob) -> None:
        """Cancel an answer whose client no longer waits; it ends at its next token."""
        job.is_dropped = True
        with self._changed, suppress(ValueError):
            self._jobs.remove(job)

    def close(self) -> None:
        """Finish waiting and running answers, then stop."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        join_all(self._threads)

    def _take(self) -> TextJob | None:
        with self._changed:
            while not self._jobs and not self._is_closed:
                self._changed.wait()
            return self._jobs.pop(0) if self._jobs else None

    def _work(self, graphs: TextGraphs) -> None:
        while (job := self._take()) is not None:
            try:
                if not job.is_dropped:
                    self._answer(graphs, job)
            except Exception as error:  # noqa: BLE001  (an uncaught error would end the thread and lose its pair)
                job.emit(error)

    def _answer(self, graphs: TextGraphs, job: TextJob) -> None:
        record = job.record
        record.began, record.tokens_read = perf_counter_ns(), len(job.tokens)
        logits = _read(graphs, job)
        record.read = perf_counter_ns()
        self._watcher.tokens("read", len(job.tokens))
        answer = _Answer(graphs.tokenizer, job)
        most = min(job.most, graphs.context - len(job.tokens))
        random = np.random.default_rng(job.sampling.seed)
        name = _only_input(graphs.decode)
        while not job.is_dropped:
            token = chosen(logits, job.sampling, random)
            if answer.add(token, most):
                break
            _require_time(job)
            logits = np.asarray(graphs.decode({name: np.int64(token)}))
        self._watcher.tokens("said", answer.count)


def _read(graphs: TextGraphs, job: TextJob) -> Array:
    """Reset the memory, read a prompt, and return the logits after it."""
    graphs.decode.reset()
    name, logits = _only_input(graphs.prefill), np.zeros(0)
    for start in range(0, len(job.tokens), graphs.chunk):
        _require_time(job)
        logits = np.asarray(graphs.prefill({name: np.array(job.tokens[start : start + graphs.chunk], np.int64)}))
    return logits


def _require_time(job: TextJob) -> None:
    if monotonic() >= job.deadline:
        raise deadline_error()


@dataclass
class _Answer:
    """An answer in progress: emits whole characters, but holds back text that may begin a stop sequence."""

    tokenizer: Tokenizer
    job: TextJob
    count: int = 0
    _stream: TextStream = field(default_factory=TextStream)
    _held: str = ""

    def add(self, token: int, most: int) -> bool:
        """Add a token; returns whether it is the last."""
        is_end = token in self.tokenizer.vocabulary.ends
        self.count += 1
        self.job.record.tokens_said, self.job.record.ended = self.count, perf_counter_ns()
        self._held += self._stream.finish() if is_end else self._stream.feed(self.tokenizer.piece(token))
        places = [at for at in (self._held.find(stop) for stop in self.job.stops) if at >= 0]
        if places:
            self._end(self._held[: min(places)], "stop")
        elif is_end:
            self._end(self._held, "stop")
        elif self.count >= most:
            self._end(self._held + self._stream.finish(), "length")
        else:
            cut = len(self._held) - _beginning(self._held, self.job.stops)
            if cut:
                self.job.emit(TextPiece(self._held[:cut], self.count))
                self._held = self._held[cut:]
            return False
        return True

    def _end(self, text: str, reason: str) -> None:
        self.job.emit(TextPiece(text, self.count, reason))


def _beginning(text: str, stops: tuple[str, ...]) -> int:
    """The length of the longest suffix that may begin a stop sequence."""
    lengths = (
        size for stop in stops for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])
    )
    return max(lengths, default=0)


def chosen(logits: Array, sampling: Sampling, random: np.random.Generator) -> int:
    """Sample the next token.

    >>> chosen(np.array([0.0, 2.0, 1.0]), Sampling(temperature=0.0), np.random.default_rng(0))
    1
    """
    if sampling.temperature <= 0:
        return int(np.argmax(logits))
    with np.errstate(over="ignore"):  # at a low temperature, only the likeliest token remains
        scaled = (logits.astype(np.float64) - float(logits.max())) / sampling.temperature
    order = np.argsort(-scaled, kind="stable")
    weights = np.exp(scaled[order])
    total = np.cumsum(weights)
    kept = int(np.searchsorted(total, sampling.top_p * total[-1])) + 1
    at = np.searchsorted(total[:kept], random.random() * total[min(kept, total.size) - 1], side="right")
    return int(order[min(int(at), total.size - 1)])
