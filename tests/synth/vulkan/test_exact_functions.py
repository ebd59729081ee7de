"""Functions of shaders for devices that round in their own way, compiled as C++, which reads them as GLSL does."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from openinfer.dtypes import DTYPES, Array
from openinfer.loops.build import Builder, const, load
from openinfer.loops.ir import Buffer, Kernel, LoopKind
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.launches import Launch
from openinfer.synth.targets.vulkan.shader import launch_code, support_texts

F32 = DTYPES["f32"]
H200 = Numerics("last bit", "last bit", "exact", "flushed")
NAMES = ("oi_quotient_f32", "oi_normal_exp_f32", "oi_pair_bf16")
BEFORE = """
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
using std::abs; using std::fma; using std::max;
#define precise static
static uint32_t floatBitsToUint(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static float uintBitsToFloat(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
static float mix(float a, float b, bool c) { return c ? b : a; }
"""
AFTER = """
extern "C" void quotients(const float *a, const float *b, float *y, long n)
{ for (long i = 0; i < n; ++i) y[i] = oi_quotient_f32(a[i], b[i]); }
extern "C" void exponentials(const float *x, float *y, long n)
{ for (long i = 0; i < n; ++i) y[i] = oi_normal_exp_f32(x[i]); }
extern "C" void pairs(const float *x, uint32_t *y, long n)
{ for (long i = 0; i < n; ++i) y[i] = oi_pair_bf16(x[2 * i], x[2 * i + 1]); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("exact")
    source, made = folder / "exact.cpp", folder / "exact.so"
    source.write_text("\n".join((BEFORE, *support_texts(NAMES, H200), AFTER)), encoding="ascii")
    command = ["g++", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", str(made), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:2000]
    return ctypes.CDLL(str(made))


def run(function: str, library: ctypes.CDLL, *arrays: Array) -> None:
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    getattr(library, function)(*pointers, ctypes.c_long(arrays[-1].size))


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
    run("quotients", library, a, b, found)
    with np.errstate(all="ignore"):
        wanted = a / b
    is_same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert is_same.all()


def test_exponentials_are_within_a_unit_in_the_last_place(library: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-90, 90, 1 << 18), [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30]])
    x = x.astype(np.float32)
    found = np.zeros_like(x)
    run("exponentials", library, x, found)
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.float64))
    is_normal = (wanted >= 2.0**-126) & (wanted < 2.0**128)
    ulp = np.spacing(wanted[is_normal].astype(np.float32)).astype(np.float64)
    assert (np.abs(found[is_normal] - wanted[is_normal]) <= ulp).all()
    assert np.isnan(found[np.isnan(x)]).all()
    assert (found[wanted >= 2.0**128] == np.inf).all()
    assert (found[wanted < 2.0**-126] == 0).all()


def test_two_numbers_are_rounded_as_each_is_alone(library: ctypes.CDLL) -> None:
    x = any_bits(1 << 16).copy()
    found = np.zeros(x.size // 2, np.uint32)
    run("pairs", library, x, found)
    codes = DTYPES["bf16"].array.type
    with np.errstate(all="ignore"):
        wanted = x.astype(codes).view(np.uint16)
    is_nan = np.isnan(x)
    halves = found.view(np.uint16)
    assert (halves[~is_nan] == wanted[~is_nan]).all()
    assert np.isnan(halves.view(codes)[is_nan].astype(np.float32)).all()


def test_a_power_of_two_divides_as_a_factor() -> None:
    x, y, builder = Buffer("x", F32, (8,)), Buffer("y", F32, (8,)), Builder()
    with builder.loop(8, LoopKind.PARALLEL) as i:
        builder.store(y, (i,), load(x, i) / const(4096.0, F32) + load(x, i) / const(3.0, F32))
    text = launch_code(Launch(Kernel("k", (x,), (y,), builder.body), 8), "k", H200).code.text
    assert "* 0.000244140625f" in text
    assert "oi_quotient_f32(" in text
    assert "4096.0f" not in text
