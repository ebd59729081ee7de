"""Integer arithmetic in emitted C: plain where it cannot overflow, and unsigned where it may."""

from collections.abc import Callable

import pytest

from openinfer.dtypes import DTYPES
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Cast,
    Combine,
    Const,
    For,
    Load,
    Local,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
)
from openinfer.loops.locals import local_ranges
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.vulkan.dialect import GLSL

I8, U8, I16, U16, I32 = (DTYPES[name] for name in ("i8", "u8", "i16", "u16", "i32"))
BYTES, TOTAL, AT = Buffer("x", I8, (100,)), ScalarVar("total", I32), ScalarVar("i")


def _pair(name: str) -> tuple[ScalarVar, ScalarVar]:
    return ScalarVar("a", DTYPES[name]), ScalarVar("b", DTYPES[name])


@pytest.mark.parametrize(
    ("dtype", "make", "wanted"),
    [
        ("i8", lambda a, b: a + b, "(int8_t)(a + b)"),
        ("i8", lambda a, b: a * b + 1, "(int8_t)(a * b + 1)"),
        ("u8", lambda a, b: a - b, "(uint8_t)(a - b)"),
        ("i16", lambda a, b: a * b, "(int16_t)(a * b)"),
        ("u16", lambda a, b: a * b, "(uint16_t)((uint32_t)a * (uint32_t)b)"),  # 65535 * 65535 overflows an int
        ("i16", lambda a, b: a * b * a, "(int16_t)((uint32_t)(int16_t)(a * b) * (uint32_t)a)"),
        ("i32", lambda a, b: a + b, "(int32_t)((uint32_t)a + (uint32_t)b)"),
        (
            "u8",
            lambda a, b: Cast(a, I32) - ScalarVar("n", I32) * Cast(b, I32),
            "(int32_t)((uint32_t)a - (uint32_t)n * (uint32_t)b)",
        ),
    ],
)
def test_small_integers_are_promoted(dtype: str, make: Callable[[ScalarVar, ScalarVar], Scalar], wanted: str) -> None:
    assert ScalarPrinter(C, lambda buffer: buffer.name).text(make(*_pair(dtype))) == wanted


def test_glsl_has_them_in_32_bits() -> None:
    a, b = _pair("i8")
    assert ScalarPrinter(GLSL, lambda buffer: buffer.name).text(a + b) == "bitfieldExtract(int32_t(a + b), 0, 8)"


def test_a_signed_variable_in_an_unsigned_type_may_be_larger_than_its_own_type() -> None:
    a, b = _pair("i16")
    printer = ScalarPrinter(C, lambda buffer: buffer.name)
    printer.widths.unsigned.add("a")
    assert printer.text(a * b) == "(int16_t)((uint32_t)a * (uint32_t)b)"


def _summed(term: Scalar, *more: Statement) -> tuple[Statement, ...]:
    add = SetLocal(TOTAL, TOTAL + term)
    return (Local(TOTAL, Const(0, I32)), For(AT, Const(100, INDEX), (add, *more)))


def test_a_sum_of_small_integers_has_a_range() -> None:
    found = local_ranges(_summed(Cast(Load(BYTES, (AT,)), I32)))
    assert found == {"total": (-12800, 12700)}


def test_a_sum_that_may_overflow_has_the_range_of_its_type() -> None:
    wide = Load(Buffer("x", I32, (100,)), (AT,))
    assert local_ranges(_summed(wide)) == {"total": (-(2**31), 2**31 - 1)}


def test_nothing_is_known_of_what_threads_combine() -> None:
    other = ScalarVar("other", I32)
    joined = Combine((TOTAL,), (other,), (TOTAL + other,), 32)
    assert local_ranges((*_summed(Cast(Load(BYTES, (AT,)), I32)), joined)) == {}


def test_nothing_is_known_of_a_name_with_two_types() -> None:
    short = Local(ScalarVar("total", I8), Const(0, I8))
    assert local_ranges((*_summed(Cast(Load(BYTES, (AT,)), I32)), short)) == {}
