"""Weights of 16 bits beside activations of 32 are converted where a contraction reads them: there is no wide copy."""

from math import prod
from pathlib import Path

import numpy as np
import pytest
from tests.synth.flags import USUAL
from tests.synth.half_weights import WEIGHTS, half_model

from openinfer import DeviceArch, Divide, Passes, Synthesizer, graph
from openinfer.synth.devices.isa import runnable
from openinfer.synth.passes.fuse.relayout import widens_weight
from openinfer.synth.program.ir import KernelStep

DEVICES = ("generic", "x86-avx2", "x86-avx512", "aarch64-neon", "cortex-m4")
HERE = [name for name in DEVICES if DeviceArch.named(name).cpu.isa in {isa.name for isa in runnable()}]
LARGE = {name for name, shape in WEIGHTS.items() if prod(shape) > 1000}


@pytest.mark.parametrize("device", DEVICES)
def test_neither_the_arena_nor_the_weights_have_a_wide_copy(tmp_path: Path, device: str) -> None:
    small = half_model("bf16")
    with small.saved(tmp_path) as model:
        plan = Synthesizer(device).synthesize(model, graph(small.text))
        facts = plan.facts()
    stored = {one["tensor"]: one["dtype"] for one in facts["weights"]}
    assert {name: stored[name] for name in LARGE} == dict.fromkeys(LARGE, "bf16")
    calls = [step for step in plan.placed.program.steps() if isinstance(step, KernelStep)]
    assert not any(map(widens_weight, calls))
    scratch = [prod(map(int, value.shape)) for step in calls for value in step.scratch if "pack" in value.name]
    # What a tile of rows takes, and copies of activations.
    assert max(scratch, default=0) < prod(WEIGHTS["long_w"]) // 4


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("device", HERE)
def test_results_are_those_of_the_simulator(tmp_path: Path, device: str, dtype: str) -> None:
    small = half_model(dtype)
    with small.saved(tmp_path) as model:
        (step,) = small.golden(model)
        passes = Passes(divide=Divide(threads=2 if dtype == "f16" else 1))
        built = Synthesizer(device, passes=passes).synthesize(model, graph(small.text)).build(flags=USUAL)
        built.insert(step.inputs)
        built.run_step()
        for name, wanted in step.outputs.items():
            assert np.abs(built.fetch(name) - wanted).max() <= 1e-5 * np.abs(wanted).max(), name
