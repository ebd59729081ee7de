"""The decoder of ``bench.decoder`` reading a prompt: all tokens at once, from an empty context, logits of the last."""

import numpy as np
from bench.decoder import TEXT, Array, Exported, Shape, is_matrix, weights
from bench.models import Model, nbytes

CONSTANTS = TEXT[TEXT.index("constant {") : TEXT.index("persistent {")]
PROMPT = """
sizes { G := H / 4; }
dynamic { tokens: i32[T]; }
volatile { logits: f32[1, C]; }
%s
block entry {
    assign positions: i32[T];
    assign h: f32[T, D];
    assign n: f32[T, D];
    assign q: f32[T, H*Dh];
    assign kv: f32[T, G*Dh];
    assign rows: f32[T, H, Dh];
    assign few: f32[T, G, Dh];
    assign query: f32[H, T, Dh];
    assign keys: f32[G, T, Dh];
    assign values: f32[G, T, Dh];
    assign gate: f32[T, F];
    assign up: f32[T, F];
    assign top: f32[1, D];
    op iota(tokens, axis=0) >> positions;
    op embedding(embed, tokens) >> h;
    loop layers (l in 0..L) {
        op rms_norm(h, N1[l]) >> n;
        op linear(n, Wq[l]) >> q;
        op reshape(q, shape=[T, H, Dh]) >> rows;
        op transpose(rows, perm=[1, 0, 2]) >> query;
        op rope(query, positions) >> query;
        op linear(n, Wk[l]) >> kv;
        op reshape(kv, shape=[T, G, Dh]) >> few;
        op transpose(few, perm=[1, 0, 2]) >> keys;
        op rope(keys, positions) >> keys;
        op linear(n, Wv[l]) >> kv;
        op reshape(kv, shape=[T, G, Dh]) >> few;
        op transpose(few, perm=[1, 0, 2]) >> values;
        op sdpa(query, keys, values, causal=true) >> query;
        op transpose(query, perm=[1, 0, 2]) >> rows;
        op reshape(rows, shape=[T, H*Dh]) >> q;
        op linear(q, Wo[l]) >> n;
        op add(h, n) >> h;
        op rms_norm(h, N2[l]) >> n;
        op linear(n, W1[l]) >> gate;
        op linear(n, W3[l]) >> up;
        op silu(gate) >> gate;
        op mul(gate, up) >> up;
        op linear(up, W2[l]) >> n;
        op add(h, n) >> h;
    }
    op slice(h, starts=[T - 1], ends=[T], axes=[0]) >> top;
    op rms_norm(top, last) >> top;
    op linear(top, head) >> logits;
    return logits;
}
"""


class ExportedPrompt(Exported):
    """The same in ONNX's ops, with a constant mask."""

    def __init__(self, shape: Shape, tensors: dict[str, Array]) -> None:
        super().__init__(shape, tensors)
        self.rows = shape.tokens
        self.constants["later"] = np.triu(np.full((shape.tokens, shape.tokens), -1e9, np.float32), 1)

    def remembered(self, what: str, new: str, layer: int) -> str:
        del what, layer
        return self.shared(new)

    def masked(self, scores: str) -> str:
        return self.node("Add", scores, "later")

    def prompt(self, inputs: dict[str, Array]) -> bytes:
        h = self.node("Gather", "embed", "tokens")
        for number in range(self.shape.layers):
            h = self.layer(h, "cos", "sin", number)
        rows = self.shape.tokens
        top = self.node("Slice", h, self.ints(rows - 1), self.ints(rows), self.ints(1))
        logits = self.product(self.norm(top, "last"), "head", output="logits")
        return self.model(inputs, {logits: (1, 1, self.shape.classes)})


def prompt(shape: Shape) -> list[int]:
    """The tokens that are read."""
    return [(3 + 7 * place) % shape.classes for place in range(shape.tokens)]


def prefill(shape: Shape) -> Model:
    """As many tokens as the context has room for."""
    tensors, tokens = weights(shape), shape.tokens
    inputs = {"tokens": np.array(prompt(shape), np.int32)}
    feeds = {"tokens": inputs["tokens"].astype(np.int64)[None]}
    layers = sum(value.size for name, value in tensors.items() if is_matrix(name, value) and name != "head")
    pairs = tokens * (tokens + 1) // 2
    return Model(
        name=f"decoder d={shape.width}, {shape.layers} layers, prompt of {tokens}",
        text=PROMPT % CONSTANTS,
        tensors=tensors,
        sizes={name: value for name, value in shape.sizes.items() if name != "S"} | {"T": tokens},
        inputs=inputs,
        output="logits",
        onnx=lambda: ExportedPrompt(shape, tensors).prompt(feeds),
        multiply_adds=tokens * layers + 2 * shape.layers * shape.heads * shape.head * pairs + tensors["head"].size,
        read_bytes=nbytes(tensors) - tensors["embed"].nbytes,
        feeds=feeds,
    )
