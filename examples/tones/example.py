"""Decoding telephone keys: the graph, and listening to a stream chunk by chunk."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from examples.figures import Figures, Machine, side_by_side
from examples.tones.signals import CHUNK, KEYS, Line, Samples, dialled

from openinfer import Graph, ModelLoader, load_graph

HERE = Path(__file__).parent


def listener() -> Graph:
    """The graph."""
    return load_graph(HERE / "tones.oig")


def trained() -> ModelLoader:
    """The model that ``train.py`` wrote."""
    return ModelLoader.open(HERE / "tones.oinf")


def chunks(samples: Samples) -> list[Samples]:
    """Samples in memory, as the chunks of a stream."""
    filled = np.pad(samples, (0, -len(samples) % CHUNK))
    return list(filled.reshape(-1, CHUNK))


def heard(machine: Machine, stream: Iterable[Samples]) -> str:
    """The keys that a machine hears in a stream, from silence on."""
    machine.reset()
    keys = ""
    for chunk in stream:
        machine.insert(samples=chunk)
        machine.run_step()
        pressed = int(machine.fetch("pressed"))
        keys += KEYS[pressed] if pressed >= 0 else ""
    return keys


def figures() -> Figures:
    """The row of this example."""
    samples, _ = dialled("0123456789", Line(snr_db=10), np.random.default_rng(5))
    with trained() as model:
        steps = [{"samples": chunk} for chunk in chunks(samples)]
        return side_by_side("DTMF decoder, a GRU of 24", listener(), model, steps)
