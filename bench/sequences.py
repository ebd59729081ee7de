"""Networks for sequences: a step of a GRU, and convolutions over time."""

import numpy as np
from bench.models import Array, Model, declared, nbytes, shapes_of
from bench.onnx_writer import Onnx

GRU = """
dynamic { x: f32[1, H]; h: f32[1, H]; }
volatile { next_h: f32[1, H]; }
constant { w_ih: f32[3*H, H]; w_hh: f32[3*H, H]; b_ih: f32[3*H]; b_hh: f32[3*H]; }
block entry {
    op gru_cell(x, h, w_ih, w_hh, b_ih, b_hh) >> next_h;
    return next_h;
}
"""


def gru(width: int = 512) -> Model:
    rng = np.random.default_rng(8)
    shapes = {"w_ih": (3 * width, width), "w_hh": (3 * width, width), "b_ih": (3 * width,), "b_hh": (3 * width,)}
    tensors = {name: rng.normal(0, width**-0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = {name: rng.normal(size=(1, width)).astype(np.float32) for name in ("x", "h")}
    feeds = {name: value[None] for name, value in inputs.items()}

    def exported() -> bytes:
        def ordered(name: str) -> Array:
            """The gates as ONNX wants them: update, reset, hidden."""
            r, z, n = np.split(tensors[name], 3)
            return np.concatenate([z, r, n])

        onnx = Onnx({"w": ordered("w_ih")[None], "r": ordered("w_hh")[None]})
        onnx.constants["b"] = np.concatenate([ordered("b_ih"), ordered("b_hh")])[None]
        onnx.nodes_of("GRU", ("x", "w", "r", "b", "", "h"), ("", "next_h"), hidden_size=width, linear_before_reset=1)
        return onnx.model(feeds, {"next_h": (1, 1, width)})

    name = f"GRU step, {width} wide, batch 1"
    return Model(name, GRU, tensors, {"H": width}, inputs, "next_h", exported, 6 * width**2, nbytes(tensors), feeds)


def tcn(length: int = 256, width: int = 64, blocks: int = 6, kernel: int = 3) -> Model:
    """Dilated convolutions that see only the past, two in a residual block; each block reaches twice as far."""
    rng = np.random.default_rng(9)
    onnx, lines = Onnx(), []
    tensors: dict[str, Array] = {}
    hidden: dict[str, tuple[int, ...]] = {}
    spread = (2 / (width * kernel)) ** 0.5
    h, made = "x", "x"
    for block in range(blocks):
        far = 2**block
        before, before_made = h, made
        for part in "ab":
            w, b, y = f"w{block}{part}", f"b{block}{part}", f"h{block}{part}"
            tensors[w] = rng.normal(0, spread, (width, width, kernel)).astype(np.float32)
            tensors[b] = rng.normal(0, 0.1, width).astype(np.float32)
            hidden[y] = (1, width, length)
            pads = [(kernel - 1) * far, 0]
            lines.append(f"op conv1d({h}, {w}, {b}, pads={pads}, dilations=[{far}]) >> {y}; op relu({y}) >> {y};")
            h, made = y, onnx.node("Relu", onnx.node("Conv", made, w, b, pads=pads, dilations=[far]))
        lines.append(f"op add({h}, {before}) >> {h};")
        made = onnx.node("Add", made, before_made)
    onnx.constants |= tensors
    inputs = {"x": rng.normal(size=(1, width, length)).astype(np.float32)}
    text = f"dynamic {{ x: f32[1, {width}, {length}]; }} volatile {{ {declared(shapes_of(tensors) | hidden)} }}"
    text += f" block entry {{ {' '.join(lines)} return {h}; }}"
    products = 2 * blocks * length * width * width * kernel
    name = f"TCN, {blocks} blocks of {width}, {length} frames"
    return Model(
        name,
        text,
        tensors,
        {},
        inputs,
        h,
        lambda: onnx.model(inputs, {made: (1, width, length)}),
        products,
        nbytes(tensors),
    )
