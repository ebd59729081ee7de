"""ViT-tiny: an image in patches of 16 x 16, a token for the class beside them, and twelve layers; random weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.models import Model, nbytes
from bench.onnx_writer import Onnx

Array = Any
CLASSES, PATCH, EPS = 1000, 16, 1e-6
TEXT = """
sizes { D := H*Dh; T := S*S + 1; F := 4*D; }
dynamic { x: f32[1, 3, 16*S, 16*S]; }
volatile { logits: f32[1, C]; }
constant {
    patch: f32[D, 3, 16, 16]; patch_bias: f32[D]; first: f32[1, D]; places: f32[T, D];
    gamma: f32[D]; beta: f32[D]; head: f32[C, D]; head_bias: f32[C];
    G1(l): f32[D] @pattern("{l}.norm1.gamma");
    B1(l): f32[D] @pattern("{l}.norm1.beta");
    Wqkv(l): f32[3*D, D] @pattern("{l}.qkv");
    bqkv(l): f32[3*D] @pattern("{l}.qkv.bias");
    Wo(l): f32[D, D] @pattern("{l}.out");
    bo(l): f32[D] @pattern("{l}.out.bias");
    G2(l): f32[D] @pattern("{l}.norm2.gamma");
    B2(l): f32[D] @pattern("{l}.norm2.beta");
    Wup(l): f32[F, D] @pattern("{l}.up");
    bup(l): f32[F] @pattern("{l}.up.bias");
    Wdown(l): f32[D, F] @pattern("{l}.down");
    bdown(l): f32[D] @pattern("{l}.down.bias");
}
block entry {
    assign image: f32[1, D, S, S];
    assign columns: f32[D, S*S];
    assign patches: f32[S*S, D];
    assign h: f32[T, D];
    assign n: f32[T, D];
    assign all: f32[T, 3*D];
    assign parts: f32[T, 3, H, Dh];
    assign heads: f32[3, H, T, Dh];
    assign one: f32[1, H, T, Dh];
    assign q: f32[H, T, Dh];
    assign k: f32[H, T, Dh];
    assign v: f32[H, T, Dh];
    assign rows: f32[T, H, Dh];
    assign wide: f32[T, F];
    assign top: f32[1, D];
    op conv2d(x, patch, patch_bias, strides=[16]) >> image;
    op reshape(image, shape=[D, S*S]) >> columns;
    op transpose(columns, perm=[1, 0]) >> patches;
    op concat(first, patches, axis=0) >> h;
    op add(h, places) >> h;
    loop layers (l in 0..L) {
        op layer_norm(h, G1[l], B1[l], eps=0.000001) >> n;
        op linear(n, Wqkv[l], bqkv[l]) >> all;
        op reshape(all, shape=[T, 3, H, Dh]) >> parts;
        op transpose(parts, perm=[1, 2, 0, 3]) >> heads;
        op slice(heads, starts=[0], ends=[1], axes=[0]) >> one;
        op reshape(one, shape=[H, T, Dh]) >> q;
        op slice(heads, starts=[1], ends=[2], axes=[0]) >> one;
        op reshape(one, shape=[H, T, Dh]) >> k;
        op slice(heads, starts=[2], ends=[3], axes=[0]) >> one;
        op reshape(one, shape=[H, T, Dh]) >> v;
        op sdpa(q, k, v) >> q;
        op transpose(q, perm=[1, 0, 2]) >> rows;
        op reshape(rows, shape=[T, D]) >> n;
        op linear(n, Wo[l], bo[l]) >> n;
        op add(h, n) >> h;
        op layer_norm(h, G2[l], B2[l], eps=0.000001) >> n;
        op linear(n, Wup[l], bup[l]) >> wide;
        op gelu(wide) >> wide;
        op linear(wide, Wdown[l], bdown[l]) >> n;
        op add(h, n) >> h;
    }
    op slice(h, starts=[0], ends=[1], axes=[0]) >> top;
    op layer_norm(top, gamma, beta, eps=0.000001) >> top;
    op linear(top, head, head_bias) >> logits;
    return logits;
}
"""


@dataclass(frozen=True)
class Vit:
    """The shapes: layers, heads and their width, patches along a side."""

    layers: int = 12
    heads: int = 3
    head: int = 64
    side: int = 14

    @property
    def width(self) -> int:
        return self.heads * self.head

    @property
    def tokens(self) -> int:
        return self.side**2 + 1

    def weights(self) -> dict[str, Array]:
        rng, width = np.random.default_rng(10), self.width
        shapes: dict[str, tuple[int, ...]] = {
            "patch": (width, 3, PATCH, PATCH),
            "first": (1, width),
            "places": (self.tokens, width),
            "head": (CLASSES, width),
        }
        for layer in range(self.layers):
            shapes |= {f"{layer}.qkv": (3 * width, width), f"{layer}.out": (width, width)}
            shapes |= {f"{layer}.up": (4 * width, width), f"{layer}.down": (width, 4 * width)}
        biases = {"patch_bias": width, "head_bias": CLASSES, "beta": width}
        biases |= {f"{name}.bias": shape[0] for name, shape in shapes.items() if "." in name}
        norms = [f"{layer}.norm{number}" for layer in range(self.layers) for number in (1, 2)]
        biases |= {f"{name}.beta": width for name in norms}
        found = {name: rng.normal(0, shape[-1] ** -0.5, shape) for name, shape in shapes.items()}
        found |= {name: rng.normal(0, 0.1, count) for name, count in biases.items()}
        found |= {name: rng.normal(1, 0.1, width) for name in ("gamma", *(f"{one}.gamma" for one in norms))}
        found["patch"] /= PATCH
        return {name: value.astype(np.float32) for name, value in found.items()}


class Exported(Onnx):
    """The model in ONNX's ops; matrices are as exporters store them, inputs by outputs."""

    def __init__(self, vit: Vit, tensors: dict[str, Array]) -> None:
        super().__init__({name: value.T if is_matrix(name, value) else value for name, value in tensors.items()})
        self.vit = vit

    def norm(self, x: str, name: str) -> str:
        gamma, beta = (f"{name}.{part}" if name else part for part in ("gamma", "beta"))
        return self.node("LayerNormalization", x, gamma, beta, epsilon=EPS)

    def heads(self, parts: str, number: int) -> str:
        """Query, key or value of all heads."""
        vit = self.vit
        one = self.node("Slice", parts, self.ints(number), self.ints(number + 1), self.ints(0))
        return self.node("Reshape", one, self.ints(1, vit.heads, vit.tokens, vit.head))

    def layer(self, h: str, own: str) -> str:
        vit = self.vit
        n = self.linear(self.norm(h, f"{own}.norm1"), f"{own}.qkv", f"{own}.qkv.bias")
        parts = self.node("Reshape", n, self.ints(vit.tokens, 3, vit.heads, vit.head))
        parts = self.node("Transpose", parts, perm=[1, 2, 0, 3])
        q, k, v = (self.heads(parts, number) for number in range(3))
        scores = self.node("MatMul", q, self.node("Transpose", k, perm=[0, 1, 3, 2]))
        p = self.node("Softmax", self.node("Mul", scores, self.number(vit.head**-0.5)), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", p, v), perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.ints(1, vit.tokens, vit.width))
        h = self.node("Add", h, self.linear(mixed, f"{own}.out", f"{own}.out.bias"))
        n = self.linear(self.norm(h, f"{own}.norm2"), f"{own}.up", f"{own}.up.bias")
        return self.node("Add", h, self.linear(self.gelu(n), f"{own}.down", f"{own}.down.bias"))

    def exported(self, inputs: dict[str, Array]) -> bytes:
        vit = self.vit
        self.constants["first"] = self.constants["first"][None]
        image = self.node("Conv", "x", "patch", "patch_bias", strides=[PATCH, PATCH])
        columns = self.node("Reshape", image, self.ints(1, vit.width, vit.side**2))
        patches = self.node("Transpose", columns, perm=[0, 2, 1])
        h = self.node("Add", self.node("Concat", "first", patches, axis=1), "places")
        for number in range(vit.layers):
            h = self.layer(h, str(number))
        top = self.node("Slice", h, self.ints(0), self.ints(1), self.ints(1))
        top = self.node("Reshape", self.norm(top, ""), self.ints(1, vit.width))
        return self.model(inputs, {self.linear(top, "head", "head_bias"): (1, CLASSES)})


def is_matrix(name: str, value: Array) -> bool:
    """Whether a tensor is one that vectors are multiplied by."""
    return bool(value.ndim == 2 and name not in ("first", "places"))


def vit_tiny(vit: Vit | None = None) -> Model:
    vit = vit or Vit()
    tensors, size = vit.weights(), PATCH * vit.side
    inputs = {"x": np.random.default_rng(11).normal(size=(1, 3, size, size)).astype(np.float32)}
    layer = vit.tokens * vit.width * (12 * vit.width + 2 * vit.tokens)
    return Model(
        name=f"ViT-tiny shapes, {size} x {size}",
        text=TEXT,
        tensors=tensors,
        sizes={"L": vit.layers, "H": vit.heads, "Dh": vit.head, "S": vit.side, "C": CLASSES},
        inputs=inputs,
        output="logits",
        onnx=lambda: Exported(vit, tensors).exported(inputs),
        multiply_adds=vit.layers * layer + (vit.tokens - 1) * tensors["patch"].size + tensors["head"].size,
        read_bytes=nbytes(tensors),
    )
