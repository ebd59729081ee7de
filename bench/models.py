"""The models that benchmarks run: our graph, its weights and inputs, and the same model in ONNX's ops.

Weights are random, but of the shapes and sizes of real ones, except for those of MiniLM and of the digits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import bench.sim
import numpy as np
from bench.onnx_writer import Onnx

from openinfer import CompiledModule, Executor, ModelLoader
from openinfer.check.saved_state import MatrixKey, saved_bytes
from openinfer.oinf import save_file

Array = Any
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Model:
    """A model for every engine. ``multiply_adds`` are those of products, ``read_bytes`` what a step reads at least."""

    name: str
    text: str
    tensors: Mapping[str, Any]
    """Arrays, or a ``TensorSpec`` where a tensor is quantized."""
    sizes: dict[str, int]
    inputs: Feeds
    output: str
    onnx: Callable[[], bytes]
    multiply_adds: int
    read_bytes: int
    feeds: Feeds | None = None
    """The inputs of the ONNX model, where they are others."""
    plain: dict[str, Array] = field(default_factory=dict)
    """Persistent variables, which have these values before every step."""
    tables: dict[str, Array] = field(default_factory=dict)
    """Persistent tables before the first step."""
    settled: dict[str, int] = field(default_factory=dict)
    """Sizes that the graph leaves open, or that are others here."""
    metadata: dict[str, Any] = field(default_factory=dict)
    at_once: int = 1
    """Products of the model that a processor does in the time of one in f32."""
    original: "Model | None" = None
    """The f32 model, where this one has smaller weights."""

    @property
    def given(self) -> Feeds:
        """The inputs of the ONNX model."""
        return self.inputs if self.feeds is None else self.feeds

    def saved(self, folder: Path) -> ModelLoader:
        """The weights as a model file in a folder."""
        path = folder / "model.oinf"
        save_file(path, self.tensors, sizevars=self.sizes, metadata=self.metadata)
        return ModelLoader.open(path)

    def begin(self, machine: Executor | CompiledModule) -> None:
        """Give an executor or a module the state and the inputs of a step."""
        if self.plain or self.tables:
            tables: dict[str, dict[MatrixKey, Array]] = {name: {(): value} for name, value in self.tables.items()}
            machine.load_state(saved_bytes(machine.bound, self.plain, tables))
        machine.insert(self.inputs)


def disagreement(found: Array, wanted: Array) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(found.reshape(-1) - wanted.reshape(-1)).max() / np.abs(wanted).max())


def nbytes(tensors: Mapping[str, Array]) -> int:
    return sum(value.nbytes for value in tensors.values())


def declared(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Declarations of f32 variables."""
    return " ".join(f"{name}: f32[{', '.join(map(str, shape))}];" for name, shape in shapes.items())


def shapes_of(tensors: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in tensors.items()}


def mlp(widths: Sequence[int] = (784, 256, 128, 10), rows: int = 1) -> Model:
    rng = np.random.default_rng(0)
    tensors: dict[str, Array] = {}
    onnx, h, lines, last = Onnx(), "x", [], len(widths) - 2
    for layer, (inner, outer) in enumerate(pairwise(widths)):
        tensors[f"w{layer}"] = rng.normal(0, inner**-0.5, (outer, inner)).astype(np.float32)
        tensors[f"b{layer}"] = rng.normal(0, 0.1, outer).astype(np.float32)
        h = onnx.node("Gemm", h, f"w{layer}", f"b{layer}", transB=1)
        lines.append(f"op linear({'x' if layer == 0 else f'h{layer - 1}'}, w{layer}, b{layer}) >> h{layer};")
        if layer < last:
            h = onnx.node("Relu", h)
            lines.append(f"op relu(h{layer}) >> h{layer};")
    onnx.constants |= tensors
    hidden = {f"h{layer}": (rows, width) for layer, width in enumerate(widths[1:])}
    text = f"dynamic {{ x: f32[{rows}, {widths[0]}]; }} volatile {{ {declared(shapes_of(tensors) | hidden)} }}"
    text += f" block entry {{ {' '.join(lines)} return h{last}; }}"
    inputs = {"x": rng.normal(size=(rows, widths[0])).astype(np.float32)}
    products = rows * sum(inner * outer for inner, outer in pairwise(widths))
    name = f"MLP {'-'.join(map(str, widths))}, batch {rows}"
    outputs = {h: (rows, widths[-1])}
    return Model(
        name, text, tensors, {}, inputs, f"h{last}", lambda: onnx.model(inputs, outputs), products, nbytes(tensors)
    )


def encoder(length: int, layers: int = 6) -> Model:
    tensors = bench.sim.encoder_weights(layers)
    width, inner = 384, 1536
    sizes = {"D": width, "T": length, "H": 12, "F": inner, "L": layers}
    return Model(
        f"encoder d={width}, {layers} layers, T={length}",
        bench.sim.ENCODER,
        tensors,
        sizes,
        {"x": np.random.default_rng(1).normal(size=(length, width)).astype(np.float32)},
        "h",
        lambda: bench.sim.onnx_encoder(tensors, length, layers),
        layers * length * width * (4 * width + 2 * inner + 2 * length),
        nbytes(tensors),
    )


class _Resnet:
    """ResNet-18's shapes with random weights; batch norms are in the weights."""

    def __init__(self, size: int) -> None:
        self.rng = np.random.default_rng(2)
        self.onnx = Onnx()
        self.tensors: dict[str, Array] = {}
        self.lines: list[str] = []
        self.hidden: dict[str, tuple[int, ...]] = {}
        self.size = size
        self.products = 0

    def conv(self, x: str, onnx_x: str, shape: tuple[int, int], features: int, kernel: int, stride: int) -> Any:
        channels, size = shape
        number = len(self.hidden)
        w, b, h = f"w{number}", f"b{number}", f"h{number}"
        spread = (2 / (channels * kernel * kernel)) ** 0.5
        self.tensors[w] = self.rng.normal(0, spread, (features, channels, kernel, kernel)).astype(np.float32)
        self.tensors[b] = self.rng.normal(0, 0.1, features).astype(np.float32)
        pad = kernel // 2
        size = (size + 2 * pad - kernel) // stride + 1
        self.products += size * size * self.tensors[w].size
        self.hidden[h] = (1, features, size, size)
        self.lines.append(f"op conv2d({x}, {w}, {b}, strides=[{stride}], pads=[{pad}]) >> {h};")
        made = self.onnx.node("Conv", onnx_x, w, b, strides=[stride] * 2, pads=[pad] * 4)
        return h, made, (features, size)

    def relu(self, h: str, onnx_h: str) -> str:
        self.lines.append(f"op relu({h}) >> {h};")
        return self.onnx.node("Relu", onnx_h)

    def block(self, x: str, onnx_x: str, shape: tuple[int, int], features: int, stride: int) -> Any:
        h, onnx_h, middle = self.conv(x, onnx_x, shape, features, 3, stride)
        onnx_h = self.relu(h, onnx_h)
        y, onnx_y, result = self.conv(h, onnx_h, middle, features, 3, 1)
        if stride != 1:
            x, onnx_x, _ = self.conv(x, onnx_x, shape, features, 1, stride)
        self.lines.append(f"op add({y}, {x}) >> {y};")
        return y, self.relu(y, self.onnx.node("Add", onnx_y, onnx_x)), result

    def stem(self) -> Any:
        h, onnx_h, shape = self.conv("x", "x", (3, self.size), 64, 7, 2)
        onnx_h = self.relu(h, onnx_h)
        onnx_h = self.onnx.node("MaxPool", onnx_h, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        size = (shape[1] - 1) // 2 + 1
        self.hidden["pooled"] = (1, 64, size, size)
        self.lines.append(f"op max_pool({h}, kernel=[3, 3], strides=[2], pads=[1]) >> pooled;")
        return "pooled", onnx_h, (64, size)

    def model(self) -> Model:
        h, onnx_h, shape = self.stem()
        for features in (64, 128, 256, 512):
            for stride in (1 if features == 64 else 2, 1):
                h, onnx_h, shape = self.block(h, onnx_h, shape, features, stride)
        self.tensors["w"] = self.rng.normal(0, 0.05, (1000, 512)).astype(np.float32)
        self.tensors["b"] = self.rng.normal(0, 0.1, 1000).astype(np.float32)
        self.hidden |= {"mean": (1, 512, 1, 1), "flat": (1, 512), "y": (1, 1000)}
        self.lines.append(f"op global_avg_pool({h}) >> mean; op reshape(mean, shape=[1, 512]) >> flat;")
        self.lines.append("op linear(flat, w, b) >> y;")
        flat = self.onnx.node("Flatten", self.onnx.node("GlobalAveragePool", onnx_h))
        out = self.onnx.node("Gemm", flat, "w", "b", transB=1)
        self.onnx.constants |= self.tensors
        size = self.size
        inputs = {"x": self.rng.normal(size=(1, 3, size, size)).astype(np.float32)}
        text = f"dynamic {{ x: f32[1, 3, {size}, {size}]; }}"
        text += f" volatile {{ {declared(shapes_of(self.tensors) | self.hidden)} }}"
        text += f" block entry {{ {' '.join(self.lines)} return y; }}"
        return Model(
            f"ResNet-18 shapes, {size} x {size}",
            text,
            self.tensors,
            {},
            inputs,
            "y",
            lambda: self.onnx.model(inputs, {out: (1, 1000)}),
            self.products + self.tensors["w"].size,
            nbytes(self.tensors),
        )


def resnet(size: int = 224) -> Model:
    return _Resnet(size).model()


LSTM = """
dynamic { x: f32[1, H]; h: f32[1, H]; c: f32[1, H]; }
volatile { next_h: f32[1, H]; next_c: f32[1, H]; }
constant { w_ih: f32[4*H, H]; w_hh: f32[4*H, H]; b_ih: f32[4*H]; b_hh: f32[4*H]; }
block entry {
    op lstm_cell(x, h, c, w_ih, w_hh, b_ih, b_hh) >> next_h, next_c;
    return next_h, next_c;
}
"""


def lstm(width: int = 512) -> Model:
    rng = np.random.default_rng(5)
    shapes = {"w_ih": (4 * width, width), "w_hh": (4 * width, width), "b_ih": (4 * width,), "b_hh": (4 * width,)}
    tensors = {name: rng.normal(0, width**-0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    inputs = {name: rng.normal(size=(1, width)).astype(np.float32) for name in ("x", "h", "c")}
    feeds = {name: value[None] for name, value in inputs.items()}

    def exported() -> bytes:
        def ordered(name: str) -> Array:
            """The gates as ONNX wants them: input, output, forget, cell."""
            i, f, g, o = np.split(tensors[name], 4)
            return np.concatenate([i, o, f, g])

        onnx = Onnx({"w": ordered("w_ih")[None], "r": ordered("w_hh")[None]})
        onnx.constants["b"] = np.concatenate([ordered("b_ih"), ordered("b_hh")])[None]
        given = ("x", "w", "r", "b", "", "h", "c")
        onnx.nodes_of("LSTM", given, ("", "next_h", "next_c"), hidden_size=width)
        return onnx.model(feeds, {"next_h": (1, 1, width), "next_c": (1, 1, width)})

    products = 8 * width * width
    name = f"LSTM step, {width} wide, batch 1"
    return Model(name, LSTM, tensors, {"H": width}, inputs, "next_h", exported, products, nbytes(tensors), feeds)


def digits() -> Model:
    """The network of the example of that name, with the weights that it was trained to, on the first test image."""
    from examples.digits.example import held_out, network

    graph, loader = network("f32")
    with loader:
        tensors = {name: loader.load(name).to_numpy().copy() for name in loader.tensors}
        sizes = dict(loader.sizevars)
    inputs = {"image": held_out()[0][:1].copy()}
    feeds = {"image": inputs["image"].astype(np.float32)}  # not every engine has casts

    def exported() -> bytes:
        onnx = Onnx(tensors)
        h = onnx.node("Mul", "image", onnx.number(0.0625))
        for layer in ("conv1", "conv2", "conv3"):
            h = onnx.node("Relu", onnx.node("Conv", h, f"{layer}.weight", f"{layer}.bias", pads=[1] * 4))
            if layer != "conv1":
                h = onnx.node("MaxPool", h, kernel_shape=[2, 2], strides=[2, 2])
        flat = onnx.node("Flatten", h)
        onnx.node("Gemm", flat, "out.weight", "out.bias", transB=1, output="scores")
        return onnx.model(feeds, {"scores": (1, 10)})

    pixels = {"conv1": 64, "conv2": 64, "conv3": 16, "out": 1}
    products = sum(count * tensors[f"{layer}.weight"].size for layer, count in pixels.items())
    name = "CNN on 8 x 8 images of digits"
    return Model(name, graph.to_text(), tensors, sizes, inputs, "scores", exported, products, nbytes(tensors), feeds)
