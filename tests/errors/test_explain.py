"""Every code is explained, and the explanation's examples prove it."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import openinfer
from openinfer.check import check
from openinfer.errors import Code, Diagnostic, OpenInferError, explanation
from openinfer.ir import Graph
from openinfer.lang import parse

SOURCE = Path(openinfer.__file__).parent
PAGES = SOURCE / "errors" / "explanations"
TITLE = re.compile(r"# [EW]\d{3}: [a-z].*[^.\s]")
PROVES_CODE = """
import sys
from openinfer.errors import OpenInferError
try:
    exec(compile(sys.stdin.read(), "example", "exec"), {"__name__": "example"})
except OpenInferError as error:
    print(f"raised {error.code}")
else:
    print("raised nothing")
"""
OWN_PROCESS = (Code.MISSING_EXTRA, Code.MISSING_TOOL, Code.NO_GPU, Code.UNSAFE_CACHE)
"""Codes whose examples change the interpreter they run in."""
STRICT_ONLY = (Code.UNKNOWN_ATTRIBUTE,)
"""Codes that graph source yields in strict mode only."""
OF_BINDING = {
    *(Code.UNKNOWN_OP, Code.UNKNOWN_PARAMETER, Code.UNKNOWN_SIZE, Code.UNKNOWN_LINK, Code.USED_BEFORE_ASSIGN),
    *(Code.WRONG_OPERANDS, Code.WRONG_DTYPE, Code.SHAPE_MISMATCH, Code.RESULT_TYPE, Code.BAD_PARAMETER),
    Code.INDEX_OUT_OF_RANGE,
    *(Code.TOUCHED_WHILE_YIELDED, Code.TWO_WRITERS, Code.RACE, Code.NEVER_SATISFIED),
}
"""Codes that a text by itself does not yield: its graph has to be bound, which these examples need no model for."""
OF_RUNNING = {
    *(Code.NODE_BUDGET, Code.INTERRUPTED, Code.WRONG_MOMENT, Code.BUSY),
    *(Code.NOT_INSERTED, Code.NOT_WRITABLE, Code.BAD_STATE, Code.OUT_OF_MEMORY),
}
"""Codes that need a step, and so a few lines of Python."""


def language(code: Code) -> str:
    """How the examples of a code are run; a page without examples counts as Python, and its own test fails."""
    fences = re.findall(r"^```(\w+)$", explanation(code).markdown, re.MULTILINE)
    return str(fences[0]) if fences else "python"


def written_in(*languages: str) -> list[Code]:
    pages = {path.stem for path in PAGES.iterdir()}
    return [code for code in Code if code in pages and language(code) in languages]


every_code = pytest.mark.parametrize("code", list(Code), ids=str)
in_process = pytest.mark.parametrize(
    "code", [code for code in written_in("python", "json") if code not in OWN_PROCESS], ids=str
)
in_own_process = pytest.mark.parametrize("code", OWN_PROCESS, ids=str)
in_graph_source = pytest.mark.parametrize("code", written_in("oig"), ids=str)
of_a_text = pytest.mark.parametrize("code", [code for code in written_in("oig") if code not in OF_BINDING], ids=str)
of_binding = pytest.mark.parametrize("code", [code for code in written_in("oig") if code in OF_BINDING], ids=str)


def run(code: Code, example: str) -> None:
    if language(code) == "json":
        Graph.from_json(example)
    else:
        exec(compile(example, "example", "exec"), {"__name__": "example"})


def problems_of(source: str, *, strict: bool) -> list[Diagnostic]:
    """What is wrong with a text, or with its graph once it is bound without a model."""
    parsed = parse(source, strict=strict)
    return parsed.problems or list(check(parsed.graph, None, {}, strict=strict).problems)


def codes_of(source: str, *, strict: bool) -> list[Code]:
    return [problem.code for problem in parse(source, strict=strict).problems]


def bound_codes_of(source: str, *, strict: bool) -> list[Code]:
    assert codes_of(source, strict=strict) == []
    return [problem.code for problem in problems_of(source, strict=strict)]


def last_line_of_own_process(example: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", PROVES_CODE]
    ended = subprocess.run(command, input=example, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


def test_every_code_has_a_page_and_every_page_a_code() -> None:
    assert sorted(page.name for page in PAGES.iterdir()) == sorted(f"{code}.md" for code in Code)


def test_codes_are_unique_and_have_a_letter_and_three_digits() -> None:
    assert len(Code.__members__) == len(set(Code))
    assert [code for code in Code if not re.fullmatch(r"[EW]\d{3}", code)] == []


@cache
def used_codes() -> frozenset[str]:
    modules = [path for path in SOURCE.rglob("*.py") if path.name != "codes.py"]
    return frozenset(name for path in modules for name in re.findall(r"\bCode\.(\w+)", path.read_text("utf-8")))


@every_code
def test_a_code_is_used_in_the_source(code: Code) -> None:
    assert code.name in used_codes()


@every_code
def test_a_page_starts_with_its_code_and_a_lower_case_title(code: Code) -> None:
    first = explanation(code).markdown.splitlines()[0]
    assert TITLE.fullmatch(first)
    assert first == f"# {code}: {explanation(code).title}"


@every_code
def test_a_page_is_short_plain_ascii(code: Code) -> None:
    markdown = explanation(code).markdown
    assert set(markdown) <= {"\n", *map(chr, range(0x20, 0x7F))}
    assert markdown.endswith("\n")
    assert [line for line in markdown.splitlines() if len(line) > 100 or line != line.rstrip()] == []


@every_code
def test_a_page_is_one_or_two_paragraphs_then_a_wrong_and_a_right_example(code: Code) -> None:
    shape = re.compile(
        r"# [^\n]+\n\n(?:[^\n`#][^\n]*\n(?:[^\n]+\n)*\n){1,2}"
        r"Wrong:\n\n```(python|oig|json)\n(?P<wrong>(?:(?!```).*\n)+)```\n\n"
        r"Right:\n\n```\1\n(?P<right>(?:(?!```).*\n)+)```\n"
    )
    found = shape.fullmatch(explanation(code).markdown)
    assert found is not None
    assert (found["wrong"], found["right"]) == (explanation(code).wrong, explanation(code).right)
    assert explanation(code).markdown.count("```") == 4


@every_code
def test_the_examples_are_short(code: Code) -> None:
    for example in (explanation(code).wrong, explanation(code).right):
        assert len(example.splitlines()) <= 12


@in_process
def test_the_wrong_example_raises_exactly_its_code(code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OpenInferError) as caught:
        run(code, explanation(code).wrong)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]


@in_process
def test_the_right_example_raises_nothing(code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(code, explanation(code).right)


@in_own_process
def test_in_a_process_of_its_own_the_wrong_example_raises_exactly_its_code(code: Code, tmp_path: Path) -> None:
    assert last_line_of_own_process(explanation(code).wrong, tmp_path) == f"raised {code}"


@in_own_process
def test_in_a_process_of_its_own_the_right_example_raises_nothing(code: Code, tmp_path: Path) -> None:
    assert last_line_of_own_process(explanation(code).right, tmp_path) == "raised nothing"


@of_a_text
def test_the_wrong_graph_yields_exactly_its_code(code: Code) -> None:
    wrong = explanation(code).wrong
    assert codes_of(wrong, strict=True) == [code]
    assert codes_of(wrong, strict=False) == ([] if code in STRICT_ONLY else [code])


@of_binding
def test_the_wrong_graph_yields_exactly_its_code_when_it_is_bound(code: Code) -> None:
    wrong = explanation(code).wrong
    assert bound_codes_of(wrong, strict=True) == [code]
    assert bound_codes_of(wrong, strict=False) == [code]


@in_graph_source
def test_the_problem_of_the_wrong_graph_points_into_it(code: Code) -> None:
    (problem,) = problems_of(explanation(code).wrong, strict=True)
    assert problem.span is not None


@of_a_text
def test_the_right_graph_yields_nothing_even_in_strict_mode(code: Code) -> None:
    assert codes_of(explanation(code).right, strict=True) == []


@of_binding
def test_the_right_graph_yields_nothing_when_it_is_bound_even_in_strict_mode(code: Code) -> None:
    assert bound_codes_of(explanation(code).right, strict=True) == []


@in_graph_source
def test_the_two_graphs_of_a_page_differ(code: Code) -> None:
    assert explanation(code).wrong != explanation(code).right


def test_what_a_graph_alone_shows_is_explained_with_graphs() -> None:
    from_elsewhere = {Code.BAD_JSON, Code.BAD_DOCUMENT, Code.BAD_SOURCE_FILE, Code.BAD_PROJECT} | OF_RUNNING
    of_graphs = {code for code in Code if code[:2] in ("E1", "E2", "E4", "E5", "E6", "W9")} - from_elsewhere
    assert set(written_in("oig")) == of_graphs | OF_BINDING


def test_what_only_a_step_shows_is_explained_with_python() -> None:
    assert set(written_in("python")) >= OF_RUNNING | {Code.BAD_VALUE, Code.LINK_TYPE, Code.SIZE_CONFLICT}
