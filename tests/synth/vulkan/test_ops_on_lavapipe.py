"""Every op on every dtype on a Vulkan device that every machine has: Mesa's lavapipe, with the validation layers on."""

from pathlib import Path

import numpy as np
import pytest
from tests.synth.vulkan.on_device import Module, prepared, run_modules
from tests.synth.vulkan.suite import batches, cases, module_of, verdict_of

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS, Case
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.facts import Numerics

NAMES = sorted({record.name for record in OPS.values()})


@pytest.fixture(autouse=True)
def _unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lavapipe compiles every shader anew, which takes most of the time; ``make test-vulkan`` has it optimize."""
    monkeypatch.setenv("GALLIVM_PERF", "nopt")


@pytest.mark.parametrize("names", [*batches(NAMES)], ids="-".join)
def test_ops_on_all_their_dtypes(names: tuple[str, ...]) -> None:
    """They compute what they should, and no layer has anything to say; shaders are valid, fuse no sums and need no more
    than is known of them."""
    verdict = verdict_of(names, 1, validate=True)
    assert verdict.failures == []
    assert set(verdict.passed) == {(name, dtype.name) for name in names for dtype in OPS[name].dtypes}


def test_a_device_of_which_nothing_is_known_is_taken_to_be_inexact() -> None:
    """Quotients and roots of f32 go through f64, which this device computes exactly, too."""
    numerics = Numerics.of(DeviceArch.named("vulkan"))
    text = module_of(cases(OPS["div"], 1, numerics), numerics).text()
    assert "float(double(" in text
    verdict = verdict_of(
        ("div", "sqrt", "rsqrt", "softmax", "rms_norm", "erf", "log1p", "mish", "softplus"), 4, numerics=numerics
    )
    assert verdict.failures == []


def test_a_launch_with_more_arguments_than_fit_finds_them_in_memory(tmp_path: Path) -> None:
    arrays = tuple(np.array([number], np.int32) for number in range(20))
    case = Case(arrays, (DTYPES["i32"],) * 20, {"axis": 0})
    one = prepared(OPS["concat"], case, 0, DTYPES["i32"])
    assert "oi_argument_block more = oi_argument_block(arguments.at[" in one.job.codes[0].code.text
    (outcome,) = run_modules([Module([one.job])], tmp_path)
    assert outcome.damage == ""
    assert outcome.results[0].tolist() == list(range(20))


def test_threads_of_a_group_that_have_no_iteration_write_nothing(tmp_path: Path) -> None:
    """Bytes next to every buffer are watched."""
    array = np.arange(5, dtype=np.int32)
    one = prepared(OPS["add"], Case((array, array), (DTYPES["i32"],) * 2, {}), 0, DTYPES["i32"])
    (outcome,) = run_modules([Module([one.job])], tmp_path)
    assert outcome.damage == ""
    assert outcome.results[0].tolist() == [0, 2, 4, 6, 8]


def test_nothing_is_read_or_written_once_a_check_has_failed(tmp_path: Path) -> None:
    """The runner fills results with ones beforehand."""
    arrays = np.array([1, 2, 3], np.int32), np.array([0, 1 << 30], np.int32)
    case = Case(arrays, (DTYPES["i32"],) * 2, {"axis": 0})
    (outcome,) = run_modules([Module([prepared(OPS["gather"], case, 0, DTYPES["i32"]).job])], tmp_path)
    assert outcome.status == 1
    assert outcome.results[0].tolist() == [-1, -1]
