"""Embeddings are those of PyTorch in the simulator and in C, with 32, 8 and 4 bits; search finds by meaning."""

from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from examples.embeddings.example import (
    LEAST_COSINE,
    Precision,
    Vectors,
    cosines,
    embedder,
    embeddings,
    golden,
    golden_sentences,
    packed,
    sentences,
    tokenizer,
)
from examples.embeddings.quantize import GROUP, bits_of, meant, model_of, quantized, stored

from openinfer import ModelLoader, Simulator, Synthesizer
from openinfer.synth.run.module import CompiledModule

ROWS, WANTED = golden()
KNOWN = [*sentences()[50:90], *sentences()[160:170]]
"""A part of the sentences: embedding all of them would take seconds."""
SHORT = (
    "Thanks a lot",
    "Hi there!",
    "you are wrong",
    "Why?",
    "I adore you",
    "fair enough",
    "red",
    "http://example.com",
)
"""What rounding the weights changes most. None of them is among those that they are fitted to."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("minilm")


@pytest.fixture(scope="module")
def model(folder: Path) -> ModelLoader:
    return packed(folder)


@pytest.fixture(scope="module")
def module(model: ModelLoader) -> CompiledModule:
    return Synthesizer().synthesize(model, embedder("f32")).build()


@pytest.fixture(scope="module")
def library(module: CompiledModule) -> Vectors:
    encode = tokenizer().encode
    return embeddings(module, [encode(sentence).ids for sentence in KNOWN])


def test_tokens_are_those_of_the_reference() -> None:
    encode = tokenizer().encode
    assert [encode(sentence).ids for sentence in golden_sentences()] == ROWS


def _weights_by_bits(model: ModelLoader, precision: Precision) -> Counter[int]:
    """How many weights of the layers are stored in so many bits."""
    counts: Counter[int] = Counter()
    for name, info in model.tensors.items():
        if name.startswith("encoder") and info.quant:
            assert info.dtype.bits == bits_of(name, precision)
            counts[info.dtype.bits] += prod(info.shape)
    return counts


def test_embeddings_agree_with_the_original(folder: Path, module: CompiledModule) -> None:
    """In f32; weights of 8 and 4 bits, which take long to fit, are looked at by ``make test-models``."""
    require_agreement("f32", folder, module)


def require_agreement(precision: Precision, folder: Path, module: CompiledModule) -> None:
    short = [tokenizer().encode(text).ids for text in SHORT]
    with model_of(folder, precision) as model:
        simulator = Simulator(model).with_trace("off").make_executor(embedder(precision))
        compiled = Synthesizer().synthesize(model, embedder(precision)).build()
        found = embeddings(simulator, ROWS), embeddings(compiled, ROWS)
        shorts = embeddings(compiled, short)
        counts = _weights_by_bits(model, precision)
    assert np.abs(found[0] - found[1]).max() < 1e-5
    for vectors in found:
        assert cosines(vectors, WANTED).min() >= LEAST_COSINE[precision]
    assert cosines(shorts, embeddings(module, short)).min() >= LEAST_COSINE[precision]
    assert sorted(counts) == {"f32": [], "u8": [8], "u4": [4, 8]}[precision]
    assert len(set(counts.values())) <= 1, "half of the weights have four bits"


def test_padding_in_a_batch_changes_nothing(model: ModelLoader) -> None:
    """Short and long sentences together, each as it is alone."""
    together = Simulator(model, sizes={"B": 5}).with_trace("off").make_executor(embedder("f32"))
    compiled = Synthesizer().synthesize(model, embedder("f32"), sizes={"B": 5}).build()
    for machine in (together, compiled):
        assert cosines(embeddings(machine, ROWS, batch_size=5), WANTED).min() >= LEAST_COSINE["f32"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("I can't get into my account", "I cannot log in because I forgot my password."),
        ("Why did the two threads hang?", "Two threads waited for each other's lock and the program hung."),
        ("animals that remember", "Elephants remember waterholes they visited decades ago."),
        ("pizza in mathematics lessons", "She explained fractions with slices of pizza."),
    ],
)
def test_search_finds_by_meaning(question: str, answer: str, module: CompiledModule, library: Vectors) -> None:
    asked = embeddings(module, [tokenizer().encode(question).ids])[0]
    assert KNOWN[int(np.argmax(library @ asked))] == answer


def test_there_are_200_sentences_none_of_them_twice() -> None:
    assert len(set(sentences())) == 200


@pytest.mark.parametrize("bits", [4, 8])
def test_what_a_column_loses_the_others_make_up_for(bits: int) -> None:
    """With inputs that depend on each other, outputs are nearer than after rounding each weight to the nearest."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(24, 2 * GROUP))
    inputs = rng.normal(size=(400, 8)) @ rng.normal(size=(8, 2 * GROUP)) + 0.1 * rng.normal(size=(400, 2 * GROUP))
    made = quantized(weights, inputs.T @ inputs / len(inputs), bits)
    codes, most = np.asarray(made.values), (1 << bits) - 1
    assert made.quant is not None
    assert made.quant.zero_point is not None
    scale, zero = (each.values[:, None].astype(np.float64) for each in (made.quant.scale, made.quant.zero_point))
    nearest = (stored(weights.reshape(codes.shape), scale, zero, most) - zero) * scale

    def loss(kept: npt.NDArray[Any]) -> float:
        return float(np.sqrt(np.mean((inputs @ (kept.reshape(weights.shape) - weights).T) ** 2)))

    assert codes.min() >= 0
    assert codes.max() <= most
    assert loss(meant(made, weights.shape)) < 0.6 * loss(nearest)
