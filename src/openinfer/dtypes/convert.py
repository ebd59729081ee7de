"""Converts arrays of any NumPy type to a dtype's array type.

Floats are rounded once, to nearest even. Everything else converts only if no value changes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes.table import DType, from_numpy_dtype
from openinfer.errors import Code, Diagnostic, TensorError

Array = npt.NDArray[Any]

_BUILTIN = 1
"""The value of ``np.dtype.isbuiltin`` for NumPy's own types; those of ml_dtypes have a different one."""


def convert(values: Array, dtype: DType) -> Array:
    """Convert values to ``dtype.array``, in C order; a view if nothing has to change.

    >>> from openinfer.dtypes import dtype_of
    >>> convert(np.array([1.0, 2.0]), dtype_of("u8"))
    array([1, 2], dtype=uint8)
    """
    source = from_numpy_dtype(values.dtype)
    if source is None:
        raise TensorError(
            Diagnostic(
                Code.UNSUPPORTED_ARRAY,
                f"arrays of NumPy type {values.dtype} have no {dtype.name} form",
                help="use booleans, integers or real floating-point numbers",
            )
        )
    if dtype.kind == "float":
        return np.asarray(_round(values, source, dtype), dtype.array, order="C")
    _require_exact(values, source, dtype)
    if source.is_packed:
        values = values.astype(np.int8)
    return np.asarray(values, dtype.array, order="C")


def _round(values: Array, source: DType, dtype: DType) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.array.isbuiltin != _BUILTIN and source.bits >= 32 and source.name != "f32":
            return _to_odd_f32(_to_sticky_f64(values)).astype(dtype.array)
        return values.astype(dtype.array, copy=False)


def _to_sticky_f64(values: Array) -> npt.NDArray[np.float64]:
    """Values as f64; an integer too long for it keeps a sticky bit that marks what was cut off."""
    if values.dtype.kind == "f" or values.dtype.itemsize < 8:
        return values.astype(np.float64)
    long = (values >> 53 != 0) & (values >> 53 != -1 if values.dtype.kind == "i" else True)
    head = values >> 11 << 11
    return np.where(long & (head != values), head | (1 << 11), values).astype(np.float64)


def _to_odd_f32(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Convert f64 to f32 with rounding to odd, so that a second rounding to a narrower type is exact.

    ml_dtypes converts to its floats (bf16, f8) through f32; rounding to nearest twice would break ties wrongly.
    """
    near = values.astype(np.float32)
    bits = near.view(np.int32)
    back = near.astype(np.float64)
    inexact = (back != values) & np.isfinite(values)
    away = np.abs(back) > np.abs(values)
    toward_zero = np.where(inexact & away, bits - 1, bits)
    odd: npt.NDArray[np.int32] = np.where(inexact, toward_zero | 1, bits).astype(np.int32)
    return odd.view(np.float32)


def _require_exact(values: Array, source: DType, dtype: DType) -> None:
    """Refuse values that the integer or bool type cannot represent."""
    if values.size == 0 or (source is dtype and dtype.values is None and dtype.kind != "bool"):
        return
    if source.kind == "bool":
        values = values.view(np.uint8)
    if source.bits < 32 and source.kind == "float":
        values = values.astype(np.float32)
    elif source.is_packed:
        values = values.astype(np.int8)
    # Python numbers compare exactly. A NaN is both minimum and maximum and fails every comparison.
    for extreme in (values.min().item(), values.max().item()):
        if not dtype.minimum <= extreme <= dtype.maximum:
            raise TensorError(_out_of_range(extreme, dtype))
    if source.kind == "float":
        broken = values[values != np.trunc(values)]
        if broken.size:
            raise TensorError(_out_of_range(broken[0].item(), dtype))
    if dtype.name == "t1" and not np.all(values):
        raise TensorError(_out_of_range(0, dtype))


def _out_of_range(value: float, dtype: DType) -> Diagnostic:
    allowed = (
        "{" + ", ".join(map(str, dtype.values)) + "}"
        if dtype.values
        else f"the integers {dtype.minimum} to {dtype.maximum}"
    )
    return Diagnostic(
        Code.VALUE_OUT_OF_RANGE,
        f"the value {value} is not {'an' if dtype.name[0] in 'if' else 'a'} {dtype.name}",
        help=f"{dtype.name} holds {allowed}; clip or round the array yourself first",
    )
