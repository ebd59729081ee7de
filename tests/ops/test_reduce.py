"""Reductions, running totals and orders against plain Python: fractions, mpmath, sorted()."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import accumulate
from math import copysign, inf, isfinite, isnan, nan, prod
from operator import add, mul
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.ops.harness import Judge, Question, every_dtype, judge_op, wrapped

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import GraphError
from openinfer.ops import OPS, apply
from openinfer.ops.agreement import rounded
from openinfer.ops.infer import accumulated
from openinfer.ops.record import Call
from openinfer.ops.types import TensorType

Row = list[Any]


def operand(question: Question) -> Any:
    """The operand; floats as a narrower accumulator holds them."""
    x = question.wide[0]
    acc = question.params.get("acc")
    if acc is None or x.dtype.kind != "f" or acc[0].bits >= x.dtype.itemsize * 8:
        return x
    return rounded(x, acc[0]).astype(x.dtype)


def rows(question: Question) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
    """The operand with its reduced axes as one last axis, and the shape of the result."""
    x = operand(question)
    axes = question.params.get("axes", question.params.get("axis"))
    axes = range(x.ndim) if axes is None else [axis % x.ndim for axis in np.atleast_1d(np.array(axes, int)).tolist()]
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    count = prod(x.shape[axis] for axis in axes)
    ordered = x.transpose(*kept, *sorted(axes))
    return ordered.reshape(prod(x.shape[axis] for axis in kept), count), question.outputs[0].shape


def reducing(function: Callable[[Row, Question], Any]) -> Judge:
    """A judge from a function of the list of elements that become one."""

    def judge(question: Question) -> object:
        table, shape = rows(question)
        found = [function(row, question) for row in table.tolist()]
        dtype = question.outputs[0].dtype
        kind = np.float64 if dtype.kind == "float" else object
        return np.array(found, kind).reshape(shape)

    return judge


def as_float(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return inf if exact > 0 else -inf


def in_accumulator(value: Any, question: Question) -> Any:
    """An exact total of integers, wrapped at the width of the accumulator."""
    source = question.dtypes[0]
    assert source is not None
    if source.kind == "float":
        return value
    accumulator, _ = accumulated(Call((TensorType(source, ()),), question.params))
    if accumulator.values:
        return value
    return int(wrapped(np.array(value, object), accumulator))


def total(row: Row) -> Any:
    """The exact sum; of numbers that are not finite, what IEEE says."""
    strange = [value for value in row if not isfinite(value)]
    if strange:
        return sum(strange)
    return sum((Fraction(value) for value in row), Fraction(0))


def product(row: Row) -> Any:
    if all(isfinite(value) for value in row):
        return prod((Fraction(value) for value in row), start=Fraction(1))
    signs = [value if value == 0 or not isfinite(value) else copysign(1, value) for value in row]
    return prod(signs)


def finished(exact: Any, question: Question) -> Any:
    if question.outputs[0].dtype.kind == "float":
        return as_float(exact) if isinstance(exact, Fraction) else exact
    return in_accumulator(int(exact), question)


def mean(row: Row, question: Question) -> Any:
    if not row:
        return nan
    exact = total(row)
    return as_float(exact / len(row)) if isinstance(exact, Fraction) else exact


def variance(row: Row, question: Question) -> Any:
    exact, divisor = total(row), max(len(row) - question.params["ddof"], 0)
    if not row or not isinstance(exact, Fraction):
        return nan
    average = exact / len(row)
    squares = sum((Fraction(value) - average) ** 2 for value in row)
    if divisor == 0:
        return inf if squares else nan
    return as_float(Fraction(squares) / divisor)


def extreme(row: Row, question: Question, *, sign: int) -> Any:
    dtype = question.dtypes[0]
    assert dtype is not None
    if any(isnan(value) for value in row):
        return nan
    if not row:
        return -sign * inf if dtype.kind == "float" else dtype.minimum if sign > 0 else dtype.maximum
    return max(row, key=lambda value: (sign * value, sign * copysign(1, value)))


def log_sum_exp(row: Row, question: Question) -> Any:
    if any(isnan(value) for value in row):
        return nan
    if inf in row:
        return inf
    finite = [mpmath.mpf(value) for value in row if value != -inf]
    return float(mpmath.log(mpmath.fsum(mpmath.exp(value) for value in finite))) if finite else -inf


def norm(row: Row, question: Question) -> Any:
    p = question.params["p"]
    magnitudes = [abs(value) for value in row]
    if p == 0:
        return float(sum(value != 0 for value in magnitudes))
    if any(isnan(value) for value in row):
        return nan
    if abs(p) == inf:
        return max(magnitudes, default=0) if p > 0 else min(magnitudes, default=inf)
    if (inf in magnitudes and p > 0) or (0 in magnitudes and p < 0) or not row:
        return inf if (p > 0) == bool(row) else 0.0
    powers = mpmath.fsum(mpmath.mpf(value) ** p for value in magnitudes if value and value != inf)
    if powers == 0:
        return 0.0 if p > 0 else inf
    root = powers ** (1 / mpmath.mpf(p))
    return float(root) if root < 2**1024 else inf


# --- along an axis ----------------------------------------------------------------------------------------------------


def along(function: Callable[[Row, Question], tuple[Row, ...]]) -> Judge:
    """A judge from a function that makes lists, one per output, of the list of elements along the axis."""

    def judge(question: Question) -> object:
        x, axis = operand(question), question.params["axis"]
        table = np.moveaxis(x, axis, -1)
        answers = [function(row, question) for row in table.reshape(prod(table.shape[:-1]), x.shape[axis]).tolist()]
        results = []
        for position, kind in enumerate(question.outputs):
            shape = kind.shape
            moved = (*table.shape[:-1], shape[axis])
            values = [answer[position] for answer in answers]
            array = np.array(values, np.float64 if kind.dtype.kind == "float" else object).reshape(moved)
            results.append(np.moveaxis(array, -1, axis))
        return tuple(results)

    return judge


def running(operate: Callable[[Any, Any], Any], start: int) -> Callable[[Row, Question], tuple[Row, ...]]:
    whole = total if operate is add else product

    def totals(row: Row, question: Question) -> tuple[Row, ...]:
        ordered = row[::-1] if question.params["reverse"] else row
        if all(isfinite(value) for value in row):
            found: Row = list(accumulate(map(Fraction, ordered), operate, initial=Fraction(start)))
        else:
            found = [whole(ordered[:end]) for end in range(len(row) + 1)]
        found = found[:-1] if question.params["exclusive"] else found[1:]
        finite = [finished(value, question) for value in found]
        return (finite[::-1] if question.params["reverse"] else finite,)

    return totals


def rank(value: Any) -> tuple[bool, Any]:
    """Where a value stands in the order: NaN above all."""
    return (True, 0) if isnan(value) else (False, value)


def top(row: Row, question: Question) -> tuple[Row, ...]:
    order = sorted(range(len(row)), key=lambda at: rank(row[at]), reverse=question.params["largest"])
    picked = order[: question.params["k"]]
    return [row[at] for at in picked], picked


def in_order(row: Row, question: Question) -> tuple[Row, ...]:
    order = sorted(range(len(row)), key=lambda at: rank(row[at]), reverse=question.params["descending"])
    return [row[at] for at in order], order


def place(row: Row, question: Question, *, sign: int) -> int:
    missing = [at for at, value in enumerate(row) if isnan(value)]
    best = max((value * sign for value in row if not isnan(value)), default=None)
    equal = missing or [at for at, value in enumerate(row) if value * sign == best]
    return equal[0 if question.params["select_first"] else -1]


JUDGES: dict[str, Judge] = {
    "sum_axis": reducing(lambda row, question: finished(total(row), question)),
    "mean_axis": reducing(mean),
    "var_axis": reducing(variance),
    "prod_axis": reducing(lambda row, question: finished(product(row), question)),
    "max_axis": reducing(lambda row, question: extreme(row, question, sign=1)),
    "min_axis": reducing(lambda row, question: extreme(row, question, sign=-1)),
    "any_axis": reducing(lambda row, _: any(row)),
    "all_axis": reducing(lambda row, _: all(row)),
    "logsumexp_axis": reducing(log_sum_exp),
    "norm_axis": reducing(norm),
    "argmax_axis": reducing(lambda row, question: place(row, question, sign=1)),
    "argmin_axis": reducing(lambda row, question: place(row, question, sign=-1)),
    "cumsum": along(running(add, 0)),
    "cumprod": along(running(mul, 1)),
    "topk": along(top),
    "sort": along(in_order),
}


@pytest.fixture(autouse=True, scope="module")
def precision() -> Iterator[None]:
    """Enough digits for exponentials of numbers near 1e308 and for their sums."""
    with mpmath.workprec(160):
        yield


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_plain_python(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_integers_wrap_in_the_accumulator_before_they_become_the_output() -> None:
    x = np.array([100, 100, 100], np.int8)
    assert apply("sum_axis", x) == np.int8(44)
    assert apply("sum_axis", x, acc="i32") == np.int32(300)
    assert apply("sum_axis", x, acc=["i8", "i32"]).dtype == np.int32
    assert apply("sum_axis", x, acc=["i8", "i32"]) == 44
    assert apply("prod_axis", x, acc=["i32", "u8"]) == np.uint8(1_000_000 % 256)


def test_accumulators_of_floats_leave_the_output_dtype() -> None:
    half = np.full(3000, 1, np.float16)
    assert apply("sum_axis", half, acc="f64").dtype == np.float16
    assert apply("sum_axis", half, acc=["f32", "f32"]).dtype == np.float32
    # 2049 is no f16: a sum in f16 may be anything up to the bound, but it is an f16.
    assert apply("sum_axis", np.full(2049, 1, np.float16), acc=["f16", "f32"]) == 2048


def test_true_values_are_counted_with_an_accumulator() -> None:
    assert apply("sum_axis", np.array([True, False, True]), acc="i32") == 2
    assert apply("cumsum", np.array([True, False, True]), axis=0, acc="i32").tolist() == [1, 1, 2]


def test_ternary_sums_and_products() -> None:
    x = np.array([-1, -1, -1], np.int8)
    assert apply("sum_axis", x, dtypes=["t1"], acc="i32") == -3
    assert apply("prod_axis", x, dtypes=["t1"]) == -1


def test_reductions_of_nothing() -> None:
    empty = np.zeros((0,), np.float32)
    found = {name: float(apply(name, empty)) for name in ("sum_axis", "prod_axis", "max_axis", "min_axis", "norm_axis")}
    assert found == {"sum_axis": 0, "prod_axis": 1, "max_axis": -inf, "min_axis": inf, "norm_axis": 0}
    assert apply("logsumexp_axis", empty) == -inf
    assert isnan(apply("mean_axis", empty))
    assert isnan(apply("var_axis", empty))
    assert apply("max_axis", empty.astype(np.int8)) == -128
    assert apply("min_axis", empty.astype(np.uint8)) == 255


def test_signed_zeros_have_an_order() -> None:
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        assert not np.signbit(apply("max_axis", np.array(zeros, np.float32)))
        assert np.signbit(apply("min_axis", np.array(zeros, np.float32)))


def test_products_may_leave_the_range_on_the_way() -> None:
    x = np.array([2.0**127] * 10 + [2.0**-126] * 10, np.float32)
    assert apply("prod_axis", x) == 1024
    assert apply("cumprod", x, axis=0)[-1] == 1024


def test_an_empty_list_of_axes_reduces_nothing() -> None:
    assert apply("sum_axis", np.array([1, 2], np.float32), axes=[]).tolist() == [1, 2]


def test_exclusive_and_reverse_running_sums() -> None:
    x = np.array([1, 2, 3], np.int32)
    assert apply("cumsum", x, axis=0, exclusive=True).tolist() == [0, 1, 3]
    assert apply("cumsum", x, axis=0, reverse=True).tolist() == [6, 5, 3]
    assert apply("cumprod", x, axis=0, exclusive=True, reverse=True).tolist() == [6, 3, 1]


def test_equal_elements_keep_their_order_and_nan_is_the_largest() -> None:
    x = np.array([1, nan, 2, 1, nan], np.float32)
    assert apply("sort", x)[1].tolist() == [0, 3, 2, 1, 4]
    assert apply("sort", x, descending=True)[1].tolist() == [1, 4, 2, 0, 3]
    assert apply("topk", x, k=3)[1].tolist() == [1, 4, 2]
    assert apply("topk", x, k=2, largest=False)[1].tolist() == [0, 3]


def test_the_first_or_the_last_of_equal_extremes() -> None:
    x = np.array([3, 1, 3, 1], np.float32)
    assert apply("argmax_axis", x) == 0
    assert apply("argmax_axis", x, axis=0, select_first=False) == 2
    assert apply("argmin_axis", x, axis=-1, select_first=False, keepdims=True).tolist() == [3]
    assert apply("argmax_axis", np.array([[1, 2], [9, 0]], np.int8)) == 2


REFUSALS: list[tuple[str, DType, tuple[int, ...], dict[str, object], str, str]] = [
    ("sum_axis", DTYPES["f32"], (2,), {"axis": 1}, "E310", "there is no axis 1: the operand has 1 dimension"),
    ("max_axis", DTYPES["f32"], (2, 3), {"axes": [0, -2]}, "E310", "'axes' names an axis twice"),
    ("sum_axis", DTYPES["t2"], (2,), {}, "E307", "a sum of t2[2] does not stay t2"),
    ("cumsum", DTYPES["bool"], (2,), {"axis": 0}, "E307", "a sum of bool[2] does not stay bool"),
    ("sum_axis", DTYPES["i8"], (2,), {"acc": "f32"}, "E310", "i8 values cannot be summed in f32"),
    ("mean_axis", DTYPES["i32"], (2,), {}, "E307", "the input 'x' of 'mean_axis' cannot be i32[2]"),
    ("var_axis", DTYPES["f32"], (2,), {"ddof": -1}, "E310", "'ddof' is at least 0, not -1"),
    ("norm_axis", DTYPES["f32"], (2,), {"p": nan}, "E310", "the order 'p' of a norm is a number, not NaN"),
    ("cumprod", DTYPES["f32"], (), {"axis": 0}, "E310", "there is no axis 0: the operand has 0 dimensions"),
    ("cumsum", DTYPES["f32"], (2,), {}, "E306", "'cumsum' needs the parameter 'axis'"),
    ("argmax_axis", DTYPES["f32"], (2, 0), {"axis": 1}, "E308", "there is no extreme among the zero elements"),
    ("argmin_axis", DTYPES["f32"], (2, 0), {}, "E308", "there is no extreme among the zero elements of f32[2, 0]"),
    ("topk", DTYPES["f32"], (2, 3), {"k": 4}, "E310", "'k' is 4, but axis 1 of f32[2, 3] has 3 elements"),
    ("topk", DTYPES["f32"], (2, 3), {"k": -1}, "E310", "'k' is -1"),
    ("sort", DTYPES["f32"], (), {}, "E310", "there is no axis -1"),
]


@pytest.mark.parametrize(("name", "dtype", "shape", "params", "code", "message"), REFUSALS)
def test_refuses(
    name: str, dtype: DType, shape: tuple[int, ...], params: dict[str, object], code: str, message: str
) -> None:
    with pytest.raises(GraphError) as caught:
        apply(name, np.zeros(shape, dtype.array), dtypes=[dtype], **params)
    assert caught.value.code == code
    assert message in caught.value.message


def test_every_op_of_these_modules_has_a_judge() -> None:
    assert {record.name for record in OPS.values() if record.family == "Reduce"} == set(JUDGES)
