"""Parses GGUF files into plain records. The file is hostile: every length is checked against the bytes left.

The format is small enough to parse by hand, which bounds time and memory; the usual reader maps the file and trusts
its counts. Tensor data is read one tensor at a time, on demand.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from math import prod
from typing import Any, NoReturn

import numpy as np

from openinfer.dtypes import Bytes
from openinfer.errors import counted, printable
from openinfer.importing.problems import bad_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_MOST_ENTRIES = 1 << 16
"""The most metadata entries, and the most tensors."""
_MOST_STRINGS = 1 << 22
"""The most strings in all arrays together."""
_MOST_TEXT = 1 << 24
"""The most bytes in a string."""
_MOST_DIMS = 4
_ALIGNMENT = "general.alignment"
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}

MetadataEntry = bool | int | float | str | np.ndarray[Any, Any] | tuple[bytes, ...]
"""A number, a string, an array of numbers, or the undecoded strings of an array."""


@dataclass(frozen=True)
class TensorFormat:
    """How elements are stored: the number of elements per block, and its size in bytes."""

    name: str
    elements: int
    nbytes: int


FORMATS = {
    0: TensorFormat("F32", 1, 4),
    1: TensorFormat("F16", 1, 2),
    2: TensorFormat("Q4_0", 32, 18),
    3: TensorFormat("Q4_1", 32, 20),
    6: TensorFormat("Q5_0", 32, 22),
    7: TensorFormat("Q5_1", 32, 24),
    8: TensorFormat("Q8_0", 32, 34),
    12: TensorFormat("Q4_K", 256, 144),
    13: TensorFormat("Q5_K", 256, 176),
    14: TensorFormat("Q6_K", 256, 210),
    30: TensorFormat("BF16", 1, 2),
}
"""The formats that can be imported, by tag."""
OTHERS = {
    9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
"""Formats known by name only."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file; the first extent belongs to the slowest index."""

    name: str
    shape: tuple[int, ...]
    tag: int
    offset: int
    """Relative to the start of the tensor data."""

    @property
    def format(self) -> TensorFormat | None:
        """The storage format, if it can be imported."""
        return FORMATS.get(self.tag)

    @property
    def format_name(self) -> str:
        """The name of the format, or its tag."""
        known = self.format
        return known.name if known is not None else OTHERS.get(self.tag, f"type {self.tag}")

    @property
    def nbytes(self) -> int:
        """The size in bytes; 0 if the format is unknown."""
        known = self.format
        return 0 if known is None else prod(self.shape) // known.elements * known.nbytes


class GgufFile:
    """An open file: its metadata, its tensors, and the bytes of each."""

    def __init__(self, path: str) -> None:
        try:
            self._file = open(path, "rb")  # noqa: SIM115  (closed by ``close``)
        except (OSError, ValueError) as error:
            raise bad_file(path, getattr(error, "strerror", None) or "the path is not one") from error
        self.path = path
        try:
            found = _Reader(self._file, path)
            self.version = found.version
            self.metadata: Mapping[str, MetadataEntry] = found.metadata
            self.tensors: Mapping[str, GgufTensor] = {one.name: one for one in found.tensors}
            self._start = found.data_start
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> "GgufFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, tensor: GgufTensor) -> Bytes:
        """The bytes of a tensor."""
        try:
            self._file.seek(self._start + tensor.offset)
            data = self._file.read(tensor.nbytes)
        except OSError as error:
            raise bad_file(self.path, error.strerror or "it cannot be read") from error
        if len(data) != tensor.nbytes:
            raise bad_file(self.path, f"it ends within the tensor {printable(tensor.name)!r}")
        return np.frombuffer(data, np.uint8)


class _Reader:
    """Parses one file from its first byte to the start of the tensor data."""

    def __init__(self, file: BufferedReader, path: str) -> None:
        self._file, self._path = file, path
        self._strings = 0
        try:
            self._left = self._size = os.fstat(file.fileno()).st_size
            magic = file.read(4)
        except OSError as error:
            raise bad_file(path, error.strerror or "it cannot be read") from error
        self._left -= len(magic)
        if magic != MAGIC:
            raise bad_file(path, "it is not a GGUF model", "is it a .gguf file, and complete?")
        self.version = self._number("<I")
        if self.version not in VERSIONS:
            is_swapped = int.from_bytes(self.version.to_bytes(4, "little"), "big") in VERSIONS
            kind = "its numbers are big-endian" if is_swapped else f"its version is {self.version}"
            self._refuse(f"{kind}; only versions 2 and 3 can be read, little-endian", "convert it again with llama.cpp")
        tensors, entries = self._number("<Q"), self._number("<Q")
        self._require_count(entries, "metadata entries", 8 + 4 + 1)
        self._require_count(tensors, "tensors", 8 + 4 + 4 + 8)
        self.metadata = self._metadata(entries)
        self.tensors = self._tensors(tensors)
        self.data_start = self._data_start()
        self._require_places()

    def _refuse(self, reason: str, advice: str | None = None) -> NoReturn:
        raise bad_file(self._path, reason, advice)

    def _require_count(self, count: int, what: str, smallest: int) -> None:
        if count > _MOST_ENTRIES or count * smallest > self._left:
            self._refuse(f"it claims {count} {what}, more than it can have")

    def _bytes(self, count: int) -> bytes:
        if count > self._left:
            self._refuse(
                f"it ends too early: {counted(count, 'byte')} are expected {counted(self._left, 'byte')} before its end"
            )
        try:
            data = self._file.read(count)
        except OSError as error:
            raise bad_file(self._path, error.strerror or "it cannot be read") from error
        self._left -= count
        if len(data) != count:
            self._refuse("it was cut off while it was being read")
        return data

    def _number(self, layout: str) -> int:
        return int(struct.unpack(layout, self._bytes(struct.calcsize(layout)))[0])

    def _string(self) -> bytes:
        length = self._number("<Q")
        if length > _MOST_TEXT:
            self._refuse(f"it has a string of {length} bytes, more than {_MOST_TEXT}")
        return self._bytes(length)

    def _name(self, what: str) -> str:
        stored = self._string()
        if len(stored) > 1024:
            self._refuse(f"the name of {what} has {counted(len(stored), 'byte')}, more than 1024")
        try:
            return stored.decode()
        except UnicodeDecodeError:
            self._refuse(f"the name of {what} is not UTF-8")

    def _metadata(self, count: int) -> dict[str, MetadataEntry]:
        found: dict[str, MetadataEntry] = {}
        for place in range(count):
            key = self._name(f"metadata entry {place}")
            if key in found:
                self._refuse(f"the metadata entry {printable(key)!r} occurs twice")
            found[key] = self._value(key, self._number("<I"))
        return found

    def _value(self, key: str, kind: int) -> MetadataEntry:
        if kind == _STRING:
            return self._string().decode(errors="replace")
        if kind == _ARRAY:
            return self._array(key, self._number("<I"), self._number("<Q"))
        if kind == _BOOL:
            return self._bytes(1) != b"\0"
        if kind not in _SCALARS:
            self._refuse(f"the metadata entry {printable(key)!r} is of the unknown type {kind}")
        layout = np.dtype(_SCALARS[kind])
        value: bool | int | float = np.frombuffer(self._bytes(layout.itemsize), layout)[0].item()
        return value

    def _array(self, key: str, kind: int, count: int) -> MetadataEntry:
        if kind == _STRING:
            self._strings += count
            if self._strings > _MOST_STRINGS or 8 * count > self._left:
                self._refuse(f"the metadata entry {printable(key)!r} claims {count} strings, more than it can have")
            return tuple(self._string() for _ in range(count))
        layout = np.dtype("u1" if kind == _BOOL else _SCALARS[kind]) if kind == _BOOL or kind in _SCALARS else None
        if layout is None:
            self._refuse(f"the metadata entry {printable(key)!r} is an array of the unknown type {kind}")
        return np.frombuffer(self._bytes(layout.itemsize * count), layout)

    def _tensors(self, count: int) -> list[GgufTensor]:
        found: dict[str, GgufTensor] = {}
        for place in range(count):
            name = self._name(f"tensor {place}")
            if name in found:
                self._refuse(f"the tensor {printable(name)!r} occurs twice")
            dims = self._number("<I")
            if dims > _MOST_DIMS:
                self._refuse(f"the tensor {printable(name)!r} has {counted(dims, 'dimension')}, more than {_MOST_DIMS}")
            shape = tuple(self._number("<Q") for _ in range(dims))[::-1]
            tag, offset = self._number("<I"), self._number("<Q")
            tensor = GgufTensor(name, shape, tag, offset)
            self._require_blocks(tensor)
            found[name] = tensor
        return list(found.values())

    def _require_blocks(self, tensor: GgufTensor) -> None:
        """Check that a tensor is not empty, fits into the file, and has whole blocks along its last axis."""
        known, name = tensor.format, printable(tensor.name)
        if prod(tensor.shape) > self._size * 8 or 0 in tensor.shape:
            self._refuse(f"the tensor {name!r} claims the shape {list(tensor.shape)}, which the file cannot hold")
        if known is not None and (tensor.shape[-1] if tensor.shape else 1) % known.elements:
            self._refuse(f"the rows of the tensor {name!r} are not whole blocks of {known.elements}")

    def _data_start(self) -> int:
        alignment = self.metadata.get(_ALIGNMENT, 32)
        is_number = isinstance(alignment, int) and not isinstance(alignment, bool)
        if (
            not is_number
            or not isinstance(alignment, int)
            or not 1 <= alignment <= 1 << 20
            or alignment & (alignment - 1)
        ):
            self._refuse(f"{_ALIGNMENT} is a power of two, not {alignment!r:.40}")
        self._alignment = alignment
        return -(-(self._size - self._left) // alignment) * alignment

    def _require_places(self) -> None:
        """Check that tensors lie in the file, aligned and disjoint: the output is no larger than the input."""
        for one in self.tensors:
            if one.offset % self._alignment or self.data_start + one.offset + one.nbytes > self._size:
                self._refuse(f"the data of the tensor {printable(one.name)!r} is not in the file", "is it complete?")
        placed = sorted((one for one in self.tensors if one.nbytes), key=lambda one: one.offset)
        for first, second in pairwise(placed):
            if first.offset + first.nbytes > second.offset:
                names = f"{printable(first.name)!r} and {printable(second.name)!r}"
                self._refuse(f"the tensors {names} overlap")
