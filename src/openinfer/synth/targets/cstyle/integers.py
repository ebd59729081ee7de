"""Integer functions for every dtype, in the common subset of C, CUDA and GLSL."""

from collections.abc import Iterable, Mapping
from functools import cache

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.cstyle.support import SupportFunction

_WIDTHS = (8, 16, 32, 64)
INTEGERS = {f"i{bits}": f"int{bits}_t" for bits in _WIDTHS} | {f"u{bits}": f"uint{bits}_t" for bits in _WIDTHS}
"""Integer types, which have the same names in all these languages."""


@cache
def integer_functions() -> Mapping[str, SupportFunction]:
    """The functions of all integer dtypes, by name."""
    found: list[SupportFunction] = []
    integers = [one for one in DTYPES.values() if one.kind in ("int", "uint")]
    plain = [one for one in integers if not one.is_packed]
    for dtype in plain:
        found += _functions_of(dtype)
        found += (_same_bits(dtype, other) for other in plain if other.bits == dtype.bits)
    found += (_wrapped(dtype) for dtype in integers if dtype.is_packed)
    return {one.name: one for one in found}


def _functions_of(dtype: DType) -> Iterable[SupportFunction]:
    """The functions of one integer type. Left shifts, absolute values and complements wrap."""
    own, bits = f"oi_{dtype.name}", dtype.bits
    wide = f"oi_u{max(bits, 32)}"
    yield _function("not", dtype, f"{own}(~a)")
    yield _function("popcount", dtype, f"{own}(oi_popcount(oi_u{bits}(a)))")
    yield _function("min", dtype, "a < b ? a : b")
    yield _function("max", dtype, "a > b ? a : b")
    yield _function("shl", dtype, f"{own}(b >= {bits} ? 0 : {wide}(a) << b)")
    yield _function("shr", dtype, f"{own}(b >= {bits} ? {'(a < 0 ? -1 : 0)' if dtype.kind == 'int' else '0'} : a >> b)")
    if dtype.kind == "int":
        half = 2 ** (bits - 1)
        # The number without its sign would not fit.
        least = f"-{half}" if bits < 32 else f"(-{half - 1} - 1)"
        yield _function("abs", dtype, f"a < 0 ? {own}(0 - {wide}(a)) : a")
        # The most negative number divided by -1 wraps to itself.
        yield _function("div", dtype, f"b == -1 && a == {least} ? a : {own}(a / b)")
        yield _function("rem", dtype, f"{own}(b == -1 ? 0 : a % b)")


def _function(op: str, dtype: DType, value: str) -> SupportFunction:
    own, name = INTEGERS[dtype.name], f"oi_{op}_{dtype.name}"
    parameters = f"{own} a" if op in ("not", "abs", "popcount") else f"{own} a, {own} b"
    return SupportFunction(
        name, (), f"OI_FUNCTION {own} {name}({parameters}) {{ return {value}; }}\n", frozenset({dtype.name})
    )


def _same_bits(source: DType, target: DType) -> SupportFunction:
    name = f"oi_bits_{source.name}_{target.name}"
    head = f"OI_FUNCTION {INTEGERS[target.name]} {name}({INTEGERS[source.name]} x)"
    return SupportFunction(
        name, (), f"{head} {{ return oi_{target.name}(x); }}\n", frozenset({source.name, target.name})
    )


def _wrapped(dtype: DType) -> SupportFunction:
    """Wraps a number to the bits that a packed element has."""
    own, name = dtype.compute.name, f"oi_wrap_{dtype.name}"
    mask, half = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    is_signed = dtype.kind == "int" and not dtype.values
    value = f"((a & {mask}) ^ {half}) - {half}" if is_signed else f"a & {mask}"
    head = f"OI_FUNCTION {INTEGERS[own]} {name}({INTEGERS[own]} a)"
    return SupportFunction(name, (), f"{head} {{ return oi_{own}({value}); }}\n", frozenset({own}))
