"""Functions of shaders for devices that round in their own way, compiled as C++, which reads them as GLSL does."""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from math import erfc, sqrt

import numpy as np
import pytest
from tests.synth.vulkan.cpp import BEFORE, built, run

from openinfer.dtypes import DTYPES, Array
from openinfer.loops.build import Builder, const, index, load, unary
from openinfer.loops.interpret import interpret
from openinfer.loops.ir import Binary, Buffer, Kernel, LoopKind
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.launches import Launch
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.vulkan.exact import with_floors
from openinfer.synth.targets.vulkan.shader import launch_code

F32 = DTYPES["f32"]
H200 = Numerics("last bit", "last bit", "exact", "flushed")
NAMES = ("oi_quotient_f32", "oi_near_f32", "oi_few_f32", "oi_pair_bf16", "oi_pairs_bf16", "oi_quads_bf16")
NEAR = ("oi_divisor_f32", "oi_divisor_scale_f32", "oi_near_pairs_bf16", "oi_near_quads_bf16")
SINGLE = (
    "normal_exp",
    "near_exp",
    "normal_gelu",
    "few_exp",
    "few_tanh",
    "few_gelu",
    "normal_log",
    "normal_log2",
    "normal_log10",
)
AFTER = """
#define QUOTIENTS(name) extern "C" void name(const float *a, const float *b, float *y, long n) \\
{ for (long i = 0; i < n; ++i) y[i] = oi_##name##_f32(a[i], b[i]); }
static float oi_divided_f32(float a, float b) { return a * oi_divisor_f32(b) * oi_divisor_scale_f32(b); }
QUOTIENTS(quotient) QUOTIENTS(near) QUOTIENTS(few) QUOTIENTS(divided)
extern "C" void pairs1(const float *x, uint32_t *y, long n)
{ for (long i = 0; i < n; ++i) y[i] = oi_pair_bf16(x[2 * i], x[2 * i + 1]); }
extern "C" void pairs2(const float *x, uint32_t *y, long n)
{ for (; n > 0; n -= 2, x += 4, y += 2) { const uvec2 v = oi_pairs_bf16(x[0], x[1], x[2], x[3]); memcpy(y, &v, 8); } }
extern "C" void near2(const float *x, uint32_t *y, long n)
{
    for (; n > 0; n -= 2, x += 4, y += 2) {
        const uvec2 v = oi_near_pairs_bf16(x[0], x[1], x[2], x[3]);
        memcpy(y, &v, 8);
    }
}
extern "C" void near4(const float *x, uint32_t *y, long n)
{
    for (; n > 0; n -= 4, x += 8, y += 4) {
        const uvec4 v = oi_near_quads_bf16(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
        memcpy(y, &v, 16);
    }
}
extern "C" void pairs4(const float *x, uint32_t *y, long n)
{
    for (; n > 0; n -= 4, x += 8, y += 4) {
        const uvec4 v = oi_quads_bf16(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
        memcpy(y, &v, 16);
    }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    needs = [*NAMES, *NEAR, *(f"oi_{name}_f32" for name in SINGLE)]
    return built(tmp_path_factory.mktemp("exact"), needs, H200, BEFORE, AFTER, SINGLE)


def any_bits(count: int) -> Array:
    return np.random.default_rng(7).integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)


def test_quotients_are_rounded_correctly(library: ctypes.CDLL) -> None:
    """Of numbers of every size, of mantissas next to 2, where the nearest inverse is hard to find, and of zeros."""
    a, b = any_bits(1 << 20).copy(), any_bits(1 << 20)[::-1].copy()
    codes, others, place = a.view(np.uint32), b.view(np.uint32), np.arange(a.size)
    middle = place % 4 > 0
    others[middle] = (others[middle] & 0x807FFFFF) | 0x3F800000
    others[place % 16 == 5] |= 0x7FFFF0
    codes[place % 16 == 9] &= 0xFF80000F
    codes[place % 64 == 7] &= 0x80000000
    found = np.zeros_like(a)
    run("quotient", library, a, b, found)
    with np.errstate(all="ignore"):
        wanted = a / b
    is_same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert is_same.all()


def test_exponentials_are_within_a_unit_in_the_last_place(library: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-90, 90, 1 << 18), [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30]])
    x = x.astype(np.float32)
    found = np.zeros_like(x)
    run("normal_exp", library, x, found)
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.float64))
    is_normal = (wanted >= 2.0**-126) & (wanted < 2.0**128)
    ulp = np.spacing(wanted[is_normal].astype(np.float32)).astype(np.float64)
    assert (np.abs(found[is_normal] - wanted[is_normal]) <= ulp).all()
    assert np.isnan(found[np.isnan(x)]).all()
    assert (found[wanted >= 2.0**128] == np.inf).all()
    assert (found[wanted < 2.0**-126] == 0).all()


def test_exponentials_of_parts_of_a_sum_are_near(library: ctypes.CDLL) -> None:
    """Of what is not above 0, as a row less its largest element is."""
    x = np.concatenate([np.linspace(-90, 0, 1 << 18), [-np.inf, np.nan, 0.0, -0.0, -1e30, -1e-30, -1e-40, 80]])
    x = x.astype(np.float32)
    found = np.zeros_like(x)
    run("near_exp", library, x, found)
    wanted = np.exp(x.astype(np.float64))
    assert units(found, wanted, 23).max() <= 1.6
    assert np.isnan(found[np.isnan(x)]).all()
    assert (found[wanted < 2.0**-127] == 0).all()
    assert found[x == 0].tolist() == [1] * 3


def units(found: Array, wanted: Array, digits: int) -> Array:
    """How many units in the last place normal numbers are off, in a type of so many digits."""
    is_normal = (np.abs(wanted) >= 2.0**-126) & (np.abs(wanted) < 2.0**127)
    with np.errstate(all="ignore"):
        unit = np.exp2(np.floor(np.log2(np.abs(wanted[is_normal]))) - digits)
    return np.asarray(np.abs(found[is_normal] - wanted[is_normal]) / unit)


@pytest.mark.parametrize(("name", "most"), [("near", 1.51), ("few", 2.0), ("divided", 1.51)])
def test_quotients_that_are_parts_of_results_are_near(library: ctypes.CDLL, name: str, most: float) -> None:
    """Of numbers of every size; zeros, infinities and NaN as division has them."""
    a, b = any_bits(1 << 18).copy(), any_bits(1 << 18)[::-1].copy()
    b[::2] = np.exp2(np.linspace(-3, 3, b[::2].size)).astype(np.float32)
    special = np.array([0, -0.0, 1, -5, np.inf, -np.inf, np.nan, 3e38, 1e-37], np.float32)
    a = np.concatenate([a[(np.abs(a) >= 2.0**-126) & (np.abs(b) >= 2.0**-126)], np.repeat(special, special.size)])
    b = np.concatenate([b[(np.abs(b) >= 2.0**-126)][: a.size - special.size**2], np.tile(special, special.size)])
    found = np.zeros_like(a[: b.size])
    run(name, library, a[: b.size].copy(), b, found)
    with np.errstate(all="ignore"):
        wanted = a[: b.size].astype(np.float64) / b.astype(np.float64)
    assert units(found, wanted, 23).max() <= most
    is_special = ~np.isfinite(wanted) | (wanted == 0)
    with np.errstate(all="ignore"):
        assert np.array_equal(found[is_special], wanted.astype(np.float32)[is_special], equal_nan=True)


def gelu(x: Array) -> Array:
    return np.array([0.5 * one * erfc(-one / sqrt(2)) for one in x.tolist()])


@pytest.mark.parametrize(
    ("name", "digits", "most"),
    [("normal_gelu", 23, 3.5), ("few_gelu", 7, 0.1), ("few_exp", 7, 0.01), ("few_tanh", 7, 0.1)],
)
def test_functions_are_as_near_as_their_results_show(library: ctypes.CDLL, name: str, digits: int, most: float) -> None:
    size = np.concatenate([np.linspace(0, 13, 1 << 15), np.exp2(np.linspace(-100, 5, 1 << 12))])
    x = np.concatenate([size, -size]).astype(np.float32)
    found = np.zeros_like(x)
    run(name, library, x, found)
    exact = x.astype(np.float64)
    wanted = gelu(exact) if "gelu" in name else np.exp(exact) if "exp" in name else np.tanh(exact)
    assert units(found, wanted, digits).max() <= most
    special = np.array([np.nan, np.inf, -np.inf, 0, 3e38, -3e38], np.float32)
    found = np.zeros_like(special)
    run(name, library, special, found)
    ends = {"gelu": [np.nan, np.inf, np.nan, 0, 3e38, 0], "exp": [np.nan, np.inf, 0, 1, np.inf, 0]}
    wanted = np.array(ends.get(name.split("_")[1], [np.nan, 1, -1, 0, 1, -1]), np.float32)
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize(("name", "function"), [("log", np.log), ("log2", np.log2), ("log10", np.log10)])
def test_logarithms_of_subnormal_numbers_are_those_of_zero(
    library: ctypes.CDLL, name: str, function: Callable[[Array], Array]
) -> None:
    x = np.array([0.0, -0.0, 1e-45, -1e-45, 1.1e-38, -1.1e-38, np.inf, -np.inf, np.nan, -1, 1], np.float32)
    x = np.concatenate([x, np.exp2(np.linspace(-126, 127, 1 << 14)).astype(np.float32)])
    found = np.zeros_like(x)
    run(f"normal_{name}", library, x, found)
    with np.errstate(all="ignore"):
        wanted = function(np.where(np.abs(x) < 2.0**-126, 0, x).astype(np.float64))
    assert units(found[11:], wanted[11:], 23).max() <= 1.1
    assert np.array_equal(found[:11], wanted[:11].astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("words", [1, 2, 4])
def test_numbers_are_rounded_to_bf16_as_each_is_alone(library: ctypes.CDLL, words: int) -> None:
    """Those of any size, of which some are NaN, and those between two of bf16; the least are taken for 0."""
    x = np.concatenate(
        [
            any_bits(1 << 16),
            np.exp2(np.linspace(-126, 127, 1 << 16)).astype(np.float32),
            np.array([0, -0.0] * 4, np.float32),
        ]
    )
    x.view(np.uint32)[::3] = (x.view(np.uint32)[::3] & 0xFFFF0000) | 0x8000
    x = np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x).astype(np.float32)
    found = np.zeros(x.size // 2, np.uint32)
    run(f"pairs{words}", library, x, found)
    codes = DTYPES["bf16"].array.type
    with np.errstate(all="ignore"):
        wanted = x.astype(codes).view(np.uint16)
    is_nan = np.isnan(x)
    halves = found.view(np.uint16)
    assert (halves[~is_nan] == wanted[~is_nan]).all()
    assert np.isnan(halves.view(codes)[is_nan].astype(np.float32)).all()


@pytest.mark.parametrize("words", [2, 4])
def test_numbers_that_are_not_exact_may_be_rounded_either_way(library: ctypes.CDLL, words: int) -> None:
    """To one of the nearest of bf16, and to infinity where that is nearer; NaN stays NaN."""
    x = np.concatenate([any_bits(1 << 16), np.exp2(np.linspace(-120, 120, 1 << 12)).astype(np.float32)])
    x.view(np.uint32)[::3] = (x.view(np.uint32)[::3] & 0xFFFF0000) | 0x8000
    x[8192:16384] = np.linspace(-1e9, 1e9, 8192)
    x[5::64] = np.nan
    found = np.zeros(x.size // 2, np.uint32)
    run(f"near{words}", library, x, found)
    halves = (found.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    is_finite = np.abs(x) < 3e38
    exact = x[is_finite].astype(np.float64)
    with np.errstate(all="ignore"):
        unit = np.exp2(np.maximum(np.floor(np.log2(np.abs(exact))), -126) - 7)
    assert (np.abs(halves[is_finite] - exact) <= unit / 2).all()
    assert np.isnan(halves[np.isnan(x)]).all()
    assert np.array_equal(halves[np.isinf(x)], x[np.isinf(x)])


def test_quotients_with_one_divisor_share_its_inverse() -> None:
    """Next to each other and in a loop; but not if there is one quotient, or the divisor changes."""
    x, y = Buffer("x", F32, (8,)), Buffer("y", F32, (8, 4))

    def text(count: int, *, is_loop: bool, changes: bool) -> str:
        builder = Builder()
        with builder.loop(8, LoopKind.PARALLEL) as i:
            total = builder.local(1, F32)
            builder.assign(total, total + load(x, i))
            if is_loop:
                with builder.loop(count) as j:
                    builder.store(y, (i, j), Binary("div", load(x, j), total, about=F32))
            else:
                for place in range(count):
                    builder.store(y, (i, index(place)), Binary("div", load(x, index(place)), total, about=F32))
            if changes:
                builder.assign(total, total * 2)
        return launch_code(Launch(Kernel("k", (x,), (y,), builder.body), 8), "k", H200).code.text

    beside = text(3, is_loop=False, changes=False)
    assert beside.count("oi_divisor_f32(") == beside.count("oi_divisor_scale_f32(") == 1
    assert "oi_near_f32(" not in beside
    inside = text(4, is_loop=True, changes=False)
    assert inside.index("oi_divisor_f32(") < inside.rindex("for (")
    for other in (text(1, is_loop=False, changes=False), text(3, is_loop=False, changes=True)):
        assert "oi_near_f32(" in other
        assert "oi_divisor" not in other


def test_a_power_of_two_divides_as_a_factor() -> None:
    x, y, builder = Buffer("x", F32, (8,)), Buffer("y", F32, (8,)), Builder()
    with builder.loop(8, LoopKind.PARALLEL) as i:
        builder.store(y, (i,), load(x, i) / const(4096.0, F32) + load(x, i) / const(3.0, F32))
    text = launch_code(Launch(Kernel("k", (x,), (y,), builder.body), 8), "k", H200).code.text
    assert "* 0.000244140625f" in text
    assert "oi_quotient_f32(" in text
    assert "4096.0f" not in text


def test_what_is_just_below_zero_is_rounded_down_where_it_is_taken_for_zero() -> None:
    """The quotient is not looked at: a larger one says whether it is subnormal."""
    a, b, y = (Buffer(name, DTYPES["f32"], (6,)) for name in "aby")
    builder = Builder()
    with builder.loop(6, LoopKind.PARALLEL) as i:
        builder.store(y, (i,), unary("floor", load(a, i) / load(b, i)))
    kernel = Kernel("k", (a, b), (y,), builder.body)
    arrays = [
        np.array(one, np.float32) for one in ([-1e-30, 1e-30, -1e-38, -1e-30, -7, 0], [1e10, 1e10, 1e30, -1e10, 2, 3])
    ]
    (found,) = interpret(replace(kernel, body=with_floors(kernel.body)), arrays)
    assert found.tolist() == np.floor(arrays[0] / arrays[1]).tolist() == [-1, 0, 0, 0, -4, 0]
    texts = [
        launch_code(baseline(kernel, SimtMachine()).launches[0], "k", one).code.text
        for one in (Numerics(subnormals="flushed"), Numerics())
    ]
    assert ["-1.0f" in text for text in texts] == [True, False]
