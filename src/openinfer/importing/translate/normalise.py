"""Normalisations."""

import numpy as np

from openinfer.importing.draft import DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_same, is_symbolic


@onnx_op("BatchNormalization")
def _batch_norm(n: NodeContext) -> NodeResults:
    """Normalise with the stored statistics, or with those of the input."""
    if any(n.reads(one) for one in range(1, 5)):
        raise Unsupported("it computes statistics as in training", "export the model for inference (model.eval())")
    gamma, beta, mean, var = (n.emit.cast(n.input(place), n.x.dtype) for place in range(1, 5))
    if n.integer("training_mode", 0):
        axes = tuple(axis for axis in range(n.rank) if axis != 1)
        mean, var = (n.emit.op(name, n.x, axes=axes) for name in ("mean_axis", "var_axis"))
    return n.emit.op("batch_norm", n.x, gamma, beta, mean, var, eps=n.real("epsilon", 1e-5))


@onnx_op("InstanceNormalization")
def _instance_norm(n: NodeContext) -> NodeResults:
    return n.emit.op("instance_norm", n.x, n.input(1), n.input(2), eps=n.real("epsilon", 1e-5))


@onnx_op("LayerNormalization")
def _layer_norm(n: NodeContext) -> NodeResults:
    axis = n.axis(n.integer("axis", -1))
    axes = tuple(range(axis, n.rank))
    eps = n.real("epsilon", 1e-5)
    relative = tuple(one - n.rank for one in axes)
    y = n.emit.op("layer_norm", n.x, n.input(1), n.optional(2), axes=None if relative == (-1,) else relative, eps=eps)
    if not n.reads(1) and not n.reads(2):
        return (y, None, None)
    mean = n.emit.op("mean_axis", n.x, axes=axes, keepdims=True)
    var = n.emit.op("var_axis", n.x, axes=axes, keepdims=True)
    inverse = n.emit.op("rsqrt", n.emit.op("add", var, n.emit.scalar(eps, n.x.dtype)))
    return (y, mean, inverse)


@onnx_op("RMSNormalization")
def _rms_norm(n: NodeContext) -> NodeResults:
    axis = n.axis(n.integer("axis", -1))
    axes = tuple(one - n.rank for one in range(axis, n.rank))
    return n.emit.op("rms_norm", n.x, n.input(1), axes=None if axes == (-1,) else axes, eps=n.real("epsilon", 1e-5))


@onnx_op("GroupNormalization")
def _group_norm(n: NodeContext) -> NodeResults:
    """Scale and bias have an element per group before opset 21, and per channel since."""
    groups, channels = n.integer("num_groups", 1), n.x.shape[1]
    gamma, beta = n.input(1), n.input(2)
    if not is_same(gamma.shape[0], channels):
        per_group = channels // groups
        gamma, beta = (_repeated(n, one, per_group) for one in (gamma, beta))
    return n.emit.op("group_norm", n.x, gamma, beta, groups=groups, eps=n.real("epsilon", 1e-5))


def _repeated(n: NodeContext, values: DraftOperand, count: int) -> DraftOperand:
    column = n.emit.op("unsqueeze", values, axes=(1,))
    rows = n.emit.op("expand", column, shape=(values.shape[0], count))
    return n.emit.reshape(rows, (values.shape[0] * count,))


@onnx_op("LpNormalization")
def _lp_norm(n: NodeContext) -> NodeResults:
    """A norm of 0 yields zeros."""
    axis, power = n.axis(n.integer("axis", -1)), n.integer("p", 2)
    if power == 2:
        size = n.emit.op("norm_axis", n.x, axes=(axis,), keepdims=True)
    else:
        size = n.emit.op("sum_axis", n.emit.op("abs", n.x), axes=(axis,), keepdims=True)
    zero = n.emit.scalar(0, n.x.dtype)
    is_zero = n.emit.op("eq", size, zero)
    return n.emit.op("where", is_zero, zero, n.emit.op("div", n.x, size))


@onnx_op("LRN")
def _lrn(n: NodeContext) -> NodeResults:
    """``x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta``, as a banded product."""
    size, channels = n.integer("size", 1), n.x.shape[1]
    if is_symbolic(channels) or channels > 4096:
        raise Unsupported("its number of channels is dynamic, or too large")
    alpha, beta, bias = n.real("alpha", 1e-4), n.real("beta", 0.75), n.real("bias", 1.0)
    index = np.arange(channels)
    apart = index[None, :] - index[:, None]
    band = (apart >= -((size - 1) // 2)) & (apart <= size // 2)
    squares = n.emit.op("square", n.x)
    flat = n.emit.reshape(squares, (n.x.shape[0], channels, _product(n.x.shape[2:])))
    sums = n.emit.op("matmul", known(band.astype(n.x.dtype.array), n.x.dtype), flat)
    sums = n.emit.reshape(sums, n.x.shape)
    scaled = n.emit.op("mul", sums, n.emit.scalar(alpha / size, n.x.dtype))
    shifted = n.emit.op("add", scaled, n.emit.scalar(bias, n.x.dtype))
    return n.emit.op("div", n.x, n.emit.op("pow", shifted, n.emit.scalar(beta, n.x.dtype)))


def _product(shape: tuple[int, ...]) -> int:
    count: int = 1
    for one in shape:
        count = count * one
    return count


@onnx_op("MeanVarianceNormalization")
def _mean_variance(n: NodeContext) -> NodeResults:
    axes = tuple(n.axis(one) for one in n.ints("axes") or (0, 2, 3))
    centred = n.emit.op("sub", n.x, n.emit.op("mean_axis", n.x, axes=axes, keepdims=True))
    var = n.emit.op("var_axis", n.x, axes=axes, keepdims=True)
    deviation = n.emit.op("add", n.emit.op("sqrt", var), n.emit.scalar(1e-9, n.x.dtype))
    return n.emit.op("div", centred, deviation)
