"""A decoder of LLaMA's shape, one token per step: our graph, its weights, and the same model in ONNX's ops.

Ours keeps keys and values in tables; the ONNX model gets those of the earlier tokens as inputs and gives all of them
back, as exporters write it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.models import Model, nbytes
from bench.onnx_writer import Onnx

Array = Any

TEXT = """
sizes {
    G := H / 4;  // four query heads share a key head
    T <= S;      // tokens so far, this one included
}
dynamic { token: i32[1]; }
volatile { logits: f32[1, C]; }
constant {
    embed: f32[C, D];
    last: f32[D];
    head: f32[C, D];
    N1(l): f32[D] @pattern("layers.{l}.norm1");
    Wq(l): f32[H*Dh, D] @pattern("layers.{l}.q");
    Wk(l): f32[G*Dh, D] @pattern("layers.{l}.k");
    Wv(l): f32[G*Dh, D] @pattern("layers.{l}.v");
    Wo(l): f32[D, H*Dh] @pattern("layers.{l}.o");
    N2(l): f32[D] @pattern("layers.{l}.norm2");
    W1(l): f32[F, D] @pattern("layers.{l}.gate");
    W3(l): f32[F, D] @pattern("layers.{l}.up");
    W2(l): f32[D, F] @pattern("layers.{l}.down");
}
persistent {
    step: i32 @init(0);
    K(l, t): f32[G, Dh] @table @fixed(l=L, t=S);
    V(l, t): f32[G, Dh] @table @fixed(l=L, t=S);
}
block entry {
    assign h: f32[1, D];
    assign n: f32[1, D];
    assign q: f32[1, H*Dh];
    assign kv: f32[1, G*Dh];
    assign query: f32[H, 1, Dh];
    assign entry_heads: f32[G, Dh];
    assign past: f32[T, G, Dh];
    assign keys: f32[G, T, Dh];
    assign values: f32[G, T, Dh];
    assign mixed: f32[H, 1, Dh];
    assign joined: f32[1, H*Dh];
    assign gate: f32[1, F];
    assign up: f32[1, F];
    op embedding(embed, token) >> h;
    loop layers (l in 0..L) {
        op rms_norm(h, N1[l]) >> n;
        op linear(n, Wq[l]) >> q;
        op reshape(q, shape=[H, 1, Dh]) >> query;
        op rope(query, step) >> query;
        op linear(n, Wk[l]) >> kv;
        op reshape(kv, shape=[G, Dh]) >> entry_heads;
        op rope(entry_heads, step) >> entry_heads;
        cache.write entry_heads >> K[l, step];
        op linear(n, Wv[l]) >> kv;
        op reshape(kv, shape=[G, Dh]) >> entry_heads;
        cache.write entry_heads >> V[l, step];
        cache.read K[l, 0..step+1] >> past;
        op transpose(past, perm=[1, 0, 2]) >> keys;
        cache.read V[l, 0..step+1] >> past;
        op transpose(past, perm=[1, 0, 2]) >> values;
        op sdpa(query, keys, values) >> mixed;
        op reshape(mixed, shape=[1, H*Dh]) >> joined;
        op linear(joined, Wo[l]) >> n;
        op add(h, n) >> h;
        op rms_norm(h, N2[l]) >> n;
        op linear(n, W1[l]) >> gate;
        op linear(n, W3[l]) >> up;
        op silu(gate) >> gate;
        op mul(gate, up) >> up;
        op linear(up, W2[l]) >> n;
        op add(h, n) >> h;
    }
    op rms_norm(h, last) >> n;
    op linear(n, head) >> logits;
    cache.increment step;
    return logits;
}
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder: layers, width, heads and their width, hidden width, classes, most tokens."""

    layers: int = 8
    width: int = 1024
    heads: int = 16
    head: int = 64
    hidden: int = 2816
    classes: int = 8192
    tokens: int = 512

    @property
    def groups(self) -> int:
        return self.heads // 4

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "L": self.layers,
            "D": self.width,
            "H": self.heads,
            "Dh": self.head,
            "F": self.hidden,
            "C": self.classes,
            "S": self.tokens,
        }


def weights(shape: Shape) -> dict[str, Array]:
    rng = np.random.default_rng(3)

    def matrix(out: int, inner: int) -> Array:
        return rng.standard_normal((out, inner), np.float32) * np.float32(inner**-0.5)

    own, shared = shape.heads * shape.head, shape.groups * shape.head
    found = {
        "embed": rng.standard_normal((shape.classes, shape.width), np.float32),
        "last": np.ones(shape.width, np.float32),
        "head": matrix(shape.classes, shape.width),
    }
    for layer in range(shape.layers):
        found |= {
            f"layers.{layer}.norm1": np.ones(shape.width, np.float32),
            f"layers.{layer}.q": matrix(own, shape.width),
            f"layers.{layer}.k": matrix(shared, shape.width),
            f"layers.{layer}.v": matrix(shared, shape.width),
            f"layers.{layer}.o": matrix(shape.width, own),
            f"layers.{layer}.norm2": np.ones(shape.width, np.float32),
            f"layers.{layer}.gate": matrix(shape.hidden, shape.width),
            f"layers.{layer}.up": matrix(shape.hidden, shape.width),
            f"layers.{layer}.down": matrix(shape.width, shape.hidden),
        }
    return found


def past(shape: Shape) -> dict[str, Array]:
    """Keys and values of all tokens but the last, as our tables hold them: by layer, token and head."""
    rng = np.random.default_rng(4)
    extents = (shape.layers, shape.tokens - 1, shape.groups, shape.head)
    return {name: rng.standard_normal(extents, np.float32) for name in ("K", "V")}


# --- the same in ONNX's ops -------------------------------------------------------------------------------------------


class Exported(Onnx):
    """The decoder in ONNX's ops."""

    def __init__(self, shape: Shape, tensors: dict[str, Array]) -> None:
        super().__init__({name: value for name, value in tensors.items() if not is_matrix(name, value)})
        self.shape = shape
        self.rows = 1
        """Tokens of a step."""
        self.tensors = tensors
        self.outputs: dict[str, tuple[int, ...]] = {}
        angles = np.arange(shape.tokens)[:, None] * 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
        self.constants["cos"] = np.cos(np.concatenate([angles, angles], 1)).astype(np.float32)
        self.constants["sin"] = np.sin(np.concatenate([angles, angles], 1)).astype(np.float32)

    def product(self, x: str, name: str, output: str | None = None) -> str:
        """A vector and a matrix. Exporters transpose matrices in the graph, which is done once."""
        self.constants[name] = self.tensors[name].T
        return self.node("MatMul", x, name, output=output)

    def norm(self, x: str, weight: str) -> str:
        mean = self.node("ReduceMean", self.node("Pow", x, self.number(2.0)), self.ints(-1), keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, self.number(1e-5)))
        return self.node("Mul", self.node("Div", x, root), weight)

    def rotated(self, x: str, cos: str, sin: str) -> str:
        halves = (f"h{len(self.nodes)}_0", f"h{len(self.nodes)}_1")
        self.nodes_of("Split", (x,), halves, axis=-1, num_outputs=2)
        turned = self.node("Concat", self.node("Neg", halves[1]), halves[0], axis=-1)
        return self.node("Add", self.node("Mul", x, cos), self.node("Mul", turned, sin))

    def heads(self, x: str, count: int) -> str:
        split = self.node("Reshape", x, self.ints(1, self.rows, count, self.shape.head))
        return self.node("Transpose", split, perm=[0, 2, 1, 3])

    def remembered(self, what: str, new: str, layer: int) -> str:
        shape = self.shape
        all_of_it = self.node("Concat", f"past_{what}_{layer}", new, output=f"present_{what}_{layer}", axis=2)
        self.outputs[all_of_it] = (1, shape.groups, shape.tokens, shape.head)
        return self.shared(all_of_it)

    def shared(self, all_of_it: str) -> str:
        """Keys or values for every head of the queries."""
        shape = self.shape
        wide = (1, shape.groups, shape.heads // shape.groups, shape.tokens, shape.head)
        spread = self.node("Expand", self.node("Unsqueeze", all_of_it, self.ints(2)), self.ints(*wide))
        return self.node("Reshape", spread, self.ints(1, shape.heads, shape.tokens, shape.head))

    def masked(self, scores: str) -> str:
        """Scores without those of later tokens, of which a step of one token has none."""
        return scores

    def layer(self, h: str, cos: str, sin: str, number: int) -> str:
        shape, own = self.shape, f"layers.{number}."
        n = self.norm(h, f"{own}norm1")
        query = self.rotated(self.heads(self.product(n, f"{own}q"), shape.heads), cos, sin)
        key = self.rotated(self.heads(self.product(n, f"{own}k"), shape.groups), cos, sin)
        value = self.heads(self.product(n, f"{own}v"), shape.groups)
        keys, values = self.remembered("k", key, number), self.remembered("v", value, number)
        scores = self.node("MatMul", query, self.node("Transpose", keys, perm=[0, 1, 3, 2]))
        scaled = self.node("Mul", scores, self.number(shape.head**-0.5))
        mixed = self.node("MatMul", self.node("Softmax", self.masked(scaled), axis=-1), values)
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.node("Reshape", joined, self.ints(1, self.rows, shape.heads * shape.head))
        h = self.node("Add", h, self.product(joined, f"{own}o"))
        n = self.norm(h, f"{own}norm2")
        gate = self.product(n, f"{own}gate")
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        up = self.node("Mul", gate, self.product(n, f"{own}up"))
        return self.node("Add", h, self.product(up, f"{own}down"))

    def decoder(self, inputs: dict[str, Array]) -> bytes:
        cos, sin = (self.node("Gather", name, "position") for name in ("cos", "sin"))
        h = self.node("Gather", "embed", "token")
        for number in range(self.shape.layers):
            h = self.layer(h, cos, sin, number)
        logits = self.product(self.norm(h, "last"), "head", output="logits")
        return self.model(inputs, {logits: (1, 1, self.shape.classes), **self.outputs})


def is_matrix(name: str, value: Array) -> bool:
    """Whether a tensor is one that vectors are multiplied by."""
    return bool(value.ndim == 2 and name != "embed")


def feeds(shape: Shape, token: int, state: dict[str, Array]) -> dict[str, Array]:
    """The inputs of a step at the last position: past keys and values by layer, head and token."""
    found = {"token": np.array([[token]], np.int64), "position": np.array([shape.tokens - 1], np.int64)}
    for layer in range(shape.layers):
        for name, what in (("K", "k"), ("V", "v")):
            found[f"past_{what}_{layer}"] = np.ascontiguousarray(state[name][layer].transpose(1, 0, 2)[None])
    return found


def decoder(shape: Shape) -> Model:
    """The step that makes the last token a context has room for."""
    tensors, state = weights(shape), past(shape)
    given = feeds(shape, 3, state)
    matrices = sum(value.size for name, value in tensors.items() if is_matrix(name, value))
    return Model(
        name=f"decoder d={shape.width}, {shape.layers} layers, token {shape.tokens}",
        text=TEXT,
        tensors=tensors,
        sizes=shape.sizes,
        inputs={"token": np.array([3], np.int32)},
        output="logits",
        onnx=lambda: Exported(shape, tensors).decoder(given),
        multiply_adds=matrices + 2 * shape.layers * shape.heads * shape.head * shape.tokens,
        read_bytes=nbytes(tensors) - tensors["embed"].nbytes + nbytes(state),
        feeds=given,
        plain={"step": np.array(shape.tokens - 1, np.int32)},
        tables=state,
    )
