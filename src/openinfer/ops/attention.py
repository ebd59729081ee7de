"""Attention: means of values, weighted by how queries and keys agree.

Everything is computed in the next wider type and rounded once.
"""

from collections.abc import Iterator
from math import isfinite, sqrt
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import case, extremes, random
from openinfer.ops.record import SUM, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import broadcast_pair, bytes_moved, gamma, multiplied
from openinfer.ops.types import (
    BOOL,
    F32,
    F64,
    FLOATS,
    Shape,
    dtypes,
    parameter_error,
    shape_error,
)

FAMILY = "Attention"
PARAMS = (
    Param("causal", "bool", default=False, doc="Whether a query sees no key after it; the last one sees the last key."),
    Param("scale", "float", None, "What scores are multiplied with; 1/sqrt(d) where nothing is given."),
    Param("window", "int", 0, "Above 0: a query sees this many keys, up to its own place and including it."),
    Param("softcap", "float", 0.0, "Above 0: scores s become softcap * tanh(s / softcap)."),
)

# --- scaled dot-product attention, on [..., heads, T, d] --------------------------------------------------------------


def _compute_dtype(call: Call) -> DType:
    """The dtype that generated code computes in: f32, or f64 where an operand is."""
    return F64 if F64 in (call.dtype(0), call.dtype(1)) else F32


def _require_params(call: Call) -> None:
    scale, window, softcap = (call.params[name] for name in ("scale", "window", "softcap"))
    if scale is not None and not isfinite(scale):
        raise parameter_error("scale", f"'scale' is finite, not {scale}")
    if window < 0:
        raise parameter_error("window", f"'window' is a number of keys, or 0 for all, not {window}")
    if not (isfinite(softcap) and softcap >= 0):
        raise parameter_error("softcap", f"'softcap' is finite and above 0, or 0 for none, not {softcap}")


def _headed(shape: Shape) -> Shape:
    return shape if len(shape) > 2 else (1, *shape)


def _fitted(call: Call, q: Shape, k: Shape, v: Shape, mask_slot: int) -> Shape:
    """The shape of the result on [..., heads, T, d]; the operands' shapes are given in that form."""
    _require_params(call)
    if k[-2] != v[-2] or k[-3] != v[-3]:
        raise shape_error(f"the keys {call.input(1)} and the values {call.input(2)} differ in number", 2)
    if q[-3] % k[-3] if k[-3] else q[-3]:
        raise shape_error(f"{q[-3]} query heads of {call.input(0)} do not share {k[-3]} heads of {call.input(1)}", 1)
    batch = q[:-3]
    for slot, shape in ((1, k), (2, v)):
        joined = broadcast_pair(batch, shape[:-3])
        if joined is None:
            raise shape_error(f"the batches of {call.input(0)} and {call.input(slot)} do not broadcast", slot)
        batch = joined
    mask = call.inputs[mask_slot] if len(call.inputs) > mask_slot else None
    scores = (*batch, q[-3], q[-2], k[-2])
    if mask is not None and broadcast_pair(scores, mask.shape) != scores:
        raise shape_error(f"the mask {mask} does not broadcast to the scores {list(scores)}", mask_slot)
    return (*batch, q[-3], q[-2], v[-1])


def _sdpa_shape(call: Call) -> tuple[Shape, ...]:
    kinds = [call.input(slot) for slot in range(3)]
    for slot, kind in enumerate(kinds):
        if len(kind.shape) < 2:
            raise shape_error(f"attention takes [..., heads, T, d] or [T, d], not {kind}", slot)
    if kinds[0].shape[-1] != kinds[1].shape[-1]:
        raise shape_error(f"queries of {kinds[0]} and keys of {kinds[1]} differ in length", 1)
    q, k, v = (_headed(kind.shape) for kind in kinds)
    result = _fitted(call, q, k, v, mask_slot=3)
    return (result if max(len(kind.shape) for kind in kinds) > 2 else result[1:],)


def _folded(x: Array, groups: int) -> Array:
    """Rows of the query heads that share a key head, one after the other: [..., groups, heads/groups * T, n]."""
    *batch, heads, rows, depth = x.shape
    return x.reshape(*batch, groups, heads // groups * rows, depth)


def _places(call: Call, queries: int, keys: int) -> Array | None:
    """Which keys lie where a query may look, or None for all."""
    window = min(call.params["window"], queries + keys)  # no wider than all there is
    if not (call.params["causal"] or window):
        return None
    own = np.arange(queries)[:, None] + (keys - queries)
    place = np.arange(keys)
    return (place <= own) & (place > own - window) if window else place <= own


def _scale(call: Call, depth: int) -> float:
    scale: float | None = call.params["scale"]
    return 1 / sqrt(max(depth, 1)) if scale is None else scale


def _scores(call: Call, q: Array, k: Array, mask: Array | None) -> Array:
    """What each query makes of each key; -inf where it does not see it."""
    heads, rows, depth = q.shape[-3:]
    products = np.matmul(_folded(q, k.shape[-3]), k.swapaxes(-1, -2))
    scores = products.reshape(*products.shape[:-3], heads, rows, k.shape[-2])
    scores *= _scale(call, depth)
    softcap = call.params["softcap"]
    if softcap:
        scores /= softcap
        np.tanh(scores, out=scores)
        scores *= softcap
    if mask is not None and mask.dtype == np.bool_:
        np.copyto(scores, -np.inf, where=~mask)
    elif mask is not None:
        scores += mask.astype(scores.dtype)
    seen = _places(call, rows, k.shape[-2])
    if seen is not None:
        np.copyto(scores, -np.inf, where=~seen)
    return scores


def _exponentials(scores: Array) -> Array:
    """Weights up to a factor, in place of the scores; all 0 in a row that sees no key."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    np.copyto(top, 0, where=np.isneginf(top))
    scores -= top
    return np.exp(scores, out=scores)


def _attended(call: Call, q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """Attention on arrays of one dtype in the form [..., heads, T, d]."""
    scores = _scores(call, q, k, mask)
    batch = broadcast_pair(scores.shape[:-3], v.shape[:-3])
    assert batch is not None
    seen = None if np.isfinite(v).all() else scores != -np.inf
    weights = _exponentials(scores)
    total = weights.sum(axis=-1, keepdims=True)
    np.copyto(total, 1, where=total == 0)
    folded = _folded(weights, k.shape[-3])
    result = np.matmul(folded, v) if seen is None else _with_infinities(folded, _folded(seen, k.shape[-3]), v)
    result = result.reshape(*batch, *scores.shape[-3:-1], v.shape[-1])
    result /= total
    return result


def _with_infinities(weights: Array, seen: Array, v: Array) -> Array:
    """Weighted sums of values that are not all finite, in which keys that are not seen take no part."""
    kind = np.float64
    result = np.matmul(weights, np.where(np.isfinite(v), v, 0))
    positive = np.matmul((weights > 0).astype(kind), (v == np.inf).astype(kind)) > 0
    negative = np.matmul((weights > 0).astype(kind), (v == -np.inf).astype(kind)) > 0
    # A weight that has become 0 makes NaN of an infinite value, as everywhere.
    lost = np.matmul((seen & (weights == 0)).astype(kind), np.isinf(v).astype(kind)) > 0
    unknown = np.matmul(seen.astype(kind), np.isnan(v).astype(kind)) > 0
    result[positive] = np.inf
    result[negative] = -np.inf
    result[unknown | lost | (positive & negative)] = np.nan
    return result


def _bound(call: Call, q: Array, unsure: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """The error of attention in any order of its sums, where ``unsure`` is the error that each |q| brings with it.

    An error e of a score is a factor exp(e) on its weight; the mean moves by what its weights move.
    """
    dtype = _compute_dtype(call)
    scores = _scores(call, q, k, mask)
    loose = unsure + gamma(multiplied(q.shape[-1]) + 3, dtype) * np.abs(q)
    products = np.matmul(_folded(loose, k.shape[-3]), np.abs(k).swapaxes(-1, -2)).reshape(scores.shape)
    errors = products * abs(_scale(call, q.shape[-1])) + gamma(8, dtype) * np.abs(scores)
    if mask is not None and mask.dtype != np.bool_:
        errors += gamma(4, dtype) * np.abs(mask)
    weights = _exponentials(scores)
    weights /= weights.sum(axis=-1, keepdims=True)
    moved = np.where(weights > 0, weights * np.expm1(errors + gamma(multiplied(k.shape[-2]) + 8, dtype)), 0)
    # Values that are not finite make a result that is not, or belong to keys that take no part.
    groups, magnitudes = k.shape[-3], np.where(np.isfinite(v), np.abs(v), 0)
    spread = np.matmul(_folded(moved, groups), magnitudes)
    means = np.matmul(_folded(np.nan_to_num(weights), groups), magnitudes)
    summed = _folded(moved.sum(axis=-1, keepdims=True), groups)
    return spread + summed * means + dtype.least_positive


def _common(*arrays: Array) -> list[Array]:
    """Operands in the type that is wider than each of them."""
    kind = np.longdouble if any(array.dtype == np.float64 for array in arrays) else np.float64
    return [array.astype(kind, copy=False) for array in arrays]


def _as_heads(array: Array) -> Array:
    return array.reshape(_headed(array.shape))


def _sdpa_cost(call: Call) -> OpCost:
    depth, keys, values = call.shape(0)[-1], call.shape(1)[-2], call.shape(2)[-1]
    rows = call.outputs[0].size // max(values, 1)
    return OpCost(rows * keys * (2 * depth + 2 * values + 8), *bytes_moved(call))


def _sdpa_bound(call: Call, q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    if call.outputs[0].size == 0:
        return 0.0
    q, k, v = (_as_heads(array) for array in (q, k, v))
    return _bound(call, q, np.zeros_like(q), k, v, mask).reshape(call.outputs[0].shape)


def mask_cases(rng: np.random.Generator, scores: Shape) -> Iterator[tuple[Array, DType]]:
    """Masks for scores of a shape: of every kind, with and without whole rows hidden."""
    boolean = rng.random(scores) < 0.6
    boolean[..., -1, :] = False
    yield boolean, BOOL[0]
    yield rng.random((scores[-2], 1)) < 0.8, BOOL[0]
    additive = np.where(rng.random(scores[-2:]) < 0.7, rng.normal(size=scores[-2:]), -np.inf)
    additive[0] = -np.inf
    yield additive.astype(np.float32), F32
    yield np.array([-60000.0] + [1.0] * (scores[-1] - 1), np.float16), dtypes("f16")[0]


_Shapes = tuple[Shape, Shape, Shape, dict[str, Any]]
_SETTINGS: tuple[_Shapes, ...] = (
    ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4), {}),
    ((3, 5, 4), (3, 7, 4), (3, 7, 2), {"causal": True}),
    ((3, 7, 4), (3, 5, 4), (3, 5, 4), {"causal": True}),
    ((5, 4), (6, 4), (6, 3), {"scale": 0.3}),
    ((1, 6, 2, 8), (1, 2, 9, 8), (1, 2, 9, 8), {"causal": True, "softcap": 5.0}),
    ((2, 1, 4, 3, 2), (5, 1, 3, 2), (3, 2), {"window": 2}),
    ((2, 6, 4), (2, 8, 4), (2, 8, 4), {"causal": True, "window": 3}),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1), {"scale": -2.0}),
    ((2, 3, 4), (2, 0, 4), (2, 0, 5), {}),
    ((2, 0, 4), (2, 3, 4), (2, 3, 4), {}),
    ((0, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3, 4), {"causal": True}),
    ((2, 3, 0), (2, 4, 0), (2, 4, 3), {}),
    ((0, 3, 4), (0, 3, 4), (0, 3, 4), {}),
)


def _sdpa_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for q, k, v, params in _SETTINGS:
        yield case(dtype, *(random(rng, dtype, shape, -2, 2) for shape in (q, k, v)), None, **params)
    for other in FLOATS:
        arrays = (random(rng, one, (2, 4, 3), -2, 2) for one in (dtype, other, other))
        yield Case(tuple(arrays), (dtype, other, other), {"causal": True})
    for params in ({}, {"causal": True, "softcap": 2.0}):
        for mask, kind in mask_cases(rng, (2, 4, 3, 5)):
            shapes = (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 2)
            yield Case(
                (*(random(rng, dtype, shape, -2, 2) for shape in shapes), mask), (dtype, dtype, dtype, kind), params
            )
    values = extremes(dtype).reshape(-1, 1)
    for params in ({}, {"causal": True}):
        shape = (len(values), 1)
        yield case(dtype, random(rng, dtype, shape, 1, 2), random(rng, dtype, shape, 1, 2), values, **params)


@op(
    FAMILY,
    "q: T, k: K, v: K, mask?: M -> T",
    *PARAMS,
    shape=_sdpa_shape,
    cost=_sdpa_cost,
    tolerance=SUM,
    bound=_sdpa_bound,
    cases=_sdpa_cases,
    T=FLOATS,
    K=FLOATS,
    M=BOOL + FLOATS,
)
def sdpa(call: Call, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """Attention on [..., heads, T, d], `y[t] = sum_j w[t, j] * v[j]` with `w[t] = softmax_j(q[t] . k[j] * scale)`.

    Query heads share key heads evenly and in order where k and v have fewer; batches broadcast; [T, d] is one head. A
    bool mask says which keys a query sees, a float mask is added to the scores; it broadcasts to [..., heads, T, S].
    Query t stands at key t + S - T. Keys with the score -inf take no part, whatever their values; a query that sees
    no key gives 0. k and v may have another float dtype than q: it computes in f32 (f64 if either is), and y is as q.
    """
    if call.outputs[0].size == 0:
        return np.zeros(call.outputs[0].shape)
    queries, keys, values = _common(_as_heads(q), _as_heads(k), _as_heads(v))
    return _attended(call, queries, keys, values, mask).reshape(call.outputs[0].shape)


# --- attention with a projection of the queries -----------------------------------------------------------------------


def _arranged(call: Call) -> tuple[Shape, Shape, Shape]:
    """The shapes of queries, keys and values as [..., heads, T, d]."""
    x, k, v, w = (call.input(slot) for slot in range(4))
    if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[0]:
        raise shape_error(f"{x} does not multiply with {w}", 3)
    if len(k.shape) < 2 or k.shape[:-1] != v.shape[:-1]:
        raise shape_error(f"keys and values are [H, d], [S, d] or [..., S, H, d], not {k} and {v}", 1)
    width, (count, depth) = w.shape[1], k.shape[-2:]
    keys: Shape = (*k.shape[:-3], count, k.shape[-3] if len(k.shape) > 2 else 1)
    if len(k.shape) == 2 and depth == width:
        keys = (1, count)
    heads = width // depth if depth else keys[-2]
    if heads * depth != width:
        whole = f"the {counted(width, 'column')} of {w}"
        raise shape_error(f"{whole} do not divide into heads of {counted(depth, 'element')}, as {k} has", 3)
    rows = x.shape[:-1] or (1,)
    return (*rows[:-1], heads, rows[-1], depth), (*keys, depth), (*keys, v.shape[-1])


def _attn_shape(call: Call) -> tuple[Shape, ...]:
    *batch, heads, rows, depth = _fitted(call, *_arranged(call), mask_slot=4)
    return ((*batch, *((rows,) if len(call.shape(0)) > 1 else ()), heads * depth),)


def _split(array: Array, shape: Shape) -> Array:
    """[..., T, heads, d] or [..., T, heads * d] as [..., heads, T, d]."""
    *batch, heads, rows, depth = shape
    return array.reshape(*batch, rows, heads, depth).swapaxes(-2, -3)


def _merged(call: Call, array: Array) -> Array:
    return array.swapaxes(-2, -3).reshape(call.outputs[0].shape)


def _attn_cost(call: Call) -> OpCost:
    q, k, v = _arranged(call)
    scores = call.outputs[0].size // max(v[-1], 1) * k[-2]
    projection = 2 * call.input(0).size * call.shape(3)[1]
    return OpCost(projection + scores * (2 * q[-1] + 2 * v[-1] + 8), *bytes_moved(call))


def _attn_bound(call: Call, x: Array, k: Array, v: Array, w: Array, mask: Array | None = None) -> Any:
    if call.outputs[0].size == 0:
        return 0.0
    shapes = _arranged(call)
    q = _split(np.matmul(x, w), shapes[0])
    unsure = _split(np.matmul(np.abs(x), np.abs(w)), shapes[0]) * gamma(multiplied(x.shape[-1]), _compute_dtype(call))
    # A fold of the bound is [..., groups, rows, d]: back to heads before they are merged.
    bound = _bound(call, q, unsure, _split(k, shapes[1]), _split(v, shapes[2]), mask)
    result = _fitted(call, *shapes, mask_slot=4)
    return _merged(call, bound.reshape(result))


_ATTN_SETTINGS: tuple[tuple[Shape, Shape, Shape, Shape, dict[str, Any]], ...] = (
    ((3, 8), (2, 4), (2, 4), (8, 8), {}),
    ((3, 6), (2, 4), (2, 3), (6, 16), {}),
    ((3, 8), (5, 8), (5, 8), (8, 8), {"causal": True}),
    ((8,), (5, 2, 4), (5, 2, 4), (8, 8), {}),
    ((4, 6), (5, 2, 3), (5, 2, 3), (6, 12), {"causal": True, "softcap": 3.0}),
    ((2, 3, 4), (2, 6, 2, 2), (2, 6, 2, 3), (4, 8), {"window": 2}),
    ((2, 3, 4), (6, 1, 2), (6, 1, 2), (4, 4), {"scale": 0.7}),
    ((1, 1), (1, 1), (1, 1), (1, 1), {}),
    ((0, 4), (2, 2), (2, 2), (4, 4), {}),
    ((3, 4), (0, 2, 2), (0, 2, 2), (4, 4), {}),
    ((3, 4), (0, 4), (0, 4), (4, 4), {}),
    ((3, 0), (2, 2), (2, 2), (0, 4), {}),
)


def _attn_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for x, k, v, w, params in _ATTN_SETTINGS:
        yield case(dtype, *(random(rng, dtype, shape, -1, 1) for shape in (x, k, v, w)), **params)
    shapes = (3, 4), (5, 2, 2), (5, 2, 2), (4, 8)
    for other in FLOATS:
        kinds = (dtype, other, other, dtype)
        yield Case(tuple(random(rng, kind, shape, -1, 1) for kind, shape in zip(kinds, shapes, strict=True)), kinds)
    for mask, kind in mask_cases(rng, (4, 3, 5)):
        arrays = (random(rng, dtype, shape, -1, 1) for shape in shapes)
        yield Case((*arrays, mask), (dtype, dtype, dtype, dtype, kind), {"causal": True})
    values, one = extremes(dtype).reshape(-1, 1), random(rng, dtype, (1, 1), 1, 1)
    yield case(dtype, one, random(rng, dtype, values.shape, 1, 1), values, one, causal=True, window=1)


@op(
    FAMILY,
    "x: T, k: K, v: K, w: T, mask?: M -> T",
    *PARAMS,
    shape=_attn_shape,
    cost=_attn_cost,
    tolerance=SUM,
    bound=_attn_bound,
    cases=_attn_cases,
    T=FLOATS,
    K=FLOATS,
    M=BOOL + FLOATS,
)
def attn(call: Call, x: Array, k: Array, v: Array, w: Array, mask: Array | None = None) -> Array:
    """Attention with queries made of x, `y = sdpa(x @ w, k, v)`, where heads lie side by side in the last axis.

    x is [..., T, D] or [D], w is [D, E]. k and v are entries of a cache: [..., S, H, d] holds S keys of H heads, [H, d]
    one key for each head, and [S, d] with d = E the keys of one head. E is a number of query heads times d, and they
    share the H heads as in sdpa. y is [..., T, heads * d] with d of v: the shape of x where D, E and H * d agree. The
    mask broadcasts to [..., heads, T, S]. x @ w is not rounded in between.
    """
    if call.outputs[0].size == 0:
        return np.zeros(call.outputs[0].shape)
    queries, keys, values = _arranged(call)
    inputs, weights, k, v = _common(x, w, k, v)
    q = _split(np.matmul(inputs, weights), queries)
    return _merged(call, _attended(call, q, _split(k, keys), _split(v, values), mask))
