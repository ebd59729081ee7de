"""Attention, the queries that share a head of keys at a time: index maps, scores, and which keys a query sees."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Position, broadcast_index, cast, const, index, math, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import ACCUMULATOR, BOOL, Attend, Axis, Buffer, Element, LoopKind, Result, Scalar, ScalarVar
from openinfer.ops.lower.linear import add_products, indices
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.types import F32, F64, Shape

ElementAt = Callable[[Position, Position], tuple[Position, ...]]
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

    query: tuple[KernelInput, Third]
    key: tuple[KernelInput, ElementAt]
    value: tuple[KernelInput, ElementAt]
    mask: Callable[[Position, Position, Position], Scalar] | None
    """The mask's element for a query and a key: bool, or what is added to the score."""
    out: tuple[Buffer, Third]


def _sum_dtype(call: Call) -> DType:
    return F64 if F64 in (call.dtype(0), call.dtype(1)) else F32


def _attend(call: Call, builder: Builder, sizes: AttentionSizes, group: Group) -> None:
    """The attention of one group."""
    head, row, key, depth, column = (builder.fresh("i") for _ in range(5))
    (query, query_place), (keys, key_place), (values, value_place) = group.query, group.key, group.value
    out, place = group.out
    total = ScalarVar(ACCUMULATOR, _sum_dtype(call))
    until, after = _borders(call, sizes, row)
    builder.add(
        Attend(
            head=Axis(head, sizes.shared),
            row=Axis(row, sizes.rows),
            key=Axis(key, sizes.keys),
            depth=Axis(depth, sizes.depth),
            column=Axis(column, sizes.values),
            queries=_element(query, query_place(head, row, depth)),
            keys=_element(keys, key_place(key, depth)),
            values=_element(values, value_place(key, column)),
            accumulator=total.dtype,
            score=_masked(group, (head, row, key), _scaled(call, sizes.depth, total)),
            out=Result(out, tuple(map(index, place(head, row, column))), cast(total, out.dtype.compute)),
            until=until,
            after=after,
        )
    )


def _masked(group: Group, where: tuple[Position, Position, Position], score: Scalar) -> Scalar:
    if group.mask is None:
        return score
    mask = group.mask(*where)
    return select(mask, score, -inf) if mask.dtype is BOOL else score + cast(mask, score.dtype)


def _element(operand: KernelInput, place: Sequence[Position]) -> Element:
    where = tuple(map(index, place))
    return Element(operand.buffer, where, None if operand.dequantize is None else operand[where])


def _scaled(call: Call, depth: int, product: Scalar) -> Scalar:
    scale, softcap = call.params["scale"], call.params["softcap"]
    if scale is not None:
        score = product * const(scale, product.dtype)
    elif is_symbolic(depth):
        score = product / unary("sqrt", cast(index(depth), product.dtype))
    else:
        score = product * const(1 / sqrt(max(depth, 1)), product.dtype)
    return math("tanh", score / softcap) * softcap if softcap else score


def _borders(call: Call, sizes: AttentionSizes, row: Scalar) -> tuple[Scalar | None, Scalar | None]:
    """The last key that a query sees, and the one before the first."""
    window = call.params["window"]
    if not (call.params["causal"] or window):
        return None, None
    last = row + index(sizes.keys - sizes.rows)
    return last, last - index(window) if window else None


def _shared(heads: int, groups: int) -> int:
    """How many query heads share a key head; 1 where there are no heads at all."""
    return heads // groups if groups and heads else 1


# --- on [..., heads, T, d] --------------------------------------------------------------------------------------------


def _headed(operand: KernelInput, batch: Sequence[Position], head: Position) -> tuple[KernelInput, ElementAt]:
    """The elements of one head by row and column; [T, d] is a single head."""
    shape = operand.shape
    front = () if len(shape) == 2 else (*broadcast_index(batch, shape[:-3]), head)
    return operand, lambda row, column: (*front, row, column)


@lowers("sdpa")
def sdpa(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
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

        def own(head: Position) -> Scalar:
            return group * index(shared) + index(head)

        _attend(
            call,
            builder,
            sizes,
            Group(
                (q, lambda head, row, column: _headed(q, batch, own(head))[1](row, column)),
                _headed(k, batch, group),
                _headed(v, batch, group),
                None if mask is None else lambda head, row, key: mask.at((*batch, own(head), index(row), index(key))),
                (out, lambda head, row, column: (*batch, *((own(head),) if len(out.shape) > 2 else ()), row, column)),
            ),
        )


# --- with a projection of the queries ---------------------------------------------------------------------------------


def _cached(
    operand: KernelInput, batch: Sequence[Position], head: Position, *, is_one_head: bool
) -> tuple[KernelInput, ElementAt]:
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
def attn(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
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
        query = builder.buffer(_sum_dtype(call), (sizes.shared, sizes.rows, sizes.depth), "query")

        def own(head: Position) -> Scalar:
            return group * index(sizes.shared) + index(head)

        def before(row: Position) -> tuple[Position, ...]:
            return () if is_vector else (*broadcast_index(batch, x.shape[:-2]), row)

        _projected(builder, query, (x, before), (w, own))
        _attend(
            call,
            builder,
            sizes,
            Group(
                (KernelInput(query, _sum_dtype(call)), lambda head, row, column: (head, row, column)),
                _cached(k, batch, group, is_one_head=width == sizes.depth),
                _cached(v, batch, group, is_one_head=width == sizes.depth),
                None if mask is None else lambda head, row, key: mask.at((*batch, own(head), index(row), index(key))),
                (
                    out,
                    lambda head, row, column: (
                        *batch,
                        *(() if is_vector else (row,)),
                        own(head) * index(sizes.values) + index(column),
                    ),
                ),
            ),
        )


def _projected(
    builder: Builder,
    query: Buffer,
    x: tuple[KernelInput, Callable[[Position], tuple[Position, ...]]],
    w: tuple[KernelInput, Callable[[Position], Scalar]],
) -> None:
    """The queries of the heads of a group: rows of x times columns of w."""
    (rows, before), (weights, own) = x, w
    over = indices(builder, query.shape, (weights.shape[0],))
    (head, row, column), (inner,) = over.free, over.bound
    factors = (
        (rows, (*before(row), inner)),
        (weights, (inner, own(head) * index(query.shape[-1]) + column)),
    )
    add_products(builder, over, (query, over.free), factors, ScalarVar(ACCUMULATOR, query.dtype))
