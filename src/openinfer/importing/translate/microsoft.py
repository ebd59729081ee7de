"""Ops of ONNX Runtime's own domain, as its optimizer and exporters write them: activations, norms and products."""

import numpy as np

from openinfer.importing.draft import DraftOperand, KnownTensor, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import TABLE, NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.linear import convolved

DOMAIN = "com.microsoft"


def microsoft(name: str) -> str:
    """The key of an op type of this domain in the table of translators."""
    return f"{DOMAIN}:{name}"


# --- activations ------------------------------------------------------------------------------------------------------


@onnx_op(microsoft("Gelu"), microsoft("BiasGelu"), microsoft("FastGelu"))
def _gelu(n: NodeContext) -> NodeResults:
    bias = n.optional(1)
    x = n.x if bias is None else n.emit.op("add", n.x, bias)
    return n.emit.op("gelu", x, approximate="tanh" if n.node.op == "FastGelu" else None)


@onnx_op(microsoft("QuickGelu"))
def _quick_gelu(n: NodeContext) -> NodeResults:
    scaled = n.emit.op("mul", n.x, n.emit.scalar(n.real("alpha", 1.702), n.x.dtype))
    return n.emit.op("mul", n.x, n.emit.op("sigmoid", scaled))


def _activated(n: NodeContext, x: DraftOperand) -> DraftOperand:
    """The activation that a fused node names, with its parameters."""
    name = n.text("activation", "")
    given = n.node.attributes.get("activation_params") or ()
    values = tuple(float(one) for one in given) if isinstance(given, tuple) else ()
    alpha = n.real("activation_alpha", values[0] if values else 0.0)
    beta = n.real("activation_beta", values[1] if len(values) > 1 else 0.0)
    match name:
        case "":
            return x
        case "Relu" | "Sigmoid" | "Tanh":
            return n.emit.op(name.lower(), x)
        case "LeakyRelu":
            return n.emit.op("relu", x, negative_slope=alpha)
        case "HardSigmoid":
            return n.emit.op("hard_sigmoid", x, alpha=alpha, beta=beta)
        case "Clip":
            return n.emit.op("clamp", x, min=alpha, max=beta)
    raise Unsupported(f"its activation {name!r:.40} is not supported")


# --- norms ------------------------------------------------------------------------------------------------------------


@onnx_op("SimplifiedLayerNormalization", microsoft("SimplifiedLayerNormalization"))
def _rms_norm(n: NodeContext) -> NodeResults:
    axis = n.axis(n.integer("axis", -1))
    axes = tuple(one - n.rank for one in range(axis, n.rank))
    eps = n.real("epsilon", 1e-5)
    y = n.emit.op("rms_norm", n.x, n.input(1), axes=None if axes == (-1,) else axes, eps=eps)
    if not n.reads(1):
        return y
    mean = n.emit.op("mean_axis", n.emit.op("square", n.x), axes=axes, keepdims=True)
    return (y, n.emit.op("rsqrt", n.emit.op("add", mean, n.emit.scalar(eps, n.x.dtype))))


@onnx_op(microsoft("SkipLayerNormalization"), microsoft("SkipSimplifiedLayerNormalization"))
def _skip_norm(n: NodeContext) -> NodeResults:
    """The norm of a sum; the sum itself is the fourth result."""
    plain = n.node.op == "SkipLayerNormalization"
    gamma, beta = n.input(2), n.optional(3) if plain else None
    bias = n.optional(4 if plain else 3)
    total = n.emit.op("add", n.x, n.input(1))
    total = total if bias is None else n.emit.op("add", total, bias)
    eps = n.real("epsilon", 1e-12 if plain else 1e-5)
    given = (total, gamma, beta) if plain else (total, gamma)
    return (n.emit.op("layer_norm" if plain else "rms_norm", *given, eps=eps), None, None, total)


@onnx_op(microsoft("EmbedLayerNormalization"))
def _embed_norm(n: NodeContext) -> NodeResults:
    """Embed words, positions and segments, add and normalise them; the second result is the lengths in the mask."""
    words, places, segments = n.input(2), n.input(3), n.optional(4)
    given, kinds = n.optional(8), n.optional(1)
    length = n.x.shape[1]
    ids = n.emit.ramp(length) if given is None else given
    total = n.emit.op("add", n.emit.op("embedding", words, n.x), n.emit.op("embedding", places, ids))
    if segments is not None and kinds is not None:
        total = n.emit.op("add", total, n.emit.op("embedding", segments, kinds))
    y = n.emit.op("layer_norm", total, n.input(5), n.input(6), eps=n.real("epsilon", 1e-12))
    mask = n.optional(7)
    lengths = None if mask is None else n.emit.op("sum_axis", mask, axes=(1,))
    return (y, lengths, total)


# --- products ---------------------------------------------------------------------------------------------------------


@onnx_op(microsoft("FusedMatMul"), microsoft("TransposeMatMul"))
def _fused_matmul(n: NodeContext) -> NodeResults:
    if n.integer("transBatchA", 0) or n.integer("transBatchB", 0):
        raise Unsupported("it transposes batch axes")
    flips = {f"transpose_{one.lower()}": bool(n.integer(f"trans{one}", 0)) or None for one in "AB"}
    found = n.emit.op("matmul", n.x, n.input(1), **flips)
    alpha = n.real("alpha", 1.0)
    return found if alpha == 1 else n.emit.op("mul", found, n.emit.scalar(alpha, found.dtype))


@onnx_op(microsoft("FusedGemm"))
def _fused_gemm(n: NodeContext) -> NodeResults:
    found = TABLE["Gemm"](n)
    assert not isinstance(found, tuple)
    return _activated(n, found)


@onnx_op(microsoft("FusedConv"))
def _fused_conv(n: NodeContext) -> NodeResults:
    found, added = convolved(n, n.x, n.input(1), n.optional(2)), n.optional(3)
    return _activated(n, found if added is None else n.emit.op("add", found, added))


@onnx_op(microsoft("MatMulNBits"))
def _matmul_blocks(n: NodeContext) -> NodeResults:
    """A product with weights [N, K] of a few bits, with a scale per block along K."""
    bits, block = n.integer("bits", 4), n.integer("block_size", 32)
    rows, columns = n.integer("N", 0), n.integer("K", 0)
    codes, scales, points = (n.optional(place) for place in (1, 2, 3))
    group = n.optional(4)
    if group is not None and group.shape != (0,):
        raise Unsupported("it reorders its blocks by g_idx")
    if not isinstance(codes, KnownTensor) or not isinstance(scales, KnownTensor):
        raise Unsupported("its weights are not stored in the file")
    if points is not None and not isinstance(points, KnownTensor):
        raise Unsupported("its zero points are not stored in the file")
    if bits not in (2, 4, 8) or block < 1 or rows < 1 or columns < 1:
        raise Unsupported(f"weights of {bits} bits in blocks of {block} are not supported")
    count = -(-columns // block)
    real = scales.array.reshape(rows, count).astype(np.float32)
    steps = unpacked(codes.array, bits, rows * count, block).astype(np.float32)
    offsets = _points(points, bits, rows, count)
    values = (steps.reshape(rows, count, block) - offsets[:, :, None]) * real[:, :, None]
    weights = values.reshape(rows, count * block)[:, :columns]
    w = known(np.ascontiguousarray(weights).astype(n.x.dtype.array), n.x.dtype, codes.hint)
    bias = n.optional(5)
    return n.emit.op("linear", n.x, w, None if bias is None else n.emit.cast(bias, n.x.dtype))


def unpacked(data: np.ndarray, bits: int, rows: int, length: int) -> np.ndarray:
    """Unpack numbers of a few bits from rows of bytes, lowest bits first."""
    own = np.ascontiguousarray(data).view(np.uint8).reshape(rows, -1)
    if bits == 8:
        return own[:, :length]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (own[:, :, None] >> shifts) & ((1 << bits) - 1)
    return parts.reshape(rows, -1)[:, :length]


def _points(points: KnownTensor | None, bits: int, rows: int, count: int) -> np.ndarray:
    if points is None:
        return np.full((rows, count), 1 << (bits - 1), np.float32)
    if points.dtype.kind == "float":
        return points.array.reshape(rows, count).astype(np.float32)
    return unpacked(points.array, bits, rows, count).astype(np.float32)
