"""Elementwise ops of two and three operands: one expression for each element of the result."""

from collections.abc import Callable
from typing import TypeAlias

from openinfer.dtypes import DTYPES
from openinfer.loops.build import Builder, const, math, pair, select, unary
from openinfer.loops.ir import BinaryOp, Buffer, Compare, CompareOp, LoopKind, Scalar
from openinfer.ops.lower.operand import KernelInput, Lowering, lowers
from openinfer.ops.record import Call

Formula: TypeAlias = Callable[..., Scalar]
"""The element of the result: ``formula(builder, call, *elements)``, with None for an input left out."""

I64, U64 = DTYPES["i64"], DTYPES["u64"]


def pointwise(formula: Formula) -> Lowering:
    """The lowering of an op whose operands broadcast and whose elements are computed one by one."""

    def lowering(
        call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
    ) -> None:
        (out,) = outputs
        with builder.loops(out.shape, LoopKind.PARALLEL) as where:
            elements = [None if operand is None else builder.let(operand.at(where)) for operand in inputs]
            builder.store(out, where, formula(builder, call, *elements))

    return lowering


def elementwise(*names: str) -> Callable[[Formula], Formula]:
    """Make a formula the lowering of elementwise ops."""

    def register(formula: Formula) -> Formula:
        lowers(*names)(pointwise(formula))
        return formula

    return register


def _plain(op: BinaryOp) -> Formula:
    return lambda _builder, _call, a, b: pair(op, a, b)


for _op in ("add", "sub", "mul"):
    elementwise(_op)(_plain(_op))


# --- division ---------------------------------------------------------------------------------------------------------


def divided(op: BinaryOp, builder: Builder, a: Scalar, b: Scalar) -> Scalar:
    """The truncated quotient (``div``) or its rest (``rem``) of integers; the divisor is not zero."""
    if a.dtype is not I64:
        return pair(op, a, b)
    # The most negative number divided by -1 wraps to itself, which plain division does not do.
    minus = builder.let(b.eq(-1))
    inside = pair(op, a, select(minus, 1, b))
    return select(minus, pair("sub", const(0, I64), a) if op == "div" else const(0, I64), inside)


def _floored(builder: Builder, a: Scalar, b: Scalar) -> Scalar:
    quotient = divided("div", builder, a, b)
    if a.dtype.kind == "uint":
        return quotient
    rest = builder.let(divided("rem", builder, a, b))
    # Where something is left over that has not the sign of the divisor, the floor is one below the truncation.
    below = rest.ne(0) & (pair("xor", rest, b) < 0)
    return pair("sub", builder.let(quotient), select(below, const(1, a.dtype), 0))


def _floored_rest(builder: Builder, a: Scalar, b: Scalar) -> Scalar:
    rest = builder.let(divided("rem", builder, a, b))
    if a.dtype.kind == "uint":
        return rest
    other_sign = rest.ne(0) & (pair("xor", rest, b) < 0)
    return pair("add", rest, select(other_sign, b, 0))


def _float_mod(builder: Builder, a: Scalar, b: Scalar) -> Scalar:
    rest = builder.let(pair("rem", a, b))
    other_sign = (rest < 0) ^ (b < 0)
    return select(rest.eq(0), pair("copysign", rest, b), select(other_sign, rest + b, rest))


def _division(
    floats: Callable[[Builder, Scalar, Scalar], Scalar], integers: Callable[[Builder, Scalar, Scalar], Scalar]
) -> Formula:
    """A division: floats as IEEE 754 says, integers with the mask, or a failure, where the divisor is zero."""

    def formula(builder: Builder, call: Call, a: Scalar, b: Scalar) -> Scalar:
        if a.dtype.kind == "float":
            return floats(builder, a, b)
        mask = call.params["div_by_zero_mask"]
        if mask is None:
            builder.fail(b.eq(0), "the divisor is zero")
            return integers(builder, a, b)
        zero = builder.let(b.eq(0))
        safe = builder.let(select(zero, 1, b))
        return select(zero, const(int(mask), a.dtype), integers(builder, a, safe))

    return formula


elementwise("div")(_division(lambda _, a, b: a / b, lambda builder, a, b: divided("div", builder, a, b)))
elementwise("rem")(_division(lambda _, a, b: pair("rem", a, b), lambda builder, a, b: divided("rem", builder, a, b)))
elementwise("floor_div")(_division(lambda _, a, b: unary("floor", a / b), _floored))
elementwise("mod")(_division(_float_mod, _floored_rest))


# --- powers, extremes, angles -----------------------------------------------------------------------------------------


@elementwise("pow")
def _power(builder: Builder, _call: Call, a: Scalar, b: Scalar) -> Scalar:
    """Integers by squaring, one bit of the exponent after the other."""
    dtype = a.dtype
    if dtype.kind == "float":
        return math("pow", a, b)
    if dtype.kind == "int":
        builder.fail(b < 0, "an integer power has a negative exponent")
    result = builder.local(1, dtype)
    base = builder.local(a, dtype)
    exponent = builder.local(b, dtype)
    with builder.repeat_while(exponent.ne(0)):
        factor = select((exponent & 1).ne(0), base, const(1, dtype))
        builder.assign(result, pair("mul", result, factor))
        builder.assign(base, pair("mul", base, base))
        builder.assign(exponent, pair("shr", exponent, 1))
    return result


elementwise("min")(lambda _builder, _call, a, b: pair("min", a, b))
elementwise("max")(lambda _builder, _call, a, b: pair("max", a, b))
elementwise("atan2")(lambda _builder, _call, a, b: math("atan2", a, b))


# --- bits -------------------------------------------------------------------------------------------------------------


for _name in ("and", "or", "xor"):
    elementwise(_name)(_plain(_name))


def _shift(op: BinaryOp) -> Formula:
    """Packed integers shift within a byte: the bits that leave their own width are cut off when they are stored."""

    def formula(builder: Builder, call: Call, a: Scalar, b: Scalar | None) -> Scalar:
        if b is None:
            return pair(op, a, min(call.params["bits"], 64))
        if b.dtype.kind == "int":
            builder.fail(b < 0, "a shift count is negative")
        return pair(op, a, b)

    return formula


elementwise("shl")(_shift("shl"))
elementwise("shr")(_shift("shr"))


# --- three operands, comparisons --------------------------------------------------------------------------------------


@elementwise("fma")
def _fma(_builder: Builder, _call: Call, a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    return math("fma", a, b, c) if a.dtype.kind == "float" else pair("add", pair("mul", a, b), c)


elementwise("where")(lambda _builder, _call, cond, a, b: select(cond, a, b))


def _comparison(op: CompareOp) -> Formula:
    return lambda _builder, _call, a, b: Compare(op, a, b)


for _compare in ("eq", "ne", "lt", "le", "gt", "ge"):
    elementwise(_compare)(_comparison(_compare))
