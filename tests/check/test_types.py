"""The types of nodes: operands, parameters and results of ops, copies, conditions, temporaries."""

import json
from uuid import UUID

import pytest
from tests.check.binding import bound, codes, floats, marked, messages, problems, types
from tests.check.conftest import MakeModel

from openinfer import Graph, GraphError, bind, graph
from openinfer.check import check
from openinfer.lang import parse

SIZES = {"B": 4, "D": 16}
RNN = """'activation' of 'rnn_cell' is "tanh" or "relu", not "tan\""""
NO_VALUE = "the parameter 'alpha' is 'slope', which is neither a scalar constant nor a size"
NO_PARAMETER = "the parameter 'alpha' of 'relu' takes a number or a scalar constant, not the variable"


def body(nodes: str, declared: str = "") -> str:
    """A graph with these nodes and a few variables."""
    return f"""dynamic {{ x: f32[B, D]; w: f32[D, D]; v: f32[D]; i: i32; flag: bool; {declared} }}
        volatile {{ y: f32[B, D]; s: f32; c: bool; }} constant {{ eps: f32 @init(0.5); n: i64 @init(2); }}
        persistent {{ K(t): f16[4] @table; P: f32[8]; step: i32; }}
        block entry {{ {nodes} return; }}"""


def found(nodes: str, declared: str = "") -> tuple[str, str, str]:
    """The code, the message and the marked text of the one problem that nodes have."""
    (problem,) = problems(body(nodes, declared), sizes=SIZES)
    return str(problem.code), problem.message, marked(problem)


def fine(nodes: str, declared: str = "") -> bool:
    """Whether binding finds nothing wrong."""
    return codes(body(nodes, declared), sizes=SIZES) == []


# --- ops, operands, parameters --------------------------------------------------------------------------------------


def test_an_unknown_op_is_reported_with_the_nearest_names() -> None:
    (problem,) = problems(body("op matmull(x, w) >> y;"), sizes=SIZES)
    assert (str(problem.code), problem.message) == ("E206", "there is no op 'matmull'")
    assert problem.help == "did you mean 'matmul' or 'mul'?"


def test_an_op_unlike_all_others_gets_a_way_to_find_one() -> None:
    (problem,) = problems(body("op qqqqqqq(x) >> y;"), sizes=SIZES)
    assert problem.help == "'openinfer ops' lists them"


@pytest.mark.parametrize(
    ("node", "code", "message", "place"),
    [
        ("op softmax(x, axes=1) >> y;", "E207", "'softmax' has no parameter 'axes'", "axes"),
        ("op softmax(x, dim=1) >> y;", "E207", "'softmax' has no parameter 'dim'", "dim"),
        ("op add(x, c=y) >> y;", "E207", "'add' has no input 'c'", "y"),
        ("op add(a=x, bb=v) >> y;", "E207", "'add' has no input 'bb'", "v"),
        ("op add(x) >> y;", "E306", "'add' needs the input 'b'", "op add(x) >> y"),
        ("op add(x, y, v) >> y;", "E306", "'add' takes 2 inputs, and this is one more", "v"),
        ("op add(x, a=y) >> y;", "E306", "the input 'a' of 'add' is given twice", "y"),
        ("op topk(x, k=1) >> y;", "E306", "'topk' has 2 outputs (values, indices), but 1 is named", ""),
        ("op split(x, axis=0, sizes=[2, 2]) >> y;", "E306", "'split' gives 2 results here, but 1 is named", ""),
        ("op add(x, i) >> y;", "E307", "'add' mixes f32[B=4, D=16] and i32", "i"),
        ("op add(i, x) >> y;", "E307", "'add' mixes i32 and f32[B=4, D=16]", "x"),
        ("op add(b=i, a=x) >> y;", "E307", "'add' mixes f32[B=4, D=16] and i32", "i"),
        ("op exp(flag) >> c;", "E307", "the input 'x' of 'exp' cannot be bool", "flag"),
        ("op add(x, w) >> y;", "E308", "f32[D=16, D=16] does not broadcast with f32[B=4, D=16]", "w"),
        ("op layer_norm(x, eps=true) >> y;", "E310", "'eps' of 'layer_norm' is a number, not true", ""),
        ("op relu(x, alpha=1, negative_slope=2) >> y;", "E310", "the parameter 'negative_slope' is given twice", ""),
        ("op softmax(x, axis=2) >> y;", "E310", "there is no axis 2: the operand has 2 dimensions", ""),
        ('op rnn_cell(x, y, w, w, activation="tan") >> y;', "E310", RNN, ""),
        ("op cast(x, to=3) >> y;", "E310", "'to' of 'cast' is a dtype, not 3", ""),
        ("op cast(x) >> y;", "E306", "'cast' needs the parameter 'to'", "op cast(x) >> y"),
        ("op neg(x) >> s;", "E309", "'neg' gives f32[4, 16], but s is f32", "s"),
        ("op neg(v) >> y;", "E309", "'neg' gives f32[16], but y is f32[B=4, D=16]", "y"),
        ("op eq(x, x) >> y;", "E309", "'eq' gives bool[4, 16], but y is f32[B=4, D=16]", "y"),
    ],
)
def test_what_is_wrong_with_an_op_is_said_at_the_operand(node: str, code: str, message: str, place: str) -> None:
    seen = found(node)
    assert seen[:2] == (code, message)
    assert place in ("", seen[2])


@pytest.mark.parametrize(
    "node",
    [
        "op add(x, v) >> y;",
        "op add(b=x, a=x) >> y;",
        "op add(x, b=x) >> y;",
        "op where(flag, x, y) >> y;",
        "op filter(flag, x, y) >> y;",
        "op relu(x, alpha=0.25) >> y;",
        "op relu(x, alpha=1) >> y;",
        "op matmul(x, w, acc=f64) >> y;",
        "op matmul(x, w, acc=[f32, f32]) >> y;",
        "op sum_axis(x) >> s;",
        "op sum_axis(x, axes=[0, 1]) >> s;",
        "op reshape(x, shape=[B, D]) >> y;",
        "op reshape(x, shape=[B*2/2, -1]) >> y;",
        "op linear(x, w) >> y;",
        "op linear(x, w, v) >> y;",
        "op linear(x, w, bias=v) >> y;",
    ],
)
def test_these_are_fine(node: str) -> None:
    assert fine(node)


# --- parameters that are names --------------------------------------------------------------------------------------


def test_a_parameter_may_be_a_scalar_constant_or_a_size() -> None:
    text = body("op relu(x, alpha=eps, clamp_max=B) >> y; op roll(x, shifts=[n], axes=[n-1]) >> y;")
    ops = bound(text, sizes=SIZES).ops
    relu, roll = (next(one.call for one in ops.values() if one.record.name == name) for name in ("relu", "roll"))
    assert relu is not None
    assert roll is not None
    assert (relu.params["negative_slope"], relu.params["clamp_max"]) == (0.5, 4.0)
    assert (roll.params["shifts"], roll.params["axes"]) == ((2,), (1,))


def test_a_parameter_may_be_metadata(make_model: MakeModel) -> None:
    model = make_model(metadata={"mode": "tanh", "slope": 0.25, "keep": True})
    text = "dynamic { x: f32[2]; } volatile { s: f32[1]; } block entry { op gelu(x, approximate=mode) >> x;"
    text += "op relu(x, alpha=slope) >> x; op sum_axis(x, keepdims=keep) >> s; return; }"
    assert codes(text, model) == []


@pytest.mark.parametrize(
    ("node", "code", "message"),
    [
        ("op relu(x, alpha=slope) >> y;", "E310", NO_VALUE),
        ("op relu(x, alpha=i) >> y;", "E310", f"{NO_PARAMETER} i"),
        ("op relu(x, alpha=v) >> y;", "E310", f"{NO_PARAMETER} v"),
        ("op softmax(x, axis=eps) >> y;", "E310", "'axis' of 'softmax' is an integer, not 0.5"),
        ("op reshape(x, shape=[Q, D]) >> y;", "E208", "there is no size 'Q'"),
        ("op reshape(x, shape=[B/3, D]) >> y;", "E303", "'B/3' does not divide evenly: 4 / 3"),
    ],
)
def test_a_parameter_that_is_no_constant_is_refused(node: str, code: str, message: str) -> None:
    assert found(node)[:2] == (code, message)


def test_a_model_tensor_is_no_parameter(make_model: MakeModel) -> None:
    text = 'dynamic { x: f32[2]; } block entry { op relu(x, alpha=model["slope"]) >> x; return; }'
    assert messages(text, make_model({"slope": floats()})) == [f'{NO_PARAMETER} model["slope"]']


def test_a_scalar_constant_may_be_a_named_input() -> None:
    assert fine("op mul(a=x, b=eps) >> y;")
    assert fine("op mul(b=x, a=eps) >> y;")
    assert found("op mul(a=x, b=n) >> y;")[:2] == ("E307", "'mul' mixes f32[B=4, D=16] and i64")


# --- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("transfer x >> w;", "x is f32[B=4, D=16], but w is f32[D=16, D=16]"),
        ("transfer i >> s;", "i is i32, but s is f32"),
        ("cache.write v >> K[0];", "v is f32[D=16], but K[0] is f16[4]"),
        ("cache.read K[0..2] >> y;", "K[0..2] is f16[2, 4], but y is f32[B=4, D=16]"),
        ("cache.read P[0..2] >> v;", "P[0..2] is f32[2], but v is f32[D=16]"),
        ("cache.read P[3] >> v;", "P[3] is f32, but v is f32[D=16]"),
        ("cache.read step >> s;", "step is i32, but s is f32"),
    ],
)
def test_a_copy_changes_neither_dtype_nor_shape(node: str, message: str) -> None:
    assert found(node)[:2] == ("E309", message)


def test_lengths_that_only_the_run_knows_fit_everything() -> None:
    assert fine("cache.read K[..] >> k;", "k: f16[9, 4];")
    assert fine("cache.read K[0..i] >> k;", "k: f16[9, 4];")
    assert fine("cache.read K[1..-1] >> k;", "k: f16[9, 4];")
    assert found("cache.read K[0..i] >> k;", "k: f16[9, 5];")[1] == "K[0..i] is f16[?, 4], but k is f16[9, 5]"


@pytest.mark.parametrize(
    ("slice_", "length"),
    [("0..3", 3), ("i..i+3", 3), ("2*i..2*i+1", 1), ("i+1..n+i", 1), ("5..2", 0), ("B..D", 12), ("i-(i-2)..4", 2)],
)
def test_lengths_are_found_where_what_moves_cancels_out(slice_: str, length: int) -> None:
    assert fine(f"cache.read K[{slice_}] >> k;", f"k: f16[{length}, 4];")
    assert found(f"cache.read K[{slice_}] >> k;", "k: f16[13, 4];")[0] == "E309"


def test_a_slice_that_ends_before_it_begins_has_no_negative_length() -> None:
    text = body("loop l (j in 0..3) { op neg(P[j+2..j]) >> e; }", "e: f32[8];")
    assert codes(text, sizes=SIZES) == []


# --- temporaries ----------------------------------------------------------------------------------------------------


def test_a_classic_op_declares_its_result_with_the_inferred_type() -> None:
    text = body("h = op matmul(a=x, b=w); c2 = op gt(h, eps); h = op neg(h);")
    assert types(bound(text, sizes=SIZES)) | {"h": "f32[4, 16]", "c2": "bool[4, 16]"} == types(bound(text, sizes=SIZES))


def test_a_classic_op_that_assigns_again_keeps_the_type() -> None:
    assert found("h = op neg(x); h = op neg(v);")[:2] == ("E309", "'neg' gives f32[16], but h is f32[4, 16]")
    assert found("y = op neg(v);")[:2] == ("E309", "'neg' gives f32[16], but y is f32[B=4, D=16]")


def test_a_classic_op_cannot_use_its_own_result() -> None:
    assert found("h = op neg(h);") == ("E210", "'h' is used before anything gives it a type", "h")


def test_a_classic_result_whose_shape_only_the_run_knows_needs_a_type() -> None:
    assert found("h = op neg(K[0..i]);")[:2] == ("E309", "the shape of 'h' is known only while the graph runs")
    assert fine("assign h: f16[3, 4]; h = op neg(K[0..i]);")


def test_dtypes_are_judged_even_where_the_run_decides_about_shapes() -> None:
    assert found("op neg(K[0..i]) >> y;")[:2] == ("E309", "'neg' gives f16 values, but y is f32[B=4, D=16]")
    assert found("op add(K[0..i], x) >> y;")[:2] == ("E307", "'add' mixes f16 and f32[B=4, D=16]")


def test_an_op_that_fails_does_not_make_its_results_fail() -> None:
    assert codes(body("h = op nag(x); k = op neg(h); op add(k, h) >> y;"), sizes=SIZES) == ["E206"]
    assert codes(body("assign h: f32[Q]; op neg(h) >> h;"), sizes=SIZES) == ["E208"]


@pytest.mark.parametrize(
    ("nodes", "message", "place"),
    [
        ("op neg(x) >> h; assign h: f32[B, D];", "'h' is used before it is assigned", "op neg(x) >> h"),
        ("transfer h >> y; assign h: f32[B, D];", "'h' is used before it is assigned", "transfer h >> y"),
        ("cache.read K[h] >> k; assign h: i32;", "'h' is used before it is assigned", "cache.read K[h] >> k"),
        ("cache.reset K[h]; assign h: i32;", "'h' is used before it is assigned", "cache.reset K[h]"),
        ("loop l (j in 0..h) { barrier; } assign h: i32;", "'h' is used before it is assigned", "loop l (j in 0..h"),
        ("branch h a a; assign h: bool;", "'h' is used before it is assigned", "branch h a a"),
        ("branch late; assign h: f32;", "'h' is used by the block 'late' before it is assigned", "branch late"),
        (
            "loop l (j in 0..2) { op neg(h) >> h; assign h: f32; }",
            "'h' is used before it is assigned",
            "op neg(h) >> h",
        ),
    ],
)
def test_a_temporary_is_assigned_before_it_is_used(nodes: str, message: str, place: str) -> None:
    blocks = " block a { return; } block late { branch later; return; } block later { op neg(h) >> h; return; }"
    if "late" not in nodes:
        blocks = " block a { return; }"
    (problem,) = problems(body(nodes, "k: f16[4];") + blocks, sizes=SIZES)
    assert (str(problem.code), problem.message) == ("E210", message)
    assert marked(problem).startswith(place)


def test_the_index_of_a_loop_hides_a_temporary_of_its_name() -> None:
    assert fine("loop l (h in 0..2) { cache.read K[h] >> k; } assign h: i32;", "k: f16[4];")


def test_blocks_may_use_temporaries_that_entry_has_assigned() -> None:
    text = body("assign h: f32; branch a;") + " block a { op neg(h) >> h; return; }"
    assert codes(text, sizes=SIZES) == []


def test_a_temporary_of_a_document_gets_its_type_from_the_op_behind_it() -> None:
    nodes = [
        {"Assign": {"name": "h", "dtype": None, "dims": None}},
        {"Op": {"op": "neg", "inputs": ["x"], "attrs": {"items": []}, "output": "h"}},
        "Return",
    ]
    numbered = [{"index": at, "uuid": str(UUID(int=at)), "kind": kind} for at, kind in enumerate(nodes)]
    variables = {"x": {"name": "x", "kind": "Dynamic", "dtype": "F32", "dims": []}}
    document = {"vars": variables, "blocks": {"entry": {"name": "entry", "nodes": numbered}}}
    binding = check(Graph.from_json(json.dumps(document)))
    assert binding.bound is not None
    assert str(binding.bound.vars["h"].type) == "f32"


# --- conditions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cond", ["flag", "c"])
def test_a_condition_is_a_scalar_bool(cond: str) -> None:
    assert codes(body(f"branch {cond} a a;") + " block a { return; }", sizes=SIZES) == []


@pytest.mark.parametrize(
    ("cond", "code", "message"),
    [
        ("i", "E307", "the condition 'i' is i32, not a scalar bool"),
        ("many", "E307", "the condition 'many' is bool[2], not a scalar bool"),
        ("T", "E502", "the condition 'T' is a table, not a scalar bool"),
    ],
)
def test_other_conditions_are_refused(cond: str, code: str, message: str) -> None:
    text = "dynamic { i: i32; many: bool[2]; } persistent { T(i): bool @table; }"
    text += f" block entry {{ branch {cond} a a; return; }} block a {{ return; }}"
    (problem,) = problems(text)
    assert (str(problem.code), problem.message, marked(problem)) == (code, message, f"branch {cond} a a")


def test_the_condition_of_a_classic_op_is_judged_by_the_type_it_got() -> None:
    blocks = " block a { return; }"
    assert codes(body("k = op gt(s, eps); branch k a a;") + blocks, sizes=SIZES) == []
    assert codes(body("k = op gt(x, eps); branch k a a;") + blocks, sizes=SIZES) == ["E307"]


def test_all_wrong_parameters_of_a_call_are_reported_together_each_with_its_name_here() -> None:
    text = "dynamic { x: f32[1, 1, 4, 4]; w: f32[1, 1, 3, 3]; } volatile { y: f32[1, 1, 4, 4]; } "
    call = "op conv2d(x, w, padding=[1], stride=1, groups=true, dilation=D) >> y;"
    found_ = problems(f"{text} block entry {{ {call} return; }}")
    assert [str(one.code) for one in found_] == ["E207"] * 3
    assert [one.help for one in found_] == [f"it is called '{name}' here" for name in ("pads", "strides", "dilations")]
    assert [marked(one) for one in found_] == ["padding", "stride", "dilation"]
    found_ = problems(f"{text} block entry {{ op conv2d(x, w, pads=1.5, groups=true) >> y; return; }}")
    assert [str(one.code) for one in found_] == ["E310"] * 2


def test_values_of_python_are_explained() -> None:
    text = "dynamic { x: f32[4]; } volatile { y: f32; } block entry { op sum_axis(x, axes=None, keepdims=False) >> y; "
    assert [one.help for one in problems(text + "return; }")] == ["leave the parameter out", "write false"]


# --- all at once ----------------------------------------------------------------------------------------------------


def test_all_problems_are_reported_together_in_the_order_of_the_text() -> None:
    text = """sizes { E := D/3; }
        dynamic { x: f32[4]; z: f32[Q]; }
        block late { op nag(x) >> x; return; }
        block entry { op neg(x, x) >> x; loop l (i in 0..R) { op neg(y) >> x; } branch late; yield x; return x; }
        constant { c: f32; }
        volatile { y: f32[5]; }
        block taker { await x; op neg(x) >> y; return; }"""
    found_ = problems(text, sizes={"D": 16})
    assert [str(one.code) for one in found_] == ["E303", "E209", "E206", "E306", "E309", "E601", "E309"]
    lines = [int(str(one.span.facts()["line"])) for one in found_ if one.span is not None]
    assert lines == sorted(lines)
    assert len(lines) == len(found_)


def test_warnings_of_the_graph_are_kept_and_are_no_obstacle() -> None:
    text = "dynamic { x: f32; } block entry { yield x; return; }"
    assert codes(text) == ["W902"]
    assert [str(one.code) for one in bound(text).warnings] == ["W902"]


# --- structure ------------------------------------------------------------------------------------------------------


def test_a_graph_with_structural_errors_is_not_bound_any_further() -> None:
    text = "constant { c: f32; } dynamic { x: f32[Q]; } block entry { op nag(x) >> c; return; }"
    binding = check(parse(text).graph)
    assert binding.bound is None
    assert [str(problem.code) for problem in binding.problems] == ["E503"]


def test_attributes_we_do_not_know_are_errors_in_strict_mode_only() -> None:
    built = graph("dynamic { x: f32 @layout; } block entry { return x; }")
    assert check(built).problems == ()
    assert [str(problem.code) for problem in check(built, strict=True).problems] == ["E204"]
    with pytest.raises(GraphError):
        bind(built, strict=True)
