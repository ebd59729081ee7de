"""Derives a decoder from the metadata and tensors of a GGUF file: its sizes, parts and constants.

Nothing is trusted: sizes must be those of the tensors, and any feature that is not known here is refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import isfinite, sqrt

from openinfer.errors import Code, Diagnostic, FileSpan, ImportingError, counted, printable
from openinfer.importing.gguf_blocks import STORED, Stored
from openinfer.importing.gguf_file import GgufFile, GgufTensor

MOST_LAYERS = 1024
_MOST_SIZE = 1 << 24


@dataclass(frozen=True)
class Architecture:
    """How a family of decoders differs from the others."""

    interleaved: bool = False
    """Whether rotary pairs are adjacent elements rather than the two halves of a head."""
    activation: str = "silu(gated)"
    scales_embedding: bool = False
    """Whether embeddings are multiplied by the root of the width."""
    fused: bool = False
    """Whether queries, keys and values come from one matrix, and the gate and hidden layer from another."""
    post_norms: bool = False
    """Whether attention and the gated layer are followed by norms, too."""
    unrotated: int = 0
    """Layers whose number, counted from 1, is a multiple of it have no rotation; 0 if all layers have one."""


_GELU = 'gelu(gated, approximate="tanh")'
ARCHITECTURES = {
    "llama": Architecture(interleaved=True),
    "mistral": Architecture(interleaved=True),
    "smollm3": Architecture(interleaved=True, unrotated=4),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(activation=_GELU, scales_embedding=True),
    "gemma2": Architecture(activation=_GELU, scales_embedding=True, post_norms=True),
    "phi3": Architecture(fused=True),
}


@dataclass(frozen=True)
class WeightTable:
    """A tensor of the whole model or of every layer: its name in the graph and how it is stored."""

    name: str
    tensors: tuple[GgufTensor, ...]
    pattern: str | None
    """The name of the tensors with ``{l}`` for the layer; None for a tensor of the whole model."""
    dims: str
    """The extents as the graph writes them."""
    kept: Stored


@dataclass(frozen=True)
class Decoder:
    """A decoder, as far as the graphs need it."""

    architecture: str
    style: Architecture
    layers: int
    width: int
    heads: int
    groups: int
    """Key and value heads."""
    head: int
    """The width of a query or key head."""
    value_head: int
    hidden: int
    vocabulary: int
    context: int
    """The longest context that the model was made for."""
    eps: float
    rope_base: float
    rope_scale: float
    rotary: int
    attention_scale: float | None
    attention_softcap: float
    final_softcap: float
    window: int
    """How many tokens back the windowed layers see; 0 if no layer has a window."""
    tables: tuple[WeightTable, ...]

    def table(self, name: str) -> WeightTable | None:
        """A table by its name in the graph."""
        return next((one for one in self.tables if one.name == name), None)


@dataclass(frozen=True)
class _Wanted:
    """A table that a decoder must have, or may have if optional."""

    name: str
    tensor: str
    dims: str
    is_optional: bool = False


def _wanted(style: Architecture) -> Iterator[_Wanted]:
    """The tables of a decoder in declaration order."""
    yield _Wanted("embedding", "token_embd.weight", "V, D")
    yield _Wanted("norm", "output_norm.weight", "D")
    yield _Wanted("head", "output.weight", "V, D", is_optional=True)
    yield _Wanted("norm1", "blk.{l}.attn_norm.weight", "D")
    if style.fused:
        yield _Wanted("qkv", "blk.{l}.attn_qkv.weight", "N*Dh+G*(Dh+Dv), D")
    else:
        for name, tensor, rows in (("wq", "attn_q", "N*Dh"), ("wk", "attn_k", "G*Dh"), ("wv", "attn_v", "G*Dv")):
            yield _Wanted(name, f"blk.{{l}}.{tensor}.weight", f"{rows}, D")
            yield _Wanted(f"{name}_bias", f"blk.{{l}}.{tensor}.bias", rows, is_optional=True)
    yield _Wanted("norm_q", "blk.{l}.attn_q_norm.weight", "Dh", is_optional=True)
    yield _Wanted("norm_k", "blk.{l}.attn_k_norm.weight", "Dh", is_optional=True)
    yield _Wanted("wo", "blk.{l}.attn_output.weight", "D, N*Dv")
    yield _Wanted("wo_bias", "blk.{l}.attn_output.bias", "D", is_optional=True)
    if style.post_norms:
        yield _Wanted("norm1_post", "blk.{l}.post_attention_norm.weight", "D")
    yield _Wanted("norm2", "blk.{l}.ffn_norm.weight", "D")
    if not style.fused:
        yield _Wanted("gate", "blk.{l}.ffn_gate.weight", "F, D")
    yield _Wanted("up", "blk.{l}.ffn_up.weight", "2*F, D" if style.fused else "F, D")
    yield _Wanted("down", "blk.{l}.ffn_down.weight", "D, F")
    if style.post_norms:
        yield _Wanted("norm2_post", "blk.{l}.post_ffw_norm.weight", "D")


def decoder_of(file: GgufFile) -> Decoder:
    """The decoder in a file; everything that cannot be imported is reported in one error."""
    return _Finder(file).run()


class _Finder:
    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._problems: list[Diagnostic] = []
        self._used: set[str] = set()

    def run(self) -> Decoder:
        named = self._file.metadata.get("general.architecture")
        self._name = named if isinstance(named, str) else ""
        style = ARCHITECTURES.get(self._name)
        if style is None:
            known = ", ".join(ARCHITECTURES)
            self._report(f"the architecture {printable(str(named))[:60]!r} is not supported", f"supported are {known}")
            raise ImportingError(*self._problems)
        self._style = style
        made = self._decoder(style)
        self._require_known()
        if self._problems or made is None:
            raise ImportingError(*self._problems)
        return made

    def _report(self, message: str, advice: str | None = None) -> None:
        text = f"cannot import {self._file.path!r}: {message}"
        self._problems.append(Diagnostic(Code.UNSUPPORTED_NODE, text, FileSpan(self._file.path), advice))

    # --- metadata ---------------------------------------------------------------------------------------------------

    def _number(self, key: str, otherwise: float | None = None) -> float:
        value = self._file.metadata.get(f"{self._name}.{key}", otherwise)
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            self._report(f"{self._name}.{key} is a number, not {value!r:.60}")
            return 1
        return value

    def _size(self, key: str, otherwise: int | None = None, least: int = 1) -> int:
        value = self._number(key, otherwise)
        if not isinstance(value, int) or not least <= value <= _MOST_SIZE:
            self._report(f"{self._name}.{key} is a size, not {value!r:.60}")
            return 1
        return value

    def _decoder(self, style: Architecture) -> Decoder | None:
        layers, width, heads = (
            self._size("block_count"),
            self._size("embedding_length"),
            self._size("attention.head_count"),
        )
        groups = self._size("attention.head_count_kv", heads)
        head = self._size("attention.key_length", width // heads or 1)
        eps, base = self._number("attention.layer_norm_rms_epsilon", 1e-5), self._number("rope.freq_base", 10000.0)
        if layers > MOST_LAYERS or heads % groups:
            self._report(f"{counted(layers, 'layer')} of {heads} heads that share {groups} are not a decoder")
        if eps <= 0 or base <= 0:
            self._report(f"the epsilon {eps} and the rotation base {base} must be positive")
        scaling = self._number("attention.scale", 0)
        is_largest_gemma2 = self._name == "gemma2" and layers == 46  # files do not say how its scores are scaled
        found = Decoder(
            architecture=self._name,
            style=style,
            layers=min(layers, MOST_LAYERS),
            width=width,
            heads=heads,
            groups=groups,
            head=head,
            value_head=self._size("attention.value_length", head),
            hidden=self._size("feed_forward_length"),
            vocabulary=0,
            context=self._size("context_length", 2048),
            eps=float(eps),
            rope_base=float(base),
            rope_scale=self._rope_scale(),
            rotary=self._size("rope.dimension_count", head),
            attention_scale=float(scaling) or (1 / sqrt(width / heads) if is_largest_gemma2 else None),
            attention_softcap=float(self._number("attn_logit_softcapping", 0)),
            final_softcap=float(self._number("final_logit_softcapping", 0)),
            window=self._size("attention.sliding_window", 0, least=0),
            tables=(),
        )
        if found.rotary > head or found.rotary % 2:
            self._report(f"{found.rotary} elements of a head of {head} cannot be rotated")
        if self._problems:
            return None
        return self._with_tables(found)

    def _rope_scale(self) -> float:
        kind = self._file.metadata.get(f"{self._name}.rope.scaling.type", "none")
        if kind == "none":
            return 1.0
        factor = self._number("rope.scaling.factor", 1.0)
        if kind != "linear" or factor <= 0:
            self._report(
                f"positions are scaled by {kind!r:.40} with the factor {factor}", "none and linear are supported"
            )
            return 1.0
        return 1 / float(factor)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def _with_tables(self, found: Decoder) -> Decoder | None:
        embedding = self._file.tensors.get("token_embd.weight")
        vocabulary = embedding.shape[0] if embedding is not None and len(embedding.shape) == 2 else 0
        sizes = {
            "L": found.layers, "D": found.width, "N": found.heads, "G": found.groups, "Dh": found.head,
            "Dv": found.value_head, "F": found.hidden, "V": vocabulary,
        }  # fmt: skip
        found_tables = [self._table_of(one, sizes) for one in _wanted(self._style)]
        tables = tuple(one for one in found_tables if one is not None)
        if self._problems:
            return None
        return replace(found, vocabulary=vocabulary, tables=tables)

    def _table_of(self, wanted: "_Wanted", sizes: dict[str, int]) -> WeightTable | None:
        names = [wanted.tensor]
        if "{l}" in wanted.tensor:
            names = [wanted.tensor.replace("{l}", str(layer)) for layer in range(sizes["L"])]
        if wanted.is_optional and not any(one in self._file.tensors for one in names):
            return None
        return self._table(wanted, names, sizes)

    def _table(self, wanted: "_Wanted", names: Sequence[str], sizes: dict[str, int]) -> WeightTable | None:
        missing = [one for one in names if one not in self._file.tensors]
        if missing:
            more = f" and {counted(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
            self._report(f"it has no tensor {missing[0]!r}{more}")
            return None
        self._used.update(names)
        tensors = tuple(self._file.tensors[one] for one in names)
        shape = tuple(_evaluated(one, sizes) for one in wanted.dims.split(", "))
        wrong = next((one for one in tensors if one.shape != shape), None)
        if wrong is not None:
            self._report(f"the tensor {wrong.name!r} has the shape {list(wrong.shape)}, not {list(shape)}")
            return None
        strange = [one for one in tensors if one.format is None]
        for one in strange:
            self._report(f"the tensor {one.name!r} is {one.format_name}", f"supported are {', '.join(STORED)}")
        if strange:
            return None
        formats = dict.fromkeys(one.format.name for one in tensors if one.format is not None)
        kept = reduce(Stored.joined, (STORED[one] for one in formats))
        pattern = wanted.tensor if "{l}" in wanted.tensor else None
        return WeightTable(wanted.name, tensors, pattern, wanted.dims, STORED["F32"] if len(shape) == 1 else kept)

    def _require_known(self) -> None:
        """Report tensors that no part of the graph reads: they belong to a feature that is not known here."""
        if self._problems:
            return
        others = [name for name in self._file.tensors if name not in self._used]
        for name in others[:20]:
            self._report(f"the tensor {printable(name)!r} is not used by the architecture {self._name!r}")


def _evaluated(text: str, sizes: dict[str, int]) -> int:
    """Evaluate an extent written as sums and products of sizes, as in ``dims`` above."""
    if text == "N*Dh+G*(Dh+Dv)":
        return sizes["N"] * sizes["Dh"] + sizes["G"] * (sizes["Dh"] + sizes["Dv"])
    total = 1
    for factor in text.split("*"):
        total *= int(factor) if factor.isdigit() else sizes[factor]
    return total
