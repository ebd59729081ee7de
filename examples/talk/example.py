"""The language model as something to talk to: two graphs, one cache, in the simulator or compiled."""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from examples.figures import Figures, Machine, measured
from examples.talk.tokenizer import Tokenizer, plain

from openinfer import ModelLoader, Plan, Simulator, Synthesizer, load_graph

HERE = Path(__file__).parent
MODEL = HERE / "talk.oinf"
PREFILL, DECODE = load_graph(HERE / "prefill.oig"), load_graph(HERE / "decode.oig")
CONTEXT = 256
"""Tokens that the cache has room for: C of the graphs."""
END = 0
Engine = Literal["simulator", "c"]


def tokenizer_of(model: ModelLoader) -> Tokenizer:
    """The vocabulary that a model carries."""
    text = model.load("pieces.text").to_numpy().tobytes().decode("ascii")
    ends = [int(end) for end in model.load("pieces.ends").to_numpy()]
    return Tokenizer([text[start:end] for start, end in zip([0, *ends], ends, strict=False)])


def plans(model: ModelLoader, device: str = "cpu") -> tuple[Plan, Plan]:
    """The two graphs as C, or as shaders and C."""
    prefill = Synthesizer(device, name="prefill").synthesize(model, PREFILL)
    return prefill, Synthesizer(device, name="decode").synthesize(model, DECODE)


class Talker:
    """Reads text and goes on with it, token by token.

    Both graphs have the same persistent variables: what one saves the other loads. ``token`` is the token that was
    chosen last; it is not in the cache yet.
    """

    def __init__(
        self,
        model: ModelLoader,
        engine: Engine = "c",
        temperature: float = 0.0,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.tokenizer = tokenizer_of(model)
        self.temperature, self.seed = temperature, seed
        self._prefill: Machine
        self._decode: Machine
        if engine == "simulator":
            simulator = Simulator(model, device).with_trace("off")
            self._prefill, self._decode = (simulator.make_executor(graph) for graph in (PREFILL, DECODE))
        else:
            self._prefill, self._decode = (plan.build() for plan in plans(model, device))

    @property
    def room(self) -> int:
        """How many tokens fit in the cache before it is full."""
        return CONTEXT - int(self._decode.fetch("step"))

    def read(self, text: str) -> int:
        """Take in some text after what was there, all of it in one step; the token that comes next."""
        prompt = [int(self._decode.fetch("token")), *self.tokenizer.encode(plain(text))][: self.room]
        self._prefill.load_state(self.save())
        self._prefill.insert(prompt=prompt, temperature=self.temperature, seed=self.seed)
        self._prefill.run_step()
        self.restore(self._prefill.save_state() or b"")
        return int(self._decode.fetch("token"))

    def next(self) -> int:
        """The token that comes after the last one."""
        self._decode.insert(temperature=self.temperature, seed=self.seed)
        self._decode.run_step()
        return int(self._decode.fetch("token"))

    def tokens(self, text: str, count: int) -> Iterator[int]:
        """Read some text and go on with it, until the model ends it, the cache is full, or there are enough tokens."""
        token = self.read(text)
        for left in reversed(range(count)):
            if token == END:
                return
            yield token
            if left == 0 or self.room == 0:
                return
            token = self.next()

    def save(self) -> bytes:
        """The state as bytes: the cache, and where it stands."""
        return self._decode.save_state() or b""

    def restore(self, state: bytes) -> None:
        """Go back to a state."""
        self._decode.load_state(state)


def figures() -> Figures:
    """The row of this example: decoding, one token a step."""
    with ModelLoader.open(MODEL) as model:
        decode = plans(model)[1].project
        streams: list[list[int]] = []
        times: list[float] = []
        engines: tuple[Engine, ...] = ("simulator", "c")
        for engine in engines:
            talker = Talker(model, engine)
            stream = [talker.read("The for statement ")]
            taken = [measured(lambda: stream.append(talker.next())) for _ in range(47)]  # noqa: B023  (called at once)
            streams.append(stream)
            times.append(statistics.median(taken))
    same = sum(one == other for one, other in zip(*streams, strict=True))
    return Figures(
        "decoder, 870 K parameters",
        decode.placed.weights.size,
        decode.placed.arena_bytes,
        times[0],
        times[1],
        f"{same} of {len(streams[0])} tokens",
        streams[0] == streams[1],
    )
