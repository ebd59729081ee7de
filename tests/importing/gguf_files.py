"""Small GGUF files made by hand, and what decoders compute, written once more in plain NumPy."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
TAGS = {
    "F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
    "BF16": 30,
}  # fmt: skip
BLOCKS = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}
"""The bytes of a block of each format; it has 256 elements in the K-quants, and 32 in the others."""


# --- the formats, element by element ----------------------------------------------------------------------------------


def half(data: bytes, at: int) -> np.float32:
    """A number of 16 bits."""
    return np.float32(np.frombuffer(data, "<f2", 1, at)[0])


def _six_bits(data: bytes, which: int) -> tuple[int, int]:
    """A scale and a minimum out of the 12 bytes of a K-quant."""
    if which < 4:
        return data[which] & 63, data[which + 4] & 63
    low, high = data[which + 4], (data[which - 4] >> 6, data[which] >> 6)
    return (low & 15) | (high[0] << 4), (low >> 4) | (high[1] << 4)


def element(name: str, block: bytes, i: int) -> np.float32:
    """The real number at a place of a block, as the format defines it."""
    if name == "Q8_0":
        return half(block, 0) * np.float32(struct.unpack_from("b", block, 2 + i)[0])
    if name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1"):
        start = 4 if name.endswith("1") else 2
        fifth = 0
        if name.startswith("Q5"):
            fifth = (struct.unpack_from("<I", block, start)[0] >> i & 1) << 4
            start += 4
        byte = block[start + i % 16]
        code = (byte & 15 if i < 16 else byte >> 4) | fifth
        if name.endswith("1"):
            return np.float32(code) * half(block, 0) + half(block, 2)
        return np.float32(code - (16 if name.startswith("Q5") else 8)) * half(block, 0)
    if name in ("Q4_K", "Q5_K"):
        group = i // 32
        scale, low = _six_bits(block[4:16], group)
        start = 16 if name == "Q4_K" else 48
        byte = block[start + i // 64 * 32 + i % 32]
        code = byte >> 4 if group % 2 else byte & 15
        if name == "Q5_K":
            code |= (block[16 + i % 32] >> group & 1) << 4
        return np.float32(code) * (half(block, 0) * np.float32(scale)) - half(block, 2) * np.float32(low)
    assert name == "Q6_K"
    part, rest = divmod(i, 128)
    quarter, at = divmod(rest, 32)
    byte = block[64 * part + at + 32 * (quarter % 2)]
    code = (byte >> 4 if quarter > 1 else byte & 15) | ((block[128 + 32 * part + at] >> 2 * quarter & 3) << 4)
    scale = struct.unpack_from("b", block, 192 + i // 16)[0]
    return np.float32(code - 32) * (half(block, 208) * np.float32(scale))


def random_blocks(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[bytes, Array]:
    """A tensor in a format, and the real numbers that it has; scales are such that those are small."""
    if name in ("F32", "F16", "BF16"):
        real = (rng.standard_normal(shape) * 0.1).astype(np.float32)
        if name == "F32":
            return real.tobytes(), real
        if name == "F16":
            return real.astype("<f2").tobytes(), real.astype("<f2").astype(np.float32)
        bits = (real.view(np.uint32) >> 16).astype("<u2")
        return bits.tobytes(), (bits.astype(np.uint32) << 16).view(np.float32)
    nbytes, elements = BLOCKS[name], 256 if name.endswith("K") else 32
    count = int(np.prod(shape)) // elements
    data = rng.integers(0, 256, (count, nbytes), np.uint8)
    size = 0.0004 if name.endswith("K") else 0.01
    places = [208] if name == "Q6_K" else [0, 2] if name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else [0]
    for place in places:
        scales = (rng.standard_normal(count) * size).astype("<f2")
        data[:, place : place + 2] = scales.view(np.uint8).reshape(-1, 2)
    found = [element(name, block.tobytes(), i) for block in data for i in range(elements)]
    return data.tobytes(), np.array(found, np.float32).reshape(shape)


# --- files ------------------------------------------------------------------------------------------------------------


def _string(text: object) -> bytes:
    data = text if isinstance(text, bytes) else str(text).encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: object) -> bytes:
    match value:
        case bool():
            return struct.pack("<IB", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
        case [str() | bytes(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
        case [float(), *_]:
            return struct.pack("<IIQ", 9, 6, len(value)) + np.array(value, "<f4").tobytes()
        case [int(), *_]:
            return struct.pack("<IIQ", 9, 5, len(value)) + np.array(value, "<i4").tobytes()
    raise AssertionError(value)


def gguf_bytes(metadata: Mapping[str, object], tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A file of version 3; each tensor is a format, a shape and its bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, (kind, shape, stored) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += _string(name) + dims + struct.pack("<IQ", TAGS[kind], len(data))
        data += stored.ljust(-(-len(stored) // 32) * 32, b"\0")
    return head.ljust(-(-len(head) // 32) * 32, b"\0") + data


@dataclass(frozen=True)
class Tiny:
    """A tiny decoder: its sizes, what it has beside the usual, and the format of each kind of tensor."""

    architecture: str = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    groups: int = 2
    hidden: int = 96
    vocabulary: int = 40
    formats: Mapping[str, str] = field(default_factory=dict)
    """The format of a tensor by the part of its name that ends in a dot; the layers' by turns where there are two."""
    tied: bool = True
    biases: bool = False
    head_norms: bool = False
    post_norms: bool = False
    fused: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def head(self) -> int:
        return int(self.extra.get(f"{self.architecture}.attention.key_length", self.width // self.heads))

    def metadata(self) -> dict[str, object]:
        """What the file says."""
        own = {
            "block_count": self.layers, "context_length": 64, "embedding_length": self.width,
            "feed_forward_length": self.hidden, "attention.head_count": self.heads,
            "attention.head_count_kv": self.groups, "rope.freq_base": 5000.0,
            "attention.layer_norm_rms_epsilon": 1e-6,
        }  # fmt: skip
        first: dict[str, object] = {"general.architecture": self.architecture, "general.name": "Tiny"}
        return first | {f"{self.architecture}.{key}": value for key, value in own.items()} | dict(self.extra)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of the file."""
        d, q, kv, f = self.width, self.heads * self.head, self.groups * self.head, self.hidden
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocabulary, d), "output_norm.weight": (d,)}
        found |= {} if self.tied else {"output.weight": (self.vocabulary, d)}
        for layer in range(self.layers):
            own: dict[str, tuple[int, ...]] = {"attn_norm.weight": (d,), "ffn_norm.weight": (d,)}
            if self.fused:
                own |= {"attn_qkv.weight": (q + 2 * kv, d), "ffn_up.weight": (2 * f, d)}
            else:
                own |= {"attn_q.weight": (q, d), "attn_k.weight": (kv, d), "attn_v.weight": (kv, d)}
                own |= {"ffn_gate.weight": (f, d), "ffn_up.weight": (f, d)}
            own |= {"attn_output.weight": (d, q), "ffn_down.weight": (d, f)}
            own |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)} if self.biases else {}
            own |= {f"attn_{one}_norm.weight": (self.head,) for one in "qk"} if self.head_norms else {}
            own |= {"post_attention_norm.weight": (d,), "post_ffw_norm.weight": (d,)} if self.post_norms else {}
            found |= {f"blk.{layer}.{name}": shape for name, shape in own.items()}
        return found

    def _format(self, name: str, shape: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return "F32"
        parts = name.split(".")
        chosen = self.formats.get(parts[-2] + ".", self.formats.get("", "F32")).split()
        return chosen[int(parts[1]) % len(chosen)] if parts[0] == "blk" else chosen[0]

    def write(self, path: Path) -> dict[str, Array]:
        """Write the file; the real numbers of its tensors."""
        rng = np.random.default_rng(7)
        stored: dict[str, tuple[str, tuple[int, ...], bytes]] = {}
        real: dict[str, Array] = {}
        for name, shape in self.shapes().items():
            kind = self._format(name, shape)
            data, real[name] = random_blocks(kind, shape, rng)
            if name.endswith("norm.weight"):
                real[name] = 1 + real[name]
                data = real[name].tobytes()
            stored[name] = (kind, shape, data)
        path.write_bytes(gguf_bytes(self.metadata(), stored))
        return real


# --- what decoders compute --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """A decoder in NumPy: all tokens at once, without a cache."""

    tiny: Tiny
    real: Mapping[str, Array]

    def logits(self, tokens: list[int]) -> Array:
        """What follows the last token."""
        tiny, real = self.tiny, self.real
        is_gemma = tiny.architecture.startswith("gemma")
        h = real["token_embd.weight"][tokens].astype(np.float64)
        h = h * np.sqrt(tiny.width) if is_gemma else h
        for layer in range(tiny.layers):
            own = {name.split(".", 2)[2]: value for name, value in real.items() if name.startswith(f"blk.{layer}.")}
            is_rotated = tiny.architecture != "smollm3" or (layer + 1) % 4 != 0
            mixed = self._attention(self._norm(h, own["attn_norm.weight"]), own, is_rotated=is_rotated)
            h = h + (self._norm(mixed, own["post_attention_norm.weight"]) if tiny.post_norms else mixed)
            made = self._gated(self._norm(h, own["ffn_norm.weight"]), own)
            h = h + (self._norm(made, own["post_ffw_norm.weight"]) if tiny.post_norms else made)
        head = real.get("output.weight", real["token_embd.weight"])
        found = self._norm(h[-1], real["output_norm.weight"]) @ head.T
        cap = float(tiny.extra.get(f"{tiny.architecture}.final_logit_softcapping", 0))
        return np.tanh(found / cap) * cap if cap else found

    def _norm(self, x: Array, gamma: Array) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gamma

    def _rotated(self, x: Array) -> Array:
        """Heads [tokens, heads, width]."""
        tiny, width = self.tiny, x.shape[-1]
        rotary = int(tiny.extra.get(f"{tiny.architecture}.rope.dimension_count", width))
        factor = float(tiny.extra.get(f"{tiny.architecture}.rope.scaling.factor", 1))
        i = np.arange(rotary // 2)
        angles = np.arange(len(x))[:, None, None] / factor * 5000.0 ** (-2 * i / rotary)
        is_llama = tiny.architecture in ("llama", "smollm3")
        first, second = (2 * i, 2 * i + 1) if is_llama else (i, i + rotary // 2)
        found = x.copy()
        a, b = x[..., first], x[..., second]
        found[..., first] = a * np.cos(angles) - b * np.sin(angles)
        found[..., second] = a * np.sin(angles) + b * np.cos(angles)
        return found

    def _attention(self, x: Array, own: Mapping[str, Array], *, is_rotated: bool) -> Array:
        tiny, head, count = self.tiny, self.tiny.head, len(x)
        if tiny.fused:
            projected = x @ own["attn_qkv.weight"].T
            ends = [tiny.heads * head, (tiny.heads + tiny.groups) * head]
            q, k, v = np.split(projected, ends, axis=1)
        else:
            q, k, v = (x @ own[f"attn_{n}.weight"].T + own.get(f"attn_{n}.bias", 0) for n in "qkv")
        q, k, v = (one.reshape(count, -1, head) for one in (q, k, v))
        if tiny.head_norms:
            q, k = self._norm(q, own["attn_q_norm.weight"]), self._norm(k, own["attn_k_norm.weight"])
        q, k = (self._rotated(q), self._rotated(k)) if is_rotated else (q, k)
        k, v = (np.repeat(one, tiny.heads // tiny.groups, axis=1) for one in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head)
        cap = float(tiny.extra.get(f"{tiny.architecture}.attn_logit_softcapping", 0))
        scores = np.tanh(scores / cap) * cap if cap else scores
        scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(count, -1) @ own["attn_output.weight"].T

    def _gated(self, x: Array, own: Mapping[str, Array]) -> Array:
        if self.tiny.fused:
            gate, up = np.split(x @ own["ffn_up.weight"].T, 2, axis=1)
        else:
            gate, up = x @ own["ffn_gate.weight"].T, x @ own["ffn_up.weight"].T
        if self.tiny.architecture.startswith("gemma"):
            made = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            made = gate / (1 + np.exp(-gate))
        return (made * up) @ own["ffn_down.weight"].T
