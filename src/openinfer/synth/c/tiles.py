"""The inner loops of contractions in C: tiles of sums that stay in registers.

Vectors are those of GNU C, which gcc and clang have for every processor; other compilers get plain loops. A product may
be added without rounding in between (FMA): the order and the roundings of sums are free within their bound. Nothing
else in generated code is contracted, so this is asked for by name and not by an option.
"""

import re

_TILE = re.compile(r"oi_tile_(f32|f64)x(\d+)_(\d+)x(\d+)")
_VECTOR = re.compile(r"oi_(f32|f64)x(\d+)")
_TYPES = {"f32": "float", "f64": "double"}


def tile_name(dtype: str, lanes: int, rows: int, vectors: int) -> str:
    """The function that computes tiles of so many rows and vectors."""
    return f"oi_tile_{dtype}x{lanes}_{rows}x{vectors}"


def tile_support(name: str) -> tuple[tuple[str, ...], str] | None:
    """What a function or type of this name needs, and its text; None where the name is none of these."""
    tile, vector = _TILE.fullmatch(name), _VECTOR.fullmatch(name)
    if tile is not None:
        return (f"oi_{tile[1]}x{tile[2]}",), _tile(name, tile[1], int(tile[2]), int(tile[3]), int(tile[4]))
    return ((), _vector(name, vector[1], int(vector[2]))) if vector is not None else None


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


def _tile(name: str, dtype: str, lanes: int, rows: int, vectors: int) -> str:
    """``c[r][n] = sum over k of a[r * a_row + k * a_step] * b[k * b_row + n]``."""
    kind, vector, width = _TYPES[dtype], f"oi_{dtype}x{lanes}", lanes * vectors
    splits = max(1, 4 // (rows * vectors))
    lines = [
        f"/* c = a * b: {rows} row{'s' * (rows > 1)} of a, {width} columns of b, k products for each of the sums. */",
        f"static void {name}(int64_t k, const {kind} *a, int64_t a_row, int64_t a_step,",
        f"        const {kind} *b, int64_t b_row, {kind} *c, int64_t c_row)",
        "{",
        "#if defined(__GNUC__)",
        *_sums(vector, rows, vectors, splits),
    ]
    for steps in sorted({splits, 1}, reverse=True):
        lines.append(
            f"    for (; k >= {steps}; k -= {steps}, a += {_times(steps, 'a_step')}, b += {_times(steps, 'b_row')}) {{"
        )
        for split in range(steps):
            lines += _products(dtype, lanes, rows, vectors, split)
        lines.append("    }")
    for row in range(rows):
        for column in range(vectors):
            total = " + ".join(_sum(row, column, split) for split in range(splits))
            lines.append(f"    *({vector} *)(c + {row} * c_row + {column * lanes}) = {total};")
    lines += [
        "#else",
        f"    for (int r = 0; r < {rows}; ++r) {{",
        f"        for (int n = 0; n < {width}; ++n) {{",
        f"            {kind} sum = 0;",
        "            for (int64_t i = 0; i < k; ++i) sum += a[r * a_row + i * a_step] * b[i * b_row + n];",
        "            c[r * c_row + n] = sum;",
        "        }",
        "    }",
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} * {name}"


def _sum(row: int, column: int, split: int) -> str:
    return f"s{row}_{column}" if split == 0 else f"s{row}_{column}_{split}"


def _sums(vector: str, rows: int, vectors: int, splits: int) -> list[str]:
    """A line for each row: its sums, all zero."""
    lines = []
    for row in range(rows):
        names = [_sum(row, column, split) for column in range(vectors) for split in range(splits)]
        lines.append(f"    {vector} {', '.join(f'{name} = {{0}}' for name in names)};")
    return lines


def _products(dtype: str, lanes: int, rows: int, vectors: int, split: int) -> list[str]:
    """One step of all sums: the columns are loaded once, every row's number meets all of them."""
    vector, fma = f"oi_{dtype}x{lanes}", f"oi_fma_{dtype}x{lanes}"
    mark = f"_{split}" if split else ""
    at = "" if split == 0 else f" + {_times(split, 'b_row')}"
    loads = [
        f"b{column}{mark} = *(const {vector} *)(b{at}{f' + {column * lanes}' if column else ''})"
        for column in range(vectors)
    ]
    lines = [f"        const {vector} {', '.join(loads)};"]
    for row in range(rows):
        ahead = f" + {_times(split, 'a_step')}" if split else ""
        factor = f"a[{row} * a_row{ahead}]"
        steps = [
            f"{_sum(row, column, split)} = {fma}({factor}, b{column}{mark}, {_sum(row, column, split)});"
            for column in range(vectors)
        ]
        lines.append(f"        {' '.join(steps)}")
    return lines
