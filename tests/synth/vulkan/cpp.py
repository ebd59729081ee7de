"""Support functions of shaders, compiled as C++, which reads them as GLSL does."""

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from openinfer.dtypes import Array
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.vulkan.shader import support_texts

BEFORE = """
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
using std::abs; using std::exp2; using std::fma; using std::max; using std::min;
#define precise static
struct uvec2 { uint32_t at[2]; uvec2(uint32_t a, uint32_t b) : at{a, b} {} };
struct uvec4 { uint32_t at[4]; uvec4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) : at{a, b, c, d} {} };
static uint32_t floatBitsToUint(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static float uintBitsToFloat(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
static uint64_t doubleBitsToUint64(double x) { uint64_t u; memcpy(&u, &x, 8); return u; }
static double uint64BitsToDouble(uint64_t u) { double x; memcpy(&x, &u, 8); return x; }
static float mix(float a, float b, bool c) { return c ? b : a; }
static double mix(double a, double b, bool c) { return c ? b : a; }
"""
FUNCTIONS = """
#define FUNCTIONS(name) extern "C" void name(const float *x, float *y, long n) \\
{ for (long i = 0; i < n; ++i) y[i] = oi_##name##_f32(x[i]); }
"""


def built(
    folder: Path, needs: Sequence[str], numerics: Numerics, before: str, after: str, functions: Sequence[str]
) -> ctypes.CDLL:
    """A library with support functions, after one text and before another; ``functions`` are called for arrays."""
    source, made = folder / "functions.cpp", folder / "functions.so"
    support = "\n".join(support_texts(needs, numerics)).replace("precise const", "const")
    support = re.sub(r"(?<=\d)lf\b", "", support)
    calls = "\n".join(f"FUNCTIONS({name})" for name in functions)
    source.write_text("\n".join((before, support, after, FUNCTIONS, calls)), encoding="ascii")
    command = ["g++", "-std=c++20", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-o", str(made), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:2000]
    return ctypes.CDLL(str(made))


def run(function: str, library: ctypes.CDLL, *arrays: Array) -> None:
    """Calls a function with arrays and the size of the last one."""
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    getattr(library, function)(*pointers, ctypes.c_long(arrays[-1].size))
