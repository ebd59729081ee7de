"""Random graphs and programs with CUDA, on the emulator of the tests: generated hosts and kernels as they are.

``python -m tests.differential.fuzz --cuda`` runs many of them on a GPU.
"""

from pathlib import Path

import pytest
from tests.differential import batches as graphs
from tests.differential.batches import CUDA
from tests.differential.programs import batches as programs
from tests.synth.cuda.emulator import on_emulator


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in on_emulator().items():
        monkeypatch.setenv(name, value)


def test_random_graphs_agree_with_cuda(tmp_path: Path) -> None:
    assert list(graphs.judge_batch(range(2), CUDA, tmp_path)) == []


def test_random_programs_agree_with_cuda(tmp_path: Path) -> None:
    assert list(programs.judge_batch(range(3), CUDA, tmp_path)) == []
