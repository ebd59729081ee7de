"""An ONNX model of the benchmark as a PyTorch module, so that it can be exported: one function for each op."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench.cpu.engines.base import CannotError
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812, the name everyone knows it by

Attributes = dict[str, Any]
FEW = 16
"""Constants with fewer numbers may be parameters, as the bounds of a Clip or the factors of a Resize are."""


class OnnxModule(nn.Module):
    """The nodes of the file, one after the other; results have the names that they have there.

    Shapes, axes and bounds are read when the module is made: an export has no tensors where PyTorch wants numbers.
    """

    def __init__(self, path: Path) -> None:
        import onnx
        from onnx import numpy_helper

        super().__init__()
        graph = onnx.load(str(path)).graph
        self.known: dict[str, Any] = {}
        for one in graph.initializer:
            value = np.array(numpy_helper.to_array(one))
            if value.dtype == np.int64 or value.size < FEW:
                self.known[one.name] = value
            self.register_buffer(attribute(one.name), torch.from_numpy(value))
        self.given = [one.name for one in graph.input]
        self.results = [one.name for one in graph.output]
        self.steps = []
        for node in graph.node:
            if node.op_type not in OPS:
                raise CannotError(f"{node.op_type} is not among the ops that are translated to PyTorch")
            own = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
            self.steps.append((node.op_type, list(node.input), list(node.output), own))
        self.constants = {one.name for one in graph.initializer}

    def forward(self, *inputs: Tensor) -> Tensor:
        values: dict[str, Any] = dict(zip(self.given, inputs, strict=True))
        for op, names, outputs, own in self.steps:
            found = OPS[op](self, [self.value(values, name) for name in names], own, names)
            values |= zip(outputs, found if isinstance(found, tuple) else (found,), strict=True)
        first: Tensor = values[self.results[0]]
        return first

    def value(self, values: dict[str, Any], name: str) -> Any:
        if name in self.constants:
            return getattr(self, attribute(name))
        return values.get(name)

    def numbers(self, name: str) -> list[int]:
        """The values of a constant list of integers."""
        return [int(one) for one in np.atleast_1d(self.known[name])]


def attribute(name: str) -> str:
    """The name of a tensor as one that a module may have."""
    return "t_" + "".join(one if one.isalnum() else "_" for one in name)


Op = Callable[[OnnxModule, list[Any], Attributes, list[str]], Any]


def conv(_: OnnxModule, x: list[Any], own: Attributes, names: list[str]) -> Tensor:
    rank = x[1].ndim - 2
    pads = own.get("pads", [0] * 2 * rank)
    value = x[0]
    if pads[:rank] != pads[rank:]:
        value = F.pad(value, [one for axis in reversed(range(rank)) for one in (pads[axis], pads[axis + rank])])
        pads = [0] * 2 * rank
    kind: Any = {1: F.conv1d, 2: F.conv2d}[rank]
    bias = x[2] if len(names) > 2 else None
    dilations = own.get("dilations", [1] * rank)
    found: Tensor = kind(value, x[1], bias, own.get("strides", [1] * rank), pads[:rank], dilations, own.get("group", 1))
    return found


def gemm(_: OnnxModule, x: list[Any], own: Attributes, names: list[str]) -> Tensor:
    weight = x[1] if own.get("transB") else x[1].T
    return F.linear(x[0], weight, x[2] if len(names) > 2 else None)


def clip(module: OnnxModule, x: list[Any], _own: Attributes, names: list[str]) -> Tensor:
    return torch.clamp(x[0], *(float(module.known[name]) for name in names[1:]))


def max_pool(_: OnnxModule, x: list[Any], own: Attributes, _names: list[str]) -> Tensor:
    pads = own.get("pads", [0, 0, 0, 0])
    return F.max_pool2d(x[0], own["kernel_shape"], own.get("strides"), pads[:2])


def resized(module: OnnxModule, x: list[Any], _own: Attributes, names: list[str]) -> Tensor:
    return F.interpolate(x[0], scale_factor=[float(one) for one in module.known[names[2]][2:]], mode="nearest")


def split(_: OnnxModule, x: list[Any], own: Attributes, _names: list[str]) -> tuple[Tensor, ...]:
    return torch.chunk(x[0], own["num_outputs"], own.get("axis", 0))


def gru(_: OnnxModule, x: list[Any], own: Attributes, _names: list[str]) -> tuple[Any, Tensor]:
    """A step; gates in ONNX's order: update, reset, hidden."""
    if not own.get("linear_before_reset"):
        raise CannotError("a GRU whose reset comes before its product")
    one, before = x[0][0], x[5][0]
    width = own["hidden_size"]
    left = F.linear(one, x[1][0], x[3][0, : 3 * width])
    right = F.linear(before, x[2][0], x[3][0, 3 * width :])
    z, r = (torch.sigmoid(left[:, at : at + width] + right[:, at : at + width]) for at in (0, width))
    n = torch.tanh(left[:, 2 * width :] + r * right[:, 2 * width :])
    return None, ((1 - z) * n + z * before)[None]


def lstm(_: OnnxModule, x: list[Any], _own: Attributes, _names: list[str]) -> tuple[Any, Tensor, Tensor]:
    """A step; gates in ONNX's order: input, output, forget, cell."""
    one, before, cell = x[0][0], x[5][0], x[6][0]
    half = x[3].shape[1] // 2
    gates = F.linear(one, x[1][0], x[3][0, :half]) + F.linear(before, x[2][0], x[3][0, half:])
    i, o, f, g = gates.chunk(4, 1)
    after = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return None, (torch.sigmoid(o) * torch.tanh(after))[None], after[None]


def reduced(kind: Callable[[Tensor, list[int], bool], Tensor]) -> Op:
    return lambda module, x, own, names: kind(x[0], module.numbers(names[1]), bool(own.get("keepdims", 1)))


def expanded(module: OnnxModule, x: list[Any], _own: Attributes, names: list[str]) -> Tensor:
    return torch.Tensor.expand(x[0], module.numbers(names[1]))


def unsqueezed(module: OnnxModule, x: list[Any], _own: Attributes, names: list[str]) -> Tensor:
    for axis in module.numbers(names[1]):
        x[0] = x[0].unsqueeze(axis)
    found: Tensor = x[0]
    return found


def normalized(_: OnnxModule, x: list[Any], own: Attributes, _names: list[str]) -> Tensor:
    return F.layer_norm(x[0], x[1].shape, x[1], x[2], own.get("epsilon", 1e-5))


def hard_sigmoid(_: OnnxModule, x: list[Any], own: Attributes, _names: list[str]) -> Tensor:
    if abs(own.get("alpha", 0.2) - 1 / 6) > 1e-6:
        raise CannotError("PyTorch's hard sigmoid has a slope of 1/6")
    return F.hardsigmoid(x[0])


def cast(_: OnnxModule, x: list[Any], own: Attributes, _names: list[str]) -> Tensor:
    found: Tensor = x[0].to({1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool}[own["to"]])
    return found


def of(function: Callable[..., Any]) -> Op:
    """An op that has only its operands."""
    return lambda _module, x, _own, _names: function(*x)


OPS: dict[str, Op] = {
    "Conv": conv,
    "Gemm": gemm,
    "Clip": clip,
    "MaxPool": max_pool,
    "Resize": resized,
    "Split": split,
    "GRU": gru,
    "LSTM": lstm,
    "Cast": cast,
    "HardSigmoid": hard_sigmoid,
    "LayerNormalization": normalized,
    "Expand": expanded,
    "Unsqueeze": unsqueezed,
    "ReduceMean": reduced(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceSum": reduced(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "ReduceL2": reduced(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt()),
    "GlobalAveragePool": of(lambda x: x.mean(list(range(2, x.ndim)), keepdim=True)),
    "Flatten": of(lambda x: x.flatten(1)),
    "Reshape": lambda module, x, _own, names: x[0].reshape(module.numbers(names[1])),
    "Transpose": lambda _module, x, own, _names: x[0].permute(own["perm"]),
    "Concat": lambda _module, x, own, _names: torch.cat(x, own["axis"]),
    "Softmax": lambda _module, x, own, _names: torch.softmax(x[0], own.get("axis", -1)),
    "Gather": lambda _module, x, own, _names: (
        x[0][x[1]] if not own.get("axis") else x[0].select(own["axis"], int(x[1]))
    ),
    "Slice": lambda module, x, _own, names: sliced(x[0], *(module.numbers(name)[0] for name in names[1:4])),
    "Relu": of(torch.relu),
    "HardSwish": of(F.hardswish),
    "Sigmoid": of(torch.sigmoid),
    "Tanh": of(torch.tanh),
    "Erf": of(torch.erf),
    "Sqrt": of(torch.sqrt),
    "Neg": of(torch.neg),
    "MatMul": of(torch.matmul),
    "Add": of(torch.add),
    "Sub": of(torch.sub),
    "Mul": of(torch.mul),
    "Div": of(torch.div),
    "Pow": of(torch.pow),
}


def sliced(x: Tensor, first: int, last: int, axis: int) -> Tensor:
    return x.narrow(axis, first, min(last, x.shape[axis]) - first)
