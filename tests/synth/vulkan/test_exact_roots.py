"""Roots for devices whose own may be off, compiled as C++: with every error that they may have."""

import ctypes

import ml_dtypes
import numpy as np
import pytest
from tests.synth.vulkan.cpp import BEFORE, built, run

from openinfer.dtypes import Array
from openinfer.synth.targets.facts import Numerics

H200 = Numerics("last bit", "last bit", "exact", "flushed")
NAMES = ("fused_sqrt", "half_sqrt", "few_sqrt", "near_rsqrt", "few_rsqrt")
OFF = range(-4, 5)
SPECIAL = np.array([0, -0.0, -1, -1e-30, np.inf, -np.inf, np.nan], np.float32)
ROOTS = """
static int off;
extern "C" void set_off(int units) { off = units; }
static float moved(double x)
{
    const float near = float(x);
    return near != 0.0f && abs(near) < INFINITY ? uintBitsToFloat(floatBitsToUint(near) + off) : near;
}
static float inversesqrt(float x) { return moved(1.0 / std::sqrt(double(x))); }
static float sqrt(float x) { return moved(std::sqrt(double(x))); }
"""
AFTER = """
extern "C" long wrong_roots(void)
{
    long count = 0;
    for (uint32_t u = 0x3f800000u; u < 0x40800000u; ++u) {
        const float x = uintBitsToFloat(u);
        count += oi_fused_root_f32(x) != std::sqrt(x);
    }
    return count;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    needs = [f"oi_{name}_f32" for name in NAMES]
    return built(tmp_path_factory.mktemp("roots"), needs, H200, BEFORE + ROOTS, AFTER, NAMES)


def found(library: ctypes.CDLL, name: str, x: Array, off: int) -> Array:
    library.set_off(off)
    result = np.zeros_like(x)
    run(name, library, x, result)
    return result


@pytest.mark.parametrize("off", [min(OFF), 0, max(OFF)])
def test_roots_are_right_for_every_mantissa(library: ctypes.CDLL, off: int) -> None:
    """Of numbers from 1 to 4; another even exponent only moves them."""
    library.set_off(off)
    assert library.wrong_roots() == 0


@pytest.mark.parametrize("off", OFF)
def test_roots_of_numbers_of_all_sizes_are_right(library: ctypes.CDLL, off: int) -> None:
    x = np.random.default_rng(5).integers(0x00800000, 0x7F800000, 1 << 16, dtype=np.uint32).view(np.float32)
    ends = np.array([2.0**-126, 2.0**-64, np.nextafter(np.float32(2.0**-64), np.float32(0)), 3.4028235e38], np.float32)
    x = np.concatenate([x, ends, SPECIAL])
    with np.errstate(all="ignore"):
        assert same(found(library, "fused_sqrt", x, off), np.sqrt(x))


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize(("name", "dtype"), [("half_sqrt", np.float16), ("few_sqrt", ml_dtypes.bfloat16)])
def test_roots_of_all_numbers_of_16_bits_are_rounded_to_the_right_ones(
    library: ctypes.CDLL, name: str, dtype: type, off: int
) -> None:
    """Three times as far off for the shorter ones; none is halfway between two, so that these may go either way."""
    with np.errstate(all="ignore"):
        x = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
        x = x[(np.abs(x) >= 2.0**-126) | (x == 0) | np.isnan(x)]
        wanted = np.sqrt(x).astype(dtype)
        roots = found(library, name, x, off if name == "half_sqrt" else 3 * off)
        assert same(roots.astype(dtype).astype(np.float32), wanted.astype(np.float32))
    if dtype is not np.float16:
        is_finite = np.isfinite(roots)
        halves = (roots[is_finite].view(np.uint32) + 0x8000) >> 16
        assert (halves == wanted[is_finite].view(np.uint16)).all()


@pytest.mark.parametrize(("name", "most"), [("near_rsqrt", 1.2), ("few_rsqrt", 4.6)])
@pytest.mark.parametrize("off", OFF)
def test_inverses_of_roots_are_near(library: ctypes.CDLL, name: str, most: float, off: int) -> None:
    x = np.random.default_rng(6).integers(0x00800000, 0x7F800000, 1 << 16, dtype=np.uint32).view(np.float32)
    wanted = 1 / np.sqrt(x.astype(np.float64))
    unit = np.exp2(np.floor(np.log2(wanted)) - 23)
    assert (np.abs(found(library, name, x, off) - wanted) / unit).max() <= most
    with np.errstate(all="ignore"):
        assert same(found(library, name, SPECIAL, off), 1 / np.sqrt(SPECIAL))


def same(one: Array, other: Array) -> bool:
    """Whether numbers are the same, zeros with their signs; any NaN is the same."""
    is_equal = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool((is_equal | (np.isnan(one) & np.isnan(other))).all())
