"""Contractions in C as loops over tiles.

The loops go over panels of columns, and over tiles of rows; a function of the support code computes the sums of a tile,
and the epilogue turns them into results as it stores them. The kind of factors decides how they reach a tile and which
function is called: that is a ``Factors``.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from openinfer.loops.affine import variables
from openinfer.loops.cse import named
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    BOOL,
    INDEX,
    Buffer,
    Contraction,
    Let,
    Load,
    Scalar,
    ScalarVar,
    Select,
    Space,
    visit,
)
from openinfer.loops.rewrite import replaced
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.byte_products import are_bytes
from openinfer.synth.targets.cpu.emit.byte_factors import ByteFactors
from openinfer.synth.targets.cpu.emit.float_factors import FloatFactors
from openinfer.synth.targets.cpu.emit.integer_panels import are_halves
from openinfer.synth.targets.cpu.emit.parts import share
from openinfer.synth.targets.cpu.emit.tiling import (
    COLUMN,
    ROW,
    Tiling,
    least,
    loop,
    number,
    of_sum,
)
from openinfer.synth.targets.cpu.emit.transposes import Transpose
from openinfer.synth.targets.cpu.emit.word_factors import WordFactors
from openinfer.synth.targets.cpu.product import as_one
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cpu.tile_shapes import row_sizes
from openinfer.synth.targets.cstyle.code import ExprText
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter

_BYTE = 8


class Factors(Protocol):
    """A kind of factors: how rows and panels reach a tile, and what computes its sums."""

    def copied_row(self, left: Buffer) -> None:
        """Writes a row of a block to ``to``."""

    def right(self) -> tuple[str, str]:
        """The start of a panel and the stride of its rows; copies the panel if necessary."""

    def cases(self, rows: Sequence[int], vectors: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """The tile sizes that need calls of their own, of those that occur."""

    def call(self, rows: int, vectors: int, right: str, step: str) -> str:
        """The call for a tile of one size."""

    @property
    def stride(self) -> int:
        """Elements from one row of sums to the next."""

    @property
    def has_gaps(self) -> bool:
        """Whether some sums within the stride are never computed."""

    def total(self, place: str) -> str:
        """The sum at a position of the tile."""


def tiled(one: Contraction, tile: CpuTile, scalars: ScalarPrinter, parts: int) -> list[str]:
    """The lines of a tiled contraction, in a kernel of ``parts`` parts."""
    tiling = Tiling.of(one, tile, scalars, parts)
    return _TileLoops(tiling, _factors(tiling)).run()


def _factors(tiling: Tiling) -> Factors:
    if tiling.tile.widened:
        return WordFactors(tiling)
    return ByteFactors(tiling) if are_bytes(tiling.one) else FloatFactors(tiling)


class _TileLoops:
    """The loops over tiles, and the epilogue."""

    def __init__(self, tiling: Tiling, factors: Factors) -> None:
        self._tiling = tiling
        self._factors = factors

    def run(self) -> list[str]:
        """The lines of the contraction."""
        product, tile = self._tiling.product, self._tiling.tile
        kind = ", bytes in groups of four" if are_bytes(self._tiling.one) else ""
        self._tiling.say(
            f"/* In tiles of {tile.rows} row{'s' * (tile.rows > 1)} and {tile.columns} columns{kind}:"
            f" {number(product.rows.extent)} x {number(product.inner.extent)}"
            f" times {number(product.inner.extent)} x {number(product.columns.extent)}. */"
        )
        self._open_loops(inside=False)
        if self._tiling.tile.left is not None and not self._tiling.tile.is_left_converted:
            self._blocks(self._tiling.tile.left)
        else:
            self._panels(*self._range("rows"))
        self._tiling.close(self._tiling.depth)
        return self._tiling.lines

    def _open_loops(self, *, inside: bool) -> int:
        """Opens the loops over indices outside of tiles; those over window positions go inside the panel loop."""
        outside = self._tiling.product.outside
        panels = (
            variables(self._tiling.product.right.value)
            if self._tiling.tile.reads_windows
            else {var.name for var in outside.vars}
        )
        pairs = zip(outside.vars, outside.extents, strict=True)
        heads = [
            loop(self._tiling.index, var.name, extent) for var, extent in pairs if (var.name not in panels) == inside
        ]
        for head in heads:
            self._tiling.open(head)
        return len(heads)

    def _blocks(self, left: Buffer) -> None:
        """Blocks of rows, copied so that each row is contiguous."""
        block, is_one = self._tiling.tile.block, self._tiling.is_one_block
        first, last = self._range("rows")
        if not is_one:
            self._tiling.open(f"for ({self._tiling.index} m1 = {first}; m1 < {last}; m1 += {block})")
            self._tiling.say(f"const {self._tiling.index} height = {least(last, 'm1', block)};")
        self._copied_rows(left, self._tiling.block_row, last if is_one else "height")
        self._panels("0", last if is_one else "height")
        self._tiling.close(0 if is_one else 1)

    def _copied_rows(self, left: Buffer, first: Scalar, count: str) -> None:
        """Copies ``count`` rows, each contiguous."""
        kind = self._tiling.type_of(left.dtype)
        if self._is_row:
            self._tiling.scope()
            self._tiling.say(f"{kind} *to = {left.name};")
        else:
            rows, place = self._tiling.product.rows, first + ROW
            row = rows.vars[0] if place == ROW and len(rows.vars) == 1 else ROW
            self._tiling.open(f"for ({self._tiling.index} {row.name} = 0; {row.name} < {count}; ++{row.name})")
            if row == ROW:
                self._tiling.unflatten(rows, place, used_variables(self._tiling.product.left.value))
            self._tiling.say(f"{kind} *to = {left.name} + {row.name} * {number(left.shape[-1])};")
        self._factors.copied_row(left)
        self._tiling.close()

    def _panels(self, first: str, last: str) -> None:
        """Panels of columns, and in each the tiles of all rows or of those of a block."""
        tiling, before = self._tiling, self._tiling.depth
        self._open_panel()
        right, step = self._factors.right()
        self._open_loops(inside=True)
        sizes = row_sizes(tiling.product.rows.extent, tiling.tile.rows)
        if not self._is_row:
            self._open_tiles(sizes, first, last)
        height = last if tiling.is_one_tile else str(sizes[0]) if len(sizes) == 1 else "rows"
        if tiling.tile.left is not None and tiling.tile.is_left_converted:
            self._copied_rows(tiling.tile.left, tiling.tile_row, height)
        high = self._squares_high
        filled = " = {0}" if high or (self._factors.has_gaps and tiling.one.out.dtype.bits == _BYTE) else ""
        tiling.say(f"{tiling.kind} tile[{(high or tiling.tile.rows) * self._factors.stride}]{filled};")
        self._calls(sizes, right, step)
        if high:
            self._transposed_tile(high)
        self._results(height)
        tiling.close(tiling.depth - before)

    def _open_panel(self) -> None:
        """Opens the loop over panels if there are several, or a scope that keeps names of contractions apart."""
        tiling, width = self._tiling, self._tiling.tile.columns
        if tiling.is_one_panel:
            if tiling.depth == 0:
                tiling.scope()
            return
        start, end = self._range("columns")
        tiling.open(f"for ({tiling.index} n0 = {start}; n0 < {end}; n0 += {width})")
        if isinstance(tiling.width, str):
            columns = least(number(tiling.product.columns.extent), "n0", width)
            tiling.say(f"const {tiling.index} columns = {columns};")

    @property
    def _is_row(self) -> bool:
        """Whether there is a single row, which needs no loop."""
        return not self._tiling.product.rows.vars

    def _open_tiles(self, sizes: Sequence[int], first: str, count: str) -> None:
        """Opens the loop over tiles, if there are several."""
        tiling = self._tiling
        if tiling.is_one_tile:
            return
        if len(sizes) == 1:
            tiling.open(f"for ({tiling.index} m0 = {first}; m0 < {count}; m0 += {sizes[0]})")
            return
        tiling.open(f"for ({tiling.index} m0 = {first}, rows; m0 < {count}; m0 += rows)")
        tiling.say(f"rows = {_chosen(sizes, count)};")

    def _range(self, what: Literal["rows", "columns"]) -> tuple[str, str]:
        """The range of a part's rows or columns: it gets a share of the tiles."""
        axis, each = (
            (self._tiling.product.rows, self._tiling.tile.rows)
            if what == "rows"
            else (self._tiling.product.columns, self._tiling.tile.columns)
        )
        if self._tiling.tile.divided != what:
            return "0", number(axis.extent)
        tiles: int | ExprText = -(-axis.extent // each)
        if is_symbolic(axis.extent):
            tiles = ExprText(f"(({number(axis.extent)} + {each - 1}) / {each})")
        first, last = (one.text for one in share(tiles, self._tiling.parts, each))
        # The very last tile may have fewer rows; columns are counted at the start of a panel.
        is_whole = what == "columns" or (not is_symbolic(axis.extent) and axis.extent % each == 0)
        return first, last if is_whole else f"(part == {self._tiling.parts - 1} ? {number(axis.extent)} : {last})"

    def _calls(self, sizes: Sequence[int], right: str, step: str) -> None:
        """The calls that compute the sums of a tile, one for each size that occurs."""
        sizes, widths = self._factors.cases(sizes, self._widths())
        cases = [(rows, vectors) for vectors in widths for rows in sizes]
        for case, (rows, vectors) in enumerate(cases):
            tests = [f"rows == {rows}"] if len(sizes) > 1 else []
            tests += [f"columns > {(vectors - 1) * self._tiling.tile.lanes}"] if len(widths) > 1 else []
            head = "" if case == len(cases) - 1 else f"if ({' && '.join(tests)}) "
            other = "else " if case else ""
            self._tiling.say(f"{other}{head}{self._factors.call(rows, vectors, right, step)};")

    def _widths(self) -> list[int]:
        """The possible numbers of vectors in a panel, the largest first."""
        tile, columns = self._tiling.tile, self._tiling.product.columns.extent
        most = tile.columns // tile.lanes
        if is_symbolic(columns):
            return list(range(most, 0, -1))
        rest = -(-(columns % tile.columns) // tile.lanes)
        if are_halves(self._tiling):
            rest += rest % 2
        return [most] if rest == 0 else [rest] if columns < tile.columns else sorted({most, rest}, reverse=True)

    @property
    def _squares_high(self) -> int:
        """The rows of a tile in whole transposed blocks; 0 if it is not transposed, or blocks would be mostly empty."""
        tile = self._tiling.tile
        is_worth = tile.is_transposed and 2 * tile.rows > tile.lanes
        return -(-tile.rows // tile.lanes) * tile.lanes if is_worth else 0

    def _transposed_tile(self, high: int) -> None:
        """Transposes the tile, so that it is contiguous where the result is."""
        tile = self._tiling.tile
        name = self._tiling.scalars.need(Transpose(self._tiling.one.accumulator.name, tile.lanes))
        self._tiling.say(f"{self._tiling.kind} transposed[{high * tile.columns}];")
        place, to, before = "tile", "transposed", self._tiling.depth
        if high > tile.lanes:
            self._tiling.open(f"for ({self._tiling.index} row = 0; row < {high}; row += {tile.lanes})")
            place, to = f"{place} + row * {tile.columns}", f"{to} + row"
        if tile.columns > tile.lanes:
            self._tiling.open(f"for ({self._tiling.index} column = 0; column < {tile.columns}; column += {tile.lanes})")
            place, to = f"{place} + column", f"{to} + column * {high}"
        self._tiling.say(f"{name}({place}, {tile.columns}, {to}, {high});")
        self._tiling.close(self._tiling.depth - before)

    def _results(self, rows: str) -> None:
        """The epilogue for every element of a tile of this height."""
        one, product, before = self._tiling.one, self._tiling.product, self._tiling.depth
        row = self._tiling.tile_row + ROW
        if self._tiling.tile.left is not None:
            row = self._tiling.block_row + row

        def at_place(value: Scalar) -> Scalar:
            return as_one(as_one(value, product.rows, row_var), product.columns, self._tiling.panel + COLUMN)

        row_var = product.rows.last if product.rows.last is not None and row != ROW else ROW
        index = tuple(at_place(part) for part in one.out_index)
        epilogue = at_place(one.epilogue)
        if self._is_first_made(epilogue, row_var):
            self._make_results(epilogue)
            epilogue = ScalarVar(ACCUMULATOR, one.accumulator)
        if self._tiling.tile.is_transposed:
            self._open_columns(epilogue)
        if not self._is_row:
            self._tiling.open(f"for ({self._tiling.index} row = 0; row < {rows}; ++row)")
        if product.rows.last is not None and row_var != ROW:
            self._tiling.say(f"const {self._tiling.index} {row_var.name} = {self._tiling.scalars.text(row)};")
        if self._tiling.tile.widened:
            epilogue = self._with_loads_of_row(epilogue)
        if self._is_made_whole(epilogue):
            self._make_row(epilogue, index)
            self._tiling.close(self._tiling.depth - before)
            return
        if not self._tiling.tile.is_transposed:
            self._open_columns(epilogue)
        place = self._factors.total("column" if self._is_row else f"row * {self._factors.stride} + column")
        if self._squares_high:
            place = f"transposed[column * {self._squares_high} + row]"
        sums, epilogue = of_sum(epilogue, one.accumulator, self._tiling.kind, place)
        for line in sums:
            self._tiling.say(line)
        lets, value = named(epilogue, *index, Load(one.out, ()))
        for let in lets:
            self._tiling.say(self._tiling.scalars.constant(let))
        self._tiling.say(self._tiling.scalars.store(one.out, self._tiling.scalars.offset(one.out, index), value))
        self._tiling.close(self._tiling.depth - before)

    def _with_loads_of_row(self, epilogue: Scalar) -> Scalar:
        """The epilogue with loads that a whole row shares hoisted: a compiler cannot prove that this is safe."""
        gone = variables(self._tiling.panel + COLUMN)
        found = [one for one in visit(epilogue) if isinstance(one, Load) and one.buffer != self._tiling.one.out]
        parts: dict[Scalar, Scalar] = {}
        for load in dict.fromkeys(one for one in found if not variables(one) & gone):
            own = ScalarVar(f"{load.buffer.name}_row{len(parts)}", load.dtype)
            parts[load] = own
            self._tiling.say(self._tiling.scalars.constant(Let(own, load)))
        return replaced(epilogue, parts)

    def _is_first_made(self, epilogue: Scalar, row: ScalarVar) -> bool:
        """Whether the results of a transposed tile are computed in vectors, in place of the sums, and then copied.

        They must be floats that do not depend on the row, since some are past the last row, and differ from the sums.
        """
        one, tile = self._tiling.one, self._tiling.tile
        parts = [part for part in visit(epilogue) if part.dtype is not INDEX]
        are_floats = all(part.dtype is one.accumulator or part.dtype is BOOL for part in parts)
        is_more = len(parts) > 1 and one.out.dtype is one.accumulator and tile.rows % tile.lanes != 0
        return bool(self._squares_high) and is_more and are_floats and row.name not in variables(epilogue)

    def _make_results(self, epilogue: Scalar) -> None:
        """Applies the epilogue in place to the sums of a transposed tile."""
        tiling, high, before = self._tiling, self._squares_high, self._tiling.depth
        self._open_columns(epilogue)
        rolled = tiling.scalars.dialect.rolled
        if rolled and any(isinstance(part, Select) for part in visit(epilogue)):
            tiling.say(rolled)
        tiling.open(f"for ({tiling.index} row = 0; row < {high}; ++row)")
        place = f"transposed[column * {high} + row]"
        tiling.say(f"const {tiling.kind} {ACCUMULATOR} = {place};")
        lets, value = named(epilogue)
        for let in lets:
            tiling.say(tiling.scalars.constant(let))
        tiling.say(f"{place} = {tiling.scalars.text(value)};")
        tiling.close(tiling.depth - before)

    def _is_made_whole(self, epilogue: Scalar) -> bool:
        """Whether a row of bytes is computed at full tile width and then copied, though some panel is narrower.

        Compilers then vectorize it without a remainder loop. It must read nothing that depends on the column.
        """
        one, tiling = self._tiling.one, self._tiling
        gone = variables(tiling.panel + COLUMN)
        reads = [part for part in visit(epilogue) if isinstance(part, Load) and variables(part) & gone]
        is_narrower = one.out.dtype.bits == _BYTE and one.accumulator.bits > _BYTE and tiling.tile.lanes > 1
        is_ragged = tiling.width != tiling.tile.columns
        return is_narrower and is_ragged and not tiling.tile.is_transposed and not tiling.tile.widened and not reads

    def _make_row(self, epilogue: Scalar, index: tuple[Scalar, ...]) -> None:
        """Computes a row of results at the full width of the tile, and copies its columns to the result."""
        one, tiling, width = self._tiling.one, self._tiling, self._tiling.tile.columns
        made = Buffer("made", one.out.dtype, (width,), Space.SCRATCH)
        tiling.say(f"{tiling.type_of(one.out.dtype)} made[{width}];")
        rolled = tiling.scalars.dialect.rolled
        if rolled and any(isinstance(part, Select) for part in visit(epilogue)):
            tiling.say(rolled)
        tiling.open(f"for ({tiling.index} column = 0; column < {width}; ++column)")
        place = self._factors.total("column" if self._is_row else f"row * {width} + column")
        sums, epilogue = of_sum(epilogue, one.accumulator, tiling.kind, place)
        for line in sums:
            tiling.say(line)
        lets, value = named(epilogue)
        for let in lets:
            tiling.say(tiling.scalars.constant(let))
        tiling.say(tiling.scalars.store(made, tiling.scalars.offset(made, (COLUMN,)), value))
        tiling.close()
        store = tiling.scalars.store(one.out, tiling.scalars.offset(one.out, index), Load(made, (COLUMN,)))
        counts = [tiling.width] if tiling.is_one_panel else [width, tiling.width]
        for count in counts:
            head = f"for ({tiling.index} column = 0; column < {count}; ++column)"
            test = f"if (columns == {width}) " if count != counts[-1] else "else " if len(counts) > 1 else ""
            tiling.open(test + head)
            tiling.say(store)
            tiling.close()

    def _open_columns(self, epilogue: Scalar) -> None:
        """Opens the loop over the columns of a tile."""
        rolled = self._tiling.scalars.dialect.rolled
        if rolled and self._tiling.is_one_panel and any(isinstance(part, Select) for part in visit(epilogue)):
            self._tiling.say(rolled)
        self._tiling.open(f"for ({self._tiling.index} column = 0; column < {self._tiling.width}; ++column)")


def _chosen(sizes: Sequence[int], count: str) -> str:
    """The height of the next tile."""
    text = str(sizes[-1])
    for size in reversed(sizes[:-1]):
        text = f"{count} - m0 >= {size} ? {size} : {text}"
    return text
