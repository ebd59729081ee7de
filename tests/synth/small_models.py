"""Three small models with everything a microcontroller is asked for, and what the simulator says about them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openinfer import ModelLoader, Simulator, graph
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.synth.targets.project import Golden

MLP = """
dynamic { x: f32[2, 12]; }
constant { w1: f32[12, 24]; b1: f32[24]; w2: f32[24, 5]; b2: f32[5]; }
volatile { y: f32[2, 5]; }
block entry {
    assign h: f32[2, 24];
    op matmul(x, w1) >> h;
    op add(h, b1) >> h;
    op gelu(h) >> h;
    op matmul(h, w2) >> y;
    op add(y, b2) >> y;
    op softmax(y) >> y;
    return y;
}
"""

CNN = """
dynamic { image: u8[1, 1, 12, 12]; }
constant { scale: f32; c1: f32[4, 1, 3, 3]; k1: f32[4]; c2: f16[6, 4, 3, 3]; k2: f16[6]; w: i8[10, 54]; b: f32[10]; }
volatile { y: f32[1, 10]; best: i64[1]; }
block entry {
    assign x: f32[1, 1, 12, 12];
    assign h: f32[1, 4, 12, 12];
    assign p: f32[1, 4, 6, 6];
    assign p16: f16[1, 4, 6, 6];
    assign q16: f16[1, 6, 6, 6];
    assign q: f16[1, 6, 3, 3];
    assign wide: f32[1, 6, 3, 3];
    assign flat: f32[1, 54];
    op cast(image, to=f32) >> x;
    op mul(x, scale) >> x;
    op conv2d(x, c1, k1, pads=1) >> h;
    op relu(h) >> h;
    op max_pool(h, kernel=2, strides=2) >> p;
    op cast(p, to=f16) >> p16;
    op conv2d(p16, c2, k2, pads=1) >> q16;
    op relu(q16) >> q16;
    op avg_pool(q16, kernel=2, strides=2) >> q;
    op cast(q, to=f32) >> wide;
    op reshape(wide, shape=[1, 54]) >> flat;
    op linear(flat, w, b) >> y;
    op argmax_axis(y, axis=-1) >> best;
    return y, best;
}
"""

DECODER = """
sizes { T <= 16; }
dynamic { token: i32; }
constant {
    embed: f32[32, 16];
    Wq(l): f32[16, 16] @pattern("q.{l}");
    Wk(l): f32[16, 16] @pattern("k.{l}");
    Wv(l): f32[16, 16] @pattern("v.{l}");
    Wo(l): f32[16, 16] @pattern("o.{l}");
    norm(l): f32[16] @pattern("n.{l}");
}
volatile { logits: f32[32]; next: i64; }
persistent {
    step: i32 @init(0);
    K(l, t): f16[2, 8] @table @fixed(l=2, t=16);
    V(l, t): f16[2, 8] @table @fixed(l=2, t=16);
}
block entry {
    assign h: f32[16];
    assign a: f32[16];
    assign q: f32[16];
    assign k: f32[16];
    assign v: f32[16];
    assign entry: f32[2, 8];
    assign small: f16[2, 8];
    assign query: f32[2, 1, 8];
    assign past: f16[T, 2, 8];
    assign keys: f16[2, T, 8];
    assign values: f16[2, T, 8];
    assign mixed: f32[2, 1, 8];
    op embedding(embed, token) >> h;
    loop layers (l in 0..2) {
        op rms_norm(h, norm[l]) >> a;
        op matmul(a, Wq[l]) >> q;
        op matmul(a, Wk[l]) >> k;
        op matmul(a, Wv[l]) >> v;
        op reshape(k, shape=[2, 8]) >> entry;
        op cast(entry, to=f16) >> small;
        cache.write small >> K[l, step];
        op reshape(v, shape=[2, 8]) >> entry;
        op cast(entry, to=f16) >> small;
        cache.write small >> V[l, step];
        op reshape(q, shape=[2, 1, 8]) >> query;
        cache.read K[l, 0..step+1] >> past;
        op transpose(past, perm=[1, 0, 2]) >> keys;
        cache.read V[l, 0..step+1] >> past;
        op transpose(past, perm=[1, 0, 2]) >> values;
        op sdpa(query, keys, values) >> mixed;
        op reshape(mixed, shape=[16]) >> a;
        op matmul(a, Wo[l]) >> a;
        op add(h, a) >> h;
    }
    op linear(h, embed) >> logits;
    op argmax_axis(logits, axis=0) >> next;
    cache.increment step;
    return logits, next;
}
"""


@dataclass(frozen=True)
class SmallModel:
    """A graph, its tensors, and the inputs of a step."""

    text: str
    tensors: Callable[[np.random.Generator], dict[str, Any]]
    inputs: Callable[[np.random.Generator], dict[str, Any]]
    outputs: tuple[str, ...]
    steps: int

    def saved(self, folder: Path) -> ModelLoader:
        """The model, in a file."""
        path = folder / "small.oinf"
        save_file(path, self.tensors(np.random.default_rng(1)))
        return ModelLoader.open(path)

    def golden(self, model: ModelLoader) -> list[Golden]:
        """Steps one after the other, as the simulator does them."""
        rng, found = np.random.default_rng(2), []
        executor = Simulator(model).with_trace("off").make_executor(graph(self.text))
        for _ in range(self.steps):
            values = self.inputs(rng)
            executor.insert(values)
            executor.run_step()
            found.append(Golden(values, {name: executor.fetch(name) for name in self.outputs}))
        return found


def _floats(
    rng: np.random.Generator, shapes: Mapping[str, tuple[int, ...]], dtype: type = np.float32
) -> dict[str, Any]:
    return {name: (rng.normal(size=shape) / 3).astype(dtype) for name, shape in shapes.items()}


def _cnn(rng: np.random.Generator) -> dict[str, Any]:
    quant = QuantParams("symmetric", QuantScale(0, rng.uniform(0.01, 0.03, 10).astype(np.float32)))
    dense = TensorSpec(rng.integers(-128, 128, (10, 54)).astype(np.int8), "i8", quant=quant)
    floats = _floats(rng, {"c1": (4, 1, 3, 3), "k1": (4,), "b": (10,)})
    halves = _floats(rng, {"c2": (6, 4, 3, 3), "k2": (6,)}, np.float16)
    return {**floats, **halves, "w": dense, "scale": np.float32(1 / 128)}


def _decoder(rng: np.random.Generator) -> dict[str, Any]:
    layers: dict[str, tuple[int, ...]] = {f"{name}.{layer}": (16, 16) for name in "qkvo" for layer in range(2)}
    norms: dict[str, tuple[int, ...]] = {f"n.{layer}": (16,) for layer in range(2)}
    return _floats(rng, {"embed": (32, 16), **layers, **norms})


SMALL_MODELS = {
    "mlp": SmallModel(
        MLP,
        lambda rng: _floats(rng, {"w1": (12, 24), "b1": (24,), "w2": (24, 5), "b2": (5,)}),
        lambda rng: _floats(rng, {"x": (2, 12)}),
        ("y",),
        steps=2,
    ),
    "cnn": SmallModel(
        CNN,
        _cnn,
        lambda rng: {"image": rng.integers(0, 256, (1, 1, 12, 12)).astype(np.uint8)},
        ("y", "best"),
        steps=3,
    ),
    "decoder": SmallModel(
        DECODER,
        _decoder,
        lambda rng: {"token": np.int32(rng.integers(0, 32))},
        ("logits", "next"),
        steps=12,
    ),
}
