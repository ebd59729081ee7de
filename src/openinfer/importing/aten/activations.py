"""Activations."""

from openinfer.importing.aten.context import AtenContext, AtenResults, aten_op, word
from openinfer.importing.draft import DraftOperand

_PLAIN = {
    "relu": "relu",
    "selu": "selu",
    "silu": "silu",
    "mish": "mish",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
}


@aten_op(*_PLAIN)
def _plain(n: AtenContext) -> AtenResults:
    return n.emit.op(_PLAIN[word(n)], n.x)


@aten_op("relu6")
def _relu6(n: AtenContext) -> AtenResults:
    return n.emit.op("clamp", n.x, min=0.0, max=6.0)


@aten_op("leaky_relu")
def _leaky_relu(n: AtenContext) -> AtenResults:
    return n.emit.op("relu", n.x, negative_slope=n.real("negative_slope", 0.01))


@aten_op("gelu")
def _gelu(n: AtenContext) -> AtenResults:
    kind = n.text("approximate", "none")
    return n.emit.op("gelu", n.x, approximate=None if kind == "none" else kind)


@aten_op("elu")
def _elu(n: AtenContext) -> AtenResults:
    """``scale * elu(input_scale * x)`` below 0, ``scale * x`` above it."""
    scale, inner = n.real("scale", 1.0), n.real("input_scale", 1.0)
    alpha = n.real("alpha", 1.0)
    if inner == 1:
        found = n.emit.op("elu", n.x, alpha=alpha)
    else:
        zero = n.emit.scalar(0, n.dtype)
        below = n.emit.op("elu", n.emit.op("mul", n.x, n.emit.scalar(inner, n.dtype)), alpha=alpha)
        found = n.emit.op("where", n.emit.op("gt", n.x, zero), n.x, below)
    return found if scale == 1 else n.emit.op("mul", found, n.emit.scalar(scale, n.dtype))


@aten_op("celu")
def _celu(n: AtenContext) -> AtenResults:
    return n.emit.op("celu", n.x, alpha=n.real("alpha", 1.0))


@aten_op("softplus")
def _softplus(n: AtenContext) -> AtenResults:
    return n.emit.op("softplus", n.x, beta=n.real("beta", 1.0))


@aten_op("threshold")
def _threshold(n: AtenContext) -> AtenResults:
    return n.emit.op("threshold", n.x, value=n.real("threshold"), replacement=n.real("value"))


@aten_op("glu")
def _glu(n: AtenContext) -> AtenResults:
    return n.emit.op("glu", n.x, axis=n.axis(n.integer("dim", -1)) - n.rank)


@aten_op("prelu", "_prelu_kernel")
def _prelu(n: AtenContext) -> AtenResults:
    """One slope for all channels, or one per channel (the second axis)."""
    slope = n.tensor("weight")
    if len(slope.shape) == 1 and n.rank > 2:
        slope = n.emit.reshape(slope, (slope.shape[0], *(1,) * (n.rank - 2)))
    return n.emit.op("prelu", n.x, slope)


@aten_op("softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax")
def _softmax(n: AtenContext) -> AtenResults:
    op = "log_softmax" if "log" in word(n) else "softmax"
    return n.emit.op(op, _real(n), axis=n.axis(n.integer("dim", -1)) - max(n.rank, 1))


def _real(n: AtenContext) -> DraftOperand:
    return n.cast(n.x, n.dtype)
