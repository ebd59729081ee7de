"""Extents over dynamic sizes are integers that remember where they come from."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.cse import named
from openinfer.loops.dim import Dim, at, expr_of, is_symbolic, sizes_in
from openinfer.loops.ir import INDEX, Binary, BinaryOp, Const, ScalarVar, binary

Formula = Callable[[int, int], int]
"""A computation on two extents, which may be dynamic."""

T, S = Dim(12, Ref("T")), Dim(7, Ref("S"))


def _combined(parts: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    def pair(op: str, left: Formula, right: Formula) -> Formula:
        match op:
            case "+":
                return lambda t, s: left(t, s) + right(t, s)
            case "-":
                return lambda t, s: left(t, s) - right(t, s)
            case _:
                return lambda t, s: left(t, s) * right(t, s)

    def divided(op: str, left: Formula, divisor: int) -> Formula:
        if op == "//":
            return lambda t, s: left(t, s) // divisor
        return lambda t, s: left(t, s) % divisor

    return st.one_of(
        st.builds(pair, st.sampled_from("+-*"), parts, parts),
        st.builds(divided, st.sampled_from(["//", "%"]), parts, st.integers(1, 9)),
        st.builds(lambda part: lambda t, s: -part(t, s), parts),
    )


formulas: st.SearchStrategy[Formula] = st.recursive(
    st.one_of(
        st.just(lambda t, _s: t),
        st.just(lambda _t, s: s),
        st.integers(-3, 3).map(lambda number: lambda _t, _s: number),
    ),
    _combined,
    max_leaves=8,
)


@given(formulas, st.integers(0, 50), st.integers(0, 50))
def test_arithmetic_is_that_of_integers_at_every_size(formula: Formula, t: int, s: int) -> None:
    extent = formula(T, S)
    assert int(extent) == formula(12, 7)
    assert at(extent, {"T": t, "S": s}) == formula(t, s)


@given(formulas)
def test_what_depends_on_no_size_is_a_plain_integer(formula: Formula) -> None:
    assert not is_symbolic(formula(3, 4))
    assert sizes_in(formula(3, 4)) == set()


@given(formulas)
def test_the_sizes_of_an_extent_are_those_in_its_expression(formula: Formula) -> None:
    assert sizes_in(formula(T, S)) <= {"T", "S"}


@pytest.mark.parametrize(
    ("extent", "text"),
    [
        (T + 0, "T"),
        (0 + T, "T"),
        (T * 1, "T"),
        (1 * T, "T"),
        (T - 0, "T"),
        (T // 1, "T"),
        (T * 0, "0"),
        (0 * T, "0"),
        (2 * T + 1, "2*T+1"),
        ((T + S) * 3, "(T+S)*3"),
        (5 - T, "5-T"),
        (100 // T, "100/T"),
        (T % 4, "T%4"),
        (100 % T, "100%T"),
        (-T, "-T"),
        (T * S // 2, "T*S/2"),
        (T - 2 + 1, "T-1"),
        (1 + (T - 1), "T"),
        (T + 1 - 3, "T-2"),
        (3 - (T + 1), "3-(T+1)"),
        (4 * (2 * (32 * T)), "256*T"),
        (T * 2 * 2 * S, "T*4*S"),
        (2**20 * (2**20 * T), "1048576*(1048576*T)"),
    ],
)
def test_operations_that_change_nothing_leave_no_trace_and_numbers_are_folded(extent: int, text: str) -> None:
    assert repr(extent) == text


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("value", [0, 1])
def test_an_extent_that_is_neutral_at_the_bounds_only_is_kept(op: BinaryOp, value: int) -> None:
    place, extent = ScalarVar("i", INDEX), Const(T - (12 - value), INDEX)
    made = binary(op, place, extent)
    assert isinstance(made, Binary)
    assert isinstance(made.right, Const)
    assert (made.op, made.left, repr(made.right.value)) == (op, place, repr(extent.value))
    assert binary("add", place, Const(0, INDEX)) == place


def test_constants_are_equal_only_if_they_are_so_at_every_size() -> None:
    zero, difference = Const(0, INDEX), Const(T - 12, INDEX)
    assert zero == Const(0, INDEX)
    assert difference == Const(T - 12, INDEX)
    assert len({zero, difference, Const(S - 7, INDEX)}) == 3
    assert len({Const(0.0, DTYPES["f32"]), Const(-0.0, DTYPES["f32"])}) == 2


def test_common_parts_of_an_expression_do_not_mix_up_extents_and_numbers() -> None:
    place = ScalarVar("i", INDEX)
    value = binary("max", binary("add", place, Const(T - 12, INDEX)), binary("min", place, Const(0, INDEX)))
    assert named(value) == ((), value)


def test_extents_are_integers_everywhere_else() -> None:
    assert list(range(T))[-1] == 11
    assert (T == 12, T < S, max(T, S), hash(T)) == (True, False, 12, hash(12))
    assert str(expr_of(T)) == "T"
    assert str(expr_of(12)) == "12"


def test_dividing_by_nothing_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        T // 0
