"""Where extremes are: threads share a row, and find the same place as one thread after the other."""

import numpy as np
import pytest
from tests.synth.test_simt_schedule import checked, forms

from openinfer.dtypes import DTYPES, Array
from openinfer.loops.build import Builder, cast, load, pair, select, unary
from openinfer.loops.ir import Binary, Buffer, Const, If, Kernel, Local, LoopKind, ScalarVar, walk
from openinfer.ops import OPS, Call, TensorType, complete, infer
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.targets.simt.launches import Launches
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


def test_only_threads_that_have_an_extreme_look_for_its_place() -> None:
    record, x = OPS["argmin_axis"], rows_of("f32", 7, 100)
    params = complete(record, {"axis": 1})
    kernel = kernel_of(record, infer(record, Call((TensorType(DTYPES["f32"], x.shape),), params)), (DTYPES["f32"],))
    found = checked(kernel, [x], MACHINE)
    best = extreme_of(found)
    conditions = [one.cond for one in walk(found.launches[0].kernel.body) if isinstance(one, If)]
    assert sum(isinstance(one, Binary) and one.right == unary("isnan", best) for one in conditions) == 1


def extreme_of(found: Launches) -> ScalarVar:
    """The variable with the extreme of a row: the first that each thread has."""
    return next(one.var for one in walk(found.launches[0].kernel.body) if isinstance(one, Local))


@pytest.mark.parametrize("has_flag", [False, True])
def test_all_threads_look_for_nan_if_it_is_no_extreme(has_flag: bool) -> None:
    """An extreme that is changed between both loops, or that leaves NaN out, says nothing about the own elements."""
    x, y = Buffer("x", DTYPES["f32"], (3, 64)), Buffer("y", DTYPES["i32"], (3,))
    builder = Builder()
    with builder.loop(3, LoopKind.PARALLEL) as i:
        best, has_nan = builder.local(-np.inf, x.dtype), builder.local(0, DTYPES["i32"])
        with builder.loop(64) as j:
            value = builder.let(load(x, i, j))
            builder.assign(best, select(value > best, value, best))
        if has_flag:
            builder.assign(best, select(has_nan.eq(0), best - 1, best))
        place = builder.local(64, y.dtype)
        with builder.loop(64) as j:
            value = builder.let(load(x, i, j))
            here = value.eq(best) | unary("isnan", value)
            builder.assign(place, pair("min", place, select(here, cast(j, y.dtype), Const(64, y.dtype))))
        builder.store(y, (i,), place)
    values = rows_of("f32", 5, 64)[:3]
    values[0], values[2] = np.arange(64), values[2, ::-1]
    checked(Kernel("k", (x,), (y,), builder.body), [values], MACHINE)
