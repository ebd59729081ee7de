"""Tiles of many products, accumulated in blocks: a single 32-bit accumulator would lose small terms."""

from dataclasses import dataclass

from openinfer.synth.targets.cpu.emit.places import place, row_of
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS, FloatTile
from openinfer.synth.targets.cstyle.support import Need


@dataclass(frozen=True)
class LongTile:
    """The function that computes a tile as the sum of tiles, each of at most ``block`` steps."""

    tile: FloatTile
    block: int

    @property
    def name(self) -> str:
        """The function."""
        return f"{self.tile.name}_by_{self.block}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The function for a block."""
        return (self.tile,)

    @property
    def text(self) -> str:
        """Its definition."""
        tile, block = self.tile, self.block
        kind = ELEMENTS[tile.dtype]
        taps, zero = "const int64_t *taps, int64_t count, " * tile.is_window, f"const {kind} *zero, " * tile.has_zero
        seen, points = "taps, count, " * tile.is_window, "zero, " * tile.has_zero
        right = "i * count * b_row" if tile.is_window else "i * b_row"
        row, is_row = row_of(tile.rows), tile.rows == 1
        to, own = place((row, "c_row"), ("n", 1)), place((row, tile.width), ("n", 1))
        strides = "a_step" if is_row else "a_row, a_step"
        sums = "part" if is_row else f"part, {tile.width}"
        rows = f"for (int r = 0; r < {tile.rows}; ++r) " * (tile.rows > 1)
        each = f"{rows}for (int n = 0; n < {tile.width}; ++n)"
        return f"""\
/* The same in blocks of {block} products: a single accumulator would lose small terms. */
static void {self.name}(int64_t k, const {kind} *a, {tile.row_stride}int64_t a_step,
        {taps}const {tile.stored_type} *b, int64_t b_row, {zero}{kind} *c{tile.sum_stride})
{{
    {kind} part[{tile.rows * tile.width}];
    {each} c[{to}] = 0;
    for (int64_t i = 0; i < k; i += {block}) {{
        {tile.name}(k - i < {block} ? k - i : {block}, a + i * a_step, {strides},
                {seen}b + {right}, b_row, {points}{sums});
        {each} c[{to}] += part[{own}];
    }}
}}
"""
