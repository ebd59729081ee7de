"""Random graphs and programs on lavapipe: simulator and shaders agree, in results, failures and states.

``make test-vulkan`` runs many more of them.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.differential import batches as graphs
from tests.differential.batches import VULKAN, Failure
from tests.differential.programs import batches as programs
from tests.synth.vulkan.on_device import on_lavapipe

GRAPHS, PROGRAMS = range(2), range(3)


@pytest.fixture(autouse=True)
def _lavapipe(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_lavapipe().items():
        monkeypatch.setenv(name, value)


def _none(failures: Sequence[Failure], module: str) -> None:
    again = f"python -m tests.differential.{module} --vulkan --count 1 --seed"
    assert not failures, "\n\n".join(f"{again} {one.seed}\n{one.message}\n{one.text}" for one in failures[:2])


def test_random_graphs_agree_on_a_device(tmp_path: Path) -> None:
    _none(list(graphs.judge_batch(GRAPHS, VULKAN, tmp_path)), "fuzz")


def test_random_programs_agree_on_a_device(tmp_path: Path) -> None:
    _none(list(programs.judge_batch(PROGRAMS, VULKAN, tmp_path)), "program_fuzz")
