"""The inner loops of contractions in C: tiles of sums that stay in registers.

Vectors are those of GNU C, which gcc and clang have for every processor; other compilers get plain loops. A product may
be added without rounding in between (FMA): the order and the roundings of sums are free within their bound. Nothing
else in generated code is contracted, so this is asked for by name and not by an option.

Columns may be stored as integers: they are made floats as they are loaded, less a zero point for each column. Rows may
be windows: then there is a list of the places that a window sees, which is gone through in each of the steps.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TILE = re.compile(r"oi_tile_(f32|f64)x(\d+)_(\d+)x(\d+)(?:_([iu][48])(_zero)?)?(_window)?")
_VECTOR = re.compile(r"oi_(f32|f64)x(\d+)")
_LOADS = re.compile(r"oi_load_([iu][48])_f32x(\d+)")
_TURN = re.compile(r"oi_turn_(f32|f64)x(\d+)")
_TYPES = {"f32": "float", "f64": "double"}
SHIFT = 8388608.0
"""What integers of 4 bits come with: the zero points of their columns must have it, too."""


def tile_name(
    dtype: str, lanes: int, rows: int, vectors: int, stored: str | None = None, *, has_zero: bool = False
) -> str:
    """The function that computes tiles of so many rows and vectors; ``stored`` is the dtype of columns of integers."""
    own = "" if stored is None else f"_{stored}{'_zero' * has_zero}"
    return f"oi_tile_{dtype}x{lanes}_{rows}x{vectors}{own}"


def window_tile_name(dtype: str, lanes: int, rows: int, vectors: int) -> str:
    """The same where rows are windows."""
    return f"{tile_name(dtype, lanes, rows, vectors)}_window"


def tile_support(name: str) -> tuple[tuple[str, ...], str] | None:
    """What a function or type of this name needs, and its text; None where the name is none of these."""
    tile, vector, loads, turn = (pattern.fullmatch(name) for pattern in (_TILE, _VECTOR, _LOADS, _TURN))
    if tile is not None:
        columns = _Columns(tile[1], int(tile[2]), int(tile[4]), tile[5], has_zero=tile[6] is not None)
        printed = _window_tile if tile[7] is not None else _tile
        return columns.needs, printed(name, columns, int(tile[3]))
    if loads is not None:
        return (f"oi_f32x{loads[2]}",), _loads(loads[1], int(loads[2]))
    if turn is not None:
        return (f"oi_{turn[1]}x{turn[2]}",), _turn(name, turn[1], int(turn[2]))
    return ((), _vector(name, vector[1], int(vector[2]))) if vector is not None else None


def turn_name(dtype: str, lanes: int) -> str:
    """The function that turns a square of so many rows and columns: rows become columns."""
    return f"oi_turn_{dtype}x{lanes}"


def _turn(name: str, dtype: str, lanes: int) -> str:
    """Of each two rows so far apart, blocks of so many columns change places; with all powers of two, all is turned."""
    kind, vector = _TYPES[dtype], f"oi_{dtype}x{lanes}"
    lines = [
        f"/* to[j][i] = from[i][j]: {lanes} rows of {lanes}, so far apart. */",
        f"static inline void {name}(const {kind} *from, int64_t from_row, {kind} *to, int64_t to_row)",
        "{",
        "#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)",
        f"    {vector} r[{lanes}], t;",
        f"    for (int i = 0; i < {lanes}; ++i) r[i] = *(const {vector} *)(from + i * from_row);",
    ]
    far = lanes // 2
    while far:
        upper = [lane if not lane & far else lanes + (lane ^ far) for lane in range(lanes)]
        lower = [lanes + lane if lane & far else lane ^ far for lane in range(lanes)]
        lines += [
            f"    for (int i = 0; i < {lanes}; ++i) {{",
            f"        if (i & {far}) continue;",
            f"        t = __builtin_shufflevector(r[i], r[i + {far}], {', '.join(map(str, upper))});",
            f"        r[i + {far}] = __builtin_shufflevector(r[i], r[i + {far}], {', '.join(map(str, lower))});",
            "        r[i] = t;",
            "    }",
        ]
        far //= 2
    return (
        "\n".join(
            [
                *lines,
                f"    for (int i = 0; i < {lanes}; ++i) *({vector} *)(to + i * to_row) = r[i];",
                "#else",
                f"    for (int i = 0; i < {lanes}; ++i)",
                f"        for (int j = 0; j < {lanes}; ++j) to[j * to_row + i] = from[i * from_row + j];",
                "#endif",
                "}",
            ]
        )
        + "\n"
    )


@dataclass(frozen=True)
class _Columns:
    """The columns that a tile has, in vectors, and how they are stored."""

    dtype: str
    lanes: int
    vectors: int
    stored: str | None
    has_zero: bool

    @property
    def vector(self) -> str:
        """The type of a vector."""
        return f"oi_{self.dtype}x{self.lanes}"

    @property
    def needs(self) -> tuple[str, ...]:
        """The names that the tile's function uses."""
        return (self.vector,) if self.stored is None else (self.vector, f"oi_load_{self.stored}_f32x{self.lanes}")

    @property
    def stored_type(self) -> str:
        """The type of an element in memory; of two, where they are of 4 bits."""
        return _TYPES[self.dtype] if self.stored is None else "int8_t" if self.stored == "i8" else "uint8_t"

    def loaded(self, column: int, ahead: str) -> str:
        """A vector of a row of columns, as floats."""
        if self.stored is None:
            return f"*(const {self.vector} *)(b{ahead}{f' + {column * self.lanes}' if column else ''})"
        load = f"oi_load_{self.stored}_f32x{self.lanes}"
        if self.stored in ("i4", "u4"):
            place, load = column // 2 * self.lanes, f"{load}_{'high' if column % 2 else 'low'}"
        else:
            place = column * self.lanes
        text = f"{load}(b{ahead}{f' + {place}' if place else ''})"
        return f"{text} - z{column}" if self.has_zero else text


_WIDER = {
    64: ("defined(__AVX512F__)", "_mm512", "_mm_loadu_si128((const __m128i *)(const void *)(p))"),
    32: ("defined(__AVX2__)", "_mm256", "_mm_loadl_epi64((const __m128i *)(const void *)(p))"),
}
"""For the bytes of a vector of floats: the condition, the prefix of its functions, and how as many bytes are loaded."""


def _loads(stored: str, lanes: int) -> str:
    """Integers as vectors of floats; of 4 bits, those in the lower or the upper halves of bytes.

    Those of 4 bits come as numbers from 0 to 15, which is 8 more than an i4 is, plus ``SHIFT``: such a float has them
    in its last bits, so that no conversion is needed.
    """
    vector, name, nbytes = f"oi_f32x{lanes}", f"oi_load_{stored}_f32x{lanes}", lanes * 4
    condition, prefix, load = _WIDER.get(nbytes, ("", "", ""))
    about = {
        "i4": "Numbers from the lower or upper halves of bytes, each as 2^23 + 8 + n: a float with n in its last bits.",
        "u4": "Numbers from the lower or upper halves of bytes, each as 2^23 + n: a float with n in its last bits.",
    }
    lines = [f"/* {about.get(stored, 'Bytes as floats.')} */", "#if defined(__GNUC__)"]
    if stored in ("i8", "u8"):
        wide = f"{prefix}_cvt{'epi8' if stored == 'i8' else 'epu8'}_epi32({load})"
        fast = {"": f"{prefix}_cvtepi32_ps({wide})"}
        plain = {"": "(float)(p)[{}]"}
    else:
        flip, whole = " ^ 8" * (stored == "i4"), {64: "si512", 32: "si256"}.get(nbytes, "")
        wide, bits = f"{prefix}_cvtepu8_epi32({load})", f"{prefix}_set1_epi32(0x4b000000{flip})"
        low = f"{prefix}_and_{whole}({wide}, {prefix}_set1_epi32(15))"
        codes = {"_low": f"{prefix}_xor_{whole}({low}, {bits})"}
        if nbytes == 64:  # both in one instruction
            codes = {"_low": f"_mm512_ternarylogic_epi32({wide}, _mm512_set1_epi32(15), {bits}, 0x6a)"}
        codes["_high"] = f"{prefix}_xor_{whole}({prefix}_srli_epi32({wide}, 4), {bits})"
        fast = {part: f"{prefix}_cast{whole}_ps({code})" for part, code in codes.items()}
        plain = {
            "_low": f"{SHIFT}f + (float)(((p)[{{}}] & 15){flip})",
            "_high": f"{SHIFT}f + (float)(((p)[{{}}] >> 4){flip})",
        }
    if nbytes in _WIDER:
        lines.append(f"#if {condition}")
        lines += [f"#define {name}{part}(p) (({vector}){text})" for part, text in fast.items()]
        lines.append("#else")
    for part, text in plain.items():
        elements = ", ".join(text.format(lane) for lane in range(lanes))
        lines.append(f"#define {name}{part}(p) (({vector}){{ {elements} }})")
    lines += ["#endif"] * (1 + (nbytes in _WIDER))
    return "\n".join(lines) + "\n"


def _vector(name: str, dtype: str, lanes: int) -> str:
    kind, suffix = _TYPES[dtype], {"f32": "ps", "f64": "pd"}[dtype]
    nbytes = lanes * (4 if dtype == "f32" else 8)
    fma = f"oi_fma_{dtype}x{lanes}"
    prefix, condition = {
        64: ("_mm512", "defined(__AVX512F__)"),
        32: ("_mm256", "defined(__FMA__) && defined(__AVX2__)"),
        16: ("_mm", "defined(__FMA__)"),
    }[nbytes]
    lines = [
        "#if defined(__GNUC__)",
        f"#if {condition}",
        "#include <immintrin.h>",
        f"#define {fma}(a, b, c) {prefix}_fmadd_{suffix}({prefix}_set1_{suffix}(a), b, c)",
    ]
    if nbytes == 16:
        neon = {"f32": "f32", "f64": "f64"}[dtype]
        lines += [
            "#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)",
            "#include <arm_neon.h>",
            f"#define {fma}(a, b, c) vfmaq_n_{neon}(c, b, a)",
        ]
    return (
        "\n".join(
            [
                *lines,
                "#else",
                f"#define {fma}(a, b, c) ((a) * (b) + (c))",
                "#endif",
                f"typedef {kind} {name} __attribute__((vector_size({nbytes}), aligned({nbytes // lanes}), may_alias));",
                "#endif",
            ]
        )
        + "\n"
    )


def _tile(name: str, columns: _Columns, rows: int) -> str:
    """``c[r][n] = sum over k of a[r * a_row + k * a_step] * b[k * b_row + n]``."""
    kind, vector, lanes, vectors = _TYPES[columns.dtype], columns.vector, columns.lanes, columns.vectors
    width = lanes * vectors
    splits = max(1, 4 // (rows * vectors))
    about = "" if columns.stored is None else f" of {columns.stored}"
    zero = f"const {kind} *zero, " * columns.has_zero
    shape = f"{rows} row{'s' * (rows > 1)} of a, {width} columns{about} of b"
    lines = [
        f"/* c = a * b: {shape}, k products for each of the sums. */",
        f"static void {name}(int64_t k, const {kind} *a, int64_t a_row, int64_t a_step,",
        f"        const {columns.stored_type} *b, int64_t b_row, {zero}{kind} *c, int64_t c_row)",
        "{",
        "#if defined(__GNUC__)",
        *zero_sums(vector, rows, vectors, splits),
    ]
    if columns.has_zero:
        points = [f"z{column} = *(const {vector} *)(zero + {column * lanes})" for column in range(vectors)]
        lines.append(f"    const {vector} {', '.join(points)};")
    for steps in sorted({splits, 1}, reverse=True):
        lines.append(
            f"    for (; k >= {steps}; k -= {steps}, a += {_times(steps, 'a_step')}, b += {_times(steps, 'b_row')}) {{"
        )
        for split in range(steps):
            lines += _products(columns, rows, split)
        lines.append("    }")
    lines += [
        *_stores(columns, rows, splits),
        "#else",
        f"    for (int r = 0; r < {rows}; ++r) {{",
        f"        for (int n = 0; n < {width}; ++n) {{",
        f"            {kind} sum = 0;",
        f"            for (int64_t i = 0; i < k; ++i) sum += a[r * a_row + i * a_step] * {_element(columns)};",
        "            c[r * c_row + n] = sum;",
        "        }",
        "    }",
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _window_tile(name: str, columns: _Columns, rows: int) -> str:
    """``c[r][n] = sum over k and t of a[r * a_row + k * a_step + taps[t]] * b[(k * count + t) * b_row + n]``."""
    kind, vector, lanes, vectors = _TYPES[columns.dtype], columns.vector, columns.lanes, columns.vectors
    width = lanes * vectors
    lines = [
        f"/* c = a * b: {rows} window{'s' * (rows > 1)} on a, {width} columns of b, k * count products for each of the",
        "   sums. A window sees count places, its taps, of each of k parts of a. */",
        f"static void {name}(int64_t k, const {kind} *a, int64_t a_row, int64_t a_step,",
        f"        const int64_t *taps, int64_t count, const {kind} *b, int64_t b_row, {kind} *c, int64_t c_row)",
        "{",
        "#if defined(__GNUC__)",
        *zero_sums(vector, rows, vectors, 1),
        "    for (; k > 0; --k, a += a_step) {",
        "#pragma GCC unroll 1 /* unrolled, what several taps see would be kept in registers, which are all in use */",
        "        for (int64_t t = 0; t < count; ++t, b += b_row) {",
        f"            const {kind} *const seen = a + taps[t];",
        *(f"    {line}" for line in _products(columns, rows, 0, "seen")),
        "        }",
        "    }",
        *_stores(columns, rows, 1),
        "#else",
        f"    for (int r = 0; r < {rows}; ++r) {{",
        f"        for (int n = 0; n < {width}; ++n) {{",
        f"            {kind} sum = 0;",
        "            for (int64_t i = 0; i < k * count; ++i)",
        "                sum += a[r * a_row + i / count * a_step + taps[i % count]] * b[i * b_row + n];",
        "            c[r * c_row + n] = sum;",
        "        }",
        "    }",
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _stores(columns: _Columns, rows: int, splits: int) -> Iterator[str]:
    """The sums into memory; those that were split are joined."""
    for row in range(rows):
        for column in range(columns.vectors):
            total = " + ".join(sum_name(row, column, split) for split in range(splits))
            yield f"    *({columns.vector} *)(c + {row} * c_row + {column * columns.lanes}) = {total};"


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} * {name}"


def sum_name(row: int, column: int, split: int) -> str:
    """What a vector of sums is called; one of several that are joined at the end."""
    return f"s{row}_{column}" if split == 0 else f"s{row}_{column}_{split}"


def zero_sums(vector: str, rows: int, vectors: int, splits: int) -> list[str]:
    """A line for each row: its sums, all zero."""
    lines = []
    for row in range(rows):
        names = [sum_name(row, column, split) for column in range(vectors) for split in range(splits)]
        lines.append(f"    {vector} {', '.join(f'{name} = {{0}}' for name in names)};")
    return lines


def _element(columns: _Columns) -> str:
    """The same without vectors: the number in a column."""
    zero = " - zero[n]" * columns.has_zero
    if columns.stored is None:
        return "b[i * b_row + n]"
    if columns.stored in ("i8", "u8"):
        return f"((float)b[i * b_row + n]{zero})"
    lanes, flip = columns.lanes, " ^ 8" * (columns.stored == "i4")
    byte = f"b[i * b_row + n / {2 * lanes} * {lanes} + n % {lanes}]"
    return f"({SHIFT}f + (float)((({byte} >> (n / {lanes} % 2 * 4)) & 15){flip}){zero})"


def _products(columns: _Columns, rows: int, split: int, left: str = "a") -> list[str]:
    """One step of all sums: the columns are loaded once, every row's number meets all of them."""
    vector, fma, vectors = columns.vector, f"oi_fma_{columns.dtype}x{columns.lanes}", columns.vectors
    mark = f"_{split}" if split else ""
    at = "" if split == 0 else f" + {_times(split, 'b_row')}"
    loads = [f"b{column}{mark} = {columns.loaded(column, at)}" for column in range(vectors)]
    lines = [f"        const {vector} {', '.join(loads)};"]
    for row in range(rows):
        ahead = f" + {_times(split, 'a_step')}" if split else ""
        factor = f"{left}[{row} * a_row{ahead}]"
        steps = [
            f"{sum_name(row, column, split)} = {fma}({factor}, b{column}{mark}, {sum_name(row, column, split)});"
            for column in range(vectors)
        ]
        lines.append(f"        {' '.join(steps)}")
    return lines
