"""Parses the bytes of a file to its index, trusting nothing.

Order: the header, the three tables, then how the blobs that they claim lie in the file. Every length is compared with
what is left before it is used, so a lie costs neither memory nor time. No tensor payload is touched.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from openinfer.collection import collection_paused
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, OinfError, counted
from openinfer.oinf.file import ModelFile, byte_span
from openinfer.oinf.foreign import LOOKED_AT, recognised
from openinfer.oinf.layout import (
    ALIGNMENT,
    DTYPE_BY_TAG,
    HEADER,
    HEADER_BYTES,
    HEADER_FIELDS,
    MAGIC,
    MAX_NAME_BYTES,
    MAX_PADDING,
    METADATA_FIELDS,
    NAME,
    U32,
    U64,
    VERSIONS,
    TensorFlags,
    ValueType,
    string_bytes,
    tensor_fields,
)
from openinfer.oinf.payloads import Flaw, check_metadata, decode_quant, first_non_zero
from openinfer.oinf.quant import QuantParams
from openinfer.tensor import MAX_DIMS, storage_bytes

_SECTIONS = ("offset_sizevars", "offset_metadata", "offset_tensors", "offset_data")
_CONTAINER_TAGS = frozenset(ValueType)
_HAS_DATA, _HAS_QUANT = int(TensorFlags.HAS_DATA), int(TensorFlags.HAS_QUANT)
_LARGEST_ENTRY = string_bytes(MAX_NAME_BYTES) + tensor_fields(MAX_DIMS, 2).size
_is_name = NAME.fullmatch
_read_u32 = U32.unpack_from


class MetadataInfo(NamedTuple):
    """A row of the metadata table."""

    name: str
    tag: int
    type_name: str
    nbytes: int
    offset: int


class TensorInfo(NamedTuple):
    """A row of the tensor table; ``offset`` is None if the tensor is declared without data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    offset: int | None
    quant: QuantParams | None

    @property
    def has_data(self) -> bool:
        """Whether the file holds the tensor's values."""
        return self.offset is not None

    @property
    def type_text(self) -> str:
        """The type as the language writes it, such as ``f32[16, 32]`` (``f32`` for a scalar)."""
        return f"{self.dtype.name}[{', '.join(map(str, self.shape))}]" if self.shape else self.dtype.name


@dataclass(frozen=True)
class ModelIndex:
    """Everything in the header and the tables."""

    version: int
    sizevars: dict[str, int]
    metadata: dict[str, MetadataInfo]
    tensors: dict[str, TensorInfo]


_Blob = tuple[int, int, int, str, int, str, str]
"""A claimed range of the data section: start, end, position of the claim; table, index, field, name of the entry."""


def parse(file: ModelFile) -> ModelIndex:
    """Check a whole file except its tensor payloads, and return its index."""
    with collection_paused():
        return _Parser(file).index()


class _Parser:
    def __init__(self, file: ModelFile) -> None:
        self.file = file
        self.blobs: list[_Blob] = []

    def index(self) -> ModelIndex:
        self._header()
        self.bytes: Any = self.file.region(self.offsets[3])
        sizevars = self._sizevars()
        metadata = self._metadata()
        tensors = self._tensors()
        self._blob_layout()
        return ModelIndex(self.version, sizevars, metadata, tensors)

    def refuse(
        self,
        code: Code,
        message: str,
        field: str,
        at: tuple[int, int],
        entry: str | None = None,
        advice: str | None = None,
    ) -> NoReturn:
        span = byte_span(self.file, field, at[0], at[1], entry)
        raise OinfError(Diagnostic(code, message, span, help=advice))

    # --- header ---------------------------------------------------------------------------------------------------

    def _header(self) -> None:
        start = self.file.read(0, min(HEADER_BYTES, self.file.size))
        if not start.startswith(MAGIC[: len(start)]):
            shown = start[: len(MAGIC)].hex(" ")
            foreign = recognised(self.file.path, self.file.read(0, min(LOOKED_AT, self.file.size)))
            if foreign is not None:
                message = f"this is {foreign.name}, not an .oinf model"
                self._refuse_header(Code.BAD_MAGIC, message, "magic", foreign.advice)
            self._refuse_header(Code.BAD_MAGIC, f'the file starts with {shown}, not with "OINF\\0"', "magic")
        if len(start) < HEADER_BYTES:
            message = f"the file has {counted(len(start), 'byte')}, but a header takes {HEADER_BYTES}"
            self.refuse(Code.SHORT_FILE, message, "header", (0, len(start)))
        _, version, flags, *counts, reserved, o_sizevars, o_metadata, o_tensors, o_data, size = HEADER.unpack_from(
            start
        )
        if version not in VERSIONS:
            self._refuse_header(
                Code.UNKNOWN_VERSION, f"version {version} is unknown; 1, 2 and 3 can be read", "version"
            )
        if flags:
            self._refuse_header(Code.RESERVED_BITS, f"flags must be 0, not {flags:#x}", "flags")
        if reserved:
            self._refuse_header(Code.RESERVED_BITS, f"reserved must be 0, not {reserved:#x}", "reserved")
        if any(start[HEADER.size :]):
            self._refuse_header(Code.NON_ZERO_PADDING, "padding bytes must be zero", "padding")
        if size != self.file.size:
            self._refuse_header(
                Code.FILE_SIZE_MISMATCH,
                f"according to the header, the file has {counted(size, 'byte')}, but it has {self.file.size}",
                "file_size",
                "it was cut off or appended to; copy it again" if size else None,
            )
        self.version: int = version
        self.counts: list[int] = counts
        self.offsets = (o_sizevars, o_metadata, o_tensors, o_data)
        self._section_offsets()
        self._entry_counts()

    def _section_offsets(self) -> None:
        floor, floor_name = HEADER_BYTES, "the header's end"
        for field, offset in zip(_SECTIONS, self.offsets, strict=True):
            if offset % ALIGNMENT:
                self._refuse_header(Code.BAD_SECTION_OFFSET, f"{offset} is not a multiple of {ALIGNMENT}", field)
            if offset < floor:
                self._refuse_header(Code.BAD_SECTION_OFFSET, f"{offset} is before {floor_name} ({floor})", field)
            if offset > self.file.size:
                message = f"{offset} is past the end of the file ({self.file.size})"
                self._refuse_header(Code.BAD_SECTION_OFFSET, message, field)
            floor, floor_name = offset, field
        self._padding(HEADER_BYTES, self.offsets[0], "padding")

    def _entry_counts(self) -> None:
        tail = 16 if self.version == 1 else 32
        smallest = (string_bytes(1) + 8, string_bytes(1) + METADATA_FIELDS.size, string_bytes(1) + 12 + tail)
        for section, (table, count) in enumerate(zip(("sizevars", "metadata", "tensors"), self.counts, strict=True)):
            room = self.offsets[section + 1] - self.offsets[section]
            if count * smallest[section] > room:
                least = counted(count * smallest[section], "byte")
                message = f"{count} entries need at least {least}, but the table has {room}"
                self._refuse_header(Code.IMPOSSIBLE_COUNT, message, f"n_{table}")
            # The tables are copied in one piece, so a table must not be a place to hide a terabyte of nothing.
            if room > count * _LARGEST_ENTRY + MAX_PADDING:
                message = f"the table of {count} {table} before it cannot fill {counted(room, 'byte')}"
                self._refuse_header(Code.BAD_SECTION_OFFSET, message, _SECTIONS[section + 1])

    def _refuse_header(self, code: Code, message: str, field: str, advice: str | None = None) -> NoReturn:
        self.refuse(code, message, field, HEADER_FIELDS[field], advice=advice)

    # --- tables ---------------------------------------------------------------------------------------------------

    def _name(self, table: str, index: int, position: int, limit: int) -> tuple[str, int]:
        """The name at the start of an entry, and the position of the entry's fields."""
        if position + 8 > limit:
            self._overrun(table, index, position, limit)
        length = _read_u32(self.bytes, position)[0]
        if not 0 < length <= MAX_NAME_BYTES:
            message = f"a name has 1 to {MAX_NAME_BYTES} characters, not {length}"
            self.refuse(Code.BAD_NAME, message, f"{table}[{index}].name", (position, 4))
        fields: int = position + (length + 11 & ~7)
        if fields > limit:
            self._overrun(table, index, position, limit)
        stored = self.bytes[position + 4 : fields]
        name: str = stored.rstrip(b"\0").decode("latin-1")
        if len(name) != length or not _is_name(name):
            self._refuse_name(table, index, position + 4, stored, length)
        return name, fields

    def _refuse_name(self, table: str, index: int, start: int, stored: bytes, length: int) -> NoReturn:
        name = stored[:length].decode("latin-1")
        if not _is_name(name):
            message = f"the name {name!r} uses characters other than A-Z a-z 0-9 . _ -"
            self.refuse(Code.BAD_NAME, message, f"{table}[{index}].name", (start, length))
        at = (start + length, len(stored) - length)
        self.refuse(Code.NON_ZERO_PADDING, "padding bytes must be zero", f"{table}[{index}].name", at, name)

    def _sizevars(self) -> dict[str, int]:
        values: dict[str, int] = {}
        position, limit = self.offsets[0], self.offsets[1]
        for index in range(self.counts[0]):
            name, fields = self._name("sizevars", index, position, limit)
            position = fields + U64.size
            if position > limit:
                self._overrun("sizevars", index, fields, limit, name)
            if name in values:
                self._duplicate("sizevars", index, name, fields)
            values[name] = U64.unpack_from(self.bytes, fields)[0]
        self._padding(position, limit, "sizevars.padding")
        return values

    def _metadata(self) -> dict[str, MetadataInfo]:
        infos: dict[str, MetadataInfo] = {}
        position, limit = self.offsets[1], self.offsets[2]
        for index in range(self.counts[1]):
            name, fields = self._name("metadata", index, position, limit)
            position = fields + METADATA_FIELDS.size
            if position > limit:
                self._overrun("metadata", index, fields, limit, name)
            if name in infos:
                self._duplicate("metadata", index, name, fields)
            tag, flags, nbytes, offset = METADATA_FIELDS.unpack_from(self.bytes, fields)
            label = f"metadata[{index}]"
            if tag not in DTYPE_BY_TAG and tag not in _CONTAINER_TAGS:
                message = f"{tag} is not the tag of a value type"
                self.refuse(Code.UNKNOWN_TYPE_TAG, message, f"{label}.value_type", (fields, 4), name)
            if flags:
                message = f"flags must be 0, not {flags:#x}"
                self.refuse(Code.RESERVED_BITS, message, f"{label}.flags", (fields + 4, 4), name)
            self._claim(offset, nbytes, fields + 16, "metadata", index, "offset", name)
            type_name = self._metadata_type(tag, offset, nbytes, label, name, fields + 8)
            infos[name] = MetadataInfo(name, tag, type_name, nbytes, offset)
        self._padding(position, limit, "metadata.padding")
        return infos

    def _metadata_type(self, tag: int, offset: int, nbytes: int, label: str, name: str, claim: int) -> str:
        try:
            return check_metadata(tag, self.file.view(offset, nbytes))
        except Flaw as flaw:
            self.refuse(
                flaw.code,
                f"metadata {name!r}: {flaw.message}",
                f"{label}.{flaw.field}",
                (claim if flaw.at is None else offset + flaw.at, flaw.length),
                name,
            )

    def _tensors(self) -> dict[str, TensorInfo]:
        infos: dict[str, TensorInfo] = {}
        position, limit = self.offsets[2], self.offsets[3]
        for index in range(self.counts[2]):
            name, fields = self._name("tensors", index, position, limit)
            if fields + 12 > limit:
                self._overrun("tensors", index, fields, limit, name)
            ndim = _read_u32(self.bytes, fields + 4)[0]
            if ndim > MAX_DIMS:
                message = f"tensor {name!r} has {counted(ndim, 'dimension')}, more than {MAX_DIMS}"
                self.refuse(Code.TOO_MANY_DIMS, message, f"tensors[{index}].ndim", (fields + 4, 4), name)
            layout = tensor_fields(ndim, self.version)
            position = fields + layout.size
            if position > limit:
                self._overrun("tensors", index, fields, limit, name)
            if name in infos:
                self._duplicate("tensors", index, name, fields)
            infos[name] = self._tensor(index, name, fields, ndim, layout.unpack_from(self.bytes, fields))
        self._padding(position, limit, "tensors.padding")
        return infos

    def _tensor(self, index: int, name: str, fields: int, ndim: int, row: tuple[int, ...]) -> TensorInfo:
        tag, flags, shape = row[0], row[2], row[3 : 3 + ndim]
        nbytes, offset = row[3 + ndim], row[4 + ndim]
        dtype = DTYPE_BY_TAG.get(tag)
        if dtype is None:
            message = f"{tag} is not the tag of a tensor dtype"
            self.refuse(Code.UNKNOWN_TYPE_TAG, message, f"tensors[{index}].dtype", (fields, 4), name)
        if flags >> min(self.version, 2):
            message = f"flags {flags:#x} has bits that version {self.version} does not define"
            self.refuse(Code.RESERVED_BITS, message, f"tensors[{index}].flags", (fields + 8, 4), name)
        needed = storage_bytes(dtype, shape)
        if needed is None:
            message = f"tensor {name!r} claims the shape {list(shape)}, larger than any machine can hold"
            self.refuse(Code.SHAPE_OVERFLOW, message, f"tensors[{index}].dims", (fields + 12, 8 * ndim), name)
        sizes = fields + 12 + 8 * ndim
        if flags & _HAS_DATA:
            if nbytes != needed:
                message = (
                    f"tensor {name!r} needs {counted(needed, 'byte')} for {dtype.name}{list(shape)}, but has {nbytes}"
                )
                self.refuse(Code.SIZE_MISMATCH, message, f"tensors[{index}].data_nbytes", (sizes, 8), name)
            self._claim(offset, nbytes, sizes + 8, "tensors", index, "data_offset", name)
        elif nbytes or offset:
            field, at = ("data_nbytes", sizes) if nbytes else ("data_offset", sizes + 8)
            message = f"tensor {name!r} is declared without data, so {field} must be 0"
            self.refuse(Code.SIZE_MISMATCH, message, f"tensors[{index}].{field}", (at, 8), name)
        quant = None
        if self.version > 1 and (flags & _HAS_QUANT or row[5 + ndim] or row[6 + ndim]):
            quant = self._quant(index, name, flags, shape, sizes + 16)
        return TensorInfo._make((name, dtype, shape, needed, offset if flags & _HAS_DATA else None, quant))

    def _quant(self, index: int, name: str, flags: int, shape: tuple[int, ...], fields: int) -> QuantParams:
        nbytes = U64.unpack_from(self.bytes, fields)[0]
        offset = U64.unpack_from(self.bytes, fields + 8)[0]
        if not flags & _HAS_QUANT:
            field, at = ("quant_nbytes", fields) if nbytes else ("quant_offset", fields + 8)
            message = f"tensor {name!r} has no quantization, so {field} must be 0"
            self.refuse(Code.BAD_QUANTIZATION, message, f"tensors[{index}].{field}", (at, 8), name)
        self._claim(offset, nbytes, fields + 8, "tensors", index, "quant_offset", name)
        try:
            return decode_quant(lambda start, count: self.file.read(offset + start, count), nbytes, shape, self.version)
        except Flaw as flaw:
            self.refuse(
                flaw.code,
                f"tensor {name!r}: {flaw.message}",
                f"tensors[{index}].{flaw.field}" if flaw.at is None else f"tensors[{index}].quant.{flaw.field}",
                (fields if flaw.at is None else offset + flaw.at, flaw.length),
                name,
            )

    def _overrun(self, table: str, index: int, position: int, limit: int, entry: str | None = None) -> NoReturn:
        message = f"entry {index} runs past the end of its table (byte {limit})"
        at = (position, max(0, limit - position))
        self.refuse(Code.TABLE_OVERRUN, message, f"{table}[{index}]", at, entry)

    def _duplicate(self, table: str, index: int, name: str, fields: int) -> NoReturn:
        start = fields - string_bytes(len(name)) + U32.size
        message = f"the name {name!r} occurs twice"
        self.refuse(Code.DUPLICATE_NAME, message, f"{table}[{index}].name", (start, len(name)), name)

    # --- blobs ----------------------------------------------------------------------------------------------------

    def _claim(self, offset: int, nbytes: int, claim: int, table: str, index: int, field: str, entry: str) -> None:
        """Record that an entry owns a range of the data section, after a bounds check."""
        end = offset + nbytes
        if offset & 7 or offset < self.offsets[3] or end > self.file.size:
            if offset % ALIGNMENT:
                message = f"{offset} is not a multiple of {ALIGNMENT}"
            elif offset < self.offsets[3]:
                message = f"{offset} is before the data section ({self.offsets[3]})"
            else:
                message = f"{counted(nbytes, 'byte')} from {offset} run past the end of the file ({self.file.size})"
            self.refuse(Code.BAD_BLOB_OFFSET, message, f"{table}[{index}].{field}", (claim, 8), entry)
        self.blobs.append((offset, end, claim, table, index, field, entry))

    def _blob_layout(self) -> None:
        """Check that blobs do not overlap and that the bytes between them are zero."""
        end, owner = self.offsets[3], "the data section"
        for start, blob_end, claim, table, index, field, entry in sorted(self.blobs):
            if start == blob_end:
                continue
            if start < end:
                message = f"the bytes of {entry!r} overlap those of {owner!r}"
                self.refuse(Code.OVERLAPPING_BLOBS, message, f"{table}[{index}].{field}", (claim, 8), entry)
            if start > end:
                self._padding(end, start, "data.padding")
            end, owner = blob_end, entry
        self._padding(end, self.file.size, "data.padding")

    def _padding(self, start: int, end: int, field: str) -> None:
        if end - start > MAX_PADDING:
            message = f"{counted(end - start, 'byte')} belong to no entry; padding is at most {MAX_PADDING}"
            self.refuse(Code.NON_ZERO_PADDING, message, field, (start, end - start))
        bad = first_non_zero(self.file.read(start, end - start)) if end > start else None
        if bad is not None:
            self.refuse(Code.NON_ZERO_PADDING, "padding bytes must be zero", field, (start + bad, 1))
