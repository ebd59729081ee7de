"""Attention, the queries that share a head of keys at a time: scores, their softmax, the mean of the values.

Both products are contractions over scratch memory that holds the scores of a block of queries. A score of -inf leaves
its key out, whatever the value is: a product with 0 would not if the value is no finite number, so that values are
looked at first.
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
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import ACCUMULATOR, BOOL, Buffer, LoopKind, Scalar, Var
from openinfer.ops.lower.linear import add_products, indices
from openinfer.ops.lower.operand import Operand, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F32, F64, Shape

HIDDEN = -1.0
"""What stands in a row of weights for a key that takes no part; weights are 0 or more, or NaN."""
_SCORES = 1 << 16
"""The most scores in memory at a time, if more than those of one query of each head."""
_DYNAMIC_SCORES = 1 << 18
"""The same where the number of queries is known only while running: blocks of them cannot have a fixed size."""

Place = Callable[[Position, Position], tuple[Position, ...]]
"""Where an element is, by row and column."""
Third = Callable[[Position, Position, Position], tuple[Position, ...]]
"""Where an element is, by head, row and column."""


@dataclass(frozen=True)
class AttentionSizes:
    """The extents that scores have and sums go over."""

    rows: int
    keys: int
    depth: int
    values: int
    shared: int
    """How many query heads share a key head."""


@dataclass(frozen=True)
class Group:
    """What the queries that share a key head work with, and where their results go."""

    query: tuple[Operand, Third]
    key: tuple[Operand, Place]
    value: tuple[Operand, Place]
    mask: Callable[[Position, Position, Position], Scalar] | None
    """The mask's element for a query and a key: bool, or what is added to the score."""
    out: Third


class Attention:
    """The loops of one group of queries, with memory of their own."""

    def __init__(self, call: Call, builder: Builder, sizes: AttentionSizes, out: Buffer) -> None:
        self._call = call
        self._builder = builder
        self._sizes = sizes
        self._out = out
        self.dtype: DType = F64 if F64 in (call.dtype(0), call.dtype(1)) else F32
        self._block = self._block_rows()
        self._scores = builder.buffer(self.dtype, (sizes.shared, self._block, sizes.keys), "scores")
        self._means = builder.buffer(self.dtype, (sizes.shared, self._block, sizes.values), "means")

    def _block_rows(self) -> int:
        """How many queries are looked at together: blocks of about the same size, or all."""
        sizes = self._sizes
        each = max(int(sizes.shared) * int(sizes.keys), 1)
        if is_symbolic(sizes.rows):
            return sizes.rows if int(sizes.rows) * each <= _DYNAMIC_SCORES else 1
        most = max(_SCORES // each, 1)
        if sizes.rows <= most:
            return sizes.rows
        blocks = -(-sizes.rows // most)
        return -(-sizes.rows // blocks)

    def group(self, group: Group) -> None:
        """Scores, then weights, then means, for one block of queries after the other."""
        rows, block = self._sizes.rows, self._block
        finite = self._finite(group)
        if is_same(block, rows):
            self._rows(group, index(0), finite)
            return
        blocks = rows if block == 1 else -(-rows // block)
        with self._builder.loop(blocks, hint="block") as number:
            # The last block begins early enough to be a whole one: a few queries are looked at twice.
            first = number * index(block)
            start = self._builder.let(first if block == 1 else pair("min", first, index(rows - block)), "start")
            self._rows(group, start, finite)

    def _rows(self, group: Group, start: Scalar, finite: Scalar) -> None:
        self._scored(group, start)
        self._weighed(finite)
        self._mixed(group, finite)
        sizes = self._sizes
        with self._builder.loops((sizes.shared, self._block, sizes.values)) as (head, row, column):
            mean = cast(load(self._means, head, row, column), self._out.dtype.compute)
            self._builder.store(self._out, group.out(head, start + row, column), mean)

    def _finite(self, group: Group) -> Scalar:
        """Whether all values of a group are finite numbers: then all their products with 0 are 0."""
        builder, (value, place) = self._builder, group.value
        total = builder.local(0, self.dtype, "zeros")
        with (
            builder.loop(self._sizes.keys, hint="j") as key,
            builder.loop(self._sizes.values, hint="e") as column,
        ):
            builder.assign(total, total + cast(value[place(key, column)], self.dtype) * 0.0)
        return builder.let(total.eq(0.0), "finite")

    # --- scores ---------------------------------------------------------------------------------------------------

    def _scored(self, group: Group, start: Scalar) -> None:
        sizes = self._sizes
        over = indices(self._builder, (sizes.shared, self._block, sizes.keys), (sizes.depth,))
        (head, row, key), (column,) = over.free, over.bound
        (query, query_place), (keys, key_place) = group.query, group.key
        score = self._masked(group, (head, start + row, key), self._scaled(Var(ACCUMULATOR, self.dtype)))
        factors = (query, query_place(head, start + row, column)), (keys, key_place(key, column))
        add_products(self._builder, over, (self._scores, over.free), factors, score)

    def _scaled(self, product: Scalar) -> Scalar:
        scale, softcap, depth = self._call.params["scale"], self._call.params["softcap"], self._sizes.depth
        if scale is not None:
            score = product * const(scale, self.dtype)
        elif is_symbolic(depth):
            score = product / unary("sqrt", cast(index(depth), self.dtype))
        else:
            score = product * const(1 / sqrt(max(depth, 1)), self.dtype)
        return math("tanh", score / softcap) * softcap if softcap else score

    def _masked(self, group: Group, where: tuple[Scalar, Scalar, Scalar], score: Scalar) -> Scalar:
        """The score, -inf where the query does not see the key."""
        _, row, key = where
        if group.mask is not None:
            mask = group.mask(*where)
            score = select(mask, score, -inf) if mask.dtype is BOOL else score + cast(mask, self.dtype)
        window = self._call.params["window"]
        if not (self._call.params["causal"] or window):
            return score
        last = row + index(self._sizes.keys - self._sizes.rows)
        score = select(key <= last, score, -inf)
        return select(last - index(window) < key, score, -inf) if window else score

    # --- weights --------------------------------------------------------------------------------------------------

    def _weighed(self, finite: Scalar) -> None:
        """In place of the scores, what share of the mean each key has."""
        builder, sizes, scores = self._builder, self._sizes, self._scores
        with builder.loops((sizes.shared, self._block)) as row:
            top = builder.local(-inf, self.dtype, "top")
            with builder.loop(sizes.keys, hint="j") as key:
                score = builder.let(load(scores, *row, key), "score")
                # Not a number is never on top, but makes the sum one, and so the row.
                builder.assign(top, select(score > top, score, top))
            shift = builder.let(select(top.eq(-inf), 0.0, top), "shift")
            total = builder.local(0, self.dtype, "total")
            with builder.loop(sizes.keys, hint="j") as key:
                score = builder.let(load(scores, *row, key), "score")
                weight = builder.let(math("exp", score - shift), "weight")
                # The exponential of -inf is 0, so that hidden keys do not change the sum.
                builder.assign(total, total + weight)
                builder.store(scores, (*row, key), select(score.eq(-inf), HIDDEN, weight))
            hidden = builder.let(select(finite, const(0, self.dtype), HIDDEN), "hidden")
            with builder.loop(sizes.keys, hint="j") as key:
                weight = builder.let(load(scores, *row, key), "weight")
                # Divided here and not at the end: a sum of large values stays finite.
                builder.store(scores, (*row, key), select(weight < 0.0, hidden, weight / total))

    # --- means ----------------------------------------------------------------------------------------------------

    def _mixed(self, group: Group, finite: Scalar) -> None:
        """The mean of the values: a product, or, with values that are not finite, what visible keys have."""
        builder, sizes, (value, place) = self._builder, self._sizes, group.value
        over = indices(builder, (sizes.shared, self._block, sizes.values), (sizes.keys,))
        (head, row, column), (key,) = over.free, over.bound
        with builder.when(finite):
            weights = Operand(self._scores, self.dtype)
            factors = (weights, (head, row, key)), (value, place(key, column))
            add_products(builder, over, (self._means, over.free), factors, Var(ACCUMULATOR, self.dtype))
        with builder.when(~finite), builder.loops((sizes.shared, self._block, sizes.values)) as where:
            total = builder.local(0, self.dtype, "mean")
            with builder.loop(sizes.keys, hint="j") as one:
                weight = builder.let(load(self._scores, *where[:2], one), "weight")
                with builder.when(~(weight < 0.0)):
                    builder.assign(total, total + weight * cast(value[place(one, where[2])], self.dtype))
            builder.store(self._means, where, total)


def _shared(heads: int, groups: int) -> int:
    """How many query heads share a key head; 1 where there are no heads at all."""
    return heads // groups if groups and heads else 1


# --- on [..., heads, T, d] --------------------------------------------------------------------------------------------


def _headed(operand: Operand, batch: Sequence[Position], head: Position) -> tuple[Operand, Place]:
    """The elements of one head by row and column; [T, d] is a single head."""
    shape = operand.shape
    front = () if len(shape) == 2 else (*broadcast_index(batch, shape[:-3]), head)
    return operand, lambda row, column: (*front, row, column)


@lowers("sdpa")
def sdpa(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """A group for each head of keys."""
    q, k, v, mask = (*inputs, None)[:4]
    assert q is not None
    assert k is not None
    assert v is not None
    (out,) = outputs
    heads, groups = (1 if len(one.shape) == 2 else one.shape[-3] for one in (q, k))
    shared = _shared(heads, groups)
    sizes = AttentionSizes(q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], shared)
    with builder.loops((*out.shape[:-3], groups), LoopKind.PARALLEL) as where:
        *batch, group = where
        attention = Attention(call, builder, sizes, out)

        def own(head: Position) -> Scalar:
            return group * index(shared) + index(head)

        attention.group(
            Group(
                (q, lambda head, row, column: _headed(q, batch, own(head))[1](row, column)),
                _headed(k, batch, group),
                _headed(v, batch, group),
                None if mask is None else lambda head, row, key: mask.at((*batch, own(head), index(row), index(key))),
                lambda head, row, column: (*batch, *((own(head),) if len(out.shape) > 2 else ()), row, column),
            )
        )


# --- with a projection of the queries ---------------------------------------------------------------------------------


def _cached(operand: Operand, batch: Sequence[Position], head: Position, *, is_one_head: bool) -> tuple[Operand, Place]:
    """The elements of one head in a cache: [..., S, H, d], [H, d], or [S, d] where there is one head."""
    shape = operand.shape
    if len(shape) > 2:
        front = broadcast_index(batch, shape[:-3])
        return operand, lambda key, column: (*front, key, head, column)
    if is_one_head:
        return operand, lambda key, column: (key, column)
    return operand, lambda _key, column: (head, column)


def _attn_sizes(x: Shape, k: Shape, v: Shape, width: int) -> tuple[AttentionSizes, int]:
    """The extents, and the number of key heads."""
    depth = k[-1]
    if len(k) > 2:
        keys, groups = k[-3], k[-2]
    else:
        keys, groups = (k[0], 1) if depth == width else (1, k[0])
    heads = width // depth if depth else groups
    return AttentionSizes(x[-2] if len(x) > 1 else 1, keys, depth, v[-1], _shared(heads, groups)), groups


@lowers("attn")
def attn(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """A group for each head of keys; its queries are computed first, in scratch memory."""
    x, k, v, w, mask = (*inputs, None)[:5]
    assert x is not None
    assert k is not None
    assert v is not None
    assert w is not None
    (out,) = outputs
    width = w.shape[-1]
    is_vector = len(x.shape) == 1
    sizes, groups = _attn_sizes(x.shape, k.shape, v.shape, width)
    front = out.shape[:-1] if is_vector else out.shape[:-2]
    with builder.loops((*front, groups), LoopKind.PARALLEL) as where:
        *batch, group = where
        attention = Attention(call, builder, sizes, out)
        query = builder.buffer(attention.dtype, (sizes.shared, sizes.rows, sizes.depth), "query")

        def own(head: Position) -> Scalar:
            return group * index(sizes.shared) + index(head)

        def before(row: Position) -> tuple[Position, ...]:
            return () if is_vector else (*broadcast_index(batch, x.shape[:-2]), row)

        _projected(builder, query, (x, before), (w, own))
        attention.group(
            Group(
                (Operand(query, attention.dtype), lambda head, row, column: (head, row, column)),
                _cached(k, batch, group, is_one_head=width == sizes.depth),
                _cached(v, batch, group, is_one_head=width == sizes.depth),
                None if mask is None else lambda head, row, key: mask.at((*batch, own(head), index(row), index(key))),
                lambda head, row, column: (
                    *batch,
                    *(() if is_vector else (row,)),
                    own(head) * index(sizes.values) + index(column),
                ),
            )
        )


def _projected(
    builder: Builder,
    query: Buffer,
    x: tuple[Operand, Callable[[Position], tuple[Position, ...]]],
    w: tuple[Operand, Callable[[Position], Scalar]],
) -> None:
    """The queries of the heads of a group: rows of x times columns of w."""
    (rows, before), (weights, own) = x, w
    over = indices(builder, query.shape, (weights.shape[0],))
    (head, row, column), (inner,) = over.free, over.bound
    factors = (
        (rows, (*before(row), inner)),
        (weights, (inner, own(head) * index(query.shape[-1]) + column)),
    )
    add_products(builder, over, (query, over.free), factors, Var(ACCUMULATOR, query.dtype))
