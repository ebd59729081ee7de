"""Kernels that no op has, on lavapipe: dynamic sizes, and what its driver gets wrong where code is written plainly."""

from pathlib import Path

import numpy as np
import pytest
from tests.synth.in_c import stored_bytes
from tests.synth.vulkan.on_device import Job, Module, job_of, run_modules

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, cast, const, load
from openinfer.loops.dim import Dim
from openinfer.loops.ir import Buffer, Kernel, LoopKind, Scalar
from openinfer.ops import TensorType

BOOL, F32, F64, I32, I64 = (DTYPES[name] for name in ("bool", "f32", "f64", "i32", "i64"))


def mapped(x: Array, out: Buffer, value: Scalar, number: int, source: Buffer) -> Job:
    """A kernel that computes each result from the element at ``i1``."""
    builder = Builder()
    with builder.loop(out.shape[0], LoopKind.PARALLEL) as i:
        builder.store(out, (i,), value)
    kernel = Kernel("k", (source,), (out,), builder.body)
    return job_of(kernel, number, [stored_bytes(x, source.dtype)], [TensorType(out.dtype, out.shape)])


def element(source: Buffer) -> Scalar:
    builder = Builder()
    return load(source, builder.fresh("i"))


def test_widened_integers_compare_with_constants(tmp_path: Path) -> None:
    numbers = np.array([-(2**31), -6, -5, 0, 4, 5, 2**31 - 1], np.int32)
    source, out = Buffer("x", I32, (7,)), Buffer("y", BOOL, (7,))
    wide, five = cast(element(source), I64), const(5, I64)
    tests = {"lt": wide < five, "le": wide <= five, "gt": wide > five, "ge": wide >= five, "eq": wide.eq(five)}
    jobs = [mapped(numbers, out, test, number, source) for number, test in enumerate(tests.values())]
    found = [outcome.results[0].tolist() for outcome in run_modules([Module(jobs)], tmp_path)]
    wanted = [numbers < 5, numbers <= 5, numbers > 5, numbers >= 5, numbers == 5]
    assert found == [one.tolist() for one in wanted]


@pytest.mark.parametrize("kind", [F32, F64], ids=str)
def test_arithmetic_with_zero_is_done(kind: DType, tmp_path: Path) -> None:
    """A product with it is NaN of infinity, a sum of two zeros is positive unless both are negative."""
    numbers = np.array([-0.0, 0.0, 1.5, -2.5, np.inf, -np.inf, np.nan], kind.array)
    source, out = Buffer("x", kind, (7,)), Buffer("y", kind, (7,))
    x, zero = element(source), const(0.0, kind)
    values = (x * zero, zero * x, x + zero, zero + x, zero - x, x - zero, zero / x)
    jobs = [mapped(numbers, out, value, number, source) for number, value in enumerate(values)]
    found = [outcome.results[0] for outcome in run_modules([Module(jobs)], tmp_path)]
    with np.errstate(all="ignore"):
        nothing = kind.array.type(0)
        wanted = [numbers * nothing, nothing * numbers, numbers + nothing, nothing + numbers, nothing - numbers]
        wanted += [numbers - nothing, nothing / numbers]
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one, other, equal_nan=True)
        assert np.array_equal(np.signbit(one[~np.isnan(one)]), np.signbit(other[~np.isnan(other)]))


@pytest.mark.parametrize("length", [0, 1, 5, 8])
def test_sizes_are_arguments(length: int, tmp_path: Path) -> None:
    size = Dim(8, Ref("T"))
    x, y = Buffer("x", I32, (3, size)), Buffer("y", I32, (size, 3))
    builder = Builder()
    with builder.loops((size, 3), LoopKind.PARALLEL) as (i, j):
        builder.store(y, (i, j), load(x, j, i))
    numbers = np.arange(3 * length, dtype=np.int32).reshape(3, length)
    kernel, kind = Kernel("k", (x,), (y,), builder.body), TensorType(I32, (length, 3))
    job = job_of(kernel, 0, [stored_bytes(numbers, I32)], [kind], sizes={"T": length})
    (outcome,) = run_modules([Module([job])], tmp_path, validate=True)
    assert outcome.damage == ""
    assert outcome.results[0].tolist() == numbers.T.tolist()
