"""A second, independent description of the .oinf format, written from OINF.md alone.

``Document`` is what a file says; ``Document.to_bytes`` lays it out. ``Image`` is the bytes of a well-formed file with
every field located, so that a test can change one field and knows at which byte a refusal must point. Must not import
anything of ``openinfer``.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

MAGIC = b"OINF\0"
HEADER_BYTES = 72
HAS_DATA, HAS_QUANT = 1, 2
BITSET, STRING, NDARRAY = 13, 14, 15

NAME_OF_TAG = {
    **dict(enumerate(("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bool"), start=1)),
    **dict(enumerate(("bf16", "f8", "i4", "i2", "i1", "u4", "u2", "u1", "t2", "t1"), start=16)),
}
TAG = {name: tag for tag, name in NAME_OF_TAG.items()}
BITS = {tag: 8 if name == "bool" else int(name.lstrip("bfiut")) for tag, name in NAME_OF_TAG.items()}

HEADER_FIELDS: tuple[tuple[str, int], ...] = (
    ("magic", 5),
    ("version", 4),
    ("flags", 4),
    ("n_sizevars", 4),
    ("n_metadata", 4),
    ("n_tensors", 4),
    ("reserved", 4),
    ("offset_sizevars", 8),
    ("offset_metadata", 8),
    ("offset_tensors", 8),
    ("offset_data", 8),
    ("file_size", 8),
    ("padding", 3),
)
QUANT_FIELDS: tuple[tuple[str, int], ...] = (
    ("scheme", 4),
    ("scale_mode", 4),
    ("zp_mode", 4),
    ("reserved", 4),
    ("scale_axis", 8),
    ("scale_count", 8),
    ("zp_axis", 8),
    ("zp_count", 8),
)


def up(position: int, boundary: int = 8) -> int:
    """The next multiple of ``boundary``."""
    return (position + boundary - 1) // boundary * boundary


def padded(payload: bytes) -> bytes:
    """Zero bytes appended up to a multiple of 8."""
    return payload.ljust(up(len(payload)), b"\0")


def stored_bytes(tag: int, dims: Sequence[int]) -> int:
    """The size of an array of this type and shape."""
    count = 1
    for extent in dims:
        count *= extent
    return (count * BITS[tag] + 7) // 8


def string(text: bytes) -> bytes:
    """A String: length, bytes, padding."""
    return padded(struct.pack("<I", len(text)) + text)


def bitset(bits: Sequence[int]) -> bytes:
    """A BITSET payload."""
    packed = bytearray((len(bits) + 7) // 8)
    for at, bit in enumerate(bits):
        packed[at // 8] |= bit << at % 8
    return padded(struct.pack("<II", len(bits), len(packed)) + packed)


def ndarray(tag: int, dims: Sequence[int], data: bytes) -> bytes:
    """An NDARRAY payload."""
    return padded(struct.pack(f"<II{len(dims)}Q", tag, len(dims), *dims) + data)


def quant(
    scheme: int,
    scales: Sequence[float],
    zero_points: Sequence[int] = (),
    axis: int | None = None,
    zp_mode: int | None = None,
) -> bytes:
    """A quantization payload; per channel where an axis is given."""
    mode = 1 if axis is None else 2
    with_zero = mode if zero_points else 0
    header = struct.pack(
        "<IIIIQQQQ",
        scheme,
        mode,
        with_zero if zp_mode is None else zp_mode,
        0,
        axis or 0,
        len(scales),
        (axis or 0) if with_zero or zp_mode else 0,
        len(zero_points),
    )
    return padded(header + struct.pack(f"<{len(scales)}f{len(zero_points)}i", *scales, *zero_points))


@dataclass
class SizeVarRow:
    """A size variable."""

    name: bytes
    value: int


@dataclass
class MetadataRow:
    """A metadata entry with its payload."""

    name: bytes
    tag: int
    payload: bytes
    flags: int = 0


@dataclass
class TensorRow:
    """A tensor entry with its payloads; None is what the file does not have."""

    name: bytes
    tag: int
    dims: list[int]
    data: bytes | None
    quant: bytes | None = None
    extra_flags: int = 0


@dataclass(frozen=True)
class Style:
    """How a writer lays out blobs and sections. The default is the canonical form."""

    alignment: int = 64
    reverse_blobs: bool = False
    section_gap: int = 0
    blob_gap: int = 0


CANONICAL = Style()


@dataclass
class Document:
    """What a model file says."""

    version: int = 2
    sizevars: list[SizeVarRow] = field(default_factory=list)
    metadata: list[MetadataRow] = field(default_factory=list)
    tensors: list[TensorRow] = field(default_factory=list)

    def to_bytes(self, style: Style = CANONICAL) -> bytes:
        """The file, entries in the order they have here."""
        sizes = (
            sum(len(string(row.name)) + 8 for row in self.sizevars),
            sum(len(string(row.name)) + 24 for row in self.metadata),
            sum(len(string(row.name)) + 12 + 8 * len(row.dims) + 16 * self.version for row in self.tensors),
        )
        starts = [HEADER_BYTES + style.section_gap]
        for size in sizes:
            starts.append(up(starts[-1] + size) + style.section_gap)
        placed, end = self._place(starts[3], style)
        tables = (
            b"".join(string(row.name) + struct.pack("<Q", row.value) for row in self.sizevars),
            b"".join(self._metadata_row(at, row, placed) for at, row in enumerate(self.metadata)),
            b"".join(self._tensor_row(at, row, placed) for at, row in enumerate(self.tensors)),
        )
        counts = (len(self.sizevars), len(self.metadata), len(self.tensors))
        out = bytearray(max(end, starts[3]))
        struct.pack_into("<5sIIIIIIQQQQQ", out, 0, MAGIC, self.version, 0, *counts, 0, *starts, len(out))
        for start, table in zip(starts, tables, strict=False):
            out[start : start + len(table)] = table
        for offset, payload in placed.values():
            out[offset : offset + len(payload)] = payload
        return bytes(out)

    def canonical(self) -> bytes:
        """The file as our writer must write it: sorted tables, 64-byte tensor alignment, blobs in table order."""
        ordered = Document(
            self.version,
            sorted(self.sizevars, key=lambda row: row.name),
            sorted(self.metadata, key=lambda row: row.name),
            sorted(self.tensors, key=lambda row: row.name),
        )
        return ordered.to_bytes()

    def _blobs(self, style: Style) -> Iterator[tuple[str, bytes, int]]:
        for at, entry in enumerate(self.metadata):
            yield f"metadata[{at}]", entry.payload, 8
        for at, row in enumerate(self.tensors):
            if row.data is not None:
                yield f"tensors[{at}].data", row.data, style.alignment
            if row.quant is not None and self.version > 1:
                yield f"tensors[{at}].quant", row.quant, 8

    def _place(self, start: int, style: Style) -> tuple[dict[str, tuple[int, bytes]], int]:
        placed: dict[str, tuple[int, bytes]] = {}
        end = start
        blobs = list(self._blobs(style))
        for path, payload, boundary in reversed(blobs) if style.reverse_blobs else blobs:
            offset = up(end + (style.blob_gap if placed else 0), boundary)
            placed[path] = (offset, payload)
            end = offset + len(payload)
        return placed, end

    def _metadata_row(self, at: int, row: MetadataRow, placed: dict[str, tuple[int, bytes]]) -> bytes:
        offset, payload = placed[f"metadata[{at}]"]
        return string(row.name) + struct.pack("<IIQQ", row.tag, row.flags, len(payload), offset)

    def _tensor_row(self, at: int, row: TensorRow, placed: dict[str, tuple[int, bytes]]) -> bytes:
        flags = row.extra_flags
        tail: list[int] = []
        for bit, part in ((HAS_DATA, "data"), (HAS_QUANT, "quant"))[: self.version]:
            offset, payload = placed.get(f"tensors[{at}].{part}", (0, None))
            flags |= 0 if payload is None else bit
            tail += [len(payload or b""), offset]
        fields = struct.pack(f"<III{len(row.dims)}Q", row.tag, len(row.dims), flags, *row.dims)
        return string(row.name) + fields + struct.pack(f"<{len(tail)}Q", *tail)


Kind = Literal["number", "bytes"]


@dataclass
class Field:
    """A field of a file: where it stands and what it holds."""

    path: str
    offset: int
    width: int
    kind: Kind
    value: int | bytes

    def encoded(self) -> bytes:
        """The bytes of the field; numbers wrap as they would in C."""
        if isinstance(self.value, bytes):
            return self.value
        return (self.value % (1 << 8 * self.width)).to_bytes(self.width, "little")


class Image:
    """A well-formed file with all of its fields, by path, in the order of the tables."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fields: dict[str, Field] = {}
        position = 0
        for name, width in HEADER_FIELDS:
            self._take(name, position, width, "bytes" if name in ("magic", "padding") else "number")
            position += width
        self.version = self.number("version")
        self._tables()

    def number(self, path: str) -> int:
        """The value of a numeric field."""
        value = self.fields[path].value
        assert isinstance(value, int)
        return value

    def at(self, path: str) -> int:
        """The byte at which a field starts."""
        return self.fields[path].offset

    def with_values(self, *changes: tuple[str, int | bytes]) -> bytes:
        """The file with some fields changed; bytes may be shorter or longer than the field and overwrite in place."""
        out = bytearray(self.data)
        for path, value in changes:
            old = self.fields[path]
            encoded = Field(path, old.offset, old.width, old.kind, value).encoded()
            out[old.offset : old.offset + len(encoded)] = encoded
        return bytes(out)

    def _take(self, path: str, offset: int, width: int, kind: Kind = "number") -> int:
        raw = self.data[offset : offset + width]
        assert len(raw) == width, f"{path} lies outside the file"
        assert path not in self.fields
        value: int | bytes = raw if kind == "bytes" else int.from_bytes(raw, "little")
        self.fields[path] = Field(path, offset, width, kind, value)
        return offset + width

    def _take_string(self, path: str, offset: int) -> int:
        start = self._take(f"{path}.length", offset, 4)
        end = self._take(f"{path}.bytes", start, self.number(f"{path}.length"), "bytes")
        return self._take(f"{path}.padding", end, offset + up(end - offset) - end, "bytes")

    def _tables(self) -> None:
        position = self.number("offset_sizevars")
        for at in range(self.number("n_sizevars")):
            position = self._take(f"sizevars[{at}].value", self._take_string(f"sizevars[{at}].name", position), 8)
        position = self.number("offset_metadata")
        for at in range(self.number("n_metadata")):
            position = self._metadata_entry(f"metadata[{at}]", position)
        position = self.number("offset_tensors")
        for at in range(self.number("n_tensors")):
            position = self._tensor_entry(f"tensors[{at}]", position)

    def _metadata_entry(self, entry: str, position: int) -> int:
        position = self._take_string(f"{entry}.name", position)
        for name, width in (("value_type", 4), ("flags", 4), ("nbytes", 8), ("offset", 8)):
            position = self._take(f"{entry}.{name}", position, width)
        tag, nbytes, offset = (self.number(f"{entry}.{name}") for name in ("value_type", "nbytes", "offset"))
        if tag == STRING:
            end = self._take_string(f"{entry}.text", offset)
        elif tag == BITSET:
            start = self._take(f"{entry}.byte_count", self._take(f"{entry}.bit_count", offset, 4), 4)
            end = self._take(f"{entry}.bits", start, self.number(f"{entry}.byte_count"), "bytes")
        elif tag == NDARRAY:
            end = self._ndarray(entry, offset)
        else:
            end = self._take(f"{entry}.value", offset, nbytes, "bytes")
        if tag in (BITSET, NDARRAY):
            self._take(f"{entry}.padding", end, offset + nbytes - end, "bytes")
        return position

    def _ndarray(self, entry: str, offset: int) -> int:
        position = self._take(f"{entry}.ndim", self._take(f"{entry}.element_type", offset, 4), 4)
        for axis in range(self.number(f"{entry}.ndim")):
            position = self._take(f"{entry}.dims[{axis}]", position, 8)
        dims = [self.number(f"{entry}.dims[{axis}]") for axis in range(self.number(f"{entry}.ndim"))]
        return self._take(f"{entry}.data", position, stored_bytes(self.number(f"{entry}.element_type"), dims), "bytes")

    def _tensor_entry(self, entry: str, position: int) -> int:
        position = self._take_string(f"{entry}.name", position)
        for name in ("dtype", "ndim", "flags"):
            position = self._take(f"{entry}.{name}", position, 4)
        for axis in range(self.number(f"{entry}.ndim")):
            position = self._take(f"{entry}.dims[{axis}]", position, 8)
        parts = ("data", "quant")[: self.version]
        for part in parts:
            position = self._take(f"{entry}.{part}_nbytes", position, 8)
            position = self._take(f"{entry}.{part}_offset", position, 8)
        flags = self.number(f"{entry}.flags")
        if flags & HAS_DATA:
            data = self.number(f"{entry}.data_offset"), self.number(f"{entry}.data_nbytes")
            self._take(f"{entry}.data", *data, "bytes")
        if flags & HAS_QUANT:
            self._quant(f"{entry}.quant", self.number(f"{entry}.quant_offset"), self.number(f"{entry}.quant_nbytes"))
        return position

    def _quant(self, entry: str, offset: int, nbytes: int) -> None:
        position = offset
        for name, width in QUANT_FIELDS:
            position = self._take(f"{entry}.{name}", position, width)
        for at in range(self.number(f"{entry}.scale_count")):
            position = self._take(f"{entry}.scale[{at}]", position, 4)
        for at in range(self.number(f"{entry}.zp_count")):
            position = self._take(f"{entry}.zero_point[{at}]", position, 4)
        self._take(f"{entry}.padding", position, offset + nbytes - position, "bytes")


def read_document(data: bytes) -> Document:
    """What a well-formed file says, wherever its blobs lie and in whatever order."""
    image = Image(data)
    fields = image.fields

    def name(entry: str) -> bytes:
        return fields[f"{entry}.name.bytes"].encoded()

    def blob(entry: str, part: str) -> bytes:
        offset = image.number(f"{entry}.{part}offset")
        return data[offset : offset + image.number(f"{entry}.{part}nbytes")]

    document = Document(image.version)
    for at in range(image.number("n_sizevars")):
        entry = f"sizevars[{at}]"
        document.sizevars.append(SizeVarRow(name(entry), image.number(f"{entry}.value")))
    for at in range(image.number("n_metadata")):
        entry = f"metadata[{at}]"
        document.metadata.append(MetadataRow(name(entry), image.number(f"{entry}.value_type"), blob(entry, "")))
    for at in range(image.number("n_tensors")):
        entry = f"tensors[{at}]"
        flags = image.number(f"{entry}.flags")
        document.tensors.append(
            TensorRow(
                name(entry),
                image.number(f"{entry}.dtype"),
                [image.number(f"{entry}.dims[{axis}]") for axis in range(image.number(f"{entry}.ndim"))],
                blob(entry, "data_") if flags & HAS_DATA else None,
                blob(entry, "quant_") if flags & HAS_QUANT else None,
            )
        )
    return document
