"""Turns entries into the bytes of a model file, one blob at a time.

The layout depends on names, types and shapes alone; payloads are produced when they are written. Equal entries give
equal bytes, in whatever order they arrive.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, OinfError, counted
from openinfer.oinf.layout import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    METADATA_FIELDS,
    NAME,
    TAG_OF_DTYPE,
    TENSOR_ALIGNMENT,
    U32,
    U64,
    TensorFlags,
    align,
    string_bytes,
    tensor_fields,
)
from openinfer.oinf.metadata import MetadataValue
from openinfer.tensor import MAX_DIMS, storage_bytes

ProgressCallback = Callable[[str, int], None]
"""Called with the name of a tensor and the number of its bytes just written."""

_ZEROS = bytes(TENSOR_ALIGNMENT)
_WRITTEN = (1, 2)
"""The versions that can be requested."""


class Blob(Protocol):
    """A payload whose size is known before its bytes."""

    @property
    def nbytes(self) -> int:
        """The number of bytes that ``chunks`` yields."""

    def chunks(self) -> Iterator[Any]:
        """The bytes, in chunks."""


@dataclass(frozen=True)
class Held:
    """A payload that is already in memory."""

    data: Any

    @property
    def nbytes(self) -> int:
        """The size of the buffer."""
        return memoryview(self.data).nbytes

    def chunks(self) -> Iterator[Any]:
        """The whole buffer."""
        yield self.data


@dataclass(frozen=True)
class TensorEntry:
    """A tensor to be written. ``data`` is None for a tensor that is only declared."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: Blob | None
    quant: Blob | None = None
    has_groups: bool = False
    """Whether each group has a scale, which files support from version 3 on."""


@dataclass(frozen=True)
class Package:
    """The contents of a model file, checked and in file order."""

    sizevars: dict[str, int]
    metadata: dict[str, MetadataValue]
    tensors: tuple[TensorEntry, ...]
    version: int

    @classmethod
    def of(
        cls,
        sizevars: Mapping[str, int],
        metadata: Mapping[str, MetadataValue],
        tensors: Iterable[TensorEntry],
        version: int = 2,
    ) -> "Package":
        """Check and sort the entries. Version 2 becomes 3 if a tensor is quantized in groups."""
        entries = list(tensors)
        for name in (*sizevars, *metadata, *(tensor.name for tensor in entries)):
            require_name(name)
        ordered = tuple(sorted(entries, key=lambda tensor: tensor.name))
        _require_version(version, ordered)
        sizes = {name: size_value(name, value) for name, value in sizevars.items()}
        for first, second in pairwise(ordered):
            if first.name == second.name:
                raise duplicate_name("tensor", first.name)
        for tensor in ordered:
            _require_shape(tensor)
        if any(tensor.has_groups for tensor in ordered):
            version = 3
        return cls(dict(sorted(sizes.items())), dict(sorted(metadata.items())), ordered, version)

    def write(self, write: Callable[[Any], None], progress: ProgressCallback | None = None) -> None:
        """Pass the bytes of the file to ``write``, in order."""
        plan = _Layout(self)
        for piece in plan.tables():
            write(piece)
        position = plan.offset_data
        for offset, blob, name in plan.blobs:
            write(_ZEROS[: offset - position])
            position = offset
            for chunk in blob.chunks():
                size = memoryview(chunk).nbytes
                position += size
                write(chunk)
                if progress is not None:
                    progress(name, size)
            if position != offset + blob.nbytes:
                message = (
                    f"the data of {name!r} has {counted(position - offset, 'byte')}, not the {blob.nbytes} announced"
                )
                raise OinfError(Diagnostic(Code.SIZE_MISMATCH, message))

    def to_bytes(self) -> bytes:
        """The whole file in memory."""
        pieces = bytearray()
        self.write(pieces.extend)
        return bytes(pieces)


class _Layout:
    """The offsets of everything in the file."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.blobs: list[tuple[int, Blob, str]] = []
        tail = 16 if package.version == 1 else 32
        self.offset_metadata = HEADER_BYTES + sum(string_bytes(len(name)) + U64.size for name in package.sizevars)
        self.offset_tensors = self.offset_metadata + sum(
            string_bytes(len(name)) + METADATA_FIELDS.size for name in package.metadata
        )
        self.tables_end = self.offset_tensors + sum(
            string_bytes(len(tensor.name)) + 12 + 8 * len(tensor.shape) + tail for tensor in package.tensors
        )
        self.offset_data = align(self.tables_end)
        self._end = self.offset_data

    def _place(self, blob: Blob, name: str, boundary: int) -> int:
        offset = align(self._end, boundary)
        self.blobs.append((offset, blob, name))
        self._end = offset + blob.nbytes
        return offset

    def tables(self) -> Sequence[bytes]:
        """The header and the three tables."""
        package = self.package
        sizevars = [_string(name) + U64.pack(value) for name, value in package.sizevars.items()]
        metadata = [self._metadata_row(name, value) for name, value in package.metadata.items()]
        tensors = [self._tensor_row(tensor) for tensor in package.tensors]
        header = HEADER.pack(
            MAGIC,
            package.version,
            0,
            len(sizevars),
            len(metadata),
            len(tensors),
            0,
            HEADER_BYTES,
            self.offset_metadata,
            self.offset_tensors,
            self.offset_data,
            self._end,
        )
        padding = _ZEROS[: self.offset_data - self.tables_end]
        return [header.ljust(HEADER_BYTES, b"\0"), b"".join([*sizevars, *metadata, *tensors, padding])]

    def _metadata_row(self, name: str, value: MetadataValue) -> bytes:
        offset = self._place(Held(value.payload), name, 8)
        return _string(name) + METADATA_FIELDS.pack(value.tag, 0, len(value.payload), offset)

    def _tensor_row(self, tensor: TensorEntry) -> bytes:
        flags = 0
        data = quant = (0, 0)
        if tensor.data is not None:
            flags |= TensorFlags.HAS_DATA
            data = (tensor.data.nbytes, self._place(tensor.data, tensor.name, TENSOR_ALIGNMENT))
        if tensor.quant is not None:
            flags |= TensorFlags.HAS_QUANT
            quant = (tensor.quant.nbytes, self._place(tensor.quant, tensor.name, 8))
        fields = tensor_fields(len(tensor.shape), self.package.version)
        tail = data if self.package.version == 1 else data + quant
        row = fields.pack(TAG_OF_DTYPE[tensor.dtype], len(tensor.shape), flags, *tensor.shape, *tail)
        return _string(tensor.name) + row


def _string(name: str) -> bytes:
    return (U32.pack(len(name)) + name.encode("ascii")).ljust(string_bytes(len(name)), b"\0")


def require_name(name: object) -> None:
    """Reject a name that the format cannot hold."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise OinfError(
            Diagnostic(
                Code.BAD_NAME,
                f"{name!r:.300} cannot be a name",
                help="names have 1 to 255 of the characters A-Z a-z 0-9 . _ -",
            )
        )


def size_value(name: str, value: object) -> int:
    """The value of a size variable; rejects what the format cannot hold."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= value < 1 << 64:
        return int(value)
    message = f"size variable {name!r} must be an integer from 0 to 2**64 - 1, not {value!r:.100}"
    raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, message))


def duplicate_name(what: str, name: str) -> OinfError:
    """The error for a name that is given twice."""
    return OinfError(Diagnostic(Code.DUPLICATE_NAME, f"the {what} name {name!r} is given twice"))


def _require_version(version: int, tensors: tuple[TensorEntry, ...]) -> None:
    if type(version) is not int or version not in _WRITTEN:
        message = f"cannot write version {version!r}"
        raise OinfError(Diagnostic(Code.VERSION_CANNOT_HOLD, message, help="write version 2, or version 1"))
    quantized = [tensor.name for tensor in tensors if tensor.quant is not None]
    if version == 1 and quantized:
        message = f"version 1 files cannot hold quantization, which tensor {quantized[0]!r} carries"
        raise OinfError(Diagnostic(Code.VERSION_CANNOT_HOLD, message, help="write version 2"))


def _require_shape(tensor: TensorEntry) -> None:
    if len(tensor.shape) > MAX_DIMS:
        message = f"tensor {tensor.name!r} has {counted(len(tensor.shape), 'dimension')}, more than {MAX_DIMS}"
        raise OinfError(Diagnostic(Code.TOO_MANY_DIMS, message))
    if any(extent < 0 for extent in tensor.shape):
        message = f"tensor {tensor.name!r} has a negative extent in {list(tensor.shape)}"
        raise OinfError(Diagnostic(Code.BAD_AUTHORING_VALUE, message))
    nbytes = storage_bytes(tensor.dtype, tensor.shape)
    if nbytes is None:
        message = f"tensor {tensor.name!r} with shape {list(tensor.shape)} is larger than any machine can hold"
        raise OinfError(Diagnostic(Code.SHAPE_OVERFLOW, message))
    if tensor.data is not None and tensor.data.nbytes != nbytes:
        message = f"tensor {tensor.name!r} needs {counted(nbytes, 'byte')}, but its data has {tensor.data.nbytes}"
        raise OinfError(Diagnostic(Code.SIZE_MISMATCH, message))
