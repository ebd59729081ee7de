"""What the parser says about wrong text: every code, in exactly these words, and no more errors than mistakes.

``diagnostics.txt`` holds the cases: a name that begins with the code, the source, an arrow, and what is printed.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from openinfer.errors import Code, GraphError
from openinfer.ir import Graph
from openinfer.lang import graph, load_graph, parse

CASES = Path(__file__).with_name("diagnostics.txt")
ELSEWHERE = {"E110", "E111", "E112", "E113", "E204"}
"""Codes of JSON, of files, of projects and of strict mode, which have tests of their own."""
WITH_A_MODEL = {f"E{n}" for n in (206, 207, 208, 209, 210, 410, 411, 412, 413, 507, 508, 509, 510, 511)}
"""Codes of binding and of running, which need more than a text: ``tests/check`` and ``tests/sim`` have them."""


@cache
def cases() -> dict[str, tuple[str, str]]:
    found = {}
    for case in CASES.read_text(encoding="utf-8").removeprefix("=== ").rstrip("\n").split("\n\n=== "):
        name, _, rest = case.partition("\n")
        source, shown = rest.split("\n--->\n")
        found[name] = (source, shown)
    return found


@pytest.mark.parametrize("name", cases())
def test_a_mistake_is_reported_in_these_words(name: str) -> None:
    source, shown = cases()[name]
    assert "\n".join(problem.render() for problem in parse(source, "g.oig").problems) == shown


@pytest.mark.parametrize("name", cases())
def test_a_mistake_has_the_code_its_case_is_named_for(name: str) -> None:
    codes = [str(problem.code) for problem in parse(cases()[name][0]).problems]
    assert codes[0] == name.split(maxsplit=1)[0]


@pytest.mark.parametrize("name", cases())
def test_every_problem_has_a_place(name: str) -> None:
    assert all(problem.span is not None for problem in parse(cases()[name][0]).problems)


def test_a_graph_without_entry_has_a_place_in_text_and_in_documents() -> None:
    assert [problem.span for problem in parse("").problems] != [None]
    document: dict[str, Any] = {"vars": {}, "blocks": {}}
    with pytest.raises(GraphError) as caught:
        Graph.from_json(document, name="g.json")
    assert "--> g.json: /" in str(caught.value)


@pytest.mark.parametrize("name", cases())
def test_graph_raises_all_errors_of_a_text_and_lets_warnings_pass(name: str) -> None:
    source, shown = cases()[name]
    if name.startswith("W"):
        graph(source)
        return
    with pytest.raises(GraphError) as caught:
        graph(source, "g.oig")
    assert str(caught.value) == shown


def test_every_code_of_text_and_graphs_has_a_case() -> None:
    covered = {name.split()[0] for name in cases()} | ELSEWHERE | WITH_A_MODEL | {"E104"}
    assert {str(code) for code in Code if code[:2] in ("E1", "E2", "E4", "E5", "W9")} == covered


# --- codes that need more than a text -------------------------------------------------------------------------------


def test_deep_brackets_are_refused_where_they_become_too_deep() -> None:
    source = "sizes { N := " + "(" * 300 + "1" + ")" * 300 + "; } block entry { return; }"
    (problem,) = parse(source).problems
    assert problem.code is Code.TOO_DEEP
    assert problem.message == "brackets are nested more than 200 deep"


def test_an_unknown_attribute_is_an_error_in_strict_mode_only() -> None:
    source = "dynamic { x: f32 @tabel; }\nblock entry { return; }"
    assert parse(source).problems == []
    (problem,) = parse(source, "g.oig", strict=True).problems
    assert problem.render() == (
        "error[E204]: the attribute '@tabel' of 'x' is unknown\n"
        " --> g.oig:1:11\n"
        "  |\n"
        "1 | dynamic { x: f32 @tabel; }\n"
        "  |           ^^^^^^^^^^^^^\n"
        "  = help: did you mean 'table'?"
    )
    with pytest.raises(GraphError):
        graph(source, strict=True)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphError) as caught:
        load_graph(tmp_path / "missing.oig")
    assert caught.value.code is Code.BAD_SOURCE_FILE
    assert "No such file or directory" in caught.value.message
    assert f"  --> {tmp_path / 'missing.oig'}" in str(caught.value)


def test_a_file_that_is_not_text_is_refused_at_the_byte(tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_bytes(b"block entry \xff")
    with pytest.raises(GraphError, match="byte 12 is not UTF-8 text"):
        load_graph(tmp_path / "g.oig")


def test_a_file_s_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "g.oig").write_bytes(b"\xef\xbb\xbfblock entry { }")
    with pytest.raises(GraphError) as caught:
        load_graph(tmp_path / "g.oig")
    assert f"--> {tmp_path / 'g.oig'}:1:1" in str(caught.value)


def test_a_json_file_is_read_as_json(tmp_path: Path) -> None:
    made = graph("block entry { return; }")
    (tmp_path / "g.json").write_text(json.dumps(made.to_json()), encoding="utf-8")
    assert load_graph(tmp_path / "g.json") == made


def test_broken_json_says_where() -> None:
    with pytest.raises(GraphError) as caught:
        Graph.from_json('{"vars": {},\n "blocks": }')
    assert caught.value.code is Code.BAD_JSON
    assert "<json>:2:12" in str(caught.value)


def test_a_wrong_document_says_where() -> None:
    with pytest.raises(GraphError) as caught:
        Graph.from_json({"vars": {"x": 3}, "blocks": {}})
    assert caught.value.code is Code.BAD_DOCUMENT
    assert str(caught.value) == "error[E111]: expected an object, found 3\n  --> <json>: /vars/x"


# --- several mistakes -----------------------------------------------------------------------------------------------

TEN_STATEMENTS = """\
block entry {
    assign t f32;
    op add x) >> y;
    op mul(x, y >> y;
    op mul(x, y) > y;
    transfer x > y;
    cache.increment 5;
    loop l (i in 0.3) { barrier; }
    branch;
    dep after(f) befor(g);
    scope attention { barrier; }
    barier;
    return;
}
"""
DECLARATIONS = """\
sizes {
    N = 3;
    M := 4;
}
dynamic {
    x f32[B];
    y: f32[B;
    z: f31;
    fine: f32;
}
volatile {
    a: f32 @init(;
    b: f32 @;
    c(: f32;
    d: f32[];
}
block entry { return; }
"""


def lines(source: str) -> list[int]:
    """The lines that errors point to."""
    found = []
    for problem in parse(source).problems:
        assert problem.span is not None
        found.append(int(str(problem.span.facts()["line"])))
    return found


def test_one_mistake_in_each_statement_gives_one_error_for_each() -> None:
    assert lines(TEN_STATEMENTS) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_one_mistake_in_each_declaration_gives_one_error_for_each() -> None:
    assert lines(DECLARATIONS) == [2, 6, 7, 8, 12, 13, 14]


def test_a_mistake_in_one_block_does_not_hide_or_spoil_the_next() -> None:
    source = "block a {\n    op f(;\n}\nblock b {\n    barrier\n}\nblock entry {\n    return;\n    x = op;\n}\n"
    assert lines(source) == [2, 5, 9]


def test_a_wrong_section_is_skipped_as_a_whole() -> None:
    source = "dinamic { x: f32; y: f32; }\ndynamic { x: f32; }\nblock entry { op f(x) >> x; return; }\n"
    assert lines(source) == [1]


def test_at_most_twenty_syntax_errors_are_reported() -> None:
    assert len(parse("block entry {\n" + "bad statement;\n" * 1000 + "}").problems) == 20


def test_all_structural_errors_are_reported_together() -> None:
    source = "constant { c: f32; }\nblock entry {\n op f(q) >> c;\n branch nowhere;\n cache.reset c;\n barrier;\n}"
    codes = [str(problem.code) for problem in parse(source).problems]
    assert codes == ["E402", "E201", "E503", "E203", "E504"]


def test_literal_errors_are_reported_together() -> None:
    source = 'volatile { x: u8 @init(300); y: f64 @init(1e999); z: f32[99999999999999999999] @ref("\\q") @ref("a"); }'
    codes = [str(problem.code) for problem in parse(source + " block entry { return; }").problems]
    assert codes == ["E108", "E103", "E103", "E109", "E106"]


def test_an_argument_of_an_attribute_by_position_comes_before_those_with_a_name() -> None:
    problems = parse("dynamic { x: f32 @note(a=1, 2); } block entry { return; }").problems
    assert [str(problem.code) for problem in problems] == ["E107"]


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", ["\n", "\n\n\n", " // why\n", "\r\n", " /* a\nb */ "])
def test_a_missing_semicolon_is_reported_at_the_end_of_the_statement(gap: str) -> None:
    source = f"block entry {{\n    barrier{gap}    return;\n}}"
    (problem,) = parse(source).problems
    assert problem.message == "missing ';' here"
    assert problem.span is not None
    assert (problem.span.facts()["line"], problem.span.facts()["column"]) == (2, 12)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("block entry {\n  barrier;\n  return;\n", "the '{' at 1:13 is never closed"),
        ("block entry {\n  loop l (i in 0..2) {\n    barrier;\n", "the '{' at 2:22 is never closed"),
        ("graph! {\nblock entry { return; }\n", "the '{' at 1:8 is never closed"),
        ("block entry {\n  op f(x, [1, 2\n", "the '[' at 2:11 is never closed"),
        ("dynamic {\n  x: f32[B", "the '[' at 2:9 is never closed"),
    ],
)
def test_an_unclosed_bracket_is_named_with_its_place(source: str, place: str) -> None:
    problem = parse(source).problems[-1]
    assert problem.notes == (place,)


def test_columns_count_characters_and_carets_count_terminal_cells() -> None:
    shown = parse('block entry { scope "漢字" { } barier; return; }', "g.oig").problems[0].render()
    assert shown == (
        "error[E101]: expected '=', found ';'\n"
        " --> g.oig:1:36\n"
        "  |\n"
        '1 | block entry { scope "漢字" { } barier; return; }\n'
        "  |                                      ^\n"
        "  = help: did you mean 'barrier'?"
    )


@pytest.mark.parametrize(
    "source",
    [
        "persistent { K(i): f32[]; } block entry { return; }",
        "dynamic { x: f32 @init(); } block entry { return; }",
        "dynamic { x: f32; } block b { t = op f(x) with { }; return; } block entry { return; }",
        "state { c: buffer(f32, []) @table; } block entry { return; }",
        "dynamic { x: f32; } block entry { op f(a=x, a=[]) >> x; return; }",
        "dynamic { x: f32; } block entry { op f(x, []) >> x; return; }",
        "dynamic { x: f32; } block entry with { a = [], a = [] } { return; }",
    ],
)
def test_empty_brackets_do_not_confuse_the_place_of_an_error(source: str) -> None:
    problems = parse(source).problems
    assert problems
    for problem in problems:
        assert problem.span is not None
        facts = problem.span.facts()
        assert (facts["line"], facts["end_line"]) == (1, 1)
        assert 9 <= int(str(facts["column"])) < int(str(facts["end_column"])) <= len(source)
