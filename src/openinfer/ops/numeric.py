"""Between how values are stored and how ops compute with them.

Small floats compute in f32 and are rounded once; packed integers compute in a byte and wrap at their own width.
References may compute wider still (``wide``); the result is rounded once when it leaves.
"""

from collections.abc import Callable

import numpy as np

from openinfer.dtypes import Array, DType

Convert = Callable[[Array], Array]


def entering(dtype: DType) -> Convert | None:
    """What turns a stored array into the form an op computes with; None where they are the same."""
    compute = dtype.compute.array
    return None if dtype.array == compute else lambda array: array.astype(compute)


def leaving(dtype: DType) -> Convert:
    """What turns an op's result into the stored form: rounding for floats, wrapping for integers.

    >>> from openinfer.dtypes import dtype_of
    >>> leaving(dtype_of("i4"))(np.array([7, 8, -9], np.int8)).astype(int).tolist()
    [7, -8, 7]
    """
    stored = dtype.array
    if dtype.kind == "float":
        return _rounding(dtype)
    if not dtype.is_packed or dtype.values:
        return lambda array: array if array.dtype == stored else array.astype(stored)
    mask, half = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    if dtype.kind == "uint":
        return lambda array: (array & mask).astype(stored)
    return lambda array: (((array & mask) ^ half) - half).astype(stored)


def _rounding(dtype: DType) -> Convert:
    stored = dtype.array
    if dtype.name in ("f32", "f64"):
        return lambda array: array if array.dtype == stored else array.astype(stored)

    def rounded(array: Array) -> Array:
        # Small floats are defined to be computed in f32: what was computed wider is f32 first.
        single = array if array.dtype == np.float32 else array.astype(np.float32)
        return single.astype(stored)

    return rounded


def wide(array: Array) -> Array:
    """A float array in the next wider type, so that functions of it are correct after rounding back.

    >>> wide(np.zeros(1, np.float32)).dtype
    dtype('float64')
    """
    if array.dtype == np.float32:
        return array.astype(np.float64)
    return array.astype(np.longdouble) if array.dtype == np.float64 else array


def wrapped(array: Array, dtype: DType) -> Array:
    """Integers of any width in the compute form of a dtype, wrapped at the dtype's own width.

    >>> from openinfer.dtypes import dtype_of
    >>> wrapped(np.array([200, -129]), dtype_of("i8")).tolist()
    [-56, 127]
    """
    compute = array.astype(dtype.compute.array)
    return leaving(dtype)(compute).astype(dtype.compute.array) if dtype.is_packed else compute
