"""The guarded tracker follows the body through broken readings, in the simulator and in C, and needs its guard."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from examples.guard.__main__ import unguarded
from examples.guard.example import BROKEN, READINGS, figures, guarded, readings, write_model

from openinfer import ModelLoader, Simulator


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ModelLoader]:
    write_model(tmp_path / "guard.oinf")
    with ModelLoader.open(tmp_path / "guard.oinf") as opened:
        yield opened


def test_the_simulator_and_c_agree() -> None:
    assert figures().agrees


def test_broken_readings_are_repaired_and_the_body_is_not_lost(model: ModelLoader) -> None:
    truth, measured = readings()
    executor = Simulator(model).make_executor(guarded())
    for at in range(READINGS):
        executor.insert(reading=measured[at])
        executor.run_step()
        assert executor.fetch("repairs") == sum(broken <= at for broken in BROKEN)
        assert abs(executor.fetch("state")[0] - truth[at]) < 2
    named = [event for event in executor.trace() if event["kind"] == "Branch"]
    assert [event["block_name"] for event in named] == ["entry"]


def test_without_its_guard_one_bad_reading_is_for_ever(model: ModelLoader) -> None:
    executor = Simulator(model).make_executor(unguarded())
    for reading in readings()[1]:
        executor.insert(reading=reading)
        executor.run_step()
    assert np.isnan(executor.fetch("state")).all()
