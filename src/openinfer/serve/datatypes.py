"""The protocol's names of dtypes, and tensors as bytes and as JSON."""

from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code, Diagnostic, OpenInferError, ServingError
from openinfer.ops import Array
from openinfer.serve.problems import bad_request
from openinfer.tensor import any_array

DATATYPES: dict[str, "np.dtype[np.generic]"] = {
    "BOOL": np.dtype(np.bool_),
    **{f"UINT{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
"""The protocol's datatypes that tensors of graphs can have; this excludes BYTES, which is text."""
MOST_DIMENSIONS = 32
_MOST_BYTES = 1 << 62
"""What NumPy can address. This also limits the non-zero extents of an empty shape."""


def _wire(dtype: DType) -> str:
    match dtype.kind:
        case "bool":
            return "BOOL"
        case "float":
            return {"f8": "FP16", "bf16": "BF16"}.get(dtype.name, f"FP{dtype.bits}")
        case kind:
            return f"{kind.upper()}{max(dtype.bits, 8)}"


_WIRE = {name: _wire(dtype) for name, dtype in DTYPES.items()}


def wire_name(dtype: DType) -> str:
    """The protocol's name of a dtype. Elements narrower than a byte are sent as bytes, and f8 as FP16.

    >>> from openinfer.dtypes import dtype_of
    >>> wire_name(dtype_of("f32")), wire_name(dtype_of("i4")), wire_name(dtype_of("bool"))
    ('FP32', 'INT8', 'BOOL')
    """
    return _WIRE[dtype.name]


def wire_array(array: Array, dtype: DType) -> Array:
    """An array converted to the datatype it is sent as; no value changes."""
    return np.ascontiguousarray(array).reshape(array.shape).astype(DATATYPES[wire_name(dtype)], copy=False)


def checked_shape(name: str, shape: object) -> tuple[int, ...]:
    """Validate the shape of a tensor in a request."""
    if not isinstance(shape, list | tuple) or len(shape) > MOST_DIMENSIONS:
        raise bad_request(f"the shape of {name!r} is a list of at most {MOST_DIMENSIONS} extents")
    if not all(type(extent) is int and 0 <= extent < 1 << 40 for extent in shape):
        raise bad_request(f"the shape of {name!r} has an extent that is not a number of elements")
    if prod(extent for extent in shape if extent) >= _MOST_BYTES // 8:
        raise bad_request(f"the shape of {name!r} has extents that no array has together")
    return tuple(shape)


def from_bytes(name: str, datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> Array:
    """A tensor from little-endian elements in row-major order. The array is a view of the bytes."""
    element = _element(name, datatype)
    wanted = prod(shape) * element.itemsize
    if len(data) != wanted:
        raise bad_request(f"{name!r} is {datatype}{list(shape)}, which are {wanted} bytes, and has {len(data)}")
    array: Array = np.frombuffer(data, np.uint8 if datatype == "BOOL" else element)
    if datatype == "BOOL":
        if array.size and array.max() > 1:
            raise bad_request(f"an element of {name!r} is neither 0 nor 1, which are what BOOL is")
        array = array.view(np.bool_)
    return array.reshape(shape)


def from_list(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Array:
    """A tensor from a JSON list, nested or flat. Python reads numbers that are too large as infinities."""
    _element(name, datatype)
    try:
        array = any_array(data)
    except OpenInferError as error:
        raise ServingError(
            *(Diagnostic(one.code, f"the data of {name!r}: {one.message}") for one in error.diagnostics)
        ) from error
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise _beyond(name, datatype)
    return from_numbers(name, datatype, shape, array)


def from_numbers(name: str, datatype: str, shape: tuple[int, ...], array: Array) -> Array:
    """A tensor from an array of another dtype, in its shape or flat."""
    element = _element(name, datatype)
    if array.size != prod(shape) or (array.ndim > 1 and array.shape != shape):
        raise bad_request(f"the data of {name!r} has {array.size} elements, and its shape is {list(shape)}")
    if array.size == 0:
        return np.zeros(shape, element)
    return _converted(name, datatype, array, element).reshape(shape)


def _converted(name: str, datatype: str, array: Array, element: "np.dtype[np.generic]") -> Array:
    """Convert numbers to a datatype: floats round, everything else must stay exact."""
    kinds = {"BOOL": "b", "FP": "iuf", "BF": "iuf"}.get(datatype.rstrip("0123456789"), "iu")
    if array.dtype.kind not in kinds:
        raise bad_request(f"the data of {name!r} are not values of {datatype}")
    with np.errstate(over="ignore"):
        found: Array = array.astype(element)
    if kinds == "iu" and not np.array_equal(found, array):
        raise _beyond(name, datatype)
    if kinds == "iuf" and (np.isfinite(array) & ~np.isfinite(found)).any():
        raise _beyond(name, datatype)
    return found


def _beyond(name: str, datatype: str) -> ServingError:
    message = f"some values of {name!r} are beyond what {datatype} holds"
    return ServingError(Diagnostic(Code.VALUE_OUT_OF_RANGE, message))


def _element(name: str, datatype: str) -> "np.dtype[np.generic]":
    element = DATATYPES.get(datatype)
    if element is None:
        advice = f"datatypes here are {', '.join(DATATYPES)}"
        raise bad_request(f"the datatype of {name!r} is {str(datatype)[:40]!r}, which no tensor has", advice)
    return element


def to_list(name: str, array: Array) -> list[Any]:
    """The elements of a tensor for JSON, in row-major order; an error for infinities, which JSON cannot express."""
    if array.dtype.kind not in "biu" and not np.isfinite(array).all():
        message = f"the output {name!r} has elements that JSON cannot represent: infinities or NaN"
        advice = "ask for the output as binary data"
        raise ServingError(Diagnostic(Code.BAD_VALUE, message, None, advice))
    is_known = array.dtype.kind in "biuf"
    found: list[Any] = (array if is_known else array.astype(np.float32)).reshape(-1).tolist()
    return found
