"""Graphs survive text and JSON, in every combination, and so do the documents of other tools."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from tests.ir.foreign import DOCUMENTS, load
from tests.ir.strategies import graphs

from openinfer.ir import Graph, Loop, Node, Scope, validate
from openinfer.lang import parse

check = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


def stable(graph: Graph) -> str:
    """The JSON text that must not change."""
    return json.dumps(graph.to_json(), sort_keys=True, allow_nan=False)


def parsed(text: str) -> Graph:
    found = parse(text)
    assert [problem.render() for problem in found.problems] == []
    return found.graph


def without_uuids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_uuids(item) for key, item in value.items() if key != "uuid"}
    return [without_uuids(item) for item in value] if isinstance(value, list) else value


def contains(found: Any, wanted: Any) -> bool:
    """Whether all that a document says is still said, in the same words."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and contains(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(contains, found, wanted))
    return type(found) is type(wanted) and bool(found == wanted)


@check
@given(graphs())
def test_a_random_graph_has_no_structural_problem(graph: Graph) -> None:
    assert [problem.message for problem in validate(graph)] == []


@check
@given(graphs())
def test_text_of_a_graph_parses_to_the_same_graph_and_prints_the_same_text(graph: Graph) -> None:
    text = graph.to_text()
    again = parsed(text)
    assert again == graph
    assert again.to_text() == text
    assert stable(again) == stable(graph)


@check
@given(graphs())
def test_json_of_a_graph_loads_to_the_same_graph_from_values_text_and_bytes(graph: Graph) -> None:
    text = json.dumps(graph.to_json(), allow_nan=False)
    for document in (graph.to_json(), text, text.encode(), json.dumps(graph.to_json(), ensure_ascii=False).encode()):
        again = Graph.from_json(document)
        assert again == graph
        assert again.to_text() == graph.to_text()
        assert stable(again) == stable(graph)


@check
@given(graphs())
def test_sorting_the_keys_of_a_document_does_not_change_the_graph(graph: Graph) -> None:
    again = Graph.from_json(stable(graph))
    assert again == graph
    assert list(again.blocks) == list(graph.blocks)
    assert stable(again) == stable(graph)


@check
@given(graphs())
def test_uuids_do_not_depend_on_where_a_node_stands_in_the_source(graph: Graph) -> None:
    text = graph.to_text()
    moved = parsed("// a comment\n\n" + text.replace("\n", "\n\n  "))
    assert [node.uuid for node in moved.walk()] == [node.uuid for node in graph.walk()]
    assert stable(moved) == stable(parsed(text)) == stable(graph)


@check
@given(graphs())
def test_json_with_spans_loads_to_the_same_graph_without_them(graph: Graph) -> None:
    again = parsed(graph.to_text())
    with_spans = again.to_json(spans=True)
    assert contains(with_spans, again.to_json())
    assert all("span" in node for block in with_spans["blocks"].values() for node in block["nodes"])
    loaded = Graph.from_json(json.dumps(with_spans))
    assert loaded == graph
    assert stable(loaded) == stable(graph)


@check
@given(graphs())
def test_uuids_given_by_another_tool_survive_and_do_not_count_in_comparisons(graph: Graph) -> None:
    blocks = [replace(block, nodes=tuple(map(_renamed, block.nodes))) for block in graph.blocks.values()]
    foreign = Graph.of(graph.sizes.values(), graph.vars.values(), blocks)
    again = Graph.from_json(stable(foreign))
    assert again == graph
    assert [node.uuid for node in again.walk()] == [node.uuid for node in foreign.walk()]
    assert {node.uuid.version for node in again.walk()} == {4}


def _renamed(node: Node) -> Node:
    kind = node.kind
    if isinstance(kind, Loop | Scope):
        kind = replace(kind, body=tuple(map(_renamed, kind.body)))
    return replace(node, kind=kind, given_uuid=UUID(int=node.index, version=4))


# --- documents of other tools ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_another_tool_keeps_all_that_it_says(name: str) -> None:
    graph = Graph.from_json(DOCUMENTS[name])
    assert contains(graph.to_json(), load(name))
    assert stable(Graph.from_json(graph.to_json())) == stable(graph)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_another_tool_is_the_same_from_values_text_and_bytes(name: str) -> None:
    documents: tuple[Any, ...] = (load(name), DOCUMENTS[name], DOCUMENTS[name].encode())
    assert len({stable(Graph.from_json(document)) for document in documents}) == 1


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_another_tool_can_be_printed_and_parsed(name: str) -> None:
    graph = Graph.from_json(DOCUMENTS[name])
    again = parsed(graph.to_text())
    assert again == graph
    assert without_uuids(Graph.from_json(again.to_json()).to_json()["vars"]) == without_uuids(graph.to_json()["vars"])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_loading_does_not_change_the_document(name: str) -> None:
    document = load(name)
    Graph.from_json(document)
    assert document == load(name)


def test_the_minimal_document_is_the_graph_one_would_write() -> None:
    assert Graph.from_json(DOCUMENTS["minimal"]).to_text() == (
        "dynamic {\n    x: f32[B];\n}\n\n"
        "volatile {\n    a: f32[B];\n    y: f32[B] @init(5.0);\n}\n\n"
        "block entry {\n    assign t0: f32[B];\n    op add(x, a) >> t0;\n    op mul(y, t0) >> y;\n    return;\n}\n"
    )


# --- corners that random graphs rarely reach --------------------------------------------------------------------------

NESTED_AS_DEEP_AS_TEXT_GOES = "block entry { " + 'scope "s" { ' * 198 + "barrier; " + "} " * 198 + "return; }"
LONG_NAME = "n" * 12_000
CORNERS = {
    "a model tensor with a name of 12,000 characters": (
        f'dynamic {{ x: f32; }} block entry {{ op add(x, model["{LONG_NAME}"]) >> x; return; }}'
    ),
    "a variable with a name of 12,000 characters": (
        f"dynamic {{ {LONG_NAME}: f32; }} block entry {{ op add({LONG_NAME}) >> {LONG_NAME}; return; }}"
    ),
    "the largest integer with a minus in front": "sizes { N := -18446744073709551615; } block entry { return; }",
    "scopes as deep as text allows": NESTED_AS_DEEP_AS_TEXT_GOES,
    "parentheses as deep as text allows": (f"sizes {{ N := {'1-(' * 150}1{')' * 150}; }} block entry {{ return; }}"),
    "a sum as long as expressions may be": f"sizes {{ N := {'+'.join('1' * 200)}; }} block entry {{ return; }}",
    "a parameter named block": "dynamic { x: f32; } block entry { op f(block=x) >> x; op f(block=1) >> x; return; }",
    "the deepest expression in an index in the deepest loop": (
        "dynamic { x: f32; } persistent { K(i): f32 @table; } block entry { "
        + 'scope "s" { ' * 199
        + f"op f(K[{'B-(' * 199}B{')' * 199}]) >> x; "
        + "} " * 199
        + "return; }"
    ),
    "a variable named like the alias of a dtype": (
        "dynamic { f8e5m2: f32; } block entry { op add(f8e5m2, f8e5m2) >> f8e5m2; return; }"
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_what_parses_survives_printing_and_json_in_the_corners_too(name: str) -> None:
    found = parse(CORNERS[name])
    if any(not problem.code.is_warning for problem in found.problems):
        return  # refusing is always allowed; what is accepted must survive
    assert parsed(found.graph.to_text()) == found.graph
    assert Graph.from_json(stable(found.graph)) == found.graph


@pytest.mark.parametrize(
    "name",
    ["scopes as deep as text allows", "parentheses as deep as text allows", "a sum as long as expressions may be"],
)
def test_depths_below_the_limit_are_accepted(name: str) -> None:
    assert [problem.render() for problem in parse(CORNERS[name]).problems] == []
