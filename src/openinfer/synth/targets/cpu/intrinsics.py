"""The vector instructions that tiles use: one record per instruction set, one entry per instruction.

Vectors are those of GNU C, so everything also works without an entry: the fallback is plain arithmetic. A new
instruction set is one more record here, and a preset with its flags in ``machine``.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Intrinsic:
    """One instruction, or a few: the condition under which a compiler has it, and the expressions that use it.

    ``forms`` is one expression; for elements that share a byte, one for each of them. ``{vector}`` stands for the type
    of the result.
    """

    condition: str
    forms: tuple[str, ...]


@dataclass(frozen=True)
class VectorSet:
    """The instructions of one set on vectors of one width, by the dtypes they take."""

    nbytes: int
    header: str
    fma: Mapping[str, Intrinsic] = field(default_factory=dict)
    """``a * b + c`` with one rounding: a scalar ``a``, vectors ``b`` and ``c``."""
    vector_fma: Mapping[str, Intrinsic] = field(default_factory=dict)
    """The same with a vector ``a``."""
    loads: Mapping[str, Intrinsic] = field(default_factory=dict)
    """Integers or 16-bit floats at ``p`` as floats. 4-bit integers are added to 2^23: see ``IntegerLoad``."""
    halves: Mapping[str, Intrinsic] = field(default_factory=dict)
    """4-bit integers at ``p`` as floats: the low nibbles of bytes, and 16 times the high nibbles."""
    dots: Mapping[tuple[str, str], tuple[Intrinsic, ...]] = field(default_factory=dict)
    """``s`` plus, in each lane, four products of the bytes of ``a`` and ``b``; the best first."""
    moves: Mapping[str, Intrinsic] = field(default_factory=dict)
    """The elements of ``a`` from the ``n``-th on, followed by the first of ``b``."""


_BYTES = ("i8", "u8")


@dataclass(frozen=True)
class _X86:
    """The names of one width of x86 vectors, from which its record is built."""

    nbytes: int
    prefix: str
    whole: str
    """The suffix of functions on all bits of a vector."""
    has_fma: str
    has_integers: str
    has_dot: str
    """The conditions under which these instructions exist."""
    quarter: str | None
    """A load of as many bytes as a vector has floats; None if bytes are not converted to floats."""

    def record(self) -> VectorSet:
        dots = {(left, right): self._dots(left, right) for left in _BYTES for right in _BYTES}
        return VectorSet(
            self.nbytes,
            "immintrin.h",
            self._fma("{own}_set1_{suffix}(a)"),
            self._fma("a"),
            self._loads(),
            self._halves(),
            dots,
            self._moves(),
        )

    def _fma(self, first: str) -> dict[str, Intrinsic]:
        own = self.prefix
        return {
            dtype: Intrinsic(self.has_fma, (f"{own}_fmadd_{suffix}({first.format(own=own, suffix=suffix)}, b, c)",))
            for dtype, suffix in (("f32", "ps"), ("f64", "pd"))
        }

    def _moves(self) -> dict[str, Intrinsic]:
        """Shorter vectors can only shift within their halves."""
        if self.nbytes < 64:
            return {}
        text = f"(({{vector}}){self.prefix}_alignr_epi32((__m512i)(b), (__m512i)(a), n))"
        return {"f32": Intrinsic(self.has_integers, (text,))}

    def _loads(self) -> dict[str, Intrinsic]:
        if self.quarter is None:
            return {}
        own, found = self.prefix, {}
        for dtype, kind in (("i8", "epi8"), ("u8", "epu8")):
            text = f"(({{vector}}){own}_cvtepi32_ps({own}_cvt{kind}_epi32({self.quarter})))"
            found[dtype] = Intrinsic(self.has_integers, (text,))
        wide = f"{own}_cvtepu8_epi32({self.quarter})"
        for dtype, flip in (("i4", " ^ 8"), ("u4", "")):
            bits = f"{own}_set1_epi32(0x4b000000{flip})"
            low = f"{own}_and_{self.whole}({wide}, {own}_set1_epi32(15))"
            codes = [
                f"{own}_xor_{self.whole}({low}, {bits})",
                f"{own}_xor_{self.whole}({own}_srli_epi32({wide}, 4), {bits})",
            ]
            if self.nbytes == 64:  # both operations in one instruction
                codes[0] = f"{own}_ternarylogic_epi32({wide}, {own}_set1_epi32(15), {bits}, 0x6a)"
            forms = tuple(f"(({{vector}}){own}_cast{self.whole}_ps({code}))" for code in codes)
            found[dtype] = Intrinsic(self.has_integers, forms)
        half = "_mm256_loadu_si256((const __m256i *)" if self.nbytes == 64 else "_mm_loadu_si128((const __m128i *)"
        has_halves = self.has_fma if self.nbytes == 64 else f"{self.has_fma} && defined(__F16C__)"
        found["f16"] = Intrinsic(has_halves, (f"(({{vector}}){own}_cvtph_ps({half}(const void *)(p))))",))
        wide = f"{own}_slli_epi32({own}_cvtepu16_epi32({half}(const void *)(p))), 16)"
        found["bf16"] = Intrinsic(self.has_integers, (f"(({{vector}}){own}_cast{self.whole}_ps({wide}))",))
        return found

    def _halves(self) -> dict[str, Intrinsic]:
        """A float with a nibble in its last bits, minus 2^23; with 16 lanes, low nibbles index a table of 16 floats."""
        if self.quarter is None:
            return {}
        own, found = self.prefix, {}
        wide = f"{own}_cvtepu8_epi32({self.quarter})"
        for dtype, first in (("i4", 8), ("u4", 0)):
            forms = []
            for mask, shift in ((15, first), (240, 16 * first)):
                bits = f"{own}_set1_epi32(0x4b000000{f' ^ {shift}' if shift else ''})"
                code = f"{own}_xor_{self.whole}({own}_and_{self.whole}({wide}, {own}_set1_epi32({mask})), {bits})"
                if self.nbytes == 64:
                    code = f"{own}_ternarylogic_epi32({wide}, {own}_set1_epi32({mask}), {bits}, 0x6a)"
                forms.append(f"(({{vector}}){own}_cast{self.whole}_ps({code}) - {8388608.0 + shift}f)")
            if self.nbytes == 64:
                numbers = ", ".join(f"{float((code ^ first) - first)}f" for code in range(16))
                forms[0] = f"(({{vector}}){own}_permutexvar_ps({wide}, {own}_setr_ps({numbers})))"
            found[dtype] = Intrinsic(self.has_integers, tuple(forms))
        return found

    def _dots(self, left: str, right: str) -> tuple[Intrinsic, ...]:
        """AVX-512 VNNI takes a u8 and an i8; otherwise the even and the odd bytes are widened to 16 bits."""
        own, kind, found = self.prefix, f"__m{self.nbytes * 8}i", []
        if left != right:
            first, second = ("a", "b") if left == "u8" else ("b", "a")
            text = f"{own}_dpbusd_epi32(({kind})(s), ({kind})({first}), ({kind})({second}))"
            found.append(Intrinsic(self.has_dot, (f"(({{vector}}){text})",)))
        even, odd = (
            f"({{vector}}){own}_madd_epi16({self._widened(left, f'({kind})(a)', part)},"
            f" {self._widened(right, f'({kind})(b)', part)})"
            for part in ("even", "odd")
        )
        has_pairs = "defined(__AVX512BW__)" if self.nbytes == 64 else self.has_integers
        return (*found, Intrinsic(has_pairs, (f"((s) + {even} \\\n    + {odd})",)))

    def _widened(self, dtype: str, value: str, part: str) -> str:
        """The even or the odd bytes, widened to 16 bits."""
        own = self.prefix
        if dtype == "u8":
            if part == "odd":
                return f"{own}_srli_epi16({value}, 8)"
            return f"{own}_and_{self.whole}({value}, {own}_set1_epi16(255))"
        up = value if part == "odd" else f"{own}_slli_epi16({value}, 8)"
        return f"{own}_srai_epi16({up}, 8)"


AVX512 = _X86(
    64,
    "_mm512",
    "si512",
    has_fma="defined(__AVX512F__)",
    has_integers="defined(__AVX512F__)",
    has_dot="defined(__AVX512VNNI__)",
    quarter="_mm_loadu_si128((const __m128i *)(const void *)(p))",
).record()
AVX2 = _X86(
    32,
    "_mm256",
    "si256",
    has_fma="defined(__FMA__) && defined(__AVX2__)",
    has_integers="defined(__AVX2__)",
    has_dot="defined(__AVX512VNNI__) && defined(__AVX512VL__)",
    quarter="_mm_loadl_epi64((const __m128i *)(const void *)(p))",
).record()
SSE = _X86(
    16,
    "_mm",
    "si128",
    has_fma="defined(__FMA__)",
    has_integers="defined(__SSE2__)",
    has_dot="defined(__AVX512VNNI__) && defined(__AVX512VL__)",
    quarter=None,
).record()


def _neon_dots(dtype: str) -> tuple[Intrinsic, ...]:
    """Four products in one instruction, or 16-bit products that are added in pairs, twice."""
    kind, own = ("int", "s") if dtype == "i8" else ("uint", "u")
    a, b = (f"({kind}8x16_t)({name})" for name in ("a", "b"))
    low = f"vpaddlq_{own}16(vmull_{own}8(vget_low_{own}8({a}), vget_low_{own}8({b})))"
    high = f"vpaddlq_{own}16(vmull_high_{own}8({a}, {b}))"
    return (
        Intrinsic(
            "defined(__ARM_NEON) && defined(__ARM_FEATURE_DOTPROD)",
            (f"(({{vector}})vdotq_{own}32(({kind}32x4_t)(s), {a}, {b}))",),
        ),
        Intrinsic(
            "defined(__ARM_NEON) && defined(__aarch64__)",
            (f"((s) + ({{vector}})vpaddq_{own}32( \\\n    {low}, \\\n    {high}))",),
        ),
    )


_HAS_NEON_FMA = "defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)"
NEON = VectorSet(
    16,
    "arm_neon.h",
    fma={dtype: Intrinsic(_HAS_NEON_FMA, (f"vfmaq_n_{dtype}(c, b, a)",)) for dtype in ("f32", "f64")},
    vector_fma={dtype: Intrinsic(_HAS_NEON_FMA, (f"vfmaq_{dtype}(c, b, a)",)) for dtype in ("f32", "f64")},
    loads={
        "f16": Intrinsic(
            f"{_HAS_NEON_FMA} && defined(__ARM_FP16_FORMAT_IEEE)",
            ("(({vector})vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))))",),
        ),
        "bf16": Intrinsic(_HAS_NEON_FMA, ("(({vector})vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)))",)),
    },
    dots={(dtype, dtype): _neon_dots(dtype) for dtype in _BYTES},
)
VECTOR_SETS = (AVX512, AVX2, SSE, NEON)
"""All sets; among those of one width, the preprocessor takes the first that the compiler has."""


def sets_of(nbytes: int) -> tuple[VectorSet, ...]:
    """The sets with vectors of a width, in bytes."""
    return tuple(one for one in VECTOR_SETS if one.nbytes == nbytes)


def chosen(
    found: Iterable[tuple[str | None, Intrinsic]], defined: Callable[[Intrinsic], list[str]], plain: list[str]
) -> list[str]:
    """Lines with which the preprocessor selects the first available instruction, or else the plain lines.

    Each instruction comes with the header to include for it, if any.
    """
    lines: list[str] = []
    for header, one in found:
        lines.append(f"#{'elif' if lines else 'if'} {one.condition}")
        lines += [f"#include <{header}>"] * (header is not None)
        lines += defined(one)
    return [*lines, "#else", *plain, "#endif"] if lines else plain
