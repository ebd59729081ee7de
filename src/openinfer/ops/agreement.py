"""Whether results are as good as the reference's: the tolerance that an op's record promises, element by element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.kernel import ReferenceKernel
from openinfer.ops.record import Call, OpRecord, Tolerance

_TINY = 2.0**-126
"""The smallest number of f32 that is not subnormal."""


@dataclass(frozen=True)
class Disagreement:
    """An element that is further from the reference than its op allows, and how many there are."""

    output: int
    place: tuple[int, ...]
    found: Any
    wanted: Any
    count: int
    total: int

    def __str__(self) -> str:
        where = f" at {list(self.place)}" if self.place else ""
        more = f"; {self.count} of {self.total} elements are beyond what the op allows" if self.total > 1 else ""
        return f"{self.found}{where} in place of {self.wanted}{more}"


def ulps_of(want: Array, dtype: DType) -> Array:
    """The distance between neighbours in a dtype at the magnitude of each value."""
    info: Any = ml_dtypes.finfo(dtype.array)  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(want).astype(np.longdouble)))
    exponent = np.where(np.isfinite(exponent), exponent, info.minexp)
    return np.asarray(np.exp2(np.maximum(exponent, info.minexp).astype(np.longdouble) - info.nmant))


def rounded(want: Array, dtype: DType) -> Array:
    """Numbers of any precision in a dtype."""
    with np.errstate(all="ignore"):
        return want.astype(np.float64 if dtype.name == "f64" else np.float32).astype(dtype.array)


def allowed_error(kind: str, ulps: float, exact: Array, dtype: DType, bounds: Any) -> Array:
    """How far from the exact result an element may be, by the kind of the op's tolerance."""
    half = ulps_of(exact, dtype) / 2
    if kind == "sum":
        return 2 * np.asarray(bounds, np.longdouble) + half
    if kind == "row":
        finite = np.abs(exact[np.isfinite(exact)])
        return ulps * ulps_of(np.asarray(finite.max() if finite.size else 0), dtype) + np.zeros_like(exact)
    return np.asarray(ulps * 2 * half)


def may_overflow(
    tolerance: Tolerance, params: Mapping[str, Any], operands: Sequence[Any], dtype: DType, bounds: Any
) -> Array:
    """Whether some order of a sum passes what its accumulator can hold: the bound is at least a rounding of all of it.

    Another order may then give an infinity, or NaN where two of them meet.
    """
    accumulators = params.get("acc")
    kind = accumulators[0] if accumulators else dtype.compute
    info: Any = ml_dtypes.finfo(kind.array)  # type: ignore[no-untyped-call]
    if tolerance.kind == "row":
        # A transform: what it adds up are at most all elements, times all of the window.
        sums = [np.abs(one[np.isfinite(one)]).sum() for one in operands if one is not None]
        magnitude = np.asarray(np.prod(sums, dtype=np.longdouble))
    elif bounds is None:
        return np.zeros((), np.bool_)
    else:
        magnitude = np.asarray(bounds, np.longdouble) * np.exp2(np.longdouble(info.nmant + 1))
    return np.asarray(~(magnitude < min(float(kind.maximum), float(kind.compute.maximum))))


def is_close(tolerance: Tolerance, result: Array, want: Array, dtype: DType, bounds: Any, overflows: Array) -> Array:
    """Which floats are as near to the exact ones as a tolerance demands, but for those where sums ``may_overflow``."""
    nearest = rounded(want, dtype)
    got, exact = result.astype(np.longdouble), want.astype(np.longdouble)
    same = (result == nearest) | (np.isnan(got) & np.isnan(nearest.astype(np.longdouble)))
    if tolerance.kind == "exact":
        negative = np.signbit(got) == np.signbit(nearest.astype(np.longdouble))
        return np.asarray(same & (negative | np.isnan(got)))
    with np.errstate(all="ignore"):
        same |= np.abs(got - exact) <= allowed_error(tolerance.kind, tolerance.ulps, exact, dtype, bounds)
        same |= ~(np.isfinite(got) & np.isfinite(exact)) & overflows
        # What rounds to infinity on one side may be the largest number on the other.
        same |= np.isinf(got) & (np.abs(exact) >= dtype.maximum * (1 - 2**-7)) & (np.sign(got) == np.sign(exact))
    return np.asarray(same)


class Contract:
    """What an op promises about one call."""

    def __init__(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> None:
        self._record = record
        self._call = call
        self._reference = ReferenceKernel(record, call, stored)

    def disagreement(
        self, arrays: Sequence[Array | None], results: Sequence[Array], *, is_flushed: bool = False
    ) -> Disagreement | None:
        """The first element that a device has got wrong; None if all are right. ``OpError`` where the op has no result.

        ``is_flushed`` is for devices that take subnormal numbers for zero.
        """
        every = [arrays, [None if one is None else flushed(one) for one in arrays]][: 1 + is_flushed]
        with np.errstate(all="ignore"):
            for place, result in enumerate(results):
                exact = [self._compared(one, place, result, is_flushed=is_flushed) for one in every]
                right = np.logical_or.reduce([good for _, good in exact])
                if not right.all():
                    at = tuple(int(one) for one in np.argwhere(~np.atleast_1d(right))[0][: result.ndim])
                    wanted = exact[0][0][at]
                    return Disagreement(place, at, result[at], wanted, int((~right).sum()), result.size)
        return None

    def _compared(
        self, arrays: Sequence[Array | None], place: int, result: Array, *, is_flushed: bool
    ) -> tuple[Array, Array]:
        """What the reference says of a result, and which of its elements are right."""
        tolerance, call = self._record.tolerance, self._call
        operands = [_wider(one) for one in self._reference.entered(arrays)]
        bounds = self._record.bound(call, *operands) if self._record.bound and tolerance.kind == "sum" else None
        exact = self._reference.unrounded(arrays) if tolerance.kind == "sum" else self._reference(arrays)
        want, dtype = exact[place], call.outputs[place].dtype
        if dtype.kind != "float":
            return want, np.asarray(result == want.astype(result.dtype))
        overflows = may_overflow(tolerance, call.params, operands, dtype, bounds)
        right = is_close(tolerance, result, want, dtype, bounds, overflows)
        if is_flushed:
            right |= np.abs(result.astype(np.float64) - want.astype(np.float64)) <= _TINY
        return want, right


def _wider(array: Array | None) -> Any:
    """An operand as bounds of sums are computed from it: where nothing overflows."""
    if array is None or array.dtype.kind not in "fiu":
        return array
    if array.dtype.kind != "f":
        return array.astype(np.uint64 if array.dtype == np.uint64 else np.int64)
    return array.astype(np.longdouble if array.dtype == np.float64 else np.float64)


def flushed(array: Array) -> Array:
    """Numbers as devices see them that take subnormal ones of f32 for zero, of the same sign.

    >>> flushed(np.array([1e-40, -1e-40, 1e-30, np.inf], np.float32)).tolist()
    [0.0, -0.0, 1.0000000031710769e-30, inf]
    """
    if array.dtype.kind != "f" and array.dtype != ml_dtypes.bfloat16:
        return array
    with np.errstate(all="ignore"):
        return np.asarray(np.where(np.abs(array) < _TINY, array * array.dtype.type(0), array), array.dtype)
