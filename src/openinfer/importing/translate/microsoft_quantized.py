"""Quantized ops of ONNX Runtime's own domain: exact integer products; other ops compute in real numbers."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import DraftOperand, KnownTensor, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.linear import I32, centred_product
from openinfer.importing.translate.microsoft import microsoft, unpacked
from openinfer.loops.dim import is_same

F32 = DTYPES["f32"]


def _real(n: NodeContext, place: int) -> DraftOperand:
    """Dequantize three consecutive inputs: values, scale and zero point."""
    x, scale, point = n.input(place), _single(n, n.input(place + 1)), n.optional(place + 2)
    point = None if point is None else _single(n, point)
    if isinstance(point, KnownTensor) and not np.any(point.array):
        point = None
    return n.emit.op("dequantize", x, scale, point)


def _single(n: NodeContext, operand: DraftOperand) -> DraftOperand:
    return n.emit.reshape(operand, ()) if operand.shape and all(is_same(one, 1) for one in operand.shape) else operand


def _codes(n: NodeContext, x: DraftOperand, place: int) -> DraftOperand:
    """Quantize real numbers with the scale and zero point at a position of the inputs."""
    scale, point = _single(n, n.input(place)), n.optional(place + 1)
    to = n.x.dtype if point is None else point.dtype
    return n.emit.op("quantize", x, scale, None if point is None else _single(n, point), to=to)


@onnx_op(microsoft("QLinearAdd"), microsoft("QLinearMul"))
def _qlinear_binary(n: NodeContext) -> NodeResults:
    op = "add" if n.node.op == "QLinearAdd" else "mul"
    return _codes(n, n.emit.op(op, _real(n, 0), _real(n, 3)), 6)


_UNARY: dict[str, Callable[[NodeContext, DraftOperand], DraftOperand]] = {
    "QLinearSigmoid": lambda n, x: n.emit.op("sigmoid", x),
    "QLinearLeakyRelu": lambda n, x: n.emit.op("relu", x, negative_slope=n.real("alpha", 0.01)),
    "QLinearSoftmax": lambda n, x: n.emit.op("softmax", x, axis=n.axis(n.integer("axis", -1)) - n.rank),
    "QLinearGlobalAveragePool": lambda n, x: n.emit.op(
        "mean_axis", x, axes=tuple(range(1, n.rank - 1) if n.integer("channels_last", 0) else range(2, n.rank)),
        keepdims=True,
    ),
}  # fmt: skip


@onnx_op(*map(microsoft, _UNARY))
def _qlinear_unary(n: NodeContext) -> NodeResults:
    if n.node.op == "QLinearSoftmax" and n.integer("opset", 13) < 13:
        raise Unsupported("before opset 13, softmax spans several axes")
    return _codes(n, _UNARY[n.node.op](n, _real(n, 0)), 3)


@onnx_op(microsoft("QLinearConcat"))
def _qlinear_concat(n: NodeContext) -> NodeResults:
    count = (len(n.operands) - 2) // 3
    parts = [_real(n, 2 + 3 * one) for one in range(count)]
    point = n.input(1)
    joined = n.emit.op("concat", *parts, axis=n.axis(n.integer("axis", 0), len(parts[0].shape)))
    return n.emit.op("quantize", joined, _single(n, n.input(0)), _single(n, point), to=point.dtype)


@onnx_op(microsoft("QGemm"))
def _qgemm(n: NodeContext) -> NodeResults:
    """``alpha * a * b + c`` with c in i32, in steps of both scales; the result is real if no scale is given."""
    a_scale, a_point, b, b_scale, b_point = (n.input(one) for one in range(1, 6))
    left = n.emit.transpose(n.x, (1, 0)) if n.integer("transA", 0) else n.x
    right = n.emit.transpose(b, (1, 0)) if n.integer("transB", 0) else b
    product = centred_product(n, (left, a_point), (right, b_point))
    bias = n.optional(6)
    product = product if bias is None else n.emit.op("add", product, n.emit.cast(bias, I32))
    factor = n.emit.op("mul", _single(n, a_scale), _single(n, b_scale))
    alpha = n.real("alpha", 1.0)
    factor = factor if alpha == 1 else n.emit.op("mul", factor, n.emit.scalar(alpha, factor.dtype))
    real = n.emit.op("mul", n.emit.cast(product, F32), factor)
    return real if n.optional(7) is None else _codes(n, real, 7)


@onnx_op(microsoft("MatMulIntegerToFloat"))
def _integer_to_float(n: NodeContext) -> NodeResults:
    product = centred_product(n, (n.x, n.optional(4)), (n.input(1), n.optional(5)))
    return _scaled(n, product, (n.input(2), n.input(3)), n.optional(6))


@onnx_op(microsoft("DynamicQuantizeMatMul"))
def _dynamic_matmul(n: NodeContext) -> NodeResults:
    codes, scale, point = n.emit.ops("dynamic_quantize", n.x)
    product = centred_product(n, (codes, point), (n.input(1), n.optional(3)))
    return _scaled(n, product, (scale, n.input(2)), n.optional(4))


def _scaled(
    n: NodeContext, product: DraftOperand, scales: tuple[DraftOperand, DraftOperand], bias: DraftOperand | None
) -> DraftOperand:
    factor = reduce(lambda one, other: n.emit.op("mul", one, other), (_single(n, one) for one in scales))
    real = n.emit.op("mul", n.emit.cast(product, F32), factor)
    return real if bias is None else n.emit.op("add", real, bias)


@onnx_op(microsoft("GatherBlockQuantized"))
def _gather_blocks(n: NodeContext) -> NodeResults:
    """Rows of a table with elements of a few bits and a scale per block along the last axis."""
    data, scales, points = n.optional(0), n.optional(2), n.optional(3)
    block, bits = n.integer("block_size", 128), n.integer("bits", 4)
    if not isinstance(data, KnownTensor) or not isinstance(scales, KnownTensor):
        raise Unsupported("its table is not stored in the file")
    if points is not None and not isinstance(points, KnownTensor):
        raise Unsupported("its zero points are not stored in the file")
    rank = len(data.shape)
    if rank != 2 or n.axis(n.integer("gather_axis", 0)) != 0 or n.axis(n.integer("quantize_axis", 1)) != 1:
        raise Unsupported("only tables with rows on axis 0 and blocks along axis 1 are supported")
    rows, count = scales.shape
    packed = data.dtype.bits == 8 and bits < 8
    length = data.shape[1] * (8 // bits if packed else 1)
    steps = unpacked(data.array, bits, rows, length) if packed else data.array
    is_shifted = packed or (data.dtype.kind == "uint" and bits == 8)
    offsets = np.full((rows, count), 1 << (bits - 1) if is_shifted else 0)
    if points is not None:
        offsets = unpacked(points.array, bits, rows, count) if packed else points.array
    spread = [np.repeat(one.astype(np.float32), block, axis=1)[:, :length] for one in (offsets, scales.array)]
    values = (steps.astype(np.float32) - spread[0]) * spread[1]
    table = known(values.astype(scales.dtype.array), scales.dtype, data.hint)
    return n.emit.op("embedding", table, n.input(1))
