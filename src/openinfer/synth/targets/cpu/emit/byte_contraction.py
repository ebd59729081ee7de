"""Contractions of bytes in C: rows and panels in groups of four, and sums without what flipped rows add."""

from openinfer.loops.affine import position
from openinfer.loops.build import flat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Contraction
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.byte_products import FLIP, GROUP, flipped, groups
from openinfer.synth.targets.cpu.emit.byte_tiles import ByteTile, Flips, Grouping
from openinfer.synth.targets.cpu.emit.contraction import TilePrinter
from openinfer.synth.targets.cpu.emit.panels import COLUMN, PANEL, TILE_ROW, loop, moved, offset_from
from openinfer.synth.targets.cpu.product import tiled_product
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter


def tiled_bytes(one: Contraction, tile: CpuTile, scalars: ScalarPrinter, parts: int) -> list[str]:
    """The lines of a contraction of bytes that has a tile, in a kernel of so many parts."""
    return _Printer(one, tile, tiled_product(one, tile), scalars, parts).run()


class _Printer(TilePrinter):
    @property
    def _groups(self) -> int:
        """How many groups a sum has."""
        return groups(self._product.inner.extent)

    @property
    def _dtypes(self) -> tuple[str, str]:
        """What tiles multiply: the bytes of rows, flipped where they are, and those of columns."""
        values = self._one.factors if self._product.left.buffer == self._one.a else self._one.factors[::-1]
        left, right = (value.dtype for value in values)
        return (flipped(left) if self._tile.is_flipped else left).name, right.name

    # --- rows -----------------------------------------------------------------------------------------------------

    def _copied_row(self, left: Buffer) -> None:
        super()._copied_row(left)
        depth = self._product.inner.extent
        if depth % GROUP:
            self._say(f"for (int64_t k = {depth}; k < {self._groups * GROUP}; ++k) to[k] = 0;")

    def _row_element(self, left: Buffer) -> str:
        text = super()._row_element(left)
        return f"({self._scalars.dialect.type_of(left.dtype)})({text} ^ {FLIP})" if self._tile.is_flipped else text

    def _left(self) -> str:
        """Where the rows of a tile start, and how far apart they are."""
        tile, buffer = self._tile, self._product.left.buffer
        if tile.left is not None:
            return f"{tile.left.name} + m0 * {tile.left.shape[-1]}, {tile.left.shape[-1]}"
        place = position(buffer, self._one.index_of(buffer))
        assert place is not None
        text = self._place(moved(place, self._product.rows, TILE_ROW, self._product.inner))
        pointer = f"(const {'u' * (self._dtypes[0] == 'u8')}int8_t *){buffer.name}" if tile.is_flipped else buffer.name
        return f"{offset_from(pointer, text)}, {buffer.shape[-1]}"

    # --- columns --------------------------------------------------------------------------------------------------

    def _right(self) -> tuple[str, str]:
        tile = self._tile
        if tile.has_panels:
            panel = self._stored_panel(self._groups * GROUP)
        elif tile.lines is not None:
            assert tile.right is not None
            panel = self._grouped_lines(tile.right, tile.lines)
        else:
            assert tile.right is not None
            panel = self._grouped_columns(tile.right)
        if tile.is_flipped:
            self._flips(panel)
        return panel, str(tile.columns)

    def _grouped_lines(self, right: Buffer, lines: Buffer) -> str:
        """A panel whose columns lie next to each other, copied so and then put into groups."""
        width, depth = self._tile.columns, self._product.inner.extent
        self._copied_panel(lines, PANEL, "columns", width)
        if depth % GROUP:
            last = f"{self._groups * GROUP * width}"
            self._say(f"for (int64_t k = {depth * width}; k < {last}; ++k) {lines.name}[k] = 0;")
        name = self._scalars.need(Grouping(right.dtype.name, width))
        self._say(f"{name}({self._groups}, {lines.name}, {right.name});")
        return right.name

    def _grouped_columns(self, right: Buffer) -> str:
        """A panel whose columns lie along the sums, copied one by one."""
        product, width = self._product, self._tile.columns
        columns = product.columns
        if is_symbolic(columns.extent) or columns.extent % width or product.inner.extent % GROUP:
            self._say(f"for (int64_t k = 0; k < {self._groups * GROUP * width}; ++k) {right.name}[k] = 0;")
        self._open("for (int64_t column = 0; column < columns; ++column)")
        self._unflatten(columns, PANEL + COLUMN, used_variables(product.right.value))
        for var, extent in zip(product.inner.vars, product.inner.extents, strict=True):
            self._open(loop(var.name, extent))
        place = self._scalars.text(flat(product.inner.vars, product.inner.extents))
        target = f"({place}) / {GROUP} * {GROUP * width} + column * {GROUP} + ({place}) % {GROUP}"
        self._say(f"{right.name}[{target}] = {self._scalars.text(product.right.value)};")
        self._close(1 + len(product.inner.vars))
        return right.name

    def _flips(self, panel: str) -> None:
        """What the flipped bit of each row's bytes adds to the sums: the same for all rows."""
        tile = self._tile
        name = self._scalars.need(Flips(*self._dtypes, tile.lanes, tile.columns // tile.lanes))
        self._say(f"int32_t flips[{tile.columns}];")
        self._say(f"{name}({self._groups}, {panel}, flips);")

    # --- tiles ----------------------------------------------------------------------------------------------------

    def _call(self, rows: int, vectors: int, right: str, step: str) -> str:
        name = self._scalars.need(ByteTile(*self._dtypes, self._tile.lanes, rows, vectors))
        return f"{name}({self._groups}, {self._left()}, {right}, tile, {step})"

    def _total(self, place: str) -> str:
        total = super()._total(place)
        return f"(int32_t)((uint32_t){total} - (uint32_t)flips[column])" if self._tile.is_flipped else total
