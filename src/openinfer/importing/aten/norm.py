"""Normalisations and attention."""

from math import sqrt

import numpy as np

from openinfer.importing.aten.context import AtenContext, AtenResults, aten_op, word
from openinfer.importing.aten.move import expanded
from openinfer.importing.draft import DraftOperand
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import is_same, is_symbolic


@aten_op("layer_norm", "native_layer_norm")
def _layer_norm(n: AtenContext) -> AtenResults:
    count = len(n.ints("normalized_shape"))
    axes = tuple(range(-count, 0))
    eps = n.real("eps", 1e-5)
    y = n.emit.op(
        "layer_norm",
        *(n.x, n.optional("weight"), n.optional("bias")),
        axes=None if axes == (-1,) else axes,
        eps=eps,
    )
    if n.node.op == "aten.layer_norm":
        return y
    if not n.reads(1) and not n.reads(2):
        return (y, None, None)
    mean = n.emit.op("mean_axis", n.x, axes=axes, keepdims=True)
    var = n.emit.op("var_axis", n.x, axes=axes, keepdims=True)
    return (y, mean, n.emit.op("rsqrt", n.emit.op("add", var, n.emit.scalar(eps, n.x.dtype))))


@aten_op("rms_norm")
def _rms_norm(n: AtenContext) -> AtenResults:
    count = len(n.ints("normalized_shape"))
    axes = tuple(range(-count, 0))
    eps = n.real("eps", float(np.finfo(np.float64 if n.dtype.bits == 64 else np.float32).eps))
    return n.emit.op("rms_norm", n.x, n.optional("weight"), axes=None if axes == (-1,) else axes, eps=eps)


@aten_op("batch_norm", "_native_batch_norm_legit_no_training")
def _batch_norm(n: AtenContext) -> AtenResults:
    """Inference mode: uses the stored statistics."""
    mean, var = n.optional("running_mean"), n.optional("running_var")
    if n.flag("training") or mean is None or var is None:
        raise Unsupported("it computes statistics as in training", "call module.eval(), and keep track_running_stats")
    ones = (n.emit.full(n.emit.scalar(value, n.x.dtype), (n.x.shape[1],)) for value in (1, 0))
    gamma, beta = (n.optional(name) or one for name, one in zip(("weight", "bias"), ones, strict=True))
    given = (n.cast(one, n.x.dtype) for one in (gamma, beta, mean, var))
    y = n.emit.op("batch_norm", n.x, *given, eps=n.real("eps", 1e-5))
    return (y, None, None) if word(n) == "_native_batch_norm_legit_no_training" else y


@aten_op("group_norm")
def _group_norm(n: AtenContext) -> AtenResults:
    return n.emit.op(
        "group_norm",
        *(n.x, n.optional("weight"), n.optional("bias")),
        groups=n.integer("num_groups", 1),
        eps=n.real("eps", 1e-5),
    )


@aten_op("native_group_norm")
def _native_group_norm(n: AtenContext) -> AtenResults:
    if n.reads(1) or n.reads(2):
        raise Unsupported("its statistics are read")
    given = (n.x, n.optional("weight"), n.optional("bias"))
    return (n.emit.op("group_norm", *given, groups=n.integer("group", 1), eps=n.real("eps", 1e-5)), None, None)


@aten_op("instance_norm")
def _instance_norm(n: AtenContext) -> AtenResults:
    if not n.flag("use_input_stats", default=True):
        return _batch_norm(n)
    return n.emit.op("instance_norm", n.x, n.optional("weight"), n.optional("bias"), eps=n.real("eps", 1e-5))


# --- attention --------------------------------------------------------------------------------------------------------


@aten_op("scaled_dot_product_attention")
def _attention(n: AtenContext) -> AtenResults:
    """PyTorch aligns a causal mask with the first key, the language with the last."""
    q, k, v, mask = n.tensor("query"), n.tensor("key"), n.tensor("value"), n.optional("attn_mask")
    if n.real("dropout_p") != 0:
        raise Unsupported("it drops values as in training", "call module.eval() before the import")
    causal = n.flag("is_causal")
    if causal and not is_same(q.shape[-2], k.shape[-2]):
        mask, causal = _first_keys(n, q.shape[-2], k.shape[-2]), False
    scale = n.values.get("scale")
    depth = q.shape[-1]
    if isinstance(scale, int | float) and not is_symbolic(depth) and abs(scale * sqrt(depth) - 1) < 1e-9:
        scale = None
    if len(q.shape) < 3:
        q, k, v = (n.emit.op("unsqueeze", one, axes=(0,)) for one in (q, k, v))
    found = n.emit.op("sdpa", q, k, v, _mask(n, mask, q, k), causal=causal or None, scale=scale)
    return n.emit.op("squeeze", found, axes=(0,)) if len(n.x.shape) < 3 else found


def _mask(n: AtenContext, mask: DraftOperand | None, q: DraftOperand, k: DraftOperand) -> DraftOperand | None:
    """A mask with one row per query and one element per key."""
    if mask is None:
        return None
    lengths = (q.shape[-2], k.shape[-2])
    shape = ((1,) * (2 - len(mask.shape)) + tuple(mask.shape))[:-2]
    wide = expanded(n, mask, (*shape, *lengths))
    return wide if wide.dtype.kind == "bool" else n.cast(wide, q.dtype)


def _first_keys(n: AtenContext, queries: int, keys: int) -> DraftOperand:
    rows = n.emit.op("unsqueeze", n.emit.ramp(queries), axes=(1,))
    columns = n.emit.op("unsqueeze", n.emit.ramp(keys), axes=(0,))
    return n.emit.op("ge", rows, columns)
