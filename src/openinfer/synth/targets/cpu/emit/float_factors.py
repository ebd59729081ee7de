"""Factors of float contractions for tiles, in C: rows, panels, and the calls for tiles.

Factors that cannot be read in place are first copied to scratch memory: a panel of columns, or a block of rows.
"""

from collections.abc import Sequence

from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.ir import Buffer
from openinfer.synth.targets.cpu.emit.group_tiles import GroupTile
from openinfer.synth.targets.cpu.emit.integer_panels import has_zero, integers, stored_panel
from openinfer.synth.targets.cpu.emit.long_tiles import LongTile
from openinfer.synth.targets.cpu.emit.panels import copied_panel
from openinfer.synth.targets.cpu.emit.tiles import FloatTile
from openinfer.synth.targets.cpu.emit.tiling import Tiling, moved, number, offset_from
from openinfer.synth.targets.cpu.quantized import GroupScales, are_half_floats
from openinfer.synth.targets.cstyle.code import ExprText

_MOST_PRODUCTS = 8192
"""The most f32 products that a tile accumulates one after the other; more are accumulated in blocks."""
_LEAST_WHOLE = 256
"""Vectors with at least this many bits also come in half width."""
_BLOCK = 1024
"""The number of products in a block."""


class FloatFactors:
    """Rows and panels of floats, or of integers and 16-bit floats that are converted."""

    def __init__(self, tiling: Tiling) -> None:
        self._tiling = tiling

    def copied_row(self, _left: Buffer) -> None:
        """A row of a block, element by element."""
        self._tiling.copied_row(self._tiling.product.left.value, self._tiling.scalars.text)

    def right(self) -> tuple[str, str]:
        """A panel, in place or copied, and the offsets of window taps in the input."""
        found = self._panel()
        taps = self._taps()
        if taps:
            self._tiling.say("/* The taps of a window, as offsets from its first element. */")
            self._tiling.say(f"static const int64_t taps[] = {{{', '.join(map(str, taps))}}};")
        return found

    def _panel(self) -> tuple[str, str]:
        tile, product = self._tiling.tile, self._tiling.product
        factor = product.right
        if tile.has_panels:
            return stored_panel(self._tiling, self._tiling.stored_place(product.inner.extent))
        is_copied = self._tiling.is_one_panel and tile.right is not None and product.columns.extent < tile.columns
        if not tile.is_direct or is_copied:
            assert tile.right is not None
            copied_panel(self._tiling, tile.right)
            return tile.right.name, str(tile.columns)
        panel, apart = offset_from(factor.buffer.name, self._panel_place()), number(factor.step(product.inner))
        if tile.right is None:
            return panel, apart
        self._tiling.say(f"const {self._tiling.kind} *panel = {panel};")
        self._tiling.say(f"{self._tiling.index} step = {apart};")
        self._tiling.open(f"if (columns < {tile.columns})")
        copied_panel(self._tiling, tile.right)
        self._tiling.say(f"panel = {tile.right.name};")
        self._tiling.say(f"step = {tile.columns};")
        self._tiling.close()
        return "panel", "step"

    def _taps(self) -> list[int]:
        """The offsets of all inner indices but the first, if rows are windows; empty if there is only one index."""
        inner, place = self._tiling.product.inner, self._tiling.product.left.place
        if not self._tiling.tile.reads_windows or len(inner.vars) == 1:
            return []
        assert place is not None
        found = [0]
        for var, extent in zip(inner.vars[1:], inner.extents[1:], strict=True):
            found = [start + at * place.stride(var) for start in found for at in range(extent)]
        return found

    def _panel_place(self) -> ExprText:
        product = self._tiling.product
        assert product.right.place is not None
        return self._tiling.place(moved(product.right.place, product.columns, self._tiling.panel, product.inner))

    def cases(self, rows: Sequence[int], vectors: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """All sizes."""
        return rows, vectors

    def call(self, rows: int, vectors: int, right: str, step: str) -> str:
        """The call for a tile of one size."""
        tile, product = self._tiling.tile, self._tiling.product
        taps = self._taps()
        own = integers(self._tiling)
        if own is not None and own.groups is not None and tile.right is None:
            return self._group_call(own.groups, rows, vectors, f"{right}, {step}")
        subtracts = has_zero(self._tiling) and tile.right is None
        stored = product.right.buffer.dtype.name if self._is_stored else None
        points = "zero, " * subtracts
        shape = self._tiling.one.accumulator.name, tile.lanes, rows, vectors
        half = self._has_half(vectors)
        found = FloatTile(*shape, stored, has_zero=subtracts, is_window=bool(taps), has_half=half)
        is_long = found.dtype == "f32" and most_elements(product.inner.extents) > _MOST_PRODUCTS
        block = max(_BLOCK // max(len(taps), 1), 1)
        name = self._tiling.scalars.need(LongTile(found, block) if is_long else found)
        depth = number(product.inner.extents[0] if taps else product.inner.extent)
        stride = f", {self.stride}" * (rows > 1)
        return f"{name}({depth}, {self._left(rows)}, {right}, {step}, {points}tile{stride})"

    @property
    def _is_stored(self) -> bool:
        """Whether columns are stored in another type, which tiles convert as they load them."""
        tile, factor = self._tiling.tile, self._tiling.product.right
        is_half = tile.has_panels and are_half_floats(self._tiling.one, factor.buffer)
        return is_half or (integers(self._tiling) is not None and tile.right is None)

    @property
    def stride(self) -> int:
        """The columns of a panel; of a single panel of floats that is not transposed, those that are computed."""
        one, tile, columns = self._tiling.one, self._tiling.tile, self._tiling.product.columns.extent
        is_whole = is_symbolic(columns) or columns > tile.columns or self._is_stored
        if is_whole or tile.is_transposed or one.out.dtype.bits < one.accumulator.bits:
            return tile.columns
        vectors = -(-columns // tile.lanes)
        return tile.lanes * vectors - tile.lanes // 2 * self._has_half(vectors)

    @property
    def has_gaps(self) -> bool:
        """Whether the last panel ends in half a vector, and the stride has room for all of it."""
        tile, columns = self._tiling.tile, self._tiling.product.columns.extent
        if is_symbolic(columns) or self.stride < tile.columns:
            return False
        return self._has_half(-(-((columns - 1) % tile.columns + 1) // tile.lanes))

    def _has_half(self, vectors: int) -> bool:
        """Whether a panel with this many vectors is the last one, and half of its last vector suffices."""
        tile, columns = self._tiling.tile, self._tiling.product.columns.extent
        if is_symbolic(columns) or self._is_stored or tile.lanes * self._tiling.one.accumulator.bits < _LEAST_WHOLE:
            return False
        rest = columns % tile.columns if columns > tile.columns else columns
        is_only = columns <= tile.columns or vectors * tile.lanes < tile.columns
        return is_only and vectors == -(-rest // tile.lanes) and 0 < rest % tile.lanes <= tile.lanes // 2

    def _group_call(self, groups: GroupScales, rows: int, vectors: int, right: str) -> str:
        """The call for a tile of group-quantized integers, with the start of the scales of its panel."""
        tile, product = self._tiling.tile, self._tiling.product
        shape = self._tiling.one.accumulator.name, tile.lanes, rows, vectors
        is_half = product.right.buffer.dtype.is_packed
        own = FloatTile(*shape, product.right.buffer.dtype.name, is_bare=is_half)
        scales = groups.scale.buffer.dtype.name
        name = self._tiling.scalars.need(GroupTile(own, groups.size, scales, groups.offset is not None))
        count = number(product.inner.extents[0])
        starts = [
            offset_from(one.buffer.name, self._tiling.panel_place(one.buffer, one.index, product.inner.extents[0]))
            for one in groups.loads
        ]
        return f"{name}({count}, {self._left(rows)}, {right}, {', '.join(starts)}, tile, {tile.columns})"

    def _left(self, rows: int) -> str:
        """The arguments that locate the rows of a tile: a single row has no stride."""
        tile, product = self._tiling.tile, self._tiling.product
        if tile.left is not None:
            apart = f", {number(tile.left.shape[-1])}" * (rows > 1)
            return f"{self._tiling.row_of(tile.left)}{apart}, 1"
        assert product.left.place is not None
        place = self._tiling.place(moved(product.left.place, product.rows, self._tiling.tile_row, product.inner))
        apart = f", {number(product.left.step(product.rows))}" * (rows > 1)
        left = f"{offset_from(product.left.buffer.name, place)}{apart}"
        taps = self._taps()
        if taps:
            return f"{left}, {product.left.place.stride(product.inner.vars[0])}, taps, {len(taps)}"
        return f"{left}, {number(product.left.step(product.inner))}"

    def total(self, place: str) -> str:
        """The sum at a position of the tile."""
        return f"tile[{place}]"
