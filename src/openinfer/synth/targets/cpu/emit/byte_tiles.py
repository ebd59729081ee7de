"""The inner loops of contractions of bytes in C: tiles of i32 sums that stay in registers.

Four neighbours along a sum are one group, which lies in 32 bits: those of a row are spread over a vector, those of
columns are in its lanes. AVX-512 VNNI multiplies a u8 and an i8 and adds all four products; elsewhere two and two are
widened to 16 bits, multiplied and added, which is exact as well, or four times one. Sums wrap: they are unsigned.
"""

import re

from openinfer.synth.targets.cpu.byte_products import FLIP, GROUP
from openinfer.synth.targets.cpu.emit.tiles import sum_name, zero_sums

_TILE = re.compile(r"oi_tile_([iu]8)([iu]8)x(\d+)_(\d+)x(\d+)")
_FLIPS = re.compile(r"oi_flips_([iu]8)([iu]8)x(\d+)_(\d+)")
_DOT = re.compile(r"oi_dot_([iu]8)([iu]8)x(\d+)")
_VECTOR = re.compile(r"oi_u32x(\d+)")
_GROUP = re.compile(r"oi_group_([iu]8)x(\d+)")
_TYPES = {"i8": "int8_t", "u8": "uint8_t"}


def byte_tile_name(left: str, right: str, lanes: int, rows: int, vectors: int) -> str:
    """The function that computes tiles of so many rows of one dtype and vectors of columns of another."""
    return f"oi_tile_{left}{right}x{lanes}_{rows}x{vectors}"


def flips_name(left: str, right: str, lanes: int, vectors: int) -> str:
    """The function that computes what flipped rows add to the sums of so many vectors of columns."""
    return f"oi_flips_{left}{right}x{lanes}_{vectors}"


def group_name(dtype: str, columns: int) -> str:
    """The function that puts a panel of so many columns into groups."""
    return f"oi_group_{dtype}x{columns}"


def byte_tile_support(name: str) -> tuple[tuple[str, ...], str] | None:
    """What a function or type of this name needs, and its text; None where the name is none of these."""
    tile, flips, dot, vector, group = (one.fullmatch(name) for one in (_TILE, _FLIPS, _DOT, _VECTOR, _GROUP))
    if tile is not None:
        return _needs(tile), _tile(name, tile[1], tile[2], int(tile[3]), int(tile[4]), int(tile[5]))
    if flips is not None:
        return _needs(flips), _flips(name, flips[1], flips[2], int(flips[3]), int(flips[4]))
    if dot is not None:
        return (f"oi_u32x{dot[3]}",), _dot(name, dot[1], dot[2], int(dot[3]))
    if group is not None:
        return (), _group(name, _TYPES[group[1]], int(group[2]))
    return ((), _vector(name, int(vector[1]))) if vector is not None else None


def _needs(found: re.Match[str]) -> tuple[str, ...]:
    return (f"oi_dot_{found[1]}{found[2]}x{found[3]}",)


# --- vectors ----------------------------------------------------------------------------------------------------------


def _vector(name: str, lanes: int) -> str:
    """Lanes of 32 bits: sums, or groups of four bytes."""
    traits = "aligned(1), may_alias"
    return f"""#if defined(__GNUC__)
typedef uint32_t {name} __attribute__((vector_size({lanes * 4}), {traits}));
typedef int32_t oi_i32x{lanes} __attribute__((vector_size({lanes * 4}), {traits}));
typedef uint32_t oi_fours_x{lanes} __attribute__(({traits}));
/* Four bytes in every lane. */
#define oi_spread_x{lanes}(p) (*(const oi_fours_x{lanes} *)(p) - ({name}){{0}})
#endif
"""


_X86 = {64: ("defined(__AVX512BW__)", "_mm512", "si512"), 32: ("defined(__AVX2__)", "_mm256", "si256")}
_X86[16] = ("defined(__SSE2__)", "_mm", "si128")
"""For the bytes of a vector: the condition, the prefix of its functions, and what they call all of it."""


def _dot(name: str, left: str, right: str, lanes: int) -> str:
    """``s`` and the four products of each lane of ``a`` and ``b``."""
    vector, nbytes = f"oi_u32x{lanes}", lanes * 4
    lines = ["/* The sums s, and in each lane four products of a and b more. */", "#if defined(__GNUC__)"]
    head = f"#define {name}(a, b, s)"
    conditions = []
    if nbytes in _X86:
        condition, prefix, whole = _X86[nbytes]
        kind = f"__m{nbytes * 8}i"
        if left != right:
            first, second = ("a", "b") if left == "u8" else ("b", "a")
            product = f"{prefix}_dpbusd_epi32(({kind})(s), ({kind})({first}), ({kind})({second}))"
            has_vnni = "defined(__AVX512VNNI__)" + " && defined(__AVX512VL__)" * (nbytes < 64)
            conditions.append((has_vnni, f"{head} (({vector}){product})"))
        pairs = [
            f"({vector}){prefix}_madd_epi16({_widened(left, f'({kind})(a)', part, prefix, whole)},"
            f" {_widened(right, f'({kind})(b)', part, prefix, whole)})"
            for part in ("even", "odd")
        ]
        conditions.append((condition, f"{head} ((s) + {pairs[0]} \\\n    + {pairs[1]})"))
    for number, (condition, text) in enumerate(conditions):
        lines += [f"#{'elif' if number else 'if'} {condition}", "#include <immintrin.h>", text]
    terms = [f"{_byte(left, 'a', at, lanes)} * {_byte(right, 'b', at, lanes)}" for at in range(GROUP)]
    lines += ["#else"] * bool(conditions)
    lines.append(f"{head} ((s) + " + " \\\n    + ".join(terms) + ")")
    return "\n".join([*lines, *["#endif"] * (1 + bool(conditions))]) + "\n"


def _widened(dtype: str, value: str, part: str, prefix: str, whole: str) -> str:
    """The even or the odd bytes as 16 bits."""
    if dtype == "u8":
        if part == "odd":
            return f"{prefix}_srli_epi16({value}, 8)"
        return f"{prefix}_and_{whole}({value}, {prefix}_set1_epi16(255))"
    up = value if part == "odd" else f"{prefix}_slli_epi16({value}, 8)"
    return f"{prefix}_srai_epi16({up}, 8)"


def _byte(dtype: str, value: str, at: int, lanes: int) -> str:
    """One byte of each lane as 32 bits."""
    if dtype == "u8":
        return f"(({value}) >> {8 * at} & 255)"
    return f"(oi_u32x{lanes})((oi_i32x{lanes})(({value}) << {24 - 8 * at}) >> 24)"


# --- tiles ------------------------------------------------------------------------------------------------------------


def _tile(name: str, left: str, right: str, lanes: int, rows: int, vectors: int) -> str:
    """``c[r][n] = sum over k and j of a[r][k][j] * b[k][n][j]``."""
    vector, width = f"oi_u32x{lanes}", lanes * vectors
    splits = max(1, 4 // (rows * vectors))
    shape = f"{rows} row{'s' * (rows > 1)} of {left} in a, {width} columns of {right} in b"
    lines = [
        f"/* c = a * b: {shape}, k times four products for each of the sums. */",
        f"static void {name}(int64_t k, const {_TYPES[left]} *a, int64_t a_row,",
        f"        const {_TYPES[right]} *b, int32_t *c, int64_t width)",
        "{",
        "#if defined(__GNUC__)",
        *zero_sums(vector, rows, vectors, splits),
    ]
    for steps in sorted({splits, 1}, reverse=True):
        ahead = f"k -= {steps}, a += {GROUP * steps}, b += {GROUP * steps} * width"
        lines.append(f"    for (; k >= {steps}; {ahead}) {{")
        for split in range(steps):
            lines += _products(left, right, lanes, rows, vectors, split)
        lines.append("    }")
    for row in range(rows):
        for column in range(vectors):
            total = " + ".join(sum_name(row, column, split) for split in range(splits))
            lines.append(f"    *({vector} *)(c + {row} * width + {column * lanes}) = {total};")
    element = f"(uint32_t)a[r * a_row + i] * (uint32_t)b[i / {GROUP} * {GROUP} * width + {GROUP} * n + i % {GROUP}]"
    lines += [
        "#else",
        f"    for (int r = 0; r < {rows}; ++r) {{",
        f"        for (int n = 0; n < {width}; ++n) {{",
        "            uint32_t sum = 0;",
        f"            for (int64_t i = 0; i < {GROUP} * k; ++i) sum += {element};",
        "            c[r * width + n] = (int32_t)sum;",
        "        }",
        "    }",
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _products(left: str, right: str, lanes: int, rows: int, vectors: int, split: int) -> list[str]:
    """One group of all sums: the columns are loaded once, every row's four bytes meet all of them."""
    vector, dot, mark = f"oi_u32x{lanes}", f"oi_dot_{left}{right}x{lanes}", f"_{split}" if split else ""
    ahead = f" + {GROUP * split} * width" if split else ""
    places = [f" + {GROUP * lanes * column}" if column else "" for column in range(vectors)]
    loads = [f"b{column}{mark} = *(const {vector} *)(b{ahead}{place})" for column, place in enumerate(places)]
    lines = [f"        const {vector} {', '.join(loads)};"]
    for row in range(rows):
        place = f"a + {row} * a_row{f' + {GROUP * split}' if split else ''}"
        sums = [(sum_name(row, column, split), f"b{column}{mark}") for column in range(vectors)]
        steps = [f"{total} = {dot}(a{row}{mark}, {loaded}, {total});" for total, loaded in sums]
        lines.append(f"        const {vector} a{row}{mark} = oi_spread_x{lanes}({place});")
        lines.append(f"        {' '.join(steps)}")
    return lines


def _flips(name: str, left: str, right: str, lanes: int, vectors: int) -> str:
    """What a row adds to the sums whose every byte is the bit that is flipped."""
    vector, dot, width = f"oi_u32x{lanes}", f"oi_dot_{left}{right}x{lanes}", lanes * vectors
    byte = FLIP if left == "u8" else -FLIP
    bits = f"{FLIP * 0x01010101:#x}u"
    lines = [
        f"/* c = {byte} times the sums of {width} columns of {right} in b, k times four numbers each. */",
        f"static void {name}(int64_t k, const {_TYPES[right]} *b, int32_t *c)",
        "{",
        "#if defined(__GNUC__)",
        f"    const {vector} flip = {bits} - ({vector}){{0}};",
        *zero_sums(vector, 1, vectors, 1),
        f"    for (; k > 0; --k, b += {GROUP * width}) {{",
    ]
    for column in range(vectors):
        total, place = sum_name(0, column, 0), f" + {GROUP * lanes * column}" if column else ""
        lines.append(f"        {total} = {dot}(flip, *(const {vector} *)(b{place}), {total});")
    lines.append("    }")
    lines += [f"    *({vector} *)(c + {column * lanes}) = {sum_name(0, column, 0)};" for column in range(vectors)]
    element = f"{byte} * b[i / {GROUP} * {GROUP * width} + {GROUP} * n + i % {GROUP}]"
    lines += [
        "#else",
        f"    for (int n = 0; n < {width}; ++n) {{",
        "        uint32_t sum = 0;",
        f"        for (int64_t i = 0; i < {GROUP} * k; ++i) sum += (uint32_t)({element});",
        "        c[n] = (int32_t)sum;",
        "    }",
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


# --- copies -----------------------------------------------------------------------------------------------------------


def _group(name: str, kind: str, columns: int) -> str:
    """``to[k][n][j] = from[k][j][n]``."""
    return f"""/* Four lines of {columns} columns become one of groups, k times: to[k][n][j] = from[k][j][n]. */
static void {name}(int64_t k, const {kind} *restrict from, {kind} *restrict to)
{{
    for (; k > 0; --k, from += {GROUP * columns}, to += {GROUP * columns}) {{
        for (int n = 0; n < {columns}; ++n) {{
            for (int j = 0; j < {GROUP}; ++j) to[{GROUP} * n + j] = from[j * {columns} + n];
        }}
    }}
}}
"""
