"""Attention, row by row: the scores of one query in scratch memory, their weights, the mean of the values.

Only keys that a query may see are visited; a score of -inf leaves its key out, whatever the value is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from openinfer.dtypes import DType
from openinfer.loops.build import (
    Builder,
    Position,
    broadcast_index,
    cast,
    const,
    index,
    load,
    math,
    pair,
    select,
    unary,
)
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import BOOL, Buffer, LoopKind, Scalar
from openinfer.ops.lower.operand import Operand, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F32, F64, Shape

HIDDEN = -1.0
"""What stands in a row of weights for a key that takes no part; weights are 0 or more, or NaN."""

Element = Callable[[Scalar, Scalar], Scalar]
"""An element of a row's keys or values, by key and column."""


@dataclass(frozen=True)
class Sizes:
    """The extents that scores have and sums go over."""

    rows: int
    keys: int
    depth: int
    values: int
    shared: int
    """How many query heads share a key head."""


@dataclass(frozen=True)
class Row:
    """What one query works with: its own elements, the keys and values of its head, and where its result goes."""

    place: Scalar
    """Which of the queries it is."""
    query: Callable[[Scalar], Scalar]
    key: Element
    value: Element
    mask: Callable[[Scalar], Scalar] | None
    """The mask's element for a key: bool, or what is added to the score."""
    out: Callable[[Scalar], tuple[Position, ...]]


class Attention:
    """The loops of one row, with the memory they share."""

    def __init__(self, call: Call, builder: Builder, sizes: Sizes, out: Buffer) -> None:
        self._call = call
        self._builder = builder
        self._sizes = sizes
        self._out = out
        self.dtype: DType = F64 if F64 in (call.dtype(0), call.dtype(1)) else F32
        self._weights = builder.buffer(self.dtype, (sizes.keys,), "weights")
        self._means = builder.buffer(self.dtype, (sizes.values,), "means")

    def row(self, row: Row) -> None:
        """Scores with their maximum, then weights with their sum, then the mean."""
        low, count = self._seen(row)
        top = self._scored(row, low, count)
        total = self._weighed(count, top)
        self._mixed(row, low, count, total)

    def _seen(self, row: Row) -> tuple[Scalar, Scalar]:
        """The first key that a query may see, and how many there are; fewer than none where it sees nothing."""
        window, keys = self._call.params["window"], index(self._sizes.keys)
        if not (self._call.params["causal"] or window):
            return index(0), keys
        until = row.place + index(self._sizes.keys - self._sizes.rows) + 1
        if not window:
            return index(0), self._builder.let(until, "count")
        low = self._builder.let(pair("max", until - index(window), 0), "low")
        return low, self._builder.let(until - low, "count")

    def _scored(self, row: Row, low: Scalar, count: Scalar) -> Scalar:
        """All scores, and what to subtract from them: the largest, or 0 where there is none."""
        builder = self._builder
        top = builder.local(-inf, self.dtype, "top")
        with builder.loop(count, hint="j") as position:
            key = builder.let(low + position, "key")
            product = builder.local(0, self.dtype, "product")
            with builder.loop(self._sizes.depth, hint="e") as column:
                builder.assign(product, product + row.query(column) * cast(row.key(key, column), self.dtype))
            score = builder.let(self._masked(row, key, self._scaled(product)), "score")
            builder.store(self._weights, (position,), score)
            builder.assign(top, pair("max", top, score))
        return builder.let(select(top.eq(-inf), 0.0, top), "shift")

    def _scaled(self, product: Scalar) -> Scalar:
        scale, softcap, depth = self._call.params["scale"], self._call.params["softcap"], self._sizes.depth
        if scale is not None:
            score = product * const(scale, self.dtype)
        elif is_symbolic(depth):
            score = product / unary("sqrt", cast(index(depth), self.dtype))
        else:
            score = product * const(1 / sqrt(max(depth, 1)), self.dtype)
        return math("tanh", score / softcap) * softcap if softcap else score

    def _masked(self, row: Row, key: Scalar, score: Scalar) -> Scalar:
        if row.mask is None:
            return score
        mask = row.mask(key)
        return select(mask, score, -inf) if mask.dtype is BOOL else score + cast(mask, self.dtype)

    def _weighed(self, count: Scalar, top: Scalar) -> Scalar:
        """Exponentials in place of the scores, and their sum."""
        builder = self._builder
        total = builder.local(0, self.dtype, "total")
        with builder.loop(count, hint="j") as position:
            score = builder.let(load(self._weights, position), "score")
            weight = builder.let(math("exp", score - top), "weight")
            # The exponential of -inf is 0, so that hidden keys do not change the sum.
            builder.assign(total, total + weight)
            builder.store(self._weights, (position,), select(score.eq(-inf), HIDDEN, weight))
        return total

    def _mixed(self, row: Row, low: Scalar, count: Scalar, total: Scalar) -> None:
        """The mean of the values, whose rows are read one after the other."""
        builder, values = self._builder, self._sizes.values
        with builder.loop(values, hint="e") as column:
            builder.store(self._means, (column,), const(0, self.dtype))
        with builder.loop(count, hint="j") as position:
            key = builder.let(low + position, "key")
            weight = builder.let(load(self._weights, position), "weight")
            with builder.when(~(weight < 0.0)):
                # Divided here and not at the end: a sum of large values stays finite.
                part = builder.let(weight / total, "part")
                with builder.loop(values, hint="e") as column:
                    grown = load(self._means, column) + part * cast(row.value(key, column), self.dtype)
                    builder.store(self._means, (column,), grown)
        with builder.loop(values, hint="e") as column:
            builder.store(self._out, row.out(column), cast(load(self._means, column), self._out.dtype.compute))


def _shared(heads: int, groups: int) -> int:
    """How many query heads share a key head; 1 where there are no heads at all."""
    return heads // groups if groups and heads else 1


def _masking(mask: Operand | None, place: Sequence[Position]) -> Callable[[Scalar], Scalar] | None:
    return None if mask is None else lambda key: mask.at((*place, key))


# --- on [..., heads, T, d] --------------------------------------------------------------------------------------------


def _headed(operand: Operand, batch: Sequence[Position], head: Position) -> Element:
    """The elements of one head by row and column; [T, d] is a single head."""
    shape = operand.shape
    front = () if len(shape) == 2 else (*broadcast_index(batch, shape[:-3]), head)
    return lambda row, column: operand[(*front, row, column)]


@lowers("sdpa")
def sdpa(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """A row for each query of each head."""
    q, k, v, mask = (*inputs, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    (out,) = outputs
    heads, groups = (1 if len(one.shape) == 2 else one.shape[-3] for one in (q, k))
    sizes = Sizes(q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], _shared(heads, groups))
    attention = Attention(call, builder, sizes, out)
    with builder.loops((*out.shape[:-3], heads, sizes.rows), LoopKind.PARALLEL) as where:
        *batch, head, place = where
        queries = _headed(q, batch, head)
        shared = head // index(sizes.shared)
        attention.row(
            Row(
                place,
                lambda column: cast(queries(place, column), attention.dtype),
                _headed(k, batch, shared),
                _headed(v, batch, shared),
                _masking(mask, where),
                lambda column: (*batch, *((head,) if len(out.shape) > 2 else ()), place, column),
            )
        )


# --- with a projection of the queries ---------------------------------------------------------------------------------


def _cached(operand: Operand, batch: Sequence[Position], head: Position, *, is_one_head: bool) -> Element:
    """The elements of one head in a cache: [..., S, H, d], [H, d], or [S, d] where there is one head."""
    shape = operand.shape
    if len(shape) > 2:
        front = broadcast_index(batch, shape[:-3])
        return lambda key, column: operand[(*front, key, head, column)]
    if is_one_head:
        return lambda key, column: operand[key, column]
    return lambda _key, column: operand[head, column]


def _attn_sizes(x: Shape, k: Shape, v: Shape, width: int) -> tuple[Sizes, int]:
    """The extents, and the number of query heads."""
    depth = k[-1]
    if len(k) > 2:
        keys, groups = k[-3], k[-2]
    else:
        keys, groups = (k[0], 1) if depth == width else (1, k[0])
    heads = width // depth if depth else groups
    return Sizes(x[-2] if len(x) > 1 else 1, keys, depth, v[-1], _shared(heads, groups)), heads


@lowers("attn")
def attn(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """A row for each query of each head; the query is computed first, in scratch memory."""
    x, k, v, w, mask = (*inputs, None)[:5]
    assert x is not None
    assert k is not None
    assert v is not None
    assert w is not None
    (out,) = outputs
    own, width = w.shape
    is_vector = len(x.shape) == 1
    sizes, heads = _attn_sizes(x.shape, k.shape, v.shape, width)
    attention = Attention(call, builder, sizes, out)
    query = builder.buffer(attention.dtype, (sizes.depth,), "query")
    front = out.shape[:-1] if is_vector else out.shape[:-2]
    with builder.loops((*front, heads, sizes.rows), LoopKind.PARALLEL) as where:
        *batch, head, place = where
        before = () if is_vector else (*broadcast_index(batch, x.shape[:-2]), place)
        with builder.loop(sizes.depth, hint="e") as column:
            total = builder.local(0, attention.dtype, "q")
            with builder.loop(own, hint="d") as inner:
                factors = x[(*before, inner)], w[inner, head * index(sizes.depth) + column]
                builder.assign(total, total + cast(factors[0], attention.dtype) * cast(factors[1], attention.dtype))
            builder.store(query, (column,), total)
        shared = head // index(sizes.shared)
        attention.row(
            Row(
                place,
                lambda column: load(query, column),
                _cached(k, batch, shared, is_one_head=width == sizes.depth),
                _cached(v, batch, shared, is_one_head=width == sizes.depth),
                _masking(mask, where),
                lambda column: (*batch, *(() if is_vector else (place,)), head * index(sizes.values) + column),
            )
        )
