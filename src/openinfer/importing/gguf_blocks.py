"""The GGUF block formats as grouped integers: the same bits, with scales and offsets stored separately.

The nested scales of K-quants are multiplied out; the products are exact in f32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import DTYPES, Bytes, DType
from openinfer.oinf.quant import QuantOffset, QuantParams, QuantScale

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Stored:
    """How a format is stored: the integer dtype, the group size, the dtype of scales, and whether there are offsets."""

    dtype: DType
    group: int = 0
    """0 for floats, which are not grouped."""
    scales: DType = DTYPES["f16"]
    is_affine: bool = False

    def joined(self, other: "Stored") -> "Stored":
        """Storage that holds the values of both: floats if either is floats."""
        if self == other:
            return self
        if not self.group or not other.group:
            return Stored(F32)
        scales = self.scales if self.scales is other.scales else DTYPES["f32"]
        is_affine = self.is_affine or other.is_affine
        bits = max(self.dtype.bits, other.dtype.bits)
        is_signed = "int" in (self.dtype.kind, other.dtype.kind)
        # An unsigned integer of 4 or 5 bits fits into a signed one of 8.
        bits = 8 if self.dtype.kind != other.dtype.kind else bits
        return Stored(DTYPES[f"{'i' if is_signed else 'u'}{bits}"], min(self.group, other.group), scales, is_affine)


F16, F32 = DTYPES["f16"], DTYPES["f32"]
I4, U4, I8, U8 = (DTYPES[name] for name in ("i4", "u4", "i8", "u8"))
STORED = {
    "F32": Stored(F32),
    "F16": Stored(F16),
    "BF16": Stored(DTYPES["bf16"]),
    "Q4_0": Stored(I4, 32),
    "Q4_1": Stored(U4, 32, is_affine=True),
    "Q5_0": Stored(I8, 32),
    "Q5_1": Stored(U8, 32, is_affine=True),
    "Q8_0": Stored(I8, 32),
    "Q4_K": Stored(U4, 32, F32, is_affine=True),
    "Q5_K": Stored(U8, 32, F32, is_affine=True),
    "Q6_K": Stored(I8, 16, F32),
}
"""How each format is stored if its table has no other formats."""


@dataclass(frozen=True)
class BlockGroups:
    """Integers with one scale and one offset per group, in element order."""

    values: Numbers
    scales: Numbers
    offsets: Numbers | None = None


def groups_of(name: str, data: Bytes) -> BlockGroups:
    """The integers of a tensor in a block format."""
    return _READERS[name](data)


def quantized(found: BlockGroups, own: Stored, kept: Stored, shape: tuple[int, ...]) -> tuple[Numbers, QuantParams]:
    """Integers and parameters as the model stores them, possibly in a wider format than that of the file."""
    axis, times = len(shape) - 1, own.group // kept.group
    extents = (*shape[:-1], shape[-1] // kept.group)
    kind = kept.scales.array

    def spread(values: Numbers) -> Numbers:
        return np.repeat(values.reshape(-1), times).astype(kind).reshape(extents)

    scale = QuantScale.per_group(axis, kept.group, spread(found.scales))
    values = found.values.reshape(shape).astype(kept.dtype.array)
    if not kept.is_affine:
        return values, QuantParams("symmetric", scale)
    offsets = np.zeros(extents, kind) if found.offsets is None else spread(found.offsets)
    return values, QuantParams("affine", scale, None, QuantOffset.per_group(axis, kept.group, offsets))


# --- blocks of 32 ---------------------------------------------------------------------------------------------------


def _blocks(data: Bytes, *fields: tuple[str, str, int]) -> Any:
    """View bytes as records with these fields, each with a type and a length."""
    layout = np.dtype([(name, kind, (count,)) if count > 1 else (name, kind) for name, kind, count in fields])
    return data.view(layout)


def _halves(packed: Numbers) -> Numbers:
    """The low nibbles of a block's bytes, then the high nibbles."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(stored: Numbers) -> Numbers:
    """Unpack 32 bits per block into the numbers 0 and 16."""
    return (stored[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.uint8) << 4


def _q4_0(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("q", "u1", 16))
    return BlockGroups(_halves(blocks["q"]).astype(np.int8) - np.int8(8), blocks["d"])


def _q4_1(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("m", "<f2", 1), ("q", "u1", 16))
    return BlockGroups(_halves(blocks["q"]), blocks["d"], blocks["m"])


def _q5_0(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("h", "<u4", 1), ("q", "u1", 16))
    values = _halves(blocks["q"]) | _fifth_bits(blocks["h"])
    return BlockGroups(values.astype(np.int8) - np.int8(16), blocks["d"])


def _q5_1(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("m", "<f2", 1), ("h", "<u4", 1), ("q", "u1", 16))
    return BlockGroups(_halves(blocks["q"]) | _fifth_bits(blocks["h"]), blocks["d"], blocks["m"])


def _q8_0(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("q", "i1", 32))
    return BlockGroups(blocks["q"], blocks["d"])


# --- blocks of 256 --------------------------------------------------------------------------------------------------


def _scales_of_6_bits(stored: Numbers) -> tuple[Numbers, Numbers]:
    """Unpack 8 scales and 8 minima of 6 bits: the first four of each also hold the high bits of the last four."""
    first, second, last = stored[:, 0:4], stored[:, 4:8], stored[:, 8:12]
    scales = np.concatenate([first & 63, (last & 15) | (first >> 6 << 4)], axis=-1)
    minima = np.concatenate([second & 63, (last >> 4) | (second >> 6 << 4)], axis=-1)
    return scales, minima


def _multiplied_out(blocks: Any) -> tuple[Numbers, Numbers]:
    """The scale and offset of each group of 32."""
    scales, minima = _scales_of_6_bits(blocks["s"])
    wide, low = (blocks[name].astype(np.float32)[:, None] for name in ("d", "m"))
    return wide * scales, -(low * minima)


def _by_32(packed: Numbers) -> Numbers:
    """Unpack pairs of groups that share 32 bytes; the first is in the low nibbles."""
    parts = packed.reshape(-1, 4, 32)
    return np.stack([parts & 15, parts >> 4], axis=2).reshape(-1, 256)


def _q4_k(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("m", "<f2", 1), ("s", "u1", 12), ("q", "u1", 128))
    return BlockGroups(_by_32(blocks["q"]), *_multiplied_out(blocks))


def _q5_k(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("d", "<f2", 1), ("m", "<f2", 1), ("s", "u1", 12), ("h", "u1", 32), ("q", "u1", 128))
    fifth = blocks["h"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return BlockGroups(_by_32(blocks["q"]) | (fifth << 4).reshape(-1, 256), *_multiplied_out(blocks))


def _q6_k(data: Bytes) -> BlockGroups:
    blocks = _blocks(data, ("l", "u1", 128), ("h", "u1", 64), ("s", "i1", 16), ("d", "<f2", 1))
    low = blocks["l"].reshape(-1, 2, 2, 32)
    low = np.stack([low & 15, low >> 4], axis=2)  # block, half, nibble, 2, 32
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(2, 2, 1)
    high = blocks["h"].reshape(-1, 2, 1, 1, 32) >> shifts & 3
    values = (low | high << 4).reshape(-1, 256).astype(np.int8) - np.int8(32)
    return BlockGroups(values, blocks["d"].astype(np.float32)[:, None] * blocks["s"])


_READERS: dict[str, Callable[[Bytes], BlockGroups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
