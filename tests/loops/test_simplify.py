"""Simpler expressions and statements mean the same, bit for bit."""

from random import Random

import pytest
from tests.loops.random_values import F32, F64, I32, MEMORY, U8, random_value, results

from openinfer.dtypes import DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    BOOL,
    INDEX,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Fail,
    For,
    If,
    Let,
    Load,
    Local,
    ScalarVar,
    SetLocal,
    Store,
    Unary,
    visit,
)
from openinfer.loops.rewrite import straightened
from openinfer.loops.simplify import simplified


@pytest.mark.parametrize("kind", [INDEX, I32, U8, F32, F64, BOOL], ids=lambda one: one.name)
def test_results_stay_the_same_bit_for_bit(kind: DType) -> None:
    rng = Random(kind.name)
    shorter = 0
    for _ in range(150):
        value = random_value(rng, kind, 4)
        made = simplified(value)
        shorter += len(list(visit(made))) < len(list(visit(value)))
        assert results(value) == results(made), (value, made)
    assert shorter > 30


def test_numbers_are_converted_only_where_they_are_exact() -> None:
    f32 = simplified(Cast(Const(32, INDEX), F32))
    assert f32 == Const(32.0, F32)
    for number, source, target in ((16777217, I32, F32), (0.1, F32, F64), (0.5, F64, I32), (-1, I32, U8)):
        kept = Cast(Const(number, source), target)
        assert simplified(kept) == kept


def test_sums_that_change_a_negative_zero_stay() -> None:
    x = Load(MEMORY["f32"], (Const(0, INDEX),))
    kept = Binary("add", x, Const(0.0, F32))
    assert simplified(kept) == kept
    assert simplified(Binary("sub", x, Const(0.0, F32))) == x
    kept = Binary("sub", x, Const(-0.0, F32))
    assert simplified(kept) == kept


def test_the_negative_of_zero_has_a_sign() -> None:
    for zero in (0, 0.0):
        assert simplified(Unary("neg", Const(zero, F32))) == Const(-0.0, F32)
    assert simplified(Unary("neg", Const(-0.0, F32))) == Const(0.0, F32)


def test_sizes_that_are_one_at_their_bounds_only_stay() -> None:
    size = Const(Dim(1, Ref("T")), INDEX)
    for op in ("mul", "div"):
        kept = Binary(op, ScalarVar("i"), size)
        assert simplified(kept) == kept


def test_conditions_and_names_that_say_nothing_go() -> None:
    out = Buffer("y", I32, (4,))
    i, j, k = ScalarVar("i"), ScalarVar("j"), ScalarVar("k")
    inner = If(
        Compare("ge", Binary("sub", j, j), Const(0, INDEX)),
        (Let(k, Binary("add", j, i)), Store(out, (k,), Cast(k, I32))),
    )
    loops = For(i, Const(4, INDEX), (For(j, Const(1, INDEX), (inner,)),))
    assert straightened((loops,)) == (For(i, Const(4, INDEX), (Store(out, (i,), Cast(i, I32)),)),)


def test_comparisons_that_exclude_each_other_are_never_true_together() -> None:
    """As where padding is all there is; clang calls them a mistake."""
    i, zero, five = ScalarVar("i"), Const(0, INDEX), Const(5, INDEX)
    never = Binary("and", Compare("ge", i, zero), Compare("lt", i, zero))
    always = Binary("or", Compare("lt", i, five), Compare("ge", i, zero))
    sometimes = Binary("and", Compare("ge", i, zero), Compare("lt", i, five))
    rarely = Binary("or", Compare("lt", i, zero), Compare("ge", i, five))
    assert [simplified(one) for one in (never, always)] == [Const(False, BOOL), Const(True, BOOL)]
    assert [simplified(one) for one in (sometimes, rarely)] == [sometimes, rarely]


def test_a_variable_is_not_assigned_to_itself() -> None:
    """As a sum of zeros would be; clang calls that a mistake."""
    total, out = ScalarVar("s", I32), Buffer("y", I32, (1,))
    first, last = Local(total, Const(0, I32)), Store(out, (Const(0, INDEX),), total)
    adds = For(ScalarVar("i"), Const(4, INDEX), (SetLocal(total, Binary("add", total, Const(0, I32))),))
    assert straightened((first, adds, last)) == (first, last)


def test_what_follows_a_certain_failure_is_gone() -> None:
    i, x = ScalarVar("i"), ScalarVar("x", I32)
    fails = If(Compare("eq", Const(0, I32), Const(0, I32)), (Fail("the divisor is zero"),))
    body = (Let(x, Const(1, I32)), fails, Store(Buffer("y", I32, (3,)), (i,), x))
    (loop,) = straightened((For(i, Const(3, INDEX), body),))
    assert isinstance(loop, For)
    assert loop.body == (Fail("the divisor is zero"),)
