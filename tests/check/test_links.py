"""Variables and the entries of a model: by name, by ``@ref``, by pattern, and ``model[...]``."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check.binding import bound, codes, floats, marked, messages, problems, types
from tests.check.conftest import MakeModel

from openinfer import Code, ModelLoader, OpenInferError, Simulator, Tensor, graph
from openinfer.check.bound import FromCaller, FromInit, FromModel, FromPattern
from openinfer.oinf import Bitset, QuantParams, QuantScale, ScalarValue, TensorSpec, UninitializedTensor

NOTHING = "block entry { return; }"


# --- where values come from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "origin"),
    [
        ("volatile { w: f32[2]; }", FromModel("w")),
        ("volatile { w: f32[2] @init(5); }", FromModel("w")),
        ('volatile { v: f32[2] @ref("w"); }', FromModel("w")),
        ("constant { w: f32[2]; }", FromModel("w")),
        ("constant { w: f32[2] @init(5); }", FromModel("w")),
        ('constant { c: f32[2] @ref("w"); }', FromModel("w")),
        ("persistent { w: f32[2]; }", FromModel("w")),
        ('persistent { p: f32[2] @ref("w"); }', FromModel("w")),
        ("dynamic { w: f32[2]; }", FromCaller()),
        ("volatile { other: f32[2]; }", FromInit(None)),
        ("persistent { other: f32[2]; }", FromInit(None)),
        ('volatile { W(l): f32[2] @pattern("W.{l}"); }', FromPattern("W.{l}")),
    ],
)
def test_where_a_variable_gets_its_value(make_model: MakeModel, declared: str, origin: Any) -> None:
    (variable,) = bound(declared + NOTHING, make_model({"w": floats(2)})).vars.values()
    assert variable.origin == origin


def test_a_persistent_variable_is_initialised_before_the_model_is_asked(make_model: MakeModel) -> None:
    found = bound("persistent { w: f32[2] @init(5); }" + NOTHING, make_model({"w": floats(2)})).vars["w"].origin
    assert isinstance(found, FromInit)
    assert found.value is not None
    assert found.value.value == 5.0


def test_a_table_is_not_filled_from_an_entry_of_its_name(make_model: MakeModel) -> None:
    found = bound("persistent { w(i): f32 @table; }" + NOTHING, make_model({"w": floats(2)}))
    assert found.vars["w"].origin == FromInit(None)


def test_a_model_entry_named_like_a_temporary_is_no_conflict(make_model: MakeModel) -> None:
    text = "block entry { assign w: i8[3]; op neg(w) >> w; return; }"
    found = bound(text, make_model({"w": floats(2)}))
    assert (types(found), found.vars["w"].origin) == ({"w": "i8[3]"}, FromInit(None))


def test_quantization_comes_along(make_model: MakeModel) -> None:
    quant = QuantParams("symmetric", QuantScale.per_tensor(0.5))
    model = make_model({"w": TensorSpec([[1, 2]], "i8", quant=quant)})
    found = bound("constant { w: i8[1, 2]; }" + NOTHING, model)
    assert found.vars["w"].quant == quant


# --- entries that do not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["volatile", "constant", "persistent", "dynamic"])
@pytest.mark.parametrize("declared", ["f16[2]", "f32[3]", "f32[1, 2]", "f32"])
def test_an_entry_of_the_same_name_has_the_same_type(make_model: MakeModel, section: str, declared: str) -> None:
    (problem,) = problems(f"{section} {{ w: {declared}; }}" + NOTHING, make_model({"w": floats(2)}))
    assert str(problem.code) == "E311"
    assert problem.message == f"'w' is {declared}, but the entry 'w' of the model is f32[2]"


def test_an_initial_value_does_not_excuse_an_entry_of_another_type(make_model: MakeModel) -> None:
    assert codes("persistent { w: f32[3] @init(1); }" + NOTHING, make_model({"w": floats(2)})) == ["E311"]


def test_types_are_compared_with_sizes_resolved(make_model: MakeModel) -> None:
    text = "volatile { w: f32[D, 3*D]; }" + NOTHING
    assert codes(text, make_model({"w": floats(2, 6)}, sizes={"D": 2})) == []
    assert messages(text, make_model({"w": floats(2, 5)}, sizes={"D": 2})) == [
        "'w' is f32[D=2, 3*D=6], but the entry 'w' of the model is f32[2, 5]"
    ]


def test_an_input_with_a_dynamic_size_may_be_named_like_an_entry_of_its_rank_and_dtype(make_model: MakeModel) -> None:
    text = "sizes { T <= 8; } dynamic { x: f32[T]; }" + NOTHING
    assert codes(text, make_model({"x": floats(3)})) == []
    assert codes(text, make_model({"x": floats(3, 1)})) == ["E311"]
    assert codes(text, make_model({"x": np.ones(3, np.float16)})) == ["E311"]


@pytest.mark.parametrize("section", ["volatile", "constant", "persistent"])
def test_a_ref_to_nothing_is_reported_with_the_nearest_names(make_model: MakeModel, section: str) -> None:
    (problem,) = problems(f'{section} {{ w: f32[2] @ref("wieght"); }}' + NOTHING, make_model({"weight": floats(2)}))
    assert str(problem.code) == "E209"
    assert problem.message == f"the model has no entry 'wieght' for {section} 'w'"
    assert problem.help == "did you mean 'weight'?"


def test_a_constant_without_a_value_is_reported(make_model: MakeModel) -> None:
    (problem,) = problems("constant { alpha: f32; }" + NOTHING, make_model({"weight": floats(2)}))
    assert problem.message == "the model has no entry 'alpha' for constant 'alpha'"
    assert problem.help == "give it @init(...), or link it to an entry with @ref(...)"


def test_without_a_model_a_constant_needs_an_initial_value_and_nothing_can_be_linked() -> None:
    assert codes("constant { alpha: f32 @init(2); } volatile { v: f32; } persistent { p: f32; }" + NOTHING) == []
    assert codes('constant { alpha: f32; } volatile { v: f32 @ref("v"); }' + NOTHING) == ["E209"]


def test_a_tensor_without_data_is_no_value_for_a_constant(make_model: MakeModel) -> None:
    model = make_model({"w": UninitializedTensor("f32", (2,))})
    assert messages("constant { w: f32[2]; }" + NOTHING, model) == ["the tensor 'w' of the model has no data for 'w'"]
    assert messages('constant { c: f32[2] @ref("w"); }' + NOTHING, model) == [
        "the tensor 'w' of the model has no data for 'c'"
    ]


def test_a_tensor_without_data_says_the_type_of_other_variables(make_model: MakeModel) -> None:
    model = make_model({"w": UninitializedTensor("f32", (2,))})
    found = bound("volatile { w: f32[2] @init(5); }" + NOTHING, model).vars["w"].origin
    assert isinstance(found, FromInit)
    assert bound("constant { w: f32[2] @init(5); }" + NOTHING, model).vars["w"].origin == found
    assert codes("volatile { w: f32[3]; }" + NOTHING, model) == ["E311"]


def test_a_constant_that_has_no_value_spoils_nothing_else(make_model: MakeModel) -> None:
    text = """constant { k: i64; } dynamic { x: f32[8]; } persistent { K(i): f32 @table @fixed(i=2); }
        block entry { assign v: f32[3]; assign i: i64[3]; op topk(x, k=k) >> v, i;
            loop l (j in 0..k) { cache.reset K[j]; } return; }"""
    assert codes(text, make_model()) == ["E209"]


# --- metadata -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (5, "i8"),
        (5, "i64"),
        (5, "u8"),
        (5, "f32"),
        (5, "f8"),
        (-1, "t2"),
        (-1, "t1"),
        (0.5, "f64"),
        (0.5, "f16"),
        (0.5, "bf16"),
        (ScalarValue(0.1, "f64"), "f64"),
        (float("inf"), "f16"),
        (float("nan"), "f8"),
        (2.0, "i32"),
        (True, "bool"),
        (ScalarValue(2**63, "u64"), "u64"),
        (ScalarValue(2**53, "i64"), "f64"),
    ],
)
def test_a_metadata_scalar_fills_a_constant_of_any_type_that_has_its_value(
    make_model: MakeModel, value: Any, dtype: str
) -> None:
    found = bound(f"constant {{ c: {dtype}; }}" + NOTHING, make_model(metadata={"c": value}))
    assert found.vars["c"].origin == FromModel("c")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "u8"),
        (-1, "u8"),
        (2, "t2"),
        (0, "t1"),
        (8, "i4"),
        (0.5, "i32"),
        (float("nan"), "i32"),
        (float("inf"), "i32"),
        (float("inf"), "i64"),
        (ScalarValue(0.1, "f64"), "f32"),
        (ScalarValue(1e300, "f64"), "f32"),
        (2049, "f16"),
        (ScalarValue(2**53 + 1, "i64"), "f64"),
        (ScalarValue(2**63, "u64"), "i64"),
        (True, "i32"),
        (1, "bool"),
        ("text", "f32"),
        ([1.0, 2.0], "f32"),
    ],
)
def test_a_metadata_value_that_would_lose_something_is_refused(make_model: MakeModel, value: Any, dtype: str) -> None:
    (code,) = codes(f"constant {{ c: {dtype}; }}" + NOTHING, make_model(metadata={"c": value}))
    assert code == ("E209" if value == "text" else "E311")


def test_a_string_is_no_value_and_the_message_says_so(make_model: MakeModel) -> None:
    (problem,) = problems("constant { mode: f32; }" + NOTHING, make_model(metadata={"mode": "fast"}))
    assert problem.message == "the entry 'mode' of the model's metadata is str, which cannot be the value of 'mode'"
    assert problem.help is None


def test_a_bitset_is_an_array_of_bools(make_model: MakeModel) -> None:
    model = make_model(metadata={"mask": Bitset([True, False, True])})
    assert types(bound("constant { mask: bool[3]; }" + NOTHING, model)) == {"mask": "bool[3]"}
    assert messages("constant { mask: bool[4]; }" + NOTHING, model) == [
        "'mask' is bool[4], but the entry 'mask' of the model's metadata is bool[3]"
    ]


def test_metadata_is_no_entry_for_variables_that_it_does_not_fill(make_model: MakeModel) -> None:
    model = make_model(metadata={"x": 0.5})
    text = "dynamic { x: i8[3]; } block entry { return; }"
    assert codes(text, model) == []
    assert bound("volatile { x: i8[3]; }" + NOTHING, model).vars["x"].origin == FromInit(None)
    assert codes('volatile { v: i8[3] @ref("x"); }' + NOTHING, model) == ["E311"]


def test_a_tensor_comes_before_metadata_of_its_name(make_model: MakeModel) -> None:
    model = make_model({"c": floats(2)}, metadata={"c": 0.5})
    assert codes("constant { c: f32[2]; }" + NOTHING, model) == []
    assert codes("constant { c: f32; }" + NOTHING, model) == ["E311"]


def test_the_value_of_a_metadata_scalar_is_what_parameters_get(make_model: MakeModel) -> None:
    text = """constant { slope: f32 @ref("s"); } dynamic { x: f32[2]; }
        block entry { op relu(x, negative_slope=slope) >> x; return; }"""
    call = bound(text, make_model(metadata={"s": 0.25})).ops[0].call
    assert call is not None
    assert call.params["negative_slope"] == 0.25


# --- what is loaded -------------------------------------------------------------------------------------------------


def test_binding_reads_no_tensor_but_scalars_that_parameters_need(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model({"w": floats(2), "k": np.array(2, np.int64), "unused": floats(2), "W.0": floats(2)})
    loaded: list[str] = []
    load = ModelLoader.load

    def noted(self: ModelLoader, name: str) -> Tensor:
        loaded.append(name)
        return load(self, name)

    monkeypatch.setattr(ModelLoader, "load", noted)
    text = """constant { w: f32[2]; k: i64; W(l): f32[2] @pattern("W.{l}"); } dynamic { x: f32[2]; }
        block entry { op mul(x, w) >> x; op mul(x, W[0]) >> x; op mul(x, model["w"]) >> x;
            op roll(x, shifts=[k], axes=[0]) >> x; return; }"""
    bound(text, model)
    assert loaded == ["k"]


def test_a_scalar_whose_data_is_bad_is_an_error_of_ours(make_model: MakeModel) -> None:
    model = make_model({"k": np.array(2, np.int64)})
    model.close()
    text = "constant { k: i64; } dynamic { x: f32[2]; } block entry { op roll(x, shifts=[k], axes=[0]) >> x; return; }"
    with pytest.raises(OpenInferError) as caught:
        bound(text, model)
    assert str(caught.value.code) == "E724"


# --- prefix tables --------------------------------------------------------------------------------------------------

LAYERS = """constant {{ W(l): f32[2] @pattern("W.{{l}}"); }} dynamic {{ x: f32[2]; n: i32; }}
    block entry {{ loop layers (l in 0..{end}) {{ op mul(x, W[{index}]) >> x; }} return; }}"""


def weights(count: int, **others: Any) -> dict[str, Any]:
    """The tensors W.0, W.1 and so on, all but the ones given otherwise."""
    found = {f"W.{number}": floats(2) for number in range(count)}
    return {name: others.get(name.replace(".", "_"), value) for name, value in found.items()}


def test_every_layer_of_a_static_loop_is_looked_up(make_model: MakeModel) -> None:
    tensors = weights(12)
    del tensors["W.7"]
    (problem,) = problems(LAYERS.format(end=12, index="l"), make_model(tensors))
    assert (str(problem.code), marked(problem)) == ("E209", "W[l]")
    assert problem.message == "W[l] is the model tensor 'W.7', which does not exist"


def test_one_layer_of_another_shape_is_found(make_model: MakeModel) -> None:
    (problem,) = problems(LAYERS.format(end=12, index="l"), make_model(weights(12, W_9=floats(3))))
    assert str(problem.code) == "E311"
    assert problem.message == "'W' is f32[2], but the entry 'W.9' of the model is f32[3]"


def test_one_layer_of_another_dtype_is_found(make_model: MakeModel) -> None:
    model = make_model(weights(12, W_9=np.ones(2, np.float16)))
    assert messages(LAYERS.format(end=12, index="l"), model) == [
        "'W' is f32[2], but the entry 'W.9' of the model is f16[2]"
    ]


def test_one_layer_without_data_is_found(make_model: MakeModel) -> None:
    model = make_model(weights(3, W_1=UninitializedTensor("f32", (2,))))
    assert messages(LAYERS.format(end=3, index="l"), model) == ["W[l] is the model tensor 'W.1', which has no data"]


def test_metadata_is_no_entry_of_a_prefix_table(make_model: MakeModel) -> None:
    text = 'constant { S(l): f32 @pattern("s.{l}"); } volatile { y: f32; } block entry { op neg(S[0]) >> y; return; }'
    assert codes(text, make_model(metadata={"s.0": 0.5})) == ["E209"]


def test_a_few_of_many_missing_layers_are_named(make_model: MakeModel) -> None:
    found = messages(LAYERS.format(end=100, index="l"), make_model(weights(12)))
    assert found == [f"W[l] is the model tensor 'W.{layer}', which does not exist" for layer in (12, 13, 14)]


def test_a_missing_layer_is_reported_once_however_many_nodes_use_it(make_model: MakeModel) -> None:
    text = LAYERS.format(end=3, index="l").replace("{ op mul", "{ op add(x, W[l]) >> x; op mul(x, W[l+0]) >> x; op mul")
    assert codes(text, make_model(weights(2))) == ["E209"]


@pytest.mark.parametrize(
    ("index", "missing"), [("l", None), ("l+1", 3), ("2-l", None), ("l*2", 4), ("l%2", None), ("l-1", -1), ("0", None)]
)
def test_index_expressions_are_followed(make_model: MakeModel, index: str, missing: int | None) -> None:
    found = messages(LAYERS.format(end=3, index=index), make_model(weights(3)))
    wanted = [] if missing is None else [f"W[{index}] is the model tensor 'W.{missing}', which does not exist"]
    assert found == wanted


def test_an_index_that_only_the_run_knows_is_left_to_it(make_model: MakeModel) -> None:
    assert codes(LAYERS.format(end=3, index="l+n"), make_model(weights(1))) == []
    assert codes(LAYERS.format(end="n", index="l"), make_model(weights(1))) == []


def test_a_run_time_index_uses_the_quantization_of_what_it_can_name(make_model: MakeModel) -> None:
    quant = QuantParams("symmetric", QuantScale.per_tensor(0.5))
    tensors = {f"W.{layer}": TensorSpec([[4]], "i8", quant=quant) for layer in range(2)}
    text = """dynamic { x: f32[1, 1]; n: i32; } constant { W(l): i8[1, 1] @pattern("W.{l}"); }
        block entry { op matmul(x, W[n]) >> x; return; }"""
    assert codes(text, make_model(tensors)) == []


def test_loops_around_each_other_and_bounds_with_outer_indices_are_followed(make_model: MakeModel) -> None:
    text = """constant { W(a, b): f32 @pattern("W.{b}.{a}"); } volatile { y: f32; }
        block entry { loop one (i in 0..3) { loop two (j in i..3) { op neg(W[i, j]) >> y; } } return; }"""
    names = [f"W.{j}.{i}" for i in range(3) for j in range(i, 3)]
    assert codes(text, make_model({name: floats() for name in names})) == []
    assert messages(text, make_model({name: floats() for name in names if name != "W.2.1"})) == [
        "W[i, j] is the model tensor 'W.2.1', which does not exist"
    ]


def test_without_a_model_a_prefix_table_is_reported_once() -> None:
    assert messages(LAYERS.format(end=12, index="l")) == ["W[l] is a tensor of the model, and none was given"]


# --- model[...] -----------------------------------------------------------------------------------------------------

NAMED = "dynamic {{ x: f32[2]; n: i32; }} block entry {{ {body} return; }}"


def test_a_model_tensor_has_its_own_type(make_model: MakeModel) -> None:
    text = NAMED.format(body='h = op mul(x, model["blocks.scale"]);')
    assert types(bound(text, make_model({"blocks.scale": floats(3, 2)})))["h"] == "f32[3, 2]"


def test_a_metadata_scalar_named_by_the_model_has_the_dtype_it_was_stored_with(make_model: MakeModel) -> None:
    text = NAMED.format(body='op mul(x, model["s"]) >> x;')
    model = make_model(metadata={"s": 0.5})
    assert codes(text, model) == []
    executor = Simulator(model).make_executor(graph(text))
    executor.insert(x=[1.0, 3.0], n=0)
    executor.run_step()
    assert executor.fetch("x").tolist() == [0.5, 1.5]
    assert messages(text, make_model(metadata={"s": ScalarValue(0.5, "f64")})) == ["'mul' mixes f32[2] and f64"]


@pytest.mark.parametrize(
    ("tensors", "message", "advice"),
    [
        ({"scales": floats()}, "which does not exist", "did you mean 'scales'?"),
        ({"scale": UninitializedTensor("f32", ())}, "which has no data", None),
        ({}, "which does not exist", None),
    ],
)
def test_a_missing_model_tensor_is_reported(
    make_model: MakeModel, tensors: dict[str, Any], message: str, advice: str | None
) -> None:
    (problem,) = problems(NAMED.format(body='op mul(x, model["scale"]) >> x;'), make_model(tensors))
    assert (str(problem.code), marked(problem)) == ("E209", 'model["scale"]')
    assert problem.message == f"model[\"scale\"] is the model tensor 'scale', {message}"
    assert problem.help == advice


def test_braces_in_a_plain_name_are_nothing_special(make_model: MakeModel) -> None:
    assert messages(NAMED.format(body='op mul(x, model["a{b}"]) >> x;'), make_model()) == [
        "model[\"a{b}\"] is the model tensor 'a{b}', which does not exist"
    ]


def test_without_a_model_there_is_no_model_tensor() -> None:
    assert messages(NAMED.format(body='op mul(x, model["s"]) >> x;')) == [
        'model["s"] is a tensor of the model, and none was given'
    ]


FMT = """dynamic {{ x: f32[2]; n: i32; }}
    block entry {{ loop layers (l in 0..{end}) {{ op mul(x, model[fmt("W.{{l}}")]) >> x; }} return; }}"""


def test_fmt_names_one_tensor_for_each_iteration(make_model: MakeModel) -> None:
    assert codes(FMT.format(end=3), make_model(weights(3))) == []
    assert messages(FMT.format(end=3), make_model(weights(2))) == [
        "model[fmt(\"W.{l}\")] is the model tensor 'W.2', which does not exist"
    ]
    assert messages(FMT.format(end=3), make_model(weights(3, W_1=floats(3)))) == [
        "model[fmt(\"W.{l}\")] is f32[2] and f32[3] ('W.1'): it has one type everywhere"
    ]


@pytest.mark.parametrize("end", ["n", "0"])
def test_where_the_run_decides_fmt_has_the_one_type_of_all_it_can_name(make_model: MakeModel, end: str) -> None:
    others = {"W.bias": floats(7), "W": floats(7), "V.0": floats(7)}
    assert codes(FMT.format(end=end), make_model(weights(3) | others)) == []
    assert codes(FMT.format(end=end), make_model(weights(3, W_2=floats(3)) | others)) == ["E311"]
    assert messages(FMT.format(end=end), make_model(others)) == ['model[fmt("W.{l}")] names no tensor of the model']


def test_names_of_every_dtype_of_numpy_and_ml_dtypes_are_types(make_model: MakeModel) -> None:
    model = make_model({"w": np.ones(2, ml_dtypes.bfloat16), "q": TensorSpec([1, -1], "i4")})
    text = 'block entry { h = op neg(model["w"]); q = op neg(model["q"]); return; }'
    assert types(bound(text, model)) == {"h": "bf16[2]", "q": "i4[2]"}


def test_a_missing_model_is_said_once() -> None:
    text = """
        dynamic { x: f32[T, D]; z: f32[D]; }
        constant { w: f32[H, D]; b: f32[H]; c: f32 @ref("scale"); }
        volatile { y: f32[T, H]; }
        block entry { op linear(x, w, b) >> y; op mul(y, model["s"]) >> y; return y; }"""
    (found,) = problems(text, sizes={"T": 2})
    assert found.message == "no model was given; the sizes D, H and the values of w, b, c come from it"
    assert found.help is not None
    assert found.help.startswith("--model FILE, or ModelLoader.open(path) in Python")
    assert found.span is not None
    assert [one.code for one in problems(text, sizes={"T": 2, "D": 2, "H": 3})] == [Code.UNKNOWN_LINK]


def test_a_misspelt_size_is_not_taken_for_a_missing_model() -> None:
    text = "dynamic { x: f32[Depht]; y: f32[Depth]; z: f32[Q]; v: f32[Q]; } block entry { return; }"
    found = problems(text, sizes={"Depth": 2})
    assert [one.help is not None and one.help.startswith("did you mean 'Depth'") for one in found] == [True, False]
