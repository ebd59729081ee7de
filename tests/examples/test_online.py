"""The adaptive filter learns two rooms one after the other, in the simulator and in C, and can be resumed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from examples.online.example import MOVED, canceller, figures, rooms, signals, write_model

from openinfer import ModelLoader, Simulator, Synthesizer


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ModelLoader]:
    write_model(tmp_path / "online.oinf")
    with ModelLoader.open(tmp_path / "online.oinf") as opened:
        yield opened


def test_the_simulator_and_c_agree() -> None:
    assert figures().agrees


def test_both_rooms_are_learned_and_the_model_stays_as_it_was(model: ModelLoader) -> None:
    module = Synthesizer().synthesize(model, canceller()).build()
    left = []
    for at, (played, heard) in enumerate(zip(*signals(), strict=True)):
        if at == MOVED:
            assert np.abs(module.fetch("weights") - rooms()[0]).max() < 0.02
        module.insert(loudspeaker=played, microphone=heard)
        module.run_step()
        left.append(abs(float(module.fetch("rest"))))
    assert np.abs(module.fetch("weights") - rooms()[1]).max() < 0.02
    assert np.mean(left[:50]) > 20 * np.mean(left[MOVED - 50 : MOVED])
    assert np.mean(left[MOVED : MOVED + 50]) > 20 * np.mean(left[-50:])
    module.reset()
    assert not module.fetch("weights").any()
    assert not model.load("weights").to_numpy().any()


def test_what_c_has_learned_the_simulator_goes_on_with(model: ModelLoader) -> None:
    steps = [{"loudspeaker": one, "microphone": other} for one, other in zip(*signals(), strict=True)][:300]
    module = Synthesizer().synthesize(model, canceller()).build()
    executor = Simulator(model).make_executor(canceller())
    for inputs in steps[:200]:
        module.insert(inputs)
        module.run_step()
    executor.load_state(module.save_state() or b"")
    for inputs in steps[200:]:
        for machine in (module, executor):
            machine.insert(inputs)
            machine.run_step()
    np.testing.assert_allclose(executor.fetch("weights"), module.fetch("weights"), atol=1e-5)
