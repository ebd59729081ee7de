"""safetensors files and sharded indexes, read without mapping so that memory stays flat.

The format is a length, a JSON header and the data. The header is checked completely here; the package that defines the
format maps the whole file, which counts against the memory of a small machine.
"""

import json
import os
from contextlib import ExitStack
from math import prod
from pathlib import PurePath
from typing import Annotated, Any

import ml_dtypes
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from openinfer.dtypes import DType, from_numpy_dtype
from openinfer.errors import ByteSpan, Code, Diagnostic, OinfError, counted
from openinfer.oinf.layout import U64
from openinfer.oinf.sources.tensor import SourceTensor, TensorSource, bad_weights, open_weights, read_elements
from openinfer.oinf.writer import FileSlice

MAX_HEADER_BYTES = 100_000_000
_Size = Annotated[int, Field(ge=0, lt=1 << 63)]
_ARRAY_TYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    dtype: str
    shape: Annotated[list[_Size], Field(max_length=64)]
    data_offsets: Annotated[list[_Size], Field(min_length=2, max_length=2)]


class _Index(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    weight_map: dict[str, str]


_HEADER = TypeAdapter(dict[str, _Entry])


def open_safetensors(path: str, resources: ExitStack) -> TensorSource:
    """The tensors of one safetensors file."""
    descriptor, size = open_weights(path, resources)
    start, header = _read_header(path, descriptor, size)
    entries = _parse_header(path, header)
    _require_tiling(path, entries, size - start)
    return TensorSource(path, [_tensor(path, descriptor, start, name, entry) for name, entry in entries.items()])


def open_index(path: str, resources: ExitStack) -> TensorSource:
    """The tensors of a model that an index spreads over several safetensors files."""
    descriptor, size = open_weights(path, resources)
    if size > MAX_HEADER_BYTES:
        raise bad_weights(path, f"an index of {counted(size, 'byte')} is too long")
    try:
        index = _Index.model_validate(_json(path, os.pread(descriptor, size, 0), 0))
    except ValidationError as error:
        raise bad_weights(path, _first_problem(error)) from error
    found: dict[str, SourceTensor] = {}
    for shard in sorted(set(index.weight_map.values())):
        if PurePath(shard).name != shard or shard in ("", ".."):
            raise bad_weights(path, f"the shard {shard!r} is not a plain file name")
        source = open_safetensors(os.path.join(os.path.dirname(path), shard), resources)
        found |= {tensor.name: tensor for tensor in source.tensors if index.weight_map.get(tensor.name) == shard}
    for name, shard in index.weight_map.items():
        if name not in found:
            raise bad_weights(path, f"tensor {name!r} is not in {shard!r}, where the index says it is")
    return TensorSource(path, [found[name] for name in sorted(found)])


def _read_header(path: str, descriptor: int, size: int) -> tuple[int, bytes]:
    if size < U64.size:
        raise bad_weights(path, f"{counted(size, 'byte')} are too few for a safetensors file")
    (length,) = U64.unpack(os.pread(descriptor, U64.size, 0))
    if length > min(MAX_HEADER_BYTES, size - U64.size):
        message = f"{path!r} cannot be read: the header claims {counted(length, 'byte')} of a file of {size}"
        raise OinfError(Diagnostic(Code.BAD_WEIGHTS_FILE, message, ByteSpan(path, "header_length", 0, U64.size)))
    return U64.size + length, os.pread(descriptor, length, U64.size)


def _parse_header(path: str, header: bytes) -> dict[str, _Entry]:
    document = _json(path, header, U64.size)
    if not isinstance(document, dict):
        raise bad_weights(path, "the header is not a JSON object")
    document.pop("__metadata__", None)
    try:
        return _HEADER.validate_python(document)
    except ValidationError as error:
        raise bad_weights(path, _first_problem(error)) from error


def _json(path: str, text: bytes, offset: int) -> Any:
    """Parse JSON, rejecting duplicate keys and runaway nesting."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except RecursionError as error:
        raise bad_weights(path, "the JSON is nested too deeply") from error
    except ValueError as error:
        at = offset + getattr(error, "pos", 0)
        message = f"{path!r} cannot be read: the JSON is wrong: {error}"
        raise OinfError(Diagnostic(Code.BAD_WEIGHTS_FILE, message, ByteSpan(path, "header", at))) from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            message = f"the key {key!r} occurs twice"
            raise ValueError(message)
        result[key] = value
    return result


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _require_tiling(path: str, entries: dict[str, _Entry], nbytes: int) -> None:
    """Check that tensors are contiguous and cover the data exactly."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        start, stop = entry.data_offsets
        if start != end or stop < start:
            raise bad_weights(path, f"tensor {name!r} claims bytes {start} to {stop}, but the data goes on at {end}")
        end = stop
    if end != nbytes:
        raise bad_weights(path, f"the tensors take {counted(end, 'byte')}, but there are {nbytes}")


def _tensor(path: str, descriptor: int, start: int, name: str, entry: _Entry) -> SourceTensor:
    array_type = _ARRAY_TYPES.get(entry.dtype)
    if array_type is None:
        return SourceTensor(name, entry.dtype, None, tuple(entry.shape), None)
    array_dtype: np.dtype[Any] = np.dtype(array_type)
    shape = tuple(entry.shape)
    nbytes = prod(shape) * array_dtype.itemsize
    begin, end = entry.data_offsets
    if end - begin != nbytes:
        raise bad_weights(path, f"tensor {name!r} has {counted(end - begin, 'byte')}, but its shape needs {nbytes}")
    dtype: DType | None = from_numpy_dtype(array_dtype)
    return SourceTensor(
        name,
        entry.dtype,
        dtype,
        shape,
        read_elements(descriptor, path, start + begin, array_dtype),
        FileSlice(descriptor, path, start + begin, nbytes) if dtype is not None and dtype.kind != "bool" else None,
    )
