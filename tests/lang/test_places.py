"""Small things that were wrong once: places of errors in documents, initial values, repeated indices."""

import json
from pathlib import Path

import pytest

from openinfer import Graph, GraphError, graph, load_graph
from openinfer.errors import Code
from openinfer.lang import parse


def test_a_structural_error_of_a_document_names_the_path_to_the_node() -> None:
    document = graph("volatile { x: f32[B]; } block entry { op relu(x) >> x; return; }").to_json()
    document["blocks"]["entry"]["nodes"][0]["kind"]["Op"]["inputs"] = ["q"]
    with pytest.raises(GraphError) as caught:
        Graph.from_json(document)
    assert str(caught.value) == "error[E201]: there is no variable 'q'\n  --> <json>: /blocks/entry/nodes/0"
    assert caught.value.diagnostics[0].facts()["path"] == "/blocks/entry/nodes/0"


def test_a_graph_from_a_document_is_written_with_spans_only_where_it_has_them() -> None:
    loaded = Graph.from_json(graph("block entry { return; }").to_json(spans=True))
    assert "span" not in str(loaded.to_json(spans=True))


@pytest.mark.parametrize(
    ("declaration", "code"),
    [
        ("volatile { x: f32 @init(1e300); }", Code.BAD_ATTRIBUTE),
        ("volatile { x: f16 @init(65505); }", Code.BAD_ATTRIBUTE),
        ("persistent { x(i): f32[2, 3] @auto_dim(i, i); }", Code.REPEATED),
    ],
)
def test_what_a_variable_cannot_have_is_refused(declaration: str, code: Code) -> None:
    problems = parse(f"{declaration} block entry {{ return; }}").problems
    assert [problem.code for problem in problems] == [code]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "65504.0"])
def test_what_a_float_has_can_be_its_initial_value(value: str) -> None:
    assert not parse(f"volatile {{ x: f16 @init({value}); }} block entry {{ return; }}").problems


HAND_OVERS = {
    "yielded twice": ("yield x; yield x; await x;", "await x; yield x;", [Code.BAD_YIELD]),
    "yielded twice at once": ("yield x, x; await x;", "await x; yield x;", [Code.BAD_YIELD]),
    "awaited without a yield": ("await x;", "await x; yield x;", [Code.BAD_YIELD, Code.BAD_YIELD]),
    "never yielded back": ("yield x; await x;", "await x; return;", [Code.BAD_YIELD]),
    "another one yielded back": ("yield x; await x;", "await x; yield z;", [Code.BAD_YIELD]),
    "never yielded by entry": ("yield x; await x;", "await x, z; yield x, z;", [Code.BAD_YIELD]),
    "never awaited again": ("yield x;", "await x; return;", []),
    "yielded again after the await": ("yield x; await x; yield x; await x;", "await x; yield x;", []),
}


@pytest.mark.parametrize("name", HAND_OVERS)
def test_what_is_handed_over_must_come_back(name: str) -> None:
    entry, consumer, codes = HAND_OVERS[name]
    text = f"dynamic {{ x: f32; z: f32; }} block entry {{ {entry} return; }} block worker {{ {consumer} }}"
    assert [problem.code for problem in parse(text).problems] == codes


@pytest.mark.parametrize(
    "text",
    [
        "sizes { T := T; }",
        "sizes { T := 2*S; S := T+1; }",
        "sizes { T := 1/0; }",
        "sizes { T <= -1; }",
        "volatile { x: f32[7/2]; }",
        "volatile { x: f32[B%2]; }",
        "volatile { x: f32[-1]; }",
        "volatile { x: f32[D, 4-5]; }",
    ],
)
def test_what_can_be_no_size_is_refused_before_a_model_is_known(text: str) -> None:
    assert {problem.code for problem in parse(f"{text} block entry {{ return; }}").problems} == {Code.BAD_SHAPE}


def test_sizes_may_build_on_each_other() -> None:
    text = "sizes { Dh := D/H; T <= 4*Dh; S := (2*3)/6; } volatile { x: f32[T, 3*Dh, -1+2]; } block entry { return; }"
    assert not parse(text).problems


def test_an_op_cannot_write_one_output_twice() -> None:
    problems = parse("volatile { x: f32; y: f32; } block entry { op topk(x) >> y, y; return; }").problems
    assert [problem.code for problem in problems] == [Code.REPEATED]


def test_a_json_file_is_held_to_strictness_too(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(graph("volatile { x: f32 @note; } block entry { return; }").to_json()))
    assert load_graph(path).vars["x"].attrs
    with pytest.raises(GraphError) as caught:
        load_graph(path, strict=True)
    assert caught.value.code == Code.UNKNOWN_ATTRIBUTE
    assert str(path) in str(caught.value)
