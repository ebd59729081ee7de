"""Whole models on a GPU: ``python -m tests.synth.vulkan.models``.

The examples and the models of the benchmark take some steps in the simulator and on the device, and everything they
return is compared: integers must be equal, floats may differ by a ten-thousandth of what they are.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from bench.decoder import Shape, decoder
from bench.minilm import minilm
from bench.models import Model, lstm, resnet
from examples.digits.example import STEMS, held_out, network
from examples.experts.example import KINDS, mixture, waves
from examples.experts.example import write_model as write_experts
from examples.guard.example import guarded, readings
from examples.guard.example import write_model as write_guard
from examples.online.example import canceller, signals
from examples.online.example import write_model as write_online
from examples.talk.example import DECODE, MODEL, PREFILL
from examples.tones.example import chunks, listener, trained
from examples.tones.signals import Line, dialled
from tests.synth.vulkan.on_device import on_lavapipe

from openinfer import CompiledModule, Executor, Graph, ModelLoader, Simulator, Synthesizer, graph
from openinfer.cli.compiled import difference
from openinfer.synth.plan import Plan

TOLERANCE = 1e-4
Inputs = Mapping[str, Any]
Machine = Executor | CompiledModule


@dataclass(frozen=True)
class Part:
    """A graph of a model, and the inputs of steps that it takes one after the other."""

    graph: Graph
    steps: Sequence[Inputs]


@dataclass(frozen=True)
class Run:
    """What is run: graphs that take over each other's state, and what is done before every step."""

    model: ModelLoader
    parts: Sequence[Part]
    begin: Callable[[Machine], None] = lambda _: None


@dataclass(frozen=True)
class Found:
    """What became of a model."""

    name: str
    steps: int
    values: int
    """Numbers that were compared."""
    largest: float | None
    """How far two of them were apart; None where one is no number."""
    agrees: bool
    build_s: float
    step_ms: float
    """The median of a step on the device, inputs and outputs included."""
    shaders: int


@contextmanager
def _written(write: Callable[[Path], None]) -> Iterator[ModelLoader]:
    """A model that a function writes."""
    with TemporaryDirectory() as folder:
        write(Path(folder) / "model.oinf")
        with ModelLoader.open(Path(folder) / "model.oinf") as model:
            yield model


@contextmanager
def digits(stem: str) -> Iterator[Run]:
    g, model = network("i8" if stem == STEMS["i8"] else "f32")
    with model:
        yield Run(model, [Part(g, [{"image": image[None]} for image in held_out()[0][:12]])])


@contextmanager
def experts() -> Iterator[Run]:
    rng = np.random.default_rng(9)
    with _written(write_experts) as model:
        yield Run(model, [Part(mixture(), [{"x": waves(KINDS[step % 3], 1, rng)[1][0]} for step in range(9)])])


@contextmanager
def guard() -> Iterator[Run]:
    with _written(write_guard) as model:
        yield Run(model, [Part(guarded(), [{"reading": one} for one in readings()[1][:32]])])


@contextmanager
def online() -> Iterator[Run]:
    pairs = list(zip(*signals(), strict=True))[:40]
    with _written(write_online) as model:
        yield Run(model, [Part(canceller(), [{"loudspeaker": one, "microphone": other} for one, other in pairs])])


@contextmanager
def talk() -> Iterator[Run]:
    """A prompt in one program, then tokens in the other, and again: both have the same state."""
    chosen = {"temperature": np.float32(0), "seed": np.int32(0)}
    prompt = {"prompt": np.arange(1, 8, dtype=np.int32), **chosen}
    with ModelLoader.open(MODEL) as model:
        yield Run(model, [Part(one, steps) for one, steps in ((PREFILL, [prompt]), (DECODE, [chosen] * 6)) * 2])


@contextmanager
def tones() -> Iterator[Run]:
    samples, _ = dialled("01", Line(snr_db=10), np.random.default_rng(5))
    with trained() as model:
        yield Run(model, [Part(listener(), [{"samples": one} for one in chunks(samples)[:24]])])


@contextmanager
def embeddings() -> Iterator[Run]:
    """Sentences of different lengths: sizes below their bounds."""
    made = minilm(1, 16)
    rng = np.random.default_rng(3)
    lengths = (16, 5, 1, 9)
    steps = []
    for count in lengths:
        ids = rng.integers(1000, 30000, (1, count)).astype(np.int32)
        steps.append({"ids": ids, "mask": np.arange(count)[None] < max(1, count - 2)})
    with TemporaryDirectory() as folder, made.saved(Path(folder)) as model:
        yield Run(model, [Part(graph(made.text), steps)])


@contextmanager
def bench(build: Callable[[], Model], count: int = 3) -> Iterator[Run]:
    """A model of the benchmark, each step from the state that it has there."""
    made = build()
    rng = np.random.default_rng(11)

    def next_inputs(step: int) -> Inputs:
        def moved(value: Any) -> Any:
            array = np.asarray(value)
            other = rng.normal(size=array.shape) if array.dtype.kind == "f" else rng.permutation(array.ravel() + step)
            return other.reshape(array.shape).astype(array.dtype) if step and array.dtype.kind != "b" else value

        return {name: moved(value) for name, value in made.inputs.items()}

    with TemporaryDirectory() as folder, made.saved(Path(folder)) as model:
        yield Run(model, [Part(graph(made.text), [next_inputs(step) for step in range(count)])], made.begin)


SMALL_DECODER = Shape(layers=2, width=256, heads=8, head=32, hidden=704, classes=1000, tokens=64)
MODELS: dict[str, Callable[[], Any]] = {
    "digits": lambda: digits(STEMS["f32"]),
    "digits-i8": lambda: digits(STEMS["i8"]),
    "embeddings": embeddings,
    "experts": experts,
    "guard": guard,
    "online": online,
    "talk": talk,
    "tones": tones,
    "minilm": lambda: bench(lambda: minilm(1, 64)),
    "decoder-small": lambda: bench(lambda: decoder(SMALL_DECODER)),
    "decoder": lambda: bench(lambda: decoder(Shape()), 2),
    "resnet18": lambda: bench(resnet, 2),
    "lstm": lambda: bench(lstm),
}


@dataclass
class _Pair:
    """A graph in the simulator and on the device."""

    plan: Plan
    executor: Executor
    module: CompiledModule

    @property
    def both(self) -> tuple[Machine, Machine]:
        return self.executor, self.module

    def take_over(self, other: "_Pair") -> None:
        """The state that other machines have."""
        for mine, theirs in zip(self.both, other.both, strict=True):
            mine.load_state(theirs.save_state() or b"")

    def step(self) -> float:
        """Take a step on both; how long the device took."""
        self.executor.run_step()
        start = perf_counter()
        self.module.run_step()
        return perf_counter() - start

    def differences(self) -> list[dict[str, Any]]:
        """Of everything the graph returns."""
        names = self.plan.project.program.outputs
        return [difference(self.executor.fetch(name), self.module.fetch(name), TOLERANCE) for name in names]

    def values(self) -> int:
        return sum(self.executor.fetch(name).size for name in self.plan.project.program.outputs)

    def shaders(self) -> int:
        return len(self.plan.project.kernels.used) + 2  # two are in every project


def run(name: str, device: str) -> Found:
    """A model in the simulator and on the device."""
    with MODELS[name]() as made:
        simulator, synthesizer = Simulator(made.model).with_trace("off"), Synthesizer(device, name="model")
        pairs: dict[int, _Pair] = {}
        build_s = 0.0
        for one in {id(part.graph): part.graph for part in made.parts}.values():
            plan = synthesizer.synthesize(made.model, one)
            start = perf_counter()
            pairs[id(one)] = _Pair(plan, simulator.make_executor(one), plan.build())
            build_s += perf_counter() - start
        found: list[dict[str, Any]] = []
        times: list[float] = []
        values, before = 0, pairs[id(made.parts[0].graph)]
        for part in made.parts:
            pair = pairs[id(part.graph)]
            if pair is not before:
                pair.take_over(before)
            for inputs in part.steps:
                for machine in pair.both:
                    made.begin(machine)
                    machine.insert(inputs)
                times.append(pair.step())
                found += pair.differences()
                values += pair.values()
            before = pair
        gaps = [one["largest"] for one in found]
        return Found(
            name,
            len(times),
            values,
            None if None in gaps else float(max(gaps)),
            all(one["ok"] for one in found),
            round(build_s, 1),
            round(float(np.median(times)) * 1e3, 3),
            sum(pair.shaders() for pair in pairs.values()),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*MODELS], metavar="NAME", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--device", default="lavapipe", help="a device file, or the name of a shipped one")
    options = parser.parse_args()
    os.environ.update(on_lavapipe() if options.device == "lavapipe" else {})
    bad = 0
    for name in options.names:
        one = run(name, options.device)
        bad += not one.agrees
        print(asdict(one), flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
