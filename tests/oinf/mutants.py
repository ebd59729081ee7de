"""Structure-aware mutants of the seed files. The same seed and index always give the same mutant.

Four recipes: fields of a seed changed in place; a document changed so that it stays well-formed, laid out again, then
perhaps fields changed; a document changed so that it is not well-formed; bytes cut off or appended.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from tests.oinf.corpus import elements, seeds
from tests.oinf.layout_model import (
    NAME_OF_TAG,
    Document,
    Field,
    Image,
    MetadataRow,
    SizeVarRow,
    Style,
    TensorRow,
    read_document,
    string,
)

_SMALL = (0, 1, 2, 3, 7, 8, 12, 13, 15, 16, 17, 26, 64, 255, 256, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**47)
NUMBERS: tuple[int, ...] = (*_SMALL, 2**60, 2**61, 2**63 - 1, 2**63, 2**64 - 64, 2**64 - 8, 2**64 - 1)
STEPS = (-64, -8, -4, -1, 1, 4, 8, 64)
NAME_CHARACTERS = b"abcXYZ019._-"
FILE_SIZE_AT = 61


@dataclass(frozen=True)
class Mutant:
    """A file to be judged. ``valid`` says that it is well-formed by construction and must be accepted."""

    label: str
    data: bytes
    valid: bool = False


@cache
def _images() -> tuple[tuple[str, Image], ...]:
    return tuple((name, Image(data)) for name, data in seeds().items())


def mutant(seed: int, index: int) -> Mutant:
    """The mutant with this number."""
    rng = Random(seed << 40 | index)
    name, image = rng.choice(_images())
    recipe = rng.choices((_fields_changed, _rearranged, _malformed, _resized), (55, 20, 15, 10))[0]
    made = recipe(rng, image)
    return replace(made, label=f"{seed}:{index} {name}: {made.label}")


def truncations(name: str, step: int = 1) -> Iterator[Mutant]:
    """A seed cut off at every so many-th byte and at the last one, as it is and with a header that says so."""
    data = seeds()[name]
    for end in sorted({*range(0, len(data), step), len(data) - 1}):
        yield Mutant(f"{name} cut at {end}", data[:end])
        if end >= FILE_SIZE_AT + 8:
            yield Mutant(f"{name} cut at {end}, file_size repaired", with_file_size(data[:end]))


def with_file_size(data: bytes) -> bytes:
    """The file with a header that states its real size."""
    return data[:FILE_SIZE_AT] + len(data).to_bytes(8, "little") + data[FILE_SIZE_AT + 8 :]


# --- fields changed in place ----------------------------------------------------------------------------------------


def _fields_changed(rng: Random, image: Image) -> Mutant:
    changes = dict(_change(rng, image) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    if rng.random() < 0.1:
        changes |= _swap(rng, image)
    return Mutant(f"set {changes}", image.with_values(*changes.items()))


def _change(rng: Random, image: Image) -> tuple[str, int | bytes]:
    field = rng.choice([field for field in image.fields.values() if field.width])
    if isinstance(field.value, bytes):
        return field.path, _other_bytes(rng, field)
    choice = rng.randrange(11)
    if choice < 4:
        return field.path, rng.choice(NUMBERS)
    if choice < 7:
        return field.path, field.value + rng.choice(STEPS)
    if choice in (7, 10):
        return field.path, rng.choice(_like(image, field)).value
    if choice == 8:
        return field.path, field.value ^ 1 << rng.randrange(8 * field.width)
    return field.path, rng.choice((len(image.data), len(image.data) - 8, -field.value, rng.getrandbits(64)))


def _like(image: Image, field: Field) -> list[Field]:
    """The fields that mean the same in other entries, or where there are none, all numbers."""
    role = field.path.partition(".")[2] or field.path
    alike = [other for other in image.fields.values() if other.path.endswith(f".{role}") and other is not field]
    return alike or [other for other in image.fields.values() if other.kind == "number"]


def _other_bytes(rng: Random, field: Field) -> bytes:
    old = field.encoded()
    if rng.random() < 0.3:
        return rng.randbytes(len(old))
    changed = bytearray(old)
    for _ in range(rng.choice((1, 1, 2))):
        changed[rng.randrange(len(old))] = rng.choice((0, 1, 2, 0x20, 0x2F, 0x41, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def _swap(rng: Random, image: Image) -> dict[str, int | bytes]:
    first = rng.choice([field for field in image.fields.values() if field.width])
    second = rng.choice(
        [field for field in image.fields.values() if (field.width, field.kind) == (first.width, first.kind)]
    )
    return {first.path: second.value, second.path: first.value}


# --- documents laid out again ---------------------------------------------------------------------------------------


def _rearranged(rng: Random, image: Image) -> Mutant:
    document = read_document(image.data)
    steps = [rng.choice(_HARMLESS) for _ in range(rng.choice((1, 2, 3)))]
    for step in steps:
        step(rng, document)
    style = rng.choice(
        (Style(), Style(), Style(alignment=8), Style(reverse_blobs=True), Style(section_gap=8, blob_gap=16))
    )
    label = f"{[step.__name__ for step in steps]} {style}"
    data = document.to_bytes(style)
    if rng.random() < 0.5:
        return Mutant(label, data, valid=True)
    changed = _fields_changed(rng, Image(data))
    return Mutant(f"{label} then {changed.label}", changed.data)


def _malformed(rng: Random, image: Image) -> Mutant:
    document = read_document(image.data)
    steps = [rng.choice(_HARMFUL) for _ in range(rng.choice((1, 1, 2)))]
    for step in steps:
        step(rng, document)
    return Mutant(f"{[step.__name__ for step in steps]}", document.to_bytes(rng.choice((Style(), Style(alignment=8)))))


def _resized(rng: Random, image: Image) -> Mutant:
    data = image.data
    if rng.random() < 0.5:
        extra = rng.choice((1, 7, 8, 64, 4096))
        data += rng.choice((bytes(extra), rng.randbytes(extra)))
        label = f"{extra} bytes appended"
    else:
        end = rng.randrange(FILE_SIZE_AT + 8, len(data))
        data, label = data[:end], f"cut at {end}"
    if rng.random() < 0.7:
        return Mutant(f"{label}, file_size repaired", with_file_size(data))
    return Mutant(label, data)


def _rows(document: Document) -> list[SizeVarRow | MetadataRow | TensorRow]:
    return [*document.sizevars, *document.metadata, *document.tensors]


def shuffle_tables(rng: Random, document: Document) -> None:
    """Any order of entries is well-formed."""
    for table in (document.sizevars, document.metadata, document.tensors):
        rng.shuffle(table)


def rename(rng: Random, document: Document) -> None:
    """Give an entry another name that nobody has."""
    taken = {row.name for row in _rows(document)}
    name = bytes(rng.choice(NAME_CHARACTERS) for _ in range(rng.choice((1, 2, 4, 5, 12, 255))))
    if _rows(document) and name not in taken:
        rng.choice(_rows(document)).name = name


def remove_entry(rng: Random, document: Document) -> None:
    """Fewer entries are well-formed."""
    tables = [table for table in (document.sizevars, document.metadata, document.tensors) if table]
    if tables:
        table = rng.choice(tables)
        del table[rng.randrange(len(table))]


def add_sizevar(rng: Random, document: Document) -> None:
    """Any u64 is a size."""
    name = b"extra%d" % rng.randrange(1000)
    if name not in {row.name for row in document.sizevars}:
        document.sizevars.append(SizeVarRow(name, rng.choice(NUMBERS)))


def forget_data(rng: Random, document: Document) -> None:
    """Any tensor may be declared only."""
    if document.tensors:
        rng.choice(document.tensors).data = None


def other_type(rng: Random, document: Document) -> None:
    """Another dtype and shape, with elements to match and no quantization."""
    if document.tensors:
        row = rng.choice(document.tensors)
        row.tag = rng.choice(list(NAME_OF_TAG))
        row.dims = [rng.choice((0, 1, 2, 3, 9)) for _ in range(rng.randrange(5))]
        row.data, row.quant = elements(row.tag, row.dims, rng.randrange(9)), None


def without_quantization(rng: Random, document: Document) -> None:
    """Then version 1 can hold the tensors too."""
    for row in document.tensors:
        row.quant = None
    document.version = rng.choice((1, 2))


def same_name_twice(rng: Random, document: Document) -> None:
    """Two entries of any tables with one name: refused when they share a table."""
    if _rows(document):
        rng.choice(_rows(document)).name = rng.choice(_rows(document)).name


def bad_name(rng: Random, document: Document) -> None:
    """Names that are empty, too long, or hold other characters."""
    names = (b"", b"x" * 256, b"x" * 5000, b"a b", b"a/b", b"a\0b", b"\xff", b"a\n", rng.randbytes(6), "é".encode())
    if _rows(document):
        rng.choice(_rows(document)).name = rng.choice(names)


def other_dims(rng: Random, document: Document) -> None:
    """A shape that may not belong to the data."""
    if document.tensors:
        row = rng.choice(document.tensors)
        row.dims = [rng.choice(NUMBERS) for _ in range(rng.choice((0, 1, 2, 3, 16, 17, 40)))]


def other_tag(rng: Random, document: Document) -> None:
    """A type that may not belong to the payload."""
    typed: list[MetadataRow | TensorRow] = [*document.metadata, *document.tensors]
    if typed:
        rng.choice(typed).tag = rng.randrange(28)


def resize_payload(rng: Random, document: Document) -> None:
    """A few bytes more or fewer than the type needs."""

    def resized(payload: bytes) -> bytes:
        return rng.choice((payload[:-1], payload[:-8], payload + b"\0", payload + bytes(8), b"", payload + b"\1" * 8))

    if document.metadata:
        entry = rng.choice(document.metadata)
        entry.payload = resized(entry.payload)
    if document.tensors:
        row = rng.choice(document.tensors)
        row.data = resized(row.data or b"")
        row.quant = resized(row.quant) if row.quant is not None else None


def other_quantization(rng: Random, document: Document) -> None:
    """Parameters that may not fit the tensor."""
    if document.tensors:
        row = rng.choice(document.tensors)
        row.quant = rng.choice(document.tensors).quant or string(rng.randbytes(rng.choice((0, 4, 60))))


def other_flags(rng: Random, document: Document) -> None:
    """Flag bits that are not defined, or that promise what is not there."""
    flagged: list[MetadataRow | TensorRow] = [*document.metadata, *document.tensors]
    if flagged:
        row = rng.choice(flagged)
        flags = rng.choice((1, 2, 3, 4, 8, 2**31))
        if isinstance(row, MetadataRow):
            row.flags = flags
        else:
            row.extra_flags = flags


_Step = Callable[[Random, Document], None]
_HARMLESS: tuple[_Step, ...] = (
    shuffle_tables,
    rename,
    remove_entry,
    add_sizevar,
    forget_data,
    other_type,
    without_quantization,
)
_HARMFUL: tuple[_Step, ...] = (
    same_name_twice,
    bad_name,
    other_dims,
    other_tag,
    resize_payload,
    other_quantization,
    other_flags,
)
