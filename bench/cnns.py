"""Convolutional networks of phones and microcontrollers, as ``bench.models`` has others; weights are random."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.models import Array, Model, declared, nbytes, shapes_of
from bench.onnx_writer import Onnx


@dataclass(frozen=True)
class Map:
    """Feature maps on their way through a network: their names in both languages, their channels and extents."""

    name: str
    onnx: str
    channels: int
    height: int
    width: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (1, self.channels, self.height, self.width)


class Cnn:
    """A network that is being written, in our language and in ONNX's ops.

    Batch norms are in the weights, as exporters leave them, or nodes of their own where ``norms`` says so.
    """

    def __init__(self, channels: int, height: int, width: int, *, norms: bool = False) -> None:
        self.rng = np.random.default_rng(7)
        self.onnx = Onnx()
        self.tensors: dict[str, Array] = {}
        self.hidden: dict[str, tuple[int, ...]] = {}
        self.lines: list[str] = []
        self.products = 0
        self.norms = norms
        self.input = Map("x", "x", channels, height, width)

    def value(self, shape: tuple[int, ...]) -> str:
        """A new variable."""
        name = f"h{len(self.hidden)}"
        self.hidden[name] = shape
        return name

    def weight(self, shape: tuple[int, ...], spread: float) -> str:
        name = f"w{len(self.tensors)}"
        self.tensors[name] = self.rng.normal(0, spread, shape).astype(np.float32)
        return name

    def conv(
        self,
        x: Map,
        features: int,
        kernel: tuple[int, int] = (1, 1),
        stride: int = 1,
        groups: int = 1,
        activation: str = "",
    ) -> Map:
        inner = x.channels // groups
        w = self.weight((features, inner, *kernel), (2 / (inner * kernel[0] * kernel[1])) ** 0.5)
        b = "" if self.norms else self.weight((features,), 0.1)
        pads = [one // 2 for one in kernel]
        pads = [*pads, *((one - 1) // 2 for one in kernel)]
        height = (x.height + pads[0] + pads[2] - kernel[0]) // stride + 1
        width = (x.width + pads[1] + pads[3] - kernel[1]) // stride + 1
        self.products += height * width * self.tensors[w].size
        h = self.value((1, features, height, width))
        operands = ", ".join(filter(None, (x.name, w, b)))
        self.lines.append(f"op conv2d({operands}, strides=[{stride}], pads={pads}, groups={groups}) >> {h};")
        inputs = [one for one in (x.onnx, w, b) if one]
        made = self.onnx.node("Conv", *inputs, strides=[stride] * 2, pads=pads, group=groups)
        found = Map(h, made, features, height, width)
        return self.activated(self.normed(found) if self.norms else found, activation)

    def normed(self, x: Map) -> Map:
        """A batch norm."""
        gamma, beta, mean = (self.weight((x.channels,), 0.1) for _ in range(3))
        var = self.weight((x.channels,), 0.1)
        self.tensors[gamma] += 1
        self.tensors[var] = np.abs(self.tensors[var]) + 0.9
        self.lines.append(f"op batch_norm({x.name}, {gamma}, {beta}, {mean}, {var}, eps=0.001) >> {x.name};")
        made = self.onnx.node("BatchNormalization", x.onnx, gamma, beta, mean, var, epsilon=0.001)
        return Map(x.name, made, x.channels, x.height, x.width)

    def activated(self, x: Map, activation: str) -> Map:
        if not activation:
            return x
        ops = {"relu6": "relu({}, clamp_max=6.0)", "relu": "relu({})", "hard_swish": "hard_swish({})"}
        ops |= {"hard_sigmoid": "hard_sigmoid({})"}
        self.lines.append(f"op {ops[activation].format(x.name)} >> {x.name};")
        match activation:
            case "relu6":
                made = self.onnx.node("Clip", x.onnx, self.onnx.number(0.0), self.onnx.number(6.0))
            case "hard_sigmoid":
                made = self.onnx.node("HardSigmoid", x.onnx, alpha=1 / 6, beta=0.5)
            case _:
                made = self.onnx.node({"relu": "Relu", "hard_swish": "HardSwish"}[activation], x.onnx)
        return Map(x.name, made, x.channels, x.height, x.width)

    def add(self, x: Map, y: Map) -> Map:
        self.lines.append(f"op add({x.name}, {y.name}) >> {x.name};")
        return Map(x.name, self.onnx.node("Add", x.onnx, y.onnx), x.channels, x.height, x.width)

    def mean(self, x: Map) -> Map:
        h = self.value((1, x.channels, 1, 1))
        self.lines.append(f"op global_avg_pool({x.name}) >> {h};")
        return Map(h, self.onnx.node("GlobalAveragePool", x.onnx), x.channels, 1, 1)

    def excited(self, x: Map, features: int) -> Map:
        """Squeeze and excite."""
        norms, self.norms = self.norms, False
        gate = self.conv(self.conv(self.mean(x), features, activation="relu"), x.channels, activation="hard_sigmoid")
        self.norms = norms
        h = self.value(x.shape)
        self.lines.append(f"op mul({x.name}, {gate.name}) >> {h};")
        return Map(h, self.onnx.node("Mul", x.onnx, gate.onnx), x.channels, x.height, x.width)

    def linear(self, x: Map, features: int, activation: str = "") -> Map:
        """A linear layer of a map with one position, which is a row from then on."""
        if x.name in self.hidden and len(self.hidden[x.name]) > 2:
            flat = self.value((1, x.channels))
            self.lines.append(f"op reshape({x.name}, shape=[1, {x.channels}]) >> {flat};")
            x = Map(flat, self.onnx.node("Flatten", x.onnx), x.channels, 1, 1)
        w, b = self.weight((features, x.channels), x.channels**-0.5), self.weight((features,), 0.1)
        h = self.value((1, features))
        self.products += self.tensors[w].size
        self.lines.append(f"op linear({x.name}, {w}, {b}) >> {h};")
        found = Map(h, self.onnx.node("Gemm", x.onnx, w, b, transB=1), features, 1, 1)
        return self.activated(found, activation)

    def model(self, name: str, out: Map) -> Model:
        self.onnx.constants |= self.tensors
        inputs: dict[str, Any] = {"x": self.rng.normal(size=self.input.shape).astype(np.float32)}
        text = f"dynamic {{ {declared({'x': self.input.shape})} }}"
        text += f" volatile {{ {declared(shapes_of(self.tensors) | self.hidden)} }}"
        text += f" block entry {{ {' '.join(self.lines)} return {out.name}; }}"
        shape = self.hidden[out.name]

        def exported() -> bytes:
            return self.onnx.model(inputs, {out.onnx: shape})

        return Model(name, text, self.tensors, {}, inputs, out.name, exported, self.products, nbytes(self.tensors))


@dataclass(frozen=True)
class Block:
    """A block of MobileNet: how wide it is inside, what it ends with, and its depthwise convolution."""

    wide: int
    features: int
    kernel: int
    stride: int
    activation: str = "relu6"
    excited: int = 0
    """The features between squeezing and exciting; without any, neither is done."""


def inverted(net: Cnn, x: Map, block: Block) -> Map:
    """Wider, depthwise, narrower; what it began with is added where that has the same shape."""
    wide, kernel = block.wide, (block.kernel, block.kernel)
    h = x if wide == x.channels else net.conv(x, wide, activation=block.activation)
    h = net.conv(h, wide, kernel, block.stride, wide, block.activation)
    h = net.excited(h, block.excited) if block.excited else h
    h = net.conv(h, block.features)
    return net.add(h, x) if block.stride == 1 and block.features == x.channels else h


def mobilenet_v2(size: int = 224, *, norms: bool = False) -> Model:
    net = Cnn(3, size, size, norms=norms)
    h = net.conv(net.input, 32, (3, 3), 2, activation="relu6")
    for widening, features, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            first = stride if number == 0 else 1
            h = inverted(net, h, Block(widening * h.channels, features, 3, first))
    h = net.conv(h, 1280, activation="relu6")
    return net.model(f"MobileNetV2, {size} x {size}", net.linear(net.mean(h), 1000))


def efficientnet_lite0(size: int = 224, *, norms: bool = False) -> Model:
    net = Cnn(3, size, size, norms=norms)
    h = net.conv(net.input, 32, (3, 3), 2, activation="relu6")
    for widening, kernel, features, count, stride in (
        (1, 3, 16, 1, 1),
        (6, 3, 24, 2, 2),
        (6, 5, 40, 2, 2),
        (6, 3, 80, 3, 2),
        (6, 5, 112, 3, 1),
        (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    ):
        for number in range(count):
            first = stride if number == 0 else 1
            h = inverted(net, h, Block(widening * h.channels, features, kernel, first))
    h = net.conv(h, 1280, activation="relu6")
    return net.model(f"EfficientNet-lite0, {size} x {size}", net.linear(net.mean(h), 1000))


def mobilenet_v3_small(size: int = 224, *, norms: bool = False) -> Model:
    net = Cnn(3, size, size, norms=norms)
    h = net.conv(net.input, 16, (3, 3), 2, activation="hard_swish")
    for kernel, wide, features, excited, activation, stride in (
        (3, 16, 16, 8, "relu", 2),
        (3, 72, 24, 0, "relu", 2),
        (3, 88, 24, 0, "relu", 1),
        (5, 96, 40, 24, "hard_swish", 2),
        (5, 240, 40, 64, "hard_swish", 1),
        (5, 240, 40, 64, "hard_swish", 1),
        (5, 120, 48, 32, "hard_swish", 1),
        (5, 144, 48, 40, "hard_swish", 1),
        (5, 288, 96, 72, "hard_swish", 2),
        (5, 576, 96, 144, "hard_swish", 1),
        (5, 576, 96, 144, "hard_swish", 1),
    ):
        h = inverted(net, h, Block(wide, features, kernel, stride, activation, excited))
    h = net.conv(h, 576, activation="hard_swish")
    h = net.linear(net.mean(h), 1024, "hard_swish")
    return net.model(f"MobileNetV3-small, {size} x {size}", net.linear(h, 1000))


def ds_cnn(blocks: int = 5, features: int = 64, *, norms: bool = False) -> Model:
    """A keyword spotter: depthwise-separable convolutions over 49 frames of 10 coefficients."""
    net = Cnn(1, 49, 10, norms=norms)
    h = net.conv(net.input, features, (10, 4), 2, activation="relu")
    for _ in range(blocks):
        h = net.conv(h, features, (3, 3), 1, features, "relu")
        h = net.conv(h, features, activation="relu")
    return net.model(f"DS-CNN, {blocks} blocks of {features}", net.linear(net.mean(h), 12))
