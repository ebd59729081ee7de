"""Sums of windows that are offset lists, in C: tiles of rows of weights and vectors of adjacent windows."""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.loops.affine import position
from openinfer.loops.ir import Contraction
from openinfer.synth.targets.cpu.emit.places import ahead, place, row_of
from openinfer.synth.targets.cpu.emit.tiles import (
    ELEMENTS,
    FloatTile,
    VectorType,
    each_row,
    products,
    sum_name,
    zero_sums,
)
from openinfer.synth.targets.cpu.emit.tiles import stores as stored_sums
from openinfer.synth.targets.cpu.emit.tiling import PAD, PANEL, TILE_ROW, counted, offset_from
from openinfer.synth.targets.cpu.intrinsics import chosen, sets_of
from openinfer.synth.targets.cpu.quantized import are_half_floats
from openinfer.synth.targets.cpu.taps import CpuTaps, sums_at, weights_at
from openinfer.synth.targets.cpu.tile_shapes import row_sizes
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need


@dataclass(frozen=True)
class VectorMove:
    """A vector some elements after another one, shifted out of that and the next; otherwise it is loaded."""

    vector: VectorType

    @property
    def name(self) -> str:
        """The macro."""
        return f"oi_behind_{self.vector.dtype}x{self.vector.lanes}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector."""
        return (self.vector,)

    @property
    def text(self) -> str:
        """The macro: ``a`` was loaded from ``p``, and ``b`` follows it."""
        dtype, vector = self.vector.dtype, self.vector.name
        sets = sets_of(self.vector.lanes * (4 if dtype == "f32" else 8))
        head = f"#define {self.name}(p, a, b, n)"
        lines = chosen(
            # The vector's own definition includes the header.
            [(None, one.moves[dtype]) for one in sets if dtype in one.moves],
            lambda one: [f"{head} {one.forms[0].format(vector=vector)}"],
            [f"{head} (*(const {vector} *)((p) + (n)))"],
        )
        about = "/* The vector at p + n, given the vector a at p and the next one, b. */"
        return "\n".join(["#if defined(__GNUC__)", about, *lines, "#endif"]) + "\n"


@dataclass(frozen=True)
class TapTile:
    """The function that computes a tile of sums: each row of weights is multiplied with the input of all windows.

    With ``run`` there is one offset for that many consecutive taps, and the input they share is loaded once.
    """

    tile: FloatTile
    run: int = 1

    @property
    def name(self) -> str:
        """The function."""
        of = "taps" if self.run == 1 else f"runs{self.run}"
        own = f"oi_{of}_{self.tile.dtype}x{self.tile.lanes}_{self.tile.rows}x{self.tile.vectors}"
        return own if self.tile.left is None else f"{own}_{self.tile.left}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Its vectors."""
        return self.tile.needs if self.run == 1 else (*self.tile.needs, VectorMove(self.tile.vector))

    @property
    def text(self) -> str:
        """``c[r][n] = sum over t of a[r * a_row + t] * x[taps[t] + n]``."""
        return self._taps() if self.run == 1 else self._runs()

    def _runs(self) -> str:
        """``c[n] = sum over t and k of a[t * run + k] * x[taps[t] + k + n]``."""
        tile, kind, run = self.tile, ELEMENTS[self.tile.dtype], self.run
        weight = tile.number(f"a[t * {run} + k]")
        loads = [f"b{at} = {tile.loaded(at, 0)}" for at in range(tile.vectors + 1)]
        lines = [
            f"/* Weights a, {tile.width} adjacent windows on x: window n reads x[taps[t] + k + n], k < {run}. */",
            f"static void {self.name}(int64_t count, const {tile.left_type} *a, const {kind} *x,",
            f"        const int32_t *taps, {kind} *c)",
            "{",
            "#if defined(__GNUC__)",
            *zero_sums(tile.vector.name, 1, tile.vectors, 1),
            f"    for (int64_t t = 0; t < count; ++t, a += {run}) {{",
            f"        const {kind} *const b = x + taps[t];",
            f"        const {tile.vector.name} {', '.join(loads)};",
            *(f"        {self._step(at)}" for at in range(run)),
            "    }",
            *stored_sums(tile, 1),
            "#else",
            f"    for (int n = 0; n < {tile.width}; ++n) {{",
            f"        {kind} sum = 0;",
            "        for (int64_t t = 0; t < count; ++t) {",
            f"            for (int k = 0; k < {run}; ++k) sum += {weight} * x[taps[t] + k + n];",
            "        }",
            "        c[n] = sum;",
            "    }",
            "#endif",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _step(self, at: int) -> str:
        """One tap of a run: its weight is multiplied with all vectors at that distance."""
        tile, move = self.tile, VectorMove(self.tile.vector).name
        factor, fma = tile.number(f"a[{at}]"), tile.vector.fma
        steps = []
        for column in range(tile.vectors):
            seen = (
                f"{move}({ahead('b', more=column * tile.lanes)}, b{column}, b{column + 1}, {at})"
                if at
                else f"b{column}"
            )
            own = sum_name(0, column, 0)
            steps.append(f"{own} = {fma}({factor}, {seen}, {own});")
        return " ".join(steps)

    def _taps(self) -> str:
        tile, kind = self.tile, ELEMENTS[self.tile.dtype]
        rows, row = f"{tile.rows} row{'s' * (tile.rows > 1)}", row_of(tile.rows)
        weight = tile.number(f"a[{place((row, 'a_row'), ('t', 1))}]")
        strides = ", int64_t a_row" * (tile.rows > 1)
        lines = [
            f"/* {rows} of weights a, {tile.width} adjacent windows on x: window n reads x[taps[t] + n]. */",
            f"static void {self.name}(int64_t count, const {tile.left_type} *a{strides},",
            f"        const {kind} *x, const int32_t *taps, {kind} *c{tile.sum_stride})",
            "{",
            "#if defined(__GNUC__)",
            *zero_sums(tile.vector.name, tile.rows, tile.vectors, 1),
            "    for (int64_t t = 0; t < count; ++t, ++a) {",
            f"        const {kind} *const b = x + taps[t];",
            *products(tile, 0),
            "    }",
            *stored_sums(tile, 1),
            "#else",
            *each_row(
                tile.rows,
                f"for (int n = 0; n < {tile.width}; ++n) {{",
                f"    {kind} sum = 0;",
                f"    for (int64_t t = 0; t < count; ++t) sum += {weight} * x[taps[t] + n];",
                f"    c[{place((row, 'c_row'), ('n', 1))}] = sum;",
                "}",
            ),
            "#endif",
            "}",
        ]
        return "\n".join(lines) + "\n"


def tap_lines(one: Contraction, tile: CpuTaps, scalars: ScalarPrinter) -> list[str]:
    """The lines of a contraction whose windows are offset lists."""
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
        """Tiles of rows, and all columns in each; the last tile of either may be smaller."""
        one, tile = self._one, self._tile
        taps = ", ".join(map(str, tile.offsets[:: tile.run]))
        yield "{"
        yield (
            f"{PAD}/* Windows as offset lists: {one.extents[-1]} windows of {len(tile.offsets)} elements each,"
            f" {tile.columns} windows at a time. */"
        )
        yield f"{PAD}static const int32_t taps[] = {{{taps}}};"
        heights = row_sizes(self._rows, min(tile.rows, self._rows))
        full = self._rows // heights[0] * heights[0]
        yield from self._tiles("m0" if full > heights[0] else 0, heights[0], full)
        if len(heights) > 1:
            yield from self._tiles(full, heights[1], self._rows)
        yield "}"

    def _tiles(self, row: int | str, height: int, last: int) -> Iterator[str]:
        """Tiles of one height, from a row on or in a loop over the variable ``row``."""
        is_loop = isinstance(row, str)
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
            yield pad + self._call(row, 0, height, each)
        if rest:
            yield pad + self._call(row, whole * width, height, rest)
        if is_loop:
            yield f"{PAD}}}"

    def _call(self, row: int | str, column: int | str, height: int, vectors: int) -> str:
        """The call for one tile."""
        one, tile = self._one, self._tile
        left = one.b.dtype.name if are_half_floats(one, one.b) else None
        found = FloatTile(one.accumulator.name, tile.lanes, height, vectors, left=left)
        run = tile.run if self._rows == 1 else 1
        name = self._scalars.need(TapTile(found, run))
        place = position(one.b, one.b_index)
        assert place is not None
        apart = place.stride(one.free[0]) if len(one.free) > 1 else 0
        start = offset_from(one.b.name, self._scalars.position(weights_at(one).scalar()))
        weights = ahead(start, (row, apart))
        sums = offset_from(one.out.name, self._scalars.position(sums_at(one).scalar()))
        to, seen = ahead(sums, (row, one.out.shape[-1]), (column, 1)), ahead(one.a.name, (column, 1))
        if run > 1:
            return f"{name}({len(tile.offsets) // run}, {weights}, {seen}, taps, {to});"
        if height == 1:
            return f"{name}({len(tile.offsets)}, {weights}, {seen}, taps, {to});"
        return f"{name}({len(tile.offsets)}, {weights}, {apart}, {seen}, taps, {to}, {one.out.shape[-1]});"
