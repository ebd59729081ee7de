"""Minima and maxima that limit nothing are gone, and all others stay."""

import pytest

from openinfer.dtypes import DTYPES
from openinfer.loops.clamps import without_idle_limits
from openinfer.loops.ir import (
    INDEX,
    Binary,
    BinaryOp,
    Combine,
    Const,
    For,
    Let,
    Local,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
)

AT, X, COUNT = ScalarVar("at"), ScalarVar("x"), ScalarVar("count")
N, BYTE = ScalarVar("n", DTYPES["i32"]), ScalarVar("byte", DTYPES["u8"])


def _number(value: int) -> Scalar:
    return Const(value, INDEX)


def _min(left: Scalar, right: Scalar) -> Scalar:
    return Binary("min", left, right)


def _max(left: Scalar, right: Scalar) -> Scalar:
    return Binary("max", left, right)


def _in_a_loop(value: Scalar) -> Scalar:
    """The value of a name in a loop with 8 iterations, without idle limits."""
    (loop,) = without_idle_limits((For(AT, _number(8), (Let(ScalarVar("y", value.dtype), value),)),))
    assert isinstance(loop, For)
    (let,) = loop.body
    assert isinstance(let, Let)
    return let.value


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (_min(AT, _number(7)), AT),
        (_max(_number(7), AT), _number(7)),
        (_min(_max(0 - AT, _number(0)), _number(2)), _number(0)),
        (_max(BYTE, Const(0, BYTE.type)), BYTE),
        (_min(AT * 2, _number(20)) + 1, AT * 2 + 1),
    ],
)
def test_an_idle_limit_is_gone(value: Scalar, wanted: Scalar) -> None:
    assert _in_a_loop(value) == wanted


@pytest.mark.parametrize(
    "value", [_min(AT, _number(6)), _max(AT, _number(1)), _min(N, Const(5, N.type)), _max(X, _number(0))]
)
def test_a_limit_that_may_matter_stays(value: Scalar) -> None:
    assert _in_a_loop(value) == value


@pytest.mark.parametrize(("most", "op", "is_idle"), [(8, "min", True), (7, "min", False), (0, "max", True)])
def test_a_counter_is_as_large_as_its_loop_is_long(most: int, op: BinaryOp, *, is_idle: bool) -> None:
    count = SetLocal(COUNT, COUNT + 1)
    limit = Let(X, Binary(op, COUNT, _number(most)))
    body = (Local(COUNT, _number(0)), For(AT, _number(8), (count,)), limit)
    found = without_idle_limits(body)
    assert found[2] == (Let(X, COUNT) if is_idle else limit)


def test_nothing_is_known_of_what_threads_combine() -> None:
    limit = Let(X, _min(COUNT, _number(0)))
    other = ScalarVar("other")
    body: tuple[Statement, ...] = (Local(COUNT, _number(0)), Combine((COUNT,), (other,), (COUNT + other,), 32), limit)
    assert without_idle_limits(body) is body


def test_nothing_is_known_of_a_name_in_another_scope() -> None:
    limit = Let(ScalarVar("y"), _min(X, _number(3)))
    loops = [For(AT, _number(2), (Let(X, AT + first), limit)) for first in (_number(0), ScalarVar("n"))]
    one, other = without_idle_limits(tuple(loops))
    assert isinstance(one, For)
    assert one.body[1] == Let(ScalarVar("y"), X)
    assert other is loops[1]
