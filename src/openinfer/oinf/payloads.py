"""The payloads that tables point at: metadata values, quantization parameters, tensor elements.

Each check takes the bytes that a table claims, and raises a ``Flaw`` (what is wrong, at which byte of the payload) or
returns the value. Sizes are compared before anything of that size is allocated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Bytes, DType, first_invalid_code, unpack
from openinfer.errors import Code, counted
from openinfer.oinf.layout import (
    BITSET_HEADER,
    DTYPE_BY_TAG,
    GROUP_HEADER,
    NDARRAY_HEADER,
    QUANT_HEADER,
    U32,
    ValueType,
    align,
    string_bytes,
)
from openinfer.oinf.quant import (
    GROUP_DTYPES,
    PER_CHANNEL,
    PER_GROUP,
    PER_TENSOR,
    SCHEMES,
    QuantOffset,
    QuantParams,
    QuantScale,
    QuantZeroPoint,
    group_shape,
)
from openinfer.tensor import MAX_DIMS, storage_bytes

PayloadValue = bool | int | float | str | npt.NDArray[Any]
_PIECE = 1 << 20


@dataclass(eq=False)
class Flaw(Exception):  # noqa: N818  (caught by the parser, never seen by a user)
    """What is wrong with a payload: a field name and the position in the payload.

    ``at`` is None if the size that the table states is wrong, because that is not in the payload.
    """

    code: Code
    message: str
    field: str
    at: int | None
    length: int


def first_bad_element(elements: Bytes, dtype: DType, count: int) -> int | None:
    """The first byte that encodes no value of this dtype: a bool other than 0 or 1, a bad code, a spare bit."""
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
    """Raise a ``Flaw`` unless the payload is a value of the type; otherwise return the readable name of the type."""
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
    "scale_dtype": (48, 4),
    "group_reserved": (52, 4),
}


def decode_quant(
    read: Callable[[int, int], bytes], nbytes: int, shape: tuple[int, ...], version: int = 2
) -> QuantParams:
    """The quantization parameters of a tensor of this shape in a file of this version; raises a ``Flaw``.

    ``read(start, count)`` returns bytes of the payload; sizes are compared before more than the header is read.
    """
    if nbytes < QUANT_HEADER.size:
        message = f"a quantization needs at least {counted(QUANT_HEADER.size, 'byte')}, but quant_nbytes is {nbytes}"
        raise Flaw(Code.BAD_QUANTIZATION, message, "quant_nbytes", None, 8)
    header = _QuantHeader._make(QUANT_HEADER.unpack(read(0, QUANT_HEADER.size)))
    header.check(shape, version)
    place = _places(header, read, nbytes)
    if nbytes != place.end:
        what = "offset" if header.is_affine else "zero point"
        message = f"{counted(header.scale_count, 'scale')} and {counted(header.zp_count, what)} take"
        message += f" {counted(place.end, 'byte')}, but quant_nbytes is {nbytes}"
        raise Flaw(Code.BAD_QUANTIZATION, message, "quant_nbytes", None, 8)
    return _quant_params(header, place, read(0, nbytes))


class _QuantHeader(NamedTuple):
    """The fields at the start of every quantization payload."""

    scheme: int
    scale_mode: int
    zp_mode: int
    reserved: int
    scale_axis: int
    scale_count: int
    zp_axis: int
    zp_count: int

    @property
    def is_affine(self) -> bool:
        """Whether there are offsets instead of zero points."""
        return SCHEMES[self.scheme] == "affine"

    @property
    def group(self) -> int | None:
        """How many elements share a scale, if groups do."""
        return self.reserved if self.scale_mode == PER_GROUP else None

    def check(self, shape: tuple[int, ...], version: int) -> None:
        """Reject fields that do not fit a tensor of this shape or a file of this version."""
        self._check_modes(version)
        _require_channels("scale", self, self.scale_axis, self.scale_count, shape)
        if self.zp_mode:
            _require_channels("zp", self, self.zp_axis, self.zp_count, shape)
            if self.zp_axis != self.scale_axis:
                raise _quant_flaw(
                    "zp_axis", f"a zero point has the scale's axis ({self.scale_axis}), not {self.zp_axis}"
                )
        elif self.zp_axis or self.zp_count:
            raise _quant_flaw("zp_axis" if self.zp_axis else "zp_count", "must be 0 where there is no zero point")

    def _check_modes(self, version: int) -> None:
        modes = {PER_TENSOR: "per_tensor", PER_CHANNEL: "per_channel"} | (
            {PER_GROUP: "per_group"} if version > 2 else {}
        )
        schemes = {tag: name for tag, name in SCHEMES.items() if version > 2 or name != "affine"}
        if self.scheme not in schemes:
            raise _quant_flaw("scheme", f"unknown scheme {self.scheme}; {_tags(schemes)}")
        if self.scale_mode not in modes:
            raise _quant_flaw("scale_mode", f"unknown mode {self.scale_mode}; {_tags(modes)}")
        if self.zp_mode not in (0, self.scale_mode):
            message = f"a zero point is absent (0) or has the scale's mode ({self.scale_mode}), not {self.zp_mode}"
            raise _quant_flaw("zp_mode", message)
        if SCHEMES[self.scheme] == "symmetric" and self.zp_mode:
            raise _quant_flaw("zp_mode", "a symmetric quantization has no zero point")
        if self.is_affine and self.scale_mode != PER_GROUP:
            raise _quant_flaw("scale_mode", "an affine quantization is per_group")
        if self.is_affine and not self.zp_mode:
            raise _quant_flaw("zp_mode", "an affine quantization has offsets")
        if self.scale_mode != PER_GROUP and self.reserved:
            raise _quant_flaw("reserved", f"reserved bits must be zero, not {self.reserved:#x}")
        if self.scale_mode == PER_GROUP and not self.reserved:
            raise _quant_flaw("reserved", "a group has at least 1 element, not 0")


class _QuantPlaces(NamedTuple):
    """The positions and types of scales and of zero points or offsets, and the end of the payload."""

    scales: int
    scale_type: np.dtype[Any]
    others: int
    other_type: np.dtype[Any]
    end: int


def _places(header: _QuantHeader, read: Callable[[int, int], bytes], nbytes: int) -> _QuantPlaces:
    scales = QUANT_HEADER.size
    scale_type: np.dtype[Any] = np.dtype(np.float32)
    if header.scale_mode == PER_GROUP:
        scales += GROUP_HEADER.size
        if nbytes < scales:
            message = f"groups need at least {counted(scales, 'byte')}, but quant_nbytes is {nbytes}"
            raise Flaw(Code.BAD_QUANTIZATION, message, "quant_nbytes", None, 8)
        tag, reserved = GROUP_HEADER.unpack(read(QUANT_HEADER.size, GROUP_HEADER.size))
        if DTYPE_BY_TAG.get(tag) not in GROUP_DTYPES:
            raise _quant_flaw("scale_dtype", f"{tag} is not the tag of f32, f16 or bf16")
        if reserved:
            raise _quant_flaw("group_reserved", f"reserved bits must be zero, not {reserved:#x}")
        scale_type = np.dtype(DTYPE_BY_TAG[tag].array)
    other_type = scale_type if header.is_affine else np.dtype(np.int32)
    others = scales + scale_type.itemsize * header.scale_count
    return _QuantPlaces(scales, scale_type, others, other_type, align(others + other_type.itemsize * header.zp_count))


def _quant_params(header: _QuantHeader, place: _QuantPlaces, payload: bytes) -> QuantParams:
    axis = None if header.scale_mode == PER_TENSOR else header.scale_axis
    scales = np.frombuffer(payload, place.scale_type, header.scale_count, place.scales)
    others = np.frombuffer(payload, place.other_type, header.zp_count, place.others)
    _require_finite("scale", scales, place.scales, is_positive=header.group is None)
    bad = first_non_zero(payload[place.others + others.nbytes :])
    if bad is not None:
        at = place.others + others.nbytes + bad
        raise Flaw(Code.NON_ZERO_PADDING, "padding bytes must be zero", "padding", at, 1)
    scale = QuantScale(axis, scales, header.group)
    if header.is_affine:
        assert axis is not None
        assert header.group is not None
        _require_finite("offset", others, place.others, is_positive=False)
        return QuantParams("affine", scale, None, QuantOffset(axis, others, header.group))
    zero_point = QuantZeroPoint(axis, others, header.group) if header.zp_mode else None
    return QuantParams(SCHEMES[header.scheme], scale, zero_point)


def _require_finite(what: str, values: npt.NDArray[Any], start: int, *, is_positive: bool) -> None:
    good = np.isfinite(values)
    if is_positive:
        good &= values > 0
    if good.all():
        return
    at, itemsize = int(np.argmin(good)), values.dtype.itemsize
    message = f"{what} {at} is {values[at]}; {what}s are finite{' and greater than zero' if is_positive else ''}"
    raise Flaw(Code.BAD_QUANTIZATION, message, f"{what}[{at}]", start + itemsize * at, itemsize)


def _tags(names: dict[int, Any]) -> str:
    (first, called), *rest = names.items()
    return ", ".join([f"{first} is {called}", *(f"{tag} {name}" for tag, name in rest)])


def _require_channels(prefix: str, header: _QuantHeader, axis: int, count: int, shape: tuple[int, ...]) -> None:
    if header.scale_mode == PER_TENSOR:
        if axis:
            raise _quant_flaw(f"{prefix}_axis", f"per_tensor parameters have axis 0, not {axis}")
        if count != 1:
            raise _quant_flaw(f"{prefix}_count", f"per_tensor parameters have count 1, not {count}")
        return
    if axis >= len(shape):
        raise _quant_flaw(f"{prefix}_axis", f"axis {axis} is outside a tensor of {counted(len(shape), 'dimension')}")
    if header.group is not None:
        groups = prod(group_shape(shape, axis, header.group))
        if count != groups:
            raise _quant_flaw(f"{prefix}_count", f"axis {axis} has {counted(groups, 'group')}, not {count}")
    elif count != shape[axis]:
        raise _quant_flaw(f"{prefix}_count", f"axis {axis} has {shape[axis]} channels, not {count}")


def _quant_flaw(field: str, message: str) -> Flaw:
    return Flaw(Code.BAD_QUANTIZATION, message, field, *_QUANT_FIELDS[field])
