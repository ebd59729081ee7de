"""Functions for results of few bits, of all numbers of 16 bits, and others without f64: compiled as C++."""

import ctypes
from collections.abc import Callable
from math import erf

import ml_dtypes
import numpy as np
import pytest
from tests.synth.vulkan.cpp import BEFORE, built, run

from openinfer.dtypes import Array
from openinfer.synth.targets.facts import Numerics

H200 = Numerics("last bit", "last bit", "exact", "flushed")
NAMES = ("few_erf", "few_log1p", "few_softplus", "few_mish", "half_sin", "half_cos", "few_sin", "few_cos")
WIDER = ("fused_log1p", "near_softplus", "near_mish")
OWN = """
static int off;
extern "C" void set_off(int units) { off = units; }
static float moved(float x)
{
    return abs(x) >= 0x1p-126f && abs(x) < INFINITY ? uintBitsToFloat(floatBitsToUint(x) + off) : x;
}
static float exp2(float x) { return moved(std::exp2(x)); }
/* What Vulkan allows: 3 ulp, or 2^-21 from 1/2 to 2. */
static float log2(float x)
{
    const float y = std::log2(x);
    return x >= 0.5f && x <= 2.0f ? y + float(off) / 3.0f * 0x1p-21f : moved(y);
}
static void umulExtended(uint32_t a, uint32_t b, uint32_t &high, uint32_t &low)
{
    const uint64_t product = uint64_t(a) * b;
    high = product >> 32, low = uint32_t(product);
}
"""


def _softplus(x: Array) -> Array:
    return np.asarray(np.where(x > 0, x, 0) + np.log1p(np.exp(-np.abs(x))))


def _mish(x: Array) -> Array:
    return np.asarray(x * np.tanh(_softplus(x)))


WANTED: dict[str, Callable[[Array], Array]] = {
    "erf": lambda x: np.array([erf(one) for one in x.tolist()]),
    "log1p": np.log1p,
    "softplus": _softplus,
    "mish": _mish,
    "sin": np.sin,
    "cos": np.cos,
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    needs = [f"oi_{name}_f32" for name in (*NAMES, *WIDER)]
    before = BEFORE.replace("using std::exp2;", "") + OWN
    return built(tmp_path_factory.mktemp("few"), needs, H200, before, "", (*NAMES, *WIDER))


@pytest.mark.parametrize("off", [-3, 0, 3])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_all_numbers_are_right_but_for_half_a_unit(
    library: ctypes.CDLL, name: str, dtype: type, off: int
) -> None:
    """Before they are rounded; numbers that are subnormal in f32 are zeros."""
    if name.startswith("half") and dtype is not np.float16:
        return
    with np.errstate(all="ignore"):
        x = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
        x = x[(np.abs(x) >= 2.0**-126) | (x == 0) | np.isnan(x)]
        library.set_off(off)
        found = np.zeros_like(x)
        run(name, library, x, found)
        wanted = WANTED[name.split("_")[1]](x.astype(np.float64))
        digits, least = (10, -14) if dtype is np.float16 else (7, -126)
        unit = np.exp2(np.maximum(np.floor(np.log2(np.abs(wanted))), least) - digits)
        is_plain = np.isfinite(wanted) & (np.abs(wanted) >= 2.0**-126)
        assert (np.abs(found - wanted)[is_plain] <= 0.5 * unit[is_plain]).all()
        is_odd = ~np.isfinite(wanted) | (wanted == 0)
        assert np.array_equal(found[is_odd], wanted[is_odd].astype(np.float32), equal_nan=True)
        assert np.array_equal(np.signbit(found[x == 0]), np.signbit(wanted[x == 0]))
        assert (np.abs(found[np.abs(wanted) < 2.0**-126]) < 2.0**-125).all()


@pytest.mark.parametrize(("name", "most"), [("fused_log1p", 1.4), ("near_softplus", 2.4), ("near_mish", 2.8)])
def test_functions_of_f32_are_within_a_few_units(library: ctypes.CDLL, name: str, most: float) -> None:
    """Of numbers of all sizes, and many around those where terms are as large as each other."""
    rng = np.random.default_rng(4)
    sizes = (
        np.exp2(rng.uniform(-126, 127, 1 << 15)),
        np.exp2(rng.uniform(-20, 10, 1 << 15)),
        np.linspace(0, 110, 1 << 15),
    )
    x = np.concatenate([*sizes, np.linspace(0.2, 1, 1 << 14), [0, 1, 2, 88.5, 3e38, np.inf, np.nan]])
    x = np.concatenate([x, -x]).astype(np.float32)
    found = np.zeros_like(x)
    run(name, library, x, found)
    with np.errstate(all="ignore"):
        wanted = WANTED[name.split("_")[1]](x.astype(np.longdouble))
        is_plain = np.isfinite(wanted) & (np.abs(wanted) >= 2.0**-126) & (np.abs(wanted) < 2.0**128)
        unit = np.exp2(np.floor(np.log2(np.abs(wanted[is_plain]))) - 23)
        assert (np.abs(found[is_plain] - wanted[is_plain]) / unit).max() <= most
        is_odd = ~np.isfinite(wanted) | (wanted == 0)
        assert np.array_equal(found[is_odd], wanted[is_odd].astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(found[x == 0]), np.signbit(wanted[x == 0]))
    assert (np.abs(found[np.abs(wanted) < 2.0**-126]) < 2.0**-125).all()
