"""What a cast loses is measured, and a value that no longer is a number is never passed over."""

import json
import subprocess
import sys
from math import inf
from pathlib import Path

import numpy as np
import pytest

from openinfer.oinf.pack import PackOptions, pack
from openinfer.oinf.quantize import Loss


@pytest.mark.parametrize(
    ("original", "stored", "largest"),
    [
        ([1.0, 1e30], [1.0, inf], inf),
        ([1.0, 2.0], [1.0, np.nan], inf),
        ([inf, 2.0], [-inf, 2.0], inf),
        ([np.nan, 2.0], [0.0, 2.0], inf),
        ([inf, -inf, np.nan, 2.0], [inf, -inf, np.nan, 2.5], 0.5),
        ([1e308], [-1e308], inf),
    ],
)
def test_only_the_same_infinity_or_nan_is_no_loss(original: list[float], stored: list[float], largest: float) -> None:
    loss = Loss()
    loss.add(np.array(original), np.array(stored))
    assert loss.largest == largest
    assert (loss.rms == inf) == (largest == inf)
    assert (loss.snr_db == -inf) == (largest == inf)


def test_an_overflowing_cast_shows_in_the_report_the_table_and_valid_json(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", w=np.array([1.0, 1e6], np.float32))
    report = pack([tmp_path / "w.npz"], tmp_path / "o.oinf", PackOptions(cast=["w=f16"]))
    assert report.tensors[0].loss is not None
    assert report.tensors[0].loss.largest == inf
    target = str(tmp_path / "o.oinf")
    command = [sys.executable, "-m", "openinfer", "pack", str(tmp_path / "w.npz"), "-o", target, "--cast", "w=f16"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert table[1].split()[-3:] == ["inf", "inf", "-inf"]
    assert table[-1].startswith(f"{target}: 1 tensor, ")
    text = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout
    (facts,) = json.loads(text, parse_constant=pytest.fail)["tensors"]
    assert (facts["max_error"], facts["rms_error"], facts["snr_db"]) == ("inf", "inf", "-inf")
