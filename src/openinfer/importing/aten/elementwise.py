"""Elementwise ops: arithmetic with promotion, comparisons, unary functions, conversions."""

from math import inf

from openinfer.dtypes import DTYPES, DType
from openinfer.importing.aten.context import AtenContext, AtenResults, aten_op, word
from openinfer.importing.draft import DraftOperand
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import is_same, is_same_shape

BOOL, U8 = DTYPES["bool"], DTYPES["u8"]

_UNARY = {
    "abs": "abs", "neg": "neg", "sign": "sign", "sgn": "sign", "reciprocal": "recip", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "square": "square", "sigmoid": "sigmoid",
}  # fmt: skip
_WHOLE = ("floor", "ceil", "trunc", "round")


@aten_op(*_UNARY)
def _unary(n: AtenContext) -> AtenResults:
    if word(n) in _WHOLE and n.x.dtype.kind != "float":
        return n.x
    return n.emit.op(_UNARY[word(n)], n.cast(n.x, n.dtype))


@aten_op("round")
def _round(n: AtenContext) -> AtenResults:
    if n.x.dtype.kind != "float":
        return n.x
    decimals = n.integer("decimals")
    if not decimals:
        return n.emit.op("round", n.x)
    scale = n.emit.scalar(10.0**decimals, n.dtype)
    return n.emit.op("div", n.emit.op("round", n.emit.op("mul", n.x, scale)), scale)


@aten_op("erfc")
def _erfc(n: AtenContext) -> AtenResults:
    x = n.cast(n.x, n.dtype)
    return n.emit.op("sub", n.emit.scalar(1, n.dtype), n.emit.op("erf", x))


@aten_op("isnan", "isinf", "isfinite")
def _test(n: AtenContext) -> AtenResults:
    op = {"isnan": "is_nan", "isinf": "is_inf", "isfinite": "is_finite"}[word(n)]
    if n.x.dtype.kind != "float":
        return n.emit.full(n.emit.scalar(op == "is_finite", BOOL), n.x.shape)
    return n.emit.op(op, n.x)


@aten_op("logical_not", "bitwise_not")
def _not(n: AtenContext) -> AtenResults:
    return n.emit.op("not", n.cast(n.x, BOOL) if word(n) == "logical_not" else n.x)


# --- two operands -----------------------------------------------------------------------------------------------------

_BINARY = {
    "mul": "mul", "maximum": "max", "minimum": "min", "fmod": "rem", "remainder": "mod", "atan2": "atan2",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "__and__": "and", "__or__": "or", "__xor__": "xor",
    "floor_divide": "floor_div", "bitwise_left_shift": "shl", "bitwise_right_shift": "shr", "__lshift__": "shl",
    "__rshift__": "shr",
}  # fmt: skip
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_ON_BOOLS = {"add": "or", "mul": "and", "max": "or", "min": "and"}


def binary(n: AtenContext, op: str, dtype: DType | None = None) -> DraftOperand:
    """An op on two operands, by default in the dtype of the result."""
    own = dtype or n.dtype
    one, other = n.operand("self", own), n.operand("other", own)
    if own is BOOL:
        op = _ON_BOOLS.get(op, op)
    if op == "floor_div" and own.kind == "float":
        return n.emit.op("floor", n.emit.op("div", one, other))
    return n.emit.op(op, one, other)


@aten_op(*_BINARY)
def _binary(n: AtenContext) -> AtenResults:
    return binary(n, _BINARY[word(n)])


@aten_op(*_COMPARE)
def _compare(n: AtenContext) -> AtenResults:
    dtype = n.node.common or n.x.dtype
    if dtype is BOOL and word(n) not in ("eq", "ne"):
        dtype = U8
    return binary(n, _COMPARE[word(n)], dtype)


@aten_op("logical_and", "logical_or", "logical_xor")
def _logical(n: AtenContext) -> AtenResults:
    return n.emit.op(word(n).removeprefix("logical_"), n.operand("self", BOOL), n.operand("other", BOOL))


@aten_op("add", "sub", "rsub")
def _add(n: AtenContext) -> AtenResults:
    """``self + alpha * other`` or ``self - alpha * other``; ``rsub`` swaps the operands."""
    one, other = n.operand("self", n.dtype), n.operand("other", n.dtype)
    op = "sub" if "sub" in word(n) else "add"
    if word(n) == "rsub":
        one, other = other, one
    alpha = n.values.get("alpha")
    if alpha is not None and not is_same(alpha, 1) and alpha != 1:
        other = n.emit.op("mul", other, n.as_operand(alpha, n.dtype))
    return n.emit.op(_ON_BOOLS[op] if n.dtype is BOOL and op == "add" else op, one, other)


@aten_op("div", "true_divide")
def _div(n: AtenContext) -> AtenResults:
    mode = n.text("rounding_mode")
    if mode == "floor":
        return binary(n, "floor_div")
    quotient = binary(n, "div")
    return n.emit.op("trunc", quotient) if mode == "trunc" and n.dtype.kind == "float" else quotient


@aten_op("pow")
def _pow(n: AtenContext) -> AtenResults:
    exponent = n.values.get("exponent")
    base = n.operand("self", n.dtype)
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        simple = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "recip"}.get(exponent)
        if exponent == 1:
            return base
        if simple is not None and (n.dtype.kind == "float" or exponent == 2):
            return n.emit.op(simple, base)
    return n.emit.op("pow", base, n.as_operand(exponent, n.dtype))


@aten_op("where")
def _where(n: AtenContext) -> AtenResults:
    if not n.has("self"):
        raise Unsupported("the shape of its result depends on data", "use where with three arguments")
    return n.emit.op("where", n.operand("condition", BOOL), n.operand("self", n.dtype), n.operand("other", n.dtype))


@aten_op("masked_fill")
def _masked_fill(n: AtenContext) -> AtenResults:
    return n.emit.op("where", n.operand("mask", BOOL), n.operand("value", n.dtype), n.operand("self", n.dtype))


@aten_op("clamp", "clamp_min", "clamp_max", "hardtanh", "clip")
def _clamp(n: AtenContext) -> AtenResults:
    least, most = (n.values.get(name, n.values.get(f"{name}_val")) for name in ("min", "max"))
    x = n.operand("self", n.dtype)
    if all(one is None or isinstance(one, int | float) for one in (least, most)):
        return clamped(n, x, least, most)
    for op, limit in (("max", least), ("min", most)):
        if limit is not None:
            x = n.emit.op(op, x, n.as_operand(limit, n.dtype))
    return x


def clamped(n: AtenContext, x: DraftOperand, least: float | None, most: float | None) -> DraftOperand:
    """Clamp a tensor between two numbers."""
    kind = float if x.dtype.kind == "float" else int
    low = None if least is None or least == -inf else kind(least)
    high = None if most is None or most == inf else kind(most)
    return x if low is None and high is None else n.emit.op("clamp", x, min=low, max=high)


# --- copies and conversions -------------------------------------------------------------------------------------------


@aten_op(
    *("clone", "alias", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "dropout_", "positive"),
    *("_to_copy", "to", "_conj", "resolve_conj", "resolve_neg", "alias_copy", "detach_copy", "type_as"),
)
def _same(n: AtenContext) -> AtenResults:
    return n.cast(n.x, n.dtype)


@aten_op("copy")
def _copy(n: AtenContext) -> AtenResults:
    """The source, cast and broadcast to the type of the destination."""
    src = n.operand("src", n.dtype)
    return src if is_same_shape(src.shape, n.x.shape) else n.emit.op("expand", src, shape=tuple(n.x.shape))


@aten_op("dropout", "native_dropout", "feature_dropout", "alpha_dropout")
def _dropout(n: AtenContext) -> AtenResults:
    """A no-op in inference."""
    if n.flag("train") and n.real("p") != 0:
        raise Unsupported("it drops values as in training", "call module.eval() before the import")
    return n.x if word(n) != "native_dropout" else (n.x, n.emit.full(n.emit.scalar(1, BOOL), n.x.shape))
