"""Contractions in C as loops over tiles.

Columns are taken a panel at a time, rows a tile at a time; a function of the support code computes the sums of a tile,
and the epilogue makes results of them where they are stored. Factors that cannot be read where they lie are copied into
scratch memory first: a panel of columns, or a block of rows. What falls outside a window is copied as 0.
"""

from collections.abc import Sequence
from typing import Literal

from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast, flat
from openinfer.loops.cse import named
from openinfer.loops.dim import is_same, is_symbolic, most_elements
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Binary,
    Buffer,
    Const,
    Contraction,
    Scalar,
    Var,
)
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.blocked import BLOCK as TERMS
from openinfer.synth.targets.cpu.emit.panels import (
    BLOCK,
    COLUMN,
    PAD,
    PANEL,
    ROW,
    TILE_ROW,
    PanelPrinter,
    loop,
    moved,
    number,
    offset_from,
)
from openinfer.synth.targets.cpu.emit.parts import share
from openinfer.synth.targets.cpu.emit.tiles import FloatTile, Transpose
from openinfer.synth.targets.cpu.product import as_one, tiled_product
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cpu.tile_shapes import row_sizes
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter


def tiled(one: Contraction, tile: CpuTile, scalars: ScalarPrinter, parts: int) -> list[str]:
    """The lines of a contraction that has a tile, in a kernel of so many parts."""
    return TilePrinter(one, tile, tiled_product(one, tile), scalars, parts).run()


class TilePrinter(PanelPrinter):
    """The loops over tiles, and the epilogue."""

    def run(self) -> list[str]:
        """The lines of the contraction."""
        product = self._product
        self._say(
            f"/* In tiles of {self._tile.rows} row{'s' * (self._tile.rows > 1)} and {self._tile.columns} columns:"
            f" {number(product.rows.extent)} x {number(product.inner.extent)}"
            f" times {number(product.inner.extent)} x {number(product.columns.extent)}. */"
        )
        self._open_loops(inside=False)
        if self._tile.left is not None:
            self._blocks(self._tile.left)
        else:
            self._panels(product.rows.extent)
        while self._depth:
            self._close()
        return self._lines

    # --- loops ----------------------------------------------------------------------------------------------------

    def _open_loops(self, *, inside: bool) -> int:
        """The loops over indices outside of tiles; of turned tiles, those over places are inside of a panel's."""
        outside = self._product.outside
        panels = variables(self._product.right.value) if self._tile.is_turned else {var.name for var in outside.vars}
        pairs = zip(outside.vars, outside.extents, strict=True)
        heads = [loop(var.name, extent) for var, extent in pairs if (var.name not in panels) == inside]
        for head in heads:
            self._open(head)
        return len(heads)

    def _blocks(self, left: Buffer) -> None:
        """Blocks of rows, copied so that each row lies in one piece."""
        block = self._tile.block
        first, last = self._range("rows")
        self._open(f"for (int64_t m1 = {first}; m1 < {last}; m1 += {block})")
        self._say(f"const int64_t height = {_least(last, 'm1', block)};")
        self._open("for (int64_t row = 0; row < height; ++row)")
        self._unflatten(self._product.rows, BLOCK + ROW, used_variables(self._product.left.value))
        self._say(f"{self._scalars.dialect.type_of(left.dtype)} *to = {left.name} + row * {number(left.shape[-1])};")
        self._copied_row(left)
        self._close()
        self._panels(None)
        self._close()

    def _copied_row(self, left: Buffer) -> None:
        """A row of a block, written where ``to`` points."""
        self._inner_loops()
        place = self._place(flat(self._product.inner.vars, self._product.inner.extents))
        self._say(f"to[{place}] = {self._row_element(left)};")
        self._close(len(self._product.inner.vars))

    def _row_element(self, _left: Buffer) -> str:
        return self._scalars.text(self._product.left.value)

    def _panels(self, rows: int | None) -> None:
        """Panels of columns, and in each the tiles of all rows, or of the block."""
        tile, columns = self._tile, self._product.columns.extent
        start, end = self._range("columns")
        self._open(f"for (int64_t n0 = {start}; n0 < {end}; n0 += {tile.columns})")
        if is_symbolic(columns) or columns % tile.columns:
            self._say(f"const int64_t columns = {_least(number(columns), 'n0', tile.columns)};")
        else:
            self._say(f"enum {{ columns = {tile.columns} }};")
        right, step = self._right()
        taps = self._taps()
        if taps:
            self._say("/* Where a window sees the input, counted from its first place. */")
            self._say(f"static const int64_t taps[] = {{{', '.join(map(str, taps))}}};")
        inside = self._open_loops(inside=True)
        sizes = self._heights()
        if not self._is_row:
            self._open_tiles(sizes, *(("0", "height") if rows is None else self._range("rows")))
        if self._squares_high:
            self._say(f"{self._kind} tile[{self._squares_high * tile.columns}] = {{0}};")
        else:
            self._say(f"{self._kind} tile[{tile.rows * tile.columns}];")
        self._calls(sizes, right, step)
        if self._squares_high:
            self._turned_tile(self._squares_high)
        self._results(TILE_ROW + ROW if rows is not None else BLOCK + TILE_ROW + ROW)
        self._close(inside + (1 if self._is_row else 2))

    @property
    def _is_row(self) -> bool:
        """Whether there is a single row: then nothing is said about rows."""
        return not self._product.rows.vars and self._tile.left is None

    def _open_tiles(self, sizes: Sequence[int], first: str, count: str) -> None:
        if len(sizes) == 1:
            self._open(f"for (int64_t m0 = {first}; m0 < {count}; m0 += {sizes[0]})")
            self._say(f"enum {{ rows = {sizes[0]} }};")
            return
        self._open(f"for (int64_t m0 = {first}, rows; m0 < {count}; m0 += rows)")
        self._say(f"rows = {_chosen(sizes, count)};")

    def _range(self, what: Literal["rows", "columns"]) -> tuple[str, str]:
        """Where a part's rows or columns begin and end: it has a share of the tiles."""
        axis, each = (
            (self._product.rows, self._tile.rows) if what == "rows" else (self._product.columns, self._tile.columns)
        )
        if self._tile.divided != what:
            return "0", number(axis.extent)
        if is_symbolic(axis.extent):
            first, last = share(f"((({number(axis.extent)}) + {each - 1}) / {each})", self._parts)
        else:
            first, last = share(str(-(-axis.extent // each)), self._parts)
        end = f"{last} * {each}"
        # The last tile of all may have fewer rows; columns are counted where a panel begins.
        is_whole = what == "columns" or (not is_symbolic(axis.extent) and axis.extent % each == 0)
        return f"{first} * {each}", end if is_whole else f"(part == {self._parts - 1} ? {number(axis.extent)} : {end})"

    def _heights(self) -> tuple[int, ...]:
        return row_sizes(self._product.rows.extent, self._tile.rows)

    # --- factors --------------------------------------------------------------------------------------------------

    def _right(self) -> tuple[str, str]:
        """Where a panel starts and how far apart its rows are; a panel that must be copied is."""
        tile, product = self._tile, self._product
        factor = product.right
        if tile.has_panels:
            return self._panel(self._stored_panel(product.inner.extent))
        if not tile.is_direct:
            assert tile.right is not None
            self._copied_panel(tile.right, PANEL, "columns", tile.columns)
            return tile.right.name, str(tile.columns)
        panel, apart = offset_from(factor.buffer.name, self._panel_place()), number(factor.step(product.inner))
        if tile.right is None:
            return panel, apart
        self._say(f"const {self._kind} *panel = {panel};")
        self._say(f"int64_t step = {apart};")
        self._open(f"if (columns < {tile.columns})")
        self._copied_panel(tile.right, PANEL, "columns", tile.columns)
        self._say(f"panel = {tile.right.name};")
        self._say(f"step = {tile.columns};")
        self._close()
        return "panel", "step"

    def _taps(self) -> list[int]:
        """The places of all inner indices but the first, of rows that are windows; nothing where they run as one."""
        inner, place = self._product.inner, self._product.left.place
        if not self._tile.is_turned or len(inner.vars) == 1:
            return []
        assert place is not None
        found = [0]
        for var, extent in zip(inner.vars[1:], inner.extents[1:], strict=True):
            found = [start + at * place.step(var) for start in found for at in range(extent)]
        return found

    def _stored_panel(self, depth: int) -> str:
        """Where a panel starts that is stored as such; each has so many elements of every column."""
        buffer = self._product.right.buffer
        index = self._one.index_of(buffer)
        place: Scalar = PANEL * Const(depth, INDEX)
        for one, step in zip(index[:-3], buffer.steps[:-3], strict=True):
            place = place + one * Const(step, INDEX)
        return offset_from(buffer.name, self._place(place))

    def _panel_place(self) -> str:
        place = self._product.right.place
        assert place is not None
        return self._place(moved(place, self._product.columns, PANEL, self._product.inner))

    # --- tiles ----------------------------------------------------------------------------------------------------

    def _calls(self, sizes: Sequence[int], right: str, step: str) -> None:
        """The call that computes the sums of a tile: one for each size that occurs."""
        widths = self._widths()
        cases = [(rows, vectors) for vectors in widths for rows in sizes]
        for case, (rows, vectors) in enumerate(cases):
            tests = [f"rows == {rows}"] if len(sizes) > 1 else []
            tests += [f"columns > {(vectors - 1) * self._tile.lanes}"] if len(widths) > 1 else []
            head = "" if case == len(cases) - 1 else f"if ({' && '.join(tests)}) "
            other = "else " if case else ""
            self._say(f"{other}{head}{self._call(rows, vectors, right, step)};")

    def _call(self, rows: int, vectors: int, right: str, step: str) -> str:
        """The call for a tile of one size."""
        tile, product = self._tile, self._product
        taps = self._taps()
        has_zero = self._has_zero and tile.right is None
        is_stored = self._integers is not None and tile.right is None
        stored = product.right.buffer.dtype.name if is_stored else None
        points = "zero, " * has_zero
        shape = self._one.accumulator.name, tile.lanes, rows, vectors
        name = self._scalars.need(
            FloatTile(*shape, is_window=True) if taps else FloatTile(*shape, stored, has_zero=has_zero)
        )
        depth = number(product.inner.extents[0] if taps else product.inner.extent)
        return f"{name}({depth}, {self._left()}, {right}, {step}, {points}tile, {tile.columns})"

    def _left(self) -> str:
        """The arguments that say where the rows of a tile are."""
        tile, product = self._tile, self._product
        if tile.left is not None:
            stride = number(tile.left.shape[-1])
            return f"{tile.left.name} + m0 * {stride}, {stride}, 1"
        assert product.left.place is not None
        place = self._place(moved(product.left.place, product.rows, TILE_ROW, product.inner))
        left = f"{offset_from(product.left.buffer.name, place)}, {number(product.left.step(product.rows))}"
        taps = self._taps()
        if taps:
            return f"{left}, {product.left.place.step(product.inner.vars[0])}, taps, {len(taps)}"
        return f"{left}, {number(product.left.step(product.inner))}"

    def _widths(self) -> list[int]:
        """How many vectors a panel may have, the most first."""
        tile, columns = self._tile, self._product.columns.extent
        most = tile.columns // tile.lanes
        if is_symbolic(columns):
            return list(range(most, 0, -1))
        rest = -(-(columns % tile.columns) // tile.lanes)
        if self._integers is not None and self._product.right.buffer.dtype.bits < 8:
            rest += rest % 2
        return [most] if rest == 0 else [rest] if columns < tile.columns else sorted({most, rest}, reverse=True)

    @property
    def _squares_high(self) -> int:
        """How many rows the squares have in which a tile is turned; 0 where it is not, or would be mostly empty."""
        tile = self._tile
        is_worth = tile.is_turned and 2 * tile.rows > tile.lanes
        return -(-tile.rows // tile.lanes) * tile.lanes if is_worth else 0

    def _turned_tile(self, high: int) -> None:
        """The tile with its columns as rows, so that what lies together in the result does so here."""
        tile = self._tile
        name = self._scalars.need(Transpose(self._one.accumulator.name, tile.lanes))
        self._say(f"{self._kind} turned[{high * tile.columns}];")
        self._open(f"for (int64_t column = 0; column < {tile.columns}; column += {tile.lanes})")
        self._say(f"for (int64_t row = 0; row < {high}; row += {tile.lanes})")
        place, to = f"tile + row * {tile.columns} + column", f"turned + column * {high} + row"
        self._say(f"{PAD}{name}({place}, {tile.columns}, {to}, {high});")
        self._close()

    def _results(self, row: Scalar) -> None:
        """The epilogue for every element of a tile."""
        one, product = self._one, self._product

        def at_place(value: Scalar) -> Scalar:
            return as_one(as_one(value, product.rows, row_var), product.columns, PANEL + COLUMN)

        row_var = product.rows.last or Var("row")
        index = tuple(at_place(part) for part in one.out_index)
        epilogue = at_place(one.epilogue)
        if self._tile.is_turned:
            self._open("for (int64_t column = 0; column < columns; ++column)")
        if not self._is_row:
            self._open("for (int64_t row = 0; row < rows; ++row)")
        if product.rows.last is not None:
            self._say(f"const int64_t {row_var.name} = {self._scalars.text(row)};")
        if not self._tile.is_turned:
            self._open("for (int64_t column = 0; column < columns; ++column)")
        place = self._total("column" if self._is_row else f"row * {self._tile.columns} + column")
        if self._squares_high:
            place = f"turned[column * {self._squares_high} + row]"
        self._say(f"const {self._kind} {ACCUMULATOR} = {place};")
        lets, value = named(epilogue, "v")
        for let in lets:
            self._say(self._scalars.constant(let))
        self._say(self._scalars.store(one.out, self._scalars.offset(one.out, index), value))
        self._close(1 if self._is_row else 2)

    def _total(self, place: str) -> str:
        """The sum at a place of the tile."""
        return f"tile[{place}]"


# --- without tiles ----------------------------------------------------------------------------------------------------

_WIDTH = 64
"""So many sums are computed next to each other where there are no tiles."""
_MOST_TERMS = 4 * TERMS
"""The most terms that such a sum takes in at once."""


def side_by_side(one: Contraction, scalars: ScalarPrinter) -> list[str] | None:
    """A contraction as sums next to each other, which a compiler can make vectors of; None where they would not lie so.

    The index that runs fastest in the result is the innermost loop: no sum changes its order.
    """
    last = _fastest(one)
    if last is None:
        return None
    kind = scalars.dialect.type_of(one.accumulator)
    extent = one.extents[one.free.index(last)]
    scalars.positions |= {var.name for var in (*one.free, *one.bound, PANEL, COLUMN)}
    outer = [pair for pair in zip(one.free, one.extents, strict=True) if pair[0] != last]
    heads = [loop(var.name, count) for var, count in outer]
    lines = [PAD * depth + f"{head} {{" for depth, head in enumerate(heads)]
    at_column = f"const int64_t {last.name} = n0 + column;"
    left, right = (cast(factor, one.accumulator) for factor in one.factors)
    is_long = one.accumulator.name == "f32" and most_elements(one.reduced) > _MOST_TERMS
    total = Var("part[column]" if is_long else "sums[column]", one.accumulator)
    term = f"{total.name} = {scalars.text(Binary('add', total, Binary('mul', left, right)))};"
    inner = _inner_loops(one, _column_loop(at_column, one.valid, term, scalars), kind if is_long else None)
    lets, value = named(one.epilogue, "v")
    body = [
        f"for (int64_t n0 = 0; n0 < {number(extent)}; n0 += {_WIDTH}) {{",
        f"{PAD}const int64_t columns = {_least(number(extent), 'n0', _WIDTH)};",
        f"{PAD}{kind} sums[{_WIDTH}] = {{0}};",
        *(PAD + line for line in inner),
        f"{PAD}for (int64_t column = 0; column < columns; ++column) {{",
        f"{PAD * 2}{at_column}",
        f"{PAD * 2}const {kind} {ACCUMULATOR} = sums[column];",
        *(PAD * 2 + scalars.constant(let) for let in lets),
        PAD * 2 + scalars.store(one.out, scalars.offset(one.out, one.out_index), value),
        f"{PAD}}}",
        "}",
    ]
    lines += [PAD * len(heads) + line for line in body]
    return [*lines, *(PAD * depth + "}" for depth in reversed(range(len(heads))))]


def _inner_loops(one: Contraction, terms: list[str], kind: str | None) -> list[str]:
    """The loops over what is summed; with a kind, in partial sums of it: of a block, or of each outermost index."""
    heads = [loop(var.name, count) for var, count in zip(one.bound, one.reduced, strict=True)]
    if kind is not None and len(heads) == 1:
        (var,), (count,) = one.bound, one.reduced
        heads = [
            f"for (int64_t k0 = 0; k0 < {number(count)}; k0 += {TERMS})",
            f"for (int64_t {var.name} = k0; {var.name} < k0 + {TERMS} && {var.name} < {number(count)}; ++{var.name})",
        ]
    inside = [
        *(PAD * depth + f"{head} {{" for depth, head in enumerate(heads[1:])),
        *(PAD * (len(heads) - 1) + line for line in terms),
        *(PAD * depth + "}" for depth in reversed(range(len(heads) - 1))),
    ]
    if kind is not None:
        join = "for (int64_t column = 0; column < columns; ++column) sums[column] += part[column];"
        inside = [f"{kind} part[{_WIDTH}] = {{0}};", *inside, join]
    return [
        *([f"{heads[0]} {{"] if heads else []),
        *(PAD * bool(heads) + line for line in inside),
        *["}"] * bool(heads),
    ]


def _column_loop(at_column: str, valid: Scalar | None, term: str, scalars: ScalarPrinter) -> list[str]:
    head = "for (int64_t column = 0; column < columns; ++column) {"
    if valid is None:
        return [head, f"{PAD}{at_column}", f"{PAD}{term}", "}"]
    name = at_column.split()[2]
    if name not in variables(valid):
        inner = [head, f"{PAD}{at_column}", f"{PAD}{term}", "}"]
        return [f"if ({scalars.bare(valid)}) {{", *(PAD + line for line in inner), "}"]
    return [head, f"{PAD}{at_column}", f"{PAD}if ({scalars.bare(valid)}) {term}", "}"]


def _fastest(one: Contraction) -> Var | None:
    """The free index along which results lie next to each other, if those of a factor do too."""
    out = position(one.out, one.out_index)
    places = [position(one.a, one.a_index), position(one.b, one.b_index)]
    if out is None or None in places or one.accumulator.kind == "bool" or one.out.dtype.is_packed:
        return None
    unit = [var for var in one.free if is_same(out.step(var), 1)]
    if len(unit) != 1 or not any(place is not None and is_same(place.step(unit[0]), 1) for place in places):
        return None
    return unit[0]


# --- text -------------------------------------------------------------------------------------------------------------


def _least(end: str, first: str, most: int) -> str:
    left = f"{end} - {first}"
    return f"{left} < {most} ? {left} : {most}"


def _chosen(sizes: Sequence[int], count: str) -> str:
    """The height of the next tile."""
    text = str(sizes[-1])
    for size in reversed(sizes[:-1]):
        text = f"{count} - m0 >= {size} ? {size} : {text}"
    return text
