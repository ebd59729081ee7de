"""What an editor is told about a text: names, types, problems, completions, renames and fixes."""

from itertools import pairwise
from pathlib import Path

import pytest
from tests.language_service.conftest import GRAPH

from openinfer.errors import Code
from openinfer.language_service import (
    LanguageService,
    RenameRefusedError,
    SymbolKind,
    TextAnalysis,
    TextRange,
    analyse,
    code_fixes,
    completions,
    edited,
    folding_areas,
    format_edits,
    hover,
    meaning_tokens,
    rename,
    surroundings_of,
)


@pytest.fixture
def mlp(graph_file: Path) -> TextAnalysis:
    return LanguageService().update(str(graph_file), GRAPH)


def marked(text: str) -> tuple[TextAnalysis, int]:
    """The analysis of a text, and where the mark in it was."""
    before, _, after = text.partition("|")
    return analyse(before + after, "g.oig"), len(before)


def labels(text: str) -> set[str]:
    return {one.label for one in completions(*marked(text))}


def in_block(body: str) -> str:
    declared = "dynamic { x: f32[4]; } constant { c: f32 @init(1.0); } volatile { y: f32[4]; }"
    return f"{declared}\nblock entry {{ {body} }}"


# --- problems and surroundings ----------------------------------------------------------------------------------------


def test_the_comment_gives_a_graph_its_model_and_sizes(mlp: TextAnalysis) -> None:
    assert mlp.problems == ()
    assert mlp.bound is not None
    assert dict(mlp.bound.sizes) == {"B": 4, "D": 8}


def test_types_are_checked_with_the_model(graph_file: Path) -> None:
    text = GRAPH.replace("y: f32[B, D]", "y: f32[B, 9]")
    found = LanguageService().update(str(graph_file), text)
    (problem,) = found.problems
    assert problem.code is Code.RESULT_TYPE
    where = found.range_of(problem)
    assert text[where.start : where.end] == "y"


def test_a_graph_without_model_and_sizes_is_not_blamed_for_what_they_would_give() -> None:
    assert analyse(GRAPH, "g.oig").problems == ()


def test_the_project_file_counts_for_folders_below_and_a_comment_goes_before_it(graph_file: Path) -> None:
    folder = graph_file.parent
    (folder / "openinfer.toml").write_text(
        'model = "mlp.oinf"\nsizes = { B = 2, T = 3 }\n'
        '[graphs."deep/mlp.oig"]\nsizes = { B = 5 }\ninputs = { x = "ones" }\n'
    )
    (folder / "deep").mkdir()
    plain = GRAPH.split("\n", 1)[1]
    found = surroundings_of(str(folder / "deep" / "mlp.oig"), plain)
    assert (found.model, dict(found.sizes), dict(found.inputs)) == (
        str(folder / "mlp.oinf"),
        {"B": 5, "T": 3},
        {"x": "ones"},
    )
    said = surroundings_of(str(folder / "deep" / "mlp.oig"), "// openinfer: --size B=7 --steps 3\n" + plain)
    assert (said.sizes["B"], said.sizes["T"], said.steps) == (7, 3, 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("// openinfer: --sizes B=4\n", "no option '--sizes'"),
        ("// openinfer: --size B\n", "NAME=NUMBER"),
        ("// openinfer: --model\n", "a value is missing"),
        ('// openinfer: --model "m\n', "No closing quotation"),
        ("// openinfer: --steps none\n", "number of steps"),
    ],
)
def test_a_wrong_comment_is_a_problem_at_the_comment(text: str, reason: str) -> None:
    found = LanguageService().update("/nowhere/g.oig", text + "block entry { return; }")
    (problem,) = found.problems
    assert (problem.code, reason in f"{problem.message} {problem.help}") == (Code.BAD_PROJECT, True)
    assert found.range_of(problem).end == len(text) - 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("model = ", "cannot read"),
        ("models = 'a'", "no 'models'"),
        ("sizes = 3", "'sizes'"),
        ("graphs = 3", "'graphs'"),
    ],
)
def test_a_wrong_project_file_is_a_problem_at_the_beginning(tmp_path: Path, content: str, reason: str) -> None:
    (tmp_path / "openinfer.toml").write_text(content)
    found = LanguageService().update(str(tmp_path / "g.oig"), "block entry { return; }")
    (problem,) = found.problems
    assert (problem.code, reason in problem.message) == (Code.BAD_PROJECT, True)


def test_a_model_that_is_not_there_is_a_problem_until_it_is(graph_file: Path) -> None:
    service, model = LanguageService(), graph_file.parent / "mlp.oinf"
    content = model.read_bytes()
    model.unlink()
    assert [one.code for one in service.update(str(graph_file), GRAPH).problems] == [Code.NOT_A_MODEL_FILE]
    model.write_bytes(content)
    (again,) = service.refresh()
    assert again.problems == ()


# --- names ------------------------------------------------------------------------------------------------------------


def places(found: TextAnalysis, mark: str, at: int = 0) -> list[int]:
    offset = found.text.index(mark) + at
    name = found.index.at(offset)
    assert name is not None
    return [found.source.position(one.range.start)[0] for one in found.index.of(name.symbol)]


def test_definition_and_references_follow_scopes(mlp: TextAnalysis) -> None:
    assert places(mlp, "assign h", 7) == [7, 8, 10, 10, 11, 11, 13]
    assert places(mlp, "W[l]", 2) == [9, 10], "the index of the loop, not that of the table"
    assert places(mlp, "K(l, t)", 2) == [5]
    assert places(mlp, "r = op") == [18, 19]
    assert places(mlp, "call nonlinear", 6) == [11, 17]
    assert places(mlp, "B, D]; }") == [2, 4, 7, 17]


@pytest.mark.parametrize(
    "broken", ["    op matmul(h, W[l\n", "    op add(h, \n", "    loop (\n", "    } }\n", '    "\n']
)
def test_names_are_known_while_a_statement_is_typed(graph_file: Path, broken: str) -> None:
    service = LanguageService()
    service.update(str(graph_file), GRAPH)
    text = GRAPH.replace("    op add(h, b) >> y;\n", broken)
    found = service.update(str(graph_file), text)
    assert found.problems
    said = hover(found, text.index("assign h") + 7)
    assert said is not None
    assert "f32[B=4, D=8]" in said.markdown


def test_a_name_in_a_broken_statement_is_resolved() -> None:
    found, offset = marked(in_block("assign h: f32[4]; op add(h|, "))
    name = found.index.at(offset)
    assert name is not None
    assert (name.symbol.kind, name.symbol.declared is not None) == (SymbolKind.TEMPORARY, True)


# --- hover ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("x >> h", "dynamic x: f32[B=4, D=8]"),
        ("b) >> y", "From the model: `bias`"),
        ("matmul", "(f32[B=4, D=8], f32[D=8, D=8]) -> f32[4, 8]"),
        ("relu", "# relu"),
        ("alpha=0.1", "negative_slope: number=0"),
        ("B, D]; }\nconstant", "size B := 4"),
        ("layers (", "loop layers (l in 0..2)"),
        ("nonlinear(v", "block nonlinear(v: f32[B, D])"),
        ("bias", "bias: f32[8]"),
        ("v, alpha", "f32[B=4, D=8]"),
        ("transfer", "Copies a value"),
        ("@pattern", None),
        ("pattern(", "tensors of the model"),
    ],
)
def test_hover_says_types_and_documentation(mlp: TextAnalysis, mark: str, said: str | None) -> None:
    found = hover(mlp, mlp.text.index(mark))
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found.markdown


def test_names_from_a_graph_stay_text_in_markdown(graph_file: Path) -> None:
    name = "`` `![a](https://evil.example/a.png)"
    text = GRAPH.replace('@ref("bias")', f'@ref("{name}")').replace("W.{l}", f"{name}{{l}}")
    found = LanguageService().update(str(graph_file), text)
    for mark in ('ref("', 'pattern("'):
        said = hover(found, text.index(mark) + len(mark))
        assert said is not None
        assert "![" not in said.markdown.replace(f"``` {name} ```", "")


# --- completion -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "some", "none"),
    [
        ("|", {"dynamic", "block", "sizes"}, {"op"}),
        ("dynamic { x: |", {"f32", "u4"}, {"block"}),
        ("dynamic { x: f32 @|", {"init", "pattern"}, {"f32"}),
        ("sizes { B := 4; } dynamic { x: f32[|", {"B"}, {"f32"}),
        (in_block("op |"), {"matmul", "relu"}, {"x"}),
        (in_block("h = op ma|"), {"matmul"}, {"x"}),
        (in_block("op softmax(x, |"), {"axis", "x"}, {"matmul"}),
        (in_block("op softmax(x, axis=1, |"), {"y"}, {"axis"}),
        (in_block("op cast(x, to=|"), {"f16"}, {"x"}),
        (in_block("op neg(x) >> |"), {"y"}, {"c"}),
        (in_block("loop l (i in 0..3) { op neg(x[|"), {"i", "c"}, {"matmul"}),
        (in_block("|"), {"op", "loop", "return", "y"}, {"block", "f32"}),
        (in_block("cache.|"), {"cache.read", "cache.increment"}, {"x"}),
        (in_block("branch |") + " block other { return; }", {"other"}, {"op"}),
        (in_block("return |"), {"y"}, {"op"}),
        (in_block("op neg(x) >> y with { |"), {"fuse"}, {"x"}),
        (in_block("assign h: |"), {"f32"}, {"x"}),
    ],
)
def test_completion_offers_what_the_place_takes(text: str, some: set[str], none: set[str]) -> None:
    found = labels(text)
    assert some <= found
    assert not none & found


def test_completion_knows_the_model(graph_file: Path) -> None:
    text = GRAPH.replace('@ref("bias")', '@ref("')
    found = LanguageService().update(str(graph_file), text)
    entries = completions(found, text.index('@ref("') + 6)
    assert {"bias", "W.0"} <= {one.label for one in entries}
    assert next(one.detail for one in entries if one.label == "bias") == "f32[8]"


@pytest.mark.parametrize(
    "text",
    [
        *("// a |", in_block("op neg(x) >> y; // and op |\n"), in_block("/* op |"), in_block("/* op | */"), '// "op |'),
        *(in_block('scope "op |" {'), in_block('op neg(x, "op |')),
    ],
)
def test_nothing_is_offered_in_comments_and_strings(text: str) -> None:
    """Editors ask behind every space."""
    assert labels(text) == set()


def test_quotes_in_comments_begin_no_string_and_words_are_replaced_on_their_line() -> None:
    assert "matmul" in labels(in_block('/* " */ op |'))
    assert "cache.read" not in labels(in_block("cache.\n    |"))


def test_a_completion_replaces_the_word_that_is_being_typed() -> None:
    found, offset = marked(in_block("op mat|"))
    entry = next(one for one in completions(found, offset) if one.label == "matmul")
    assert found.text[entry.range.start : entry.range.end] == "mat"


# --- renaming ---------------------------------------------------------------------------------------------------------


def test_a_rename_changes_every_place_and_nothing_else(mlp: TextAnalysis) -> None:
    text = edited(mlp.text, rename(mlp, mlp.text.index("assign h") + 7, "hidden"))
    assert text.count("hidden") == 7
    assert analyse(text.split("\n", 1)[1], "g.oig").problems == ()
    loop = edited(mlp.text, rename(mlp, mlp.text.index("(l in") + 1, "layer"))
    assert "W(l): f32" in loop
    assert "W[layer]" in loop


@pytest.mark.parametrize(
    ("mark", "name", "reason"),
    [
        ("h: f32[B", "x", "there is a variable 'x' already, at 2:11"),
        ("h: f32[B", "op", "a word of the language"),
        ("h: f32[B", "2h", "not a name"),
        ("l in 0", "h", "there is a temporary 'h' already"),
        ("matmul", "mm", "the name of an op"),
        ("entry", "main", "execution starts"),
        ("D]; }\nconstant", "E", "comes from the model"),
        ("r = op", "v", "there is a variable 'v' already"),
        ("nonlinear(h", "entry", "there is a block 'entry' already"),
    ],
)
def test_a_rename_that_clashes_is_refused(mlp: TextAnalysis, mark: str, name: str, reason: str) -> None:
    with pytest.raises(RenameRefusedError, match=reason):
        rename(mlp, mlp.text.index(mark), name)


def test_a_variable_that_the_model_fills_by_name_keeps_it(graph_file: Path) -> None:
    text = GRAPH.replace('b: f32[D] @ref("bias")', "bias: f32[D]").replace("(h, b)", "(h, bias)")
    found = LanguageService().update(str(graph_file), text)
    with pytest.raises(RenameRefusedError, match="@ref"):
        rename(found, text.index("bias"), "offset")


# --- outline, folding, tokens, formatting -----------------------------------------------------------------------------


def test_the_outline_has_sections_blocks_and_what_they_contain(mlp: TextAnalysis) -> None:
    assert [(one.name, one.kind) for one in mlp.index.outline] == [
        ("dynamic", "section"),
        ("constant", "section"),
        ("volatile", "section"),
        ("persistent", "section"),
        ("entry", "block"),
        ("nonlinear", "block"),
    ]
    entry = mlp.index.outline[4]
    assert [one.name for one in entry.children] == ["layers"]
    assert mlp.text[entry.range.start : entry.range.end].endswith("return y;\n}")


def test_bodies_and_runs_of_comments_can_be_folded() -> None:
    text = "// one\n// two\nblock entry {\n    return;\n}\n"
    found, _ = marked(text + "|")
    areas = folding_areas(found.text, found.recovered.tokens)
    assert [(found.text[one.range.start :][:2], one.is_comment) for one in areas] == [("//", True), ("{\n", False)]


def test_tokens_are_in_order_and_do_not_overlap(mlp: TextAnalysis) -> None:
    tokens = meaning_tokens(mlp)
    assert all(one.range.end <= two.range.start for one, two in pairwise(tokens))
    by_text = {mlp.text[one.range.start : one.range.end]: one.type for one in tokens}
    assert {word: by_text[word] for word in ("matmul", "f32", "h", "B", "layers", "loop", "nonlinear", "l", "0.1")} == {
        "matmul": "function",
        "f32": "type",
        "h": "variable",
        "B": "typeParameter",
        "layers": "label",
        "loop": "keyword",
        "nonlinear": "namespace",
        "l": "parameter",
        "0.1": "number",
    }


def test_formatting_changes_nothing_where_the_syntax_is_wrong() -> None:
    assert format_edits(analyse("block entry{return;}", "g.oig"))[0].new_text == "block entry {\n    return;\n}\n"
    assert format_edits(analyse("block entry{return", "g.oig")) == []


# --- fixes ------------------------------------------------------------------------------------------------------------


def test_a_missing_semicolon_is_added() -> None:
    text = in_block("op relu(x) >> y\n return y;")
    (fix,) = code_fixes(analyse(text, "g.oig"), TextRange(0, len(text)))
    assert fix.title == "add ';'"
    assert edited(text, fix.edits) == text.replace(">> y\n", ">> y;\n")


def test_a_misspelt_name_is_corrected_in_its_place() -> None:
    text = in_block("op rleu(x) >> y; return y;")
    found = analyse(text, "g.oig")
    fixes = code_fixes(found, TextRange(0, len(text)))
    assert "change 'rleu' to 'relu'" in [one.title for one in fixes]
    assert edited(text, next(one for one in fixes if "relu" in one.title).edits) == text.replace("rleu", "relu")
