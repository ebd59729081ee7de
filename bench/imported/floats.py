"""An ONNX model without what it does to its values while it runs: dynamic quantization taken out, weights kept."""

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper


def float_model(path: Path, written: Path) -> None:
    """Write the same network with products in floats: what a dynamically quantized one is near to."""
    model = onnx.load(path)
    _in_floats(model.graph)
    onnx.save(model, written)


def _in_floats(graph: Any) -> None:
    nodes = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _in_floats(attribute.g)
        nodes += {"DynamicQuantizeLinear": _kept, "MatMulInteger": _product, "ConvInteger": _product}.get(
            node.op_type, lambda one: [one]
        )(node)
    del graph.node[:]
    del graph.value_info[:]  # codes are floats now
    graph.node.extend(nodes)


def _kept(node: Any) -> list[Any]:
    """Values as their own codes: the scale is one, and the zero point zero."""
    codes, scale, zero = node.output
    number = {scale: 1.0, zero: 0.0}
    constants = [
        helper.make_node("Constant", [], [name], value=helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        for name, value in number.items()
    ]
    return [helper.make_node("Identity", [node.input[0]], [codes]), *constants]


def _product(node: Any) -> list[Any]:
    """A product of values and weights; the zero points of weights are subtracted first."""
    name, op = node.output[0], node.op_type.removesuffix("Integer")
    weights, found = f"{name}_weights", []
    found.append(helper.make_node("Cast", [node.input[1]], [weights], to=TensorProto.FLOAT))
    if len(node.input) > 3 and node.input[3]:
        zero, moved = f"{name}_zero", f"{name}_moved"
        found.append(helper.make_node("Cast", [node.input[3]], [zero], to=TensorProto.FLOAT))
        found.append(helper.make_node("Sub", [weights, zero], [moved]))
        weights = moved
    product = helper.make_node(op, [node.input[0], weights], [name], name=node.name)
    product.attribute.extend(node.attribute)
    return [*found, product]
