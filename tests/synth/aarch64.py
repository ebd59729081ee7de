"""Whole projects as 64-bit Arm programs in QEMU: ``make test-aarch64`` installs what this needs."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.synth.half_weights import half_model
from tests.synth.small_models import SMALL_MODELS
from tests.synth.test_convolutions_in_c import LAYERS, saved, text
from tests.synth.test_project import RICH, golden, inputs, model

from openinfer import ModelLoader, Simulator, graph
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.targets.project import Golden, Weights

__all__ = ["model"]  # a fixture
LEVELS = ("-O0", "-O3")
DEVICES = ("aarch64-neon", "generic")


def passes(plan: Plan, steps: list[Golden], level: str, folder: Path) -> None:
    plan.emit(folder, steps)
    tools = ["CC=aarch64-linux-gnu-gcc", "AR=aarch64-linux-gnu-ar", "RUN=qemu-aarch64"]
    flags = f"CFLAGS={level} -static -Wall -Wextra -Werror"
    command = ["make", "-s", *tools, flags, "selftest", "example"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    values = sum(array.size for step in steps for array in step.outputs.values())
    found = re.match(r"(\d+) of \1 values are right\n", ended.stdout)
    # The sizes of outputs are checked as well.
    assert found is not None, ended.stdout + ended.stderr[:3000]
    assert int(found[1]) >= values
    assert ended.returncode == 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_the_self_test_of_a_model_passes(name: str, device: str, level: str, tmp_path: Path) -> None:
    small = SMALL_MODELS[name]
    loader = small.saved(tmp_path)
    plan = Synthesizer(device, name=name).synthesize(loader, graph(small.text))
    passes(plan, small.golden(loader), level, tmp_path)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("device", DEVICES)
def test_the_self_test_with_weights_of_16_bits_passes(dtype: str, device: str, tmp_path: Path) -> None:
    small = half_model(dtype)
    loader = small.saved(tmp_path)
    plan = Synthesizer(device, name="half").synthesize(loader, graph(small.text))
    passes(plan, small.golden(loader), "-O2", tmp_path)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("device", DEVICES)
def test_the_self_test_of_convolutions_passes(device: str, level: str, tmp_path: Path) -> None:
    path, given = saved(tmp_path)
    with ModelLoader.open(path) as loader:
        own = graph(text())
        executor = Simulator(loader).make_executor(own)
        executor.insert(given)
        executor.step()
        names = [f"{kind}{number}" for number in range(len(LAYERS)) for kind in "ym"]
        steps = [Golden(given, {name: executor.fetch(name) for name in names})]
        passes(Synthesizer(device, name="layers").synthesize(loader, own), steps, level, tmp_path)


def test_make_by_itself_runs_the_self_test_in_the_emulator(tmp_path: Path) -> None:
    small = SMALL_MODELS["mlp"]
    loader = small.saved(tmp_path)
    steps = small.golden(loader)
    Synthesizer("aarch64-neon", name="mlp").synthesize(loader, graph(small.text)).emit(tmp_path, steps)
    ended = subprocess.run(["make", "-s", "selftest"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, "values are right" in ended.stdout) == (0, True), ended.stdout + ended.stderr


@pytest.mark.parametrize("weights", ["file", "array", "incbin"])
@pytest.mark.parametrize("device", DEVICES)
def test_everything_a_graph_can_have_passes(device: str, weights: Weights, tmp_path: Path, model: ModelLoader) -> None:
    plan = Synthesizer(device, name="net", weights=weights).synthesize(model, graph(RICH))
    passes(plan, golden(RICH, model, inputs()), "-O2", tmp_path)
