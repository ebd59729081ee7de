"""Where extremes are: threads share a row, and find the same place as one thread after the other."""

import numpy as np
import pytest
from tests.synth.test_simt_schedule import checked, forms

from openinfer.dtypes import DTYPES, Array
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.machine import SimtMachine

MACHINE = SimtMachine(group=16, subgroup=4, kept_elements=8, largest_group=16)


def rows_of(dtype: str, rows: int, length: int) -> Array:
    """Rows with ties, and with infinities, zeros of both signs and NaN if there are such numbers."""
    rng = np.random.default_rng(length)
    x = rng.integers(-3 if DTYPES[dtype].kind != "uint" else 0, 4, (rows, length)).astype(DTYPES[dtype].array)
    if DTYPES[dtype].kind == "float":
        x[0] = -np.inf
        x[1] = np.where(rng.random(length) < 0.5, -0.0, 0.0)
        x[2, length // 2 :: 5] = np.nan
        x[3, -1] = np.inf
        x[4] = np.nan
    return x


@pytest.mark.parametrize("length", [37, 100])
@pytest.mark.parametrize("select_first", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8"])
@pytest.mark.parametrize("name", ["argmax_axis", "argmin_axis"])
def test_threads_find_the_place_of_an_extreme(name: str, dtype: str, select_first: bool, length: int) -> None:
    record, kind, x = OPS[name], DTYPES[dtype], rows_of(dtype, 7, length)
    params = complete(record, {"axis": 1, "select_first": select_first})
    kernel = kernel_of(record, infer(record, Call((TensorType(kind, x.shape),), params)), (kind,))
    assert forms(checked(kernel, [x], MACHINE)) == ["rows"]


def test_a_whole_array_is_searched_at_once() -> None:
    record, x = OPS["argmin_axis"], rows_of("f32", 5, 48)
    x[np.isnan(x)] = 3
    call = infer(record, Call((TensorType(DTYPES["f32"], x.shape),), complete(record, {})))
    assert forms(checked(kernel_of(record, call, (DTYPES["f32"],)), [x], MACHINE)) == ["rows"]


def test_truth_values_have_no_maximum_of_their_own() -> None:
    record, x = OPS["argmax_axis"], np.random.default_rng(1).random((3, 64)) < 0.1
    call = infer(record, Call((TensorType(DTYPES["bool"], x.shape),), complete(record, {"axis": 1})))
    assert forms(checked(kernel_of(record, call, (DTYPES["bool"],)), [x], MACHINE)) == ["threads"]


def test_places_in_short_rows_have_a_thread_each() -> None:
    record, x = OPS["argmax_axis"], rows_of("f32", 7, 12)
    call = infer(record, Call((TensorType(DTYPES["f32"], x.shape),), complete(record, {"axis": 1})))
    assert forms(checked(kernel_of(record, call, (DTYPES["f32"],)), [x], MACHINE)) == ["threads"]
