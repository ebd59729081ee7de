"""Every op against an independent implementation, on the inputs that its record generates.

A judge is a function of a ``Question`` that answers with NumPy arrays: exact integers of any width (the harness wraps
them), floats as precise as it can (the harness rounds them where the op is exact).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import ml_dtypes
import numpy as np

from openinfer.dtypes import DType
from openinfer.ops import OPS, Array, Call, Case, OpRecord, ReferenceKernel, TensorType, complete, infer

SEED = 20


@dataclass(frozen=True)
class Question:
    """One call: operands as stored and widened (f32/f64, i64/u64, bool), parameters with defaults, output types."""

    record: OpRecord
    arrays: tuple[Array | None, ...]
    dtypes: tuple[DType | None, ...]
    params: Mapping[str, Any]
    outputs: tuple[TensorType, ...]

    @property
    def wide(self) -> tuple[Any, ...]:
        return tuple(
            None if array is None else widened(array, dtype)
            for array, dtype in zip(self.arrays, self.dtypes, strict=True)
            if array is None or dtype is not None
        )

    @property
    def doubles(self) -> tuple[Any, ...]:
        """Floats in the next wider type than they are computed in: f64, or f80 for f64."""
        return tuple(
            array if array is None or array.dtype.kind != "f" else np.asarray(array, _wider(array.dtype))
            for array in self.wide
        )


Judge = Callable[[Question], Any]


def _wider(dtype: np.dtype[Any]) -> Any:
    return np.longdouble if dtype == np.float64 else np.float64


def widened(array: Array, dtype: DType | None) -> Array:
    assert dtype is not None
    if dtype.kind == "float":
        return array if dtype.name == "f64" else array.astype(np.float32)
    if dtype.kind == "bool":
        return array
    return array.astype(np.uint64 if dtype.name == "u64" else np.int64)


def questions(record: OpRecord, dtype: DType) -> Iterator[tuple[Question, tuple[Array, ...]]]:
    """Each generated case with what the reference answers."""
    rng = np.random.default_rng([SEED, crc32(f"{record.name} {dtype.name}".encode())])
    for case in record.cases(rng, dtype):
        yield answered(record, case)


def answered(record: OpRecord, case: Case) -> tuple[Question, tuple[Array, ...]]:
    types = tuple(
        None if array is None else TensorType(kind, array.shape)  # type: ignore[arg-type]
        for array, kind in zip(case.arrays, case.dtypes, strict=True)
    )
    call = infer(record, Call(types, complete(record, case.params)))
    with np.errstate(all="ignore"):
        results = ReferenceKernel(record, call, case.dtypes)(case.arrays)
    for result, kind in zip(results, call.outputs, strict=True):
        assert result.shape == kind.shape, (record.name, case.params, result.shape, kind)
        assert result.dtype == kind.dtype.array, (record.name, result.dtype, kind)
    return Question(record, case.arrays, case.dtypes, call.params, call.outputs), results


def compare(question: Question, results: tuple[Array, ...], answer: Any) -> None:
    wanted = answer if isinstance(answer, tuple) else (answer,)
    assert len(wanted) == len(results)
    bounds = bounds_of(question)
    for result, want, kind in zip(results, wanted, question.outputs, strict=True):
        want = np.asarray(want)  # noqa: PLW2901
        assert want.shape == kind.shape, f"{question.record.name}: the judge says {want.shape}, the op {kind.shape}"
        if kind.dtype.kind != "float":
            _require_equal(question, result, wrapped(want, kind.dtype))
        else:
            _require_close(question, result, want, kind.dtype, bounds)


def bounds_of(question: Question) -> Any:
    """The a-priori bound of each element of a sum; None where the tolerance is of another kind."""
    record = question.record
    if record.tolerance.kind != "sum":
        return None
    assert record.bound is not None, record.name
    types = tuple(
        None if array is None else TensorType(kind, array.shape)  # type: ignore[arg-type]
        for array, kind in zip(question.arrays, question.dtypes, strict=True)
    )
    with np.errstate(all="ignore"):
        return record.bound(Call(types, question.params, (), question.outputs), *question.doubles)


def wrapped(values: Array, dtype: DType) -> Array:
    """Integers of any width, modulo the width of a dtype."""
    if dtype.kind == "bool" or dtype.values:
        return values.astype(dtype.array)
    codes = np.asarray(values.astype(object) & ((1 << dtype.bits) - 1), dtype=object)
    if dtype.kind == "int":
        codes = np.where(codes >= 1 << (dtype.bits - 1), codes - (1 << dtype.bits), codes)
    return np.asarray(codes, dtype=object).astype(np.uint64 if dtype.name == "u64" else np.int64).astype(dtype.array)


def _require_equal(question: Question, result: Array, want: Array) -> None:
    same = np.asarray(result.astype(object) == want.astype(object))
    assert same.all(), _report(question, result, want, ~same)


def ulps_of(want: Array, dtype: DType) -> Array:
    """The distance between neighbours in a dtype at the magnitude of each value."""
    info: Any = ml_dtypes.finfo(dtype.array)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(want).astype(np.longdouble)))
    exponent = np.where(np.isfinite(exponent), exponent, info.minexp)
    return np.asarray(np.exp2(np.maximum(exponent, info.minexp).astype(np.longdouble) - info.nmant))


def rounded(want: Array, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return want.astype(np.float64 if dtype.name == "f64" else np.float32).astype(dtype.array)


def _require_close(question: Question, result: Array, want: Array, dtype: DType, bounds: Any) -> None:
    tolerance = question.record.tolerance
    nearest = rounded(want, dtype)
    got, exact = result.astype(np.longdouble), want.astype(np.longdouble)
    same = (result == nearest) | (np.isnan(got) & np.isnan(nearest.astype(np.longdouble)))
    if tolerance.kind == "exact":
        negative = np.signbit(got) == np.signbit(nearest.astype(np.longdouble))
        same &= negative | np.isnan(got)
    else:
        with np.errstate(all="ignore"):
            same |= np.abs(got - exact) <= allowed_error(tolerance.kind, tolerance.ulps, exact, dtype, bounds)
            same |= ~(np.isfinite(got) & np.isfinite(exact)) & may_overflow(question, dtype, bounds)
            # What rounds to infinity on one side may be the largest number on the other.
            same |= np.isinf(got) & (np.abs(exact) >= dtype.maximum * (1 - 2**-7)) & (np.sign(got) == np.sign(exact))
    assert np.all(same), _report(question, result, want, ~np.asarray(same))


def allowed_error(kind: str, ulps: float, exact: Array, dtype: DType, bounds: Any) -> Array:
    """How far from the exact result an element may be, by the kind of the op's tolerance."""
    half = ulps_of(exact, dtype) / 2
    if kind == "sum":
        return 2 * np.asarray(bounds, np.longdouble) + half
    if kind == "row":
        finite = np.abs(exact[np.isfinite(exact)])
        return ulps * ulps_of(np.asarray(finite.max() if finite.size else 0), dtype) + np.zeros_like(exact)
    return np.asarray(ulps * 2 * half)


def may_overflow(question: Question, dtype: DType, bounds: Any) -> Array:
    """Whether some order of a sum passes what its accumulator can hold: the bound is at least a rounding of all of it.

    Another order may then give an infinity, or NaN where two of them meet.
    """
    accumulators = question.params.get("acc")
    kind = accumulators[0] if accumulators else dtype.compute
    info: Any = ml_dtypes.finfo(kind.array)  # type: ignore[no-untyped-call]
    if question.record.tolerance.kind == "row":
        # A transform: what it adds up are at most all elements, times all of the window.
        sums = [np.abs(one[np.isfinite(one)]).sum() for one in question.doubles if one is not None]
        magnitude = np.asarray(np.prod(sums, dtype=np.longdouble))
    elif bounds is None:
        return np.asarray(False)
    else:
        magnitude = np.asarray(bounds, np.longdouble) * np.exp2(np.longdouble(info.nmant + 1))
    return np.asarray(~(magnitude < min(float(kind.maximum), float(kind.compute.maximum))))


def _report(question: Question, result: Array, want: Array, wrong: Array) -> str:
    places = np.argwhere(np.atleast_1d(wrong))[:3].tolist()
    lines = [f"'{question.record.name}' {[str(kind) for kind in question.dtypes]} {dict(question.params)}"]
    lines += [f"shapes {[None if array is None else array.shape for array in question.arrays]}"]
    for place in places:
        at = tuple(place) if result.ndim else ()
        lines.append(f"at {list(at)}: got {result[at]!r}, the judge says {want[at]!r}")
        if all(array is not None and array.shape == result.shape for array in question.arrays):
            lines.append(f"    operands {[array[at] for array in question.arrays if array is not None]}")
    return "\n".join(lines)


def every_dtype(judges: Mapping[str, Judge]) -> list[tuple[str, str]]:
    """Op and dtype pairs for ``pytest.mark.parametrize``."""
    return [(name, dtype.name) for name in judges for dtype in OPS[name].dtypes]


def judge_op(name: str, dtype: DType, judge: Judge) -> None:
    count = 0
    for question, results in questions(OPS[name], dtype):
        with np.errstate(all="ignore"):
            compare(question, results, judge(question))
        count += 1
    assert count >= 3, "an op has at least three generated cases for each dtype"
