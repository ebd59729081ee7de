"""Support code in GLSL, which has no hexadecimal floats and reads numbers without a suffix as 32-bit."""

import re
from collections.abc import Iterable, Mapping
from functools import cache

from openinfer.dtypes import DTYPES, INDEX, DType
from openinfer.synth.targets.cstyle.integers import INTEGERS, IntegerWords, integer_functions
from openinfer.synth.targets.cstyle.support import Need, Support, SupportFunction

EXTENSIONS = ("GL_EXT_shader_explicit_arithmetic_types",)
"""Extensions that a shader with support code must require."""


_SMALL = {name: "int32_t" for name in INTEGERS if DTYPES[name].bits < 32}
TYPES = {"f32": "float", "f64": "double", "bool": "bool", "index": "int64_t", **INTEGERS, **_SMALL}
"""The types of values, by compute dtype. Integers of 8 and 16 bits are computed in 32 and wrapped: NVIDIA's compiler
does not wrap all arithmetic on narrower types, and not every device has it."""
WRAPS = {name: f"oi_wrapped_{name}" for name in _SMALL}
"""Functions that wrap a number to fewer bits than its type has."""
_WORDS = IntegerWords(TYPES, {name: WRAPS.get(name, f"oi_{name}") for name in INTEGERS})


@cache
def _generated() -> Mapping[str, SupportFunction]:
    packed = (one for dtype in DTYPES.values() if dtype.is_packed for one in _packed_functions(dtype))
    remainders = (_remainder(dtype) for dtype in DTYPES.values() if dtype.kind == "int" and dtype.name in INTEGERS)
    return {**integer_functions(_WORDS), **{one.name: one for one in (*packed, *remainders)}}


def _remainder(dtype: DType) -> SupportFunction:
    """Integer remainder: GLSL does not define ``%`` for negative numbers, and drivers differ."""
    own, name = TYPES[dtype.name], f"oi_rem_{dtype.name}"
    value = f"b == -1 ? {own}(0) : {own}(a - {own}(a / b) * b)"
    text = f"OI_FUNCTION {own} {name}({own} a, {own} b) {{ return {value}; }}\n"
    return SupportFunction(name, (), text, _WORDS.named(dtype.name))


def _packed_functions(dtype: DType) -> Iterable[SupportFunction]:
    """Loads and stores of packed elements, the first in the lowest bits. Codes of t1 are 0 for -1 and 1 for 1.

    Threads that store to the same word use atomics, each for the bits of its own element.
    """
    own, bits = TYPES[dtype.compute.name], dtype.bits
    mask, half, count = (1 << bits) - 1, 1 << (bits - 1), 32 // bits
    is_sign = dtype.values is not None and bits == 1
    value = "2 * int32_t(c) - 1" if is_sign else f"(int32_t(c) ^ {half}) - {half}" if dtype.kind == "int" else "c"
    name = f"oi_load_{dtype.name}"
    load = (
        f"{own} {name}(oi_words p, int64_t i)\n{{\n"
        f"    const uint32_t c = (p.v[uint32_t(i / {count})] >> uint32_t(i % {count} * {bits})) & {mask}u;\n"
        f"    return {own}({value});\n}}\n"
    )
    types = _WORDS.named(dtype.compute.name) | {INDEX.name}
    yield SupportFunction(name, (), load, types)
    code = "v > 0 ? 1u : 0u" if is_sign else f"uint32_t(v) & {mask}u"
    name = f"oi_store_{dtype.name}"
    store = (
        f"void {name}(oi_words p, int64_t i, {own} v)\n{{\n"
        f"    const uint32_t at = uint32_t(i / {count}), shift = uint32_t(i % {count} * {bits}), c = {code};\n"
        f"    atomicAnd(p.v[at], ~({mask}u << shift));\n"
        "    atomicOr(p.v[at], c << shift);\n}\n"
    )
    yield SupportFunction(name, (), store, types)


SUPPORT = Support(
    folders=(("openinfer.synth.targets.vulkan", "runtime"), ("openinfer.synth.targets.cstyle", "runtime")),
    generated=_generated,
)

_HEXADECIMAL = r"0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?\d+)?"
_DECIMAL = r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?"
_TOKEN = re.compile(rf"(?P<number>{_HEXADECIMAL}|{_DECIMAL})(?P<suffix>[a-zA-Z]*)|/\*.*?\*/|\w+", re.DOTALL)


def support_code(needs: Iterable[Need], known: Mapping[str, int] | None = None) -> str:
    """GLSL definitions of these functions and of all that they call, in an order that compiles.

    ``known`` has the values of words in their conditions.
    """
    return with_glsl_numbers(SUPPORT.knowing(known or {}).code(needs))


def with_glsl_numbers(text: str) -> str:
    """A text with C numbers rewritten for GLSL: the same values, in the same types.

    >>> with_glsl_numbers("x * 0x1.8p52 + 0.5f; u & 0xfffffffffffffu; y2 << 3; 0x80000000 ^ i")
    'x * 6755399441055744.0lf + 0.5f; u & 0xffffffffffffful; y2 << 3; 0x80000000l ^ i'
    """
    return _TOKEN.sub(lambda match: _number(match["number"], match["suffix"]) if match["number"] else match[0], text)


def _number(digits: str, suffix: str) -> str:
    is_hexadecimal = digits[:2] in ("0x", "0X")
    if re.search(r"[pP]" if is_hexadecimal else r"[.eE]", digits):
        # The shortest digits that read back as the same number: 17 at most.
        value = float.fromhex(digits) if is_hexadecimal else float(digits)
        return f"{value!r}{suffix if suffix in ('f', 'F') else 'lf'}"
    if "l" in suffix.lower():
        return digits + suffix
    # A number in C has the first type that it fits; one in GLSL has that of its suffix, and is signed without one.
    is_unsigned = suffix.lower() == "u"
    bits = 32 if is_unsigned else 31
    return digits + ("u" if is_unsigned else "") + ("l" if int(digits, 0) >= 2**bits else "")
