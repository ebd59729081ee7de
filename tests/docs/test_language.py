"""The reference of the language shows what it says: its graphs, the example graphs, and nothing left out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from openinfer import ModelLoader
from openinfer.errors import Code, GraphError, explanation
from openinfer.ir import Graph, MemoryKind, NodeKind
from openinfer.ir.expr import evaluate
from openinfer.ir.words import RESERVED
from openinfer.lang import graph, parse

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples" / "graphs").glob("*.oig"))
FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
ATTRIBUTES = ("init", "ref", "pattern", "table", "auto_dim", "fixed")
CLASSIC = (
    "inputs",
    "outputs",
    "state",
    "buffer(",
    "effect read(",
    "effect write(",
    "axis=",
    'model["',
    "fmt(",
    "constants",
)


def blocks(language: str) -> Iterator[tuple[int, str]]:
    """The fenced blocks in a language, with the line of the page where each begins."""
    for match in FENCE.finditer(PAGE):
        if match[1] == language:
            yield PAGE.count("\n", 0, match.start()) + 1, match[2]


def bare(text: str) -> list[str]:
    """The lines of a text without comments and blank lines."""
    without_comments = COMMENT.sub(lambda match: match[1] or "", text)
    return [line.rstrip() for line in without_comments.splitlines() if line.strip()]


def slug(heading: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def each(language: str) -> pytest.MarkDecorator:
    parameters = [pytest.param(line, text, id=f"line {line}") for line, text in blocks(language)]
    return pytest.mark.parametrize(("line", "text"), parameters)


every_graph = each("oig")
every_classic_graph = each("oig-classic")
every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_has_only_blocks_whose_language_is_checked() -> None:
    assert {match[1] for match in FENCE.finditer(PAGE)} == {"oig", "oig-classic", "json", "text"}
    assert PAGE.count("```") == 2 * len(FENCE.findall(PAGE))


@every_graph
def test_a_graph_of_the_page_has_no_problems_in_strict_mode(line: int, text: str) -> None:
    assert [problem.render() for problem in parse(text, f"language.md:{line}", strict=True).problems] == []


@every_graph
def test_a_graph_of_the_page_is_in_canonical_form(line: int, text: str) -> None:
    assert bare(graph(text, f"language.md:{line}", strict=True).to_text()) == bare(text)


@every_classic_graph
def test_a_classic_graph_of_the_page_parses_and_prints_in_the_current_dialect(line: int, text: str) -> None:
    built = graph(text, f"language.md:{line}", strict=True)
    assert graph(built.to_text(), strict=True).to_json() == built.to_json()
    assert not re.search(r"\b(inputs|outputs|state|effect|buffer)\b", built.to_text())


def test_the_json_of_the_page_is_a_graph() -> None:
    for _, text in blocks("json"):
        built = Graph.from_json(text)
        assert Graph.from_json(built.to_json()) == built
        given = json.loads(text)
        assert built.to_json() == given


def test_what_a_classic_text_becomes_is_as_the_table_says() -> None:
    ((_, text),) = blocks("oig-classic")
    printed = graph(text).to_text()
    for line in ("cache.write x >> cache[, step, ];", "cache.read cache[, step-1, ] >> y;", "assign past: f32[B, D];"):
        assert line in printed


def test_the_diagnostic_of_the_page_is_what_is_printed() -> None:
    (problem,) = parse(explanation(Code.UNKNOWN_VARIABLE).wrong, "model.oig").problems
    assert problem.render() in [text.rstrip("\n") for _, text in blocks("text")]


def test_links_inside_the_page_lead_to_its_headings() -> None:
    headings = {slug(heading) for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", PAGE), re.MULTILINE)}
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert links <= headings
    assert {slug(heading) for heading in re.findall(r"^## (.+)$", FENCE.sub("", PAGE), re.MULTILINE)} <= links


def test_links_to_other_pages_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PAGE) if "://" not in link]
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


# --- nothing is left out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind.__name__ for kind in get_args(NodeKind)])
def test_a_node_kind_is_on_the_page_and_in_one_of_its_graphs(kind: str) -> None:
    assert f"`{kind.removeprefix('Block')}`" in PAGE, "as documents call it"
    shown = {type(node.kind).__name__ for _, text in blocks("oig") for node in graph(text).walk()}
    assert kind in shown


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_is_described_and_used(name: str) -> None:
    assert re.search(rf"^\| `@{name}\b", PAGE, re.MULTILINE)
    assert any(re.search(rf"@{name}\b", text) for _, text in blocks("oig"))


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_a_memory_kind_is_described_and_used(kind: MemoryKind) -> None:
    assert re.search(rf"^\| `{kind}` \|", PAGE, re.MULTILINE)
    assert any(kind in {variable.kind for variable in graph(text).vars.values()} for _, text in blocks("oig"))


def test_exactly_the_reserved_words_are_listed_as_such() -> None:
    lists = [set(text.split()) for _, text in blocks("text")]
    assert RESERVED in lists


@pytest.mark.parametrize("word", CLASSIC)
def test_the_classic_dialect_is_described(word: str) -> None:
    _, _, section = PAGE.partition("## The classic dialect")
    assert word in section.partition("## Graph JSON")[0]


# --- the example graphs ---------------------------------------------------------------------------------------------


def test_there_are_example_graphs_and_the_readme_lists_each() -> None:
    assert len(EXAMPLES) >= 8
    listed = re.findall(r"^\| \[(.+?)\]\(\1\)", (ROOT / "examples/graphs/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [path.name for path in EXAMPLES]


@every_example
def test_an_example_has_no_problems_in_strict_mode(path: Path) -> None:
    assert [problem.render() for problem in parse(path.read_text(), path.name, strict=True).problems] == []


@every_example
def test_an_example_is_in_canonical_form_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert bare(graph(text, strict=True).to_text()) == bare(text)
    assert text.startswith("// ")


@every_example
def test_an_example_survives_text_and_json(path: Path) -> None:
    built = graph(path.read_text(), path.name, strict=True)
    document = json.dumps(built.to_json(), sort_keys=True)
    assert Graph.from_json(document) == built
    assert json.dumps(Graph.from_json(document).to_json(), sort_keys=True) == document
    assert json.dumps(graph(built.to_text()).to_json(), sort_keys=True) == document


def test_the_mlp_example_declares_what_its_model_has() -> None:
    built = graph((ROOT / "examples/graphs/mlp.oig").read_text())
    with ModelLoader.open(ROOT / "res/models/mlp_regression.oinf") as model:
        weights = {name: var for name, var in built.vars.items() if var.kind is MemoryKind.CONSTANT}
        assert set(weights) == set(model.tensors)
        for name, variable in weights.items():
            assert variable.dtype == model.tensors[name].dtype
            assert tuple(evaluate(dim, model.size_of) for dim in variable.dims) == model.tensors[name].shape


# --- what the page says about wrong graphs --------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["1.5", '"a"', "true"])
def test_an_effect_whose_index_is_no_integer_expression_is_refused(index: str) -> None:
    text = (
        "inputs { h: f32[B, D]; } state { c: buffer(f32, [B, T, D]); }"
        f"block entry {{ effect write(c, index={index}, value=h); return; }}"
    )
    assert [problem.code for problem in parse(text).problems] == [Code.BAD_INDEXING]


@pytest.mark.parametrize(
    ("kind", "codes"), [("i32", []), ("f32", [Code.BAD_INDEXING]), ("i32[3]", [Code.BAD_INDEXING])]
)
def test_a_temporary_in_an_index_is_an_integer_scalar(kind: str, codes: list[Code]) -> None:
    text = f"persistent {{ K(l): f32 @table; }} block entry {{ assign z: {kind}; cache.reset K[z]; return; }}"
    assert [problem.code for problem in parse(text).problems] == codes


def test_an_assign_without_a_type_belongs_to_the_op_after_it() -> None:
    document = graph("dynamic { x: f32; } block entry { t = op relu(x); op relu(t) >> x; return x; }").to_json()
    assert Graph.from_json(document).to_json() == document
    nodes = document["blocks"]["entry"]["nodes"]
    nodes[1], nodes[2] = nodes[2], nodes[1]
    with pytest.raises(GraphError) as caught:
        Graph.from_json(document)
    assert caught.value.code is Code.BAD_DOCUMENT
