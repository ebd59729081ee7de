"""Attention and rotary embeddings of ONNX Runtime's own domain, and ONNX's own rotary embedding."""

from dataclasses import dataclass

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import I64, DraftOperand, KnownTensor, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.microsoft import microsoft
from openinfer.loops.dim import is_same, is_symbolic

F32 = DTYPES["f32"]


@dataclass(frozen=True)
class _Heads:
    """Queries, keys and values as [batch, heads, length, width]."""

    q: DraftOperand
    k: DraftOperand
    v: DraftOperand


def _split(n: NodeContext, x: DraftOperand, heads: int) -> DraftOperand:
    """[batch, length, heads * width] to [batch, heads, length, width]; rank 4 has this layout already."""
    if len(x.shape) == 4:
        return x
    if len(x.shape) != 3 or is_symbolic(x.shape[2]) or not heads or x.shape[2] % heads:
        raise Unsupported("its heads do not fit its inputs")
    apart = n.emit.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return n.emit.transpose(apart, (0, 2, 1, 3))


def _joined(n: NodeContext, y: DraftOperand) -> DraftOperand:
    """[batch, heads, length, width] to [batch, length, heads * width]."""
    batch, heads, length, width = y.shape
    return n.emit.reshape(n.emit.transpose(y, (0, 2, 1, 3)), (batch, length, heads * width))


def _behind(n: NodeContext, past: DraftOperand | None, new: DraftOperand) -> DraftOperand:
    """Append new keys or values to those of the past."""
    if past is None or is_same(past.shape[2], 0):
        return new
    return n.emit.op("concat", past, new, axis=2)


def _attended(n: NodeContext, heads: _Heads, mask: DraftOperand | None, **params: object) -> DraftOperand:
    scale = n.real("scale", 0.0)
    found = n.emit.op("sdpa", heads.q, heads.k, heads.v, mask, scale=scale or None, **params)
    return _joined(n, found)


def _both(n: NodeContext, one: DraftOperand | None, other: DraftOperand | None) -> DraftOperand | None:
    """Combine two masks that are added to scores."""
    if one is None or other is None:
        return other if one is None else one
    return n.emit.op("add", one, other)


def _padding(n: NodeContext, mask: DraftOperand | None, keys: int) -> DraftOperand | None:
    """A mask of keys, 1 where a key counts, as a term to add to scores: [batch, 1, 1 or queries, keys]."""
    if mask is None:
        return None
    if len(mask.shape) == 1:
        if is_same(mask.shape[0], n.x.shape[0]):  # lengths
            mask = n.emit.op("lt", n.emit.ramp(keys), n.emit.op("unsqueeze", n.emit.cast(mask, I64), axes=(1,)))
        else:
            raise Unsupported("its mask gives the start and end positions of sequences")
    if len(mask.shape) not in (2, 3) or not is_same(mask.shape[-1], keys):
        raise Unsupported(f"a mask of the shape {list(mask.shape)} is not supported")
    counts = n.emit.cast(mask, F32)
    left = n.emit.op("sub", n.emit.scalar(1, F32), counts)
    scores = n.emit.op("mul", left, n.emit.scalar(n.real("mask_filter_value", -10000.0), F32))
    return n.emit.op("unsqueeze", scores, axes=(1, 2) if len(mask.shape) == 2 else (1,))


@onnx_op(microsoft("MultiHeadAttention"))
def _multi_head(n: NodeContext) -> NodeResults:
    """Attention on projected queries, keys and values; keys of the past come first."""
    count = n.integer("num_heads", 0)
    heads = _given_heads(n, count)
    past_k, past_v = n.optional(6), n.optional(7)
    k, v = _behind(n, past_k, heads.k), _behind(n, past_v, heads.v)
    bias = n.optional(5)
    mask = _both(n, _padding(n, n.optional(4), k.shape[2]), bias)
    causal = bool(n.integer("unidirectional", 0)) or None
    return (_attended(n, _Heads(heads.q, k, v), mask, causal=causal), k, v)


def _given_heads(n: NodeContext, count: int) -> _Heads:
    """The heads of all three inputs, whose biases are in one vector."""
    q, k, v, bias = n.x, n.optional(1), n.optional(2), n.optional(3)
    if k is None or v is None:
        raise Unsupported("its keys and values are packed in one input")
    if bias is None:
        return _Heads(*(_split(n, one, count) for one in (q, k, v)))
    found, begin = [], 0
    for one in (q, k, v):
        if len(one.shape) != 3 or is_symbolic(one.shape[2]):
            raise Unsupported("a bias of inputs that are split into heads is not supported")
        own = n.emit.op("slice", bias, starts=(begin,), ends=(begin + one.shape[2],), axes=(0,))
        begin += one.shape[2]
        found.append(_split(n, n.emit.op("add", one, own), count))
    return _Heads(*found)


@onnx_op(microsoft("Attention"))
def _attention(n: NodeContext) -> NodeResults:
    """Attention with one product for queries, keys and values."""
    w, bias, mask, past, added = n.input(1), n.optional(2), n.optional(3), n.optional(4), n.optional(5)
    count = n.integer("num_heads", 0)
    if n.integer("do_rotary", 0) or n.integer("past_present_share_buffer", 0):
        raise Unsupported("built-in rotary embeddings and a shared past buffer are not supported")
    total = w.shape[1]
    sizes = n.ints("qkv_hidden_sizes") or (total // 3,) * 3
    weights = n.emit.transpose(w, (1, 0))
    parts = n.emit.ops("split", n.emit.op("linear", n.x, weights, bias), axis=-1, sizes=tuple(sizes))
    q, k, v = (_split(n, one, count) for one in parts)
    if past is not None:
        k, v = (_behind(n, n.emit.op("gather", past, known(np.int64(place))), one) for place, one in enumerate((k, v)))
    scores = _both(n, _padding(n, mask, k.shape[2]), added)
    causal = bool(n.integer("unidirectional", 0)) or None
    y = _attended(n, _Heads(q, k, v), scores, causal=causal)
    return (y, n.emit.op("stack", k, v, axis=0) if n.reads(1) else None)


# --- grouped queries --------------------------------------------------------------------------------------------------


@onnx_op(microsoft("GroupQueryAttention"))
def _group_query(n: NodeContext) -> NodeResults:
    """Causal attention with fewer heads for keys than for queries; new entries follow the past."""
    heads, shared = n.integer("num_heads", 0), n.integer("kv_num_heads", 0)
    if any(n.optional(place) is not None for place in (11, 12, 13)) or n.integer("smooth_softmax", 0):
        raise Unsupported("attention sinks, smooth softmax and a quantized cache are not supported")
    q, k, v = _grouped(n, heads, shared)
    past_k, past_v = n.optional(3), n.optional(4)
    past = 0 if past_k is None else past_k.shape[2]
    _require_whole(n, past + n.x.shape[1])
    if n.integer("do_rotary", 0):
        ids = n.optional(9)
        if ids is None:
            total = past + n.x.shape[1]
            ids = n.emit.ramp(total)
            ids = ids if is_same(past, 0) else n.emit.op("slice", ids, starts=(past,), ends=(total,), axes=(0,))
        caches = [n.emit.op("gather", n.input(place), ids) for place in (7, 8)]
        q, k = (_rotated(n, one, caches, 0, is_split=True, name="rotary_interleaved") for one in (q, k))
    k, v = _behind(n, past_k, k), _behind(n, past_v, v)
    window = n.integer("local_window_size", -1)
    params = {"window": window if window > 0 else None, "softcap": n.real("softcap", 0.0) or None}
    return (_attended(n, _Heads(q, k, v), n.optional(10), causal=True, **params), k, v)


def _grouped(n: NodeContext, heads: int, shared: int) -> tuple[DraftOperand, DraftOperand, DraftOperand]:
    """Queries, keys and values by heads; without keys all three are packed in the first input."""
    k, v = n.optional(1), n.optional(2)
    if k is not None and v is not None:
        return (_split(n, n.x, heads), _split(n, k, shared), _split(n, v, shared))
    width = n.x.shape[-1] // (heads + 2 * shared) if heads and shared else 0
    if n.rank != 3 or not width:
        raise Unsupported("its heads do not fit its input")
    sizes = (heads * width, shared * width, shared * width)
    q, k, v = n.emit.ops("split", n.x, axis=-1, sizes=sizes)
    return (_split(n, q, heads), _split(n, k, shared), _split(n, v, shared))


def _require_whole(n: NodeContext, total: int) -> None:
    """Reject a past that is a buffer with free entries, and sequences of different lengths."""
    length, lengths = n.optional(6), n.optional(5)
    if isinstance(length, KnownTensor) and not is_same(length.array.reshape(-1)[0], total):
        raise Unsupported("its past is a buffer with unused positions", "export it with a past that grows")
    if is_symbolic(n.x.shape[0]) or n.x.shape[0] != 1:
        known_lengths = isinstance(lengths, KnownTensor) and all(
            is_same(one + 1, total) for one in lengths.array.reshape(-1)
        )
        if not known_lengths:
            raise Unsupported("its sequences may have different lengths", "import it for a batch of 1")


# --- rotary embeddings ------------------------------------------------------------------------------------------------


@onnx_op(microsoft("RotaryEmbedding"))
def _rotary(n: NodeContext) -> NodeResults:
    """Rotate by the cosines and sines of each position; a single position is that of the first token."""
    ids, length = n.input(1), n.x.shape[2 if n.rank == 4 else 1]
    if len(ids.shape) == 1 and not is_same(length, 1):
        ids = n.emit.op("add", n.emit.ramp(length), n.emit.cast(ids, I64))
    caches = [n.emit.op("gather", n.input(place), ids) for place in (2, 3)]
    found = _rotated(n, n.x, caches, n.integer("num_heads", 0))
    scale = n.real("scale", 1.0)
    return found if scale == 1 else n.emit.op("mul", found, n.emit.scalar(scale, found.dtype))


@onnx_op("RotaryEmbedding")
def _onnx_rotary(n: NodeContext) -> NodeResults:
    """The same op in ONNX itself: without positions the caches have a row per token."""
    ids = n.optional(3)
    caches = [n.input(place) if ids is None else n.emit.op("gather", n.input(place), ids) for place in (1, 2)]
    return _rotated(n, n.x, caches, n.integer("num_heads", 0))


def _rotated(
    n: NodeContext,
    x: DraftOperand,
    caches: list[DraftOperand],
    heads: int,
    *,
    is_split: bool = False,
    name: str = "interleaved",
) -> DraftOperand:
    """Apply rows [batch, length, pairs] of cosines and sines to all heads, in the layout of x."""
    apart = is_split or len(x.shape) == 4
    rotary = n.integer("rotary_embedding_dim", 0)
    if not apart:
        width = 2 * caches[0].shape[-1] if not heads else x.shape[2] // heads
        split = n.emit.reshape(x, (*x.shape[:2], x.shape[2] // width, width))
    else:
        split = x
    axis = 1 if apart else 2
    rows = [n.emit.cast(one, x.dtype) for one in caches]
    rows = [n.emit.op("unsqueeze", one, axes=(0,)) if len(one.shape) == 2 else one for one in rows]
    if rotary and not is_same(rows[0].shape[-1] * 2, rotary):
        raise Unsupported("its cosines do not fit the rotated width")
    cos, sin = (n.emit.op("unsqueeze", one, axes=(axis,)) for one in rows)
    rotated = n.emit.op("rope_cached", split, cos, sin, interleaved=bool(n.integer(name, 0)) or None)
    return n.emit.reshape(rotated, x.shape)
