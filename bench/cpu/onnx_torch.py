"""An ONNX model of the benchmark as a PyTorch module, so that it can be exported: one function for each op."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench.cpu.engines.base import CannotError
from bench.cpu.onnx_graph import Graph
from bench.cpu.onnx_rewrite import Node
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812, the name everyone knows it by


class OnnxModule(nn.Module):
    """The nodes of the file, one after the other; results have the names that they have there.

    Shapes, axes and bounds are read when the module is made: an export has no tensors where PyTorch wants numbers.
    Weights get the form that PyTorch's layers have them in, since an export computes nothing beforehand.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.graph = Graph(path)
        unknown = [node.op for node in self.graph.nodes if node.op not in OPS]
        if unknown:
            raise CannotError(f"{unknown[0]} is not among the ops that are translated to PyTorch")
        self.known = dict(self.graph.constants)
        self.held: set[str] = set()
        self.steps = [self.prepared(node) for node in self.graph.nodes]

    def prepared(self, node: Node) -> Node:
        """A node, with its constants held: matrices as PyTorch's layers have them."""
        for at, name in enumerate(node.inputs):
            if name in self.known:
                is_turned = at == 1 and (node.op == "Linear" or (node.op == "Gemm" and not node.own.get("transB")))
                self.hold(name, self.known[name].T if is_turned else self.known[name])
        return node

    def hold(self, name: str, value: Any) -> None:
        if name not in self.held:
            self.held.add(name)
            self.register_buffer(attribute(name), torch.from_numpy(np.array(value, order="C")))

    def forward(self, *inputs: Tensor) -> Tensor:
        values: dict[str, Any] = dict(zip(self.graph.inputs, inputs, strict=True))
        for node in self.steps:
            values[node.output] = OPS[node.op](self, [self.value(values, name) for name in node.inputs], node)
        first: Tensor = values[self.graph.result]
        return first

    def value(self, values: dict[str, Any], name: str) -> Any:
        return getattr(self, attribute(name)) if name in self.held else values.get(name)

    def numbers(self, name: str) -> list[int]:
        """The values of a constant list of integers."""
        return [int(one) for one in np.atleast_1d(self.known[name])]


def attribute(name: str) -> str:
    """The name of a tensor as one that a module may have."""
    return "t_" + "".join(one if one.isalnum() else "_" for one in name)


Op = Callable[[OnnxModule, list[Any], Node], Any]


def conv(_: OnnxModule, x: list[Any], node: Node) -> Tensor:
    rank, own = x[1].ndim - 2, node.own
    pads = own.get("pads", [0] * 2 * rank)
    value = x[0]
    if pads[:rank] != pads[rank:]:
        value = F.pad(value, [one for axis in reversed(range(rank)) for one in (pads[axis], pads[axis + rank])])
        pads = [0] * 2 * rank
    kind: Any = {1: F.conv1d, 2: F.conv2d}[rank]
    bias = x[2] if len(x) > 2 else None
    dilations = own.get("dilations", [1] * rank)
    found: Tensor = kind(value, x[1], bias, own.get("strides", [1] * rank), pads[:rank], dilations, own.get("group", 1))
    return found


def clip(module: OnnxModule, x: list[Any], node: Node) -> Tensor:
    return torch.clamp(x[0], *(float(module.known[name]) for name in node.inputs[1:]))


def max_pool(_: OnnxModule, x: list[Any], node: Node) -> Tensor:
    pads = node.own.get("pads", [0, 0, 0, 0])
    return F.max_pool2d(x[0], node.own["kernel_shape"], node.own.get("strides"), pads[:2])


def resized(module: OnnxModule, x: list[Any], node: Node) -> Tensor:
    factors = [float(one) for one in module.known[node.inputs[2]][2:]]
    return F.interpolate(x[0], scale_factor=factors, mode="nearest")


def reduced(kind: Callable[[Tensor, list[int], bool], Tensor]) -> Op:
    return lambda module, x, node: kind(x[0], module.numbers(node.inputs[1]), bool(node.own.get("keepdims", 1)))


def unsqueezed(module: OnnxModule, x: list[Any], node: Node) -> Tensor:
    found: Tensor = x[0]
    for axis in module.numbers(node.inputs[1]):
        found = found.unsqueeze(axis)
    return found


def normalized(_: OnnxModule, x: list[Any], node: Node) -> Tensor:
    return F.layer_norm(x[0], x[1].shape, x[1], x[2], node.own.get("epsilon", 1e-5))


def hard_sigmoid(_: OnnxModule, x: list[Any], node: Node) -> Tensor:
    if abs(node.own.get("alpha", 0.2) - 1 / 6) > 1e-6:
        raise CannotError("PyTorch's hard sigmoid has a slope of 1/6")
    return F.hardsigmoid(x[0])


def sliced(module: OnnxModule, x: list[Any], node: Node) -> Tensor:
    first, last, axis = (module.numbers(name)[0] for name in node.inputs[1:4])
    found: Tensor = x[0].narrow(axis, first, min(last, x[0].shape[axis]) - first)
    return found


def of(function: Callable[..., Any]) -> Op:
    """An op that has only its operands."""
    return lambda _module, x, _node: function(*x)


OPS: dict[str, Op] = {
    "Conv": conv,
    "Gemm": of(F.linear),
    "Linear": of(F.linear),
    "MatMul": of(torch.matmul),
    "Clip": clip,
    "MaxPool": max_pool,
    "Resize": resized,
    "HardSigmoid": hard_sigmoid,
    "LayerNormalization": normalized,
    "Unsqueeze": unsqueezed,
    "ReduceMean": reduced(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceSum": reduced(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "ReduceL2": reduced(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt()),
    "GlobalAveragePool": of(lambda x: x.mean(list(range(2, x.ndim)), keepdim=True)),
    "Flatten": of(lambda x: x.flatten(1)),
    "Reshape": lambda module, x, node: x[0].reshape(module.numbers(node.inputs[1])),
    "Transpose": lambda _module, x, node: x[0].permute(node.own["perm"]),
    "Concat": lambda _module, x, node: torch.cat(x, node.own["axis"]),
    "Softmax": lambda _module, x, node: torch.softmax(x[0], node.own.get("axis", -1)),
    "Gather": of(lambda table, rows: F.embedding(rows, table)),
    "Slice": sliced,
    "Relu": of(torch.relu),
    "Gelu": of(F.gelu),
    "HardSwish": of(F.hardswish),
    "Sigmoid": of(torch.sigmoid),
    "Tanh": of(torch.tanh),
    "Sqrt": of(torch.sqrt),
    "Neg": of(torch.neg),
    "Add": of(torch.add),
    "Sub": of(torch.sub),
    "Mul": of(torch.mul),
    "Div": of(torch.div),
}
