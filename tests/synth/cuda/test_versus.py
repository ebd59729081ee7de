"""What is measured beside PyTorch on a GPU, small and without one: programs and modules are there, and agree."""

import pytest
from bench.gpu.picture import COLOURS, picture
from bench.gpu.versus import joined, measured, summary
from tests.synth.cuda.emulator import on_emulator


def test_a_case_compares_measures_and_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_emulator().items():
        monkeypatch.setenv(name, value)
    found = measured("lstm", ["h200"], ["torch, eager"], is_dry=True)
    runs = found["runs"]
    assert runs["h200"]["agrees"]
    assert runs["h200"]["us"] > 0 < runs["torch, eager"]["us"]
    assert "WRONG" not in summary("lstm", found)
    drawn = picture({"cases": {"lstm": found, "other": {"failed": "it was lost"}}})
    assert drawn.count("<rect") == 1 + len(COLOURS) + 2


def test_a_result_that_is_wrong_is_marked() -> None:
    wrong = {"floor_us": 1.0, "runs": {"h200": {"us": 2.0, "agrees": False, "percent_of_ceiling": 50.0}}}
    assert "WRONG" in summary("lstm", wrong)
    assert "wrong" in picture({"cases": {"lstm": wrong}})


def test_ways_that_are_measured_later_join_the_others() -> None:
    first, second = {"runs": {"h200": {"us": 2.0}}}, {"runs": {"torch, eager": {"us": 3.0}}}
    assert joined(None, first) == first
    assert joined(first, second) == {"runs": {"h200": {"us": 2.0}, "torch, eager": {"us": 3.0}}}
    assert joined(first, {"failed": "lost"}) == first
    assert joined({"failed": "lost"}, first) == first
    assert joined(None, {"failed": "lost"}) == {"failed": "lost"}
