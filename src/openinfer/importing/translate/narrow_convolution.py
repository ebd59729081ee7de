"""Convolutions of quantized values on their codes: 8-bit factors, sums in i32, zero points corrected afterwards."""

from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import DraftOperand, KnownTensor, known
from openinfer.importing.translate.context import NodeContext
from openinfer.importing.translate.windows import Window, window_of
from openinfer.loops.dim import is_same

I8, I32 = DTYPES["i8"], DTYPES["i32"]
_MOST_CODES = 255


def narrow_convolved(
    n: NodeContext, x: DraftOperand, w: DraftOperand, x_point: DraftOperand | None, w_point: DraftOperand | None
) -> DraftOperand | None:
    """The convolution in i32, or None if a factor does not fit 8 bits.

    With x = s + 128 and w = t + c: (x - z) * w = s * t + c * sum(s) - (z - 128) * sum(w). Padding counts as the zero
    point, so the codes are padded with the code of the zero point.
    """
    narrow = _narrow(w, w_point)
    if narrow is None or x.dtype.bits != 8 or not 1 <= len(x.shape) - 2 <= 3:
        return None
    if x_point is not None and not all(is_same(one, 1) for one in x_point.shape):
        return None
    small, excess = narrow
    groups = n.integer("group", 1)
    if np.any(excess) and groups != 1:
        return None
    codes, point = _codes(n, x), _codes(n, x_point if x_point is not None else known(np.zeros((), x.dtype.array)))
    window = window_of(n, tuple(w.shape[2:]), tuple(x.shape[2:]))
    is_centred = isinstance(point, KnownTensor) and not np.any(point.array)
    if not is_centred:
        codes = _surrounded(n, codes, n.emit.reshape(point, ()), window)
        none = (0,) * len(window.kernel)
        window = Window(window.kernel, window.strides, window.dilations, none, none)
    op, params = f"conv{len(window.kernel)}d", {**window.params(), "acc": (I32,)}
    product = n.emit.op(op, codes, small, None, groups=None if groups == 1 else groups, **params)
    channels = (small.shape[0], *(1,) * len(window.kernel))
    if np.any(excess):
        ones = known(np.ones((1, *small.shape[1:]), np.int8), I8)
        sums = n.emit.op(op, codes, ones, None, **params)
        factor = known(np.broadcast_to(excess, small.shape[0]).reshape(channels).copy(), I32, "excess")
        product = n.emit.op("add", product, n.emit.op("mul", sums, factor))
    if is_centred:
        return product
    whole = small.array.astype(np.int32).reshape(small.shape[0], -1)
    totals = whole.sum(axis=1, dtype=np.int32) + excess * np.int32(whole.shape[1])
    shift = n.emit.cast(n.emit.reshape(point, ()), I32)
    return n.emit.op("sub", product, n.emit.op("mul", known(totals.reshape(channels), I32, "column_sums"), shift))


def _codes(n: NodeContext, x: DraftOperand) -> DraftOperand:
    """8-bit values as i8; unsigned ones are shifted down by 128."""
    if x.dtype is I8:
        return x
    return n.emit.op("bitcast", n.emit.op("xor", x, n.emit.scalar(128, x.dtype)), to=I8)


def _surrounded(n: NodeContext, codes: DraftOperand, point: DraftOperand, window: Window) -> DraftOperand:
    """The image padded with the zero point, as the window requires."""
    for axis, (begin, end) in enumerate(zip(window.begins, window.ends, strict=True), start=2):
        sides = []
        for width in (begin, end):
            shape = tuple(width if one == axis else own for one, own in enumerate(codes.shape))
            sides.append([n.emit.full(point, shape)] if width else [])
        if begin or end:
            codes = n.emit.op("concat", *sides[0], codes, *sides[1], axis=axis)
    return codes


def _narrow(w: DraftOperand, point: DraftOperand | None) -> tuple[KnownTensor, Any] | None:
    """Known weights minus their zero point, as i8, and the excess to add for each output."""
    if not isinstance(w, KnownTensor) or w.has_sizes or w.array.size == 0:
        return None
    if point is not None and (not isinstance(point, KnownTensor) or point.array.size not in (1, w.shape[0])):
        return None
    points = np.zeros(1, np.int32) if point is None else point.array.astype(np.int32).reshape(-1)
    values = w.array.astype(np.int32) - points.reshape(-1, *(1,) * (len(w.shape) - 1))
    rows = values.reshape(w.shape[0], -1)
    least, most = rows.min(axis=1), rows.max(axis=1)
    if (most - least).max() > _MOST_CODES:
        return None
    excess: Any = np.zeros(1, np.int32) if least.min() >= -128 and most.max() <= 127 else least + np.int32(128)
    return KnownTensor(I8, (values - excess.reshape(-1, *(1,) * (len(w.shape) - 1))).astype(np.int8), w.hint), excess
