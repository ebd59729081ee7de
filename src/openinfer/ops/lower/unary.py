"""Elementwise ops of one operand, and tests of elements, which may be reduced to one answer."""

from collections.abc import Callable
from math import inf

from openinfer.loops.build import Builder, const, math, pair, select, unary
from openinfer.loops.ir import BOOL, Buffer, Scalar, Unary, UnaryOp
from openinfer.ops.lower.elementwise import Formula, elementwise, pointwise
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call


def _operation(op: UnaryOp) -> Formula:
    return lambda _builder, _call, x: unary(op, x)


_OPERATIONS: tuple[tuple[str, UnaryOp], ...] = (
    ("abs", "abs"),
    ("neg", "neg"),
    ("floor", "floor"),
    ("ceil", "ceil"),
    ("round", "rint"),
    ("trunc", "trunc"),
    ("not", "not"),
)
for _name, _op in _OPERATIONS:
    elementwise(_name)(_operation(_op))


@elementwise("sign")
def _sign(_builder: Builder, _call: Call, x: Scalar) -> Scalar:
    """What is neither above nor below zero stays: zeros with their sign, NaN."""
    one = const(1, x.dtype)
    if x.dtype.kind == "uint":
        return pair("min", x, one)
    return select(x > 0, one, select(x < 0, const(-1, x.dtype), x))


@elementwise("sqrt")
def _sqrt(_builder: Builder, call: Call, x: Scalar) -> Scalar:
    dtype = call.dtype()
    return Unary("sqrt", x, dtype if dtype.is_small_float and call.input(0).quant is None else None)


elementwise("recip")(lambda _builder, _call, x: 1 / x)
elementwise("square")(lambda _builder, _call, x: pair("mul", x, x))
elementwise("rsqrt")(lambda _builder, _call, x: 1 / unary("sqrt", x))


@elementwise("popcount")
def _popcount(_builder: Builder, call: Call, x: Scalar) -> Scalar:
    """A packed integer is extended to a byte by its sign; only its own bits count."""
    dtype = call.dtype()
    own = x & ((1 << dtype.bits) - 1) if dtype.is_packed else x
    return unary("popcount", own)


def _function(name: str) -> Formula:
    return lambda _builder, _call, x: math(name, x)


for _name in (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf"),
):
    elementwise(_name)(_function(_name))


# --- tests ------------------------------------------------------------------------------------------------------------


def _test(name: str, test: Callable[[Scalar], Scalar]) -> None:
    """A test, elementwise; or whether all elements pass (``is_finite``), or any does, where one answer is wanted."""
    every = name == "is_finite"
    plain = pointwise(lambda _builder, _call, x: test(x))

    def lowering(
        call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
    ) -> None:
        (x,), (out,) = inputs, outputs
        assert x is not None
        if len(out.shape) == len(x.shape):
            plain(call, builder, inputs, outputs)
            return
        found = builder.local(every, BOOL)
        with builder.loops(x.shape) as where:
            passed = test(builder.let(x[where]))
            builder.assign(found, found & passed if every else found | passed)
        builder.store(out, (), found)

    lowers(name)(lowering)


_test("is_finite", lambda x: unary("abs", x) < inf)
_test("is_nan", lambda x: unary("isnan", x))
_test("is_inf", lambda x: unary("abs", x).eq(inf))
_test("is_neg", lambda x: x < 0)
