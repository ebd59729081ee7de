"""Rounding to the float types: once, to nearest, ties to even, against exact arithmetic and against ml_dtypes."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from openinfer.dtypes import DTYPES, DType, convert

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: mantissa bits and smallest normal exponent decide all the rest."""

    name: str
    mantissa: int
    emin: int
    unsigned: type[np.unsignedinteger[Any]]

    @property
    def dtype(self) -> DType:
        return DTYPES[self.name]

    @property
    def infinity(self) -> int:
        """The code of infinity, which is also one more than the code of the largest number."""
        return (3 - 2 * self.emin) << self.mantissa

    def value(self, code: int) -> Fraction:
        """The number a positive code stands for; for infinity, what the next number would be."""
        exponent, fraction = divmod(code, 1 << self.mantissa)
        whole = fraction + (1 << self.mantissa) if exponent else fraction
        return whole * Fraction(2) ** (max(exponent, 1) - 1 + self.emin - self.mantissa)

    def nearest(self, number: Fraction) -> int:
        """The code, sign bit included, of the number nearest to this one."""
        size = abs(number)
        exponent = max(floor_log2(size), self.emin) if size else self.emin
        steps = round(size / Fraction(2) ** (exponent - self.mantissa))  # Python rounds ties to even
        code = min(steps + ((exponent - self.emin) << self.mantissa), self.infinity)
        return code | (1 << self.dtype.bits - 1 if number < 0 else 0)


def floor_log2(size: Fraction) -> int:
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


F8 = Format("f8", 2, -14, np.uint8)
BF16 = Format("bf16", 7, -126, np.uint16)
F16 = Format("f16", 10, -14, np.uint16)
F32 = Format("f32", 23, -126, np.uint32)
F64 = Format("f64", 52, -1022, np.uint64)
SMALL = (F8, BF16)

small_formats = pytest.mark.parametrize("target", SMALL, ids=lambda target: target.name)
narrow_formats = pytest.mark.parametrize("target", [F8, BF16, F16, F32], ids=lambda target: target.name)
integer_targets = pytest.mark.parametrize("target", [F8, BF16, F16, F32, F64], ids=lambda target: target.name)


def codes(values: Array, target: Format) -> list[int]:
    return [int(code) for code in convert(values, target.dtype).view(target.unsigned)]


def numbers(values: Array) -> list[Fraction]:
    return [Fraction(value) for value in values.tolist()]


def assert_rounded_once(values: Array, target: Format) -> None:
    assert codes(values, target) == [target.nearest(number) for number in numbers(values)]


def sampled_codes(target: Format, count: int = 1500) -> list[int]:
    """Every positive code of a small format, or the ends and a random choice of a larger one."""
    if target.infinity <= count:
        return list(range(target.infinity))
    chosen = np.random.default_rng(1).integers(0, target.infinity, count - 100)
    return sorted({*range(50), *range(target.infinity - 50, target.infinity), *map(int, chosen)})


def neighbourhood(points: Iterable[float]) -> npt.NDArray[np.float64]:
    """Each point, the f64 numbers on either side, ones a little farther away, and all of them negated."""
    middle = np.array(list(points), np.float64)
    with np.errstate(over="ignore", under="ignore"):
        near = [np.nextafter(middle, np.inf), np.nextafter(middle, 0)]
        far = [middle * (1 + sign * 2.0**-shift) for sign in (-1, 1) for shift in (8, 20, 23, 24, 25, 26, 30, 40, 51)]
    positive = np.concatenate([middle, *near, *far])
    finite = positive[np.isfinite(positive) & (positive > 0)]
    return np.concatenate([finite, -finite])


# --- against exact arithmetic -----------------------------------------------------------------------------------------


@narrow_formats
def test_doubles_at_and_around_every_tie_are_rounded_once(target: Format) -> None:
    ties = [float((target.value(code) + target.value(code + 1)) / 2) for code in sampled_codes(target)]
    assert_rounded_once(neighbourhood(ties), target)


@narrow_formats
def test_numbers_of_the_type_are_kept(target: Format) -> None:
    chosen = sampled_codes(target)
    values = np.array([float(target.value(code)) for code in chosen])
    assert codes(values, target) == chosen
    sign = 1 << target.dtype.bits - 1
    assert codes(-values[values > 0], target) == [code | sign for code in chosen if code]


@narrow_formats
def test_random_doubles_are_rounded_once(target: Format) -> None:
    rng = np.random.default_rng(2)
    low, high = target.emin - target.mantissa - 4, 4 - target.emin
    spread = np.ldexp(rng.uniform(-2, 2, 6000), rng.integers(low, high, 6000))
    anything = rng.integers(0, 2**64, 3000, np.uint64).view(np.float64)
    assert_rounded_once(np.concatenate([spread, anything[np.isfinite(anything)]]), target)


@small_formats
def test_singles_are_rounded_once(target: Format) -> None:
    rng = np.random.default_rng(3)
    anything = rng.integers(0, 2**32, 8000, np.uint32).view(np.float32)
    tie = [float((target.value(code) + target.value(code + 1)) / 2) for code in sampled_codes(target)]
    with np.errstate(over="ignore"):
        middle = np.array(tie).astype(np.float32)
    finite = middle[np.isfinite(middle)]
    beside = [np.nextafter(finite, np.float32(0)), np.nextafter(finite, np.float32(np.inf))]
    values = np.concatenate([anything, finite, *beside])
    assert_rounded_once(values[np.isfinite(values) & (values != 0)], target)


@integer_targets
@pytest.mark.parametrize("source", ["i32", "u32", "i64", "u64"])
def test_integers_at_and_around_ties_are_rounded_once(source: str, target: Format) -> None:
    dtype = DTYPES[source]
    heads = {
        1 << target.mantissa,
        (2 << target.mantissa) - 1,
        *map(int, np.random.default_rng(4).integers(0, 2**62, 12)),
    }
    tried = set()
    for head in heads:
        odd = 2 * (head % (1 << target.mantissa) + (1 << target.mantissa)) + 1
        for shift in range(65):
            for delta in (0, 1, -1, 1 << shift >> 1, -(1 << shift >> 1), 1 << shift, 1025, -1025):
                tried |= {sign * ((odd << shift) + delta) for sign in (1, -1)}
    values = sorted(value for value in tried if dtype.minimum <= value <= dtype.maximum)
    assert_rounded_once(np.array(values, dtype.array), target)


@integer_targets
@pytest.mark.parametrize("source", ["i64", "u64"])
def test_random_integers_are_rounded_once(source: str, target: Format) -> None:
    rng = np.random.default_rng(5)
    wide = rng.integers(0, 2**64, 6000, np.uint64) >> rng.integers(0, 64, 6000, np.uint64)
    extremes = np.array([0, 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    values = np.concatenate([wide, extremes]).astype(DTYPES[source].array)
    assert_rounded_once(np.concatenate([values, -values.astype(np.int64)]) if source == "i64" else values, target)


@small_formats
@pytest.mark.parametrize("source", ["i8", "u8", "i16", "u16"])
def test_every_short_integer_is_rounded_once(source: str, target: Format) -> None:
    dtype = DTYPES[source]
    assert_rounded_once(np.arange(dtype.minimum, dtype.maximum + 1).astype(dtype.array), target)


# --- the ends of the range --------------------------------------------------------------------------------------------


@narrow_formats
@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_goes_to_infinity_from_the_tie_on(target: Format, sign: int) -> None:
    tie = float((target.value(target.infinity - 1) + target.value(target.infinity)) / 2)
    values = sign * np.array([np.nextafter(tie, 0), tie, np.nextafter(tie, np.inf), 1e308, np.inf])
    largest = sign * float(target.value(target.infinity - 1))
    assert convert(values, target.dtype).astype(np.float64).tolist() == [largest, *[sign * np.inf] * 4]


@narrow_formats
@pytest.mark.parametrize("sign", [1, -1])
def test_underflow_goes_to_zero_up_to_the_tie_and_keeps_the_sign(target: Format, sign: int) -> None:
    tie = float(target.value(1) / 2)
    values = sign * np.array([0.0, 5e-324, np.nextafter(tie, 0), tie, np.nextafter(tie, np.inf)])
    negative = 1 << target.dtype.bits - 1 if sign < 0 else 0
    assert codes(values, target) == [negative, negative, negative, negative, negative | 1]


@narrow_formats
@pytest.mark.parametrize("source", ["f16", "f32", "f64"])
def test_nan_stays_nan_and_keeps_its_place(source: str, target: Format) -> None:
    values = np.array([1.0, np.nan, -np.nan, np.inf, -np.inf, -0.0], DTYPES[source].array)
    found = convert(values, target.dtype).astype(np.float64)
    assert np.isnan(found).tolist() == [False, True, True, False, False, False]
    assert found[[0, 3, 4]].tolist() == [1.0, np.inf, -np.inf]
    assert np.signbit(found[5])


@small_formats
def test_wide_scalars_and_empty_arrays_round_like_arrays(target: Format) -> None:
    for value in (np.float64(-0.0), np.float64(1.1), np.int64(-(2**63)), np.uint64(2**64 - 1), np.int32(-257)):
        alone = convert(np.array(value), target.dtype)
        assert alone.shape == ()
        assert alone.tobytes() == convert(np.array([value]), target.dtype).tobytes()
        assert convert(np.empty((2, 0), value.dtype), target.dtype).shape == (2, 0)


# --- against ml_dtypes, which is right from f32 on down ---------------------------------------------------------------


def assert_same_but_for_nan_payloads(found: Array, expected: Array, target: Format) -> None:
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(np.isnan(found.astype(np.float32)), nan)
    assert np.array_equal(found.view(target.unsigned)[~nan], expected.view(target.unsigned)[~nan])


@small_formats
def test_every_half_agrees_with_ml_dtypes(target: Format) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        expected = halves.astype(np.float32).astype(target.dtype.array)
    assert_same_but_for_nan_payloads(convert(halves, target.dtype), expected, target)


@small_formats
def test_a_million_singles_agree_with_ml_dtypes(target: Format) -> None:
    singles = np.random.default_rng(6).integers(0, 2**32, 1 << 20, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = singles.astype(target.dtype.array)
    assert_same_but_for_nan_payloads(convert(singles, target.dtype), expected, target)


@small_formats
def test_doubles_that_are_singles_agree_with_ml_dtypes(target: Format) -> None:
    singles = np.random.default_rng(7).integers(0, 2**32, 1 << 18, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        doubles, expected = singles.astype(np.float64), singles.astype(target.dtype.array)
    assert_same_but_for_nan_payloads(convert(doubles, target.dtype), expected, target)


def test_every_code_of_the_small_floats_survives_every_wider_float() -> None:
    for target in SMALL:
        every = np.arange(2**target.dtype.bits).astype(target.unsigned).view(target.dtype.array)
        for wider in ("f32", "f64"):
            there = convert(every, DTYPES[wider])
            assert_same_but_for_nan_payloads(convert(there, target.dtype), every, target)


def test_halves_hold_every_f8() -> None:
    every = np.arange(2**8).astype(np.uint8).view(DTYPES["f8"].array)
    assert_same_but_for_nan_payloads(convert(convert(every, DTYPES["f16"]), DTYPES["f8"]), every, F8)
