"""The support functions that expressions call: only those that are needed are emitted, after those they call.

Functions of floats are C files in ``runtime``: a line ``//: NAME NEEDS...`` stands before each. Those of integers and
packed elements exist for every dtype and are written here once.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.cpu.emit.byte_tiles import byte_tile_support
from openinfer.synth.targets.cpu.emit.tiles import tile_support
from openinfer.synth.targets.cstyle.types import scalar_type

_MARK = re.compile(r"^//: (.*)\n", re.MULTILINE)
_INTEGER = re.compile(
    r"oi_(abs|not|popcount|min|max|shl|shr|div|rem|wrap|load|store|bits)_([a-z]+\d+)(?:_([a-z]+\d+))?"
)


@cache
def _runtime() -> dict[str, tuple[tuple[str, ...], str]]:
    """All functions of the C files: what each needs, and its text."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    folder = files("openinfer.synth.targets.cstyle") / "runtime"
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        parts = _MARK.split(file.read_text(encoding="ascii"))
        for head, text in zip(parts[1::2], parts[2::2], strict=True):
            name, *needs = head.split()
            assert name not in found, name
            found[name] = (tuple(needs), text.strip() + "\n")
    return found


def support_code(needs: Iterable[str]) -> str:
    """The definitions of these functions and all they call, in an order that compiles."""
    done: dict[str, str] = {}
    for name in sorted({*needs, "OI_NAN", "OI_NAN64", "OI_INF", "OI_INF64"}):
        _define(name, done)
    return "".join(done.values())


def _define(name: str, done: dict[str, str]) -> None:
    if name in done:
        return
    own = _runtime().get(name) or tile_support(name) or byte_tile_support(name)
    counts = ("oi_popcount",) if name.startswith("oi_popcount_") else ()
    needs, text = own if own is not None else (counts, _integer_function(name))
    for one in needs:
        _define(one, done)
    done[name] = text


def _integer_function(name: str) -> str:
    match = _INTEGER.fullmatch(name)
    assert match is not None, name
    what, dtype = match[1], DTYPES[match[2]]
    if what == "bits":
        return _same_width(name, dtype, DTYPES[match[3]])
    if what in ("load", "store", "wrap"):
        return _packed(name, what, dtype)
    own = scalar_type(dtype)
    bits, is_signed = dtype.bits, dtype.kind == "int"
    wide = f"uint{max(bits, 32)}_t"
    least = f"INT{bits}_MIN"
    body = {
        "not": f"({own} a) {{ return ({own})~a; }}",
        "abs": f"({own} a) {{ return a < 0 ? ({own})(0 - ({wide})a) : a; }}",
        "popcount": f"({own} a) {{ return ({own})oi_popcount((uint{bits}_t)a); }}",
        "min": f"({own} a, {own} b) {{ return a < b ? a : b; }}",
        "max": f"({own} a, {own} b) {{ return a > b ? a : b; }}",
        "shl": f"({own} a, {own} b) {{ return b >= {bits} ? 0 : ({own})(({wide})a << b); }}",
        "shr": f"({own} a, {own} b) {{ return b >= {bits} ? {'(a < 0 ? -1 : 0)' if is_signed else '0'}"
        f" : ({own})(a >> b); }}",
        # The most negative number divided by -1 wraps to itself.
        "div": f"({own} a, {own} b) {{ return b == -1 && a == {least} ? a : ({own})(a / b); }}",
        "rem": f"({own} a, {own} b) {{ return b == -1 ? 0 : ({own})(a % b); }}",
    }[what]
    return f"static inline {own} {name}{body}\n"


def _same_width(name: str, source: DType, target: DType) -> str:
    one, other = scalar_type(source), scalar_type(target)
    return f"static inline {other} {name}({one} x) {{ return ({other})x; }}\n"


def _packed(name: str, what: str, dtype: DType) -> str:
    """Elements that share bytes, the first in the lowest bits. Codes of t1 are 0 for -1 and 1 for 1."""
    own, bits = scalar_type(dtype.compute), dtype.bits
    mask, half, per_byte = (1 << bits) - 1, 1 << (bits - 1), 8 // bits
    signed = dtype.kind == "int" and not dtype.values
    if what == "wrap":
        value = f"(((a & {mask}) ^ {half}) - {half})" if signed else f"(a & {mask})"
        return f"static inline {own} {name}({own} a) {{ return ({own}){value}; }}\n"
    place = f"(i % {per_byte}) * {bits}"
    if what == "load":
        if dtype.name == "t1":
            value = "(2 * (int)c - 1)"
        elif dtype.kind == "int":
            value = f"(((int)c ^ {half}) - {half})"
        else:
            value = "c"
        return (
            f"static inline {own} {name}(const uint8_t *p, int64_t i)\n{{\n"
            f"    const unsigned c = ((unsigned)p[i / {per_byte}] >> ({place})) & {mask}u;\n"
            f"    return ({own}){value};\n}}\n"
        )
    code = "(unsigned)(v > 0)" if dtype.name == "t1" else f"(unsigned)v & {mask}u"
    return (
        f"static inline void {name}(uint8_t *p, int64_t i, {own} v)\n{{\n"
        f"    const unsigned shift = (unsigned)({place}), c = {code};\n"
        "    /* Volatile: neighbours share a byte, and clang 14 for AVX2 stores several at once, and loses some. */\n"
        f"    volatile uint8_t *const byte = p + i / {per_byte};\n"
        f"    *byte = (uint8_t)((*byte & ~({mask}u << shift)) | (c << shift));\n}}\n"
    )
