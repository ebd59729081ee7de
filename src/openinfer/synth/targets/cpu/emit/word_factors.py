"""Factors of byte contractions for word tiles, in C: one copied as 16-bit values, one in panels."""

from collections.abc import Sequence

from openinfer.loops.build import flat
from openinfer.loops.ir import Buffer, Cast, Scalar
from openinfer.loops.used import used_variables
from openinfer.synth.targets.cpu.byte_products import GROUP, groups
from openinfer.synth.targets.cpu.emit.tiling import COLUMN, Tiling, clear, loop, offset_from
from openinfer.synth.targets.cpu.emit.word_tiles import PairTile


class WordFactors:
    """Rows or columns of 16-bit values, and bytes in panels."""

    def __init__(self, tiling: Tiling) -> None:
        self._tiling = tiling

    @property
    def _groups(self) -> int:
        """The number of groups in a sum."""
        return groups(self._tiling.product.inner.extent)

    def copied_row(self, left: Buffer) -> None:
        """A row of 16-bit values; the last group is zero-padded."""
        self._tiling.copied_row(self._tiling.product.left.value, self._element)
        self._filled(self._tiling.product.inner.extent, left)

    def _element(self, value: Scalar) -> str:
        """A byte as a 16-bit value, without the cast that widens it for the sum."""
        own = value.operand if isinstance(value, Cast) else value
        return self._tiling.scalars.text(own)

    def _filled(self, depth: int, wide: Buffer) -> None:
        if depth % GROUP:
            clear(self._tiling, "to", "k", depth, wide.shape[-1])

    def right(self) -> tuple[str, str]:
        """The columns of a panel of weights, or copied as 16-bit values."""
        tiling = self._tiling
        if tiling.tile.widened == "rows":
            return offset_from(tiling.product.right.buffer.name, tiling.stored_place(self._groups * GROUP)), ""
        assert tiling.tile.right is not None
        self._copied_columns(tiling.tile.right)
        return tiling.tile.right.name, ""

    def _copied_columns(self, right: Buffer) -> None:
        tiling, product, width = self._tiling, self._tiling.product, self._tiling.width
        columns, depth = product.columns, product.inner.extent
        tiling.open(f"for ({tiling.index} column = 0; column < {width}; ++column)")
        tiling.unflatten(columns, tiling.panel + COLUMN, used_variables(product.right.value))
        tiling.say(f"int16_t *to = {right.name} + column * {right.shape[-1]};")
        for var, extent in zip(product.inner.vars, product.inner.extents, strict=True):
            tiling.open(loop(tiling.index, var.name, extent))
        place = tiling.place(flat(product.inner.vars, product.inner.extents))
        element = self._element(tiling.shared(product.right.value))
        tiling.say(f"to[{place.text}] = {element};")
        tiling.close(len(product.inner.vars))
        self._filled(depth, right)
        tiling.close()

    def call(self, rows: int, vectors: int, right: str, step: str) -> str:
        """The call for a tile; missing weights are 0."""
        del step
        tiling, tile = self._tiling, self._tiling.tile
        is_rows = tile.widened == "rows"
        buffer = tiling.product.right.buffer if is_rows else tiling.product.left.buffer
        packed, wide = (tile.columns, rows) if is_rows else (tile.rows, vectors)
        steps = (1, tile.columns) if is_rows else (tile.columns, 1)
        name = tiling.scalars.need(PairTile(buffer.dtype.name, packed, wide, steps))
        if is_rows:
            assert tile.left is not None
            return f"{name}({self._groups}, {right}, {tiling.row_of(tile.left)}, tile)"
        return f"{name}({self._groups}, {self._packed_rows(buffer)}, {right}, tile)"

    def _packed_rows(self, buffer: Buffer) -> str:
        """The start of the panel of weights for the rows of a tile."""
        tiling = self._tiling
        place = tiling.tile_place(buffer, tiling.one.index_of(buffer), self._groups * GROUP)
        return offset_from(buffer.name, place)

    def cases(self, rows: Sequence[int], vectors: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Weights have whole panels: only tiles with less of the copied factor need a function of their own."""
        return (rows, vectors[:1]) if self._tiling.tile.widened == "rows" else (rows[:1], vectors)

    @property
    def stride(self) -> int:
        """The columns of a panel."""
        return self._tiling.tile.columns

    @property
    def has_gaps(self) -> bool:
        """All sums are computed."""
        return False

    def total(self, place: str) -> str:
        """The sum at a position of the tile."""
        return f"tile[{place}]"
