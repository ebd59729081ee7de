"""Results with data-dependent lengths: folded if the inputs are known, otherwise computed up to a bound."""

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import I64, DraftOperand, KnownTensor, extent, known
from openinfer.importing.emitter import slice_at
from openinfer.importing.onnx_model import OnnxGraph, OnnxNode
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import Dim, is_same, is_symbolic

_COUNTED = {"NonZero": 1, "Compress": 0, "Unique": 0, "NonMaxSuppression": 0}
"""Op types whose results have a data-dependent extent, and its axis unless an attribute gives it."""
BOOL = DTYPES["bool"]


def counted_places(nodes: Iterable[OnnxNode], given_places: Collection[str] = ()) -> Iterator[str]:
    """The data-dependent extents of a graph and its subgraphs, by their names in options."""
    for node in nodes:
        if node.op in _COUNTED and not node.domain and node.outputs:
            axis = node.attributes.get("axis")
            given = axis if isinstance(axis, int) and node.op != "NonZero" else None
            yield f"{node.outputs[0]}[{_COUNTED[node.op] if given is None else given}]"
        if node.op == "Slice" and not node.domain:
            yield from (where for where in given_places if where.rpartition("[")[0] in node.outputs)
        if node.op == "Loop" and not node.domain:
            yield from loop_places(node)
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                yield from counted_places(value.nodes, given_places)


def loop_places(node: OnnxNode) -> Iterator[str]:
    """The names that options have for the trip count of a loop: by any result, and by what it collects."""
    yield from (f"{name}[iterations]" for name in node.outputs if name)
    yield from (f"{name}[0]" for name in node.outputs[max(len(node.inputs) - 2, 0) :] if name)


def _bound(n: NodeContext, axis: int) -> int:
    """The most entries that there can be, as the caller says."""
    found = bound_of(n, [f"{n.node.outputs[0]}[{axis}]"], "the shape of its result depends on data")
    require_outside(n)
    return found


def require_outside(n: NodeContext) -> None:
    """Reject a result with a data-dependent shape where its count could not be an output."""
    if n.emit.bodies.mark()[0] > 1:
        raise Unsupported("inside a branch or loop, the shape of its result depends on data")


def bound_of(n: NodeContext, places: list[str], reason: str) -> int:
    """The bound that the caller gives for the first of some places; ``reason`` says what needs a bound."""
    found = next((bound for where in places if (bound := n.emit.counts.bound(where)) is not None), None)
    if found is None:
        advice = f"give it a bound: --size '{places[0]}<=BOUND'; or fix what it depends on: --fix INPUT=VALUE"
        raise Unsupported(reason, advice)
    return found


def _all_known(n: NodeContext) -> bool:
    return all(one is None or (isinstance(one, KnownTensor) and not one.has_sizes) for one in n.operands)


# --- selected entries -------------------------------------------------------------------------------------------------


def _chosen(n: NodeContext, mask: DraftOperand, bound: int) -> tuple[DraftOperand, Dim]:
    """The positions where a flat mask is true, padded with -1 up to the bound.

    Each position is scattered to its ordinal, positions that are not selected to slot 0. An ordinal beyond the bound is
    an index out of range and stops the run.
    """
    ones = n.emit.cast(mask, I64)
    numbers = n.emit.op("cumsum", ones, axis=0)
    target = n.emit.op("where", mask, numbers, known(np.int64(0)))
    none = n.emit.full(known(np.int64(-1)), (bound + 1,))
    filled = n.emit.op("scatter", none, target, n.emit.ramp(mask.shape[0]), axis=0)
    places = n.emit.op("slice", filled, starts=(1,), ends=(bound + 1,), axes=(0,))
    count = n.emit.op("sum_axis", ones, axes=(0,))
    entries = n.emit.counts.declare(n.node.outputs[0], bound, n.emit.value(count))
    return n.emit.counts.label(n.emit.value(places), 0, entries), entries


def _flat(n: NodeContext, x: DraftOperand) -> DraftOperand:
    count: int = 1
    for one in x.shape:
        count = one * count
    return n.emit.reshape(x, (count,))


@onnx_op("NonZero")
def _non_zero(n: NodeContext) -> NodeResults:
    """The coordinates of nonzero elements, in order: [axes, entries], padded with -1."""
    if isinstance(n.x, KnownTensor) and not n.x.has_sizes:
        return known(np.asarray(np.nonzero(np.atleast_1d(n.x.array))).astype(np.int64))
    bound = _bound(n, 1)
    mask = n.x if n.x.dtype is BOOL else n.emit.op("ne", n.x, n.emit.scalar(0, n.x.dtype))
    places, _ = _chosen(n, _flat(n, mask), bound)
    rows, rest = [], places
    for own in reversed(n.x.shape):
        rows.append(n.emit.op("mod", rest, extent(own)))
        rest = n.emit.op("floor_div", rest, extent(own))
    exists = n.emit.op("ge", places, known(np.int64(0)))
    table = n.emit.op("stack", *reversed(rows), axis=0) if rows else n.emit.op("unsqueeze", places, axes=(0,))
    return n.emit.op("where", exists, table, known(np.int64(-1)))


@onnx_op("Compress")
def _compress(n: NodeContext) -> NodeResults:
    """The slices along an axis, or the elements, where a condition is true; padded with 0."""
    given = n.has("axis")
    axis = n.axis(n.integer("axis", 0)) if given else 0
    if _all_known(n) and isinstance(n.x, KnownTensor):
        condition = n.input(1)
        assert isinstance(condition, KnownTensor)
        found = np.compress(condition.array.reshape(-1), n.x.array, axis if given else None)
        return known(found, n.x.dtype)
    bound = _bound(n, n.integer("axis", 0))
    x = n.x if given else _flat(n, n.x)
    places, _ = _chosen(n, _flat(n, n.input(1)), bound)
    rows = n.emit.op("gather", x, n.emit.op("max", places, known(np.int64(0))), axis=axis or None)
    exists = n.emit.op("ge", places, known(np.int64(0)))
    shape = tuple(places.shape[0] if one == axis else 1 for one in range(len(x.shape)))
    return n.emit.op("where", n.emit.reshape(exists, shape), rows, n.emit.scalar(0, x.dtype))


@onnx_op("Unique")
def _unique(n: NodeContext) -> NodeResults:
    if isinstance(n.x, KnownTensor) and not n.x.has_sizes:
        return _known_unique(n, n.x)
    if n.has("axis") or not n.integer("sorted", 1) or any(n.reads(one) for one in (1, 2, 3)):
        raise Unsupported("where the count depends on data, only sorted elements of the whole tensor are supported")
    bound = _bound(n, 0)
    ordered = n.emit.ops("sort", _flat(n, n.x), axis=0)[0]
    length = ordered.shape[0]
    if is_symbolic(length) or length < 2:
        raise Unsupported("it is applied to a dynamic size, or to a single element", "fix the size: --size NAME=VALUE")
    later, sooner = (
        n.emit.op("slice", ordered, starts=(start,), ends=(length - 1 + start,), axes=(0,)) for start in (1, 0)
    )
    first = known(np.ones(1, np.bool_))
    mask = n.emit.op("concat", first, n.emit.op("ne", later, sooner), axis=0)
    places, _ = _chosen(n, mask, bound)
    values = n.emit.op("gather", ordered, n.emit.op("max", places, known(np.int64(0))))
    exists = n.emit.op("ge", places, known(np.int64(0)))
    return (n.emit.op("where", exists, values, n.emit.scalar(0, n.x.dtype)), None, None, None)


def _known_unique(n: NodeContext, x: KnownTensor) -> NodeResults:
    axis = n.axis(n.integer("axis", 0)) if n.has("axis") else None
    values, first, inverse, counts = np.unique(
        x.array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = np.asarray(inverse).reshape(-1)
    if not n.integer("sorted", 1):  # in order of appearance
        order = np.argsort(first)
        values, first, counts = np.take(values, order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return (known(values, x.dtype), *(known(one.astype(np.int64)) for one in (first, inverse, counts)))


def front(n: NodeContext, axis: int, end: DraftOperand) -> DraftOperand:
    """A slice up to a data-dependent end, padded with 0."""
    bound, own = _bound(n, axis), n.x.shape[axis]
    x = n.x
    if is_symbolic(own) or bound < own:
        x = n.emit.op("slice", x, starts=(0,), ends=(bound,), axes=(axis,))
    last = n.emit.reshape(n.emit.cast(end, I64), ())
    last = n.emit.op("where", n.emit.op("lt", last, known(np.int64(0))), n.emit.op("add", last, extent(own)), last)
    number = n.emit.op("max", n.emit.op("min", last, extent(own)), known(np.int64(0)))
    inside = n.emit.op("lt", n.emit.ramp(x.shape[axis]), number)
    if bound < int(own):  # an entry beyond the bound is an index out of range
        number = n.emit.op("gather", n.emit.ramp(x.shape[axis] + 1), number)
    shape = tuple(x.shape[axis] if one == axis else 1 for one in range(len(x.shape)))
    found = n.emit.op("where", n.emit.reshape(inside, shape), x, n.emit.scalar(0, x.dtype))
    entries = n.emit.counts.declare(n.node.outputs[0], int(x.shape[axis]), n.emit.value(number))
    return n.emit.counts.label(n.emit.value(found), axis, entries)


# --- boxes ------------------------------------------------------------------------------------------------------------


@onnx_op("NonMaxSuppression")
def _non_max_suppression(n: NodeContext) -> NodeResults:
    """Repeatedly take the best box per batch and class and drop what overlaps it: rows of batch, class and box."""
    boxes, scores = n.x, n.input(1)
    most = int(n.known_number(2, "the number of boxes")) if n.optional(2) is not None else 0
    if most <= 0:
        return known(np.zeros((0, 3), np.int64))
    bound = _bound(n, 0)
    batch, classes, count = scores.shape
    if is_symbolic(batch) or is_symbolic(classes) or not is_same(boxes.shape[1], count):
        raise Unsupported("it has a dynamic number of batches or classes", "fix the size: --size NAME=VALUE")
    rounds = min(most, bound + 1) if is_symbolic(count) else min(most, bound + 1, count)
    picked, valid = _rounds(n, scores, rounds)
    total = batch * classes * rounds
    order = n.emit.transpose(picked, (1, 2, 0))
    chosen = n.emit.reshape(n.emit.transpose(valid, (1, 2, 0)), (total,))
    places, _ = _chosen(n, chosen, bound)
    numbers = np.stack(np.divmod(np.arange(total) // rounds, classes), axis=1).astype(np.int64)
    table = n.emit.op("concat", known(numbers), n.emit.reshape(order, (total, 1)), axis=1)
    rows = n.emit.op("gather", table, n.emit.op("max", places, known(np.int64(0))))
    exists = n.emit.op("unsqueeze", n.emit.op("ge", places, known(np.int64(0))), axes=(1,))
    return n.emit.op("where", exists, rows, known(np.int64(-1)))


def _rounds(n: NodeContext, scores: DraftOperand, rounds: int) -> tuple[DraftOperand, DraftOperand]:
    """The box of each round, [rounds, batches, classes], and whether there was one."""
    batch, classes, count = scores.shape
    least = n.emit.scalar(float("-inf"), scores.dtype)
    corners = _corners(n)
    area = _area(n, corners)
    start = scores
    if n.optional(4) is not None:
        enough = n.emit.op("gt", scores, n.emit.reshape(n.input(4), ()))
        start = n.emit.op("where", enough, scores, least)
    left = n.emit.variable(start, "left")
    picked = n.emit.declare(I64, (rounds, batch, classes))
    valid = n.emit.declare(BOOL, (rounds, batch, classes))
    limit = n.emit.scalar(0, scores.dtype) if n.optional(3) is None else n.emit.reshape(n.input(3), ())
    index = n.emit.open_loop("rounds")
    best = n.emit.op("argmax_axis", left, axis=2)
    there = n.emit.op("gt", n.emit.op("max_axis", left, axes=(2,)), least)
    n.emit.copy(best, slice_at(picked, index))
    n.emit.copy(there, slice_at(valid, index))
    taken = n.emit.op("gt", _overlap(n, corners, area, best), limit)
    itself = n.emit.op("eq", n.emit.ramp(count), n.emit.op("unsqueeze", best, axes=(2,)))
    gone = n.emit.op("or", taken, itself)
    n.emit.copy(n.emit.op("where", gone, least, left), left)
    n.emit.close_loop("rounds", index, rounds)
    return picked, valid


def _corners(n: NodeContext) -> list[DraftOperand]:
    """The lower and upper coordinates along both axes, [batches, boxes] each."""
    columns = [n.emit.op("gather", n.x, known(np.int64(place)), axis=2) for place in range(4)]
    if n.integer("center_point_box", 0):
        half = n.emit.scalar(0.5, n.x.dtype)
        pairs = []
        for centre, size in zip(columns[:2], columns[2:], strict=True):
            reach = n.emit.op("mul", size, half)
            pairs.append((n.emit.op("sub", centre, reach), n.emit.op("add", centre, reach)))
    else:
        pairs = [(columns[0], columns[2]), (columns[1], columns[3])]
    return [n.emit.op(op, *pair) for pair in pairs for op in ("min", "max")]


def _area(n: NodeContext, corners: list[DraftOperand]) -> DraftOperand:
    height, width = (n.emit.op("sub", corners[place + 1], corners[place]) for place in (0, 2))
    return n.emit.op("mul", height, width)


def _overlap(n: NodeContext, corners: list[DraftOperand], area: DraftOperand, best: DraftOperand) -> DraftOperand:
    """The intersection over union of all boxes with the best ones: [batches, classes, boxes]."""
    zero = n.emit.scalar(0, n.x.dtype)
    shared: DraftOperand | None = None
    for place in (0, 2):
        all_low, all_high = (n.emit.op("unsqueeze", corners[place + one], axes=(1,)) for one in (0, 1))
        low, high = (_of_best(n, corners[place + one], best) for one in (0, 1))
        length = n.emit.op("sub", n.emit.op("min", all_high, high), n.emit.op("max", all_low, low))
        length = n.emit.op("max", length, zero)
        shared = length if shared is None else n.emit.op("mul", shared, length)
    assert shared is not None
    areas = n.emit.op("add", n.emit.op("unsqueeze", area, axes=(1,)), _of_best(n, area, best))
    union = n.emit.op("sub", areas, shared)
    return n.emit.op("where", n.emit.op("gt", union, zero), n.emit.op("div", shared, union), zero)


def _of_best(n: NodeContext, values: DraftOperand, best: DraftOperand) -> DraftOperand:
    """The values of the best boxes: [batches, classes, 1]."""
    return n.emit.op("unsqueeze", n.emit.op("take_along", values, best, axis=1), axes=(2,))
