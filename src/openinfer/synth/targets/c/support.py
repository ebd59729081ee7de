"""Support code in C: where its functions come from, and loads and stores generated for every packed dtype."""

from collections.abc import Iterable, Mapping
from functools import cache

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.cstyle.integers import INTEGERS, integer_functions
from openinfer.synth.targets.cstyle.support import Need, Support, SupportFunction

TYPES = {"f32": "float", "f64": "double", "bool": "bool", "index": "int64_t", **INTEGERS}
"""The C types of values, by compute dtype."""


@cache
def _generated() -> Mapping[str, SupportFunction]:
    found: dict[str, SupportFunction] = {**integer_functions()}
    for dtype in DTYPES.values():
        if dtype.is_packed:
            found |= {one.name: one for one in _packed_functions(dtype)}
    return found


def _packed_functions(dtype: DType) -> Iterable[SupportFunction]:
    """Load and store elements that share bytes, the first in the lowest bits. In t1, code 0 is -1 and code 1 is 1."""
    own, bits = TYPES[dtype.compute.name], dtype.bits
    mask, half, per_byte = (1 << bits) - 1, 1 << (bits - 1), 8 // bits
    is_sign = dtype.values is not None and bits == 1
    place = f"(i % {per_byte}) * {bits}"
    value = "(2 * (int)c - 1)" if is_sign else f"(((int)c ^ {half}) - {half})" if dtype.kind == "int" else "c"
    name = f"oi_load_{dtype.name}"
    load = (
        f"static inline {own} {name}(const uint8_t *p, int64_t i)\n{{\n"
        f"    const unsigned c = ((unsigned)p[i / {per_byte}] >> ({place})) & {mask}u;\n"
        f"    return ({own}){value};\n}}\n"
    )
    yield SupportFunction(name, (), load)
    code = "(unsigned)(v > 0)" if is_sign else f"(unsigned)v & {mask}u"
    name = f"oi_store_{dtype.name}"
    store = (
        f"static inline void {name}(uint8_t *p, int64_t i, {own} v)\n{{\n"
        f"    const unsigned shift = (unsigned)({place}), c = {code};\n"
        "    /* Volatile: adjacent elements share a byte, and clang 14 for AVX2 loses some in vectorized stores. */\n"
        f"    volatile uint8_t *const byte = p + i / {per_byte};\n"
        f"    *byte = (uint8_t)((*byte & ~({mask}u << shift)) | (c << shift));\n}}\n"
    )
    yield SupportFunction(name, (), store)


SUPPORT = Support(
    folders=(("openinfer.synth.targets.cstyle", "runtime"), ("openinfer.synth.targets.c", "runtime")),
    generated=_generated,
)


def support_code(needs: Iterable[Need]) -> str:
    """The C definitions of functions and of all that they call, in an order that compiles."""
    return SUPPORT.code(needs)
