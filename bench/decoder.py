"""A decoder of LLaMA's shape, one token per step: our graph, its weights, and the same model for ONNX Runtime.

Ours keeps keys and values in tables; ONNX Runtime gets those of the earlier tokens as inputs and gives all of them
back, as exporters write it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

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


# --- the same for ONNX Runtime ----------------------------------------------------------------------------------------


class Exported:
    """The decoder in ONNX's ops."""

    def __init__(self, shape: Shape, tensors: dict[str, Array]) -> None:
        self.shape = shape
        self.nodes: list[Any] = []
        self.inputs: list[tuple[str, str, tuple[int, ...]]] = [("token", "INT64", (1, 1)), ("position", "INT64", (1,))]
        self.outputs: list[tuple[str, tuple[int, ...]]] = []
        # Exporters leave matrices as they were trained and transpose them in the graph, which is done once.
        is_matrix = {name: value.ndim == 2 and name != "embed" for name, value in tensors.items()}
        self.constants = {
            name: np.ascontiguousarray(value.T) if is_matrix[name] else value for name, value in tensors.items()
        }
        angles = np.arange(shape.tokens)[:, None] * 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
        self.constants |= {
            "cos": np.cos(np.concatenate([angles, angles], 1)).astype(np.float32),
            "sin": np.sin(np.concatenate([angles, angles], 1)).astype(np.float32),
            "two": np.array(2, np.float32),
            "eps": np.array(1e-5, np.float32),
            "scale": np.array(shape.head**-0.5, np.float32),
            "axis": np.array([-1], np.int64),
            "group_axis": np.array([2], np.int64),
        }

    def node(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        made = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [made], **attributes))
        return made

    def ints(self, *values: int) -> str:
        name = "ints_" + "_".join(map(str, values))
        self.constants[name] = np.array(values, np.int64)
        return name

    def norm(self, x: str, weight: str) -> str:
        mean = self.node("ReduceMean", self.node("Pow", x, "two"), "axis", keepdims=1)
        root = self.node("Sqrt", self.node("Add", mean, "eps"))
        return self.node("Mul", self.node("Div", x, root), weight)

    def rotated(self, x: str, cos: str, sin: str) -> str:
        from onnx import helper

        halves = [f"h{len(self.nodes)}_0", f"h{len(self.nodes)}_1"]
        self.nodes.append(helper.make_node("Split", [x], halves, axis=-1, num_outputs=2))
        turned = self.node("Concat", self.node("Neg", halves[1]), halves[0], axis=-1)
        return self.node("Add", self.node("Mul", x, cos), self.node("Mul", turned, sin))

    def heads(self, x: str, count: int) -> str:
        split = self.node("Reshape", x, self.ints(1, 1, count, self.shape.head))
        return self.node("Transpose", split, perm=[0, 2, 1, 3])

    def remembered(self, what: str, new: str, layer: int) -> str:
        shape = self.shape
        name = f"past_{what}_{layer}"
        self.inputs.append((name, "FLOAT", (1, shape.groups, shape.tokens - 1, shape.head)))
        all_of_it = self.node("Concat", name, new, output=f"present_{what}_{layer}", axis=2)
        self.outputs.append((all_of_it, (1, shape.groups, shape.tokens, shape.head)))
        wide = (1, shape.groups, shape.heads // shape.groups, shape.tokens, shape.head)
        spread = self.node("Expand", self.node("Unsqueeze", all_of_it, "group_axis"), self.ints(*wide))
        return self.node("Reshape", spread, self.ints(1, shape.heads, shape.tokens, shape.head))

    def layer(self, h: str, cos: str, sin: str, number: int) -> str:
        shape, own = self.shape, f"layers.{number}."
        n = self.norm(h, f"{own}norm1")
        query = self.rotated(self.heads(self.node("MatMul", n, f"{own}q"), shape.heads), cos, sin)
        key = self.rotated(self.heads(self.node("MatMul", n, f"{own}k"), shape.groups), cos, sin)
        value = self.heads(self.node("MatMul", n, f"{own}v"), shape.groups)
        keys, values = self.remembered("k", key, number), self.remembered("v", value, number)
        scores = self.node("MatMul", query, self.node("Transpose", keys, perm=[0, 1, 3, 2]))
        mixed = self.node("MatMul", self.node("Softmax", self.node("Mul", scores, "scale"), axis=-1), values)
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.node("Reshape", joined, self.ints(1, 1, shape.heads * shape.head))
        h = self.node("Add", h, self.node("MatMul", joined, f"{own}o"))
        n = self.norm(h, f"{own}norm2")
        gate = self.node("MatMul", n, f"{own}gate")
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        up = self.node("Mul", gate, self.node("MatMul", n, f"{own}up"))
        return self.node("Add", h, self.node("MatMul", up, f"{own}down"))

    def model(self) -> bytes:
        from onnx import TensorProto, helper, numpy_helper

        cos, sin = (self.node("Gather", name, "position") for name in ("cos", "sin"))
        h = self.node("Gather", "embed", "token")
        for number in range(self.shape.layers):
            h = self.layer(h, cos, sin, number)
        logits = self.node("MatMul", self.norm(h, "last"), "head", output="logits")
        outputs = [(logits, (1, 1, self.shape.classes)), *self.outputs]
        constants = [numpy_helper.from_array(np.ascontiguousarray(one), name) for name, one in self.constants.items()]
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            [helper.make_tensor_value_info(name, getattr(TensorProto, kind), of) for name, kind, of in self.inputs],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, of) for name, of in outputs],
            constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        return bytes(made.SerializeToString())


def feeds(shape: Shape, token: int, state: dict[str, Array]) -> dict[str, Array]:
    """The inputs of a step at the last position: past keys and values by layer, head and token."""
    found = {"token": np.array([[token]], np.int64), "position": np.array([shape.tokens - 1], np.int64)}
    for layer in range(shape.layers):
        for name, what in (("K", "k"), ("V", "v")):
            found[f"past_{what}_{layer}"] = np.ascontiguousarray(state[name][layer].transpose(1, 0, 2)[None])
    return found
