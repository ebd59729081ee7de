"""Metadata values: converts Python objects to typed payloads and payloads back to Python objects.

``metadata_value`` is the place to teach the writer a type of your own::

    @metadata_value.register
    def _(value: datetime) -> MetadataValue:
        return metadata_value(value.isoformat())
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import DTYPES, DType, dtype_of, from_numpy_dtype
from openinfer.errors import Code, Diagnostic, OinfError
from openinfer.oinf.layout import (
    BITSET_HEADER,
    NDARRAY_HEADER,
    TAG_OF_DTYPE,
    TEXT,
    U32,
    ValueType,
    align,
    string_bytes,
)
from openinfer.tensor import Tensor, as_array

_INTEGERS = [DTYPES[name] for name in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")]


@dataclass(frozen=True)
class ScalarValue:
    """A metadata number with a dtype of its own.

    >>> metadata_value(ScalarValue(3, "i32")).type_name
    'i32'
    """

    value: bool | float | np.generic
    dtype: str | DType | None = None


@dataclass(frozen=True)
class Bitset:
    """A row of bits, stored eight per byte.

    >>> metadata_value(Bitset([True, False, True])).type_name
    'bitset[3]'
    """

    bits: Sequence[bool] | npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MetadataValue:
    """A value as the file holds it: a type tag, the readable name of the type, and the payload."""

    tag: int
    type_name: str
    payload: bytes


@singledispatch
def metadata_value(value: object) -> MetadataValue:
    """The stored form of a Python value.

    Floats are f32, integers take the smallest type that holds them (signed before unsigned), lists and arrays become
    n-dimensional arrays. Register further types with ``metadata_value.register``.

    >>> metadata_value(200).type_name, metadata_value([1.5, 2.5]).type_name
    ('u8', 'f32[2]')
    """
    raise OinfError(
        Diagnostic(
            Code.BAD_AUTHORING_VALUE,
            f"a {type(value).__name__} cannot be metadata",
            help="use a bool, number, str, list, NumPy array, ScalarValue or Bitset, "
            "or register the type with openinfer.oinf.metadata_value.register",
        )
    )


@metadata_value.register
def _(value: MetadataValue) -> MetadataValue:
    return value


@metadata_value.register
def _(value: bool) -> MetadataValue:  # noqa: FBT001  (the value itself, not a switch)
    return _scalar(value, DTYPES["bool"])


@metadata_value.register
def _(value: int) -> MetadataValue:
    return _scalar(value, smallest_integer(value, value))


@metadata_value.register
def _(value: float) -> MetadataValue:
    return _scalar(as_array(value), DTYPES["f32"])


@metadata_value.register
def _(value: str) -> MetadataValue:
    if not TEXT.fullmatch(value):
        bad = next(character for character in value if not TEXT.fullmatch(character))
        raise OinfError(
            Diagnostic(
                Code.BAD_AUTHORING_VALUE,
                f"metadata text may use printable ASCII only, not {bad!r}",
                help="encode other text first, for example as JSON with ASCII escapes",
            )
        )
    payload = (U32.pack(len(value)) + value.encode("ascii")).ljust(string_bytes(len(value)), b"\0")
    return MetadataValue(ValueType.STRING, "str", payload)


@metadata_value.register
def _(value: ScalarValue) -> MetadataValue:
    if value.dtype is None:
        return metadata_value(value.value)
    return _scalar(value.value, dtype_of(value.dtype))


@metadata_value.register
def _(value: Bitset) -> MetadataValue:
    bits = np.asarray(value.bits)
    if bits.ndim != 1 or not np.isin(bits, (0, 1)).all():
        raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, "a bitset is a flat row of booleans"))
    packed = np.packbits(bits.astype(np.bool_), bitorder="little").tobytes()
    payload = BITSET_HEADER.pack(len(bits), len(packed)) + packed
    return MetadataValue(ValueType.BITSET, f"bitset[{len(bits)}]", payload.ljust(align(len(payload)), b"\0"))


@metadata_value.register(list)
def _(value: list[Any]) -> MetadataValue:
    array = as_array(value)
    if array.size and array.dtype.kind in "iu":
        return _array(Tensor.from_numpy(array, smallest_integer(int(array.min()), int(array.max()))))
    return _array(Tensor.from_numpy(array))


@metadata_value.register(tuple)
def _(value: tuple[Any, ...]) -> MetadataValue:
    return metadata_value(list(value))


@metadata_value.register
def _(value: np.ndarray) -> MetadataValue:
    return _array(Tensor.from_numpy(value))


@metadata_value.register
def _(value: Tensor) -> MetadataValue:
    return _array(value)


@metadata_value.register
def _(value: np.generic) -> MetadataValue:
    dtype = from_numpy_dtype(value.dtype)
    if dtype is None:
        return metadata_value(value.item())
    return _scalar(value, dtype)


def smallest_integer(low: int, high: int) -> DType:
    """The narrowest integer dtype, of at least 8 bits, that holds both numbers.

    >>> smallest_integer(0, 127).name, smallest_integer(0, 128).name, smallest_integer(-1, 128).name
    ('i8', 'u8', 'i16')
    """
    for dtype in _INTEGERS:
        if dtype.minimum <= low and high <= dtype.maximum:
            return dtype
    raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, "the integer does not fit in 64 bits"))


def _scalar(value: Any, dtype: DType) -> MetadataValue:
    tensor = Tensor.from_numpy(np.asarray(value), dtype)
    if tensor.shape:
        message = f"a scalar is one number, not {tensor.type_text()}"
        raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, message, help="give a list or an array as it is"))
    return MetadataValue(TAG_OF_DTYPE[dtype], dtype.name, tensor.raw().tobytes())


def _array(tensor: Tensor) -> MetadataValue:
    dims = np.array(tensor.shape, "<u8").tobytes()
    payload = NDARRAY_HEADER.pack(TAG_OF_DTYPE[tensor.dtype], tensor.ndim) + dims + tensor.raw().tobytes()
    return MetadataValue(ValueType.NDARRAY, tensor.type_text(), payload.ljust(align(len(payload)), b"\0"))
