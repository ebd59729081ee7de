"""Sums of windows that are lists of offsets, in C: tiles of rows of weights and vectors of neighbouring windows."""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.loops.affine import position
from openinfer.loops.ir import Contraction
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS, FloatTile, products, zero_sums
from openinfer.synth.targets.cpu.emit.tiles import stores as stored_sums
from openinfer.synth.targets.cpu.emit.tiling import PAD, PANEL, TILE_ROW, counted, offset_from
from openinfer.synth.targets.cpu.quantized import are_half_floats
from openinfer.synth.targets.cpu.taps import CpuTaps, weights_at
from openinfer.synth.targets.cpu.tile_shapes import row_sizes
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need


@dataclass(frozen=True)
class TapTile:
    """The function that computes a tile of sums: each row of weights meets what all windows see."""

    tile: FloatTile

    @property
    def name(self) -> str:
        """The function."""
        own = f"oi_taps_{self.tile.dtype}x{self.tile.lanes}_{self.tile.rows}x{self.tile.vectors}"
        return own if self.tile.left is None else f"{own}_{self.tile.left}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Its vectors."""
        return self.tile.needs

    @property
    def text(self) -> str:
        """``c[r][n] = sum over t of a[r * a_row + t] * x[taps[t] + n]``."""
        tile, kind = self.tile, ELEMENTS[self.tile.dtype]
        rows, weight = f"{tile.rows} row{'s' * (tile.rows > 1)}", tile.number("a[r * a_row + t]")
        lines = [
            f"/* {rows} of weights a, {tile.width} neighbouring windows on x: window n sees x[taps[t] + n]. */",
            f"static void {self.name}(int64_t count, const {tile.left_type} *a, int64_t a_row,",
            f"        const {kind} *x, const int32_t *taps, {kind} *c, int64_t c_row)",
            "{",
            "#if defined(__GNUC__)",
            *zero_sums(tile.vector.name, tile.rows, tile.vectors, 1),
            "    for (int64_t t = 0; t < count; ++t, ++a) {",
            f"        const {kind} *const b = x + taps[t];",
            *products(tile, 0),
            "    }",
            *stored_sums(tile, 1),
            "#else",
            f"    for (int r = 0; r < {tile.rows}; ++r) {{",
            f"        for (int n = 0; n < {tile.width}; ++n) {{",
            f"            {kind} sum = 0;",
            f"            for (int64_t t = 0; t < count; ++t) sum += {weight} * x[taps[t] + n];",
            "            c[r * c_row + n] = sum;",
            "        }",
            "    }",
            "#endif",
            "}",
        ]
        return "\n".join(lines) + "\n"


def tap_lines(one: Contraction, tile: CpuTaps, scalars: ScalarPrinter) -> list[str]:
    """The lines of a contraction whose windows are lists of offsets."""
    return list(_TapLines(one, tile, scalars).lines())


class _TapLines:
    def __init__(self, one: Contraction, tile: CpuTaps, scalars: ScalarPrinter) -> None:
        self._one, self._tile, self._scalars = one, tile, scalars
        counts = (*one.extents, *one.reduced, one.a.shape[0], *one.b.shape)
        self._index = counted(scalars, (*one.free, *one.bound, PANEL, TILE_ROW), counts)

    @property
    def _rows(self) -> int:
        return self._one.extents[0] if len(self._one.extents) > 1 else 1

    def lines(self) -> Iterator[str]:
        """Tiles of rows, and in each all columns; the last tile of either may have fewer."""
        one, tile = self._one, self._tile
        taps = ", ".join(map(str, tile.offsets))
        yield "{"
        yield (
            f"{PAD}/* Windows as lists of offsets: {one.extents[-1]} windows see {len(tile.offsets)} elements each,"
            f" {tile.columns} of them at a time. */"
        )
        yield f"{PAD}static const int32_t taps[] = {{{taps}}};"
        heights = row_sizes(self._rows, min(tile.rows, self._rows))
        full = self._rows // heights[0] * heights[0]
        yield from self._tiles("m0" if full > heights[0] else "0", heights[0], full)
        if len(heights) > 1:
            yield from self._tiles(str(full), heights[1], self._rows)
        yield "}"

    def _tiles(self, row: str, height: int, last: int) -> Iterator[str]:
        """Tiles of one height."""
        is_loop = row == "m0"
        if is_loop:
            yield f"{PAD}for ({self._index} m0 = 0; m0 < {last}; m0 += {height}) {{"
        pad = PAD * 2 if is_loop else PAD
        vectors = -(-self._one.extents[-1] // self._tile.lanes)
        each = min(self._tile.vectors, vectors)
        whole, rest = vectors // each, vectors % each
        width = each * self._tile.lanes
        if whole > 1:
            head = f"for ({self._index} n0 = 0; n0 < {whole * width}; n0 += {width})"
            yield f"{pad}{head} {self._call(row, 'n0', height, each)}"
        else:
            yield pad + self._call(row, "0", height, each)
        if rest:
            yield pad + self._call(row, str(whole * width), height, rest)
        if is_loop:
            yield f"{PAD}}}"

    def _call(self, row: str, column: str, height: int, vectors: int) -> str:
        """The call for one tile."""
        one, tile = self._one, self._tile
        left = one.b.dtype.name if are_half_floats(one, one.b) else None
        found = FloatTile(one.accumulator.name, tile.lanes, height, vectors, left=left)
        name = self._scalars.need(TapTile(found))
        place = position(one.b, one.b_index)
        assert place is not None
        apart = place.step(one.free[0]) if len(one.free) > 1 else 0
        start = offset_from(one.b.name, self._scalars.position(weights_at(one).scalar()))
        weights = _plus(start, row, apart)
        to = _plus(_plus(one.out.name, row, one.out.shape[-1]), column, 1)
        return (
            f"{name}({len(tile.offsets)}, {weights}, {apart}, {_plus(one.a.name, column, 1)},"
            f" taps, {to}, {one.out.shape[-1]});"
        )


def _plus(pointer: str, count: str, each: int) -> str:
    """A pointer so many steps further."""
    if count == "0":
        return pointer
    if count.isdecimal():
        return f"{pointer} + {int(count) * each}"
    return f"{pointer} + {count}" if each == 1 else f"{pointer} + {count} * {each}"
