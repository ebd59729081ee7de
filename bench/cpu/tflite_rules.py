"""How each ONNX op is written in a TFLite file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench.cpu.engines.base import CannotError
from bench.cpu.onnx_rewrite import Node
from bench.cpu.onnx_tflite import Translation, Value, first, last
from bench.cpu.tflite_file import options

SAME, VALID = 0, 1
BINARY = {"Add": "ADD", "Mul": "MUL", "Sub": "SUB", "Div": "DIV"}
UNARY = {"HardSwish": "HARD_SWISH", "Sigmoid": "LOGISTIC", "Tanh": "TANH", "Sqrt": "SQRT", "Relu": "RELU"}
UNARY |= {"Gelu": "GELU", "Neg": "NEG"}
OF_OPTIONS = {"ADD": "Add", "MUL": "Mul", "SUB": "Sub", "DIV": "Div", "HARD_SWISH": "HardSwish", "GELU": "Gelu"}
Rule = Callable[[Translation, Node], None]
RULES: dict[str, Rule] = {}


def translated(path: Path) -> Translation:
    """All nodes of a model, in order; what a rule has taken into the operator of another node is done already."""
    to = Translation(path)
    for node in to.graph.nodes:
        if node.output in to.values:
            continue
        if node.op not in RULES:
            raise CannotError(f"{node.op} is not among the ops that are written for LiteRT")
        RULES[node.op](to, node)
    return to


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of some ops."""

    def add(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return add


@rule("Conv")
def conv(to: Translation, node: Node) -> None:
    x = to.image(to.of(node.inputs[0]))
    shape = to.graph.shape(node.inputs[1])
    groups, rank = node.own.get("group", 1), len(shape) - 2
    is_depthwise = groups > 1 and groups == last(x.shape)[3] and shape[1] == 1
    if groups > 1 and not is_depthwise:
        raise CannotError("a grouped convolution that is not depthwise")
    padded = with_pads(to, x, node, rank)
    order: tuple[int, ...] = (1, 2, 3, 0) if is_depthwise else (0, 2, 3, 1)
    if rank == 1:
        four = (shape[0], shape[1], 1, shape[2])
        to.graph.constants[node.inputs[1]] = to.graph.real(node.inputs[1]).reshape(four)
    w, scales = to.weights(node.inputs[1], order, 3 if is_depthwise else 0, x)
    b = to.bias(node.inputs[2] if len(node.inputs) > 2 else None, x, scales, shape[0])
    fused, name = to.activation(node)
    out = to.new(name, is_image=True)
    strides, dilations = ([1] * (2 - rank) + node.own.get(one, [1] * rank) for one in ("strides", "dilations"))
    own: dict[str, Any] = {"padding": VALID, "strideH": strides[0], "strideW": strides[1]}
    own |= {"dilationHFactor": dilations[0], "dilationWFactor": dilations[1], "fusedActivationFunction": fused}
    if is_depthwise:
        own["depthMultiplier"] = shape[0] // groups
    kind = "DepthwiseConv2D" if is_depthwise else "Conv2D"
    code = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
    if padded is None:
        own["padding"] = SAME
    to.file.operator(code, [(padded or x).index, w, b], [out.index], options(kind, **own))


def with_pads(to: Translation, x: Value, node: Node, rank: int) -> Value | None:
    """The image with zeros around it; ``None`` where the operator pads in the same way itself."""
    pads = node.own.get("pads", [0] * 2 * rank)
    if not any(pads):
        return x
    strides, dilations = (node.own.get(one, [1] * rank) for one in ("strides", "dilations"))
    kernel = to.graph.shape(node.inputs[1])[2:]
    inputs, outputs = x.shape[2:], to.graph.shape(node.output)[2:]
    wanted = []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = max((outputs[axis] - 1) * strides[axis] + reach - inputs[axis], 0)
        is_same = outputs[axis] == -(-inputs[axis] // strides[axis])
        wanted.append((total // 2, total - total // 2) if is_same else None)
    given = [(pads[axis], pads[axis + rank]) for axis in range(rank)]
    if wanted == given:
        return None
    both = [(0, 0)] * (2 - rank) + given
    extents = last(x.shape)
    shape = (extents[0], extents[1] + sum(both[0]), extents[2] + sum(both[1]), extents[3])
    made = to.like(x, shape)
    amounts = to.file.constant(np.array([(0, 0), *both, (0, 0)], np.int32))
    to.file.operator("PAD", [x.index, amounts], [made], options("Pad"))
    return Value(made, first(shape), is_image=True, quant=x.quant)


@rule("Gemm", "Linear", "MatMul")
def product(to: Translation, node: Node) -> None:
    x, other = to.plain(to.of(node.inputs[0])), node.inputs[1]
    if not to.graph.is_constant(other):
        out = to.new(node.output)
        to.file.operator("BATCH_MATMUL", [x.index, to.plain(to.of(other)).index], [out.index], options("BatchMatMul"))
        return
    order = (0, 1) if node.own.get("transB") else (1, 0)
    w, scales = to.weights(other, order, 0, x)
    count = to.graph.shape(other)[order[0]]
    b = to.bias(node.inputs[2] if len(node.inputs) > 2 else None, x, scales, count)
    fused, name = to.activation(node)
    out = to.new(name)
    own = options("FullyConnected", fusedActivationFunction=fused, keepNumDims=len(out.shape) != 2)
    to.file.operator("FULLY_CONNECTED", [x.index, w, b], [out.index], own)


@rule(*BINARY)
def binary(to: Translation, node: Node) -> None:
    operands = [to.of(name) for name in node.inputs]
    fused, name = to.activation(node)
    is_image = any(one.is_image for one in operands)
    if is_image:
        operands = [one if one.is_image or not one.shape else to.image(one) for one in operands]
    out = to.new(name, is_image=is_image)
    code = BINARY[node.op]
    own = options(OF_OPTIONS[code], fusedActivationFunction=fused)
    to.file.operator(code, [one.index for one in operands], [out.index], own)


@rule(*UNARY)
def unary(to: Translation, node: Node) -> None:
    x = to.of(node.inputs[0])
    out = to.new(node.output, is_image=x.is_image)
    code = UNARY[node.op]
    own = options(OF_OPTIONS[code]) if code in OF_OPTIONS else None
    to.file.operator(code, [x.index], [out.index], own)


@rule("HardSigmoid")
def hard_sigmoid(to: Translation, node: Node) -> None:
    """relu6(x + 3) / 6, which is what TensorFlow's is written as; in floats, where its operand is of integers."""
    x = to.of(node.inputs[0])
    shape, given = last(x.shape) if x.is_image else x.shape, x.index
    if x.quant is not None:
        given = to.file.tensor(shape)
        to.file.operator("DEQUANTIZE", [x.index], [given])
    inner = to.file.tensor(shape)
    three, sixth = (to.file.constant(np.array(one, np.float32)) for one in (3.0, 1 / 6))
    to.file.operator("ADD", [given, three], [inner], options("Add", fusedActivationFunction=3))
    out = to.new(node.output, is_image=x.is_image)
    made = out.index if out.quant is None else to.file.tensor(shape)
    to.file.operator("MUL", [inner, sixth], [made], options("Mul"))
    if out.quant is not None:
        to.file.operator("QUANTIZE", [made], [out.index])


@rule("Clip")
def clip(to: Translation, node: Node) -> None:
    if [float(to.graph.real(one)) for one in node.inputs[1:]] != [0, 6]:
        raise CannotError("a Clip that is no Relu6")
    x = to.of(node.inputs[0])
    to.file.operator("RELU6", [x.index], [to.new(node.output, is_image=x.is_image).index])


@rule("GlobalAveragePool")
def mean(to: Translation, node: Node) -> None:
    x = to.image(to.of(node.inputs[0]))
    out = to.new(node.output, is_image=True)
    to.file.operator("MEAN", [x.index, to.ints([1, 2])], [out.index], options("Reducer", keepDims=True))


@rule("MaxPool")
def max_pool(to: Translation, node: Node) -> None:
    """Images that are padded are never negative here, so that zeros do not count."""
    x = to.image(to.of(node.inputs[0]))
    kernel, strides = node.own["kernel_shape"], node.own.get("strides", [1, 1])
    pads = node.own.get("pads", [0, 0, 0, 0])
    if any(pads):
        shape = last(x.shape)
        padded = (shape[0], shape[1] + pads[0] + pads[2], shape[2] + pads[1] + pads[3], shape[3])
        made = to.like(x, padded)
        amounts = np.array([(0, 0), (pads[0], pads[2]), (pads[1], pads[3]), (0, 0)], np.int32)
        to.file.operator("PAD", [x.index, to.file.constant(amounts)], [made], options("Pad"))
        x = Value(made, first(padded), is_image=True, quant=x.quant)
    out = to.new(node.output, is_image=True)
    own = {"filterHeight": kernel[0], "filterWidth": kernel[1], "strideH": strides[0], "strideW": strides[1]}
    to.file.operator("MAX_POOL_2D", [x.index], [out.index], options("Pool2D", padding=VALID, **own))


@rule("Concat")
def concat(to: Translation, node: Node) -> None:
    operands = [to.of(name) for name in node.inputs]
    is_image = any(one.is_image for one in operands)
    axis = node.own["axis"] % len(operands[0].shape)
    if is_image:
        operands = [to.image(one) for one in operands]
        axis = {0: 0, 1: 3, 2: 1, 3: 2}[axis]
    out = to.new(node.output, is_image=is_image)
    to.file.operator("CONCATENATION", [one.index for one in operands], [out.index], options("Concatenation", axis=axis))


@rule("Resize")
def resize(to: Translation, node: Node) -> None:
    x = to.image(to.of(node.inputs[0]))
    out = to.new(node.output, is_image=True)
    size = to.ints(to.graph.shape(node.output)[2:])
    to.file.operator("RESIZE_NEAREST_NEIGHBOR", [x.index, size], [out.index], options("ResizeNearestNeighbor"))


@rule("Flatten", "Reshape", "Unsqueeze")
def reshape(to: Translation, node: Node) -> None:
    x = to.plain(to.of(node.inputs[0]))
    shape = to.graph.shape(node.output)
    out = to.new(node.output)
    to.file.operator("RESHAPE", [x.index, to.ints(shape)], [out.index], options("Reshape", newShape=list(shape)))


@rule("Transpose")
def transpose(to: Translation, node: Node) -> None:
    x = to.plain(to.of(node.inputs[0]))
    out = to.new(node.output)
    to.file.operator("TRANSPOSE", [x.index, to.ints(node.own["perm"])], [out.index], options("Transpose"))


@rule("Slice")
def part(to: Translation, node: Node) -> None:
    """Along one axis."""
    x = to.plain(to.of(node.inputs[0]))
    start, axis = (to.graph.numbers(node.inputs[at])[0] for at in (1, 3))
    out = to.new(node.output)
    starts = [start if at == axis else 0 for at in range(len(x.shape))]
    to.file.operator("SLICE", [x.index, to.ints(starts), to.ints(out.shape)], [out.index], options("Slice"))


@rule("Softmax")
def softmax(to: Translation, node: Node) -> None:
    x = to.plain(to.of(node.inputs[0]))
    to.file.operator("SOFTMAX", [x.index], [to.new(node.output).index], options("Softmax", beta=1.0))


@rule("ReduceMean", "ReduceSum")
def reduction(to: Translation, node: Node) -> None:
    x = to.plain(to.of(node.inputs[0]))
    own = options("Reducer", keepDims=bool(node.own.get("keepdims", 1)))
    code = {"ReduceMean": "MEAN", "ReduceSum": "SUM"}[node.op]
    axes = to.ints(to.graph.numbers(node.inputs[1]))
    to.file.operator(code, [x.index, axes], [to.new(node.output).index], own)


@rule("LayerNormalization")
def layer_norm(to: Translation, node: Node) -> None:
    """In parts, as converters write it."""
    x = to.plain(to.of(node.inputs[0]))
    shape = x.shape
    one, keep = (*shape[:-1], 1), options("Reducer", keepDims=True)
    middle, spread, shifted, root = (to.file.tensor(one) for _ in range(4))
    square, centred, scaled, weighted = (to.file.tensor(shape) for _ in range(4))
    axis, eps = to.ints([len(shape) - 1]), to.file.constant(np.array(node.own.get("epsilon", 1e-5), np.float32))
    to.file.operator("MEAN", [x.index, axis], [middle], keep)
    to.file.operator("SQUARED_DIFFERENCE", [x.index, middle], [square], options("SquaredDifference"))
    to.file.operator("MEAN", [square, axis], [spread], keep)
    to.file.operator("ADD", [spread, eps], [shifted], options("Add"))
    to.file.operator("RSQRT", [shifted], [root])
    to.file.operator("SUB", [x.index, middle], [centred], options("Sub"))
    to.file.operator("MUL", [centred, root], [scaled], options("Mul"))
    to.file.operator("MUL", [scaled, to.of(node.inputs[1]).index], [weighted], options("Mul"))
    to.file.operator("ADD", [weighted, to.of(node.inputs[2]).index], [to.new(node.output).index], options("Add"))


@rule("ReduceL2")
def length(to: Translation, node: Node) -> None:
    x = to.plain(to.of(node.inputs[0]))
    square, total = to.file.tensor(x.shape), to.file.tensor(to.graph.shape(node.output))
    own = options("Reducer", keepDims=bool(node.own.get("keepdims", 1)))
    to.file.operator("MUL", [x.index, x.index], [square], options("Mul"))
    to.file.operator("SUM", [square, to.ints(to.graph.numbers(node.inputs[1]))], [total], own)
    to.file.operator("SQRT", [total], [to.new(node.output).index])


@rule("Gather")
def gather(to: Translation, node: Node) -> None:
    operands = [to.of(name).index for name in node.inputs]
    to.file.operator("GATHER", operands, [to.new(node.output).index], options("Gather", axis=node.own.get("axis", 0)))


@rule("Cast")
def cast(to: Translation, node: Node) -> None:
    if node.own["to"] != 1:
        raise CannotError("a cast to anything but f32")
    to.file.operator("CAST", [to.of(node.inputs[0]).index], [to.new(node.output).index], options("Cast"))
