"""Inner loops of byte contractions in C that multiply two pairs of values at a time: those of a Cortex-M.

``SXTB16`` unpacks four bytes into two pairs of 16-bit values, ``SMLAD`` multiplies two pairs and adds both products.
Without these instructions, plain loops give the same sums: they wrap.
"""

from dataclasses import dataclass

from openinfer.synth.targets.cpu.byte_products import GROUP
from openinfer.synth.targets.cpu.emit.places import place
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS
from openinfer.synth.targets.cstyle.support import Need

HAS_PAIRS = "defined(__GNUC__) && defined(__thumb2__) && defined(__ARM_FEATURE_DSP)"
"""The condition under which a compiler has these instructions."""
_EXTENDED = {"i8": "sxtb16", "u8": "uxtb16"}


@dataclass(frozen=True)
class Pairs:
    """The macros that unpack a word into pairs of 16-bit values: its even and its odd bytes."""

    dtype: str

    @property
    def name(self) -> str:
        """The name of both macros together."""
        return f"oi_pairs_{self.dtype}"

    @property
    def even(self) -> str:
        """The macro for the bytes 0 and 2."""
        return f"oi_even_{self.dtype}"

    @property
    def odd(self) -> str:
        """The macro for the bytes 1 and 3."""
        return f"oi_odd_{self.dtype}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The loads of words."""
        return (WORDS,)

    @property
    def text(self) -> str:
        """The definitions."""
        own = _EXTENDED[self.dtype]
        return f"""#if {HAS_PAIRS}
/* Bytes 0 and 2 of a word, and bytes 1 and 3, as pairs of 16-bit values. */
#define {self.even}(to, word) __asm__("{own} %0, %1" : "=r"(to) : "r"(word))
#define {self.odd}(to, word) __asm__("{own} %0, %1, ror #8" : "=r"(to) : "r"(word))
#endif
"""


@dataclass(frozen=True)
class _WordAccess:
    name: str
    needs: tuple[Need, ...]
    text: str


WORDS = _WordAccess(
    "oi_words",
    (),
    f"""#if {HAS_PAIRS}
#include <arm_acle.h>
typedef uint32_t oi_word __attribute__((may_alias));
/* Loads two words and advances the pointer. */
#define oi_two_words(p, x, y) \\
    __asm__("ldrd %0, %1, [%2], #8" : "=&r"(x), "=&r"(y), "+r"(p) : "m"(*(const oi_word(*)[2])(p)))
#endif
""",
)
"""A word type that may alias others, a load of two words that advances a pointer, and the intrinsics."""


@dataclass(frozen=True)
class PairTile:
    """The function that computes the sums of ``packed`` rows or columns of bytes and ``wide`` ones of 16-bit values."""

    dtype: str
    packed: int
    wide: int
    steps: tuple[int, int]
    """The strides of sums along the packed and along the wide rows or columns."""

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_tile_{self.dtype}_{self.packed}x{self.wide}_{'to'.join(map(str, self.steps))}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Pairs."""
        return (Pairs(self.dtype),)

    @property
    def text(self) -> str:
        """Its definition."""
        packed, wide = self.packed, self.wide
        lines = [
            f"/* c = b * a, {packed} x {wide} sums of 4 * k products; bytes of b are in the order 0, 2, 1, 3. */",
            f"static void {self.name}(int32_t k, const {ELEMENTS[self.dtype]} *b, const int16_t *a, int32_t *c)",
            "{",
            f"#if {HAS_PAIRS}",
            *self._fast(),
            "#else",
            *self._plain(),
            "#endif",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _plain(self) -> list[str]:
        """One product at a time; a single row or column has no loop."""
        m, n = ("m" if self.packed > 1 else 0), ("n" if self.wide > 1 else 0)
        left = place(("g", GROUP * self.packed), (m, GROUP), ("j % 2", 2), ("j / 2", 1))
        right = place((f"{GROUP} * k" if n else 0, "n"), ("i", 1))
        lines = [
            "uint32_t sum = 0;",
            f"for (int32_t i = 0; i < {GROUP} * k; ++i) {{",
            f"    const int32_t j = i % {GROUP}, g = i / {GROUP};",
            f"    const int32_t left = b[{left}];",
            f"    sum += (uint32_t)(left * a[{right}]);",
            "}",
            f"c[{place((m, self.steps[0]), (n, self.steps[1]))}] = (int32_t)sum;",
        ]
        for var, count in (("n", self.wide), ("m", self.packed)):
            if count > 1:
                head = f"for (int {var} = 0; {var} < {count}; ++{var}) {{"
                lines = [head, *(f"    {line}" for line in lines), "}"]
        return [f"    {line}" for line in lines]

    def _fast(self) -> list[str]:
        """Two groups at a time: the loop overhead is then a thirty-second of the total."""
        sums = [f"s{m}{n}" for m in range(self.packed) for n in range(self.wide)]
        group = self._group()
        lines = [
            "    const oi_word *p = (const oi_word *)(const void *)b, *q0 = (const oi_word *)(const void *)a;",
            *[f"    const oi_word *q{n} = q{n - 1} + 2 * k;" for n in range(1, self.wide)],
            "    const oi_word *const end = q0 + 2 * k;",
            f"    int32_t {', '.join(f'{one} = 0' for one in sums)};",
            f"    uint32_t {', '.join(f'b{m}' for m in range(self.packed))}, even, odd;",
            f"    uint32_t {', '.join(f'a{n}, d{n}' for n in range(self.wide))};",
            "    if (k % 2) {",
            *(f"        {line}" for line in group),
            "    }",
            "    while (q0 < end) {",
            *(f"        {line}" for line in (*group, *group)),
            "    }",
        ]
        places = [m * self.steps[0] + n * self.steps[1] for m in range(self.packed) for n in range(self.wide)]
        return [*lines, *(f"    c[{at}] = {one};" for at, one in zip(places, sums, strict=True))]

    def _group(self) -> list[str]:
        """Four products of each sum."""
        pairs = Pairs(self.dtype)
        lines = [f"oi_two_words(p, b{m}, b{m + 1});" for m in range(0, self.packed, 2)]
        lines += [f"oi_two_words(q{n}, a{n}, d{n});" for n in range(self.wide)]
        for m in range(self.packed):
            lines += [f"{pairs.even}(even, b{m});", f"{pairs.odd}(odd, b{m});"]
            for half, other in (("even", "a"), ("odd", "d")):
                lines += [
                    f"s{m}{n} = __smlad((int16x2_t){half}, (int16x2_t){other}{n}, s{m}{n});" for n in range(self.wide)
                ]
        return lines
