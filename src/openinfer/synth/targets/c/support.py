"""Support code in C: where its functions are, and those of integers and packed elements, which every dtype has."""

from collections.abc import Iterable, Mapping
from functools import cache

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.cstyle.support import Definition, Need, Support, SupportFunction

TYPES = {"f32": "float", "f64": "double", "bool": "bool", "index": "int64_t"}
TYPES |= {f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)}
TYPES |= {f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)}
"""The C types of values, by compute dtype."""


@cache
def _generated() -> Mapping[str, Definition]:
    found: dict[str, Definition] = {}
    integers = [one for one in DTYPES.values() if one.kind in ("int", "uint")]
    plain, packed = ([one for one in integers if one.is_packed == wanted] for wanted in (False, True))
    for dtype in plain:
        found |= {one.name: one for one in _integer_functions(dtype)}
    for dtype in packed:
        found |= {one.name: one for one in _packed_functions(dtype)}
    for one in plain:
        for other in plain:
            if one.bits == other.bits:
                name = f"oi_bits_{one.name}_{other.name}"
                found[name] = SupportFunction(name, (), _same_width(name, one, other))
    return found


def _integer_functions(dtype: DType) -> Iterable[SupportFunction]:
    """Functions of one integer type."""
    own, bits = TYPES[dtype.name], dtype.bits
    wide, least = TYPES[f"u{max(bits, 32)}"], f"INT{bits}_MIN"
    bodies = {
        "not": f"({own} a) {{ return ({own})~a; }}",
        "abs": f"({own} a) {{ return a < 0 ? ({own})(0 - ({wide})a) : a; }}",
        "popcount": f"({own} a) {{ return ({own})oi_popcount((uint{bits}_t)a); }}",
        "min": f"({own} a, {own} b) {{ return a < b ? a : b; }}",
        "max": f"({own} a, {own} b) {{ return a > b ? a : b; }}",
        "shl": f"({own} a, {own} b) {{ return b >= {bits} ? 0 : ({own})(({wide})a << b); }}",
        "shr": f"({own} a, {own} b) {{ return b >= {bits} ? {'(a < 0 ? -1 : 0)' if dtype.kind == 'int' else '0'}"
        f" : ({own})(a >> b); }}",
        # The most negative number divided by -1 wraps to itself.
        "div": f"({own} a, {own} b) {{ return b == -1 && a == {least} ? a : ({own})(a / b); }}",
        "rem": f"({own} a, {own} b) {{ return b == -1 ? 0 : ({own})(a % b); }}",
    }
    for op, body in bodies.items():
        name = f"oi_{op}_{dtype.name}"
        needs = ("oi_popcount",) if op == "popcount" else ()
        yield SupportFunction(name, needs, f"static inline {own} {name}{body}\n")


def _same_width(name: str, source: DType, target: DType) -> str:
    one, other = TYPES[source.name], TYPES[target.name]
    return f"static inline {other} {name}({one} x) {{ return ({other})x; }}\n"


def _packed_functions(dtype: DType) -> Iterable[SupportFunction]:
    """Elements that share bytes, the first in the lowest bits. Codes of t1 are 0 for -1 and 1 for 1."""
    own, bits = TYPES[dtype.compute.name], dtype.bits
    mask, half, per_byte = (1 << bits) - 1, 1 << (bits - 1), 8 // bits
    is_sign = dtype.values is not None and bits == 1
    wrapped = f"(((a & {mask}) ^ {half}) - {half})" if dtype.kind == "int" and not dtype.values else f"(a & {mask})"
    name = f"oi_wrap_{dtype.name}"
    yield SupportFunction(name, (), f"static inline {own} {name}({own} a) {{ return ({own}){wrapped}; }}\n")
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
        "    /* Volatile: neighbours share a byte, and clang 14 for AVX2 stores several at once, and loses some. */\n"
        f"    volatile uint8_t *const byte = p + i / {per_byte};\n"
        f"    *byte = (uint8_t)((*byte & ~({mask}u << shift)) | (c << shift));\n}}\n"
    )
    yield SupportFunction(name, (), store)


SUPPORT = Support(
    folders=(("openinfer.synth.targets.cstyle", "runtime"), ("openinfer.synth.targets.c", "runtime")),
    generated=_generated,
    always=("OI_NAN", "OI_NAN64", "OI_INF", "OI_INF64"),
)


def support_code(needs: Iterable[Need]) -> str:
    """The definitions in C of these functions and all they call, in an order that compiles."""
    return SUPPORT.code(needs)
