"""Every help line that names a change is a change that an editor can make, or is listed here with the reason.

The texts are those of ``tests/lang`` and ``tests/check``, and a few more. ``fixes.txt`` holds what becomes of their
lines; ``python -m tests.language_service.test_fixes`` writes it anew; read the difference before you commit it.
"""

from collections.abc import Iterator
from difflib import ndiff
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tests.language_service.help_lines import fits, help_lines
from tests.language_service.not_mechanical import NOT_MECHANICAL, UNCLEAR

from openinfer import ModelLoader
from openinfer.language_service import CodeFix, TextAnalysis, TextRange, analyse, code_fixes, edited
from openinfer.language_service.project import Surroundings, surroundings_of
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, UninitializedTensor, save_file

ANSWERS = Path(__file__).with_name("fixes.txt")
CORPORA = ("lang/habits", "lang/diagnostics", "check/diagnostics", "language_service/more_mistakes")


def corpus(name: str) -> dict[str, str]:
    """The sources of a file of cases, by their names."""
    text = Path(f"tests/{name}.txt").read_text(encoding="utf-8")
    parts = (case.partition("\n") for case in text.removeprefix("=== ").rstrip("\n").split("\n\n=== "))
    return {f"{name}: {title}": rest.partition("\n--->\n")[0] for title, _, rest in parts}


SOURCES = {title: source for name in CORPORA for title, source in corpus(name).items()}


@cache
def model() -> ModelLoader:
    tensors = {
        "weight": np.ones((16, 8), np.float32),
        "scale": np.float32(0.5),
        "empty": UninitializedTensor("f32", (4,)),
        **{f"W.{layer}": np.ones((16, 16), np.float32) for layer in range(3)},
        "W.3": np.ones((16, 8), np.float32),
        "bytes": TensorSpec(
            np.ones((4, 16), np.int8), "i8", quant=QuantParams("symmetric", QuantScale.per_channel(0, [1.0] * 4))
        ),
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.oinf"
        save_file(path, tensors, sizevars={"H": 8}, metadata={"heads": 8, "eps": 1e-5, "mode": "fast"})
        return ModelLoader.open(path)


@cache
def analysed(title: str) -> TextAnalysis:
    return checked(SOURCES[title], is_bound=title.startswith(("check", "language_service")))


def checked(source: str, *, is_bound: bool) -> TextAnalysis:
    given = surroundings_of("g.oig", source)
    sizes = {"B": 4, "D": 16} if is_bound else {}
    used = {name: value for name, value in sizes.items() if name in source}
    return analyse(source, "g.oig", Surroundings(sizes=used, problems=given.problems), model() if is_bound else None)


def fixes(title: str) -> list[CodeFix]:
    found = code_fixes(analysed(title), TextRange(0, len(SOURCES[title])))
    return [fix for fix in found if not fix.title.startswith("put the whole text")]


def changes(source: str, fix: CodeFix) -> str:
    """The lines that a fix takes away and those that it puts there."""
    lines = ndiff(source.splitlines(), edited(source, fix.edits).splitlines())
    return "\n".join([fix.title, *(line for line in lines if line[0] in "+-")])


def answers() -> dict[str, str]:
    return {title: "\n".join(changes(SOURCES[title], fix) for fix in fixes(title)) for title in SOURCES}


def expected() -> dict[str, str]:
    parts = ANSWERS.read_text(encoding="utf-8").removeprefix("=== ").rstrip("\n").split("\n\n=== ")
    return {title: rest for title, _, rest in (part.partition("\n") for part in parts)}


def given_help() -> Iterator[tuple[str, str, bool]]:
    """Each help line of the texts: where, what it says, and whether there is a change for it."""
    for title in SOURCES:
        mended = {id(fix.problem) for fix in fixes(title)}
        for problem in analysed(title).problems:
            if problem.help is not None:
                yield title, problem.help, id(problem) in mended


def test_fixes_change_these_lines() -> None:
    assert {title: text for title, text in answers().items() if text} == expected()


@pytest.mark.parametrize("title", [title for title in SOURCES if fixes(title)])
def test_the_first_fix_of_a_problem_takes_it_away(title: str) -> None:
    offered: dict[int, CodeFix] = {}
    for fix in fixes(title):
        offered.setdefault(id(fix.problem), fix)
    for fix in offered.values():
        after = checked(edited(SOURCES[title], fix.edits), is_bound=analysed(title).model is not None)
        same = [one for one in analysed(title).problems if one.message == fix.problem.message]
        left = [one for one in after.problems if one.message == fix.problem.message]
        assert len(left) < len(same), fix.title


def test_fixes_change_whole_words() -> None:
    source = "dynamic { x: f32; }\nblock entry { y_rleu = op rleu(x); return y_rleu; }\n"
    (first, *_) = code_fixes(checked(source, is_bound=False), TextRange(0, len(source)))
    assert edited(source, first.edits) == source.replace("op rleu", "op relu")


def test_help_without_a_change_says_nothing_that_could_be_made() -> None:
    without = [(title, said) for title, said, is_mended in given_help() if not is_mended]
    assert [one for one in without if not any(fits(line, one[1]) for line in (*NOT_MECHANICAL, *UNCLEAR))] == []


def test_every_help_line_of_the_sources_has_a_change_or_a_reason() -> None:
    mended = [said for _, said, is_mended in given_help() if is_mended]
    lines = help_lines() - NOT_MECHANICAL.keys()
    assert {line for line in lines if not any(fits(line, said) for said in mended)} == set()


def test_reasons_are_given_for_lines_that_there_are() -> None:
    assert NOT_MECHANICAL.keys() - help_lines() == set()


if __name__ == "__main__":
    found = [f"=== {title}\n{text}\n" for title, text in answers().items() if text]
    ANSWERS.write_text("\n".join(found), encoding="utf-8")
