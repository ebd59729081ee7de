"""Quantization: conversions, and products of quantized values."""

from dataclasses import replace

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.importing.draft import DraftOperand, KnownTensor, QuantizedCodes, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.linear import I32, centred_product, integer_convolved
from openinfer.loops.dim import is_same

F32 = DTYPES["f32"]


@onnx_op("QuantizeLinear", "com.microsoft:QuantizeLinear")
def _quantize(n: NodeContext) -> NodeResults:
    scale, point = n.input(1), n.optional(2)
    to = _target(n, point)
    x = n.emit.cast(n.x, scale.dtype)
    axis = n.axis(n.integer("axis", 1)) if len(scale.shape) and n.rank > 1 else 0
    if n.integer("block_size", 0):
        return _quantized_blocks(n, x, scale, point, to, axis)
    if to.kind == "float":
        return n.emit.op("cast", n.emit.op("div", x, _along(n, scale, axis)), to=to)
    scale, points = _single(n, scale), None if point is None else _single(n, point)
    return n.emit.op("quantize", x, scale, points, to=to, axis=axis or None if len(scale.shape) else None)


def _target(n: NodeContext, point: DraftOperand | None) -> DType:
    if point is not None:
        return point.dtype
    return n.dtype("output_dtype") if n.integer("output_dtype", 0) else DTYPES["u8"]


def _single(n: NodeContext, operand: DraftOperand) -> DraftOperand:
    """A tensor of one element as a scalar."""
    return n.emit.reshape(operand, ()) if operand.shape and all(is_same(one, 1) for one in operand.shape) else operand


def _along(n: NodeContext, values: DraftOperand, axis: int) -> DraftOperand:
    """One-dimensional values shaped to broadcast along an axis."""
    if len(values.shape) != 1:
        return values
    return n.emit.reshape(values, tuple(values.shape[0] if one == axis else 1 for one in range(n.rank)))


def _repeated(n: NodeContext, values: DraftOperand, axis: int) -> DraftOperand:
    """One value per block along an axis, repeated to one per element."""
    block, length = n.integer("block_size", 0), n.x.shape[axis]
    shape = tuple(values.shape)
    if len(shape) != n.rank or block < 1:
        raise Unsupported("its scales do not fit its blocks")
    longer = n.emit.op("unsqueeze", values, axes=(axis + 1,))
    longer = n.emit.op("expand", longer, shape=(*shape[: axis + 1], block, *shape[axis + 1 :]))
    longer = n.emit.reshape(longer, (*shape[:axis], shape[axis] * block, *shape[axis + 1 :]))
    if is_same(shape[axis] * block, length):
        return longer
    return n.emit.op("slice", longer, starts=(0,), ends=(length,), axes=(axis,))


def _quantized_blocks(
    n: NodeContext, x: DraftOperand, scale: DraftOperand, point: DraftOperand | None, to: DType, axis: int
) -> DraftOperand:
    steps = n.emit.op("round", n.emit.op("div", x, _repeated(n, scale, axis)))
    if point is not None:
        steps = n.emit.op("add", steps, n.emit.cast(_repeated(n, point, axis), x.dtype))
    return n.emit.op("cast", steps, to=to, rounding_mode="nearest")


@onnx_op("DequantizeLinear", "com.microsoft:DequantizeLinear")
def _dequantize(n: NodeContext) -> NodeResults:
    scale, point = n.input(1), n.optional(2)
    axis = n.axis(n.integer("axis", 1)) if len(scale.shape) and n.rank > 1 else 0
    blocks = bool(n.integer("block_size", 0))
    if blocks or n.x.dtype.kind == "float":
        own = _repeated(n, scale, axis) if blocks else _along(n, scale, axis)
        steps = n.emit.cast(n.x, scale.dtype)
        if point is not None and not (isinstance(point, KnownTensor) and not np.any(point.array)):
            points = _repeated(n, point, axis) if blocks else _along(n, point, axis)
            steps = n.emit.op("sub", steps, n.emit.cast(points, scale.dtype))
        return n.emit.op("mul", steps, own)
    scale, points_ = _single(n, scale), None if point is None else _single(n, point)
    if isinstance(points_, KnownTensor) and not np.any(points_.array):
        points_ = None
    found = n.emit.op("dequantize", n.x, scale, points_, axis=axis or None if len(scale.shape) else None)
    if isinstance(found, KnownTensor):
        found = replace(found, codes=_stored_codes(n.x, scale, points_, axis))
    return n.emit.cast(found, n.dtype("output_dtype")) if n.integer("output_dtype", 0) else found


def _stored_codes(x: DraftOperand, scale: DraftOperand, point: DraftOperand | None, axis: int) -> QuantizedCodes | None:
    """The codes of stored weights, if they fit i8 without their zero points; else None."""
    if not isinstance(x, KnownTensor) or not isinstance(scale, KnownTensor) or x.dtype.bits > 8:
        return None
    values = x.array.astype(np.int32)
    if isinstance(point, KnownTensor):
        shape = (-1, *(1,) * (values.ndim - 1 - axis)) if point.shape else ()
        values = values - point.array.astype(np.int32).reshape(shape)
    if not values.size or values.min() < -128 or values.max() > 127:
        return None
    return QuantizedCodes(values.astype(np.int8), scale.array, axis, x.hint)


@onnx_op("DynamicQuantizeLinear")
def _dynamic_quantize(n: NodeContext) -> NodeResults:
    return n.emit.ops("dynamic_quantize", n.x)


@onnx_op("QLinearMatMul")
def _qlinear_matmul(n: NodeContext) -> NodeResults:
    a_scale, a_point, b, b_scale, b_point, y_scale, y_point = (n.input(one) for one in range(1, 8))
    product = centred_product(n, (n.x, a_point), (b, b_point))
    if len(a_scale.shape) == 1 and not is_same(a_scale.shape[0], 1):
        a_scale = n.emit.reshape(a_scale, (a_scale.shape[0], 1))
    return _requantized(n, product, a_scale, b_scale, y_scale, y_point)


@onnx_op("QLinearConv")
def _qlinear_conv(n: NodeContext) -> NodeResults:
    x_scale, x_point, w, w_scale, w_point, y_scale, y_point = (n.input(one) for one in range(1, 8))
    bias = n.optional(8)
    product = integer_convolved(n, n.x, w, x_point, w_point, None if bias is None else n.emit.cast(bias, I32))
    if len(w_scale.shape) == 1 and not is_same(w_scale.shape[0], 1):
        w_scale = n.emit.reshape(w_scale, (w_scale.shape[0], *(1,) * (n.rank - 2)))
    return _requantized(n, product, x_scale, w_scale, y_scale, y_point)


def _requantized(
    n: NodeContext,
    product: DraftOperand,
    one: DraftOperand,
    other: DraftOperand,
    y_scale: DraftOperand,
    y_point: DraftOperand,
) -> DraftOperand:
    """Requantize an exact product in i32 to the scale of the result."""
    one, other, y_scale, y_point = (_single(n, operand) for operand in (one, other, y_scale, y_point))
    factor = n.emit.op("div", n.emit.op("mul", one, other), y_scale)
    real = n.emit.op("mul", n.emit.cast(product, F32), n.emit.cast(factor, F32))
    return n.emit.op("quantize", real, known(np.float32(1)), y_point, to=y_point.dtype)
