"""Factors of byte contractions for tiles, in C: rows and panels in groups of four.

Rows are flipped if the instruction needs it; what the flipped bits add to the sums is subtracted again.
"""

from collections.abc import Sequence

from openinfer.loops.affine import position
from openinfer.loops.build import flat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Scalar
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.byte_products import FLIP, GROUP, flipped, groups
from openinfer.synth.targets.cpu.emit.byte_tiles import ByteTile, Flips, Grouping
from openinfer.synth.targets.cpu.emit.panels import copied_panel, stored
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS
from openinfer.synth.targets.cpu.emit.tiling import COLUMN, Tiling, clear, loop, moved, offset_from


class ByteFactors:
    """Rows and panels of bytes."""

    def __init__(self, tiling: Tiling) -> None:
        self._tiling = tiling

    @property
    def _groups(self) -> int:
        """The number of groups in a sum."""
        return groups(self._tiling.product.inner.extent)

    @property
    def _dtypes(self) -> tuple[str, str]:
        """The dtypes that tiles multiply: those of rows, after flipping, and of columns."""
        values = (
            self._tiling.one.factors
            if self._tiling.product.left.buffer == self._tiling.one.a
            else self._tiling.one.factors[::-1]
        )
        left, right = (value.dtype for value in values)
        return (flipped(left) if self._tiling.tile.is_flipped else left).name, right.name

    def copied_row(self, left: Buffer) -> None:
        """A row of a block, flipped if needed; the last group is zero-padded."""
        scalars, kind = self._tiling.scalars, self._tiling.type_of(left.dtype)

        def flipped_text(value: Scalar) -> str:
            return f"({kind})({scalars.operand(value)} ^ {FLIP})"

        value = self._tiling.product.left.value
        if self._tiling.tile.is_flipped:
            self._tiling.copied_row(value, flipped_text)
        else:
            self._tiling.copied_row(stored(value, left), scalars.text)
        depth = self._tiling.product.inner.extent
        if depth % GROUP:
            clear(self._tiling, "to", "k", depth, self._groups * GROUP)

    def _left(self, rows: int) -> str:
        """The start of the rows of a tile, and their stride if there are several."""
        tile, buffer = self._tiling.tile, self._tiling.product.left.buffer
        if tile.left is not None:
            return f"{self._tiling.row_of(tile.left)}{f', {tile.left.shape[-1]}' * (rows > 1)}"
        place = position(buffer, self._tiling.one.index_of(buffer))
        assert place is not None
        product = self._tiling.product
        start = self._tiling.place(moved(place, product.rows, self._tiling.tile_row, product.inner))
        pointer = f"(const {ELEMENTS[self._dtypes[0]]} *){buffer.name}" if tile.is_flipped else buffer.name
        return f"{offset_from(pointer, start)}{f', {buffer.shape[-1]}' * (rows > 1)}"

    def right(self) -> tuple[str, str]:
        """A panel in groups, and what flipped rows add to its sums."""
        tile = self._tiling.tile
        if tile.has_panels:
            panel = offset_from(self._tiling.product.right.buffer.name, self._tiling.stored_place(self._groups * GROUP))
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
        """A panel of contiguous columns, copied and then grouped."""
        width, depth = self._tiling.tile.columns, self._tiling.product.inner.extent
        copied_panel(self._tiling, lines)
        if depth % GROUP:
            clear(self._tiling, lines.name, "k", depth * width, self._groups * GROUP * width)
        name = self._tiling.scalars.need(Grouping(right.dtype.name, width))
        self._tiling.say(f"{name}({self._groups}, {lines.name}, {right.name});")
        return right.name

    def _grouped_columns(self, right: Buffer) -> str:
        """A panel whose columns are contiguous along the sums, copied one by one."""
        product, width = self._tiling.product, self._tiling.tile.columns
        columns = product.columns
        if is_symbolic(columns.extent) or columns.extent % width or product.inner.extent % GROUP:
            clear(self._tiling, right.name, "k", 0, self._groups * GROUP * width)
        self._tiling.open(f"for ({self._tiling.index} column = 0; column < {self._tiling.width}; ++column)")
        self._tiling.unflatten(columns, self._tiling.panel + COLUMN, used_variables(product.right.value))
        for var, extent in zip(product.inner.vars, product.inner.extents, strict=True):
            self._tiling.open(loop(self._tiling.index, var.name, extent))
        place = self._tiling.scalars.operand(flat(product.inner.vars, product.inner.extents))
        target = f"{place} / {GROUP} * {GROUP * width} + column * {GROUP} + {place} % {GROUP}"
        element = self._tiling.scalars.text(self._tiling.shared(stored(product.right.value, right)))
        self._tiling.say(f"{right.name}[{target}] = {element};")
        self._tiling.close(1 + len(product.inner.vars))
        return right.name

    def _flips(self, panel: str) -> None:
        """What the flipped bits of a row add to the sums: the same for all rows."""
        tile = self._tiling.tile
        name = self._tiling.scalars.need(Flips(*self._dtypes, tile.lanes, tile.columns // tile.lanes))
        self._tiling.say(f"int32_t flips[{tile.columns}];")
        self._tiling.say(f"{name}({self._groups}, {panel}, flips);")

    def cases(self, rows: Sequence[int], vectors: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """All sizes."""
        return rows, vectors

    def call(self, rows: int, vectors: int, right: str, step: str) -> str:
        """The call for a tile of one size."""
        name = self._tiling.scalars.need(ByteTile(*self._dtypes, self._tiling.tile.lanes, rows, vectors))
        return f"{name}({self._groups}, {self._left(rows)}, {right}, tile, {step})"

    @property
    def stride(self) -> int:
        """The columns of a panel."""
        return self._tiling.tile.columns

    @property
    def has_gaps(self) -> bool:
        """All sums are computed."""
        return False

    def total(self, place: str) -> str:
        """The sum at a position of the tile, minus what flipped rows add."""
        total = f"tile[{place}]"
        return f"(int32_t)((uint32_t){total} - (uint32_t)flips[column])" if self._tiling.tile.is_flipped else total
