"""Statistics are those of NumPy, whatever the size and the dtype, without holding the tensor."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import openinfer.oinf.statistics as module
from openinfer import DTYPES, Tensor
from openinfer.oinf.statistics import statistics


def assert_like_numpy(array: npt.NDArray[Any]) -> None:
    found = statistics(Tensor.from_numpy(array))
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    assert found.finite == finite.size
    assert found.nan == np.isnan(wide).sum()
    assert found.infinite == np.isinf(wide).sum()
    if finite.size == 0:
        assert found.minimum is found.median is None
        return
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    assert found.median == pytest.approx(np.median(finite), rel=1e-12, abs=0)
    with np.errstate(over="ignore"):
        assert found.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-9 * np.abs(finite).max())
    assert sum(bar.count for bar in found.histogram) == finite.size


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few thousand elements take the path of a huge tensor."""
    monkeypatch.setattr(module, "PIECE", 100)
    monkeypatch.setattr(module, "_SORTABLE", 8)
    monkeypatch.setattr(module, "_BINS", 16)
    monkeypatch.setattr(module.pieces, "__defaults__", (100,))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "f8", "i8", "u64", "i4", "t2", "bool"])
@pytest.mark.parametrize("size", [1, 2, 99, 100, 101, 1000, 3001])
@pytest.mark.usefixtures("small_pieces")
def test_every_size_and_dtype(dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    low, high = max(DTYPES[dtype].minimum, -1000), min(DTYPES[dtype].maximum, 1000)
    values = rng.integers(int(low), int(high) + 1, size)
    assert_like_numpy(Tensor.from_numpy(values, dtype).to_numpy())


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("spread", [1e-300, 1.0, 1e270])
def test_clustered_values_have_an_exact_median(spread: float) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([np.exp(rng.normal(size=2000) * 20), np.full(500, 3.0), -rng.random(777)]) * spread
    assert_like_numpy(values)


@settings(max_examples=100, deadline=None)
@given(array=hnp.arrays(np.float32, st.integers(0, 300), elements=st.floats(width=32)))
def test_any_f32_values_including_nan_and_infinity(array: npt.NDArray[np.float32]) -> None:
    assert_like_numpy(array)


def test_the_end_of_the_f64_range_does_not_overflow() -> None:
    largest = np.finfo(np.float64).max
    found = statistics(Tensor.from_numpy(np.array([-largest, largest, largest, 0.0])))
    assert (found.minimum, found.maximum, found.median) == (-largest, largest, largest / 2)


def test_integer_extremes_are_exact() -> None:
    found = statistics(Tensor.from_numpy(np.array([2**64 - 1, 2**64 - 2], np.uint64)))
    assert (found.minimum, found.maximum) == (2**64 - 2, 2**64 - 1)


def test_few_integers_get_a_bar_each() -> None:
    found = statistics(Tensor.from_numpy(np.array([1, -1, 1, 0]), "t2"))
    assert [(bar.low, bar.high, bar.count) for bar in found.histogram] == [(-1, -1, 1), (0, 0, 1), (1, 1, 2)]


def test_progress_counts_every_element_once() -> None:
    seen: list[int] = []
    statistics(Tensor.from_numpy(np.zeros(3_000_000, ml_dtypes.bfloat16)), seen.append)
    assert list(itertools.accumulate(seen))[-1] == 3_000_000
    assert len(seen) > 1
