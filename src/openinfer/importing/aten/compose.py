"""Ops outside core ATen that PyTorch does not decompose, composed of ops of the language."""

from math import inf
from typing import Any

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.aten.context import FIX, AtenContext, AtenResults, aten_op, word
from openinfer.importing.draft import DraftDeclare, DraftOperand, DraftValue, KnownTensor, known
from openinfer.importing.emitter import slice_at
from openinfer.importing.flow import store
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import is_symbolic

I64 = DTYPES["i64"]


def _flat(n: AtenContext, x: DraftOperand) -> DraftOperand:
    count: int = 1
    for one in x.shape:
        count = count * one
    return n.emit.reshape(x, (count,))


# --- elements ---------------------------------------------------------------------------------------------------------


@aten_op("copysign")
def _copysign(n: AtenContext) -> AtenResults:
    size, sign = n.emit.op("abs", n.operand("self", n.dtype)), n.operand("other", n.dtype)
    return n.emit.op("where", n.emit.op("is_neg", sign), n.emit.op("neg", size), size)


@aten_op("hypot")
def _hypot(n: AtenContext) -> AtenResults:
    squares = (n.emit.op("square", n.operand(name, n.dtype)) for name in ("self", "other"))
    return n.emit.op("sqrt", n.emit.op("add", *squares))


@aten_op("_neg_view")
def _negated(n: AtenContext) -> AtenResults:
    return n.emit.op("neg", n.x)


@aten_op("masked_scatter")
def _masked_scatter(n: AtenContext) -> AtenResults:
    """Write the elements of a source, in order, wherever the mask is true."""
    mask = n.emit.op("and", n.tensor("mask"), n.emit.full(n.emit.scalar(1, DTYPES["bool"]), n.x.shape))
    order = n.emit.op("cumsum", n.cast(_flat(n, mask), I64), axis=0)
    place = n.emit.op("max", n.emit.op("sub", order, known(np.int64(1))), known(np.int64(0)))
    taken = n.emit.op("gather", _flat(n, n.tensor("source")), place)
    return n.emit.op("where", mask, n.emit.reshape(taken, n.x.shape), n.x)


@aten_op("searchsorted")
def _searchsorted(n: AtenContext) -> AtenResults:
    """The number of elements of a sorted row that come before each value."""
    row, value = n.tensor("sorted_sequence"), n.operand("self", n.tensor("sorted_sequence").dtype)
    if n.has("sorter"):
        raise Unsupported("its sequence is sorted by indices", "sort it before")
    wide = n.emit.op("unsqueeze", value, axes=(len(value.shape),))
    if len(row.shape) > 1:
        row = n.emit.op("unsqueeze", row, axes=(len(row.shape) - 1,))
    is_right = n.flag("right") or n.text("side") == "right"
    before = n.emit.op("le" if is_right else "lt", row, wide)
    return n.emit.op("sum_axis", n.cast(before, n.dtype), axes=(-1,))


@aten_op("histc")
def _histogram(n: AtenContext) -> AtenResults:
    """Count the elements in each bin; elements outside all bins are not counted."""
    bins, low, high = n.integer("bins", 100), n.real("min"), n.real("max")
    if low >= high:
        raise Unsupported("its bins depend on data", "give it min and max")
    x = n.cast(_flat(n, n.x), DTYPES["f64"] if n.x.dtype.name == "f64" else DTYPES["f32"])
    width = n.emit.scalar((high - low) / bins, x.dtype)
    place = n.emit.op("floor", n.emit.op("div", n.emit.op("sub", x, n.emit.scalar(low, x.dtype)), width))
    top = n.emit.op("eq", x, n.emit.scalar(high, x.dtype))  # the last bin includes both of its ends
    place = n.emit.op("where", top, n.emit.scalar(bins - 1, x.dtype), place)
    numbers = known(np.arange(bins).astype(x.dtype.array), x.dtype)
    same = n.emit.op("eq", n.emit.op("unsqueeze", place, axes=(1,)), numbers)
    return n.emit.op("sum_axis", n.cast(same, n.dtype), axes=(0,))


# --- order ------------------------------------------------------------------------------------------------------------


@aten_op("median", "kthvalue")
def _in_order(n: AtenContext) -> AtenResults:
    """The element at a position in sorted order, and its index; the median is the lower of two middle elements."""
    whole = "dim" not in n.values
    x = _flat(n, n.x) if whole else n.x
    axis = 0 if whole else n.axis(n.integer("dim", -1))
    if not x.shape:
        return (x, n.emit.scalar(0, I64))
    length = x.shape[axis]
    if is_symbolic(length):
        raise Unsupported("it looks up a position that depends on a size", FIX)
    place = n.integer("k") - 1 if word(n) == "kthvalue" else (length - 1) // 2
    results = []
    for one in n.emit.ops("sort", x, axis=axis - len(x.shape)):
        part = n.emit.op("slice", one, starts=(place,), ends=(place + 1,), axes=(axis,))
        results.append(part if n.flag("keepdim") else n.emit.op("squeeze", part, axes=(axis,)))
    return results[0] if whole else tuple(results)


@aten_op("cummax", "cummin")
def _running_extreme(n: AtenContext) -> AtenResults:
    """A loop along the axis that carries the best value so far and its index; of equal values the last wins."""
    if not n.rank:
        return (n.x, n.emit.scalar(0, I64))
    is_max = word(n) == "cummax"
    axis = n.axis(n.integer("dim"))
    order = [axis, *(one for one in range(n.rank) if one != axis)]
    x = n.emit.value(n.emit.transpose(n.x, order))
    numbers = [DraftValue(x.dtype, x.shape), DraftValue(I64, x.shape)]
    worst = (-inf if is_max else inf) if x.dtype.kind == "float" else _end(x.dtype.array, is_low=is_max)
    best = n.emit.variable(n.emit.full(n.emit.scalar(worst, x.dtype), x.shape[1:]))
    place = n.emit.variable(n.emit.full(n.emit.scalar(0, I64), x.shape[1:]))
    before = n.emit.bodies.mark()
    index = n.emit.open_loop("running")
    row = slice_at(x, index)
    is_better = n.emit.op("ge" if is_max else "le", row, best)
    store(n.emit, n.emit.op("where", is_better, index, place), place)
    store(n.emit, n.emit.op("max" if is_max else "min", row, best), best)
    for tensor, now in zip(numbers, (best, place), strict=True):
        store(n.emit, now, slice_at(tensor, index))
    n.emit.close_loop("running", index, x.shape[0])
    n.emit.bodies.insert(before, [DraftDeclare(tensor) for tensor in numbers])
    back = [order.index(one) for one in range(n.rank)]
    return tuple(n.emit.transpose(tensor, back) for tensor in numbers)


def _end(dtype: Any, *, is_low: bool) -> int:
    ends = np.iinfo(dtype)
    return int(ends.min if is_low else ends.max)


@aten_op("logcumsumexp")
def _log_of_sums(n: AtenContext) -> AtenResults:
    if not n.rank:
        return n.x
    axis = n.axis(n.integer("dim"))
    most = n.emit.op("max_axis", n.x, axes=(axis,), keepdims=True)
    sums = n.emit.op("cumsum", n.emit.op("exp", n.emit.op("sub", n.x, most)), axis=axis)
    return n.emit.op("add", n.emit.op("log", sums), most)


# --- products and tables ----------------------------------------------------------------------------------------------


@aten_op("bilinear")
def _bilinear(n: AtenContext) -> AtenResults:
    """For every pair of rows: one matrix between them per result."""
    one, other, weight = n.tensor("input1"), n.tensor("input2"), n.tensor("weight")
    count, left, right = weight.shape
    rows = n.emit.op("linear", other, n.emit.reshape(weight, (count * left, right)))
    rows = n.emit.reshape(rows, (*other.shape[:-1], count, left))
    wide = n.emit.op("unsqueeze", one, axes=(len(one.shape) - 1,))
    found = n.emit.op("sum_axis", n.emit.op("mul", rows, wide), axes=(-1,))
    bias = n.optional("bias")
    return found if bias is None else n.emit.op("add", found, bias)


@aten_op("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(n: AtenContext) -> AtenResults:
    """The sum, mean or maximum of the rows each bag names; all bags have the same length."""
    weight, ids, offsets = n.tensor("weight"), n.tensor("indices"), n.tensor("offsets")
    starts = offsets.array.tolist() if isinstance(offsets, KnownTensor) and not offsets.has_sizes else []
    count = len(starts) - int(n.flag("include_last_offset"))
    if count < 1 or is_symbolic(ids.shape[0]) or n.has("per_sample_weights") or n.integer("padding_idx", -1) >= 0:
        raise Unsupported("its bags depend on data, or have weights or padding", "look rows up, and sum them")
    each = ids.shape[0] // count
    if each * count != ids.shape[0] or starts[:count] != list(range(0, ids.shape[0], each or 1))[:count]:
        raise Unsupported("its bags have different lengths", "look rows up, and sum them")
    rows = n.emit.op("gather", weight, n.emit.reshape(ids, (count, each)))
    way = ("sum_axis", "mean_axis", "max_axis")[n.integer("mode")]
    return (n.emit.op(way, rows, axes=(1,)), None, None, None)
