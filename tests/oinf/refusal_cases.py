"""Every refusal that OINF.md asks for, as one bad file each: what is wrong with it, and where.

The expected place comes from the independent layout model, not from the reader.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.oinf.corpus import array, f32, scalar, tensor, text
from tests.oinf.layout_model import (
    BITSET,
    TAG,
    Document,
    Image,
    MetadataRow,
    SizeVarRow,
    Style,
    TensorRow,
    bitset,
    quant,
)
from tests.oinf.mutants import with_file_size

from openinfer import Code


@dataclass(frozen=True)
class Case:
    """A bad file and the refusal it must meet. ``sentence`` quotes OINF.md and says which variant this is."""

    sentence: str
    data: bytes
    code: Code
    field: str
    offset: int
    entry: str | None = None


def base(version: int = 2) -> Document:
    """A well-formed document with one entry of each kind that a refusal needs."""
    quantized = quant(2, [0.5, 1.5], [3, -4], axis=0), quant(1, [0.25])
    return Document(
        version,
        [SizeVarRow(b"B.batch.size", 4), SizeVarRow(b"D", 8)],
        [
            MetadataRow(b"active", TAG["bool"], b"\1"),
            array("grid", "bool", [3]),
            MetadataRow(b"mask", BITSET, bitset([1, 0] * 5)),
            text("mode", "clamp_up!"),
            array("packed", "t2", [3]),
            scalar("rate", "f32"),
        ],
        [
            tensor("Q", "i8", [2, 3], quantized[0] if version > 1 else None),
            tensor("S", "i8", [2], quantized[1] if version > 1 else None),
            TensorRow(b"U", TAG["f32"], [3], None),
            tensor("W", "f32", [2, 2]),
        ],
    )


IMAGE = Image(base().to_bytes())
OLD_IMAGE = Image(base(version=1).to_bytes())
Change = tuple[str, int | bytes]


def _set(
    sentence: str, code: Code, field: str, *changes: Change, at: str | None = None, entry: str | None = None
) -> Case:
    """A case made by changing fields of the base file; the refusal points at ``at``, by default the field itself."""
    return Case(sentence, IMAGE.with_values(*changes), code, field, IMAGE.at(at or field), entry)


def header_cases() -> Iterator[Case]:
    """Short file to file_size."""
    for size in (0, 1, 5, 71):
        yield Case(f"short file ({size} bytes)", IMAGE.data[:size], Code.SHORT_FILE, "header", 0)
    for magic in (b"OINF1", b"oinf\0", b"\0\0\0\0\0"):
        yield _set(f"bad magic ({magic!r})", Code.BAD_MAGIC, "magic", ("magic", magic))
    for version in (0, 4, 2**32 - 1):
        yield _set(f"unknown version ({version})", Code.UNKNOWN_VERSION, "version", ("version", version))
    yield _set("unknown flags or reserved bits (flags)", Code.RESERVED_BITS, "flags", ("flags", 1))
    yield _set("unknown flags or reserved bits (reserved)", Code.RESERVED_BITS, "reserved", ("reserved", 2**31))
    for table in ("sizevars", "metadata", "tensors"):
        count = IMAGE.number(f"n_{table}")
        for claim in (2 * count, 2**32 - 1):
            sentence = f"counts that cannot fit the remaining bytes (n_{table} {claim})"
            yield _set(sentence, Code.IMPOSSIBLE_COUNT, f"n_{table}", (f"n_{table}", claim))
    size = len(IMAGE.data)
    for claim in (0, size - 1, size + 1, 2**64 - 1):
        sentence = f"declared file_size is not the real size ({claim})"
        yield _set(sentence, Code.FILE_SIZE_MISMATCH, "file_size", ("file_size", claim))
    for label, data in (("cut", IMAGE.data[:-1]), ("appended", IMAGE.data + bytes(8))):
        sentence = f"declared file_size is not the real size ({label})"
        yield Case(sentence, data, Code.FILE_SIZE_MISMATCH, "file_size", IMAGE.at("file_size"))


def section_cases() -> Iterator[Case]:
    """Offsets that are misaligned, descending, inside the header or past the end."""
    past = len(IMAGE.data) // 8 * 8 + 8
    for name in ("sizevars", "metadata", "tensors", "data"):
        field = f"offset_{name}"
        wrong = {
            "misaligned": IMAGE.number(field) + 4,
            "inside the header": 64,
            "zero": 0,
            "past the end": past,
            "far past the end": 2**64 - 8,
        }
        for label, offset in wrong.items():
            sentence = f"offsets that are {label} ({field})"
            yield _set(sentence, Code.BAD_SECTION_OFFSET, field, (field, offset))
    for first, second in (("sizevars", "metadata"), ("metadata", "tensors"), ("tensors", "data")):
        sentence = f"offsets that are descending (offset_{second})"
        lower = IMAGE.number(f"offset_{first}") - 8
        yield _set(sentence, Code.BAD_SECTION_OFFSET, f"offset_{second}", (f"offset_{second}", lower))


def string_cases() -> Iterator[Case]:
    """Strings that run past their table, are empty, over-long or outside the character set; duplicate names."""
    for table, last in (("sizevars", 1), ("metadata", 5), ("tensors", 3)):
        name = f"{table}[{last}].name"
        sentence = f"strings that run past their table ({table})"
        yield _set(sentence, Code.TABLE_OVERRUN, f"{table}[{last}]", (f"{name}.length", 255), at=f"{name}.length")
        for label, length in (("empty", 0), ("over-long", 256), ("over-long", 2**32 - 1)):
            sentence = f"strings that are {label} ({table}, {length})"
            yield _set(sentence, Code.BAD_NAME, name, (f"{name}.length", length), at=f"{name}.length")
        for character in (b"/", b" ", b"\0", b"\n", b"\xe9", b"\x7f"):
            sentence = f"strings outside the character set ({table}, {character!r})"
            yield _set(sentence, Code.BAD_NAME, name, (f"{name}.bytes", character), at=f"{name}.bytes")
    for at, entry in (("metadata[3]", "mask"), ("metadata[5]", "mode"), ("tensors[3]", "Q")):
        name, change = f"{at}.name", (f"{at}.name.bytes", entry.encode())
        sentence = f"duplicate names ({at} is another {entry})"
        yield _set(sentence, Code.DUPLICATE_NAME, name, change, at=f"{name}.bytes", entry=entry)
    yield _duplicate_sizevars()
    yield from _overruns()


def _duplicate_sizevars() -> Case:
    document = base()
    document.sizevars[1].name = document.sizevars[0].name
    image = Image(document.to_bytes())
    at = image.at("sizevars[1].name.bytes")
    sentence = "duplicate names (sizevars 0 and 1)"
    return Case(sentence, image.data, Code.DUPLICATE_NAME, "sizevars[1].name", at, "B.batch.size")


def _overruns() -> Iterator[Case]:
    lower = IMAGE.number("offset_metadata") - 8
    yield _set(
        "entries that run past their table (sizevars value)",
        Code.TABLE_OVERRUN,
        "sizevars[1]",
        ("offset_metadata", lower),
        at="sizevars[1].value",
        entry="D",
    )
    yield _set(
        "entries that run past their table (tensor with 16 dims)",
        Code.TABLE_OVERRUN,
        "tensors[3]",
        ("tensors[3].ndim", 16),
        at="tensors[3].dtype",
        entry="W",
    )


def type_cases() -> Iterator[Case]:
    """Unknown dtype, reserved bits of entries, ndim, dims and sizes."""
    for tag in (0, 13, 14, 15, 26, 2**32 - 1):
        sentence = f"unknown dtype (tensor, {tag})"
        yield _set(sentence, Code.UNKNOWN_TYPE_TAG, "tensors[3].dtype", ("tensors[3].dtype", tag), entry="W")
        field = "metadata[1].element_type"
        yield _set(f"unknown dtype (array, {tag})", Code.UNKNOWN_TYPE_TAG, field, (field, tag), entry="grid")
    for tag in (0, 26, 2**32 - 1):
        field = "metadata[5].value_type"
        yield _set(f"unknown dtype (metadata, {tag})", Code.UNKNOWN_TYPE_TAG, field, (field, tag), entry="rate")
    for flags in (4 | 1, 2**31 | 1):
        sentence = f"unknown flags or reserved bits (tensor, {flags:#x})"
        yield _set(sentence, Code.RESERVED_BITS, "tensors[3].flags", ("tensors[3].flags", flags), entry="W")
    sentence = "unknown flags or reserved bits (HAS_QUANT in version 1)"
    old = OLD_IMAGE.with_values(("tensors[3].flags", 3))
    yield Case(sentence, old, Code.RESERVED_BITS, "tensors[3].flags", OLD_IMAGE.at("tensors[3].flags"), "W")
    sentence = "unknown flags or reserved bits (metadata)"
    yield _set(sentence, Code.RESERVED_BITS, "metadata[1].flags", ("metadata[1].flags", 1), entry="grid")
    for ndim in (17, 2**32 - 1):
        yield _set(f"ndim > 16 ({ndim})", Code.TOO_MANY_DIMS, "tensors[0].ndim", ("tensors[0].ndim", ndim), entry="Q")
        field = "metadata[1].ndim"
        yield _set(f"ndim > 16 (array, {ndim})", Code.TOO_MANY_DIMS, field, (field, ndim), entry="grid")
    yield from _shape_cases()


def _shape_cases() -> Iterator[Case]:
    shapes = {
        "overflows": (2**32, 2**32),
        "overflows 2**64 bytes": (2**62, 1),
        "wraps to the real size": (2**63 + 2, 2),
        "is wrapped by a zero dim": (2**63, 0),
        "is wrapped by a leading zero dim": (0, 2**64 - 1),
    }
    for label, (rows, columns) in shapes.items():
        changes = (("tensors[3].dims[0]", rows), ("tensors[3].dims[1]", columns))
        sentence = f"a dims product that {label} ({rows}, {columns})"
        yield _set(sentence, Code.SHAPE_OVERFLOW, "tensors[3].dims", *changes, at="tensors[3].dims[0]", entry="W")
    for extent in (2**60, 2**64 - 1):
        sentence = f"a dims product that overflows (array, {extent})"
        change = ("metadata[1].dims[0]", extent)
        yield _set(sentence, Code.SHAPE_OVERFLOW, "metadata[1].dims", change, at="metadata[1].dims[0]", entry="grid")
    for claim in (0, 15, 17, 24, 2**64 - 1):
        field = "tensors[3].data_nbytes"
        yield _set(f"nbytes is not the computed size ({claim})", Code.SIZE_MISMATCH, field, (field, claim), entry="W")
    sentence = "nbytes is not the computed size (dims changed)"
    yield _set(sentence, Code.SIZE_MISMATCH, "tensors[3].data_nbytes", ("tensors[3].dims[1]", 3), entry="W")
    for at, name, claims in (
        (0, "active", (0, 2)),
        (1, "grid", (0, 4, 8, 12, 16)),
        (2, "mask", (0, 8)),
        (3, "mode", (0, 8)),
    ):
        field = f"metadata[{at}].nbytes"
        for claim in claims:
            sentence = f"nbytes is not the computed size (metadata {name}, {claim})"
            yield _set(sentence, Code.SIZE_MISMATCH, field, (field, claim), entry=name)
    for part in ("nbytes", "offset"):
        field = f"tensors[2].data_{part}"
        yield _set(f"declared but uninitialized: {part} is 0", Code.SIZE_MISMATCH, field, (field, 64), entry="U")


def blob_cases() -> Iterator[Case]:
    """Blobs that overlap, are misaligned or point into the tables or past the end."""
    claims = (("metadata[1].offset", "grid"), ("tensors[3].data_offset", "W"), ("tensors[0].quant_offset", "Q"))
    for field, entry in claims:
        wrong = {
            "misaligned": IMAGE.number(field) + 4,
            "at the start of the file": 0,
            "into the header": 64,
            "into the tables": IMAGE.number("offset_data") - 8,
            "past the end": len(IMAGE.data) // 8 * 8,
            "far past the end": 2**64 - 8,
            "beyond 2**63": 2**63,
        }
        for label, offset in wrong.items():
            sentence = f"blobs that are misaligned or point into the tables ({field} {label})"
            yield _set(sentence, Code.BAD_BLOB_OFFSET, field, (field, offset), entry=entry)
    for over in ("tensors[0].data", "tensors[0].quant.scale_axis", "metadata[1].dims[0]"):
        change = ("tensors[3].data_offset", IMAGE.at(over))
        yield _set(f"blobs that overlap (W over {over})", Code.OVERLAPPING_BLOBS, change[0], change, entry="W")
    yield from _shared_blobs()
    yield from _past_the_end()


def _past_the_end() -> Iterator[Case]:
    image = Image(Document(2, [], [], [tensor("w", "u8", [9])]).to_bytes())
    field = "tensors[0].data_offset"
    for extent in (10, 16, 17):
        data = image.with_values(("tensors[0].dims[0]", extent), ("tensors[0].data_nbytes", extent))
        sentence = f"blobs that run past the end ({extent - 9} bytes)"
        yield Case(sentence, data, Code.BAD_BLOB_OFFSET, field, image.at(field), "w")


def _shared_blobs() -> Iterator[Case]:
    twins = Document(
        2, [], [text("a", "same"), text("b", "same")], [tensor(name, "i8", [2], quant(1, [0.5])) for name in "CD"]
    )
    image = Image(twins.to_bytes())
    for part, first, second in (
        ("offset", "metadata[0]", "metadata[1]"),
        ("data_offset", "tensors[0]", "tensors[1]"),
        ("quant_offset", "tensors[0]", "tensors[1]"),
    ):
        field = f"{second}.{part}"
        data = image.with_values((field, image.number(f"{first}.{part}")))
        entry = "b" if part == "offset" else "D"
        yield Case(
            f"blobs that overlap (one blob, two {part}s)", data, Code.OVERLAPPING_BLOBS, field, image.at(field), entry
        )


def padding_cases() -> Iterator[Case]:
    """Non-zero padding, wherever padding can be."""
    yield _set("non-zero padding (header)", Code.NON_ZERO_PADDING, "padding", ("padding", b"\1"))
    for name, entry in (("sizevars[1]", "D"), ("metadata[0]", "active"), ("tensors[3]", "W")):
        change = (f"{name}.name.padding", b"\1")
        at = f"{name}.name.padding"
        yield _set(
            f"non-zero padding (name, {name})", Code.NON_ZERO_PADDING, f"{name}.name", change, at=at, entry=entry
        )
    for field, at, entry in (
        ("metadata[1].padding", "metadata[1].padding", "grid"),
        ("metadata[2].padding", "metadata[2].padding", "mask"),
        ("metadata[3].padding", "metadata[3].text.padding", "mode"),
        ("tensors[1].quant.padding", "tensors[1].quant.padding", "S"),
    ):
        yield _set(
            f"non-zero padding (payload, {field})", Code.NON_ZERO_PADDING, field, (at, b"\1"), at=at, entry=entry
        )
    loose = Image(base().to_bytes(Style(section_gap=16, blob_gap=8)))
    gaps = {
        "padding": 72 + 5,
        "sizevars.padding": loose.number("offset_metadata") - 3,
        "metadata.padding": loose.number("offset_tensors") - 16,
        "tensors.padding": loose.number("offset_data") - 1,
        "data.padding": loose.at("tensors[3].data") - 1,
    }
    for field, byte in gaps.items():
        data = loose.data[:byte] + b"\1" + loose.data[byte + 1 :]
        yield Case(f"non-zero padding (gap, {field})", data, Code.NON_ZERO_PADDING, field, byte)
    end = len(IMAGE.data)
    tail = with_file_size(IMAGE.data + bytes(3) + b"\1")
    yield Case("non-zero padding (end of file)", tail, Code.NON_ZERO_PADDING, "data.padding", end + 3)


def metadata_cases() -> Iterator[Case]:
    """Bool bytes, spare bits and characters in metadata payloads."""
    for byte in (2, 255):
        sentence = f"bool bytes other than 0/1 in metadata ({byte})"
        change = ("metadata[0].value", bytes([byte]))
        yield _set(sentence, Code.BAD_METADATA, "metadata[0].data", change, at="metadata[0].value", entry="active")
    start = IMAGE.at("metadata[1].data")
    data = IMAGE.with_values(("metadata[1].data", b"\0\1\2"))
    yield Case("bool bytes in NDARRAYs", data, Code.BAD_METADATA, "metadata[1].data", start + 2, "grid")
    bits = IMAGE.at("metadata[2].bits")
    data = IMAGE.with_values(("metadata[2].bits", b"\xff\x07"))
    yield Case("spare bits in bitsets", data, Code.BAD_METADATA, "metadata[2].bits", bits + 1, "mask")
    for count in (1, 3, 2**32 - 1):
        field = "metadata[2].byte_count"
        yield _set(f"bitset byte_count {count} for 10 bits", Code.BAD_METADATA, field, (field, count), entry="mask")
    for label, byte in (("spare bits", 0x40), ("the t2 code for -2", 0x02)):
        sentence = f"packed NDARRAYs with {label}"
        change = ("metadata[4].data", bytes([byte]))
        yield _set(sentence, Code.BAD_METADATA, "metadata[4].data", change, entry="packed")
    at = IMAGE.at("metadata[3].text.bytes")
    for character in (b"\0", b"\x1f", b"\x7f", b"\xff"):
        data = IMAGE.with_values(("metadata[3].text.bytes", b"clamp" + character))
        sentence = f"a metadata string value may use printable ASCII ({character!r})"
        yield Case(sentence, data, Code.BAD_METADATA, "metadata[3].text", at + 5, "mode")
    for length in (0, 13, 2**32 - 1):
        sentence = f"strings that run past their payload (length {length})"
        claim = ("metadata[3].text.length", length)
        yield _set(sentence, Code.SIZE_MISMATCH, "metadata[3].nbytes", claim, entry="mode")


def quant_cases() -> Iterator[Case]:
    """Quant axis, count and size mismatches; scales; modes."""
    wrong: dict[str, tuple[Change, ...]] = {
        "tensors[0].quant.scale_axis": (("scale_axis", 2), ("scale_axis", 2**64 - 1)),
        "tensors[0].quant.scale_count": (("scale_axis", 1), ("scale_count", 1), ("scale_count", 2**62)),
        "tensors[0].quant.zp_axis": (("zp_axis", 2),),
        "tensors[0].quant.zp_count": (("zp_axis", 1), ("zp_count", 0), ("zp_count", 2**64 - 1)),
        "tensors[0].quant.zp_mode": (("zp_mode", 1), ("zp_mode", 3), ("scheme", 1)),
        "tensors[0].quant.scale_mode": (("scale_mode", 0), ("scale_mode", 3)),
        "tensors[0].quant.scheme": (("scheme", 0), ("scheme", 3)),
        "tensors[0].quant.reserved": (("reserved", 1),),
        "tensors[1].quant.scale_axis": (("scale_axis", 1),),
        "tensors[1].quant.scale_count": (("scale_count", 0), ("scale_count", 2)),
        "tensors[1].quant.zp_axis": (("zp_axis", 1),),
        "tensors[1].quant.zp_count": (("zp_count", 1),),
    }
    for field, changes in wrong.items():
        part = field.rpartition(".")[0]
        for changed, value in changes:
            sentence = f"quant axis/count/size mismatch ({field}: {changed} = {value!r})"
            entry = "Q" if "[0]" in field else "S"
            yield _set(sentence, Code.BAD_QUANTIZATION, field, (f"{part}.{changed}", value), entry=entry)
    yield _other_zero_point_axis()
    for scale in (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.0):
        field = "tensors[0].quant.scale[1]"
        yield _set(f"finite positive scales ({scale})", Code.BAD_QUANTIZATION, field, (field, f32(scale)), entry="Q")
    for claim in (0, 8, 40, 56, 72):
        field = "tensors[0].quant_nbytes"
        yield _set(f"quant size mismatch ({claim})", Code.BAD_QUANTIZATION, field, (field, claim), entry="Q")
    for part in ("nbytes", "offset"):
        field = f"tensors[3].quant_{part}"
        sentence = f"a tensor without HAS_QUANT has quant_{part} 0"
        yield _set(sentence, Code.BAD_QUANTIZATION, field, (field, 64), entry="W")


def _other_zero_point_axis() -> Case:
    image = Image(Document(2, [], [], [tensor("Q", "i8", [2, 2], quant(2, [1.0, 2.0], [1, 2], axis=0))]).to_bytes())
    field = "tensors[0].quant.zp_axis"
    sentence = "a zero point has the scale's mode and axis"
    return Case(sentence, image.with_values((field, 1)), Code.BAD_QUANTIZATION, field, image.at(field), "Q")


def cases() -> list[Case]:
    """All of them."""
    groups = (header_cases, section_cases, string_cases, type_cases, blob_cases, padding_cases, metadata_cases)
    return [case for group in (*groups, quant_cases) for case in group()]
