"""An ONNX file read for translation: nodes in order, constants, shapes, and scales where it is quantized.

Pairs of QuantizeLinear and DequantizeLinear vanish: the value before them has their scale, and so have weights.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.cpu.onnx_rewrite import Node, Step, users_of, with_bias, with_gelu

Array = Any


class Graph:
    """What a translation asks for."""

    def __init__(self, path: Path) -> None:
        import onnx
        from onnx import numpy_helper, shape_inference

        model = shape_inference.infer_shapes(onnx.load(str(path)), data_prop=True)
        graph = model.graph
        self.constants: dict[str, Array] = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self._shapes = {
            one.name: tuple(axis.dim_value for axis in one.type.tensor_type.shape.dim)
            for one in (*graph.value_info, *graph.input, *graph.output)
        }
        of_type = onnx.helper.tensor_dtype_to_np_dtype
        self.inputs = {one.name: of_type(one.type.tensor_type.elem_type).name for one in graph.input}
        self.result: str = graph.output[0].name
        self.quant: dict[str, tuple[Array, Array, int]] = {}
        """Scales, zero points (for i8) and their axis, of values that are quantized."""
        self._weights: dict[str, str] = {}
        nodes = []
        for one in graph.node:
            own = {given.name: onnx.helper.get_attribute_value(given) for given in one.attribute}
            output = next((name for name in one.output if name), "")
            nodes.append(Node(one.op_type, tuple(one.input), output, own))
        whole = with_gelu(self._without_pairs(nodes))
        step = Step(self.constants, self._shapes)
        written = [one for node in whole for one in step.written_out(node)]
        fixed = {name for name in (*self.constants, *self._weights) if len(self.shape_of_constant(name)) == 1}
        self.nodes = with_bias(written, {*self.constants, *self._weights}, fixed, set(self.quant))
        self._users = users_of(self.nodes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name] if name in self._shapes else self.shape_of_constant(name)

    def shape_of_constant(self, name: str) -> tuple[int, ...]:
        return tuple(self.constants[self._weights.get(name, name)].shape)

    def users(self, name: str) -> list[Node]:
        return self._users.get(name, [])

    def numbers(self, name: str) -> list[int]:
        return [int(one) for one in np.atleast_1d(self.constants[name])]

    def is_constant(self, name: str) -> bool:
        return name in self.constants or name in self._weights

    def real(self, name: str) -> Array:
        """A constant in f32, whatever it is stored as."""
        if name in self.constants:
            return self.constants[name]
        data, (scales, _, axis) = self.stored(name)
        shape = [1] * data.ndim
        if data.ndim:
            shape[axis] = -1
        return data.astype(np.float32) * np.reshape(scales, shape if np.size(scales) > 1 else ())

    def stored(self, name: str) -> tuple[Array, tuple[Array, Array, int]]:
        """A quantized constant and its scales."""
        stored = self._weights[name]
        return self.constants[stored], self.quant[name]

    def _without_pairs(self, nodes: list[Node]) -> list[Node]:
        alias: dict[str, str] = {}
        kept = []
        for given in nodes:
            node = replace(given, inputs=tuple(alias.get(name, name) for name in given.inputs))
            if node.op == "QuantizeLinear":
                source = alias.get(node.inputs[0], node.inputs[0])
                alias[node.output] = source
                self.quant[source] = self._scales(node)
            elif node.op == "DequantizeLinear" and node.inputs[0] in self.constants:
                self._weights[node.output] = node.inputs[0]
                self.quant[node.output] = self._scales(node)
            elif node.op == "DequantizeLinear":
                alias[node.output] = node.inputs[0]
            else:
                kept.append(node)
        self.result = alias.get(self.result, self.result)
        return kept

    def _scales(self, node: Node) -> tuple[Array, Array, int]:
        zeros = np.atleast_1d(self.constants[node.inputs[2]])
        shift = 128 if zeros.dtype == np.uint8 else 0
        scales = np.atleast_1d(self.constants[node.inputs[1]])
        return scales, zeros.astype(np.int64) - shift, node.own.get("axis", 1) if len(scales) > 1 else 0
