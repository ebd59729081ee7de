"""Integer functions for every dtype, in the common subset of C, CUDA and GLSL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from openinfer.dtypes import DTYPES, DType
from openinfer.synth.targets.cstyle.support import SupportFunction

_WIDTHS = (8, 16, 32, 64)
INTEGERS = {f"i{bits}": f"int{bits}_t" for bits in _WIDTHS} | {f"u{bits}": f"uint{bits}_t" for bits in _WIDTHS}
"""Integer types, which have the same names in all these languages."""


@dataclass(frozen=True)
class IntegerWords:
    """How a language spells the types of integers, by dtype, and conversions to these."""

    types: Mapping[str, str]
    converted: Mapping[str, str]

    def named(self, *dtypes: str) -> frozenset[str]:
        """Those of some dtypes whose own types code names."""
        return frozenset(one for one in dtypes if self.types[one] == INTEGERS[one])


USUAL = IntegerWords(INTEGERS, {name: f"oi_{name}" for name in INTEGERS})
"""Values have a type of the width of their dtype."""


def integer_functions(words: IntegerWords = USUAL) -> Mapping[str, SupportFunction]:
    """The functions of all integer dtypes, by name."""
    found: list[SupportFunction] = []
    integers = [one for one in DTYPES.values() if one.kind in ("int", "uint")]
    plain = [one for one in integers if not one.is_packed]
    for dtype in plain:
        found += _functions_of(dtype, words)
        found += (_same_bits(dtype, other, words) for other in plain if other.bits == dtype.bits)
    found += (_wrapped(dtype, words) for dtype in integers if dtype.is_packed)
    return {one.name: one for one in found}


def _functions_of(dtype: DType, words: IntegerWords) -> Iterable[SupportFunction]:
    """The functions of one integer type. Left shifts, absolute values and complements wrap."""
    own, bits = words.converted[dtype.name], dtype.bits
    wide = f"oi_u{max(bits, 32)}"
    yield _function(words, "not", dtype, f"{own}(~a)")
    yield _function(words, "popcount", dtype, f"{own}(oi_popcount(oi_u{bits}(a)))")
    yield _function(words, "min", dtype, "a < b ? a : b")
    yield _function(words, "max", dtype, "a > b ? a : b")
    yield _function(words, "shl", dtype, f"{own}(b >= {bits} ? 0 : {wide}(a) << b)")
    yield _function(
        words, "shr", dtype, f"{own}(b >= {bits} ? {'(a < 0 ? -1 : 0)' if dtype.kind == 'int' else '0'} : a >> b)"
    )
    if dtype.kind == "int":
        half = 2 ** (bits - 1)
        # The number without its sign would not fit.
        least = f"-{half}" if bits < 32 else f"(-{half - 1} - 1)"
        yield _function(words, "abs", dtype, f"a < 0 ? {own}(0 - {wide}(a)) : a")
        # The most negative number divided by -1 wraps to itself.
        yield _function(words, "div", dtype, f"b == -1 && a == {least} ? a : {own}(a / b)")
        yield _function(words, "rem", dtype, f"{own}(b == -1 ? 0 : a % b)")


def _function(words: IntegerWords, op: str, dtype: DType, value: str) -> SupportFunction:
    own, name = words.types[dtype.name], f"oi_{op}_{dtype.name}"
    parameters = f"{own} a" if op in ("not", "abs", "popcount") else f"{own} a, {own} b"
    return SupportFunction(
        name, (), f"OI_FUNCTION {own} {name}({parameters}) {{ return {value}; }}\n", words.named(dtype.name)
    )


def _same_bits(source: DType, target: DType, words: IntegerWords) -> SupportFunction:
    name = f"oi_bits_{source.name}_{target.name}"
    head = f"OI_FUNCTION {words.types[target.name]} {name}({words.types[source.name]} x)"
    return SupportFunction(
        name, (), f"{head} {{ return {words.converted[target.name]}(x); }}\n", words.named(source.name, target.name)
    )


def _wrapped(dtype: DType, words: IntegerWords) -> SupportFunction:
    """Wraps a number to the bits that a packed element has."""
    own, name = dtype.compute.name, f"oi_wrap_{dtype.name}"
    mask, half = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    is_signed = dtype.kind == "int" and not dtype.values
    value = f"((a & {mask}) ^ {half}) - {half}" if is_signed else f"a & {mask}"
    head = f"OI_FUNCTION {words.types[own]} {name}({words.types[own]} a)"
    return SupportFunction(name, (), f"{head} {{ return {words.converted[own]}({value}); }}\n", words.named(own))
