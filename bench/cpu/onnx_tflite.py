"""An ONNX model of the benchmark as a TFLite file, as converters write it: images have their channels last.

Relu and Relu6 go into the operator before them, a bias that is added into the product, and what PyTorch pads into a
pad of its own, which XNNPACK takes into the convolution. Quantized models have their scales beside their tensors.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from bench.cpu.engines.base import CannotError
from bench.cpu.onnx_graph import Graph
from bench.cpu.onnx_rewrite import Node
from bench.cpu.tflite_file import TfLite, options

Array = Any
ACTIVATIONS = {None: 0, "Relu": schema.ActivationFunctionType.RELU, "Clip": schema.ActivationFunctionType.RELU6}
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


@dataclass(frozen=True)
class Value:
    """A tensor of the file for a value of the graph; ``shape`` is that of ONNX, of an image channels are last here."""

    index: int
    shape: tuple[int, ...]
    is_image: bool = False
    quant: Any = None


class Translation:
    """A graph on its way into a file."""

    def __init__(self, path: Path) -> None:
        self.graph, self.file = Graph(path), TfLite()
        self.values: dict[str, Value] = {}
        self.inputs_last: list[bool] = []
        """Of each input, whether the file wants its channels last."""
        for name, dtype in self.graph.inputs.items():
            self._input(name, dtype)

    def finished(self) -> bytes:
        """The file, once all nodes are translated."""
        result = self.values[self.graph.result]
        if result.quant is not None:
            real = self.file.tensor(result.shape)
            self.file.operator("DEQUANTIZE", [result.index], [real])
            result = Value(real, result.shape, result.is_image)
        self.file.graph.outputs = [self.plain(result).index]
        return self.file.finished()

    def _input(self, name: str, dtype: str) -> None:
        users, shape = self.graph.users(name), self.graph.shape(name)
        is_image = any(node.op == "Conv" for node in users)
        self.inputs_last.append(is_image)
        stored = self.file.tensor(last(shape) if is_image else shape, dtype)
        self.file.graph.inputs.append(stored)
        value = Value(stored, shape, is_image)
        if name in self.graph.quant:
            quant = self.graph.quant[name]
            whole = self.file.tensor(last(shape) if is_image else shape, "int8", quant)
            self.file.operator("QUANTIZE", [stored], [whole])
            value = Value(whole, shape, is_image, quant)
        self.values[name] = value

    # --- values -------------------------------------------------------------------------------------------------------

    def new(self, name: str, *, is_image: bool = False, shape: tuple[int, ...] | None = None) -> Value:
        """The result of a node, with its scale where the graph has one."""
        shape = self.graph.shape(name) if shape is None else shape
        quant = self.graph.quant.get(name)
        stored = last(shape) if is_image else shape
        index = self.file.tensor(stored, "float32" if quant is None else "int8", quant)
        self.values[name] = Value(index, shape, is_image, quant)
        return self.values[name]

    def of(self, name: str) -> Value:
        """An operand; constants are stored when they are first asked for."""
        if name not in self.values:
            data = self.graph.constants[name]
            self.values[name] = Value(self.file.constant(data), data.shape)
        return self.values[name]

    def ints(self, values: Any) -> int:
        return self.file.constant(np.array(values, np.int32))

    def like(self, value: Value, shape: tuple[int, ...]) -> int:
        """A new tensor of the same type as a value's."""
        return self.file.tensor(shape, "float32" if value.quant is None else "int8", value.quant)

    def plain(self, value: Value) -> Value:
        """A value in ONNX's order."""
        if not value.is_image:
            return value
        extents = last(value.shape)
        made = self.like(value, first(extents))
        if sum(one > 1 for one in extents) > 1 and extents[3] > 1:
            self.file.operator("TRANSPOSE", [value.index, self.ints(TO_FIRST)], [made], options("Transpose"))
        else:
            made = value.index
        return self.reshaped(Value(made, first(extents), quant=value.quant), value.shape)

    def reshaped(self, value: Value, shape: tuple[int, ...]) -> Value:
        if value.shape == shape:
            return value
        made = self.like(value, shape)
        self.file.operator("RESHAPE", [value.index, self.ints(shape)], [made], options("Reshape", newShape=list(shape)))
        return Value(made, shape, quant=value.quant)

    def image(self, value: Value) -> Value:
        """A value with its channels last."""
        if value.is_image:
            return value
        four = self.reshaped(value, first(last(value.shape)))
        made = self.like(value, last(value.shape))
        self.file.operator("TRANSPOSE", [four.index, self.ints(TO_LAST)], [made], options("Transpose"))
        return Value(made, value.shape, is_image=True, quant=value.quant)

    def activation(self, node: Node) -> tuple[int, str]:
        """What the operator can do with its result at once, and the name of the value after that."""
        users = self.graph.users(node.output)
        if len(users) == 1 and node.output not in self.graph.quant and users[0].op in ("Relu", "Clip"):
            if users[0].op == "Clip" and [float(self.graph.constants[one]) for one in users[0].inputs[1:]] != [0, 6]:
                raise CannotError("a Clip that is no Relu6")
            return ACTIVATIONS[users[0].op], users[0].output
        return 0, node.output

    def bias(self, name: str | None, x: Value, scales: Array, count: int) -> int:
        real = np.zeros(count, np.float32) if name is None else self.graph.real(name)
        if x.quant is None:
            return self.file.constant(real.astype(np.float32))
        units = np.asarray(scales, np.float32) * np.float32(x.quant[0])
        whole = np.rint(real / units).astype(np.int32)
        return self.file.constant(whole, (units, np.zeros(len(np.atleast_1d(units))), 0))

    def weights(self, name: str, order: tuple[int, ...], axis: int, x: Value) -> tuple[int, Array]:
        """Weights in the order of the file, and their scales."""
        if x.quant is None:
            return self.file.constant(self.graph.real(name).transpose(order)), None
        data, (scales, zeros, _) = self.graph.stored(name)
        if np.any(zeros):
            raise CannotError("weights with zero points")
        quant = (scales, np.zeros(len(scales)), axis)
        return self.file.constant(data.transpose(order), quant), scales


def last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of an image with its channels last; a row of positions is one of height 1."""
    if len(shape) == 3:
        return (shape[0], 1, shape[2], shape[1])
    if len(shape) != 4:
        raise CannotError(f"an image of {len(shape)} axes")
    return (shape[0], shape[2], shape[3], shape[1])


def first(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in TO_FIRST)
