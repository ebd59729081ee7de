"""Inner loops of contractions in C: tiles of accumulators that stay in registers.

Vectors are those of GNU C, which gcc and clang have for every processor; other compilers get plain loops. Products may
be added with an FMA: the order and the roundings of sums are free within their error bound. Nothing else in generated
code is contracted, so FMAs are called by name rather than enabled by an option.

Columns may be stored as integers, which are converted to floats as they are loaded, minus a zero point per column; or
as 16-bit floats. Rows may be windows: then each step runs over the list of a window's offsets.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from openinfer.synth.targets.cpu.emit.places import ahead, place, row_of, vector_at
from openinfer.synth.targets.cpu.intrinsics import Intrinsic, chosen, sets_of
from openinfer.synth.targets.cstyle.support import Need

ELEMENTS = {"f32": "float", "f64": "double", "i8": "int8_t", "u8": "uint8_t"}
"""The C types of the elements that tiles multiply."""
SHIFT = 8388608.0
"""The bias of loaded 4-bit integers: the zero points of their columns must include it, too."""
_TYPES = {"i8": "int8_t", "f16": "uint16_t", "bf16": "uint16_t"}
"""The C types of stored columns; all others are bytes."""
_HALVES = ("_low", "_high")
"""The suffixes for the two elements that share a byte."""


@dataclass(frozen=True)
class VectorType:
    """A vector of floats, and the fused multiply-add of a scalar and two vectors."""

    dtype: str
    lanes: int

    @property
    def name(self) -> str:
        """The type."""
        return f"oi_{self.dtype}x{self.lanes}"

    @property
    def fma(self) -> str:
        """The macro."""
        return f"oi_fma_{self.dtype}x{self.lanes}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Nothing."""
        return ()

    @property
    def text(self) -> str:
        """Both definitions, for GNU C."""
        each = 4 if self.dtype == "f32" else 8
        nbytes = self.lanes * each
        traits = f"vector_size({nbytes}), aligned({each}), may_alias"
        found = [(one.header, one.fma[self.dtype]) for one in sets_of(nbytes) if self.dtype in one.fma]
        head = f"#define {self.fma}(a, b, c)"
        lines = chosen(found, lambda one: [f"{head} {one.forms[0]}"], [f"{head} ((a) * (b) + (c))"])
        own = f"typedef {ELEMENTS[self.dtype]} {self.name} __attribute__(({traits}));"
        return "\n".join(["#if defined(__GNUC__)", *lines, own, "#endif"]) + "\n"


@dataclass(frozen=True)
class IntegerLoad:
    """Loads of integers as vectors of floats; for 4-bit integers, of the low or the high nibbles of bytes.

    4-bit integers are loaded as values from 0 to 15, which for an i4 is 8 more than its value, plus ``SHIFT``: such a
    float has them in its last bits, so no conversion is needed.
    """

    stored: str
    lanes: int

    @property
    def name(self) -> str:
        """The macro; for nibbles, the prefix of their macros."""
        return f"oi_load_{self.stored}_f32x{self.lanes}"

    def half(self, number: int) -> str:
        """The macro for the low or the high nibbles."""
        return f"{self.name}{_HALVES[number]}"

    @property
    def vector(self) -> VectorType:
        """The type of the loaded vector."""
        return VectorType("f32", self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector."""
        return (self.vector,)

    @property
    def text(self) -> str:
        """The macro, or those of the nibbles."""
        shifted = {"i4": "2^23 + 8 + n", "u4": "2^23 + n"}.get(self.stored)
        about = "Bytes as floats."
        plain = {self.name: "(float)(p)[{}]"}
        if shifted is not None:
            halves = "4-bit integers n from the low or high nibbles of bytes"
            about = f"{halves}, as {shifted}: a float with n in its lowest bits."
            flip, codes = " ^ 8" * (self.stored == "i4"), ("(p)[{}] & 15", "(p)[{}] >> 4")
            plain = {self.half(at): f"{SHIFT}f + (float)(({code}){flip})" for at, code in enumerate(codes)}
        # The vector's own definition includes the header, if it needs one.
        sets = [one for one in sets_of(self.lanes * 4) if self.stored in one.loads]
        found = [(None if "f32" in one.fma else one.header, one.loads[self.stored]) for one in sets]
        lines = chosen(found, partial(self._fast, tuple(plain)), [self._plain(*one) for one in plain.items()])
        return "\n".join([f"/* {about} */", "#if defined(__GNUC__)", *lines, "#endif"]) + "\n"

    def _fast(self, names: Sequence[str], one: Intrinsic) -> list[str]:
        pairs = zip(names, one.forms, strict=True)
        return [f"#define {name}(p) {form.format(vector=self.vector.name)}" for name, form in pairs]

    def _plain(self, name: str, text: str) -> str:
        elements = ", ".join(text.format(lane) for lane in range(self.lanes))
        return f"#define {name}(p) (({self.vector.name}){{ {elements} }})"


@dataclass(frozen=True)
class NibbleLoad:
    """Loads of 4-bit integers as vectors of floats: the low nibbles of bytes, and 16 times the high nibbles.

    No zero point is subtracted, and nothing is shifted: what they are multiplied with later is divided by 16.
    """

    stored: str
    lanes: int

    def half(self, number: int) -> str:
        """The macro for the low or the high nibbles."""
        return f"{self.name}{_HALVES[number]}"

    @property
    def name(self) -> str:
        """The prefix of the macros."""
        return f"oi_floats_{self.stored}_f32x{self.lanes}"

    @property
    def vector(self) -> VectorType:
        """The type of the loaded vector."""
        return VectorType("f32", self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector."""
        return (self.vector,)

    @property
    def text(self) -> str:
        """Both macros."""
        about = "4-bit integers as floats: the low nibbles of bytes, and 16 times the high nibbles."
        sets = [one for one in sets_of(self.lanes * 4) if self.stored in one.halves]
        found = [(None if "f32" in one.fma else one.header, one.halves[self.stored]) for one in sets]
        lines = chosen(found, self._fast, [self._plain(number) for number in range(2)])
        return "\n".join([f"/* {about} */", "#if defined(__GNUC__)", *lines, "#endif"]) + "\n"

    def _fast(self, one: Intrinsic) -> list[str]:
        pairs = enumerate(one.forms)
        return [f"#define {self.half(number)}(p) {form.format(vector=self.vector.name)}" for number, form in pairs]

    def _plain(self, number: int) -> str:
        mask, first = (240, 128) if number else (15, 8)
        is_signed = self.stored == "i4"
        texts = [f"(float)(((p)[{lane}] & {mask}){f' ^ {first}' * is_signed})" for lane in range(self.lanes)]
        numbers = f"({self.vector.name}){{ {', '.join(texts)} }}"
        return f"#define {self.half(number)}(p) ({numbers}{f' - {float(first)}f' * is_signed})"


@dataclass(frozen=True)
class HalfLoad:
    """The load of 16-bit floats as a vector of floats."""

    stored: str
    lanes: int

    @property
    def name(self) -> str:
        """The macro."""
        return f"oi_load_{self.stored}_f32x{self.lanes}"

    @property
    def vector(self) -> VectorType:
        """The type of the loaded vector."""
        return VectorType("f32", self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector, and the conversion of a single element."""
        return (self.vector, f"oi_from_{self.stored}")

    @property
    def text(self) -> str:
        """Its definition."""
        found = [
            (None if "f32" in one.fma else one.header, one.loads[self.stored])
            for one in sets_of(self.lanes * 4)
            if self.stored in one.loads
        ]
        elements = ", ".join(f"oi_from_{self.stored}((p)[{lane}])" for lane in range(self.lanes))
        plain = [f"#define {self.name}(p) (({self.vector.name}){{ {elements} }})"]
        lines = chosen(found, self._fast, plain)
        return "\n".join(["/* 16-bit floats as f32. */", "#if defined(__GNUC__)", *lines, "#endif"]) + "\n"

    def _fast(self, one: Intrinsic) -> list[str]:
        return [f"#define {self.name}(p) {one.forms[0].format(vector=self.vector.name)}"]


@dataclass(frozen=True)
class FloatTile:
    """The function that computes tiles of rows and vectors of columns.

    ``stored`` is the dtype of columns of integers, which may have a zero point each, or of 16-bit floats. With
    ``is_window`` rows are windows.
    """

    dtype: str
    lanes: int
    rows: int
    vectors: int
    stored: str | None = None
    has_zero: bool = False
    is_window: bool = False
    is_bare: bool = False
    """Whether 4-bit integers are loaded without a bias, odd vectors as 16 times their value: see ``NibbleLoad``."""

    left: str | None = None
    """The dtype of rows of 16-bit floats, each of which is converted as it is read."""
    has_half: bool = False
    """Whether the last vector has half as many lanes."""

    @property
    def name(self) -> str:
        """The function."""
        own = "" if self.stored is None else f"_{self.stored}{'_zero' * self.has_zero}"
        wide = f"{self.vectors - 1}h" if self.has_half else str(self.vectors)
        return f"oi_tile_{self.dtype}x{self.lanes}_{self.rows}x{wide}{own}{'_window' * self.is_window}"

    @property
    def vector(self) -> VectorType:
        """The type of its sums."""
        return VectorType(self.dtype, self.lanes)

    def vector_of(self, column: int) -> VectorType:
        """The type of the sums for one vector of columns."""
        is_half = self.has_half and column == self.vectors - 1
        return VectorType(self.dtype, self.lanes // 2) if is_half else self.vector

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.lanes * self.vectors - self.lanes // 2 * self.has_half

    @property
    def needs(self) -> tuple[Need, ...]:
        """Its vectors, and their loads."""
        own = dict.fromkeys(map(self.vector_of, range(self.vectors)))
        found: list[Need] = [self.vector, *own, *([] if self.stored is None else [self._load(self.stored)])]
        return (*found, *([] if self.left is None else [f"oi_from_{self.left}"]))

    def _load(self, stored: str) -> IntegerLoad | NibbleLoad | HalfLoad:
        if stored in ("f16", "bf16"):
            return HalfLoad(stored, self.lanes)
        return NibbleLoad(stored, self.lanes) if self.is_bare else IntegerLoad(stored, self.lanes)

    @property
    def text(self) -> str:
        """Its definition."""
        return _window_tile(self) if self.is_window else _tile(self)

    @property
    def stored_type(self) -> str:
        """The type of an element in memory; for 4-bit elements, of two."""
        return ELEMENTS[self.dtype] if self.stored is None else _TYPES.get(self.stored, "uint8_t")

    @property
    def row_stride(self) -> str:
        """The parameter for the stride of rows; a single row has none."""
        return "int64_t a_row, " * (self.rows > 1)

    @property
    def sum_stride(self) -> str:
        """The same for rows of sums, as the last parameter."""
        return ", int64_t c_row" * (self.rows > 1)

    @property
    def left_type(self) -> str:
        """The type of an element of the rows in memory."""
        return ELEMENTS[self.dtype] if self.left is None else _TYPES[self.left]

    def number(self, text: str) -> str:
        """An element of a row, as a float."""
        return text if self.left is None else f"oi_from_{self.left}({text})"

    def loaded(self, column: int, step: int) -> str:
        """A vector of a row of columns some steps away, as floats."""
        if self.stored is None:
            vector = f"const {self.vector_of(column).name}"
            return vector_at(vector, "b", (step, "b_row"), more=column * self.lanes)
        load = self._load(self.stored)
        if not isinstance(load, HalfLoad) and self.stored in ("i4", "u4"):
            first, name = column // 2 * self.lanes, load.half(column % 2)
        else:
            first, name = column * self.lanes, load.name
        text = f"{name}({ahead('b', (step, 'b_row'), more=first)})"
        return f"{text} - z{column}" if self.has_zero else text


def _tile(tile: FloatTile) -> str:
    """``c[r][n] = sum over k of a[r * a_row + k * a_step] * b[k * b_row + n]``."""
    kind, vector, rows, vectors = ELEMENTS[tile.dtype], tile.vector.name, tile.rows, tile.vectors
    row, left = row_of(rows), f"a[{place((row_of(rows), 'a_row'), ('i', 'a_step'))}]"
    splits = max(1, 4 // (rows * vectors))
    about = "" if tile.stored is None else f" of {tile.stored}"
    zero = f"const {kind} *zero, " * tile.has_zero
    shape = f"{rows} row{'s' * (rows > 1)} of a, {tile.width} columns{about} of b"
    lines = [
        f"/* c = a * b: {shape}, k products per sum. */",
        f"static void {tile.name}(int64_t k, const {kind} *a, {tile.row_stride}int64_t a_step,",
        f"        const {tile.stored_type} *b, int64_t b_row, {zero}{kind} *c{tile.sum_stride})",
        "{",
        "#if defined(__GNUC__)",
        *zero_tile(tile, splits),
    ]
    if tile.has_zero:
        starts = [vector_at(f"const {vector}", "zero", more=column * tile.lanes) for column in range(vectors)]
        points = [f"z{column} = {start}" for column, start in enumerate(starts)]
        lines.append(f"    const {vector} {', '.join(points)};")
    for steps in sorted({splits, 1}, reverse=True):
        head = "k > 0; --k" if steps == 1 else f"k >= {steps}; k -= {steps}"
        lines.append(f"    for (; {head}, a += {place((steps, 'a_step'))}, b += {place((steps, 'b_row'))}) {{")
        for split in range(steps):
            lines += products(tile, split)
        lines.append("    }")
    lines += [
        *stores(tile, splits),
        "#else",
        *each_row(
            rows,
            f"for (int n = 0; n < {tile.width}; ++n) {{",
            f"    {kind} sum = 0;",
            f"    for (int64_t i = 0; i < k; ++i) sum += {left} * {element(tile)};",
            f"    c[{place((row, 'c_row'), ('n', 1))}] = sum;",
            "}",
        ),
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _window_tile(tile: FloatTile) -> str:
    """``c[r][n] = sum over k and t of a[r * a_row + k * a_step + taps[t]] * b[(k * count + t) * b_row + n]``."""
    taps = "const int64_t *taps, int64_t count, "
    kind, rows, row = ELEMENTS[tile.dtype], tile.rows, row_of(tile.rows)
    about = "" if tile.stored is None else f" of {tile.stored}"
    taken = place((row, "a_row"), ("i / count", "a_step"), ("taps[i % count]", 1))
    shape = f"{rows} window{'s' * (rows > 1)} on a, {tile.width} columns{about} of b"
    lines = [
        f"/* c = a * b: {shape}, k * count products per",
        "   sum. A window has count taps in each of k slices of a. */",
        f"static void {tile.name}(int64_t k, const {kind} *a, {tile.row_stride}int64_t a_step,",
        f"        {taps}const {tile.stored_type} *b, int64_t b_row, {kind} *c{tile.sum_stride})",
        "{",
        "#if defined(__GNUC__)",
        *zero_tile(tile, 1),
        "    for (; k > 0; --k, a += a_step) {",
        "#pragma GCC unroll 1 /* if unrolled, the elements of several taps would exceed the registers */",
        "        for (int64_t t = 0; t < count; ++t, b += b_row) {",
        f"            const {kind} *const seen = a + taps[t];",
        *(f"    {line}" for line in products(tile, 0, "seen")),
        "        }",
        "    }",
        *stores(tile, 1),
        "#else",
        *each_row(
            rows,
            f"for (int n = 0; n < {tile.width}; ++n) {{",
            f"    {kind} sum = 0;",
            "    for (int64_t i = 0; i < k * count; ++i)",
            f"        sum += a[{taken}] * {element(tile)};",
            f"    c[{place((row, 'c_row'), ('n', 1))}] = sum;",
            "}",
        ),
        "#endif",
        "}",
    ]
    return "\n".join(lines) + "\n"


def stores(tile: FloatTile, splits: int) -> Iterator[str]:
    """Stores the sums; split accumulators are combined."""
    for row in range(tile.rows):
        for column in range(tile.vectors):
            total = " + ".join(sum_name(row, column, split) for split in range(splits))
            to = vector_at(tile.vector_of(column).name, "c", (row, "c_row"), more=column * tile.lanes)
            yield f"    {to} = {total};"


def each_row(rows: int, *lines: str) -> Iterator[str]:
    r"""Lines for each row of a tile, in plain C; a single row has no loop, and nothing that is called ``r``.

    >>> print(*each_row(2, "c[r] = 0;"), sep="\n")
        for (int r = 0; r < 2; ++r) {
            c[r] = 0;
        }
    """
    if rows > 1:
        yield f"    for (int r = 0; r < {rows}; ++r) {{"
    pad = "        " if rows > 1 else "    "
    yield from (pad + line for line in lines)
    if rows > 1:
        yield "    }"


def sum_name(row: int, column: int, split: int) -> str:
    """The name of a vector of accumulators; those of different splits are combined at the end."""
    return f"s{row}_{column}" if split == 0 else f"s{row}_{column}_{split}"


def zero_sums(vector: str, rows: int, vectors: int, splits: int) -> list[str]:
    """A line per row that declares its accumulators, all zero."""
    lines = []
    for row in range(rows):
        names = [sum_name(row, column, split) for column in range(vectors) for split in range(splits)]
        lines.append(f"    {vector} {', '.join(f'{name} = {{0}}' for name in names)};")
    return lines


def zero_tile(tile: FloatTile, splits: int) -> list[str]:
    """The same for the accumulators of a tile, the last of which may be half as wide."""
    if not tile.has_half:
        return zero_sums(tile.vector.name, tile.rows, tile.vectors, splits)
    last = tile.vectors - 1
    names = [sum_name(row, last, split) for row in range(tile.rows) for split in range(splits)]
    half = f"    {tile.vector_of(last).name} {', '.join(f'{name} = {{0}}' for name in names)};"
    return [*(zero_sums(tile.vector.name, tile.rows, last, splits) if last else []), half]


def element(tile: FloatTile) -> str:
    """The element in a column, without vectors, minus a zero point."""
    zero = " - zero[n]" * tile.has_zero
    if tile.stored is None:
        return "b[i * b_row + n]"
    if tile.stored in ("f16", "bf16"):
        return f"oi_from_{tile.stored}(b[i * b_row + n])"
    if tile.stored in ("i8", "u8"):
        return f"((float)b[i * b_row + n]{zero})"
    lanes, flip = tile.lanes, " ^ 8" * (tile.stored == "i4")
    byte = f"b[i * b_row + n / {2 * lanes} * {lanes} + n % {lanes}]"
    code = f"(float)((({byte} >> (n / {lanes} % 2 * 4)) & 15){flip})"
    return f"({code}{' - 8.0f' * bool(flip)})" if tile.is_bare else f"({SHIFT}f + {code}{zero})"


def products(tile: FloatTile, split: int, left: str = "a") -> list[str]:
    """One step of all sums: loads the columns once, and multiplies them with the element of each row."""
    vectors = tile.vectors
    mark = f"_{split}" if split else ""
    lines = []
    for kind in dict.fromkeys(map(tile.vector_of, range(vectors))):
        own = [column for column in range(vectors) if tile.vector_of(column) == kind]
        loads = [f"b{column}{mark} = {tile.loaded(column, split)}" for column in own]
        lines.append(f"        const {kind.name} {', '.join(loads)};")
    for row in range(tile.rows):
        factor = tile.number(f"{left}[{place((row, 'a_row'), (split, 'a_step'))}]")
        steps = [
            f"{name} = {tile.vector_of(column).fma}({factor}, b{column}{mark}, {name});"
            for column in range(vectors)
            for name in [sum_name(row, column, split)]
        ]
        lines.append(f"        {' '.join(steps)}")
    return lines
