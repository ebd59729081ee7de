"""Small things that were wrong once: places of errors in documents, initial values, repeated indices."""

import pytest

from openinfer import Graph, GraphError, graph
from openinfer.errors import Code
from openinfer.lang import parse


def test_a_structural_error_of_a_document_names_the_path_to_the_node() -> None:
    document = graph("volatile { x: f32[B]; } block entry { op relu(x) >> x; return; }").to_json()
    document["blocks"]["entry"]["nodes"][0]["kind"]["Op"]["inputs"] = ["q"]
    with pytest.raises(GraphError) as caught:
        Graph.from_json(document)
    assert str(caught.value) == "error[E201]: there is no variable 'q'\n  --> at /blocks/entry/nodes/0"
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
