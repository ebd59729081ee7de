"""The decoder with weights as llama.cpp has them: 8 or 4 bits with a scale of f16 for every 32, or bf16; and its files.

``Q8_0`` and ``Q4_0`` take 8.5 and 4.5 bits for a weight. Both engines have the same integers and the same scales.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.decoder import TEXT, Shape, decoder, is_matrix
from bench.decoder_quantized import MATRIX, ExportedInt4
from bench.models import Model

from openinfer.oinf import QuantParams, QuantScale, TensorSpec

Array = Any
GROUP = 32
FORMATS = {"F32": 0, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
"""Formats of tensors by their numbers in GGUF."""
DTYPES = {"Q8_0": "i8", "Q4_0": "i4", "BF16": "bf16"}
BITS = {"Q8_0": 8.5, "Q4_0": 4.5, "BF16": 16.0}
ALIGNMENT = 32
PRODUCT = re.compile(r"op linear\((\w+), (W\w|head)((?:\[l\])?)\)")


def groups_of(matrix: Array, kind: str) -> tuple[Array, Array]:
    """Integers, and the scale of each group, as llama.cpp finds them."""
    rows = matrix.reshape(-1, GROUP)
    if kind == "Q8_0":
        scales = (np.abs(rows).max(axis=1) / 127).astype(np.float16)
        low, high = -127, 127
    else:
        farthest = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)]
        scales = (farthest / -8).astype(np.float16)
        low, high = -8, 7
    whole = np.rint(rows / scales.astype(np.float32)[:, None])
    return np.clip(whole, low, high).astype(np.int8).reshape(matrix.shape), scales


def bf16_of(matrix: Array) -> Array:
    """The upper halves of the bits, rounded to even."""
    bits = matrix.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def stored(matrix: Array, kind: str) -> TensorSpec:
    """A matrix for our own files."""
    if kind == "BF16":
        return TensorSpec((bf16_of(matrix).astype(np.uint32) << 16).view(np.float32), "bf16")
    whole, scales = groups_of(matrix, kind)
    shape = (matrix.shape[0], matrix.shape[1] // GROUP)
    scale = QuantScale.per_group(1, GROUP, scales.reshape(shape))
    return TensorSpec(whole, DTYPES[kind], quant=QuantParams("symmetric", scale, None))


def text_of(kind: str) -> str:
    """The graph with other matrices; integers with scales count as real numbers, bf16 is widened where it is read."""
    text = MATRIX.sub(lambda found: found[0].replace("f32", DTYPES[kind]), TEXT)
    widened = r"\2_f32 = op cast(\2\3, to=f32); op linear(\1, \2_f32)"
    return PRODUCT.sub(widened, text) if kind == "BF16" else text


def grouped(shape: Shape, kind: str) -> Model:
    original = decoder(shape)
    matrices = {name: value for name, value in original.tensors.items() if is_matrix(name, value)}
    elements = sum(value.size for value in matrices.values())
    smaller = {name: stored(value, kind) for name, value in matrices.items()}
    return replace(
        original,
        name=f"{original.name}, weights in {kind if kind == 'BF16' else f'{DTYPES[kind]}, groups of {GROUP}'}",
        text=text_of(kind),
        tensors={**original.tensors, **smaller},
        onnx=lambda: ExportedInt4(shape, dict(original.tensors)).decoder(original.given),
        read_bytes=original.read_bytes - int(elements * (4 - BITS[kind] / 8)),
        original=original,
    )


# --- GGUF -------------------------------------------------------------------------------------------------------------

PARTS = {"norm1": "attn_norm", "norm2": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
PARTS |= {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}
WHOLE = {"embed": "token_embd", "last": "output_norm", "head": "output"}


def write_gguf(path: Path, shape: Shape, tensors: dict[str, Array], kind: str) -> None:
    """The f32 weights of a decoder as a file of llama.cpp's, matrices in a format."""
    kinds = {name: kind if is_matrix(name, value) else "F32" for name, value in tensors.items()}
    facts = b"".join(_fact(name, value) for name, value in _metadata(shape).items())
    table, place = b"", 0
    for name, value in tensors.items():
        size = _bytes_of(value.shape, kinds[name])
        extents = struct.pack(f"<{value.ndim}Q", *reversed(value.shape))
        table += _text(_gguf_name(name)) + struct.pack("<I", value.ndim) + extents
        table += struct.pack("<IQ", FORMATS[kinds[name]], place)
        place += size + -size % ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(_metadata(shape))) + facts + table
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for name, value in tensors.items():
            data = _packed(_turned(name, value, shape), kinds[name])
            file.write(data + bytes(-len(data) % ALIGNMENT))


def _gguf_name(name: str) -> str:
    found = re.fullmatch(r"layers\.(\d+)\.(\w+)", name)
    return f"blk.{found[1]}.{PARTS[found[2]]}.weight" if found else f"{WHOLE[name]}.weight"


def _metadata(shape: Shape) -> dict[str, str | int | float]:
    own: dict[str, str | int | float] = {
        "context_length": shape.tokens,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.groups,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": shape.head,
        "rope.freq_base": 10000.0,
        "vocab_size": shape.classes,
    }
    named = {f"llama.{name}": value for name, value in own.items()}
    return {"general.architecture": "llama", **named, "tokenizer.ggml.model": "no_vocab"}


def _fact(name: str, value: str | float) -> bytes:
    match value:
        case str():
            return _text(name) + struct.pack("<I", 8) + _text(value)
        case int():
            return _text(name) + struct.pack("<II", 4, value)
        case _:
            return _text(name) + struct.pack("<If", 6, value)


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode("ascii")


def _turned(name: str, value: Array, shape: Shape) -> Array:
    """Rows of queries and keys in the order of llama.cpp, whose rotations turn neighbours instead of halves."""
    heads = {"q": shape.heads, "k": shape.groups}.get(name.rpartition(".")[2]) if name.startswith("layers.") else None
    if heads is None:
        return value
    halves = value.reshape(heads, 2, shape.head // 2, value.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(value.shape)


def _bytes_of(extents: tuple[int, ...], kind: str) -> int:
    return int(np.prod(extents) * ({"F32": 32.0} | BITS)[kind] / 8)


def _packed(value: Array, kind: str) -> bytes:
    if kind == "F32":
        return bytes(value.tobytes())
    if kind == "BF16":
        return bytes(bf16_of(value).tobytes())
    whole, scales = groups_of(value, kind)
    blocks = whole.reshape(-1, GROUP)
    if kind == "Q4_0":
        low, high = np.split((blocks + 8).astype(np.uint8), 2, axis=1)
        blocks = low | high << 4
    return b"".join(_joined(scales, blocks.view(np.uint8)))


def _joined(scales: Array, blocks: Array) -> Iterator[bytes]:
    yield np.concatenate([scales[:, None].view(np.uint8), blocks], axis=1).tobytes()
