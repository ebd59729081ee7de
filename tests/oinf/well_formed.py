"""Whether a file is well-formed, decided a second time from OINF.md alone.

Slow and plain: it looks at every byte. Mutants are judged by both this and the reader, and the two must agree, so that
neither a check that is missing in the reader nor one that is too strict goes unnoticed.
"""

import math
import re
import struct

from tests.oinf.layout_model import (
    BITS,
    BITSET,
    HAS_DATA,
    HAS_QUANT,
    HEADER_BYTES,
    MAGIC,
    NAME_OF_TAG,
    NDARRAY,
    STRING,
    Image,
    stored_bytes,
    up,
)

MOST_BYTES = 1 << 47
MOST_PADDING = 1 << 21
"""OINF.md says "overflows" and "padding" without a number; these two limits are taken from the reader."""
NAME = re.compile(rb"[A-Za-z0-9._-]{1,255}")
SECTIONS = ("sizevars", "metadata", "tensors", "data")


class MalformedError(Exception):
    """The first thing found wrong."""


def flaw(data: bytes) -> str | None:
    """What is wrong with a file, or None; tensor elements are not looked at."""
    try:
        _require(len(data) >= HEADER_BYTES, "short")
        _Check(Image(data)).everything()
    except (MalformedError, AssertionError, KeyError) as error:
        return repr(error)
    return None


def good_elements(tag: int, dims: list[int], stored: bytes) -> bool:
    """Whether stored elements are values of their type."""
    name, bits = NAME_OF_TAG[tag], BITS[tag]
    if name == "bool":
        return all(byte <= 1 for byte in stored)
    if bits >= 8:
        return True
    count = math.prod(dims)
    stream = int.from_bytes(stored, "little")
    codes = (stream >> at * bits & (1 << bits) - 1 for at in range(count))
    return stream >> count * bits == 0 and not (name == "t2" and 2 in codes)


def _require(condition: object, what: str) -> None:
    if not condition:
        raise MalformedError(what)


class _Check:
    def __init__(self, image: Image) -> None:
        self.image = image
        self.data = image.data
        self.number = image.number
        self.starts = [self.number(f"offset_{section}") for section in SECTIONS]
        self.claims: list[tuple[int, int]] = [(0, HEADER_BYTES)]

    def everything(self) -> None:
        self._header()
        for table in SECTIONS[:3]:
            names = []
            for at in range(self.number(f"n_{table}")):
                name = self.image.fields[f"{table}[{at}].name.bytes"].encoded()
                _require(NAME.fullmatch(name), "name")
                names.append(name)
            _require(len(set(names)) == len(names), "duplicate name")
        for at in range(self.number("n_sizevars")):
            self._in_table(0, f"sizevars[{at}]", ("value",))
        for at in range(self.number("n_metadata")):
            self._metadata(f"metadata[{at}]")
        for at in range(self.number("n_tensors")):
            self._tensor(f"tensors[{at}]")
        self._every_byte()

    def _header(self) -> None:
        _require(self.data.startswith(MAGIC), "magic")
        _require(self.number("version") in (1, 2), "version")
        _require(self.number("flags") == self.number("reserved") == 0, "reserved bits")
        _require(self.number("file_size") == len(self.data), "file_size")
        _require(all(start % 8 == 0 for start in self.starts), "section alignment")
        _require(
            [HEADER_BYTES, *self.starts, len(self.data)] == sorted([HEADER_BYTES, *self.starts, len(self.data)]),
            "order",
        )

    def _in_table(self, section: int, entry: str, fields: tuple[str, ...]) -> None:
        """The fields of an entry lie between its section's start and the next one's."""
        for name in ("name.length", "name.bytes", "name.padding", *fields):
            found = self.image.fields[f"{entry}.{name}"]
            _require(found.offset + found.width <= self.starts[section + 1], "table overrun")
            self.claims.append((found.offset, found.offset + found.width))

    def _blob(self, entry: str, part: str) -> tuple[int, int]:
        offset, nbytes = self.number(f"{entry}.{part}offset"), self.number(f"{entry}.{part}nbytes")
        _require(offset % 8 == 0 and offset >= self.starts[3] and offset + nbytes <= len(self.data), "blob")
        self.claims.append((offset, offset + nbytes))
        return offset, nbytes

    def _metadata(self, entry: str) -> None:
        self._in_table(1, entry, ("value_type", "flags", "nbytes", "offset"))
        _require(self.number(f"{entry}.flags") == 0, "metadata flags")
        _, nbytes = self._blob(entry, "")
        tag = self.number(f"{entry}.value_type")
        if tag == STRING:
            written = self.image.fields[f"{entry}.text.bytes"].encoded()
            _require(nbytes == up(4 + len(written)) and all(0x20 <= byte <= 0x7E for byte in written), "string")
        elif tag == BITSET:
            stored, count = self.image.fields[f"{entry}.bits"].encoded(), self.number(f"{entry}.bit_count")
            _require(len(stored) == (count + 7) // 8 and nbytes == up(8 + len(stored)), "bitset")
            _require(int.from_bytes(stored, "little") >> count == 0, "spare bits")
        elif tag == NDARRAY:
            kind, dims = self.number(f"{entry}.element_type"), self._dims(entry)
            self._shape(kind, dims)
            _require(nbytes == up(8 + 8 * len(dims) + stored_bytes(kind, dims)), "array size")
            _require(good_elements(kind, dims, self.image.fields[f"{entry}.data"].encoded()), "array elements")
        else:
            _require(nbytes == stored_bytes(tag, []), "scalar size")
            _require(good_elements(tag, [], self.image.fields[f"{entry}.value"].encoded()), "scalar")

    def _dims(self, entry: str) -> list[int]:
        return [self.number(f"{entry}.dims[{axis}]") for axis in range(self.number(f"{entry}.ndim"))]

    def _shape(self, tag: int, dims: list[int]) -> None:
        _require(len(dims) <= 16, "ndim")
        _require(math.prod(extent or 1 for extent in dims) * BITS[tag] <= 8 * MOST_BYTES, "overflow")

    def _tensor(self, entry: str) -> None:
        version, dims = self.number("version"), self._dims(entry)
        parts = ("data_", "quant_")[:version]
        sizes = tuple(part + what for part in parts for what in ("nbytes", "offset"))
        self._in_table(2, entry, ("dtype", "ndim", "flags", *(f"dims[{axis}]" for axis in range(len(dims))), *sizes))
        flags, tag = self.number(f"{entry}.flags"), self.number(f"{entry}.dtype")
        _require(flags >> version == 0, "tensor flags")
        self._shape(tag, dims)
        for bit, part in zip((HAS_DATA, HAS_QUANT), parts, strict=False):
            if not flags & bit:
                _require(self.number(f"{entry}.{part}nbytes") == self.number(f"{entry}.{part}offset") == 0, part)
        if flags & HAS_DATA:
            _require(self._blob(entry, "data_")[1] == stored_bytes(tag, dims), "data_nbytes")
        if flags & HAS_QUANT:
            self._quant(f"{entry}.quant", self._blob(entry, "quant_")[1], dims)

    def _quant(self, entry: str, nbytes: int, dims: list[int]) -> None:
        names = ("scheme", "scale_mode", "zp_mode", "reserved", "scale_axis", "scale_count", "zp_axis", "zp_count")
        scheme, mode, zp_mode, reserved, axis, count, zp_axis, zp_count = (self.number(f"{entry}.{n}") for n in names)
        _require(scheme in (1, 2) and mode in (1, 2) and zp_mode in (0, mode) and not reserved, "quant modes")
        _require(scheme == 2 or zp_mode == 0, "symmetric with zero point")
        if mode == 1:
            _require((axis, count) == (0, 1), "per tensor")
        else:
            _require(axis < len(dims) and count == dims[axis], "per channel")
        _require((zp_axis, zp_count) == ((axis, count) if zp_mode else (0, 0)), "zero point")
        _require(nbytes == up(48 + 4 * count + 4 * zp_count), "quant size")
        for at in range(count):
            (scale,) = struct.unpack("<f", self.image.fields[f"{entry}.scale[{at}]"].encoded())
            _require(math.isfinite(scale) and scale > 0, "scale")

    def _every_byte(self) -> None:
        """Every byte belongs to one claim or is padding, and all padding is zero."""
        end = 0
        for start, stop in sorted(claim for claim in self.claims if claim[0] < claim[1]):
            _require(start >= end, "overlap")
            self._zero(end, start)
            end = stop
        self._zero(end, len(self.data))
        for field in self.image.fields.values():
            if field.path.endswith("padding"):
                _require(not any(field.encoded()), "padding")

    def _zero(self, start: int, end: int) -> None:
        _require(end - start <= MOST_PADDING and not any(self.data[start:end]), "padding")
