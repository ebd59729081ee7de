"""Sizes: where they come from, dynamic ones, expressions, and sizes nobody can have."""

from typing import Any

import numpy as np
import pytest
from tests.check.binding import bound, codes, floats, marked, messages, problems, types
from tests.check.conftest import MakeModel

from openinfer import GraphError, Simulator, Synthesizer, bind, graph
from openinfer.check.sizes import mentioned_sizes
from openinfer.errors import Code

INPUT = "dynamic { x: f32[N]; } block entry { return x; }"


# --- where a size comes from ----------------------------------------------------------------------------------------


def test_the_caller_comes_before_the_section_the_size_variables_and_the_metadata(make_model: MakeModel) -> None:
    model = make_model(sizes={"N": 3}, metadata={"N": 4})
    assert types(bound("sizes { N := 2; }" + INPUT, model, {"N": 1})) == {"x": "f32[N=1]"}


def test_the_section_comes_before_the_size_variables(make_model: MakeModel) -> None:
    assert types(bound("sizes { N := 2; }" + INPUT, make_model(sizes={"N": 3}))) == {"x": "f32[N=2]"}


def test_the_size_variables_come_before_the_metadata(make_model: MakeModel) -> None:
    assert types(bound(INPUT, make_model(sizes={"N": 3}, metadata={"N": 4}))) == {"x": "f32[N=3]"}


def test_integer_metadata_is_a_size_when_nothing_else_is(make_model: MakeModel) -> None:
    assert types(bound(INPUT, make_model(metadata={"N": 4}))) == {"x": "f32[N=4]"}


@pytest.mark.parametrize("value", [4.0, True, "four", [4]])
def test_other_metadata_is_no_size(make_model: MakeModel, value: Any) -> None:
    assert codes(INPUT, make_model(metadata={"N": value})) == ["E208"]


def test_what_the_caller_gives_counts_in_sizes_that_depend_on_it() -> None:
    assert types(bound("sizes { T := N*2; N := 2; }" + INPUT.replace("N]", "T]"), sizes={"N": 5})) == {"x": "f32[T=10]"}


def test_a_size_nobody_gives_is_reported_with_the_nearest_name() -> None:
    (problem,) = problems("sizes { width := 2; } dynamic { x: f32[widht]; } block entry { return; }")
    assert str(problem.code) == "E208"
    assert marked(problem).startswith("x: f32[widht")
    assert problem.help == "did you mean 'width'?"


def test_a_size_that_nothing_has_is_refused_everywhere_with_the_nearest_name(make_model: MakeModel) -> None:
    text = "sizes { width := 2; } dynamic { x: f32[width, N]; } block entry { return x; }"
    wrong = {"N": 1, "widht": 7}
    for bad in (
        lambda: bind(graph(text), None, wrong),
        lambda: Simulator(sizes=wrong).make_executor(graph(text)),
        lambda: Synthesizer().synthesize(None, graph(text), sizes=wrong),
    ):
        with pytest.raises(GraphError) as caught:
            bad()
        (problem,) = caught.value.diagnostics
        assert (problem.code, problem.message) == (Code.UNKNOWN_SIZE, "the graph has no size 'widht'")
        assert problem.help == "did you mean 'width'?"
    # A size of the model is no mistake, even if this graph does not use it.
    assert bind(graph(INPUT), make_model(sizes={"B": 3}), {"N": 1, "B": 2}).sizes["N"] == 1


def test_sizes_of_bounds_indices_and_parameters_are_known() -> None:
    text = """dynamic { x: f32[4]; } volatile { y: f32[3]; } persistent { K(t): f32[4] @table @fixed(t=A); }
    block entry {
        loop l (i in 0..C) { cache.write x >> K[i+D]; } op slice(x, axes=[0], starts=[E], ends=[F]) >> y; return y;
    }"""
    assert set(mentioned_sizes(graph(text))) == {*"ACDEFi"}
    assert bind(graph(text), None, {"A": 9, "C": 2, "D": 1, "E": 0, "F": 3}).bounds == {}


def test_sizes_and_variables_are_separate_namespaces() -> None:
    text = "dynamic { N: i32; x: f32[N]; } block entry { return; }"
    assert types(bound(text, sizes={"N": 3})) == {"N": "i32", "x": "f32[N=3]"}


# --- expressions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "extent"), [("3*D", 24), ("D/2", 4), ("D-8", 0), ("(D+2)*2-1", 19), ("D/H*H", 8), ("0", 0), ("-(0-D)", 8)]
)
def test_a_dimension_is_an_expression_over_sizes(dim: str, extent: int) -> None:
    found = bound(f"dynamic {{ x: f32[{dim}]; }} block entry {{ return; }}", sizes={"D": 8, "H": 2})
    assert found.vars["x"].shape == (extent,)


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        ("D/3", "'D/3' does not divide evenly: 8 / 3"),
        ("(D/3)*3", "'D/3' does not divide evenly: 8 / 3"),
        ("D/Z", "'D/Z' divides by zero: 'Z' is 0"),
        ("D-9", "the dimension 'D-9' is -1"),
        ("D*D*D*D*D*D*D*D*D*D*D*D*D*D*D*D", f"the dimension '{'D*' * 15}D' is {8**16}, more than any machine can hold"),
    ],
)
def test_a_dimension_without_a_sensible_value_is_refused(dim: str, message: str) -> None:
    text = f"dynamic {{ x: f32[{dim}]; }} block entry {{ return; }}"
    assert messages(text, sizes={"D": 8, "Z": 0}) == [message]


@pytest.mark.parametrize("place", ["dynamic { x: f32[D/3]; }", "persistent { x(i): f32 @table @fixed(i=D/3); }"])
def test_uneven_divisions_are_refused_wherever_a_size_stands(place: str) -> None:
    assert codes(place + "block entry { return; }", sizes={"D": 8}) == ["E303"]


def test_a_fixed_size_is_an_expression_over_other_sizes_in_any_order() -> None:
    text = "sizes { E := C-1; C := 2*D; D := H*Dh; }  dynamic { x: f32[E]; } block entry { return; }"
    assert types(bound(text, sizes={"H": 2, "Dh": 4})) == {"x": "f32[E=15]"}


def test_a_wrong_size_is_reported_once_and_not_for_everything_that_uses_it() -> None:
    text = """sizes { E := D/3; F := E*2; }
        dynamic { x: f32[E]; y: f32[F]; }
        block entry { assign h: f32[F]; op add(x, h) >> y; loop l (i in 0..F) { op relu(y, alpha=E) >> h; } return; }"""
    (problem,) = problems(text, sizes={"D": 8})
    assert (str(problem.code), marked(problem)) == ("E303", "E := D/3")


# --- what the caller gives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2**70, -1, 4.0, True, "4", None, [4], np.float32(4)])
def test_a_size_that_is_none_is_refused_once(value: Any) -> None:
    (problem,) = problems(INPUT, sizes={"N": value})
    assert str(problem.code) == "E303"
    assert problem.message.startswith("the size 'N' is an integer from 0 to 2**47, not ")


@pytest.mark.parametrize("value", [0, 3, np.int64(3), np.uint8(3)])
def test_sizes_are_integers_of_python_or_numpy(value: Any) -> None:
    assert bound(INPUT, sizes={"N": value}).vars["x"].shape == (int(value),)


# --- dynamic sizes --------------------------------------------------------------------------------------------------

DYNAMIC = "sizes {{ T <= 8; }} dynamic {{ x: f32[T]; }} volatile {{ y: f32[{0}]; }} block entry {{ {1} return y; }}"


def test_a_dynamic_size_has_its_bound_in_types() -> None:
    found = bound(DYNAMIC.format("2*T", "op concat(x, x, axis=0) >> y;"))
    assert types(found) == {"x": "f32[T=8]", "y": "f32[2*T=16]"}
    assert (found.sizes, found.bounds) == ({}, {"T": 8})
    assert found.ops[0].is_dynamic


def test_types_that_fit_at_the_bound_only_by_accident_are_refused() -> None:
    (problem,) = problems(DYNAMIC.format("8", "op neg(x) >> y;"))
    assert (str(problem.code), problem.message) == ("E309", "'neg' gives f32[7], but y is f32[8]")
    assert problem.notes == ("dynamic sizes can be smaller than their bounds, here T=7",)


def test_two_dynamic_sizes_with_one_bound_are_two_sizes() -> None:
    text = "sizes { T <= 8; U <= 8; } dynamic { x: f32[T]; y: f32[U]; } block entry { op add(x, y) >> x; return; }"
    (problem,) = problems(text)
    assert problem.message == "f32[U=6] does not broadcast with f32[T=7]"


@pytest.mark.parametrize(
    ("bound_", "dim"), [("128", "T/128"), ("6", "T/3"), ("99", "T-90"), ("2048", "T/64+T/2"), ("4096", "T/1024")]
)
def test_the_other_sizes_that_are_tried_are_ones_that_all_dimensions_have(bound_: str, dim: str) -> None:
    text = f"""sizes {{ T <= {bound_}; }} dynamic {{ x: f32[{dim}]; }} volatile {{ y: f32[{dim}]; }}
        block entry {{ op neg(x) >> y; return; }}"""
    assert codes(text) == []


def test_a_dimension_that_divides_by_much_is_judged_below_the_bound_too() -> None:
    text = """sizes { T <= 4096; } dynamic { x: f32[T/1024]; } volatile { y: f32[4]; }
        block entry { op neg(x) >> y; return; }"""
    assert messages(text) == ["'neg' gives f32[2], but y is f32[4]"]


def test_what_the_caller_gives_fixes_a_dynamic_size() -> None:
    found = bound(DYNAMIC.format("5", "op neg(x) >> y;"), sizes={"T": 5})
    assert (found.sizes, found.bounds) == ({"T": 5}, {})
    assert not found.ops[0].is_dynamic


def test_what_the_caller_gives_respects_the_bound() -> None:
    (problem,) = problems(DYNAMIC.format("T", "op neg(x) >> y;"), sizes={"T": 9})
    assert (str(problem.code), marked(problem)) == ("E312", "T <= 8")


def test_a_fixed_size_cannot_depend_on_a_dynamic_one() -> None:
    (problem,) = problems("sizes { S := 2*T; T <= 8; } dynamic { x: f32[S]; } block entry { return; }")
    assert (str(problem.code), marked(problem)) == ("E303", "S := 2*T")
    assert problem.message == "the size 'S' is fixed, but it depends on 'T', which is dynamic"


def test_a_bound_may_depend_on_a_dynamic_size() -> None:
    assert bound("sizes { S <= 2*T; T <= 8; } block entry { return; }").bounds == {"T": 8, "S": 16}


@pytest.mark.parametrize("dim", ["K: f32[T]", "K(l): f32[4, T] @table", "K(i): f32[T] @auto_dim(i)"])
def test_persistent_memory_has_no_dynamic_sizes_because_it_outlives_the_step_that_binds_them(dim: str) -> None:
    (problem,) = problems(f"sizes {{ T <= 8; }} persistent {{ {dim}; }} block entry {{ return; }}")
    assert str(problem.code) == "E303"
    assert "has one shape, but 'K' has the dynamic size 'T'" in problem.message
    assert problem.help is not None
    assert "@table" in problem.help


def test_the_indices_of_a_table_may_be_bounded_by_a_dynamic_size() -> None:
    found = bound("sizes { T <= 8; } persistent { K(t): f32 @table @fixed(t=T); } block entry { return; }")
    assert found.vars["K"].fixed == {"t": 8}


def test_prefix_tables_and_variables_filled_from_the_model_have_no_dynamic_sizes(make_model: MakeModel) -> None:
    model = make_model({"w": floats(8), "W.0": floats(8)})
    text = """sizes { T <= 8; } volatile { w: f32[T]; } constant { W(l): f32[T] @pattern("W.{l}"); }
        block entry { return; }"""
    assert codes(text, model) == ["E311", "E303"]


def test_an_index_with_a_dynamic_size_is_left_to_the_step() -> None:
    text = """sizes { T <= 64; } dynamic { x: f32[T]; } persistent { K(t): f32 @table @fixed(t=8); }
        block entry { cache.write x >> K[0..T]; return; }"""
    assert codes(text) == []


def test_a_slice_that_ends_at_a_dynamic_size_makes_an_op_dynamic() -> None:
    text = """sizes { T <= 8; } persistent { K(t): f32[4] @table; } volatile { y: f32[4]; }
        block entry { op mean_axis(K[0..T], axis=0) >> y; return; }"""
    assert bound(text).ops[0].is_dynamic


# --- hostile sizes --------------------------------------------------------------------------------------------------


def test_a_number_with_thousands_of_digits_is_refused_in_words() -> None:
    product = "*".join(["(" + "*".join(["N"] * 20) + ")"] * 20)
    (message,) = messages(f"dynamic {{ x: f32[{product}]; }} block entry {{ return; }}", sizes={"N": 2**47})
    assert message.endswith("is a number with more than a thousand digits")


def test_a_chain_of_ten_thousand_sizes_is_followed() -> None:
    chain = "".join(f"A{number} := A{number - 1}+1; " for number in range(10_000, 0, -1))
    found = bound(f"sizes {{ {chain} A0 := 1; }} dynamic {{ x: f32[A10000]; }} block entry {{ return; }}")
    assert found.vars["x"].shape == (10_001,)


def test_a_cycle_of_a_thousand_sizes_is_found() -> None:
    from openinfer.lang import parse

    chain = "".join(f"A{number} := A{(number + 1) % 1000}; " for number in range(1000))
    found = parse(f"sizes {{ {chain} }} block entry {{ return; }}").problems
    assert len(found) == 1000
    assert {problem.message for problem in found} >= {"the size 'A0' depends on itself"}


def test_a_tensor_has_no_more_than_sixteen_dimensions() -> None:
    text = f"dynamic {{ x: f32[{'1, ' * 16}1]; }} block entry {{ assign h: f32[{'1, ' * 19}1]; return; }}"
    assert messages(text) == [
        "'x' has 17 dimensions, more than the 16 a tensor may have",
        "'h' has 20 dimensions, more than the 16 a tensor may have",
    ]
