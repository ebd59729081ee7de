"""An ONNX file read for translation: nodes in order, constants, shapes, and scales where it is quantized.

Pairs of QuantizeLinear and DequantizeLinear vanish: the value before them has their scale, and so have weights.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Node:
    """A node with one result that matters."""

    op: str
    inputs: tuple[str, ...]
    output: str
    own: dict[str, Any] = field(default_factory=dict)


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
        self.nodes = with_gelu(self._without_pairs(nodes))
        self._users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in node.inputs:
                self._users.setdefault(name, []).append(node)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name] if name in self._shapes else tuple(self.constants[name].shape)

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


def with_gelu(nodes: list[Node]) -> list[Node]:
    """The nodes with each ``gelu`` that is written as x * (erf(x / sqrt 2) + 1) / 2 as one."""
    made = {node.output: node for node in nodes}
    users: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            users.setdefault(name, []).append(node)
    gone: set[str] = set()
    found: dict[str, Node] = {}
    for node in nodes:
        if node.op == "Erf" and made[node.inputs[0]].op == "Div":
            x, chain = made[node.inputs[0]].inputs[0], [node]
            for op in ("Add", "Mul", "Mul"):
                chain += [one for one in users[chain[-1].output] if one.op == op][:1]
            if len(chain) == 4 and x in chain[-1].inputs:
                gone |= {node.inputs[0], *(one.output for one in chain[:-1])}
                found[chain[-1].output] = Node("Gelu", (x,), chain[-1].output)
    return [found.get(node.output, node) for node in nodes if node.output not in gone]
