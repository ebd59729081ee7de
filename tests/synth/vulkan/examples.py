"""Examples on a Vulkan device give the answers that they give in C: ``python -m tests.synth.vulkan.examples``."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from examples.embeddings.example import LEAST_COSINE, cosines, embedder, embeddings, golden, packed
from examples.talk.example import MODEL, Talker

from openinfer import ModelLoader, Synthesizer

PROMPT = "The for statement "


def talk(device: str, count: int) -> bool:
    """Whether the likeliest tokens are the same."""
    with ModelLoader.open(MODEL) as model:
        streams = [list(Talker(model, device=one).tokens(PROMPT, count)) for one in ("cpu", device)]
    same = sum(one == other for one, other in zip(*streams, strict=True))
    print(f"talk: {same} of {len(streams[0])} tokens are those of C", flush=True)
    return streams[0] == streams[1]


def search(device: str, count: int) -> bool:
    """Whether sentences are as near to PyTorch's vectors as they have to be."""
    rows, wanted = golden()
    with TemporaryDirectory() as folder, packed(Path(folder)) as model:
        module = Synthesizer(device, name="minilm").synthesize(model, embedder("f32")).build()
        near = float(np.min(cosines(embeddings(module, rows[:count]), wanted[:count])))
    print(f"embeddings: the least cosine with PyTorch is {near:.7f}", flush=True)
    return near >= LEAST_COSINE["f32"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="lavapipe")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--sentences", type=int, default=4)
    options = parser.parse_args()
    return int(not all([talk(options.device, options.tokens), search(options.device, options.sentences)]))


if __name__ == "__main__":
    sys.exit(main())
