"""Ops that read or write elements by index tensors."""

from collections.abc import Sequence

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.aten.context import OPERANDS, AtenContext, AtenResults, aten_op
from openinfer.importing.aten.move import expanded, sliced
from openinfer.importing.draft import I64, DraftOperand
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import is_same

_BY_DATA = "the shape of its result depends on data"


@aten_op("embedding")
def _embedding(n: AtenContext) -> AtenResults:
    return n.emit.op("embedding", n.tensor("weight"), n.tensor("indices"))


@aten_op("index_select")
def _index_select(n: AtenContext) -> AtenResults:
    return n.emit.op("gather", n.x, n.tensor("index"), axis=n.axis(n.integer("dim")))


@aten_op("gather")
def _gather(n: AtenContext) -> AtenResults:
    """Elements by index along an axis; the index tensor may have smaller extents in the other axes."""
    axis, ids = n.axis(n.integer("dim")), n.tensor("index")
    return n.emit.op("take_along", _cut(n, n.x, ids.shape, axis), ids, axis=axis)


def _cut(n: AtenContext, x: DraftOperand, shape: Sequence[int], axis: int) -> DraftOperand:
    for other, own in enumerate(shape):
        if other != axis and not is_same(own, x.shape[other]):
            x = sliced(n, x, other, 0, own)
    return x


@aten_op("scatter", "scatter_add", "scatter_reduce")
def _scatter(n: AtenContext) -> AtenResults:
    axis, ids = n.axis(n.integer("dim")), n.tensor("index")
    if n.has("src"):
        updates = _cut(n, n.operand("src", n.dtype), ids.shape, -1)
    else:
        updates = n.emit.full(n.operand("value", n.dtype), tuple(ids.shape))
    if n.has("include_self") and not n.flag("include_self", default=True):
        raise Unsupported("it leaves out the old values (include_self=False)")
    return n.emit.op("scatter", n.x, ids, updates, axis=axis, reduce=_reduction(n))


def _reduction(n: AtenContext) -> str | None:
    if n.node.op == "aten.scatter_add":
        return "add"
    word = n.text("reduce")
    known_words = {"": None, "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if word not in known_words:
        raise Unsupported(f"writing by {word!r} has no translation")
    return known_words[word]


@aten_op("index_add", "index_copy")
def _index_add(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim"))
    source = n.operand("source", n.dtype)
    alpha = n.values.get("alpha")
    if alpha is not None and alpha != 1:
        source = n.emit.op("mul", source, n.as_operand(alpha, n.dtype))
    return _written_along(n, axis, n.tensor("index"), source, "add" if n.node.op == "aten.index_add" else None)


def _written_along(
    n: AtenContext, axis: int, index: DraftOperand, source: DraftOperand, reduce: str | None
) -> DraftOperand:
    """The first argument with slices along an axis written at the positions in a vector."""
    places = n.emit.reshape(index, (1,) * axis + (index.shape[0] if index.shape else 1,) + (1,) * (n.rank - axis - 1))
    shape = (*n.x.shape[:axis], places.shape[axis], *n.x.shape[axis + 1 :])
    ids = expanded(n, places, shape)
    return n.emit.op("scatter", n.x, ids, expanded(n, source, shape), axis=axis, reduce=reduce)


# --- x[..., indices, ...] ---------------------------------------------------------------------------------------------


def _indices(n: AtenContext) -> list[tuple[int, DraftOperand]]:
    """The indexed axes, with their integer index tensors."""
    given = n.values.get("indices")
    assert isinstance(given, tuple)
    found = []
    for axis, one in enumerate(given):
        if one is None:
            continue
        if not isinstance(one, OPERANDS):
            raise Unsupported("an index is not a tensor")
        if one.dtype.kind == "bool" or one.dtype.name == "u8":
            raise Unsupported(_BY_DATA, "use torch.where in place of a mask")
        found.append((axis, one))
    if not found:
        raise Unsupported("it has no indices")
    return found


def _is_together(axes: Sequence[int]) -> bool:
    return list(axes) == list(range(axes[0], axes[0] + len(axes)))


def _joined(n: AtenContext, indices: Sequence[tuple[int, DraftOperand]]) -> tuple[DraftOperand, tuple[int, ...]]:
    """The indices broadcast to one shape and stacked in a new last axis, and that shape."""
    shape: tuple[int, ...] = ()
    for _, one in indices:
        shape = _broadcast(shape, one.shape)
    wide = [expanded(n, n.emit.cast(one, I64), shape) for _, one in indices]
    if len(wide) == 1:
        return n.emit.op("unsqueeze", wide[0], axes=(len(shape),)), shape
    return n.emit.op("stack", *wide, axis=len(shape)), shape


def _broadcast(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(one), len(other))
    left, right = ((1,) * (rank - len(own)) + tuple(own) for own in (one, other))
    return tuple(b if is_same(a, 1) else a for a, b in zip(left, right, strict=True))


@aten_op("index", "_unsafe_index")
def _index(n: AtenContext) -> AtenResults:
    indices = _indices(n)
    axes = [axis for axis, _ in indices]
    if len(indices) == 1:
        return n.emit.op("gather", n.x, indices[0][1], axis=axes[0])
    ids, shape = _joined(n, indices)
    rest = [axis for axis in range(n.rank) if axis not in axes]
    found = n.emit.op("gather_nd", n.emit.transpose(n.x, (*axes, *rest)), ids)
    if not _is_together(axes) or axes[0] == 0:
        return found
    count = len(shape)
    front = range(count, count + axes[0])
    return n.emit.transpose(found, (*front, *range(count), *range(count + axes[0], count + len(rest))))


@aten_op("index_put", "_unsafe_index_put")
def _index_put(n: AtenContext) -> AtenResults:
    masked = _masked_put(n)
    if masked is not None:
        return masked
    indices = _indices(n)
    axes = [axis for axis, _ in indices]
    reduce = "add" if n.flag("accumulate") else None
    values = n.operand("values", n.dtype)
    if len(indices) == 1 and len(indices[0][1].shape) <= 1:
        if not indices[0][1].shape:  # a scalar index drops its axis
            values = (
                n.emit.op("unsqueeze", values, axes=(axes[0],)) if len(values.shape) >= n.rank - axes[0] else values
            )
        return _written_along(n, axes[0], indices[0][1], values, reduce)
    ids, shape = _joined(n, indices)
    rest = [axis for axis in range(n.rank) if axis not in axes]
    left = tuple(n.x.shape[axis] for axis in rest)
    first = axes[0] if _is_together(axes) else 0
    values = expanded(n, values, (*left[:first], *shape, *left[first:]))
    count = len(shape)
    values = n.emit.transpose(
        values, (*range(first, first + count), *range(first), *range(first + count, count + len(rest)))
    )
    order = (*axes, *rest)
    found = n.emit.op("scatter_nd", n.emit.transpose(n.x, order), ids, values, reduce=reduce)
    return n.emit.transpose(found, tuple(order.index(axis) for axis in range(n.rank)))


def _masked_put(n: AtenContext) -> DraftOperand | None:
    """Assign one value wherever a mask is true, else None."""
    given = n.values.get("indices")
    if not isinstance(given, tuple) or len(given) != 1 or not isinstance(given[0], OPERANDS):
        return None
    mask, values = given[0], n.operand("values", n.dtype)
    if mask.dtype.kind != "bool" or n.flag("accumulate") or any(not is_same(one, 1) for one in values.shape):
        return None
    shape = (*mask.shape, *(1,) * (n.rank - len(mask.shape)))
    return n.emit.op("where", n.emit.reshape(mask, shape), n.emit.reshape(values, ()), n.x)


@aten_op("one_hot")
def _one_hot(n: AtenContext) -> AtenResults:
    depth = n.integer("num_classes", -1)
    if depth < 1:
        raise Unsupported(_BY_DATA, "give the number of classes")
    return n.emit.op("one_hot", n.x, depth=depth, axis=-1, to=DTYPES["i64"])


@aten_op("nonzero", "masked_select", "unique_consecutive", "_unique2", "bincount", "unique_dim", "nonzero_static")
def _by_data(_node: AtenContext) -> AtenResults:
    raise Unsupported(_BY_DATA, "compute with masks of a fixed shape instead")


@aten_op("_local_scalar_dense", "item")
def _item(_node: AtenContext) -> AtenResults:
    raise Unsupported("it converts a tensor element to a Python number", "compute with the tensor instead")


@aten_op("take")
def _take(n: AtenContext) -> AtenResults:
    count: int = 1
    for one in n.x.shape:
        count = count * one
    return n.emit.op("gather", n.emit.reshape(n.x, (count,)), n.tensor("index"), axis=0)


@aten_op("isin")
def _isin(n: AtenContext) -> AtenResults:
    """Whether each element occurs in a small tensor."""
    elements, tests = n.tensor("elements"), n.tensor("test_elements")
    flat = n.emit.reshape(tests, (int(np.prod(tests.shape)),))
    same = n.emit.op("eq", n.emit.op("unsqueeze", elements, axes=(len(elements.shape),)), n.cast(flat, elements.dtype))
    return n.emit.op("any_axis", same, axes=(len(elements.shape),))
