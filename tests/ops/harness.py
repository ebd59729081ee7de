"""Every op against an independent implementation, on the inputs that its record generates.

A judge is a function of a ``Question`` that answers with NumPy arrays: exact integers of any width (the harness wraps
them), floats as precise as it can (the harness rounds them where the op is exact).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from openinfer.dtypes import DType
from openinfer.ops import OPS, Array, Call, Case, OpRecord, ReferenceKernel, TensorType, agreement, complete, infer
from openinfer.ops.agreement import is_close

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


def _require_close(question: Question, result: Array, want: Array, dtype: DType, bounds: Any) -> None:
    overflows = may_overflow(question, dtype, bounds)
    same = is_close(question.record.tolerance, result, want, dtype, bounds, overflows)
    assert np.all(same), _report(question, result, want, ~np.asarray(same))


def may_overflow(question: Question, dtype: DType, bounds: Any) -> Array:
    """Whether some order of a sum passes what its accumulator can hold."""
    return agreement.may_overflow(question.record.tolerance, question.params, question.doubles, dtype, bounds)


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
