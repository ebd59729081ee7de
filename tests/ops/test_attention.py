"""Attention against sums over the keys each query sees, PyTorch and mpmath."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from math import tanh
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code
from openinfer.ops import OPS, Array, Call, OpError, TensorType, apply, complete, infer


def one_query(q: Array, k: Array, v: Array, extra: Array | None, place: int, params: dict[str, Any]) -> Array:
    """The mean that one query makes of the values of the keys it sees, key by key."""
    scale = params["scale"] if params["scale"] is not None else 1 / max(q.size, 1) ** 0.5
    scores, seen = [], []
    for key in range(len(k)):
        window = params["window"]
        if (params["causal"] or window) and not (place - (window or len(k) + place) < key <= place):
            continue
        score = np.longdouble(0)
        for one, other in zip(q, k[key], strict=True):
            score += np.longdouble(one) * np.longdouble(other)
        score *= scale
        if params["softcap"]:
            score = np.longdouble(params["softcap"] * tanh(score / params["softcap"]))
        if extra is not None and extra.dtype == np.bool_:
            score = score if extra[key] else np.longdouble(-np.inf)
        elif extra is not None:
            score += extra[key]
        if score != -np.inf:
            scores.append(score)
            seen.append(key)
    if not seen:
        return np.zeros(v.shape[-1], np.longdouble)
    weights = np.exp(np.array(scores) - max(scores))
    total = np.zeros(v.shape[-1], np.longdouble)
    for weight, key in zip(weights, seen, strict=True):
        total += weight * v[key].astype(np.longdouble)
    return np.asarray(total / weights.sum())


def every_query(q: Array, k: Array, v: Array, mask: Array | None, params: dict[str, Any]) -> Array:
    """All queries of [..., heads, T, d]."""
    batch = np.broadcast_shapes(q.shape[:-3], k.shape[:-3], v.shape[:-3])
    q, k, v = (np.broadcast_to(array, batch + array.shape[-3:]) for array in (q, k, v))
    heads, rows, keys = q.shape[-3], q.shape[-2], k.shape[-2]
    if mask is not None:
        mask = np.broadcast_to(mask, (*batch, heads, rows, keys))
    out = np.zeros((*batch, heads, rows, v.shape[-1]), np.longdouble)
    for at in np.ndindex(*batch, heads, rows):
        *where, head, row = at
        shared = (*where, head * k.shape[-3] // heads)
        extra = None if mask is None else mask[at]
        out[at] = one_query(q[at], k[shared], v[shared], extra, row + keys - rows, params)
    return out


def sdpa_judge(question: Question) -> Array:
    q, k, v, *rest = question.doubles
    q, k, v = (array if array.ndim > 2 else array[None] for array in (q, k, v))
    out = every_query(q, k, v, rest[0] if rest else None, dict(question.params))
    return out.reshape(question.outputs[0].shape)


def attn_judge(question: Question) -> Array:
    x, k, v, w, *rest = question.doubles
    q: Any = np.tensordot(np.atleast_2d(x).astype(np.longdouble), w.astype(np.longdouble), axes=1)
    if k.ndim == 2:
        axis = 1 if k.shape[1] == w.shape[1] else 0
        k, v = np.expand_dims(k, axis), np.expand_dims(v, axis)
    k, v = np.moveaxis(k, -2, -3), np.moveaxis(v, -2, -3)
    parts = [q[..., start : start + k.shape[-1]] for start in range(0, q.shape[-1], k.shape[-1])]
    out = every_query(np.stack(parts, axis=-3), k, v, rest[0] if rest else None, dict(question.params))
    joined = np.concatenate([out[..., head, :, :] for head in range(len(parts))], axis=-1)
    return np.asarray(joined.reshape(question.outputs[0].shape))


def turned(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """Each pair as a complex number times a complex number, written out."""
    out = x.copy()
    count = cos.shape[-1]
    for pair in range(count):
        first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + count)
        a, b = x[..., first], x[..., second]
        out[..., first] = a * cos[..., pair] - b * sin[..., pair]
        out[..., second] = a * sin[..., pair] + b * cos[..., pair]
    return out


def rope_judge(question: Question) -> Array:
    x, positions = question.doubles
    params = question.params
    count = x.shape[-1] if params["rotary_dim"] is None else params["rotary_dim"]
    tables = [np.zeros((*positions.shape, count // 2), np.longdouble) for _ in range(2)]
    with mpmath.workdps(40):
        for at in np.ndindex(tables[0].shape):
            rate = mpmath.mpf(params["base"]) ** (-mpmath.mpf(2 * at[-1]) / count)
            angle = int(positions[at[:-1]]) * mpmath.mpf(params["scale"]) * rate
            for table, function in zip(tables, (mpmath.cos, mpmath.sin), strict=True):
                table[at] = np.longdouble(mpmath.nstr(function(angle), 25))
    return turned(x.astype(np.longdouble), *tables, interleaved=params["interleaved"])


def rope_cached_judge(question: Question) -> Array:
    x, cos, sin = (array.astype(np.longdouble) for array in question.doubles)
    return turned(x, cos, sin, interleaved=question.params["interleaved"])


JUDGES: dict[str, Judge] = {
    "sdpa": sdpa_judge,
    "attn": attn_judge,
    "rope": rope_judge,
    "rope_cached": rope_cached_judge,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def values(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def by_torch(q: Array, k: Array, v: Array, **options: Any) -> Array:
    tensors: Any = [torch.tensor(array, dtype=torch.float64) for array in (q, k, v)]
    return np.asarray(torch.nn.functional.scaled_dot_product_attention(*tensors, **options).numpy())


@pytest.mark.parametrize("causal", [False, True])
def test_grouped_attention_as_pytorch(causal: bool) -> None:
    q, k, v = values(2, 6, 9, 8), values(2, 2, 9, 8, seed=2), values(2, 2, 9, 4, seed=3)
    want = by_torch(q, k, v, is_causal=causal, enable_gqa=True)
    np.testing.assert_allclose(apply("sdpa", q, k, v, causal=causal), want, atol=1e-6)


def test_masks_as_pytorch() -> None:
    q, k, v = values(2, 3, 5, 8), values(2, 3, 7, 8, seed=2), values(2, 3, 7, 8, seed=3)
    for mask in (np.random.default_rng(4).random((2, 1, 5, 7)) < 0.5, values(5, 7)):
        given = torch.tensor(mask if mask.dtype == np.bool_ else mask.astype(np.float64))
        want = by_torch(q, k, v, attn_mask=given, scale=0.2)
        np.testing.assert_allclose(apply("sdpa", q, k, v, mask, scale=0.2), want, atol=1e-6)


# --- definitions by hand ----------------------------------------------------------------------------------------------


def test_the_last_query_is_aligned_with_the_last_key() -> None:
    q, k = np.zeros((2, 1), np.float32), np.zeros((4, 1), np.float32)
    v = np.array([[1], [2], [4], [8]], np.float32)
    assert apply("sdpa", q, k, v, causal=True).tolist() == [[np.float32(7 / 3)], [15 / 4]]
    assert apply("sdpa", q, k, v, window=2).tolist() == [[3], [6]]
    assert apply("sdpa", q, k, v, window=2, causal=True).tolist() == [[3], [6]]


def test_a_query_without_keys_gives_zero_whatever_the_values() -> None:
    q, k = np.ones((3, 1), np.float32), np.ones((2, 1), np.float32)
    v = np.full((2, 1), np.nan, np.float32)
    # Three queries, two keys: the first query stands before the first key.
    np.testing.assert_array_equal(apply("sdpa", q, k, v, causal=True), [[0], [np.nan], [np.nan]])
    hidden = np.zeros((1, 2), np.bool_)
    assert apply("sdpa", q, k, v, hidden).tolist() == [[0], [0], [0]]
    assert apply("sdpa", q, k, v, np.full(2, -np.inf, np.float32)).tolist() == [[0], [0], [0]]


def test_hidden_keys_take_no_part_whatever_their_values() -> None:
    q, k = np.ones((1, 1), np.float32), np.array([[1], [np.nan]], np.float32)
    v = np.array([[3], [np.inf]], np.float32)
    assert apply("sdpa", q, k, v, np.array([True, False])).tolist() == [[3]]


def test_infinite_values_of_keys_without_weight_are_not_numbers() -> None:
    q, k = np.ones((1, 1), np.float32), np.array([[0], [-20000]], np.float32)
    v = np.array([[3], [np.inf]], np.float32)
    # The second key is seen, and its weight underflows: 0 * inf.
    assert np.isnan(apply("sdpa", q, k, v)).all()


def test_the_result_has_the_dtype_of_the_queries() -> None:
    q, cache = values(2, 3, 4), values(2, 5, 4).astype(np.float16)
    assert apply("sdpa", q, cache, cache).dtype == np.float32
    assert apply("sdpa", q.astype(np.float16), q, q).dtype == np.float16


def test_attention_with_one_entry_of_a_cache_for_each_head() -> None:
    """The snippet of the language: h f32[B, D], k and v f16[H, Dh], W f32[D, D]."""
    h, w = values(3, 8), values(8, 8, seed=2)
    k, v = values(2, 4, seed=3).astype(np.float16), values(2, 4, seed=4).astype(np.float16)
    result = apply("attn", h, k, v, w)
    assert (result.shape, result.dtype) == (h.shape, np.float32)
    # One key each: every query makes nothing else of it than its value.
    np.testing.assert_array_equal(result, np.broadcast_to(v.astype(np.float32).reshape(8), (3, 8)))


def test_attention_with_a_cache_is_attention_of_its_heads() -> None:
    x, w = values(3, 8), values(8, 8, seed=2)
    k, v = values(5, 2, 4, seed=3), values(5, 2, 4, seed=4)
    q = (x.astype(np.float64) @ w).reshape(3, 2, 4).transpose(1, 0, 2)
    heads = [array.transpose(1, 0, 2).astype(np.float64) for array in (k, v)]
    want = apply("sdpa", q, *heads, causal=True).transpose(1, 0, 2).reshape(3, 8)
    np.testing.assert_allclose(apply("attn", x, k, v, w, causal=True), want, rtol=1e-6)


def test_attention_with_keys_as_long_as_the_queries_has_one_head() -> None:
    x, w, k, v = values(3, 4), values(4, 6, seed=2), values(5, 6, seed=3), values(5, 2, seed=4)
    want = apply("sdpa", x.astype(np.float64) @ w.astype(np.float64), k.astype(np.float64), v.astype(np.float64))
    np.testing.assert_allclose(apply("attn", x, k, v, w), want, rtol=1e-5, atol=1e-6)


def test_a_quarter_turn() -> None:
    x = np.array([1, 2, 3, 4], np.float64)
    position = np.int64(1)
    # With the base 1 every pair turns by the same angle: here pi / 2.
    quarter: dict[str, Any] = {"base": 1.0, "scale": np.pi / 2}
    np.testing.assert_allclose(apply("rope", x, position, **quarter), [-3, -4, 1, 2], atol=1e-12)
    np.testing.assert_allclose(apply("rope", x, position, **quarter, interleaved=True), [-2, 1, -4, 3], atol=1e-12)
    np.testing.assert_allclose(apply("rope", x, position, **quarter, rotary_dim=2), [-2, 1, 3, 4], atol=1e-12)


def test_rotation_keeps_its_precision_far_out() -> None:
    x = np.array([1, 0], np.float32)
    far = 2**31 - 1
    want = [float(mpmath.cos(far)), float(mpmath.sin(far))]
    np.testing.assert_allclose(apply("rope", x, np.int64(far)), want, rtol=1e-6)


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(name: str, *kinds: tuple[int, ...] | tuple[str, tuple[int, ...]], **params: Any) -> OpError:
    record = OPS[name]
    types = []
    for kind in kinds:
        dtype, shape = kind if len(kind) == 2 and isinstance(kind[0], str) else ("f32", kind)
        types.append(TensorType(DTYPES[str(dtype)], shape))
    with pytest.raises(OpError) as caught:
        infer(record, Call(tuple(types), complete(record, params)))
    return caught.value


Q = (2, 4, 3, 8)


@pytest.mark.parametrize(
    ("name", "shapes", "at", "message"),
    [
        ("sdpa", ((8,), Q, Q), 0, "attention takes [..., heads, T, d] or [T, d], not f32[8]"),
        ("sdpa", (Q, (2, 4, 3, 6), Q), 1, "queries of f32[2, 4, 3, 8] and keys of f32[2, 4, 3, 6] differ in length"),
        ("sdpa", (Q, Q, (2, 4, 5, 8)), 2, "the keys f32[2, 4, 3, 8] and the values f32[2, 4, 5, 8] differ in number"),
        (
            "sdpa",
            (Q, (2, 3, 3, 8), (2, 3, 3, 8)),
            1,
            "4 query heads of f32[2, 4, 3, 8] do not share 3 heads of f32[2, 3, 3, 8]",
        ),
        (
            "sdpa",
            (Q, (2, 0, 3, 8), (2, 0, 3, 8)),
            1,
            "4 query heads of f32[2, 4, 3, 8] do not share 0 heads of f32[2, 0, 3, 8]",
        ),
        ("sdpa", (Q, Q, (3, 4, 3, 8)), 2, "the batches of f32[2, 4, 3, 8] and f32[3, 4, 3, 8] do not broadcast"),
        ("sdpa", (Q, Q, Q, (3, 2)), 3, "the mask f32[3, 2] does not broadcast to the scores [2, 4, 3, 3]"),
        ("attn", ((3, 8), (2, 4), (2, 4), (6, 8)), 3, "f32[3, 8] does not multiply with f32[6, 8]"),
        ("attn", ((), (2, 4), (2, 4), (6, 8)), 3, "f32 does not multiply with f32[6, 8]"),
        (
            "attn",
            ((3, 8), (2, 4), (3, 4), (8, 8)),
            1,
            "keys and values are [H, d], [S, d] or [..., S, H, d], not f32[2, 4] and f32[3, 4]",
        ),
        (
            "attn",
            ((3, 8), (4,), (4,), (8, 8)),
            1,
            "keys and values are [H, d], [S, d] or [..., S, H, d], not f32[4] and f32[4]",
        ),
        (
            "attn",
            ((3, 8), (2, 3), (2, 3), (8, 8)),
            3,
            "the 8 columns of f32[8, 8] do not divide into heads of 3 elements, as f32[2, 3] has",
        ),
        ("attn", ((3, 8), (3, 4), (3, 4), (8, 8)), 1, "2 query heads of f32[3, 8] do not share 3 heads of f32[3, 4]"),
        ("rope", ((), ("i64", ())), 0, "'rope' rotates the last axis, and f32 has none"),
        ("rope", ((3, 8), ("i64", (4,))), 1, "i64[4] does not broadcast to the [3] rows of f32[3, 8]"),
        (
            "rope_cached",
            ((3, 8), (3, 8), (3, 8)),
            1,
            "f32[3, 8] has more than half the 8 elements of the last axis of f32[3, 8]",
        ),
        (
            "rope_cached",
            ((3, 8), (3, 4), (3, 2)),
            1,
            "f32[3, 4] and f32[3, 2] do not hold the cosine and sine of the same pairs of f32[3, 8]",
        ),
        ("rope_cached", ((3, 8), (3, 4), (2, 4)), 2, "f32[2, 4] does not broadcast to the pairs [3, 4] of f32[3, 8]"),
    ],
)
def test_refuses_shapes(name: str, shapes: tuple[Any, ...], at: int, message: str) -> None:
    error = refusal(name, *shapes)
    assert (error.code, error.at, error.message) == (Code.SHAPE_MISMATCH, at, message)


@pytest.mark.parametrize("name", ["sdpa", "attn"])
@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"window": -1}, "'window' is a number of keys, or 0 for all, not -1"),
        ({"softcap": -1.0}, "'softcap' is finite and above 0, or 0 for none, not -1.0"),
        ({"softcap": float("nan")}, "'softcap' is finite and above 0, or 0 for none, not nan"),
        ({"scale": float("inf")}, "'scale' is finite, not inf"),
    ],
)
def test_attention_refuses_parameters(name: str, params: dict[str, Any], message: str) -> None:
    error = refusal(name, (4, 4), (4, 4), (4, 4), *[(4, 4)][: name == "attn"], **params)
    assert (error.code, error.at, error.message) == (Code.BAD_PARAMETER, next(iter(params)), message)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rotary_dim": 3}, "the 3 elements to rotate are not an even number within the last axis of f32[3, 8]"),
        ({"rotary_dim": 10}, "the 10 elements to rotate are not an even number within the last axis of f32[3, 8]"),
        ({"rotary_dim": -2}, "the -2 elements to rotate are not an even number within the last axis of f32[3, 8]"),
        ({"base": 0.0}, "'base' is finite and above 0, not 0.0"),
        ({"scale": float("nan")}, "'scale' is finite, not nan"),
    ],
)
def test_rope_refuses_parameters(params: dict[str, Any], message: str) -> None:
    error = refusal("rope", (3, 8), ("i64", (3,)), **params)
    assert (error.code, error.at, error.message) == (Code.BAD_PARAMETER, next(iter(params)), message)


def test_an_odd_axis_needs_a_rotary_dim() -> None:
    assert refusal("rope", (3, 7), ("i64", (3,))).at == "rotary_dim"


def test_masks_are_bools_or_floats() -> None:
    assert refusal("sdpa", Q, Q, Q, ("i32", (3, 3))).code is Code.WRONG_DTYPE


def test_keys_and_values_have_one_dtype() -> None:
    assert refusal("sdpa", Q, ("f16", Q), ("bf16", Q)).code is Code.WRONG_DTYPE
