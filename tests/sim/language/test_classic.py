"""The classic dialect at run time: ``t = op``, effects on buffers, ``model[...]``."""

import json

import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, binding_codes, executor, floats, step, step_error, text_codes

from openinfer import Graph, Simulator, bind, graph
from openinfer.errors import Code

BUFFER = """inputs { step: i32[]; h: f32[B, D]; } outputs { y: f32[B, D]; } state { c: buffer(f32, [B, T, D]); }
    block entry { %s return y; }"""
SIZES = {"B": 2, "T": 3, "D": 1}


# --- t = op -----------------------------------------------------------------------------------------------------------


@sentence("classic.declares")
def test_a_classic_op_declares_its_result_with_the_inferred_type() -> None:
    text = """inputs { x: f32[2, 3]; } outputs { y: bool[2]; }
        block entry { s = op sum_axis(x=x, axis=1); z = op neg(s); y = op gt(a=s, b=z); return y; }"""
    built = graph(text)
    assert str(bind(built).vars["s"].type) == "f32[2]"
    ready = after_step(text, x=[[1.0, 2.0, 3.0], [-1.0, -1.0, -1.0]])
    assert ready.fetch("s").tolist() == [6.0, -3.0]
    assert ready.fetch("y").tolist() == [True, False]


@sentence("inferred.several")
def test_several_results_have_the_types_that_the_op_infers() -> None:
    text = """sizes { T <= 8; } dynamic { x: f32[6, T]; } volatile { known: f32[2, T]; }
    block entry {
        q, known, v = op split(x, axis=0, sizes=[1, 2, 3]);
        best, places = op topk(v, k=1, axis=0);
        loop again (i in 0..2) { low, high = op split(q, axis=0, sizes=[1, 0]); q = op add(low, 1.0); }
        return q, known, v, best, places;
    }"""
    ready = executor(text)
    for extent in (3, 1, 8):
        x = np.arange(6 * extent, dtype=np.float32).reshape(6, extent)
        step(ready, x=x)
        assert ready.fetch("q").tolist() == (x[:1] + 2).tolist()
        assert ready.fetch("known").tolist() == x[1:3].tolist()
        assert ready.fetch("best").tolist() == x[5:].tolist()
        assert ready.fetch("places").tolist() == [[2] * extent]


@sentence("inferred.several")
@pytest.mark.parametrize(
    ("node", "code"),
    [
        ("q, k = op relu(x);", Code.WRONG_OPERANDS),
        ("a, b, c = op topk(x, k=1);", Code.WRONG_OPERANDS),
        ("y, k = op split(x, axis=0);", Code.RESULT_TYPE),
    ],
)
def test_names_fit_the_results_of_the_op(node: str, code: Code) -> None:
    text = f"dynamic {{ x: f32[4]; }} volatile {{ y: f32; }} block entry {{ {node} return; }}"
    assert binding_codes(text) == [code]


@sentence("classic.assigns")
def test_a_classic_op_assigns_a_variable_that_exists() -> None:
    text = "inputs { x: f32[2]; } block entry { x = op neg(x); t = op add(x, x); t = op neg(t); return t; }"
    ready = after_step(text, x=[1.0, 2.0])
    assert ready.fetch("x").tolist() == [-1.0, -2.0]
    assert ready.fetch("t").tolist() == [2.0, 4.0]


@sentence("classic.assigns")
def test_a_variable_that_exists_keeps_its_type() -> None:
    text = "inputs { x: f32[2]; } block entry { t = op neg(x); t = op gt(x, t); return t; }"
    assert binding_codes(text) == [Code.RESULT_TYPE]
    assert binding_codes("inputs { x: f32[2]; } block entry { x = op sum_axis(x); return x; }") == [Code.RESULT_TYPE]


@sentence("classic.untyped")
def test_a_classic_result_has_no_type_until_a_model_is_bound(make_model: MakeModel) -> None:
    built = graph('block entry { t = op neg(model["s"]); return t; }')
    assign = built.to_json()["blocks"]["entry"]["nodes"][0]["kind"]["Assign"]
    assert assign == {"name": "t", "dtype": None, "dims": None}
    assert "t = op neg" in built.to_text()
    again = Graph.from_json(json.dumps(built.to_json()))
    ready = Simulator(make_model({"s": np.arange(3, dtype=np.int16)})).make_executor(again)
    ready.run_step()
    assert ready.fetch("t").tolist() == [0, -1, -2]
    assert ready.fetch("t", "i16").dtype == np.int16


@sentence("classic.untyped")
def test_a_classic_result_follows_dynamic_sizes() -> None:
    text = "sizes { T <= 9; } inputs { x: f32[T]; } block entry { t = op add(x, x); u = op neg(t); return u; }"
    ready = after_step(text, x=[1.0])
    assert ready.fetch("u").tolist() == [-2.0]
    assert step(ready, x=[1.0, 2.0, 3.0]).fetch("u").tolist() == [-2.0, -4.0, -6.0]


# --- effects ----------------------------------------------------------------------------------------------------------


@sentence("effect.slice")
def test_an_effect_writes_and_reads_one_slice_of_a_buffer() -> None:
    nodes = "effect write(c, index=step, value=h); y = effect read(c, index=step - 1);"
    ready = executor(BUFFER % nodes, sizes=SIZES)
    step(ready, step=1, h=[[1.0], [2.0]])
    assert ready.fetch("y").tolist() == [[0.0], [0.0]]
    step(ready, step=2, h=[[3.0], [4.0]])
    assert ready.fetch("y").tolist() == [[1.0], [2.0]]
    assert ready.fetch("c").tolist() == [[[0.0], [1.0], [3.0]], [[0.0], [2.0], [4.0]]]


@sentence("effect.slice")
@pytest.mark.parametrize("index", [3, 100])
def test_an_effect_outside_its_buffer_is_an_error(index: int) -> None:
    for nodes in ("effect write(c, index=step, value=h);", "y = effect read(c, index=step);"):
        ready = executor(BUFFER % nodes, sizes=SIZES)
        assert step_error(ready, step=index, h=[[1.0], [2.0]]).code is Code.INDEX_OUT_OF_RANGE
        assert step_error(ready, step=-1, h=[[1.0], [2.0]]).code is Code.NEGATIVE_INDEX
        assert not ready.fetch("c").any()


@sentence("effect.slice")
def test_an_effect_outside_its_buffer_whatever_happens_is_found_when_the_graph_is_bound() -> None:
    assert binding_codes(BUFFER % "effect write(c, index=3, value=h);", sizes=SIZES) == [Code.INDEX_OUT_OF_RANGE]


@sentence("effect.axis")
@pytest.mark.parametrize(
    ("axis", "expected"), [(0, [[1, 2], [3, 4], [0, 0]]), (1, [[1, 2, 0], [3, 4, 0]]), (-1, [[1, 2, 0], [3, 4, 0]])]
)
def test_an_axis_can_be_named(axis: int, expected: list[list[int]]) -> None:
    shape, row = ("[3, 2]", 2) if axis == 0 else ("[2, 3]", 2)
    text = f"""inputs {{ x: i32[{row}]; z: i32[{row}]; }} state {{ c: buffer(i32, {shape}); }} block entry {{
        effect write(c, index=0, value=x, axis={axis}); effect write(c, index=1, value=z, axis={axis});
        back = effect read(c, index=1, axis={axis}); return back; }}"""
    values = ([1, 2], [3, 4]) if axis == 0 else ([1, 3], [2, 4])
    ready = after_step(text, x=values[0], z=values[1])
    assert ready.fetch("c").tolist() == expected
    assert ready.fetch("back").tolist() == values[1]


@sentence("effect.axis")
def test_the_axis_is_the_only_one_whose_removal_gives_the_values_shape() -> None:
    text = """inputs { h: f32[B, D]; } state { c: buffer(f32, [T, B, D]); d: buffer(f32, [B, D, T]); }
        block entry { effect write(c, index=1, value=h); effect write(d, index=1, value=h); return; }"""
    ready = after_step(text, sizes=SIZES, h=[[1.0], [2.0]])
    assert ready.fetch("c")[1].tolist() == [[1.0], [2.0]]
    assert ready.fetch("d")[:, :, 1].tolist() == [[1.0], [2.0]]


@sentence("effect.axis")
@pytest.mark.parametrize("buffer", ["[D, D, D]", "[B, B, D]", "[T, T, T]"])
def test_an_axis_that_cannot_be_told_must_be_named(buffer: str) -> None:
    value = "f32[D, D]" if buffer == "[D, D, D]" else "f32[B, D]"
    text = f"inputs {{ h: {value}; }} state {{ c: buffer(f32, {buffer}); }} block entry {{ %s return; }}"
    assert text_codes(text % "effect write(c, index=0, value=h);") == [Code.UNKNOWN_AXIS]
    if buffer != "[T, T, T]":
        after = after_step(text % "effect write(c, index=0, value=h, axis=0);", sizes={"B": 1, "D": 1}, h=[[5.0]])
        assert after.fetch("c").tolist() == [[[5.0]]]


# --- model[...] -------------------------------------------------------------------------------------------------------


@sentence("model.ref")
def test_model_brackets_name_a_tensor_that_is_not_declared(make_model: MakeModel) -> None:
    text = """inputs { x: f32[2]; } outputs { y: f32[2]; } state { p: buffer(f32, [2]); }
        block entry { y = op mul(a=x, b=model["layers.0.scale"]);
            transfer model["shift"] >> x; cache.write model["shift"] >> p; return y; }"""
    model = make_model({"layers.0.scale": floats(10, 100), "shift": floats(7, 8)})
    ready = after_step(text, model, x=[1.0, 2.0])
    assert ready.fetch("y").tolist() == [10.0, 200.0]
    assert ready.fetch("x").tolist() == [7.0, 8.0]
    assert ready.fetch("p").tolist() == [7.0, 8.0]


@sentence("model.ref")
def test_a_tensor_that_the_model_does_not_have_is_an_error(make_model: MakeModel) -> None:
    text = 'inputs { x: f32[1]; } block entry { t = op mul(a=x, b=model["scale"]); return t; }'
    assert binding_codes(text) == [Code.UNKNOWN_LINK]
    assert binding_codes(text, make_model({"scales": floats(1)})) == [Code.UNKNOWN_LINK]


@sentence("model.fmt")
def test_fmt_spells_names_with_loop_indices(make_model: MakeModel) -> None:
    text = """inputs { h: f32[2]; } block entry {
        loop layers (l in 0..2) { loop parts (p in 0..2) {
            block body { h = op mul(a=h, b=model[fmt("W.{l}.{p}")]); h = op add(a=h, b=h); } } }
        return h; }"""
    model = make_model({f"W.{layer}.{part}": floats(layer + 1, part + 1) for layer in range(2) for part in range(2)})
    assert after_step(text, model, h=[1.0, 1.0]).fetch("h").tolist() == [64.0, 64.0]


@sentence("model.fmt")
def test_fmt_names_have_one_type_and_exist(make_model: MakeModel) -> None:
    text = """inputs { h: f32[2]; } block entry {
        loop layers (l in 0..2) { h = op mul(a=h, b=model[fmt("W.{l}")]); } return h; }"""
    assert binding_codes(text, make_model({"W.0": floats(1, 2)})) == [Code.UNKNOWN_LINK]
    assert binding_codes(text, make_model({"W.0": floats(1, 2), "W.1": floats(1)})) == [Code.LINK_TYPE]
    outside = text.replace("{l}", "{k}")
    assert text_codes(outside) == [Code.UNKNOWN_INDEX]


@sentence("model.fmt")
def test_a_fmt_name_that_only_the_run_knows_is_a_located_error_when_it_is_missing(make_model: MakeModel) -> None:
    text = """inputs { h: f32[1]; n: i32; } block entry {
        loop layers (l in 0..n) { h = op mul(a=h, b=model[fmt("W.{l}")]); } return h; }"""
    ready = executor(text, make_model({"W.0": floats(3), "W.1": floats(5)}))
    assert step(ready, h=[1.0], n=2).fetch("h").tolist() == [15.0]
    error = step_error(ready, h=[1.0], n=3)
    assert error.code is Code.UNKNOWN_LINK
    assert "'W.2'" in error.diagnostics[0].message
