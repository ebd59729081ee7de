"""Inner loops of byte contractions in C: tiles of i32 accumulators that stay in registers.

Four adjacent elements along a sum form a group of 32 bits: that of a row is broadcast to a vector, those of columns are
in its lanes. AVX-512 VNNI multiplies a u8 and an i8 and adds all four products; elsewhere bytes are widened to 16 bits,
multiplied and added in pairs, which is exact as well, or one at a time. Sums wrap: they are unsigned.
"""

from dataclasses import dataclass

from openinfer.synth.targets.cpu.byte_products import FLIP, GROUP
from openinfer.synth.targets.cpu.emit.places import ahead, place, row_of, vector_at
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS, each_row, sum_name, zero_sums
from openinfer.synth.targets.cpu.intrinsics import chosen, sets_of
from openinfer.synth.targets.cstyle.support import Need

# --- vectors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupVector:
    """Lanes of 32 bits: accumulators, or groups of four bytes."""

    lanes: int

    @property
    def name(self) -> str:
        """The type."""
        return f"oi_u32x{self.lanes}"

    @property
    def spread(self) -> str:
        """The macro that broadcasts four bytes to every lane."""
        return f"oi_spread_x{self.lanes}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Nothing."""
        return ()

    @property
    def text(self) -> str:
        """The type, its signed version, and the macro."""
        lanes, traits = self.lanes, "aligned(1), may_alias"
        return f"""#if defined(__GNUC__)
typedef uint32_t {self.name} __attribute__((vector_size({lanes * 4}), {traits}));
typedef int32_t oi_i32x{lanes} __attribute__((vector_size({lanes * 4}), {traits}));
typedef uint32_t oi_fours_x{lanes} __attribute__(({traits}));
/* Broadcasts four bytes to every lane. */
#define {self.spread}(p) (*(const oi_fours_x{lanes} *)(p) - ({self.name}){{0}})
#endif
"""


@dataclass(frozen=True)
class Dot:
    """The macro that adds the four products in each lane of two vectors, of these dtypes, to accumulators."""

    left: str
    right: str
    lanes: int

    @property
    def name(self) -> str:
        """The macro."""
        return f"oi_dot_{self.left}{self.right}x{self.lanes}"

    @property
    def vector(self) -> GroupVector:
        """The type of its operands and of its result."""
        return GroupVector(self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector."""
        return (self.vector,)

    @property
    def text(self) -> str:
        """Its definition, with instructions or in plain arithmetic."""
        head = f"#define {self.name}(a, b, s)"
        about = "/* Adds the four products of a and b in each lane to the sums s. */"
        sets = [(one.header, one.dots.get((self.left, self.right), ())) for one in sets_of(self.lanes * 4)]
        found = [(header, one) for header, dots in sets for one in dots]
        terms = [
            f"{_byte(self.left, 'a', at, self.lanes)} * {_byte(self.right, 'b', at, self.lanes)}" for at in range(GROUP)
        ]
        plain = f"{head} ((s) + " + " \\\n    + ".join(terms) + ")"
        name = self.vector.name
        lines = chosen(found, lambda one: [f"{head} {one.forms[0].format(vector=name)}"], [plain])
        return "\n".join([about, "#if defined(__GNUC__)", *lines, "#endif"]) + "\n"


def _byte(dtype: str, value: str, at: int, lanes: int) -> str:
    """One byte of each lane, extended to 32 bits."""
    if dtype == "u8":
        return f"(({value}) >> {8 * at} & 255)"
    return f"(oi_u32x{lanes})((oi_i32x{lanes})(({value}) << {24 - 8 * at}) >> 24)"


# --- tiles ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OfBytes:
    """A function over rows of one dtype and vectors of columns of another."""

    left: str
    right: str
    lanes: int

    @property
    def dot(self) -> Dot:
        """The dot product that it accumulates."""
        return Dot(self.left, self.right, self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The dot product."""
        return (self.dot,)


@dataclass(frozen=True)
class ByteTile(_OfBytes):
    """The function that computes tiles of rows of one dtype and vectors of columns of another."""

    rows: int
    vectors: int

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_tile_{self.left}{self.right}x{self.lanes}_{self.rows}x{self.vectors}"

    @property
    def text(self) -> str:
        """Its definition."""
        return _tile(self)


@dataclass(frozen=True)
class Flips(_OfBytes):
    """The function that computes what flipped rows add to the sums of vectors of columns."""

    vectors: int

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_flips_{self.left}{self.right}x{self.lanes}_{self.vectors}"

    @property
    def text(self) -> str:
        """Its definition."""
        return _flips(self)


def _tile(tile: ByteTile) -> str:
    """``c[r][n] = sum over k and j of a[r][k][j] * b[k][n][j]``."""
    vector, rows, vectors = tile.dot.vector.name, tile.rows, tile.vectors
    width = tile.lanes * vectors
    splits = max(1, 4 // (rows * vectors))
    shape = f"{rows} row{'s' * (rows > 1)} of {tile.left} in a, {width} columns of {tile.right} in b"
    lines = [
        f"/* c = a * b: {shape}, 4 * k products per sum. */",
        f"static void {tile.name}(int64_t k, const {ELEMENTS[tile.left]} *a,{' int64_t a_row,' * (rows > 1)}",
        f"        const {ELEMENTS[tile.right]} *b, int32_t *c, int64_t width)",
        "{",
        "#if defined(__GNUC__)",
        *zero_sums(vector, rows, vectors, splits),
    ]
    for steps in sorted({splits, 1}, reverse=True):
        head = "k > 0; --k" if steps == 1 else f"k >= {steps}; k -= {steps}"
        lines.append(f"    for (; {head}, a += {GROUP * steps}, b += {GROUP * steps} * width) {{")
        for split in range(steps):
            lines += _products(tile, split)
        lines.append("    }")
    for row in range(rows):
        for column in range(vectors):
            total = " + ".join(sum_name(row, column, split) for split in range(splits))
            lines.append(f"    {vector_at(vector, 'c', (row, 'width'), more=column * tile.lanes)} = {total};")
    own = row_of(rows)
    left = f"a[{place((own, 'a_row'), ('i', 1))}]"
    element = f"(uint32_t){left} * (uint32_t)b[i / {GROUP} * {GROUP} * width + {GROUP} * n + i % {GROUP}]"
    lines += [
        "#else",
        *each_row(
            rows,
            f"for (int n = 0; n < {width}; ++n) {{",
            "    uint32_t sum = 0;",
            f"    for (int64_t i = 0; i < {GROUP} * k; ++i) sum += {element};",
            f"    c[{place((own, 'width'), ('n', 1))}] = (int32_t)sum;",
            "}",
        ),
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _products(tile: ByteTile, split: int) -> list[str]:
    """One group of all sums: loads the columns once, and multiplies them with the four bytes of each row."""
    vector, dot, mark = tile.dot.vector, tile.dot.name, f"_{split}" if split else ""
    kind, above = f"const {vector.name}", (GROUP * split, "width")
    starts = [vector_at(kind, "b", above, more=GROUP * tile.lanes * column) for column in range(tile.vectors)]
    loads = [f"b{column}{mark} = {start}" for column, start in enumerate(starts)]
    lines = [f"        const {vector.name} {', '.join(loads)};"]
    for row in range(tile.rows):
        first = ahead("a", (row, "a_row"), more=GROUP * split)
        sums = [(sum_name(row, column, split), f"b{column}{mark}") for column in range(tile.vectors)]
        steps = [f"{total} = {dot}(a{row}{mark}, {loaded}, {total});" for total, loaded in sums]
        lines.append(f"        const {vector.name} a{row}{mark} = {vector.spread}({first});")
        lines.append(f"        {' '.join(steps)}")
    return lines


def _flips(flips: Flips) -> str:
    """The sums of a row in which every byte is just the flipped bit."""
    vector, dot, lanes, vectors = flips.dot.vector.name, flips.dot.name, flips.lanes, flips.vectors
    width = lanes * vectors
    byte = FLIP if flips.left == "u8" else -FLIP
    bits = f"{FLIP * 0x01010101:#x}u"
    lines = [
        f"/* c = {byte} times the sums of {width} columns of {flips.right} in b, 4 * k elements each. */",
        f"static void {flips.name}(int64_t k, const {ELEMENTS[flips.right]} *b, int32_t *c)",
        "{",
        "#if defined(__GNUC__)",
        f"    const {vector} flip = {bits} - ({vector}){{0}};",
        *zero_sums(vector, 1, vectors, 1),
        f"    for (; k > 0; --k, b += {GROUP * width}) {{",
    ]
    for column in range(vectors):
        total, read = sum_name(0, column, 0), vector_at(f"const {vector}", "b", more=GROUP * lanes * column)
        lines.append(f"        {total} = {dot}(flip, {read}, {total});")
    lines.append("    }")
    places = [vector_at(vector, "c", more=column * lanes) for column in range(vectors)]
    lines += [f"    {to} = {sum_name(0, column, 0)};" for column, to in enumerate(places)]
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


@dataclass(frozen=True)
class Grouping:
    """The function that groups a panel of columns: ``to[k][n][j] = from[k][j][n]``."""

    dtype: str
    columns: int

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_group_{self.dtype}x{self.columns}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Nothing."""
        return ()

    @property
    def text(self) -> str:
        """Its definition."""
        kind, columns = ELEMENTS[self.dtype], self.columns
        return f"""/* Interleaves lines of {columns} columns, four at a time: to[k][n][j] = from[k][j][n]. */
static void {self.name}(int64_t k, const {kind} *restrict from, {kind} *restrict to)
{{
    for (; k > 0; --k, from += {GROUP * columns}, to += {GROUP * columns}) {{
        for (int n = 0; n < {columns}; ++n) {{
            for (int j = 0; j < {GROUP}; ++j) to[{GROUP} * n + j] = from[j * {columns} + n];
        }}
    }}
}}
"""
