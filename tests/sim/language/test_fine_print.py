"""The fine print: where names are looked up, metadata as constants, small rules of nodes, node indices."""

from typing import Any

import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, text_codes

from openinfer import Executor, graph
from openinfer.errors import Code

# --- names ------------------------------------------------------------------------------------------------------------


@sentence("names.separate")
def test_sizes_and_variables_are_separate_namespaces() -> None:
    text = "dynamic { B: i32[B]; } volatile { y: i32[B]; } block entry { op add(B, B) >> y; return y; }"
    assert after_step(text, sizes={"B": 2}, B=[1, 2]).fetch("y").tolist() == [2, 4]


@sentence("names.separate")
def test_in_a_dimension_a_name_is_a_size_even_where_a_variable_has_it() -> None:
    text = "dynamic { n: i32; } block entry { assign t: i32[n]; return t; }"
    assert after_step(text, sizes={"n": 3}, n=9).fetch("t").shape == (3,)
    assert binding_codes(text) == [Code.UNKNOWN_SIZE]


LOOKUP = """{variable} persistent {{ K(t): i32 @table; c: i32; }}
    block entry {{ {before} cache.write c >> K[i]; {after} return; }}"""


def extent(variable: str, before: str, after: str, **inputs: Any) -> int:
    """One more than the index that a write used, where a size ``i`` is 7."""
    text = LOOKUP.format(variable=variable, before=before, after=after)
    return int(after_step(text, sizes={"i": 7}, **inputs).fetch("K").shape[0])


@sentence("names.index")
def test_in_an_index_a_name_is_a_loop_index_then_a_variable_then_a_size() -> None:
    assert extent("", "", "") == 8
    assert extent("dynamic { i: i32; }", "", "", i=4) == 5
    assert extent("dynamic { i: i32; }", "loop l (i in 1..2) {", "}", i=4) == 2
    assert extent("", "loop l (i in 1..2) {", "}") == 2


@sentence("names.index")
def test_in_a_loop_bound_a_name_is_a_loop_index_then_a_variable_then_a_size() -> None:
    text = """%s persistent { n: i32; } block entry { %s return; }"""
    inner = "loop b (j in 0..i) { cache.increment n; }"
    variable = "dynamic { i: i32; }"
    assert after_step(text % ("", inner), sizes={"i": 7}).fetch("n") == 7
    assert after_step(text % (variable, inner), sizes={"i": 7}, i=4).fetch("n") == 4
    outer = f"loop a (i in 0..3) {{ {inner} }}"
    assert after_step(text % (variable, outer), sizes={"i": 7}, i=4).fetch("n") == 3


@sentence("names.index")
def test_an_index_is_a_loop_index_only_inside_its_loop() -> None:
    assert extent("dynamic { i: i32; }", "loop l (i in 0..3) { cache.increment c; }", "", i=4) == 5


@sentence("names.dots")
def test_names_with_dots_are_no_dimensions(make_model: MakeModel) -> None:
    text = "dynamic { x: f32[a.b]; } block entry { return x; }"
    assert Code.SYNTAX in text_codes(text)
    assert make_model(sizes={"a.b": 2}).size_of("a.b") == 2


# --- nodes ------------------------------------------------------------------------------------------------------------


@sentence("node.after-terminator")
def test_a_node_after_a_terminator_is_an_error() -> None:
    assert text_codes("dynamic { x: i32; } block entry { return; op neg(x) >> x; return; }") == [Code.AFTER_TERMINATOR]


@sentence("node.return-in-loop")
def test_a_return_inside_a_loop_is_an_error() -> None:
    assert Code.RETURN_IN_LOOP in text_codes("block entry { loop l (i in 0..2) { return; } return; }")


@sentence("node.indices")
def test_node_indices_are_pre_order_over_blocks_in_source_order() -> None:
    text = """dynamic { x: i32; } block b { op neg(x) >> x; return; }
        block entry { loop l (i in 0..2) { scope "s" { op neg(x) >> x; } barrier; } branch b; return; }"""
    found = [(node.index, type(node.kind).__name__) for node in graph(text).walk()]
    assert found == list(enumerate(["Op", "Return", "Loop", "Scope", "Op", "Barrier", "Branch", "Return"]))
    ready = after_step(text, x=1)
    run = [event.node_index for event in ready.events]
    assert run == [2, 3, 4, 5, 3, 4, 5, 6, 0, 1, 7]


@sentence("assign.like-an-entry")
def test_a_model_entry_named_like_a_temporary_is_no_conflict(make_model: MakeModel) -> None:
    text = "dynamic { x: i32; } block entry { assign w: i32; op add(w, x) >> w; return w; }"
    assert after_step(text, make_model({"w": floats(1, 2, 3)}), x=5).fetch("w") == 5


@sentence("op.persistent")
def test_ops_use_persistent_variables_directly() -> None:
    text = """dynamic { x: f32[2]; } persistent { h: f32[2]; }
        block entry { op add(h, x) >> h; op mul(h, h) >> h; return h; }"""
    ready = after_step(text, x=[1.0, 2.0])
    assert step(ready, x=[1.0, 1.0]).fetch("h").tolist() == [4.0, 25.0]


@sentence("attribute.once")
def test_a_repeated_attribute_is_an_error() -> None:
    assert text_codes("volatile { a: f32 @init(1.0) @init(2.0); } block entry { return; }") == [Code.REPEATED]


@sentence("op.positional-first")
def test_a_positional_argument_after_a_named_one_is_an_error() -> None:
    text = "dynamic { x: f32; } block entry { op sub(a=x, x) >> x; return; }"
    assert text_codes(text) == [Code.POSITIONAL_AFTER_NAMED]


# --- constants and initial values -------------------------------------------------------------------------------------


def constant(make_model: MakeModel, declared: str, value: Any) -> Any:
    """The value of a constant that metadata fills."""
    model = make_model(metadata={"k": value})
    return executor(f"constant {{ k: {declared}; }} block entry {{ return k; }}", model).fetch("k")


@sentence("metadata.converts")
@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        ("f32", 0.5, 0.5),
        ("f16", 0.5, 0.5),
        ("f64", 0.5, 0.5),
        ("i32", 7, 7),
        ("u4", 7, 7),
        ("f32", 7, 7.0),
        ("i8", 7.0, 7),
        ("bool", True, True),
        ("f16", float("inf"), float("inf")),
    ],
)
def test_a_metadata_scalar_may_fill_a_constant_of_another_type_when_nothing_is_lost(
    make_model: MakeModel, declared: str, value: Any, expected: Any
) -> None:
    assert constant(make_model, declared, value).item() == expected


@sentence("metadata.converts")
@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("i8", 300),
        ("u8", -1),
        ("i32", 0.5),
        ("f16", 100_000),
        ("bool", 1),
        ("i32", True),
        ("f32", 2**24 + 1),
        ("t1", 0),
    ],
)
def test_a_metadata_scalar_that_would_change_is_an_error(make_model: MakeModel, declared: str, value: Any) -> None:
    model = make_model(metadata={"k": value})
    text = f"constant {{ k: {declared}; }} block entry {{ return k; }}"
    assert binding_codes(text, model) == [Code.LINK_TYPE]


@sentence("metadata.converts")
def test_a_string_is_no_value_of_a_constant(make_model: MakeModel) -> None:
    text = "constant { k: f32; } block entry { return k; }"
    assert binding_codes(text, make_model(metadata={"k": "fast"})) == [Code.UNKNOWN_LINK]


@sentence("metadata.arrays")
def test_a_bitset_reads_as_bools_and_an_array_as_its_elements(make_model: MakeModel) -> None:
    bits = np.array([True, False, True, True, False, False, True, False, True])
    assert constant(make_model, "bool[9]", bits).tolist() == bits.tolist()
    assert constant(make_model, "i32[3]", np.array([1, 2, 3], np.int32)).tolist() == [1, 2, 3]


@sentence("metadata.converts")
def test_a_converted_metadata_scalar_is_what_ops_parameters_and_loops_see(make_model: MakeModel) -> None:
    text = """dynamic { x: f32[2]; } constant { alpha: f32; count: i32; slope: f16; } persistent { n: i32; }
        block entry { op mul(x, alpha) >> x; op relu(x, negative_slope=slope) >> x;
            loop l (i in 0..count) { cache.increment n; } return; }"""
    model = make_model(metadata={"alpha": 2, "count": 3, "slope": 0.25})
    ready = after_step(text, model, x=[1.0, -2.0])
    assert ready.fetch("x").tolist() == [2.0, -1.0]
    assert ready.fetch("n") == 3


@sentence("init.integer")
@pytest.mark.parametrize("dtype", ["f8", "bf16", "f16", "f32", "f64"])
def test_an_integer_initial_value_on_a_float_is_fine(dtype: str) -> None:
    ready = executor(f"volatile {{ a: {dtype}[2] @init(5); }} block entry {{ return a; }}")
    assert ready.fetch("a").astype(float).tolist() == [5.0, 5.0]


@sentence("init.integer")
@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("i4", "-8", -8),
        ("u64", "0xFFFFFFFFFFFFFFFF", 2**64 - 1),
        ("bool", "true", True),
        ("f32", "-inf", float("-inf")),
        ("f16", "0.1", float(np.float16(0.1))),
        ("bf16", "1.00390625000001", 1.0078125),  # rounded once: by way of f32 it would be 1
        ("t1", "-1", -1),
    ],
)
def test_initial_values_of_every_kind(dtype: str, value: str, expected: Any) -> None:
    ready = executor(f"persistent {{ a: {dtype} @init({value}); }} block entry {{ return a; }}")
    assert ready.fetch("a").item() == expected


@sentence("init.integer")
@pytest.mark.parametrize(("dtype", "value"), [("i8", "128"), ("u8", "-1"), ("i32", "1.5"), ("t1", "0"), ("i4", "8")])
def test_an_initial_value_that_the_dtype_does_not_have_is_an_error(dtype: str, value: str) -> None:
    text = f"volatile {{ a: {dtype} @init({value}); }} block entry {{ return a; }}"
    assert text_codes(text) == [Code.BAD_ATTRIBUTE]


# --- attention over a cache of another dtype --------------------------------------------------------------------------

ATTENTION = """dynamic {{ x: f32[T, 4]; }} constant {{ W: f32[4, 4]; }} volatile {{ y: f32[T, 4]; }}
    persistent {{ K(t): f16[4] @table; V(t): f16[4] @table; n: i32; }} sizes {{ S <= 16; }}
    block entry {{ assign k: f16[S, 4]; assign v: f16[S, 4]; assign half: f16[T, 4];
        op cast(x, to=f16) >> half; cache.write half >> K[n..n + T]; cache.write half >> V[n..n + T];
        cache.increment 2 n; cache.read K[] >> k; cache.read V[] >> v; {0} >> y; return y; }}"""


def attended(op: str, make_model: MakeModel, x: Any) -> Executor:
    weights = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    return after_step(ATTENTION.format(op), make_model({"W": weights}), {"T": 2}, x=x)


@sentence("attention.mixed")
def test_attention_takes_keys_and_values_of_another_float_dtype(make_model: MakeModel) -> None:
    x = np.array([[1.0, 0.5, -1.0, 0.25], [0.0, 2.0, 1.0, -0.5]], np.float32)  # exact in f16
    weights = np.arange(16, dtype=np.float32).reshape(4, 4) / 16

    def expected(query: Any) -> Any:
        scores = query @ x.T / 2.0
        share = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return share / share.sum(axis=-1, keepdims=True) @ x

    plain = attended("op sdpa(x, k, v)", make_model, x).fetch("y", "f32")
    np.testing.assert_allclose(plain, expected(x), rtol=1e-5)
    projected = attended("op attn(x, k, v, W)", make_model, x).fetch("y", "f32")
    np.testing.assert_allclose(projected, expected(x @ weights), rtol=1e-5)
