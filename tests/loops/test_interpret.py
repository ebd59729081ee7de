"""The interpreter says what kernels mean: by hand for each operation, and for every lowered op by its reference."""

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from tests.everything import HAS_EVERYTHING
from tests.ops.harness import Question, compare
from tests.synth.in_c import answer, prepared, spread

import openinfer.ops.lower  # noqa: F401  (all lowerings)
from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Ref
from openinfer.loops.build import Builder, load
from openinfer.loops.dim import Dim
from openinfer.loops.interpret import KernelFailedError, UndefinedError, interpret
from openinfer.loops.ir import (
    ACCUMULATOR,
    BOOL,
    INDEX,
    Alloc,
    Binary,
    Bits,
    Buffer,
    Cast,
    Compare,
    Const,
    Contraction,
    For,
    If,
    Kernel,
    Load,
    Local,
    LoopKind,
    Math,
    Round,
    Scalar,
    ScalarVar,
    Select,
    Statement,
    Store,
    Unary,
)
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Case, OpError, OpRecord
from openinfer.ops.lower.kernel import kernel_of
from openinfer.ops.lower.operand import LOWERINGS

F32, F64, F16, BF16, F8 = (DTYPES[name] for name in ("f32", "f64", "f16", "bf16", "f8"))
I8, I16, I32, I64, I4 = (DTYPES[name] for name in ("i8", "i16", "i32", "i64", "i4"))
U8, U16, U32, U64, T2 = (DTYPES[name] for name in ("u8", "u16", "u32", "u64", "t2"))

INF, NAN = math.inf, math.nan


def value_of(value: Scalar) -> Any:
    """The value of an expression."""
    out = Buffer("y", value.dtype, ())
    kernel = Kernel("one", (), (out,), (Store(out, (), value),))
    assert verify(kernel) == []
    return interpret(kernel, ())[0][()]


def same(one: Any, other: Any) -> bool:
    """Equal, with the sign of zero, NaN as itself."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return bool(one == other) and math.copysign(1, one) == math.copysign(1, other)


ARITHMETIC: list[tuple[str, DType, float, float, float]] = [
    ("add", I8, 127, 1, -128),
    ("add", U8, 255, 1, 0),
    ("add", U64, 2**64 - 1, 2, 1),
    ("sub", U16, 0, 1, 65535),
    ("mul", I32, 2**30, 6, -(2**31)),
    ("mul", F32, 1e30, 1e30, INF),
    ("add", F32, 2.0**24, 1.0, 2.0**24),
    ("add", F64, 2.0**24, 1.0, 2.0**24 + 1),
    ("div", I32, -7, 2, -3),
    ("rem", I32, -7, 2, -1),
    ("rem", I32, 7, -2, 1),
    ("div", I8, -128, -1, -128),
    ("rem", I8, -128, -1, 0),
    ("div", F32, 1.0, 0.0, INF),
    ("div", F32, 1.0, -0.0, -INF),
    ("rem", F32, -7.5, 2.0, -1.5),
    ("min", F32, NAN, 1.0, NAN),
    ("max", F32, 1.0, NAN, NAN),
    ("min", F32, 0.0, -0.0, -0.0),
    ("min", F32, -0.0, 0.0, -0.0),
    ("max", F32, -0.0, 0.0, 0.0),
    ("max", F32, 0.0, -0.0, 0.0),
    ("min", U64, 2**63, 1, 1),
    ("and", I8, -1, 6, 6),
    ("or", U8, 1, 6, 7),
    ("xor", I8, -1, 1, -2),
    ("and", BOOL, True, False, False),
    ("or", BOOL, True, False, True),
    ("xor", BOOL, True, True, False),
    ("shl", I8, 1, 7, -128),
    ("shl", I8, 1, 8, 0),
    ("shl", U32, 3, 31, 2**31),
    ("shr", I8, -128, 7, -1),
    ("shr", I8, -128, 100, -1),
    ("shr", U8, 128, 100, 0),
    ("copysign", F32, 1.0, -0.0, -1.0),
    ("nextafter", F32, 1.0, 2.0, 1.0 + 2.0**-23),
]


@pytest.mark.parametrize(("op", "dtype", "a", "b", "wanted"), ARITHMETIC)
def test_operations_on_two_values(op: Any, dtype: DType, a: float, b: float, wanted: float) -> None:
    assert same(value_of(Binary(op, Const(a, dtype), Const(b, dtype))), wanted)


UNARY: list[tuple[str, DType, float, float]] = [
    ("neg", I8, -128, -128),
    ("neg", U8, 1, 255),
    ("neg", F32, 0.0, -0.0),
    ("abs", I16, -32768, -32768),
    ("abs", F32, -0.0, 0.0),
    ("not", I8, 0, -1),
    ("not", U16, 0, 65535),
    ("not", BOOL, True, False),
    ("popcount", I8, -1, 8),
    ("popcount", U64, 2**64 - 1, 64),
    ("sqrt", F32, 2.0, float(np.sqrt(np.float32(2)))),
    ("sqrt", F32, -1.0, NAN),
    ("floor", F32, -0.5, -1.0),
    ("ceil", F32, -0.5, -0.0),
    ("rint", F64, 2.5, 2.0),
    ("trunc", F64, -2.7, -2.0),
    ("isnan", F32, NAN, True),
    ("isinf", F32, -INF, True),
    ("signbit", F32, -0.0, True),
]


@pytest.mark.parametrize(("op", "dtype", "a", "wanted"), UNARY)
def test_operations_on_one_value(op: Any, dtype: DType, a: float, wanted: float) -> None:
    assert same(value_of(Unary(op, Const(a, dtype))), wanted)


CASTS: list[tuple[DType, float, DType, float]] = [
    (I32, 300, U8, 44),
    (I32, -1, U64, 2**64 - 1),
    (U64, 2**64 - 1, I8, -1),
    (F32, -3.9, I8, -3),
    (F32, 255.5, U8, 255),
    (F32, 0.5, BOOL, True),
    (F32, NAN, BOOL, True),
    (BOOL, True, F32, 1.0),
    # Rounded once: through f64 it would become 2**62.
    (I64, 2**62 + 2**38 + 1, F32, 2.0**62 + 2.0**39),
    (U64, 2**64 - 1, F32, 2.0**64),
    (F64, 1e40, F32, INF),
    (F64, 0.1, F32, float(np.float32(0.1))),
]


@pytest.mark.parametrize(("source", "value", "target", "wanted"), CASTS)
def test_casts(source: DType, value: float, target: DType, wanted: float) -> None:
    assert same(value_of(Cast(Const(value, source), target)), wanted)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Round(Const(0.1, F32), F16), float(np.float16(0.1))),
        (Round(Const(1e9, F32), F8), INF),
        (Round(Const(9, I8), I4), -7),
        (Round(Const(200, U8), DTYPES["u2"]), 0),
        (Bits(Const(1.0, F32), U32), 0x3F800000),
        (Bits(Const(0xBFF0000000000000, U64), F64), -1.0),
        (Bits(Const(1.0, F32), U16, F16), 0x3C00),
        (Bits(Const(1.0, F32), U16, BF16), 0x3F80),
        (Bits(Const(0x3C, U8), F32, F8), 1.0),
        (Compare("lt", Const(NAN, F32), Const(1.0, F32)), False),
        (Compare("ne", Const(NAN, F32), Const(NAN, F32)), True),
        (Compare("ge", Const(2**64 - 1, U64), Const(0, U64)), True),
        (Select(Const(False, BOOL), Const(1, I64), Const(2, I64)), 2),
    ],
)
def test_other_expressions(value: Scalar, wanted: float) -> None:
    assert same(value_of(value), wanted)


@pytest.mark.parametrize(
    ("function", "args", "wanted"),
    [
        ("exp", (1.0,), math.e),
        ("log1p", (1e-10,), 1e-10),
        ("erfc", (3.0,), math.erfc(3.0)),
        ("gelu", (-3.0,), -1.5 * math.erfc(3 * math.sqrt(0.5))),
        ("gelu", (-INF,), NAN),
        ("asinh", (1.0,), math.asinh(1.0)),
        ("atan2", (1.0, -1.0), 0.75 * math.pi),
        ("pow", (2.0, 0.5), math.sqrt(2)),
        ("fmod", (5.5, 2.0), 1.5),
        # The product is 1 + 2**-11 + 2**-24 exactly: what is left of it is lost when it is rounded first.
        ("fma", (1 + 2.0**-12, 1 + 2.0**-12, -1.0), 2.0**-11 + 2.0**-24),
        ("fma", (2.0**127, 2.0, -INF), -INF),
        ("fma", (INF, 0.0, 1.0), NAN),
        ("fma", (-0.0, 1.0, 0.0), 0.0),
        # One above a tie of f32, by less than f64 can tell.
        ("fma", (1 + 2.0**-23, 2.0**-24, 1.0), 1 + 2.0**-23),
        ("fma", (2.0**-60, 2.0**-60, 1 + 2.0**-23), 1 + 2.0**-23),
    ],
)
def test_named_functions_are_rounded_once(function: str, args: tuple[float, ...], wanted: float) -> None:
    found = value_of(Math(function, tuple(Const(one, F32) for one in args)))
    assert found.dtype == np.float32
    assert same(found, np.float32(wanted))


# --- statements -------------------------------------------------------------------------------------------------------


def backwards(places: range) -> Iterable[int]:
    return reversed(places)


def test_loops_run_up_to_their_extent_and_parallel_ones_in_any_order() -> None:
    x, y = Buffer("x", F16, (2, 3)), Buffer("y", F16, (3, 2))
    builder = Builder()
    with builder.loops(x.shape, LoopKind.PARALLEL) as (i, j):
        builder.store(y, (j, i), load(x, i, j) * 2.0)
    kernel = Kernel("turned", (x,), (y,), builder.body)
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    for order in (iter, backwards):
        (result,) = interpret(kernel, (values,), order=order)
        assert result.dtype == np.float16
        np.testing.assert_array_equal(result, 2 * values.T)


def test_variables_conditions_and_failures() -> None:
    x, y = Buffer("x", I64, ()), Buffer("y", I64, ())
    builder = Builder()
    builder.fail(load(x) < 0, "negative")
    rest, count = builder.local(load(x), I64), builder.local(0, I64)
    with builder.repeat_while(rest > 1):
        odd = builder.let(rest % 2)
        with builder.when(odd.eq(0)):
            builder.assign(rest, rest // 2)
        with builder.when(odd.eq(1)):
            builder.assign(rest, rest * 3 + 1)
        builder.assign(count, count + 1)
    builder.store(y, (), count)
    kernel = Kernel("collatz", (x,), (y,), builder.body)
    assert interpret(kernel, (np.array(27),))[0] == 111
    with pytest.raises(KernelFailedError, match="negative"):
        interpret(kernel, (np.array(-1),))


def test_dynamic_sizes_have_the_values_they_are_given() -> None:
    rows = Dim(8, Ref("T"))
    x, y = Buffer("x", I32, (rows, 2)), Buffer("y", I32, (rows + 1, 2))
    builder = Builder()
    with builder.loops(y.shape) as (i, j):
        builder.store(y, (i, j), Select(i < rows, load(x, Binary("min", i, Const(rows - 1, INDEX)), j), Const(7, I32)))
    kernel = Kernel("longer", (x,), (y,), builder.body)
    (result,) = interpret(kernel, (np.arange(6, dtype=np.int32).reshape(3, 2),), {"T": 3})
    assert result.tolist() == [[0, 1], [2, 3], [4, 5], [7, 7]]


def test_strides_say_where_elements_lie() -> None:
    x, y = Buffer("x", I32, (2, 3), strides=(1, 2)), Buffer("y", I32, (2, 3))
    builder = Builder()
    with builder.loops(y.shape) as where:
        builder.store(y, where, load(x, *where))
    (result,) = interpret(Kernel("copy", (x,), (y,), builder.body), (np.arange(6, dtype=np.int32),))
    assert result.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_a_contraction_is_a_sum_of_products_in_its_own_type() -> None:
    a, b, c = Buffer("a", I8, (2, 3)), Buffer("b", I8, (3, 2)), Buffer("c", I32, (2, 2))
    i, j, k = ScalarVar("i"), ScalarVar("j"), ScalarVar("k")
    total = ScalarVar(ACCUMULATOR, I32)
    one = Contraction(c, a, b, (i, j), (2, 2), (k,), (3,), (i, j), (i, k), (k, j), I32, total + 1, k.ne(1))
    kernel = Kernel("product", (a, b), (c,), (one,))
    assert verify(kernel) == []
    left, right = np.array([[100, 5, 100], [1, 2, 3]], np.int8), np.array([[100, 1], [9, 9], [100, 1]], np.int8)
    assert interpret(kernel, (left, right))[0].tolist() == [[20001, 201], [401, 5]]


# --- what has no meaning ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Binary("div", Const(1, I32), Const(0, I32)), "an integer is divided by zero"),
        (Binary("shl", Const(1, I32), Const(-1, I32)), "a shift by -1"),
        (Cast(Const(300.0, F32), U8), "300.0 is cast to u8"),
        (Cast(Const(NAN, F32), I32), "nan is cast to i32"),
        (Cast(Const(2.0**63, F32), I64), "is cast to i64"),
        (Select(Const(True, BOOL), Const(1, I32), Cast(Const(INF, F32), I32)), "inf is cast to i32"),
        (Round(Const(2, I8), T2), "2 is stored as t2"),
    ],
)
def test_values_without_a_meaning_are_refused(value: Scalar, message: str) -> None:
    with pytest.raises(UndefinedError, match=message):
        value_of(value)


def test_memory_is_watched() -> None:
    x, y, s = Buffer("x", F32, (2,)), Buffer("y", F32, (2,)), Buffer("s", F32, (1,))
    position = Local(ScalarVar("p"), Const(2, INDEX))

    def refused(*body: Any) -> str:
        with pytest.raises(UndefinedError) as found:
            interpret(Kernel("k", (x,), (y,), (Alloc(s), *body)), (np.zeros(2, np.float32),))
        return str(found.value)

    zero = (Const(0, INDEX),)
    assert refused(position, Store(y, zero, Load(x, (ScalarVar("p"),)))) == "[2] is outside of 'x' [2]"
    assert refused(position, Store(y, (ScalarVar("p"),), Load(x, zero))) == "[2] is outside of 'y' [2]"
    assert refused(Store(y, zero, Load(s, zero))) == "element 0 of 's' is read before it is written"
    assert refused(Store(y, zero, Load(x, zero))) == "element 1 of 'y' was never written"


def test_every_iteration_has_memory_of_its_own() -> None:
    x, y, s = Buffer("x", F32, (2,)), Buffer("y", F32, (2,)), Buffer("s", F32, (1,))
    i, first, two = ScalarVar("i"), (Const(0, INDEX),), Const(2, INDEX)
    fill, take = Store(s, first, Load(x, (i,))), Store(y, (i,), Load(s, first))

    def run(*body: Statement) -> list[float]:
        (found,) = interpret(Kernel("k", (x,), (y,), body), (np.array([1, 2], np.float32),))
        return [float(one) for one in found]

    assert run(For(i, two, (Alloc(s), fill, take), LoopKind.PARALLEL)) == [1, 2]
    with pytest.raises(UndefinedError, match="element 0 of 's' is read before it is written"):
        run(For(i, two, (Alloc(s), If(i.eq(0), (fill,)), take)))
    with pytest.raises(UndefinedError, match="iterations 0 and 1 of a parallel loop touch element 0 of 's'"):
        run(Alloc(s), For(i, two, (fill, take), LoopKind.PARALLEL))
    assert run(Alloc(s), For(i, two, (fill, take))) == [1, 2]


# --- every op ---------------------------------------------------------------------------------------------------------

MOST_ELEMENTS = 120
"""Elements of a case that the interpreter is asked to work through."""


def small_cases(record: OpRecord, dtype: DType) -> Iterator[Case]:
    """Two of the smaller generated cases that have elements; the smallest where all are large."""
    rng = np.random.default_rng([22, crc32(f"{record.name} {dtype.name}".encode())])
    cases = [(sum(array.size for array in case.arrays if array is not None), case) for case in record.cases(rng, dtype)]
    cases = [pair for pair in cases if pair[0] > 0 or not pair[1].arrays]
    few = [case for size, case in cases if size <= MOST_ELEMENTS]
    if few:
        yield from (few[pick] for pick in sorted(rng.choice(len(few), min(2, len(few)), replace=False).tolist()))
    elif cases:
        yield min(cases, key=lambda pair: pair[0])[1]


STEP = 1 if HAS_EVERYTHING else 3
"""Each op has every third of its dtypes in the normal run."""


@pytest.mark.parametrize("name", sorted(LOWERINGS))
def test_lowered_ops_mean_what_their_references_say(name: str) -> None:
    record = OPS[name]
    count = 0
    for dtype in spread(record, STEP):
        for case in small_cases(record, dtype):
            check_case(record, case, order=backwards if count % 2 else iter)
            count += 1
    assert count > 0


def check_case(record: OpRecord, case: Case, order: Any) -> None:
    one = prepared(record, case, 0)
    kernel = kernel_of(record, one.call, case.dtypes)
    arrays = [array for array in case.arrays if array is not None]
    with np.errstate(all="ignore"):
        try:
            wanted = answer(one)
        except OpError:
            with pytest.raises(KernelFailedError):
                interpret(kernel, arrays, order=order)
            return
        results = interpret(kernel, arrays, order=order)
        question = Question(record, case.arrays, case.dtypes, one.call.params, one.call.outputs)
        wide = tuple(
            value.astype(np.float64) if kind.dtype.kind == "float" and value.dtype != np.longdouble else value
            for value, kind in zip(wanted, one.call.outputs, strict=True)
        )
        compare(question, results, wide)


ROW_AXES = {"sort": 1, "topk": 1, "sample": 0, "fft": 2, "ifft": 2, "rfft": 2, "irfft": 1, "stft": 2, "gather": 0}
"""The axes of a result of one row."""


@pytest.mark.parametrize("name", ROW_AXES)
def test_rows_are_known_to_be_independent(name: str) -> None:
    """Each row has memory of its own, so that a schedule may have several of them computed at once."""
    record = OPS[name]
    every = record.cases(np.random.default_rng(4), record.dtypes[0])
    cases = [prepared(record, case, 0) for case in islice(every, 12)]
    kernels = [kernel_of(record, one.call, one.case.dtypes) for one in cases]
    several = [one for one in kernels if len(one.outputs[0].shape) > ROW_AXES[name]]
    assert several
    for kernel in several:
        assert {one.kind for one in kernel.body if isinstance(one, For)} <= {LoopKind.PARALLEL}
