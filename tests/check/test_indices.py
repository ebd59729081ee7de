"""Indices of tables, matrices and tensors, as far as they are known before anything runs; and indices from hell."""

from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.check.binding import bound, codes, floats, marked, messages, problems
from tests.check.conftest import MakeModel

from openinfer.check.access import difference, static_value
from openinfer.ir.expr import evaluate
from openinfer.ir.operand_text import parse_expr

SECONDS = 20
"""What a hostile graph may take on a busy machine; each takes a fraction of that, or minutes where a limit is lost."""


def table(nodes: str) -> str:
    """A graph with tables that have bounds, and some that have none."""
    return f"""dynamic {{ n: i32; x: f32; }} volatile {{ y: f32; }} constant {{ two: i64 @init(2); }}
        persistent {{ K(l, t): f32 @table @fixed(l=3, t=5); G(l): f32 @table; P: f32[4];
            M(r, c): f32[2, 3] @auto_dim(r, c) @fixed(r=2, c=1); A(r, c): f32[2, 3] @auto_dim(r, c); }}
        block entry {{ {nodes} return; }}"""


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        "op neg(K[2, 4]) >> y;",
        "op neg(K[two, 0]) >> y;",
        "op neg(K[S-1, 0]) >> y;",
        "op neg(G[999999]) >> y;",
        "op neg(P[3]) >> y;",
        "loop a (l in 0..3) { loop b (t in l..5) { op neg(K[l, t]) >> y; } }",
        "loop a (l in 0..6) { op neg(K[l/2, l%5]) >> y; }",
        "loop a (l in 5..3) { op neg(K[l, 0]) >> y; }",
        "op neg(K[n, n]) >> y;",
        "loop a (l in 0..n) { op neg(K[l, 0]) >> y; }",
        "cache.reset K[2];",
        "cache.reset K;",
        "cache.reset P[3];",
        "cache.read K[2, 0..5] >> v;",
        "cache.read K[0, -2..] >> v;",
        "cache.read P[-2..] >> v;",
        "cache.read M[2, 1] >> w;",
        "cache.read M[3, ] >> v;",
        "cache.read M[, 3] >> v;",
        "cache.read M[0..4, 0..4] >> w;",
    ],
)
def test_indices_inside_their_bounds_and_those_only_the_run_knows_are_fine(node: str) -> None:
    text = table(node).replace("volatile {", "sizes { V <= 99; W <= 99; } volatile { v: f32[V]; w: f32[V, W];")
    found = codes(text, sizes={"S": 3})
    assert [code for code in found if code != "E309"] == []


@pytest.mark.parametrize(
    ("node", "index", "limit", "place"),
    [
        ("op neg(K[3, 0]) >> y;", 3, 3, "K[3, 0]"),
        ("op neg(K[0, 5]) >> y;", 5, 5, "K[0, 5]"),
        ("op neg(K[two+1, 0]) >> y;", 3, 3, "K[two+1, 0]"),
        ("op neg(K[S, 0]) >> y;", 3, 3, "K[S, 0]"),
        ("op neg(x) >> K[3, n];", 3, 3, "K[3, n]"),
        ("cache.write x >> K[3, n];", 3, 3, "K[3, n]"),
        ("cache.read K[3, n] >> y;", 3, 3, "K[3, n]"),
        ("transfer x >> K[3, n];", 3, 3, "K[3, n]"),
        ("cache.reset K[3];", 3, 3, "K[3]"),
        ("cache.reset K[0, 5];", 5, 5, "K[0, 5]"),
        ("cache.reset P[4];", 4, 4, "P[4]"),
        ("op neg(P[4]) >> y;", 4, 4, "P[4]"),
        ("op neg(P[0..5]) >> y;", 5, 4, "P[0..5]"),
        ("op neg(K[0, 0..6]) >> y;", 6, 5, "K[0, 0..6]"),
        ("op neg(K[0, 6..n]) >> y;", 6, 5, "K[0, 6..n]"),
        ("op neg(M[3, 0]) >> y;", 3, 3, "M[3, 0]"),
        ("op neg(M[4, ]) >> y;", 4, 4, "M[4, ]"),
        ("op neg(M[, 0..5]) >> y;", 5, 4, "M[, 0..5]"),
        ("loop a (l in 0..4) { op neg(K[l, 0]) >> y; }", 3, 3, "K[l, 0]"),
        ("loop a (l in 0..3) { op neg(K[l+1, 0]) >> y; }", 3, 3, "K[l+1, 0]"),
        ("loop a (l in 0..3) { loop b (t in l..6) { op neg(K[l, t]) >> y; } }", 5, 5, "K[l, t]"),
        ("loop a (i in 0..1000000000000000000) { op neg(K[i, 0]) >> y; }", 3, 3, "K[i, 0]"),
    ],
)
def test_an_index_outside_its_bound_in_some_iteration_is_found(node: str, index: int, limit: int, place: str) -> None:
    (problem,) = problems(table(node), sizes={"S": 3})
    assert (str(problem.code), marked(problem)) == ("E507", place)
    assert problem.message == f"the index {index} of '{place[0]}' is outside its bound {limit}"


@pytest.mark.parametrize(
    ("node", "index"),
    [
        ("loop a (l in 0..3) { op neg(K[l-1, 0]) >> y; }", "l-1 of 'K'"),
        ("loop a (l in 0..3) { op neg(G[l-2]) >> y; }", "l-2 of 'G'"),
        ("op neg(G[two-3]) >> y;", "two-3 of 'G'"),
        ("loop a (l in 0..3) { cache.reset G[0-l]; }", "0-l of 'G'"),
        ("op neg(A[two-3, 0]) >> y;", "two-3 of 'A'"),
        ("op neg(P[two-3]) >> y;", "two-3 of 'P'"),
    ],
)
def test_a_single_index_is_never_negative(node: str, index: str) -> None:
    (problem,) = problems(table(node))
    assert str(problem.code) == "E505"
    assert problem.message.startswith(f"the index {index} is -")


def test_the_ends_of_slices_count_back() -> None:
    text = table("loop a (l in 0..3) { cache.read G[l-3..] >> v; }")
    assert codes(text.replace("y: f32;", "y: f32; v: f32[9];")) == []


def test_an_index_is_reported_once_for_each_operand_that_has_it() -> None:
    assert codes(table("op neg(K[3, 0]) >> K[3, 0]; op neg(K[3, 0]) >> y;")) == ["E507", "E507"]


# --- what names in indices are --------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", ["op neg(K[q, 0]) >> y;", "cache.reset K[q];", "loop a (i in 0..q) { barrier; }"])
def test_a_name_in_an_index_that_is_nothing_is_reported(node: str) -> None:
    (problem,) = problems(table(node))
    assert (str(problem.code), problem.message) == ("E208", "there is no size 'q'")


def test_the_body_of_a_loop_with_a_wrong_bound_is_checked_all_the_same() -> None:
    assert codes(table("loop a (i in 0..q) { op neg(K[9, 0]) >> y; }")) == ["E208", "E507"]


def test_a_loop_index_comes_before_a_variable_and_a_variable_before_a_size() -> None:
    text = table("loop a (two in 0..9) { op neg(K[two, 0]) >> y; }")
    assert messages(text) == ["the index 3 of 'K' is outside its bound 3"]
    assert messages(table("op neg(K[0, two]) >> y;"), sizes={"two": 9}) == []
    assert messages(table("op neg(K[0, S]) >> y;"), sizes={"S": 9}) == ["the index 9 of 'K' is outside its bound 5"]


def test_a_loop_bound_named_like_its_own_index_is_the_size() -> None:
    text = table("loop a (i in 0..2) { loop b (t in 0..t) { op neg(K[i, t]) >> y; } }")
    assert codes(text, sizes={"t": 5}) == []
    assert codes(text, sizes={"t": 6}) == ["E507"]
    assert codes(text.replace("0..t", "0..2*t"), sizes={"t": 2}) == []


@pytest.mark.parametrize("op", ["neg(x)", "gt(x, x)"])
def test_what_a_classic_op_gave_is_an_index_only_if_it_is_an_integer(op: str) -> None:
    (problem,) = problems(table(f"h = op {op}; op neg(K[h, 0]) >> y;"))
    assert (str(problem.code), marked(problem)) == ("E502", "K[h, 0]")
    assert codes(table(f"h = op {op}; loop a (i in 0..h) {{ barrier; }}")) == ["E502"]
    assert codes(table("h = op neg(n); op neg(K[h, 0]) >> y; loop a (i in 0..h) { barrier; }")) == []


@pytest.mark.parametrize("declared", ["K({}): f32 @table", "K({}, r): f32[2] @table @auto_dim(r)"])
def test_a_table_whose_whole_has_too_many_dimensions_is_refused(declared: str) -> None:
    indices = [f"j{number}" for number in range(17)]
    text = f"persistent {{ {declared.format(', '.join(indices[:16]))}; }} block entry {{ return; }}"
    if "auto" not in declared:
        assert codes(text) == []
        text = text.replace("j15", "j15, j16")
    assert messages(text) == ["'K' has 17 dimensions, more than the 16 a tensor may have"]


# --- lengths --------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "s")
expressions = st.recursive(
    st.integers(-3, 6).map(str) | st.sampled_from(NAMES),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda part: f"({part[0]}{part[1]}{part[2]})"),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(expressions, expressions, st.integers(-5, 9), st.integers(-5, 9))
def test_a_difference_is_the_same_for_all_values_of_what_is_not_static(end: str, start: str, a: int, b: int) -> None:
    ends = [parse_expr(text) for text in (end, start)]
    static = {"s": 4}.get
    found = difference(ends[0], ends[1], static)
    if found is None:
        return
    values = {"a": a, "b": b, "s": 4}
    try:
        last, first = (evaluate(expr, values.__getitem__) for expr in ends)
    except ZeroDivisionError:
        return
    assert found == last - first


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(expressions)
def test_a_static_value_is_that_of_the_expression(text: str) -> None:
    expr = parse_expr(text)
    found = static_value(expr, {"a": 2, "b": 3, "s": 4}.get)
    if found is not None:
        assert found == evaluate(expr, {"a": 2, "b": 3, "s": 4}.__getitem__)


def test_an_op_on_a_slice_that_moves_looks_at_its_shape_again_while_running() -> None:
    declared = "dynamic { i: i32; } persistent { K(t): f32[4] @table; } volatile { y: f32[2, 4]; } block entry { "
    assert bound(declared + "op neg(K[i..i+2]) >> y; return; }").ops[0].is_dynamic
    assert not bound(declared + "op neg(K[1..3]) >> y; return; }").ops[0].is_dynamic


# --- hostile --------------------------------------------------------------------------------------------------------


def seconds(text: str, *arguments: Any) -> float:
    """How long binding takes."""
    started = process_time()
    problems(text, *arguments)
    return process_time() - started


def test_a_loop_that_nobody_will_see_end_is_followed_only_so_far(make_model: MakeModel) -> None:
    text = """constant { W(l): f32 @pattern("W.{l}"); } volatile { y: f32; }
        block entry { loop a (l in 0..1000000000000000000) { op neg(W[l]) >> y; } return; }"""
    model = make_model({f"W.{number}": floats() for number in range(5000)})
    assert codes(text, model) == []
    assert seconds(text, model) < SECONDS


def test_missing_entries_of_a_large_model_are_reported_quickly(make_model: MakeModel) -> None:
    text = """constant { W(l): f32 @pattern("W.{l}"); } volatile { y: f32; } block entry {
        loop a (l in 0..1000000000000000000) { op neg(W[l]) >> y; op neg(model[fmt("V.{l}")]) >> y; } return; }"""
    model = make_model({f"X.{number}": np.zeros(0, np.float32) for number in range(5000)})
    assert codes(text, model) == ["E209"] * 6
    assert seconds(text, model) < SECONDS


def test_loops_without_iterations_inside_endless_ones_end() -> None:
    inner = "loop b (j in 0..0) { op neg(K[i+j, 0]) >> y; }"
    assert seconds(table(f"loop a (i in 0..1000000000000000000) {{ {inner} }}")) < SECONDS


def test_many_nodes_in_many_iterations_share_a_limit() -> None:
    nodes = "".join(f"op neg(K[i*0, (i+{number})*0]) >> y; " for number in range(3000))
    assert seconds(table(f"loop a (i in 0..4000) {{ {nodes} }}")) < SECONDS


def test_the_first_iteration_is_looked_at_even_when_the_limit_is_used_up(make_model: MakeModel) -> None:
    nodes = "".join(f"op neg(K[i*0, (i+{number})*0]) >> y; " for number in range(300))
    text = table(f"""loop a (i in 0..4000) {{ {nodes} op neg(model[fmt("W.{{i}}")]) >> y; }}""")
    assert codes(text, make_model({"W.0": floats()})) == []
    assert messages(text, make_model()) == ["model[fmt(\"W.{i}\")] is the model tensor 'W.0', which does not exist"]


@pytest.mark.parametrize("depth", [199])
def test_loops_nested_to_the_limit_with_long_expressions_are_bound(depth: int) -> None:
    bounds = ["+".join(["2", *(f"q{outer}*0" for outer in range(number))]) for number in range(depth)]
    heads = "".join(f"loop q{number} (q{number} in 0..{end}) {{ " for number, end in enumerate(bounds))
    index = "+".join(f"q{number}" for number in range(depth))
    text = table(f"{heads} op neg(K[{index}, 0]) >> y; {'} ' * depth}")
    assert messages(text) == ["the index 3 of 'K' is outside its bound 3"]


@pytest.mark.parametrize("depth", [199])
def test_scopes_nested_to_the_limit_are_bound(depth: int) -> None:
    heads = "".join(f'scope "s{number}" {{ ' for number in range(depth))
    assert codes(table(f"{heads} op neg(x) >> y; {'} ' * depth}")) == []


@pytest.mark.parametrize("variable", ["K[{}, 0]", "G[{}]", "P[{}]"])
def test_indices_with_thousands_of_digits_are_no_trouble(variable: str) -> None:
    index = "*".join(["N"] * 190)
    text = table(f"op neg({variable.format(index)}) >> y;")
    found = messages(text, sizes={"N": 2**47})
    assert found in (
        [],
        [f"the index about 2**8930 of '{variable[0]}' is outside its bound {3 if variable[0] == 'K' else 4}"],
    )


def test_a_pattern_with_an_index_of_thousands_of_digits_is_left_to_the_run(make_model: MakeModel) -> None:
    index = "*".join(["N"] * 190)
    text = f"""constant {{ W(l): f32 @pattern("W.{{l}}"); }} volatile {{ y: f32; }}
        block entry {{ op neg(W[{index}]) >> y; return; }}"""
    assert codes(text, make_model({"W.0": floats()}), {"N": 2**47}) == []
