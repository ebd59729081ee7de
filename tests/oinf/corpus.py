"""The seed files: small, deterministic, together covering everything the format can say.

Built with the independent layout model, so that a mistake shared by our reader and writer does not hide in them.
"""

import struct
from functools import cache

import numpy as np
from tests.oinf.layout_model import (
    BITS,
    BITSET,
    NAME_OF_TAG,
    NDARRAY,
    STRING,
    TAG,
    Document,
    MetadataRow,
    SizeVarRow,
    Style,
    TensorRow,
    bitset,
    ndarray,
    quant,
    stored_bytes,
    string,
)


def elements(tag: int, dims: list[int], salt: int = 0) -> bytes:
    """Stored elements that the type allows, different from one another."""
    nbytes = stored_bytes(tag, dims)
    bits = BITS[tag]
    if NAME_OF_TAG[tag] == "bool":
        return bytes((at + salt) % 2 for at in range(nbytes))
    if bits >= 8:
        return bytes((at * 37 + 11 * salt + 5) % 120 for at in range(nbytes))
    count = int(np.prod(dims))
    stream = 0
    for at in range(count):
        code = (at * 5 + salt + 1) % (1 << bits)
        if NAME_OF_TAG[tag] == "t2" and code == 2:
            code = 3
        stream |= code << at * bits
    return stream.to_bytes(nbytes, "little")


def tensor(name: str, dtype: str, dims: list[int], quantization: bytes | None = None) -> TensorRow:
    """A tensor entry with data."""
    return TensorRow(name.encode(), TAG[dtype], dims, elements(TAG[dtype], dims, len(name)), quantization)


def scalar(name: str, dtype: str) -> MetadataRow:
    """A metadata scalar."""
    return MetadataRow(name.encode(), TAG[dtype], elements(TAG[dtype], [], len(name)))


def text(name: str, value: str) -> MetadataRow:
    """A metadata string."""
    return MetadataRow(name.encode(), STRING, string(value.encode()))


def bits(name: str, count: int) -> MetadataRow:
    """A metadata bitset."""
    return MetadataRow(name.encode(), BITSET, bitset([(at * at + count) % 3 % 2 for at in range(count)]))


def array(name: str, dtype: str, dims: list[int]) -> MetadataRow:
    """A metadata array."""
    return MetadataRow(name.encode(), NDARRAY, ndarray(TAG[dtype], dims, elements(TAG[dtype], dims)))


def _arrays() -> list[MetadataRow]:
    shapes = {
        "a0": ("f64", []),
        "b1": ("i32", [3]),
        "c.bool": ("bool", [2, 5]),
        "d.empty": ("f32", [2, 0, 3]),
        "e.i4": ("i4", [5]),
        "f.t2": ("t2", [3, 3]),
        "g.u1": ("u1", [11]),
        "h.bf16": ("bf16", [2, 2]),
        "i.u64": ("u64", [1, 1, 1, 2]),
        "j.t1.empty": ("t1", [0]),
        "k.f8": ("f8", [7]),
    }
    return [array(name, dtype, dims) for name, (dtype, dims) in shapes.items()]


def _quantized() -> list[TensorRow]:
    return [
        tensor("a.sym", "i8", [2, 3], quant(1, [0.5])),
        tensor("b.asym.none", "u8", [4], quant(2, [0.25])),
        tensor("c.asym", "u8", [2, 2], quant(2, [0.125], [-7])),
        tensor("d.sym.channel", "i4", [3, 2], quant(1, [0.5, 1.5, 2.5], axis=0)),
        tensor("e.asym.channel", "u4", [2, 3], quant(2, [1.0, 2.0, 3e-40], [1, -(2**31), 2**31 - 1], axis=1)),
        tensor("f.channel.none", "i16", [1, 2], quant(2, [3.0, 3.4e38], axis=1)),
        tensor("g.no.channels", "i8", [0, 2], quant(1, [], axis=0)),
        tensor("h.no.channels.zp", "i8", [0], quant(2, [], [], axis=0, zp_mode=2)),
        tensor("i.scalar", "i32", [], quant(1, [1.0])),
    ]


def _uninitialized() -> list[TensorRow]:
    return [
        TensorRow(b"a", TAG["f32"], [4, 4], None),
        TensorRow(b"b", TAG["i8"], [2, 3], None, quant(2, [0.5, 1.0], [1, 2], axis=0)),
        TensorRow(b"c", TAG["f64"], [], None),
        TensorRow(b"d", TAG["t2"], [0, 9], None),
        TensorRow(b"e", TAG["u1"], [2**40], None, quant(1, [0.5])),
    ]


def _mixed() -> Document:
    return Document(
        2,
        [SizeVarRow(b"B", 4), SizeVarRow(b"D", 2**64 - 1), SizeVarRow(b"same", 0)],
        [
            scalar("act.scale", "f32"),
            bits("mask", 10),
            text("mode", "clamp_up"),
            text("same", ""),
            array("z", "u2", [3]),
        ],
        [
            tensor("W.0", "f32", [2, 2]),
            tensor("W.1", "i4", [3, 3], quant(1, [0.5, 0.25, 0.75], axis=1)),
            TensorRow(b"cache", TAG["f16"], [8, 2], None),
            tensor("same", "bool", [3]),
        ],
    )


def _shuffled(document: Document) -> Document:
    return Document(
        document.version,
        document.sizevars[::-1],
        document.metadata[::-1],
        document.tensors[1::2] + document.tensors[::2],
    )


def mlp() -> Document:
    """The model of the documentation's authoring example."""
    rng = np.random.default_rng(1)
    values = {
        "w1": rng.normal(size=(16, 32)).astype(np.float32),
        "b1": rng.normal(size=(32,)).astype(np.float32),
        "w2": rng.normal(size=(32, 8)).astype(np.float32),
        "b2": rng.normal(size=(8,)).astype(np.float32),
    }
    sizes = {"B": 4, "D": 16, "H": 32, "O": 8}
    rows = [
        TensorRow(name.encode(), TAG["f32"], list(values[name].shape), values[name].tobytes())
        for name in sorted(values)
    ]
    return Document(2, [SizeVarRow(name.encode(), size) for name, size in sizes.items()], [], rows)


@cache
def documents() -> dict[str, Document]:
    """Every seed that is in canonical form, by name."""
    every = sorted(NAME_OF_TAG.values())
    long_name = "N" * 255
    return {
        "empty": Document(),
        "empty-v1": Document(1),
        "sizevars": Document(2, [SizeVarRow(b"A", 0), SizeVarRow(b"B.c-d_e", 7), SizeVarRow(b"Z", 2**63)]),
        "metadata-scalars": Document(2, [], [scalar(f"m.{dtype}", dtype) for dtype in every]),
        "metadata-texts": Document(
            2, [], [text("a", ""), text("b", "x"), text("c", "four"), text("d", bytes(range(0x20, 0x7F)).decode())]
        ),
        "metadata-bitsets": Document(2, [], [bits(f"b{count:02}", count) for count in (0, 1, 7, 8, 9, 64, 70)]),
        "metadata-arrays": Document(2, [], _arrays()),
        "tensors-every-dtype": Document(2, [], [], [tensor(f"t.{dtype}", dtype, [5]) for dtype in every]),
        "tensors-scalars": Document(2, [], [], [tensor(f"s.{dtype}", dtype, []) for dtype in ("bool", "f32", "i4")]),
        "tensors-zero-size": Document(
            2, [], [], [tensor("a", "f32", [0]), tensor("b", "u8", [3]), tensor("c", "i2", [2, 0, 7])]
        ),
        "tensors-16-dims": Document(2, [], [], [tensor("deep", "i16", [1] * 15 + [3])]),
        "uninitialized": Document(2, [], [], _uninitialized()),
        "quantized": Document(2, [], [], _quantized()),
        "long-names": Document(
            2, [SizeVarRow(long_name.encode(), 1)], [scalar(long_name, "u8")], [tensor(long_name, "u8", [1])]
        ),
        "version-1": Document(
            1,
            [SizeVarRow(b"D", 3)],
            [text("mode", "fast"), scalar("on", "bool")],
            [tensor("a", "f32", [3]), TensorRow(b"b", TAG["i8"], [2], None), tensor("c", "t2", [6])],
        ),
        "mixed": _mixed(),
        "mlp": mlp(),
    }


@cache
def seeds() -> dict[str, bytes]:
    """The bytes of every seed file, canonical ones and those of other writers."""
    found = {name: document.to_bytes() for name, document in documents().items()}
    mixed = documents()["mixed"]
    found["unsorted"] = _shuffled(mixed).to_bytes()
    found["unsorted-quantized"] = _shuffled(documents()["quantized"]).to_bytes()
    found["unsorted-v1"] = _shuffled(documents()["version-1"]).to_bytes()
    found["eight-byte-alignment"] = mixed.to_bytes(Style(alignment=8))
    found["blobs-reversed"] = mixed.to_bytes(Style(reverse_blobs=True))
    found["zero-gaps"] = mixed.to_bytes(Style(alignment=8, section_gap=16, blob_gap=24))
    return found


def f32(value: float) -> int:
    """The bit pattern of an f32."""
    return int.from_bytes(struct.pack("<f", value), "little")
