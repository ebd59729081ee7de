"""The C runtime's functions of floats: how far they are from the exact values, and how they compile.

f32 is judged by f64 functions of NumPy and SciPy, f64 by mpmath, exact functions by rational numbers.
"""

import ctypes
import math
import platform
import re
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any
from zlib import crc32

import mpmath
import numpy as np
import pytest
from scipy import special
from tests.synth.derive_coefficients import arc_tangents, fits, literals, turns, two_over_pi
from tests.synth.runtime_in_c import (
    ALL,
    FLAGS,
    HEAD,
    UNARY,
    Array,
    Compiled,
    arity,
    compile_c,
    functions,
    loop,
    source,
)

from openinfer.synth.targets.c.support import support_code

# The largest errors in units in the last place that were measured (at least every 7th f32; millions of f64), and a bit.
IN_F32 = {"exp": 0.9, "exp2": 1.1, "log": 1.05, "tanh": 1.35, "erf": 1.39, "gelu": 1.75}
IN_F64 = {"exp": 0.77, "exp2": 0.77, "expm1": 0.62, "sinh": 0.78, "cosh": 0.54, "tanh": 0.58, "erf": 0.97}
IN_F64 |= {"erfc": 1.15, "sin": 0.8, "cos": 0.84, "tan": 0.95, "pow": 0.77, "gelu": 2.0}
ELSEWHERE = 0.51

NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
NUMPY |= {"atanh": "arctanh", "atan2": "arctan2", "pow": "power"}
SCALAR: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
BITS: dict[str, Any] = {"f32": np.uint32, "f64": np.uint64}
TURNING = [0.0, 1.0, 0.5, 2.0, 0.625, 0.9, 0.84, 0.85, 3.95, 6.0, 10.2, 20.0, 27.3, 28.0, 40.0, 2.0**20, 2.0**28]
TURNING += [math.pi / 4, math.pi / 2, math.pi, 3 * math.pi / 4, math.log(2) / 2, 1.5 * math.log(2), math.sqrt(0.5)]
TURNING += [math.sqrt(2), 9.0, 89.0, 104.0, 88.722839, 87.336, 103.972, 709.7827, 708.3964, 745.1332, 128.0, 126.0]
TURNING += [127.5, 149.5, 1024.0, 1022.0, 1074.5, 2.0**-12, 2.0**-27, 2.0**-28, 2.0**-54, 1e-38, 1e-45, math.inf]


def judge(name: str) -> Any:
    """A function in f64 for f32 operands."""
    if name in ("erf", "erfc"):
        return getattr(special, name)
    if name == "gelu":
        return lambda x: x / 2 * special.erfc(-x * math.sqrt(0.5))
    return getattr(np, NUMPY.get(name, name))


def rng_of(name: str) -> np.random.Generator:
    return np.random.default_rng([5, crc32(name.encode())])


def around(values: Any, dtype: str, near: int) -> Array:
    """Values of both signs and so many neighbours on both sides."""
    bits = np.abs(np.asarray(values, SCALAR[dtype])).view(BITS[dtype])
    steps = np.arange(-near, near + 1).astype(BITS[dtype])
    all_bits = (bits[:, None] + steps).ravel()
    found: Array = all_bits.view(SCALAR[dtype])
    return np.concatenate([found, -found])


def points_of_f32(name: str) -> Array:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    patterns = rng_of(name).integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32)
    usual = np.linspace(-15, 15, 1 << 20, dtype=np.float32)
    multiples = np.arange(1, 2000) * (math.pi / 2)
    return np.concatenate([halves, patterns, usual, around(TURNING, "f32", 500), around(multiples, "f32", 3)])


def errors(found: Array, wanted: Array) -> Array:
    """Distances of f32 from f64 in units in the last place; infinite where a special value is wrong."""
    nearest = wanted.astype(np.float32)
    unit = np.maximum(np.spacing(np.abs(nearest)), np.float32(2.0**-149)).astype(np.float64)
    distance = np.abs(found.astype(np.float64) - wanted) / unit
    special_value = ~np.isfinite(nearest)
    same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    distance = np.where(special_value, np.where(same, 0, np.inf), distance)
    wrong_sign = (np.signbit(found) != np.signbit(nearest)) & ~np.isnan(nearest)
    return np.where(wrong_sign | np.isnan(distance), np.inf, distance)


@pytest.fixture(scope="module", params=["-O2", "-O3 -march=native"], ids=["plain", "native"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The functions without fused multiply-add, and with all that this machine has."""
    return functions(tmp_path_factory.mktemp("runtime"), request.param.split())


def assert_small(distances: Array, most: float, operands: tuple[Array, ...]) -> None:
    worst = int(np.argmax(distances))
    assert distances[worst] <= most, (distances[worst], [one[worst].item().hex() for one in operands])


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_f32_are_close(name: str, compiled: Compiled) -> None:
    x = points_of_f32(name)
    with np.errstate(all="ignore"):
        distances = errors(compiled(name, "f32", (x,)), judge(name)(x.astype(np.float64)))
    assert_small(distances, IN_F32.get(name, ELSEWHERE), (x,))


SPECIAL = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 2.5, 1e-40, 1e-30, 1e30, 16777215.0, 16777216.0, 1e38, math.inf]
SIGNED = [*SPECIAL, *(-one for one in SPECIAL), math.nan]


def pairs(name: str, dtype: str, count: int) -> tuple[Array, Array]:
    """Bit patterns, numbers of usual size, and all pairs of special values."""
    rng, kind = rng_of(name), SCALAR[dtype]
    patterns = rng.integers(0, np.iinfo(BITS[dtype]).max, (2, count), dtype=BITS[dtype]).view(kind)
    usual = (np.exp(rng.normal(0, 3, (2, count))) * rng.choice([-1, 1], (2, count))).astype(kind)
    whole = np.stack([usual[0], np.rint(usual[1])])
    # Powers from the smallest subnormal number to overflow, also of bases close to 1.
    base = np.exp(rng.choice([1e-6, 1e-3, 1, 20], count) * rng.normal(0, 1, count)).astype(kind)
    widest = 104 if dtype == "f32" else 746
    with np.errstate(all="ignore"):
        exponent = (rng.uniform(-widest, 0.97 * widest, count) / np.log(base.astype(np.float64))).astype(kind)
    grid = np.array(np.meshgrid(SIGNED, SIGNED), kind).reshape(2, -1)
    first, second = np.concatenate([patterns, usual, whole, np.stack([base, exponent]), grid], axis=1)
    return first, second


@pytest.mark.parametrize("name", ["atan2", "pow"])
def test_functions_of_two_f32_are_close(name: str, compiled: Compiled) -> None:
    x, y = pairs(name, "f32", 100_000)
    with np.errstate(all="ignore"):
        distances = errors(compiled(name, "f32", (x, y)), judge(name)(x.astype(np.float64), y.astype(np.float64)))
    assert_small(distances, ELSEWHERE, (x, y))


# --- f64 --------------------------------------------------------------------------------------------------------------

# Where a function changes and its results are finite numbers other than 0.
DOMAIN = {"exp": (-745, 709.7), "exp2": (-1074.9, 1023.9), "expm1": (-40, 709.7), "sinh": (-710.4, 710.4)}
DOMAIN |= {"cosh": (-710.4, 710.4), "tanh": (-20, 20), "erf": (-6, 6), "erfc": (-6, 27.2), "log": (0, 1e308)}
DOMAIN |= {"log2": (0, 1e308), "log10": (0, 1e308), "log1p": (-1, 1e308), "asinh": (-1e308, 1e308)}
DOMAIN |= {"gelu": (-37, 1e308)}
DOMAIN |= {"acosh": (1, 1e308), "atanh": (-1, 1), "asin": (-1, 1), "acos": (-1, 1)}


def points_of_f64(name: str) -> Array:
    """Numbers of all sizes, of usual sizes, close to 1 and over the domain, for which the result is finite."""
    rng, count = rng_of(name), 90
    low, high = DOMAIN.get(name, (-1.7e308, 1.7e308))
    sign = rng.choice([-1, 1], (3, count))
    patterns = rng.integers(0, 0x7FF0000000000000, count, dtype=np.uint64).view(np.float64) * sign[0]
    usual = np.exp(rng.normal(0, 2, (2, count))) * sign[1]
    tiny = np.exp(rng.uniform(-40, -2, count))
    over = rng.uniform(max(low, -1000), min(high, 1000), 2 * count)
    turning = [around(TURNING, "f64", 2), (np.arange(1, 40) * (math.pi / 2))]
    # Multiples of pi / 2 are as close to this one as to no other f64.
    turning += [np.array([6381956970095103 * 2.0**797, 1e22, 5e-324, 2.2250738585072014e-308])]
    near_end = [end - np.copysign(tiny, end) for end in (low, high) if abs(end) == 1]
    x = np.concatenate([patterns, usual.ravel(), 1 + tiny * sign[2], tiny * sign[2], over, *turning, *near_end])
    inside: Array = x[np.isfinite(x) & (x > low) & (x < high) & (x != 0)]
    return inside


def exact(name: str, operands: tuple[float, ...]) -> Any:
    """By mpmath, with so many digits that none is lost where a result is close to 0 or 1."""
    own: dict[str, Any] = {"exp2": lambda x: mpmath.power(2, x), "pow": mpmath.power}
    own["log2"] = lambda x: mpmath.log(x) / mpmath.ln2
    own["gelu"] = lambda x: x / 2 * mpmath.erfc(-x / mpmath.sqrt(2))
    numbers = [mpmath.mpf(one) for one in operands]
    size = abs(operands[0])
    if name == "erf" and size > 7:
        return mpmath.sign(numbers[0])
    if name in ("log1p", "asinh", "atanh", "asin") and size < 2.0**-60:
        return numbers[0]
    with mpmath.workprec(400):
        return (own[name] if name in own else getattr(mpmath, name))(*numbers)


def distance_of_f64(found: float, wanted: Any) -> float:
    """In units in the last place of f64."""
    if wanted == 0:
        return 0.0 if found == 0 else math.inf
    _, exponent = mpmath.frexp(wanted)
    unit = mpmath.ldexp(1, max(int(exponent) - 53, -1074))
    if abs(wanted) > np.finfo(np.float64).max:
        return 0.0 if math.isinf(found) else math.inf
    right_sign = math.copysign(1, found) == mpmath.sign(wanted)
    return float(abs(mpmath.mpf(found) - wanted) / unit) if right_sign and math.isfinite(found) else math.inf


@pytest.mark.parametrize("name", [*UNARY, "atan2", "pow"])
def test_functions_of_f64_are_close(name: str, compiled: Compiled) -> None:
    if name in UNARY:
        operands: tuple[Array, ...] = (points_of_f64(name),)
    else:
        x, y = pairs(name, "f64", 250)
        with np.errstate(all="ignore"):
            usual = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
            usual &= (np.abs(np.log(np.abs(x)) * y) < 720) & (x > 0) if name == "pow" else True
        operands = (x[usual], y[usual])
    results = compiled(name, "f64", operands)
    rows = zip(results.tolist(), zip(*(one.tolist() for one in operands), strict=True), strict=True)
    distances = np.array([distance_of_f64(found, exact(name, row)) for found, row in rows])
    assert distances.size > 400
    assert_small(distances, IN_F64.get(name, ELSEWHERE), operands)


@pytest.mark.parametrize("name", [*UNARY, "atan2", "pow"])
def test_special_values_are_those_of_numpy(name: str, compiled: Compiled) -> None:
    one = np.array([*SIGNED, 1.1, -1.1, 1e308, -1e308, 800.0, -800.0, 5e-324, -5e-324])
    two = np.array(np.meshgrid(one, one)).reshape(2, -1)
    operands = (one,) if name in UNARY else (two[0], two[1])
    with np.errstate(all="ignore"):
        wanted = judge(name)(*operands)
    found = compiled(name, "f64", operands)
    plain = np.isfinite(wanted) & (wanted != 0)
    np.testing.assert_array_equal(found[~plain], wanted[~plain])
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))
    np.testing.assert_allclose(found[plain], wanted[plain], rtol=1e-15, atol=5e-324)


# --- exact functions --------------------------------------------------------------------------------------------------


def rounded(value: Fraction, dtype: str) -> float:
    """The nearest float, ties to even."""
    digits, lowest = (24, -149) if dtype == "f32" else (53, -1074)
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    nearest = round(size / unit) * unit
    too_large = nearest >= Fraction(2) ** (128 if dtype == "f32" else 1024)
    return (1 if value > 0 else -1) * (math.inf if too_large else float(nearest))


def triples(dtype: str, count: int = 4000) -> Iterator[Array]:
    """Operands of a * b + c: any, of similar size, and with c close to -a * b."""
    rng, kind = rng_of("fma" + dtype), SCALAR[dtype]
    any_bits = rng.integers(0, np.iinfo(BITS[dtype]).max, (3, count), dtype=BITS[dtype]).view(kind)
    similar = (np.exp2(rng.integers(-30, 30, (3, count))) * rng.normal(0, 1, (3, count))).astype(kind)
    short = np.rint(similar * 16) / 16
    # Products among the subnormal numbers.
    small = similar * np.array([[1e-18], [1e-20], [1e-38]] if dtype == "f32" else [[1e-160], [1e-155], [1e-308]], kind)
    up_or_down = rng.choice([-1, 1], count).astype(kind)
    with np.errstate(all="ignore"):
        for group in (any_bits, similar, short, small):
            yield group
            yield np.stack([group[0], group[1], np.nextafter(-group[0] * group[1], up_or_down)])
            yield np.stack([group[0], group[1], -group[0] * group[1]])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fma_rounds_once(dtype: str, compiled: Compiled) -> None:
    operands = np.concatenate(list(triples(dtype)), axis=1)
    found = compiled("fma", dtype, (operands[0], operands[1], operands[2]))
    finite = np.isfinite(operands).all(axis=0)
    rows = zip(operands[:, finite].T.tolist(), found[finite].tolist(), strict=True)
    for (a, b, c), result in rows:
        total = Fraction(a) * Fraction(b) + Fraction(c)
        assert result == rounded(total, dtype), (a.hex(), b.hex(), c.hex(), result.hex())
    with np.errstate(all="ignore"):
        wide = operands.astype(np.longdouble)  # so that no product of finite numbers is infinite
        expected = (wide[0] * wide[1] + wide[2]).astype(SCALAR[dtype])
    np.testing.assert_array_equal(found[~finite], expected[~finite])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fma_keeps_signs_of_zero_and_propagates(dtype: str, compiled: Compiled) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 3.0], SCALAR[dtype])
    a, b, c = np.array(np.meshgrid(values, values, values), SCALAR[dtype]).reshape(3, -1)
    with np.errstate(all="ignore"):
        expected = a * b + c  # exact for these
    found = compiled("fma", dtype, (a, b, c))
    np.testing.assert_array_equal(found, expected)
    usual = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[usual]), np.signbit(expected[usual]))
    least = SCALAR[dtype](np.finfo(SCALAR[dtype]).smallest_subnormal)
    below = compiled("fma", dtype, (np.array([-least]), np.array([least]), np.array([0.0])))
    assert below[0] == 0
    assert np.signbit(below[0])


@pytest.mark.parametrize("name", ["fmod", "nextafter"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_exact_functions_agree_with_numpy(name: str, dtype: str, compiled: Compiled) -> None:
    x, y = pairs(name, dtype, 50_000)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    found = compiled(name, dtype, (x, y))
    np.testing.assert_array_equal(found, expected)
    usual = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[usual]), np.signbit(expected[usual]))


# --- the text ---------------------------------------------------------------------------------------------------------


DRIVER = """
int main(void)
{
    uint64_t u = 88172645463325252u;
    double x_f64 = 1.0;
    float x_f32 = 1.0f;
    volatile double sum = 0.0;
    for (int i = 0; i < 100000; i++) {
        u ^= u << 13;
        u ^= u >> 7;
        u ^= u << 17;
        const double y_f64 = x_f64;
        const float y_f32 = x_f32;
        x_f64 = oi_bits_u64_f64(i % 3 ? u : u & 0xfff0000000000000u);
        x_f32 = oi_bits_u32_f32((uint32_t)(i % 3 ? u >> 20 : u >> 20 & 0xff800000u));
CALLS
    }
    return 0;
}
"""


@pytest.mark.parametrize("name", ALL)
def test_a_function_compiles_alone_without_warnings(name: str, tmp_path: Path) -> None:
    for dtype in ("f32", "f64"):
        file = tmp_path / f"{dtype}.c"
        file.write_text(HEAD + support_code([f"oi_{name}_{dtype}"]) + loop(name, dtype), encoding="ascii")
        command = ["gcc", *FLAGS, "-Wconversion", "-Wno-sign-conversion", "-O0", "-fsyntax-only", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr[:3000]


def test_nothing_is_undefined(tmp_path: Path) -> None:
    """All functions over bit patterns and powers of two, with a trap wherever the C language defines nothing."""
    calls = []
    for name in ALL:
        for dtype in ("f32", "f64"):
            operands = ", ".join(f"{letter}_{dtype}" for letter in "xyx"[: arity(name)])
            calls.append(f"        sum = sum + (double)oi_{name}_{dtype}({operands});")
    text = source(ALL) + DRIVER.replace("CALLS", "\n".join(calls))
    file, program = tmp_path / "undefined.c", tmp_path / "undefined"
    file.write_text(text, encoding="ascii")
    checks = ["-fsanitize=undefined,float-cast-overflow", "-fsanitize-undefined-trap-on-error", "-O1"]
    ended = subprocess.run(["gcc", *FLAGS, *checks, "-o", program, file], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names the vector instructions of x86-64")
def test_loops_over_f32_become_vector_code(tmp_path: Path) -> None:
    names = [name for name in [*UNARY, "atan2", "pow", "fma"] if name not in ("sin", "cos", "tan")]
    text = source(names, ["f32"])
    _, said = compile_c(text, tmp_path, ["-O3", "-mavx2", "-mfma", "-fopt-info-vec-optimized"])
    lines = text.splitlines()
    vectorised = {int(number) for number in re.findall(r"runtime\.c:(\d+):\d+: optimized: loop vectorized", said)}
    found = {match[1] for number in vectorised for match in re.finditer(r"oi_(\w+)_f32\(", lines[number])}
    assert found == set(names)


def runtime_text() -> str:
    folder = files("openinfer.synth.targets.cstyle") / "runtime"
    return "\n".join(file.read_text(encoding="ascii") for file in folder.iterdir() if file.name.startswith("math_"))


def test_coefficients_are_the_derived_ones() -> None:
    text = re.sub(r"\s+", " ", runtime_text())
    for fit in fits():
        first, *rest = reversed(literals(fit))
        # A first coefficient of two parts is added in another way.
        steps = [rf"\w = \w+\(\w, [\w.]+, {re.escape(one)}\);" for one in (rest[:-2] if fit.wide_first else rest)]
        assert re.search(" ".join([re.escape(f" = {first};"), *steps]), text), fit.name
    for words in (two_over_pi(), arc_tangents(), *zip(*turns(), strict=True)):
        assert ", ".join(words) in text


def test_roots_without_an_instruction_are_rounded_once(tmp_path: Path) -> None:
    text = HEAD + support_code(["oi_soft_sqrt_f64"]) + loop("soft_sqrt", "f64")
    library = ctypes.CDLL(str(compile_c(text, tmp_path, ["-O2"])[0]))
    rng = np.random.default_rng(6)
    any_exponent, subnormal = rng.integers(0, 2**63, 200_000), rng.integers(1, 2**52, 10_000)
    odd = np.array([0.0, -0.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, 2.0**-1022, 1.0, 2.0, 4.0])
    x = np.concatenate([any_exponent.view(np.float64), subnormal.view(np.float64), odd, np.arange(999.0) ** 2])
    y = np.empty_like(x)
    library.each_soft_sqrt_f64(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size))
    with np.errstate(all="ignore"):
        wanted = np.sqrt(x)
    is_same = (y.view(np.uint64) == wanted.view(np.uint64)) | (np.isnan(y) & np.isnan(wanted))
    assert is_same.all(), x[~is_same][:3]
