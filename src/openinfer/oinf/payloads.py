"""The payloads that tables point at: metadata values, quantization parameters, tensor elements.

Each check takes the bytes a table claims, and answers with a ``Flaw`` (what is wrong, at which byte of the payload) or
with the value. Sizes are compared before anything of that size is allocated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Bytes, DType, first_invalid_code, unpack
from openinfer.errors import Code, counted
from openinfer.oinf.layout import (
    BITSET_HEADER,
    DTYPE_BY_TAG,
    NDARRAY_HEADER,
    QUANT_HEADER,
    U32,
    ValueType,
    align,
    string_bytes,
)
from openinfer.oinf.quant import (
    PER_CHANNEL,
    PER_TENSOR,
    SCHEMES,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    quant_nbytes,
)
from openinfer.tensor import MAX_DIMS, storage_bytes

PayloadValue = bool | int | float | str | npt.NDArray[Any]
_PIECE = 1 << 20


@dataclass(eq=False)
class Flaw(Exception):  # noqa: N818  (caught by the parser, never seen by a user)
    """What is wrong with a payload: a field name, and where in the payload it stands.

    ``at`` is None where the size that the table states is wrong, which does not stand in the payload.
    """

    code: Code
    message: str
    field: str
    at: int | None
    length: int


def first_bad_element(elements: Bytes, dtype: DType, count: int) -> int | None:
    """The byte that no value of this dtype is stored as: a bool other than 0 or 1, a bad code, a spare bit."""
    if dtype.kind == "bool":
        for start in range(0, elements.size, _PIECE):
            piece = elements[start : start + _PIECE]
            if piece.max(initial=0) > 1:
                return start + int(np.argmax(piece > 1))
        return None
    return first_invalid_code(elements, dtype, count) if dtype.is_packed else None


def first_non_zero(data: Bytes | bytes) -> int | None:
    """The position of the first byte that is not zero."""
    if isinstance(data, bytes):
        return None if data.count(0) == len(data) else len(data) - len(data.lstrip(b"\0"))
    return int(np.argmax(data != 0)) if data.any() else None


# --- metadata -------------------------------------------------------------------------------------------------------


def check_metadata(tag: int, payload: Bytes) -> str:
    """Raise a ``Flaw`` unless the payload is a value of the type; otherwise the type as people read it."""
    if tag == ValueType.STRING:
        return _check_string(payload)
    if tag == ValueType.BITSET:
        return _check_bitset(payload)
    if tag == ValueType.NDARRAY:
        return _check_ndarray(payload)
    dtype = DTYPE_BY_TAG[tag]
    _require_size(payload, dtype.nbytes(1), f"a scalar {dtype.name}")
    _require_elements(payload, dtype, 1, 0)
    return dtype.name


def decode_metadata(tag: int, payload: Bytes) -> PayloadValue:
    """The Python value of a payload that ``check_metadata`` has accepted."""
    if tag == ValueType.STRING:
        (length,) = U32.unpack_from(payload.data)
        return payload[U32.size : U32.size + length].tobytes().decode("ascii")
    if tag == ValueType.BITSET:
        bit_count, byte_count = BITSET_HEADER.unpack_from(payload.data)
        packed = payload[BITSET_HEADER.size : BITSET_HEADER.size + byte_count]
        return np.unpackbits(packed, count=bit_count, bitorder="little").view(np.bool_)
    if tag == ValueType.NDARRAY:
        dtype, shape, start = _ndarray_header(payload)
        return _elements(payload[start : start + dtype.nbytes(prod(shape))], dtype, prod(shape)).reshape(shape)
    scalar = _elements(payload, DTYPE_BY_TAG[tag], 1)[0]
    if DTYPE_BY_TAG[tag].kind == "float":
        return float(scalar)
    return bool(scalar) if DTYPE_BY_TAG[tag].kind == "bool" else int(scalar)


def _elements(stored: Bytes, dtype: DType, count: int) -> npt.NDArray[Any]:
    return unpack(stored, dtype, 0, count) if dtype.is_packed else stored.view(dtype.array)


def _check_string(payload: Bytes) -> str:
    _require_at_least(payload, U32.size, "a string")
    (length,) = U32.unpack_from(payload.data)
    _require_size(payload, string_bytes(length), f"a string of {length} characters")
    for start in range(U32.size, U32.size + length, _PIECE):
        piece = payload[start : min(start + _PIECE, U32.size + length)]
        bad = (piece < 0x20) | (piece > 0x7E)
        if bad.any():
            at = start + int(np.argmax(bad))
            message = f"the text contains {chr(payload[at])!r}; only printable ASCII is allowed"
            raise Flaw(Code.BAD_METADATA, message, "text", at, 1)
    _require_zero_tail(payload, U32.size + length)
    return "str"


def _check_bitset(payload: Bytes) -> str:
    _require_at_least(payload, BITSET_HEADER.size, "a bitset")
    bit_count, byte_count = BITSET_HEADER.unpack_from(payload.data)
    if byte_count != (bit_count + 7) // 8:
        message = f"{counted(bit_count, 'bit')} need {counted((bit_count + 7) // 8, 'byte')}, not {byte_count}"
        raise Flaw(Code.BAD_METADATA, message, "byte_count", 4, 4)
    end = BITSET_HEADER.size + byte_count
    _require_size(payload, align(end), f"a bitset of {counted(bit_count, 'bit')}")
    if bit_count % 8 and int(payload[end - 1]) >> bit_count % 8:
        raise Flaw(Code.BAD_METADATA, "the spare bits of the last byte are not zero", "bits", end - 1, 1)
    _require_zero_tail(payload, end)
    return f"bitset[{bit_count}]"


def _ndarray_header(payload: Bytes) -> tuple[DType, tuple[int, ...], int]:
    tag, ndim = NDARRAY_HEADER.unpack_from(payload.data)
    start = NDARRAY_HEADER.size + 8 * ndim
    shape = tuple(payload[NDARRAY_HEADER.size : start].view("<u8").tolist())
    return DTYPE_BY_TAG[tag], shape, start


def _check_ndarray(payload: Bytes) -> str:
    _require_at_least(payload, NDARRAY_HEADER.size, "an array")
    tag, ndim = NDARRAY_HEADER.unpack_from(payload.data)
    if tag not in DTYPE_BY_TAG:
        raise Flaw(Code.UNKNOWN_TYPE_TAG, f"{tag} is not the tag of an element type", "element_type", 0, 4)
    if ndim > MAX_DIMS:
        raise Flaw(Code.TOO_MANY_DIMS, f"{counted(ndim, 'dimension')} are more than {MAX_DIMS}", "ndim", 4, 4)
    _require_at_least(payload, NDARRAY_HEADER.size + 8 * ndim, f"an array of {counted(ndim, 'dimension')}")
    dtype, shape, start = _ndarray_header(payload)
    nbytes = storage_bytes(dtype, shape)
    text = f"{dtype.name}[{', '.join(map(str, shape))}]"
    if nbytes is None:
        raise Flaw(Code.SHAPE_OVERFLOW, f"{text} is larger than any machine can hold", "dims", 8, 8 * ndim)
    _require_size(payload, align(start + nbytes), text)
    _require_elements(payload[start : start + nbytes], dtype, prod(shape), start)
    _require_zero_tail(payload, start + nbytes)
    return text


def _require_at_least(payload: Bytes, needed: int, what: str) -> None:
    if payload.size < needed:
        message = f"{what} needs at least {counted(needed, 'byte')}, but nbytes is {payload.size}"
        raise Flaw(Code.SIZE_MISMATCH, message, "nbytes", None, 8)


def _require_size(payload: Bytes, needed: int, what: str) -> None:
    if payload.size != needed:
        message = f"{what} takes {counted(needed, 'byte')}, but nbytes is {payload.size}"
        raise Flaw(Code.SIZE_MISMATCH, message, "nbytes", None, 8)


def _require_elements(elements: Bytes, dtype: DType, count: int, start: int) -> None:
    bad = first_bad_element(elements, dtype, count)
    if bad is not None:
        message = f"the byte 0x{elements[bad]:02x} is not part of a {dtype.name} value"
        raise Flaw(Code.BAD_METADATA, message, "data", start + bad, 1)


def _require_zero_tail(payload: Bytes, end: int) -> None:
    bad = first_non_zero(payload[end:])
    if bad is not None:
        raise Flaw(Code.NON_ZERO_PADDING, "padding bytes must be zero", "padding", end + bad, 1)


# --- quantization ---------------------------------------------------------------------------------------------------

_QUANT_FIELDS = {
    "scheme": (0, 4),
    "scale_mode": (4, 4),
    "zp_mode": (8, 4),
    "reserved": (12, 4),
    "scale_axis": (16, 8),
    "scale_count": (24, 8),
    "zp_axis": (32, 8),
    "zp_count": (40, 8),
}


def decode_quant(read: Callable[[int, int], bytes], nbytes: int, shape: tuple[int, ...]) -> QuantParams:
    """The quantization parameters of a tensor of this shape, or a ``Flaw``.

    ``read(start, count)`` gives bytes of the payload; sizes are compared before more than the header is read.
    """
    if nbytes < QUANT_HEADER.size:
        message = f"a quantization needs at least {counted(QUANT_HEADER.size, 'byte')}, but quant_nbytes is {nbytes}"
        raise Flaw(Code.BAD_QUANTIZATION, message, "quant_nbytes", None, 8)
    header = QUANT_HEADER.unpack(read(0, QUANT_HEADER.size))
    scheme, scale_mode, zp_mode, reserved, scale_axis, scale_count, zp_axis, zp_count = header
    if scheme not in SCHEMES:
        raise _quant_flaw("scheme", f"unknown scheme {scheme}; 1 is symmetric, 2 asymmetric")
    if scale_mode not in (PER_TENSOR, PER_CHANNEL):
        raise _quant_flaw("scale_mode", f"unknown mode {scale_mode}; 1 is per_tensor, 2 per_channel")
    if zp_mode not in (0, scale_mode):
        raise _quant_flaw(
            "zp_mode", f"a zero point is absent (0) or has the scale's mode ({scale_mode}), not {zp_mode}"
        )
    if SCHEMES[scheme] == "symmetric" and zp_mode:
        raise _quant_flaw("zp_mode", "a symmetric quantization has no zero point")
    if reserved:
        raise _quant_flaw("reserved", f"reserved bits must be zero, not {reserved:#x}")
    _require_channels("scale", scale_mode, scale_axis, scale_count, shape)
    if zp_mode:
        _require_channels("zp", zp_mode, zp_axis, zp_count, shape)
        if zp_axis != scale_axis:
            raise _quant_flaw("zp_axis", f"a zero point has the scale's axis ({scale_axis}), not {zp_axis}")
    elif zp_axis or zp_count:
        raise _quant_flaw("zp_axis" if zp_axis else "zp_count", "must be 0 where there is no zero point")
    if nbytes != quant_nbytes(scale_count, zp_count):
        size = counted(quant_nbytes(scale_count, zp_count), "byte")
        message = f"{counted(scale_count, 'scale')} and {counted(zp_count, 'zero point')} take {size}"
        raise Flaw(Code.BAD_QUANTIZATION, f"{message}, but quant_nbytes is {nbytes}", "quant_nbytes", None, 8)
    scales, zero_points = _quant_values(read(0, nbytes), scale_count, zp_count)
    axis = scale_axis if scale_mode == PER_CHANNEL else None
    zero_point = QuantZeroPoint(axis, zero_points) if zp_mode else None
    return QuantParams(SCHEMES[scheme], QuantScale(axis, scales), zero_point)


def _quant_values(
    payload: bytes, scale_count: int, zp_count: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    zp_start = QUANT_HEADER.size + 4 * scale_count
    end = zp_start + 4 * zp_count
    scales = np.frombuffer(payload, np.float32, scale_count, QUANT_HEADER.size)
    good = np.isfinite(scales) & (scales > 0)
    if not good.all():
        at = int(np.argmin(good))
        message = f"scale {at} is {scales[at]}; scales are finite and greater than zero"
        raise Flaw(Code.BAD_QUANTIZATION, message, f"scale[{at}]", QUANT_HEADER.size + 4 * at, 4)
    bad = first_non_zero(payload[end:])
    if bad is not None:
        raise Flaw(Code.NON_ZERO_PADDING, "padding bytes must be zero", "padding", end + bad, 1)
    return scales, np.frombuffer(payload, np.int32, zp_count, zp_start)


def _require_channels(prefix: str, mode: int, axis: int, count: int, shape: tuple[int, ...]) -> None:
    if mode == PER_TENSOR:
        if axis:
            raise _quant_flaw(f"{prefix}_axis", f"per_tensor parameters have axis 0, not {axis}")
        if count != 1:
            raise _quant_flaw(f"{prefix}_count", f"per_tensor parameters have count 1, not {count}")
        return
    if axis >= len(shape):
        raise _quant_flaw(f"{prefix}_axis", f"axis {axis} is outside a tensor of {counted(len(shape), 'dimension')}")
    if count != shape[axis]:
        raise _quant_flaw(f"{prefix}_count", f"axis {axis} has {shape[axis]} channels, not {count}")


def _quant_flaw(field: str, message: str) -> Flaw:
    return Flaw(Code.BAD_QUANTIZATION, message, field, *_QUANT_FIELDS[field])
