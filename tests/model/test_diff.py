"""What a comparison of two models says about their tensors."""

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openinfer import Code, ModelLoader, OpenInferError
from openinfer.oinf import QuantParams, QuantScale, TensorSpec, save_file
from openinfer.oinf.diff import FileDifference, diff


def differences(folder: Path, left: Any, right: Any, names: list[str] | None = None) -> list[FileDifference]:
    for file, value in (("a.oinf", left), ("b.oinf", right)):
        save_file(folder / file, value if isinstance(value, dict) else {"w": value})
    with ModelLoader.open(folder / "a.oinf") as a, ModelLoader.open(folder / "b.oinf") as b:
        return diff(a, b, names)


@pytest.mark.parametrize(
    ("dtype", "left", "right", "changed", "largest"),
    [
        ("i64", [2**62 + 1, 5], [2**62, 5], 1, 1),
        ("i64", [-(2**63), 0], [2**63 - 1, 0], 1, 2**64 - 1),
        ("u64", [2**64 - 1, 2**63], [2**64 - 2, 2**63 + 3], 2, 3),
        ("i8", [-128, 1], [127, 1], 1, 255),
        ("i4", [-8, 1], [7, 1], 1, 15),
        ("bool", [True, False], [False, False], 1, 1),
    ],
)
def test_integers_are_compared_exactly(
    tmp_path: Path, dtype: str, left: list[int], right: list[int], changed: int, largest: int
) -> None:
    (found,) = differences(tmp_path, TensorSpec(left, dtype), TensorSpec(right, dtype))
    assert found.loss is not None
    assert (found.changed, found.loss.largest) == (changed, largest)
    assert f"{changed} of 2 values differ, by at most {largest}, rms" in found.line()


def test_quantized_integers_are_counted_as_stored_and_measured_as_they_read(tmp_path: Path) -> None:
    quant = QuantParams("symmetric", QuantScale.per_channel(1, [0.5, 0.25]))
    left = TensorSpec([[2**62 + 1, 1], [0, 0]], "i64", quant=quant)
    right = TensorSpec([[2**62, 1], [0, 8]], "i64", quant=quant)
    (found,) = differences(tmp_path, left, right)
    assert found.loss is not None
    assert (found.changed, found.loss.largest) == (2, 2.0)


@pytest.mark.parametrize(("left", "right"), [(inf, -inf), (np.nan, 1.0), (1.0, np.nan), (inf, 1.0)])
def test_what_is_not_finite_differs_infinitely_from_all_else(tmp_path: Path, left: float, right: float) -> None:
    (found,) = differences(tmp_path, np.array([left, 0], np.float32), np.array([right, 0], np.float32))
    assert found.detail == "1 of 2 values differ, by at most inf, rms inf"
    assert (found.facts()["max_error"], found.facts()["rms_error"]) == ("inf", "inf")


def test_values_that_are_equal_in_other_bits_say_so(tmp_path: Path) -> None:
    (found,) = differences(tmp_path, np.array([0.0, 1], np.float32), np.array([-0.0, 1], np.float32))
    assert (found.changed, found.detail) == (0, "only bits differ")


def test_named_tensors_alone_are_compared(tmp_path: Path) -> None:
    left, right = {"v": np.zeros(1), "w": np.zeros(1)}, {"v": np.ones(1), "w": np.ones(1), "x": np.ones(1)}
    assert [found.name for found in differences(tmp_path, left, right, ["x", "v"])] == ["v", "x"]
    with pytest.raises(OpenInferError) as caught:
        differences(tmp_path, left, right, ["y"])
    assert caught.value.code == Code.NO_SUCH_ENTRY
