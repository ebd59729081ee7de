"""Decodes tensors of ONNX files: raw bytes, typed fields, or files beside the model."""

import os
import stat
from math import prod
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.importing.onnx_model import OnnxTensor
from openinfer.tensor import MAX_DIMS

ELEMENT_TYPES = {
    1: "f32",
    2: "u8",
    3: "i8",
    4: "u16",
    5: "i16",
    6: "i32",
    7: "i64",
    9: "bool",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    16: "bf16",
    19: "f8",
    21: "u4",
    22: "i4",
    25: "u2",
    26: "i2",
}
"""The element types of ONNX that are dtypes here. Strings, complex numbers and the other 8-bit floats are not."""
_TYPE_WORDS = {8: "strings", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz"}
_INT32_FIELD = {"i32", "i16", "i8", "i4", "i2", "u16", "u8", "u4", "u2", "bool", "f16", "bf16", "f8"}


class TensorRefusal(Exception):  # noqa: N818  (becomes a diagnostic where the location is known)
    """A tensor that cannot be read: the reason, and advice."""

    def __init__(self, reason: str, advice: str | None = None) -> None:
        super().__init__(reason)
        self.advice = advice


class TensorReader:
    """Reads the tensors of one model, whose external data is in ``folder``."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, proto: Any) -> OnnxTensor:
        """Read a tensor; its size is checked against the bytes in the file before anything is allocated."""
        name = ELEMENT_TYPES.get(proto.data_type)
        if name is None:
            word = _TYPE_WORDS.get(proto.data_type, f"element type {proto.data_type}")
            raise TensorRefusal(f"{word} has no dtype here", "cast it to another type before exporting")
        dtype, shape = DTYPES[name], tuple(int(one) for one in proto.dims)
        if len(shape) > MAX_DIMS or any(extent < 0 for extent in shape):
            raise TensorRefusal(f"its shape is {list(shape)[:20]}")
        if proto.HasField("raw_data"):
            return OnnxTensor(dtype, _from_bytes(np.frombuffer(proto.raw_data, np.uint8), dtype, shape))
        if proto.data_location == proto.EXTERNAL:
            return OnnxTensor(dtype, _from_bytes(self._external(proto, dtype.nbytes(prod(shape))), dtype, shape))
        return OnnxTensor(dtype, _from_fields(proto, dtype, shape))

    def dense(self, values: OnnxTensor, indices: OnnxTensor, shape: tuple[int, ...]) -> OnnxTensor:
        """A sparse tensor filled up with zeros, up to a limited size."""
        count = prod(shape)
        if len(shape) > MAX_DIMS or any(extent < 0 for extent in shape) or count > (1 << 24):
            raise TensorRefusal(f"its shape is {list(shape)[:20]}")
        places = indices.array.astype(np.int64)
        if places.ndim == 2 and places.shape[1] == len(shape):
            places = np.ravel_multi_index(tuple(places.T), shape) if _inside(places, shape) else np.array([-1])
        if places.ndim != 1 or len(places) != values.array.size or np.any((places < 0) | (places >= count)):
            raise TensorRefusal("its indices do not fit its shape")
        found = np.zeros(count, values.dtype.array)
        found[places] = values.array.reshape(-1)
        return OnnxTensor(values.dtype, found.reshape(shape))

    def _external(self, proto: Any, nbytes: int) -> Array:
        facts = {one.key: one.value for one in proto.external_data}
        location = facts.get("location", "")
        path = os.path.realpath(os.path.join(self._folder, location))
        if not location or not _is_within(path, os.path.realpath(self._folder)) or os.path.isabs(location):
            raise TensorRefusal(f"its data is in {location!r}, outside the folder of the model", "move it there")
        try:
            offset, length = (int(facts.get(key) or default) for key, default in (("offset", 0), ("length", nbytes)))
            status = os.stat(path)
        except (OSError, ValueError) as error:
            raise TensorRefusal(f"its data cannot be read from {location!r}") from error
        if not stat.S_ISREG(status.st_mode) or offset < 0 or length != nbytes or offset + nbytes > status.st_size:
            raise TensorRefusal(f"it needs {nbytes} bytes at {offset}, and {location!r} does not have them there")
        return np.memmap(path, np.uint8, "r", offset, nbytes) if nbytes else np.zeros(0, np.uint8)


def _inside(places: Array, shape: tuple[int, ...]) -> bool:
    return bool(np.all((places >= 0) & (places < np.asarray(shape))))


def _is_within(path: str, folder: str) -> bool:
    return os.path.commonpath([path, folder]) == folder


def _from_bytes(data: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = prod(shape)
    if data.size != dtype.nbytes(count):
        raise TensorRefusal(f"{dtype.name}{list(shape)} needs {dtype.nbytes(count)} bytes, but has {data.size}")
    if dtype.is_packed:
        return _unpacked(data, dtype, count).reshape(shape)
    return data.view(dtype.array).reshape(shape)


def _unpacked(data: Array, dtype: DType, count: int) -> Array:
    """Unpack elements, the first of which is in the lowest bits."""
    per_byte, mask = 8 // dtype.bits, (1 << dtype.bits) - 1
    codes = (data[:, None] >> (np.arange(per_byte, dtype=np.uint8) * dtype.bits)) & mask
    codes = codes.reshape(-1)[:count].astype(np.int8)
    if dtype.kind == "int":
        half = 1 << (dtype.bits - 1)
        codes = (codes ^ half) - half
    return codes.astype(dtype.array)


def _from_fields(proto: Any, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Elements in the typed fields of the message."""
    count = prod(shape)
    if dtype.name in _INT32_FIELD:
        values = np.asarray(proto.int32_data, np.int32)
    else:
        field = {"f32": "float_data", "f64": "double_data", "i64": "int64_data"}.get(dtype.name, "uint64_data")
        values = np.asarray(getattr(proto, field), np.uint64 if field == "uint64_data" else dtype.array)
    if dtype.is_packed and values.size == -(-count * dtype.bits // 8):
        return _unpacked(values.astype(np.uint8), dtype, count).reshape(shape)
    if values.size != count:
        raise TensorRefusal(f"{dtype.name}{list(shape)} needs {count} elements, but has {values.size}")
    if dtype.kind == "float" and dtype.bits < 32:
        return values.astype(f"u{dtype.itemsize}").view(dtype.array).reshape(shape)
    return values.astype(dtype.array).reshape(shape)
