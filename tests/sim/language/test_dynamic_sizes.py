"""Sizes: where a name gets its value, dimensions as expressions, and dynamic sizes bound step by step."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, step, step_error

from openinfer import bind, graph
from openinfer.errors import Code, ExecutionError

X = "block entry { return x; }"
ADD = """sizes { T <= 4; } dynamic { x: f32[T]; z: f32[T]; } volatile { y: f32[T]; }
    block entry { op add(x, z) >> y; return y; }"""


def size(text: str, *, model: Any = None, given: dict[str, int] | None = None) -> int:
    """The extent of the one dimension of ``x``."""
    return bind(graph(text), model, given).vars["x"].shape[0]


# --- where sizes come from --------------------------------------------------------------------------------------------


@sentence("size.order")
def test_sizes_come_from_the_caller_then_the_section_then_the_model_then_metadata(make_model: MakeModel) -> None:
    both = make_model(sizes={"S": 3}, metadata={"S": 4})
    section = f"sizes {{ S := 2; }} dynamic {{ x: f32[S]; }} {X}"
    plain = f"dynamic {{ x: f32[S]; }} {X}"
    assert size(section, model=both, given={"S": 1}) == 1
    assert size(section, model=both) == 2
    assert size(plain, model=both, given={"S": 1}) == 1
    assert size(plain, model=both) == 3
    assert size(plain, model=make_model(metadata={"S": 4})) == 4
    assert binding_codes(plain) == [Code.UNKNOWN_SIZE]


@sentence("size.order")
@pytest.mark.parametrize("value", [2.0, True, "2", [2]])
def test_metadata_that_is_no_integer_is_no_size(make_model: MakeModel, value: Any) -> None:
    assert binding_codes(f"dynamic {{ x: f32[S]; }} {X}", make_model(metadata={"S": value})) == [Code.UNKNOWN_SIZE]


@sentence("size.order")
@pytest.mark.parametrize("value", [-1, 1 << 60, 1.5, True, "3"])
def test_a_size_that_the_caller_gives_is_an_integer_that_a_machine_can_have(value: Any) -> None:
    assert binding_codes(f"dynamic {{ x: f32[S]; }} {X}", sizes={"S": value}) == [Code.BAD_SHAPE]


@sentence("size.order")
def test_a_bounded_size_that_the_caller_gives_is_fixed_and_stays_within_its_bound() -> None:
    text = f"sizes {{ T <= 8; }} dynamic {{ x: f32[T]; }} {X}"
    ready = executor(text, sizes={"T": 3})
    assert step(ready, x=[1.0, 2.0, 3.0]).fetch("x").shape == (3,)
    with pytest.raises(ExecutionError):
        ready.insert(x=[1.0, 2.0])
    assert binding_codes(text, sizes={"T": 9}) == [Code.SIZE_CONFLICT]


@sentence("size.order")
def test_sizes_may_depend_on_each_other_in_any_order() -> None:
    text = f"sizes {{ S := 2*D; D := N*Dh; }} dynamic {{ x: f32[S]; }} {X}"
    assert size(text, given={"N": 3, "Dh": 4}) == 24
    assert size(text, given={"D": 5}) == 10


@sentence("dimension.expression")
@pytest.mark.parametrize(
    ("dimension", "expected"),
    [("3*D", 18), ("D/2", 3), ("D - 2", 4), ("(D + 2)/4*3", 6), ("2*D/4", 3), ("D*0", 0), ("D - D + 7", 7)],
)
def test_a_dimension_is_an_integer_expression_over_sizes(dimension: str, expected: int) -> None:
    assert size(f"dynamic {{ x: f32[{dimension}]; }} {X}", given={"D": 6}) == expected


@sentence("dimension.expression")
@pytest.mark.parametrize("dimension", ["D/4", "2 - D", "D/(D - 6)"])
def test_a_dimension_that_does_not_divide_evenly_or_is_negative_is_an_error(dimension: str) -> None:
    assert binding_codes(f"dynamic {{ x: f32[{dimension}]; }} {X}", sizes={"D": 6}) == [Code.BAD_SHAPE]


@sentence("dimension.scalar")
def test_empty_brackets_and_none_are_scalars() -> None:
    text = "dynamic { a: f32; b: f32[]; } volatile { y: f32[]; } block entry { op add(a, b) >> y; return y; }"
    found = after_step(text, a=1.0, b=2.0).fetch("y")
    assert (found.shape, found) == ((), 3.0)


@sentence("dimension.zero")
def test_a_dimension_may_be_zero() -> None:
    text = f"dynamic {{ x: f32[N, 2]; }} volatile {{ s: f32[2]; }} {X}".replace(
        "return", "op sum_axis(x, axis=0) >> s; return"
    )
    ready = after_step(text, sizes={"N": 0}, x=np.zeros((0, 2), np.float32))
    assert ready.fetch("x").shape == (0, 2)
    assert ready.fetch("s").tolist() == [0.0, 0.0]


# --- dynamic sizes ----------------------------------------------------------------------------------------------------


@sentence("dynamic-size.input")
def test_an_input_binds_a_dynamic_size_and_another_one_in_each_step() -> None:
    ready = executor(ADD)
    for length in (3, 1, 4, 0):
        ones = [1.0] * length
        assert step(ready, x=ones, z=ones).fetch("y").tolist() == [2.0] * length


@sentence("dynamic-size.agree")
def test_inputs_that_disagree_are_an_error() -> None:
    ready = executor(ADD)
    error = step_error(ready, x=[1.0, 2.0], z=[1.0])
    assert error.code is Code.SIZE_CONFLICT
    assert "T=2" in error.diagnostics[0].message
    assert step(ready, x=[1.0], z=[2.0]).fetch("y").tolist() == [3.0]


@sentence("dynamic-size.bound")
def test_a_value_beyond_the_bound_is_an_error() -> None:
    ready = executor(ADD)
    with pytest.raises(ExecutionError) as caught:
        ready.insert(x=[1.0] * 5)
    assert caught.value.code is Code.SIZE_CONFLICT
    assert "at most 4" in caught.value.diagnostics[0].message


@sentence("dynamic-size.bound")
def test_the_bound_is_what_memory_is_planned_for() -> None:
    bound = bind(graph("sizes { T <= 4; } dynamic { x: f32[2*T, 3]; } block entry { return x; }"))
    assert bound.vars["x"].shape == (8, 3)
    assert dict(bound.bounds) == {"T": 4}


@sentence("dynamic-size.slice")
def test_a_slice_that_is_read_binds_a_dynamic_size() -> None:
    text = """sizes { T <= 8; } dynamic { k: f32[2]; } persistent { step: i32; K(t): f32[2] @table; }
        volatile { s: f32[2]; }
        block entry { assign past: f32[T, 2]; assign h: f32[T, 2];
            cache.write k >> K[step]; cache.increment step; cache.read K[0..step] >> past;
            op add(past, past) >> h; op sum_axis(h, axis=0) >> s; return s; }"""
    ready = executor(text)
    for number, total in ((1.0, 2.0), (2.0, 6.0), (3.0, 12.0)):
        step(ready, k=[number, 0.0])
        assert ready.fetch("s").tolist() == [total, 0.0]
    assert ready.fetch("h").shape == (3, 2)


@sentence("dynamic-size.slice", "dynamic-size.agree")
def test_a_slice_that_disagrees_with_an_input_is_an_error() -> None:
    text = """sizes { T <= 8; } dynamic { x: i32[T]; n: i32; } persistent { K(t): i32 @table; } volatile { y: i32[T]; }
        block entry { cache.read K[0..n] >> y; op add(x, y) >> y; return y; }"""
    assert after_step(text, x=[1, 2], n=2).fetch("y").tolist() == [1, 2]
    error = step_error(executor(text), x=[1, 2], n=3)
    assert error.code is Code.SIZE_CONFLICT
    assert "node 0" in "".join(error.diagnostics[0].notes)


@sentence("dynamic-size.slice")
def test_a_slice_beyond_the_bound_is_an_error() -> None:
    text = """sizes { T <= 2; } dynamic { n: i32; } persistent { K(t): i32 @table; }
        block entry { assign y: i32[T]; cache.read K[0..n] >> y; return y; }"""
    assert after_step(text, n=2).fetch("y").tolist() == [0, 0]
    assert step_error(executor(text), n=3).code is Code.SIZE_CONFLICT


@sentence("dynamic-size.expression")
@pytest.mark.parametrize(
    ("dimension", "length", "bound"),
    [
        ("2*T", 6, 3),
        ("T + 1", 4, 3),
        ("2*T - 1", 5, 3),
        ("T*D", 15, 3),
        ("T/2", 2, 4),
        ("(T + 4)/3*2", 4, 2),
        ("8 - T", 5, 3),
        ("T*T", 9, 3),
        ("T*(T + 1)/2", 6, 3),
        ("T", 0, 0),
    ],
)
def test_an_expression_binds_the_size_in_it(dimension: str, length: int, bound: int) -> None:
    text = f"""sizes {{ T <= 8; }} dynamic {{ x: f32[{dimension}]; n: i32; }} persistent {{ count: i32; }}
        block entry {{ loop l (i in 0..T) {{ cache.increment count; }} return; }}"""
    assert after_step(text, sizes={"D": 5}, x=[1.0] * length, n=0).fetch("count") == bound


@sentence("dynamic-size.expression")
@pytest.mark.parametrize(("dimension", "length"), [("2*T", 5), ("T + 3", 2), ("T*D", 7), ("T*T", 8), ("T/2", 5)])
def test_a_length_that_no_value_of_the_size_gives_is_an_error(dimension: str, length: int) -> None:
    text = f"sizes {{ T <= 8; }} dynamic {{ x: f32[{dimension}]; }} {X}"
    with pytest.raises(ExecutionError) as caught:
        executor(text, sizes={"D": 5}).insert(x=[1.0] * length)
    assert caught.value.code is Code.SIZE_CONFLICT


@sentence("dynamic-size.expression")
def test_expressions_over_a_bound_size_must_agree_as_well() -> None:
    text = f"sizes {{ T <= 8; }} dynamic {{ a: f32[T]; x: f32[2*T, T + 1]; }} {X}"
    ready = executor(text)
    assert step(ready, a=[1.0] * 3, x=np.zeros((6, 4), np.float32)).fetch("x").shape == (6, 4)
    assert step_error(ready, a=[1.0] * 2, x=np.zeros((6, 4), np.float32)).code is Code.SIZE_CONFLICT


@sentence("dynamic-size.expression")
def test_a_dimension_with_two_sizes_is_settled_by_another_one() -> None:
    text = f"sizes {{ T <= 8; U <= 8; }} dynamic {{ x: f32[T*U, U]; }} {X}"
    ready = executor(text)
    assert step(ready, x=np.zeros((6, 3), np.float32)).fetch("x").shape == (6, 3)
    with pytest.raises(ExecutionError):
        ready.insert(x=np.zeros((7, 3), np.float32))
    alone = executor(f"sizes {{ T <= 8; U <= 8; }} dynamic {{ x: f32[T*U]; }} {X}")
    assert step_error(alone, x=[1.0] * 6).code is Code.SIZE_CONFLICT


@sentence("dynamic-size.uses")
def test_a_bound_size_is_used_by_temporaries_parameters_loops_and_indices() -> None:
    text = """sizes { T <= 8; } dynamic { x: f32[T, 2]; } persistent { n: i32; K(t): i32 @table; }
        block entry { assign flat: f32[2*T]; assign zero: f32[T, 2];
            op reshape(x, shape=[2*T]) >> flat;
            op add(zero, x) >> zero;
            loop l (i in 0..T) { cache.increment n; }
            cache.write n >> K[T]; return flat, zero; }"""
    ready = executor(text)
    for length in (3, 1):
        value = np.arange(2 * length, dtype=np.float32).reshape(length, 2)
        ready.reset()
        step(ready, x=value)
        assert ready.fetch("flat").tolist() == value.reshape(-1).tolist()
        assert ready.fetch("zero").tolist() == value.tolist()
        assert ready.fetch("K").tolist() == [0] * length + [length]


@sentence("dynamic-size.uses")
def test_a_size_that_nothing_has_bound_yet_is_a_located_error() -> None:
    text = """sizes { T <= 8; } volatile { y: f32[T]; } block entry { op neg(y) >> y; return y; }"""
    error = step_error(executor(text))
    assert error.code is Code.SIZE_CONFLICT
    assert "'T' has no value yet" in error.diagnostics[0].message
    assert "node 0" in "".join(error.diagnostics[0].notes)


@sentence("dynamic-size.uses")
def test_a_variable_without_a_shape_yet_cannot_be_fetched() -> None:
    ready = executor("sizes { T <= 8; } volatile { y: f32[T]; } block entry { return; }")
    with pytest.raises(ExecutionError) as caught:
        ready.fetch("y")
    assert caught.value.code is Code.SIZE_CONFLICT


@sentence("dynamic-size.agree")
def test_types_that_fit_only_at_the_bounds_are_errors() -> None:
    text = """sizes { T <= 4; U <= 4; } dynamic { x: f32[T]; z: f32[U]; } volatile { y: f32[T]; }
        block entry { op add(x, z) >> y; return y; }"""
    assert Code.SHAPE_MISMATCH in binding_codes(text)


@sentence("dynamic-size.init")
def test_initial_values_follow_a_dynamic_size() -> None:
    text = """sizes { T <= 4; } dynamic { x: f32[T]; } volatile { y: f32[T] @init(5.0); }
        block entry { op add(x, y) >> y; return y; }"""
    ready = after_step(text, x=[1.0, 2.0])
    assert ready.fetch("y").tolist() == [6.0, 7.0]
    assert step(ready, x=[1.0]).fetch("y").tolist() == [6.0]


@sentence("dynamic-size.persistent")
@pytest.mark.parametrize(
    "declared",
    [
        "persistent { h: f32[T]; }",
        "persistent { K(i): f32[T] @table; }",
        'volatile { W(l): f32[T] @pattern("W.{l}"); }',
        "volatile { w: f32[T]; }",
        "constant { w: f32[T]; }",
    ],
)
def test_what_outlives_a_step_or_comes_from_the_model_has_no_dynamic_size(make_model: MakeModel, declared: str) -> None:
    model = make_model({"w": np.zeros(4, np.float32), "W.0": np.zeros(4, np.float32)})
    text = f"sizes {{ T <= 4; }} {declared} block entry {{ return; }}"
    assert binding_codes(text, model) in ([Code.BAD_SHAPE], [Code.LINK_TYPE])
