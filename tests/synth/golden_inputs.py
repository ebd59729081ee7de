"""What the emitted code is watched on: all examples, the benchmark's models, random graphs and random programs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import bench.minilm
import numpy as np
from bench.cpu.cases import ROWS, WIDE
from bench.decoder import Shape, decoder
from bench.decoder_quantized import decoder_int4, decoder_int8
from bench.models import Model, encoder, lstm, mlp, resnet
from bench.of_bytes import mlp_int8
from tests.differential.graphs import random_graph
from tests.differential.programs.judging import model_of
from tests.differential.programs.structures import program_of
from tests.synth.example_models import made_up
from tests.synth.golden_emit import DEVICES, OPTIONS, Choice, Input
from tests.synth.golden_graphs import GRAPHS as WRITTEN

from openinfer import GraphError, ModelLoader, bind, graph, load_graph
from openinfer.oinf import TensorSpec, save_file

EXAMPLES = Path(__file__).parents[2] / "examples"
GRAPHS = 300
PROGRAMS = 100
LATER = ("digits_circuit",)
"""Graphs of examples that came after the list: behind all others, which so keep their devices and options."""


@dataclass(frozen=True)
class Watched:
    """An input by its name, and what it is synthesized for."""

    name: str
    write: Callable[[Path], Input]
    """Makes the input; a model that it needs is written into the folder."""
    choices: tuple[Choice, ...]
    """All that it can be synthesized for in reasonable time and memory."""
    listed: tuple[Choice, ...]
    """What is in the list, and looked at in every test run."""


EVERY = tuple(Choice(device, options) for options in OPTIONS for device in DEVICES)
OF_LARGE = tuple(one for one in EVERY if one.device != "cortex-m4" and one.options != "rollback")
"""Large models do not fit into a small device, nor, as text, into a source file."""


@cache
def watched() -> dict[str, Watched]:
    """Everything that is watched, by name.

    All choices for each would take a quarter of an hour. So each input has others in the list, in turn: over the graphs
    alone, and over examples and written ones alone, every device with every option.
    """
    paths = sorted(path for path in EXAMPLES.glob("**/*.oig") if path.stem not in LATER)
    later = sorted(path for path in EXAMPLES.glob("**/*.oig") if path.stem in LATER)
    makers: list[tuple[str, Callable[[Path], Input], int, tuple[Choice, ...]]] = [
        *((f"example-{path.parent.name}-{path.stem}", partial(_example, path), 3, EVERY) for path in paths),
        *((f"written-{name}", partial(_written, text), 7, EVERY) for name, text in WRITTEN.items()),
        *((f"bench-{name}", partial(_bench, make), 1, OF_LARGE) for name, make in BENCH.items()),
        *((f"graph-{seed:03}", partial(_graph, seed), 1, EVERY) for seed in range(GRAPHS)),
        *((f"program-{seed:03}", partial(_program, seed), 1, EVERY) for seed in range(PROGRAMS)),
        *((f"example-{path.parent.name}-{path.stem}", partial(_example, path), 3, EVERY) for path in later),
    ]
    found, taken = {}, 0
    for name, write, count, choices in makers:
        listed = tuple(choices[(taken + more) % len(choices)] for more in range(count))
        found[name] = Watched(name, write, choices, listed)
        taken += count
    return found


# --- examples ---------------------------------------------------------------------------------------------------------


def _example(path: Path, folder: Path) -> Input:
    """An example with its own model, or zeros where that is to be downloaded."""
    parsed = load_graph(path)
    for own in sorted(path.parent.glob("*.oinf")):
        with ModelLoader.open(own) as model:
            try:
                bind(parsed, model)
            except GraphError:
                continue
        return Input(parsed.to_text(), own, {})
    with made_up(parsed, folder / "model.oinf"):
        return Input(parsed.to_text(), folder / "model.oinf", {})


def _written(text: str, folder: Path) -> Input:
    with made_up(graph(text), folder / "model.oinf"):
        return Input(text, folder / "model.oinf", {})


# --- the benchmark ----------------------------------------------------------------------------------------------------

SHAPE = Shape(layers=1, classes=1024)
WORDS = 1024
"""Layers add no code, and words only rows to a table: one and some make the model small, and its products the same."""
BENCH: Mapping[str, Callable[[], Model]] = {
    "mlp": mlp,
    "mlp-wide": lambda: mlp(WIDE, ROWS),
    "mlp-wide-int8": lambda: mlp_int8(WIDE, ROWS),
    "encoder-16": lambda: encoder(16, 1),
    "encoder-128": lambda: encoder(128, 1),
    "minilm-1x16": lambda: _minilm(1, 16),
    "minilm-1x128": lambda: _minilm(1, 128),
    "minilm-8x128": lambda: _minilm(8, 128),
    "resnet18": resnet,
    "decoder": lambda: decoder(SHAPE),
    "decoder-int8": lambda: decoder_int8(SHAPE),
    "decoder-int4": lambda: decoder_int4(SHAPE),
    "lstm": lstm,
}
"""All but the digits, which are an example."""


def _minilm(batch: int, tokens: int) -> Model:
    shapes = {
        name: shape
        for name, shape in bench.minilm.shapes(bench.minilm.MINILM).items()
        if not re.search(r"layer\.[1-9]", name)
    }
    shapes[bench.minilm.WORD_TABLE] = (WORDS, bench.minilm.MINILM.width)
    found = bench.minilm.minilm(batch, tokens, {name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    return replace(found, sizes={**found.sizes, "V": WORDS}, metadata={**found.metadata, "layers": 1})


def _bench(make: Callable[[], Model], folder: Path) -> Input:
    """A model of the benchmark with zeros for weights: they are much, and decide nothing."""
    found = make()
    zeros = {name: _zeros(one) for name, one in found.tensors.items()}
    with replace(found, tensors=zeros).saved(folder):
        return Input(graph(found.text).to_text(), folder / "model.oinf", found.settled)


def _zeros(one: Any) -> Any:
    return replace(one, values=np.zeros_like(one.values)) if isinstance(one, TensorSpec) else np.zeros_like(one)


# --- random ones ------------------------------------------------------------------------------------------------------


def _graph(seed: int, folder: Path) -> Input:
    """In one of four, tables have no bounds, which devices without a heap refuse; one of three returns everything."""
    made = random_graph(seed, has_heap=seed % 4 == 3)
    save_file(folder / "model.oinf", {name: _rounded(one) for name, one in made.tensors.items()})
    return Input(made.text(made.results if seed % 3 == 0 else made.last), folder / "model.oinf", {})


def _rounded(one: TensorSpec) -> TensorSpec:
    """Numbers of f64 with the digits of f32: how NumPy computes the last ones depends on the processor's vectors."""
    values = np.asarray(one.values)
    with np.errstate(over="ignore"):
        return replace(one, values=values.astype(np.float32).astype(np.float64)) if values.dtype == np.float64 else one


def _program(seed: int, folder: Path) -> Input:
    made = program_of(seed, has_heap=seed % 4 == 3)
    model = model_of(made, folder)
    if model is None:
        return Input(str(made), None, {})
    with model:
        return Input(str(made), folder / f"{seed}.oinf", {})
