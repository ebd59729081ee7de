"""The work of every stage grows with the text, not with its square: counted, so a slow machine changes nothing.

Some stages may do a fixed number of things more before they are content with less (``docs/language.md``, Limits). Here
these numbers are small: what they allow is no growth.
"""

from pathlib import Path

import pytest
from tests.growth.families import FAMILIES, WRONG
from tests.growth.work import everything, refusal

from openinfer.check import bind
from openinfer.errors import Code, GraphError
from openinfer.lang import graph
from openinfer.synth.lower.graph import lowered
from openinfer.synth.memory import arena as planner
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.program import liveness

SIZES = (8, 16, 32)
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


@pytest.mark.parametrize("name", FAMILIES)
def test_a_graph_of_twice_the_size_is_about_twice_the_work(name: str, tmp_path: Path) -> None:
    everything(FAMILIES[name], 2, tmp_path)  # what is computed once for all graphs is known then
    assert not too_much([everything(FAMILIES[name], size, tmp_path) for size in SIZES])


@pytest.mark.parametrize("name", WRONG)
def test_twice_as_many_mistakes_are_about_twice_the_work(name: str) -> None:
    refusal(WRONG[name], 2)
    assert not too_much([refusal(WRONG[name], 4 * size) for size in SIZES])


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
