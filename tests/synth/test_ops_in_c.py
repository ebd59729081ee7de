"""Every op on every dtype in generated C against the simulator, on this machine's devices and under sanitizers.

``tests.synth.suite`` runs more cases, with more compilers, for more devices.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.everything import HAS_EVERYTHING
from tests.synth.flags import dealt
from tests.synth.in_c import judge, spread
from tests.synth.standalone import SANITIZERS, Toolchain, run_cases
from tests.synth.suite import RECORD, Run, verdict_on, work
from tests.synth.suite_cases import variants

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS, Case
from openinfer.ops.lower.operand import LOWERINGS
from openinfer.synth.targets.cpu.machine import GENERIC, PRESETS, host

FAMILIES = """
pow where popcount gelu softmax one_hot argmax_axis cumsum topk matmul conv_transpose1d max_pool layer_norm rope gather
scatter_nd pad rfft cast quantize
"""
SAMPLE = FAMILIES.split()
"""Ops of every family for the sanitizers, which take long to compile; ``make test-c`` takes all."""
PICKED = ("f16", "f32", "i4", "u8", "i64", "bool")
PLACES = np.array([2**31 + 1, 2**46 - 1, 2**53 - 1, -(2**63)])
TINY = np.arange(1, 25).reshape(3, 8) * 5e-324
FAR = {
    "angles of many turns": ("rope", (np.linspace(-4, 4, 32).reshape(4, 8).astype(np.float32), PLACES), {}),
    "and in f64": ("rope", (np.linspace(-4, 4, 32).reshape(4, 8), PLACES), {}),
    "next to 0": ("rms_norm", (TINY, np.linspace(1, 3, 8)), {"eps": 0.5}),
    "next to 0, by channel": ("batch_norm", (TINY, *np.outer([1.7, 0, 0, 3], np.ones(8))), {"eps": 0.5}),
    "next to the largest": ("stft", (np.array([1, 1.7e308, 2, -3, 5]), np.full(5, 3.5)), {"frame": 5, "hop": 5}),
}
"""What random graphs came upon, and the cases of the ops do not have."""


STEP = 1 if HAS_EVERYTHING else 6
"""Each op has every sixth of its dtypes in the normal run, whose random graphs have it with all of them."""
VECTORS = tuple(target for target in (host(),) if target != GENERIC)
"""What this machine has, if they are worth their own code."""


@pytest.mark.parametrize("name", sorted(LOWERINGS))
def test_generated_c_agrees_with_the_simulator_with_and_without_vectors(name: str) -> None:
    dtypes = frozenset(dtype.name for dtype in spread(OPS[name], STEP))
    verdict = verdict_on(Run(GENERIC, Toolchain("gcc", ("-O0", *host().flags)), 1, VECTORS, dtypes=dtypes), name)
    assert verdict.failures == []
    assert {dtype for _, dtype in verdict.passed} == dtypes


@pytest.mark.parametrize(("name", "cc"), dealt(SAMPLE))
def test_sanitizers_find_nothing_in_kernels(name: str, cc: str) -> None:
    dtypes = [dtype.name for dtype in OPS[name].dtypes if dtype.name in PICKED]
    verdict = work(Run(GENERIC, Toolchain(cc, ("-O0", *SANITIZERS)), 1), name, dtypes)
    assert verdict.failures == []
    assert verdict.passed


@pytest.mark.parametrize(("name", "arrays", "params"), FAR.values(), ids=FAR)
def test_numbers_that_are_far_off(name: str, arrays: tuple[Any, ...], params: dict[str, Any], tmp_path: Path) -> None:
    dtypes = tuple(DTYPES[f"{array.dtype.kind}{8 * array.itemsize}"] for array in arrays)
    cases = list(variants(OPS[name], Case(arrays, dtypes, params), 0, (host(),)))
    outcomes = run_cases(cases, Toolchain("gcc", ("-O1", *host().flags)), tmp_path)
    for one, outcome in zip(cases, outcomes, strict=True):
        judge(one, outcome.results, outcome.status)


def test_the_record_of_the_suite_has_every_op_and_dtype() -> None:
    """A new op or dtype is on the page of ops when the suites have run: ``make test-devices``, ``make test-vhdl``."""
    tested = json.loads(RECORD.read_text("ascii"))
    assert sorted(tested) == sorted([*PRESETS, "lavapipe", "vhdl"])
    circuits = tested.pop("vhdl")["ops"]  # of integers, and with those that are refused
    noted = {(name, dtype) for name, counts in circuits.items() for dtype in counts}
    assert noted == {(one.name, dtype.name) for one in OPS.values() for dtype in one.dtypes if dtype.kind != "float"}
    wanted = {(record.name, dtype.name) for record in OPS.values() for dtype in record.dtypes}
    for isa, facts in tested.items():
        passed = {(name, dtype) for name, counts in facts["ops"].items() for dtype, count in counts.items() if count}
        assert passed == wanted, isa
