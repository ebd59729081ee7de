"""The mixture of experts: the gate asks one expert, that one alone runs, and waves come out cleaner."""

from collections.abc import Iterator

import numpy as np
import pytest
from examples.experts.example import KINDS, figures, mixture, waves, write_model

from openinfer import ModelLoader, Simulator


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelLoader]:
    path = tmp_path_factory.mktemp("experts") / "experts.oinf"
    write_model(path)
    with ModelLoader.open(path) as opened:
        yield opened


def test_the_simulator_and_c_agree() -> None:
    assert figures().agrees


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [
        ("sine", ["entry", "sine_expert"]),
        ("square", ["entry", "others", "square_expert"]),
        ("sawtooth", ["entry", "others", "sawtooth_expert"]),
    ],
)
def test_only_the_expert_that_the_gate_names_runs(kind: str, blocks: list[str], model: ModelLoader) -> None:
    executor = Simulator(model).make_executor(mixture())
    executor.insert(x=waves(kind, 1, np.random.default_rng(2))[1][0])
    executor.run_step()
    assert list(dict.fromkeys(event.block_name for event in executor.events)) == blocks
    assert executor.fetch("calls").tolist() == [0] * KINDS.index(kind) + [1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_gate_is_mostly_right_and_experts_remove_most_of_the_noise(kind: str, model: ModelLoader) -> None:
    executor = Simulator(model).with_trace("off").make_executor(mixture())
    right, before, after = 0, 0.0, 0.0
    for clean, noisy in zip(*waves(kind, 60, np.random.default_rng(3)), strict=True):
        executor.insert(x=noisy)
        executor.run_step()
        right += int(executor.fetch("choice") == KINDS.index(kind))
        before += float(np.mean((noisy - clean) ** 2))
        after += float(np.mean((executor.fetch("y") - clean) ** 2))
    assert right >= 51
    assert after < before / 2
