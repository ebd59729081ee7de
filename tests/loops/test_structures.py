"""Structured statements: their loops compute what they mean, and every part of them is verified and rewritten."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.loops.test_interpret import small_cases
from tests.synth.in_c import call_of

from openinfer.dtypes import DTYPES, DType
from openinfer.loops import expand_attend
from openinfer.loops.build import const, index, load, select
from openinfer.loops.expand import plain
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import (
    ACCUMULATOR,
    ORIGIN,
    RANKED,
    Attend,
    Axis,
    Buffer,
    Element,
    For,
    Kernel,
    LoopKind,
    Order,
    Result,
    ScalarVar,
    Scan,
    Structure,
    walk,
)
from openinfer.loops.rewrite import renamed, variables_of, with_buffers
from openinfer.loops.text import kernel_text
from openinfer.loops.used import used_buffers, used_sizes
from openinfer.loops.verify import verify
from openinfer.ops.lower.kernel import kernel_of
from openinfer.ops.lower.operand import LOWERINGS
from openinfer.ops.record import OPS

F32, F64, I64, U64 = (DTYPES[name] for name in ("f32", "f64", "i64", "u64"))


def structures(kernel: Kernel) -> list[Structure]:
    return [one for one in walk(kernel.body) if isinstance(one, Structure)]


def same(kernel: Kernel, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """What a kernel computes, which its loops compute too."""
    loops = plain(kernel)
    assert not structures(loops)
    assert verify(kernel) == []
    assert verify(loops) == []
    meant, found = interpret(kernel, arrays), interpret(loops, arrays)
    for buffer, one, other in zip(kernel.outputs, meant, found, strict=True):
        # NumPy does not know the NaN of small floats.
        wide = np.float64 if buffer.dtype.kind == "float" else one.dtype
        np.testing.assert_array_equal(one.astype(wide), other.astype(wide))
    return meant


# --- running totals ---------------------------------------------------------------------------------------------------


def scan(dtype: DType, rows: int, extent: int, **facts: Any) -> Kernel:
    x, y = Buffer("x", dtype, (rows, extent)), Buffer("y", dtype, (rows, extent))
    row, i = ScalarVar("i1"), ScalarVar("i2")
    out = Result(y, (row, i), ScalarVar(ACCUMULATOR, dtype))
    one = Scan(Axis(i, extent), facts.pop("op", "add"), dtype, load(x, row, i), out, **facts)
    return Kernel("scan", (x,), (y,), (For(row, index(rows), (one,), LoopKind.PARALLEL),))


@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize("is_exclusive", [False, True])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_scan_gives_the_total_at_each_position(op: str, is_exclusive: bool, is_reversed: bool) -> None:
    x = np.array([[3, 2, 5], [7, -1, 4]], np.int64)
    kernel = scan(I64, 2, 3, op=op, is_exclusive=is_exclusive, is_reversed=is_reversed)
    own = x[:, ::-1] if is_reversed else x
    totals = np.cumsum(own, 1) if op == "add" else np.cumprod(own, 1)
    if is_exclusive:
        totals = np.hstack([np.full((2, 1), 0 if op == "add" else 1), totals[:, :-1]])
    (y,) = same(kernel, [x])
    np.testing.assert_array_equal(y, totals[:, ::-1] if is_reversed else totals)


def test_a_product_of_finite_floats_that_overflows_and_meets_a_zero_is_zero() -> None:
    (y,) = same(scan(F64, 2, 4, op="mul"), [np.array([[1e300, 1e300, 0, 2], [np.inf, 0, 1, 2]])])
    np.testing.assert_array_equal(y, [[1e300, np.inf, 0, 0], [np.inf, np.nan, np.nan, np.nan]])


def test_names_of_expanded_loops_are_those_of_nothing_else() -> None:
    kernel = scan(I64, 1, 3)
    (loop,) = kernel.body
    assert isinstance(loop, For)
    (one,) = loop.body
    again = renamed((one,), {"i2": ScalarVar("i3")})
    z = Buffer("z", I64, (1, 3))
    twice = with_buffers(replace(kernel, body=again), {"y": z}).body
    kernel = replace(kernel, outputs=(*kernel.outputs, z), body=(replace(loop, body=(one, *twice)),))
    same(kernel, [np.array([[3, 2, 5]], np.int64)])
    names = [var.name for var in variables_of(plain(kernel).body)]
    assert len(names) == len(set(names))


def test_wrong_scans_are_refused_in_words() -> None:
    kernel = scan(I64, 1, 3)
    (loop,) = kernel.body
    assert isinstance(loop, For)
    (one,) = loop.body
    assert isinstance(one, Scan)
    x, y = kernel.inputs[0], kernel.outputs[0]
    i, total = one.axis.index, one.total

    def problems(**parts: Any) -> str:
        return "\n".join(verify(replace(kernel, body=(replace(loop, body=(replace(one, **parts),)),))))

    assert "a term of a scan is f64, not i64" in problems(term=const(1.0, F64))
    assert "'acc' is used where it is not defined" in problems(term=total)
    assert "input 'x' is written" in problems(out=Result(x, one.out.index, total))
    assert "what is stored to 'y' is index, not i64" in problems(out=Result(y, one.out.index, i))
    assert "a scan reads its own result 'y'" in problems(term=load(y, *one.out.index))
    assert "'i1' is defined where another 'i1' is visible" in problems(axis=Axis(ScalarVar("i1"), 3))
    assert "negative extent" in problems(axis=Axis(i, -1))
    assert "'y' has 2 axes and 1 indices" in problems(out=Result(y, (i,), total))


def test_a_scan_says_what_it_is_and_uses() -> None:
    kernel = scan(I64, 1, 3, is_exclusive=True, is_reversed=True)
    text = kernel_text(kernel)
    assert "scan i2 < 3 in i64 exclusive reversed {" in text
    assert "acc = (acc + x[i1, i2])" in text
    assert "y[i1, i2] = acc" in text
    assert used_buffers(kernel) == {"x", "y"}
    assert used_sizes(kernel) == set()


# --- elements in order ------------------------------------------------------------------------------------------------


def order(dtype: DType, count: int, most: int, *, is_descending: bool = False) -> Kernel:
    x, values, places = Buffer("x", dtype, (count,)), Buffer("values", dtype, (most,)), Buffer("places", I64, (most,))
    i, rank = ScalarVar("i1"), ScalarVar("i2")
    outs = Result(values, (rank,), ScalarVar(RANKED, dtype)), Result(places, (rank,), ScalarVar(ORIGIN, I64))
    one = Order(Axis(i, count), Axis(rank, most), load(x, i), outs, is_descending=is_descending)
    return Kernel("order", (x,), (values, places), (one,))


@pytest.mark.parametrize("is_descending", [False, True])
def test_equal_keys_stay_in_their_order_and_nan_is_the_largest(is_descending: bool) -> None:
    x = np.array([2, np.nan, -1, 2, 0.0, np.nan, -0.0])
    values, places = same(order(F64, 7, 7, is_descending=is_descending), [x])
    wanted = [1, 5, 0, 3, 4, 6, 2] if is_descending else [2, 4, 6, 0, 3, 1, 5]
    assert places.tolist() == wanted
    np.testing.assert_array_equal(values, x[wanted])


@pytest.mark.parametrize(("count", "most"), [(5, 2), (1, 1), (3, 0), (0, 0)])
def test_an_order_gives_as_many_as_are_asked_for(count: int, most: int) -> None:
    x = np.arange(count)[::-1].astype(np.int64)
    values, places = same(order(I64, count, most), [x])
    assert values.tolist() == sorted(x.tolist())[:most]
    assert places.tolist() == list(range(count))[::-1][:most]


def test_wrong_orders_are_refused_in_words() -> None:
    kernel = order(F64, 3, 3)
    (one,) = kernel.body
    assert isinstance(one, Order)

    def problems(**parts: Any) -> str:
        return "\n".join(verify(replace(kernel, body=(replace(one, **parts),))))

    assert "'origin' is used where it is not defined" in problems(key=one.origin)
    assert "'i1' is used where it is not defined" in problems(
        outs=(Result(kernel.outputs[0], (ScalarVar("i1"),), one.ranked),)
    )
    assert "what is stored to 'places' is f64, not i64" in problems(outs=(replace(one.outs[1], value=one.ranked),))
    assert "'i1' is defined where another 'i1' is visible" in problems(rank=replace(one.rank, index=ScalarVar("i1")))


def test_an_order_says_what_it_is() -> None:
    text = kernel_text(order(F64, 3, 2, is_descending=True))
    assert "order i1 < 3 by x[i1] descending for i2 < 2 {" in text
    assert "places[i2] = origin" in text


# --- attention --------------------------------------------------------------------------------------------------------


def attend(rows: int, keys: int, **parts: Any) -> Kernel:
    """Two heads of queries on one of keys, of depth 1, so that a score is a product; values have 2 columns."""
    q, k, v = Buffer("q", F64, (2, rows, 1)), Buffer("k", F64, (keys, 1)), Buffer("v", F64, (keys, 2))
    y = Buffer("y", F64, (2, rows, 2))
    head, row, key, depth, column = (ScalarVar(f"i{number}") for number in range(1, 6))
    total = ScalarVar(ACCUMULATOR, F64)
    one = Attend(
        head=Axis(head, 2),
        row=Axis(row, rows),
        key=Axis(key, keys),
        depth=Axis(depth, 1),
        column=Axis(column, 2),
        queries=Element(q, (head, row, depth)),
        keys=Element(k, (key, depth)),
        values=Element(v, (key, column)),
        accumulator=F64,
        score=total,
        out=Result(y, (head, row, column), total),
    )
    return Kernel("attend", (q, k, v), (y,), (replace(one, **parts),))


def attention(q: Any, k: Any, v: Any, visible: Any) -> Any:
    scores = np.where(visible, q * k[:, 0], -np.inf)
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = np.where(visible, weights / weights.sum(-1, keepdims=True), 0)
    return np.einsum("hts,se->hte", weights, np.where(visible.any((0, 1))[:, None], v, 0))


def test_queries_see_keys_up_to_a_border_and_behind_another() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 4, 1)), rng.normal(size=(5, 1)), rng.normal(size=(5, 2))
    row, key = np.arange(4)[:, None], np.arange(5)
    (y,) = same(attend(4, 5, until=ScalarVar("i2") + 1, after=ScalarVar("i2") - 1), [q, k, v])
    visible = np.broadcast_to((key <= row + 1) & (key > row - 1), (2, 4, 5))
    np.testing.assert_allclose(y, attention(q, k, v, visible), rtol=1e-12)


def test_what_a_hidden_key_has_for_a_value_does_not_matter() -> None:
    q, k = np.ones((2, 2, 1)), np.zeros((3, 1))
    v = np.array([[1, 2], [np.nan, np.inf], [5, 6]])
    hidden = select(ScalarVar("i3").eq(1), -np.inf, ScalarVar(ACCUMULATOR, F64))
    (y,) = same(attend(2, 3, score=hidden), [q, k, v])
    np.testing.assert_array_equal(y, np.broadcast_to([3.0, 4.0], (2, 2, 2)))
    (none,) = same(attend(2, 3, until=index(-1)), [q, k, v])
    np.testing.assert_array_equal(none, np.zeros((2, 2, 2)))


def test_many_queries_are_looked_at_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand_attend, "_SCORES", 2 * 3 * 2)
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(2, 5, 1)), rng.normal(size=(3, 1)), rng.normal(size=(3, 2))
    kernel = attend(5, 3)
    assert plain(kernel).scratch[0].shape == (2, 2, 3)
    (y,) = same(kernel, [q, k, v])
    np.testing.assert_allclose(y, attention(q, k, v, np.ones((2, 5, 3), bool)), rtol=1e-12)


def test_wrong_attention_is_refused_in_words() -> None:
    kernel = attend(2, 3)
    (one,) = kernel.body
    assert isinstance(one, Attend)

    def problems(**parts: Any) -> str:
        return "\n".join(verify(attend(2, 3, **parts)))

    key, depth = one.key.index, one.depth.index
    assert "'i4' is used where it is not defined" in problems(values=replace(one.values, index=(key, depth)))
    assert "'i4' is used where it is not defined" in problems(score=load(one.keys.buffer, key, depth))
    assert "'i3' is used where it is not defined" in problems(until=key)
    assert "a bound of visible keys is f64, not index" in problems(after=const(1.0, F64))
    assert "a score is index, not f64" in problems(score=key)
    assert "an element of an attention does not contain q[i1, i2, i4]" in problems(
        queries=replace(one.queries, value=const(1.0, F64))
    )
    assert "reads its own result 'y'" in problems(queries=Element(kernel.outputs[0], (*one.out.index[:2], depth)))


def test_attention_says_what_it_is() -> None:
    text = kernel_text(attend(2, 3, until=ScalarVar("i2")))
    assert "attend i1 < 2, i2 < 2 to i3 < 3 until i2 in f64 {" in text
    assert "score acc of q[i1, i2, i4] * k[i3, i4] over i4 < 1" in text
    assert "mean of v[i3, i5] for i5 < 2" in text


# --- of ops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "sort", "topk", "sdpa", "attn"])
def test_the_loops_of_an_op_compute_what_its_structure_means(name: str) -> None:
    assert name in LOWERINGS
    record, count = OPS[name], 0
    for dtype in [one for one in record.dtypes if one.name in ("f64", "bf16", "i8")]:
        for case in small_cases(record, dtype):
            kernel = kernel_of(record, call_of(record, case), case.dtypes)
            assert structures(kernel)
            same(kernel, [array for array in case.arrays if array is not None])
            count += 1
    assert count
