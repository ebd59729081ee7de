"""``python -m examples.embeddings QUESTION…``: the nearest of 200 sentences, by meaning."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from examples.embeddings.example import (
    LEAST_COSINE,
    cosines,
    embedder,
    embeddings,
    golden,
    packed,
    sentences,
    tokenizer,
)
from examples.embeddings.quantize import model_of
from examples.figures import Machine, measured

from openinfer import DeviceArch, Divide, ModelLoader, Passes, Simulator, Synthesizer

BUILD = Path("build/examples/embeddings")
QUESTIONS = (
    "I can't get into my account",
    "something to cook on a cold day",
    "Why are loans getting more expensive?",
    "creatures with a good memory",
)


def compare(threads: int | None) -> bool:
    """How near each precision is to PyTorch, and how long a sentence takes; whether all are near enough."""
    passes = replace(Passes.preferred(DeviceArch.detect()), divide=Divide(threads))
    rows, wanted = golden()
    is_near = True
    for precision, least in LEAST_COSINE.items():
        model = model_of(BUILD, precision)
        plan = Synthesizer(passes=passes).synthesize(model, embedder(precision))
        machines: dict[str, Machine] = {
            "simulator": Simulator(model).with_trace("off").make_executor(embedder(precision)),
            "C": plan.build(),
        }
        sizes = f"{plan.placed.weights.size / 1e6:.1f} MB of weights, {plan.placed.arena_bytes / 1e6:.1f} MB of arena"
        print(f"{precision}: {sizes}")
        for name, machine in machines.items():
            near = cosines(embeddings(machine, rows), wanted).min()
            is_near &= bool(near >= least)
            times = ", ".join(f"{_milliseconds(machine, count):.1f} ms for {count} tokens" for count in (16, 128))
            print(f"  {name:9} cosine with PyTorch at least {near:.6f} (asked for: {least}); {times}")
    return is_near


def _milliseconds(machine: Machine, count: int) -> float:
    """The shortest of some steps, which other programs disturb least."""
    times = []
    for _ in range(30):
        machine.insert(ids=np.full((1, count), 2000, np.int32), mask=np.ones((1, count), np.bool_))
        times.append(measured(machine.run_step))
    return min(times)


def search(questions: list[str], model: ModelLoader, device: str = "cpu") -> None:
    """The three sentences nearest to each question, found by the compiled graph."""
    module = Synthesizer(device, name="minilm").synthesize(model, embedder("f32")).build()
    encode, known = tokenizer().encode, sentences()
    library = embeddings(module, [encode(sentence).ids for sentence in known])
    for question in questions:
        near = library @ embeddings(module, [encode(question).ids])[0]
        print(f"\n{question}")
        for at in np.argsort(-near)[:3]:
            print(f"  {near[at]:.3f}  {known[at]}")


def main() -> int:
    """Search, or compare."""
    asked = argparse.ArgumentParser(prog="python -m examples.embeddings", description=__doc__)
    asked.add_argument("question", nargs="*", default=QUESTIONS, help="what to look for")
    asked.add_argument("--compare", action="store_true", help="compare precisions with PyTorch, and measure")
    asked.add_argument("--threads", type=int, help="threads of the C code that is compared; else one for each core")
    asked.add_argument("--device", default="cpu", help="where it runs: cpu, vulkan, or a device such as lavapipe")
    given = asked.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    if given.compare:
        return 0 if compare(given.threads) else 1
    search(list(given.question), packed(BUILD), given.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
