"""Elementwise ops: arithmetic, comparisons, unary functions, activations."""

from functools import reduce
from math import inf

import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.importing.draft import DraftOperand, KnownTensor
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op

_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor",
    "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor", "Equal": "eq", "Less": "lt", "Greater": "gt",
    "LessOrEqual": "le", "GreaterOrEqual": "ge",
}  # fmt: skip
_UNARY = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Reciprocal": "recip", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Not": "not", "BitwiseNot": "not", "IsNaN": "is_nan",
    "Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign", "HardSwish": "hard_swish",
    "Mish": "mish",
}  # fmt: skip


@onnx_op(*_BINARY)
def _binary(n: NodeContext) -> NodeResults:
    return n.emit.op(_BINARY[n.node.op], n.x, n.input(1))


@onnx_op(*_UNARY)
def _unary(n: NodeContext) -> NodeResults:
    return n.emit.op(_UNARY[n.node.op], n.x)


@onnx_op("Identity")
def _identity(n: NodeContext) -> NodeResults:
    return n.x


@onnx_op("Pow")
def _pow(n: NodeContext) -> NodeResults:
    """The exponent may have another dtype; the result has that of the base."""
    base, exponent = n.x, n.input(1)
    if base.dtype.kind == "float" or exponent.dtype.kind != "float":
        if isinstance(exponent, KnownTensor) and exponent.array.size == 1 and base.dtype.kind == "float":
            simple = _simple_power(n, exponent.array.reshape(-1)[0])
            if simple is not None and len(exponent.shape) <= len(base.shape):
                return simple
        return n.emit.op("pow", base, n.emit.cast(exponent, base.dtype))
    wide = n.emit.op("pow", n.emit.cast(base, DTYPES["f64"]), n.emit.cast(exponent, DTYPES["f64"]))
    return n.emit.cast(wide, base.dtype)


def _simple_power(n: NodeContext, exponent: float) -> DraftOperand | None:
    if exponent == 2:
        return n.emit.op("square", n.x)
    return n.emit.op("sqrt", n.x) if exponent == 0.5 else None


@onnx_op("Mod")
def _mod(n: NodeContext) -> NodeResults:
    return n.emit.op("rem" if n.integer("fmod", 0) else "mod", n.x, n.input(1))


@onnx_op("Max", "Min", "Sum")
def _variadic(n: NodeContext) -> NodeResults:
    name = {"Max": "max", "Min": "min", "Sum": "add"}[n.node.op]
    return reduce(lambda one, other: n.emit.op(name, one, other), _all(n))


@onnx_op("Mean")
def _mean(n: NodeContext) -> NodeResults:
    given = _all(n)
    total = reduce(lambda one, other: n.emit.op("add", one, other), given)
    return n.emit.op("div", total, n.emit.scalar(len(given), total.dtype)) if len(given) > 1 else total


def _all(n: NodeContext) -> list[DraftOperand]:
    given = [one for one in n.operands if one is not None]
    if not given:
        raise Unsupported("it has no inputs")
    return given


@onnx_op("IsInf")
def _is_inf(n: NodeContext) -> NodeResults:
    negative, positive = n.integer("detect_negative", 1), n.integer("detect_positive", 1)
    if negative and positive:
        return n.emit.op("is_inf", n.x)
    if not negative and not positive:
        return n.emit.full(n.emit.scalar(0, DTYPES["bool"]), n.x.shape)
    return n.emit.op("eq", n.x, n.emit.scalar(inf if positive else -inf, n.x.dtype))


@onnx_op("Where")
def _where(n: NodeContext) -> NodeResults:
    return n.emit.op("where", n.x, n.input(1), n.input(2))


@onnx_op("Cast")
def _cast(n: NodeContext) -> NodeResults:
    return cast_to(n, n.dtype("to"))


@onnx_op("CastLike")
def _cast_like(n: NodeContext) -> NodeResults:
    return cast_to(n, n.input(1).dtype)


def cast_to(n: NodeContext, dtype: DType) -> DraftOperand:
    """A cast; to f8 it saturates as the attribute says."""
    if n.x.dtype is dtype:
        return n.x
    saturate = bool(n.integer("saturate", 1)) if dtype.name == "f8" else None
    if n.x.dtype.kind == "float" and dtype.kind in ("int", "uint") and dtype.is_packed:
        saturate = False  # ONNX drops the bits that do not fit
    return n.emit.op("cast", n.x, to=dtype, saturate=saturate)


@onnx_op("BitCast")
def _bitcast(n: NodeContext) -> NodeResults:
    return n.emit.op("bitcast", n.x, to=n.dtype("to"))


@onnx_op("BitShift")
def _bit_shift(n: NodeContext) -> NodeResults:
    return n.emit.op("shl" if n.text("direction", "LEFT") == "LEFT" else "shr", n.x, n.input(1))


# --- activations ------------------------------------------------------------------------------------------------------


@onnx_op("LeakyRelu")
def _leaky_relu(n: NodeContext) -> NodeResults:
    return n.emit.op("relu", n.x, negative_slope=n.real("alpha", 0.01))


@onnx_op("PRelu")
def _prelu(n: NodeContext) -> NodeResults:
    """The slope broadcasts to the input."""
    return n.emit.op("prelu", n.x, n.input(1))


@onnx_op("Elu", "Celu")
def _elu(n: NodeContext) -> NodeResults:
    return n.emit.op(n.node.op.lower(), n.x, alpha=n.real("alpha", 1.0))


@onnx_op("Selu")
def _selu(n: NodeContext) -> NodeResults:
    alpha, gamma = n.real("alpha", 1.67326319217681884765625), n.real("gamma", 1.05070102214813232421875)
    if abs(alpha - 1.6732632) < 1e-6 and abs(gamma - 1.0507010) < 1e-6:
        return n.emit.op("selu", n.x)
    return n.emit.op("mul", n.emit.op("elu", n.x, alpha=alpha), n.emit.scalar(gamma, n.x.dtype))


@onnx_op("ThresholdedRelu")
def _thresholded_relu(n: NodeContext) -> NodeResults:
    return n.emit.op("threshold", n.x, value=n.real("alpha", 1.0), replacement=0.0)


@onnx_op("HardSigmoid")
def _hard_sigmoid(n: NodeContext) -> NodeResults:
    return n.emit.op("hard_sigmoid", n.x, alpha=n.real("alpha", 0.2), beta=n.real("beta", 0.5))


@onnx_op("Gelu")
def _gelu(n: NodeContext) -> NodeResults:
    approximate = n.text("approximate", "none")
    return n.emit.op("gelu", n.x, approximate=None if approximate == "none" else approximate)


@onnx_op("Swish")
def _swish(n: NodeContext) -> NodeResults:
    alpha = n.real("alpha", 1.0)
    if alpha == 1:
        return n.emit.op("silu", n.x)
    return n.emit.op("mul", n.x, n.emit.op("sigmoid", n.emit.op("mul", n.x, n.emit.scalar(alpha, n.x.dtype))))


@onnx_op("Shrink")
def _shrink(n: NodeContext) -> NodeResults:
    """``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, and 0 between them."""
    real = n.emit.cast(n.x, DTYPES["f32"]) if n.x.dtype.kind != "float" else n.x
    lambd, bias = (
        n.emit.scalar(n.real(name, default), real.dtype) for name, default in (("lambd", 0.5), ("bias", 0.0))
    )
    below = n.emit.op("lt", real, n.emit.op("neg", lambd))
    above = n.emit.op("gt", real, lambd)
    zero = n.emit.scalar(0, real.dtype)
    upper = n.emit.op("where", above, n.emit.op("sub", real, bias), zero)
    return n.emit.cast(n.emit.op("where", below, n.emit.op("add", real, bias), upper), n.x.dtype)


@onnx_op("Clip")
def _clip(n: NodeContext) -> NodeResults:
    if n.opset < 11:
        least, most = n.real("min", -inf), n.real("max", inf)
        return _clamped(n, least, most)
    least_operand, most_operand = n.optional(1), n.optional(2)
    if all(
        one is None or (isinstance(one, KnownTensor) and one.array.size == 1) for one in (least_operand, most_operand)
    ):
        limits = [
            one.array.reshape(-1)[0].item() if isinstance(one, KnownTensor) else None
            for one in (least_operand, most_operand)
        ]
        return _clamped(n, -inf if limits[0] is None else limits[0], inf if limits[1] is None else limits[1])
    found = n.x if least_operand is None else n.emit.op("max", n.x, least_operand)
    return found if most_operand is None else n.emit.op("min", found, most_operand)


def _clamped(n: NodeContext, least: float, most: float) -> DraftOperand:
    if least == -inf and most == inf:
        return n.x
    return n.emit.op("clamp", n.x, min=None if least == -inf else least, max=None if most == inf else most)


@onnx_op("Softmax", "LogSoftmax")
def _softmax(n: NodeContext) -> NodeResults:
    """Before opset 13 the axes from ``axis`` on are flattened into one."""
    op = "softmax" if n.node.op == "Softmax" else "log_softmax"
    if n.opset >= 13:
        return n.emit.op(op, n.x, axis=n.axis(n.integer("axis", -1)) - n.rank)
    axis = n.axis(n.integer("axis", 1)) if n.rank else 0
    if axis == n.rank - 1:
        return n.emit.op(op, n.x, axis=-1)
    flat = n.emit.op("flatten", n.x, axis=axis)
    return n.emit.reshape(n.emit.op(op, flat, axis=-1), n.x.shape)


@onnx_op("Hardmax")
def _hardmax(n: NodeContext) -> NodeResults:
    axis = n.axis(n.integer("axis", -1 if n.opset >= 13 else 1))
    x = n.x if n.opset >= 13 else n.emit.op("flatten", n.x, axis=axis)
    axis = axis if n.opset >= 13 else 1
    best = n.emit.op("argmax_axis", x, axis=axis)
    return n.emit.reshape(n.emit.op("one_hot", best, depth=x.shape[axis], axis=axis, to=x.dtype), n.x.shape)


@onnx_op("Dropout")
def _dropout(n: NodeContext) -> NodeResults:
    """A no-op in inference."""
    training = n.optional(2)
    if training is not None and not (isinstance(training, KnownTensor) and not np.any(training.array)):
        raise Unsupported("it drops values as in training", "export the model for inference (model.eval())")
    mask = n.emit.full(n.emit.scalar(1, DTYPES["bool"]), n.x.shape) if n.reads(1) else None
    return (n.x, mask)
