"""What integers can be: arithmetic that always fits is printed as such, all other wraps."""

import pytest

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim
from openinfer.loops.intervals import Interval, interval
from openinfer.loops.ir import INDEX, Binary, Buffer, Cast, Const, Load, Scalar, ScalarVar, Select
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter

I8, I32, I64, U8, U16, U32 = (DTYPES[one] for one in ("i8", "i32", "i64", "u8", "u16", "u32"))
AT = ScalarVar("i")
KNOWN = {"i": (0, 9)}
BYTES = Load(Buffer("x", U8, (4,)), (AT,))
N, M, L, P, Q = ScalarVar("n", I32), ScalarVar("m", I32), ScalarVar("l", I64), ScalarVar("p", U8), ScalarVar("q", U16)

INTERVALS: tuple[tuple[Scalar, Interval], ...] = (
    (AT * 3 - 1, (-1, 26)),
    (-AT, (-9, 0)),
    ((AT - 5) * (AT - 5), (-20, 25)),
    ((AT - 5) / 2, (-2, 2)),
    ((AT - 5) % 3, (-2, 2)),
    (AT % 100, (0, 9)),
    (Binary("min", AT, Const(4, INDEX)), (0, 4)),
    (Binary("max", AT, Const(4, INDEX)), (4, 9)),
    (Cast(BYTES, I32) * 2, (0, 510)),
    (Select(BYTES < 3, Const(-1, I32), Cast(BYTES, I32)), (-1, 255)),
    (Const(Dim(16, Ref("T")), INDEX) + 1, (1, 17)),
    (Cast(N, I8), (-128, 127)),  # it wraps
    (N + 1, (-(2**31), 2**31 - 1)),
    (AT / AT, (-(2**63), 2**63 - 1)),  # of what may be divided by zero, nothing is known
)


@pytest.mark.parametrize(("value", "wanted"), INTERVALS)
def test_what_an_integer_can_be(value: Scalar, wanted: Interval) -> None:
    assert interval(value, KNOWN) == wanted


TEXTS: dict[str, Scalar] = {
    "(int32_t)((uint32_t)n + (uint32_t)m)": N + M,
    "(int32_t)((uint32_t)n + 1u)": N + 1,
    "(int64_t)n + (int64_t)m": Cast(N, I64) + Cast(M, I64),
    "(int64_t)n * (int64_t)m - 5": Cast(N, I64) * Cast(M, I64) - 5,
    "(int64_t)((uint64_t)l * 3u)": L * 3,
    "(int64_t)((uint64_t)n + (uint64_t)l)": Cast(N, I64) + L,
    "(int32_t)p * (int32_t)p": Cast(P, I32) * Cast(P, I32),
    "(int32_t)((uint32_t)q * (uint32_t)q)": Cast(Q, I32) * Cast(Q, I32),
    "(uint8_t)(p + 1)": P + 1,
    "0 - (int32_t)p": -Cast(P, I32),
    "(int32_t)(0u - (uint32_t)n)": -N,
    "(int64_t)((uint64_t)2000000000 + (uint64_t)2000000000)": Const(2 * 10**9, I64) + Const(2 * 10**9, I64),
    "(uint32_t)p * 4000000000u": Cast(P, U32) * 4000000000,
    "oi_div_i32(n, m)": N / M,
    "n / 7": N / 7,
    "n % 7": N % 7,
}


@pytest.mark.parametrize("wanted", TEXTS)
def test_arithmetic_is_plain_where_it_cannot_wrap(wanted: str) -> None:
    assert ScalarPrinter(C, lambda buffer: buffer.name).text(TEXTS[wanted]) == wanted


def test_what_is_known_of_an_index_ends_where_another_has_its_name() -> None:
    printer = ScalarPrinter(C, lambda buffer: buffer.name)
    value = Cast(AT, I32) * 1000
    printer.ranges["i"] = (0, 9)
    assert printer.text(value) == "(int32_t)i * 1000"
    printer.counts(AT)
    assert printer.text(value) == "(int32_t)((uint32_t)i * 1000u)"
