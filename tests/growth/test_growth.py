"""The work of every stage grows with the text, not with its square: counted, so a slow machine changes nothing.

Some stages may do a fixed number of things more before they are content with less (``docs/limits.md``). Here these
numbers are small: what they allow is no growth.
"""

from pathlib import Path

import pytest
from tests.growth.families import FAMILIES, WRONG
from tests.growth.work import everything, refusal

from openinfer.synth import liveness, planner

SIZES = (12, 24, 48)
MOST = 2.6
"""Twice the text may be so much more work; n log n is 2.3 here, n^2 is 4."""
SMALL = 1500
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
