"""Every documented snippet of the graph language means something: it parses in its frame, prints, and reads back."""

import json
import re
from pathlib import Path

import pytest
from tests.seeds.language.frames import ACCESSES, COMPLETE, FRAMES, HAND_OVERS, access_frame

from openinfer.errors import Code
from openinfer.ir import Graph
from openinfer.lang import graph, parse

SNIPPETS = Path(__file__).parent / "language"
OLD_SPELLINGS = {"002_03_constants": 1, "002_17_single_step": 1}
"""Snippets with a spelling that has been replaced since, and how often they have it."""

every_snippet = pytest.mark.parametrize("name", FRAMES)
every_access = pytest.mark.parametrize(("declarations", "access"), ACCESSES)


def snippet(name: str) -> str:
    return (SNIPPETS / f"{name}.oig.txt").read_text(encoding="utf-8")


def framed(name: str) -> str:
    return FRAMES[name].around(snippet(name))


def check_that_it_prints_and_reads_back(built: Graph) -> None:
    text = built.to_text()
    again = graph(text)
    assert again == built
    assert again.to_json() == built.to_json()
    assert again.to_text() == text
    assert Graph.from_json(json.dumps(built.to_json())).to_json() == built.to_json()


def test_every_snippet_has_a_frame_and_every_frame_a_snippet() -> None:
    assert sorted(path.name.removesuffix(".oig.txt") for path in SNIPPETS.glob("*.txt")) == sorted(FRAMES)


@every_snippet
def test_a_frame_has_a_reason_and_adds_something_unless_the_snippet_is_complete(name: str) -> None:
    frame = FRAMES[name]
    assert frame.reason
    assert bool(frame.before or frame.after) == (frame is not COMPLETE)


@every_snippet
def test_a_snippet_parses_in_its_frame(name: str) -> None:
    codes = [problem.code for problem in parse(framed(name)).problems]
    assert codes == [Code.OLD_SPELLING] * OLD_SPELLINGS.get(name, 0)


@every_snippet
def test_a_snippet_has_no_attributes_that_strict_mode_refuses(name: str) -> None:
    graph(framed(name), strict=True)


@every_snippet
def test_a_snippet_prints_and_reads_back(name: str) -> None:
    check_that_it_prints_and_reads_back(graph(framed(name)))


@every_snippet
def test_nothing_of_a_snippet_is_lost(name: str) -> None:
    """Each op, block, variable and attribute of the snippet is still there in the printed text."""
    source = re.sub(r"//[^\n]*", "", snippet(name))
    printed = graph(framed(name)).to_text()
    words = r"\bop \w+|\bblock (?!body)\w+|\bloop \w+|\bscope \"\w+\"|cache\.\w+|@\w+|\bbarrier|\bdep\b|\byield|\bawait"
    kept = [word for word in re.findall(words, source) if word not in printed]
    assert kept == []
    assert printed.count("op ") >= len(re.findall(r"\bop \w+\(", source))


@every_access
def test_a_documented_access_reads_and_reads_back(declarations: str, access: str) -> None:
    built = graph(access_frame(declarations, ACCESSES[declarations, access]).around(access), strict=True)
    check_that_it_prints_and_reads_back(built)
    assert f"cache.read {access.strip()} >> out;" in built.to_text()


def test_several_variables_are_yielded_and_awaited_at_once() -> None:
    handed_over, waited = HAND_OVERS
    built = graph(
        "dynamic { a: f32[B]; b: f32[B]; c: f32[B]; }"
        f"block entry {{ {handed_over} {waited} return; }}"
        "block b1 { await a; op relu(a) >> a; yield a; }"
        "block b2 { await b, c; op relu(b) >> b; op relu(c) >> c; yield b, c; }",
        strict=True,
    )
    check_that_it_prints_and_reads_back(built)
    assert handed_over in built.to_text()
    assert waited in built.to_text()
