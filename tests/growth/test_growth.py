"""The work of every stage grows with the text, not with its square: counted, so a slow machine changes nothing.

Some stages may do a fixed number of things more before they are content with less (``docs/language.md``, Limits). Here
these numbers are small: what they allow is no growth.
"""

import tracemalloc
from importlib import import_module
from pathlib import Path

import pytest
from tests.everything import some
from tests.growth.families import FAMILIES, WRONG, graph_of, joined_sizes, many, sum_of_sizes
from tests.growth.work import everything, refusal

from openinfer.check import bind, check
from openinfer.errors import Code, GraphError
from openinfer.lang import graph
from openinfer.loops.dim import at
from openinfer.ops import Call, OpRecord, infer
from openinfer.synth.lower import op_sizes
from openinfer.synth.lower.graph import lowered
from openinfer.synth.memory import arena as planner
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.program import liveness

checking = import_module("openinfer.check.bind")
SIZES = (4, 8, 16)
MOST = 2.6
"""Twice the text may be so much more work; n log n is 2.3 here, n^2 is 4."""
SMALL = 1000
"""Calls that may be something else than growth."""


@pytest.fixture(autouse=True)
def _small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "_ALWAYS_CALLED", 0)
    monkeypatch.setattr(liveness, "_MOST_CALLED", 1)
    monkeypatch.setattr(planner, "GREEDY_STEPS", 0)
    monkeypatch.setattr(planner, "SEARCH_STEPS", 0)
    monkeypatch.setattr(planner, "MOST_MEETINGS", 8)


def too_much(works: list[dict[str, int]]) -> dict[str, list[int]]:
    """The stages whose work grows too fast; what is done for every graph does not count."""
    return {
        stage: [work[stage] for work in works]
        for stage in works[0]
        if works[2][stage] - works[1][stage] > MOST * (works[1][stage] - works[0][stage]) + SMALL
    }


@pytest.mark.parametrize("name", some(FAMILIES, 3))
def test_a_graph_of_twice_the_size_is_about_twice_the_work(name: str, tmp_path: Path) -> None:
    everything(FAMILIES[name], 2, tmp_path)  # what is computed once for all graphs is known then
    assert not too_much([everything(FAMILIES[name], size, tmp_path) for size in SIZES])


@pytest.mark.parametrize("name", WRONG)
def test_twice_as_many_mistakes_are_about_twice_the_work(name: str) -> None:
    refusal(WRONG[name], 2)
    assert not too_much([refusal(WRONG[name], 4 * size) for size in SIZES])


@pytest.mark.parametrize(
    "name", ["blocks called twice, with variables of their own", "many consumers that call one block"]
)
def test_what_blocks_touch_through_others_takes_no_memory_of_its_own(name: str) -> None:
    least, middle, most = (memory_of(FAMILIES[name].text(size)) for size in (50, 100, 200))
    assert most - middle < MOST * (middle - least)


def memory_of(text: str) -> int:
    """How much memory a graph is checked with."""
    parsed = graph(text)
    bind(parsed)
    tracemalloc.start()
    bound = bind(parsed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert bound.graph is parsed
    return peak


def test_blocks_and_variables_can_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = graph(chain(9).replace("block entry {", "volatile { x: f32; y: f32; } block entry { transfer x >> y; "))
    monkeypatch.setattr(checking, "MOST_REACHED", 20)
    bind(parsed)
    monkeypatch.setattr(checking, "MOST_REACHED", 19)
    with pytest.raises(GraphError) as caught:
        bind(parsed)
    assert caught.value.code is Code.OUT_OF_MEMORY
    assert "10 blocks with 2 variables" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].span is not None


def test_no_more_than_a_hundred_races_are_reported() -> None:
    touching = "op relu(z) >> z; " * 150
    text = graph_of(
        f"yield x; {touching} await x;", "volatile { z: f32[8]; }", "block c { await x; op exp(z) >> z; yield x; }"
    )
    found = check(graph(text)).problems
    assert [problem.code for problem in found] == [Code.RACE] * 100


def test_the_shape_rule_of_an_op_is_asked_as_often_whatever_its_sizes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents over many sizes are long, so that the work of one answer grows; the number of answers must not."""
    answers = 0

    def counted(record: OpRecord, call: Call) -> Call:
        nonlocal answers
        answers += 1
        return infer(record, call)

    monkeypatch.setattr(op_sizes, "infer", counted)
    found = []
    for size in SIZES:
        lowered(bind(graph(joined_sizes(size))))
        found.append(answers)
        answers = 0
    assert found[2] - found[1] < MOST * (found[1] - found[0])
    assert found[0] > SIZES[0]


SLICES = "sizes { T <= 64; } dynamic { x: f32[T]; } block entry { h0 = op relu(x); # return h; }"


@pytest.mark.parametrize("cut", ["starts=[1], ends=[-1]", "starts=[0], ends=[99], steps=[2]"])
def test_an_extent_that_nothing_makes_shorter_is_refused_where_it_gets_too_long(cut: str) -> None:
    cuts = many(f"h$ = op slice(h#, {cut}); ", 40)
    parsed = graph(SLICES.replace("#", f"{cuts} h = op relu(h40);"))
    with pytest.raises(GraphError) as caught:
        bind(parsed)
    assert caught.value.code is Code.TOO_DEEP
    assert "more than 50,000 parts" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].span is not None


def test_a_long_extent_is_brought_together_where_that_is_possible() -> None:
    pads = many("p$ = op pad(p#, pads=[1, 0]); ", 300)
    parsed = graph(SLICES.replace("#", f"p0 = op relu(x); {pads} h = op relu(p300);"))
    extent = bind(parsed).vars["h"].shape[0]
    assert at(extent, {"T": 5}) == 305
    assert len(str(extent)) < 200


@pytest.mark.parametrize("terms", [181, 199])
def test_an_extent_of_too_many_sizes_is_refused_by_synthesis_where_it_is_declared(terms: int) -> None:
    parsed = graph(sum_of_sizes(terms + 1))
    with pytest.raises(GraphError) as caught:
        lowered(bind(parsed))
    assert caught.value.code in (Code.NOT_SYNTHESIZED, Code.TOO_DEEP)
    assert caught.value.diagnostics[0].span is not None


def chain(count: int) -> str:
    blocks = "".join(f"block b{at} {{ branch b{at + 1}; return; }} " for at in range(count - 1))
    return f"{blocks} block b{count - 1} {{ return; }} block entry {{ branch b0; return; }}"


def test_blocks_that_call_each_other_two_hundred_deep_are_the_most_that_is_synthesized() -> None:
    assert len(lowered(bind(graph(chain(200)))).blocks) == 201
    bound = bind(graph(chain(201)))
    with pytest.raises(GraphError) as caught:
        lowered(bound)
    assert caught.value.code is Code.NOT_SYNTHESIZED
    assert "more than 200 deep" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].span is not None


def test_as_many_nested_loops_as_there_may_be_are_synthesized() -> None:
    deepest = FAMILIES["nested loops"].text(190)
    assert "for (int64_t" in Synthesizer("generic").synthesize(None, graph(deepest)).project.code()["src/model.c"]
