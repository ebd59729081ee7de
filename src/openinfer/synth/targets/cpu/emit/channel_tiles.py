"""Windows over contiguous channels in C: tiles of some adjacent windows and of as many channels as fit."""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.loops.build import index
from openinfer.loops.cse import named
from openinfer.loops.ir import Contraction, Load, Scalar, ScalarVar
from openinfer.loops.rewrite import replaced
from openinfer.synth.targets.cpu.channel_taps import ChannelTaps
from openinfer.synth.targets.cpu.emit.places import Scaled, place, row_of, vector_at
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS, VectorType, each_row
from openinfer.synth.targets.cpu.emit.tiling import (
    COLUMN,
    PAD,
    PANEL,
    ROW,
    TILE_ROW,
    counted,
    loop,
    of_sum,
    offset_from,
)
from openinfer.synth.targets.cpu.intrinsics import chosen, sets_of
from openinfer.synth.targets.cpu.taps import Along
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need

_AT = ScalarVar("at")


@dataclass(frozen=True)
class VectorFma:
    """The fused multiply-add of three vectors."""

    vector: VectorType

    @property
    def name(self) -> str:
        """The macro."""
        return f"oi_fma_{self.vector.dtype}x{self.vector.lanes}_each"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The vector."""
        return (self.vector,)

    @property
    def text(self) -> str:
        """The macro."""
        dtype = self.vector.dtype
        sets = sets_of(self.vector.lanes * (4 if dtype == "f32" else 8))
        head = f"#define {self.name}(a, b, c)"
        # The vector's own definition includes the header.
        found = [(None, one.vector_fma[dtype]) for one in sets if dtype in one.vector_fma]
        lines = chosen(found, lambda one: [f"{head} {one.forms[0]}"], [f"{head} ((a) * (b) + (c))"])
        return "\n".join(["#if defined(__GNUC__)", *lines, "#endif"]) + "\n"


@dataclass(frozen=True)
class ChannelTile:
    """The function that computes a tile: ``rows`` adjacent windows with ``taps`` elements of a row each."""

    dtype: str
    lanes: int
    rows: int
    taps: int
    stride: int
    dilation: int
    places: tuple[int, ...]

    @property
    def name(self) -> str:
        """The function."""
        apart = f"s{self.stride}" * (self.stride > 1) + f"d{self.dilation}" * (self.dilation > 1)
        return f"oi_channels_{self.dtype}x{self.lanes}_{self.rows}x{self.taps}{apart}"

    @property
    def vector(self) -> VectorType:
        """The type of its sums."""
        return VectorType(self.dtype, self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """Its vectors, and their multiply-add."""
        return (self.vector, VectorFma(self.vector))

    @property
    def text(self) -> str:
        """``c[r][n] = sum over l and k of w[l * taps + k][n] * seen[l * places + place of r and k][n]``."""
        kind, vector, count = ELEMENTS[self.dtype], self.vector.name, len(self.places)
        windows = f"{self.rows} adjacent window{'s' * (self.rows > 1)}"
        lines = [
            f"/* Channels from first on, {windows} of {self.taps} elements per line: seen has {count} pointers per",
            "   line. The last vector may overlap the one before. */",
            f"static void {self.name}(int64_t channels, int64_t lines, const {kind} *const *seen, int64_t first,",
            f"        const {kind} *w, int64_t w_row, {kind} *c{', int64_t c_row' * (self.rows > 1)})",
            "{",
            "#if defined(__GNUC__)",
            f"    for (int64_t next = 0; next < channels; next += {self.lanes}) {{",
            f"        const int64_t n = next + {self.lanes} > channels ? channels - {self.lanes} : next;",
            f"        {vector} {', '.join(f's{row} = {{0}}' for row in range(self.rows))};",
            f"        const {kind} *b = w + n;",
            f"        for (int64_t l = 0; l < lines; ++l, b += {place((self.taps, 'w_row'))}) {{",
            f"            const {kind} *const *const line = seen + {place(('l', count))};",
            f"            const {vector} {', '.join(self._weights())};",
            *(f"            {step}" for step in self._steps()),
            "        }",
            *(f"        {vector_at(vector, 'c', (row, 'c_row'), ('n', 1))} = s{row};" for row in range(self.rows)),
            "    }",
            "#else",
            *each_row(
                self.rows,
                "for (int64_t n = 0; n < channels; ++n) {",
                f"    {kind} sum = 0;",
                "    for (int64_t l = 0; l < lines; ++l) {",
                *(
                    f"        sum += w[{self._plain_weight(tap)}]"
                    f" * seen[{place(('l', count), *self._plain_place(tap))}][first + n];"
                    for tap in range(self.taps)
                ),
                "    }",
                f"    c[{place((row_of(self.rows), 'c_row'), ('n', 1))}] = sum;",
                "}",
            ),
            "#endif",
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _weights(self) -> Iterator[str]:
        for tap in range(self.taps):
            yield f"w{tap} = {vector_at(f'const {self.vector.name}', 'b', (tap, 'w_row'))}"

    def _steps(self) -> Iterator[str]:
        """Loads every place of a line once, and multiplies it with the weights of all windows that read it."""
        fma = VectorFma(self.vector).name
        for at, seen in enumerate(self.places):
            met = [
                f"s{row} = {fma}(w{tap}, x{at}, s{row});"
                for row in range(self.rows)
                for tap in range(self.taps)
                if row * self.stride + tap * self.dilation == seen
            ]
            yield f"const {self.vector.name} x{at} = *(const {self.vector.name} *)(line[{at}] + first + n);"
            yield " ".join(met)

    def _plain_weight(self, tap: int) -> str:
        """The place of a tap's weights, without vectors."""
        found = place(("l", self.taps), (tap, 1))
        return place((f"({found})" if tap else found, "w_row"), ("n", 1))

    def _plain_place(self, tap: int) -> tuple[Scaled, ...]:
        """The place of a window's element, without vectors."""
        if self.places == tuple(range(len(self.places))):
            return (row_of(self.rows), self.stride), (tap * self.dilation, 1)
        found = [self.places.index(row * self.stride + tap * self.dilation) for row in range(self.rows)]
        if self.rows == 1:
            return ((found[0], 1),)
        return ((f"(const int[]){{{', '.join(map(str, found))}}}[r]", 1),)


def channel_lines(one: Contraction, tile: ChannelTaps, scalars: ScalarPrinter) -> list[str]:
    """The lines of a row of windows over contiguous channels."""
    return list(_ChannelLines(one, tile, scalars).lines())


class _ChannelLines:
    def __init__(self, one: Contraction, tile: ChannelTaps, scalars: ScalarPrinter) -> None:
        self._one, self._tile, self._scalars = one, tile, scalars
        row = tile.row
        assert row.window is not None
        self._row, self._window = row, row.window
        (self._channel,) = [var for var in one.free if var != row.window]
        self._channels = one.extents[one.free.index(self._channel)]
        inner = (TILE_ROW, ROW, PANEL, COLUMN, _AT, *(_place(at) for at in range(len(tile.axes))))
        counts = [
            max(map(abs, (axis.first, axis.extent, axis.stride * axis.count + axis.furthest))) for _, axis in tile.axes
        ]
        sizes = (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, *one.out.shape, *counts)
        self._index = counted(scalars, (*one.free, *one.bound, *inner), sizes)
        self._kind = scalars.dialect.type_of(one.accumulator)

    def lines(self) -> Iterator[str]:
        """Tiles of adjacent windows, and all channels in each."""
        tile, row = self._tile, self._row
        zeros = "; zeros outside the input" if tile.zeros is not None else ""
        yield "{"
        yield (
            f"{PAD}/* Contiguous channels: {tile.rows} of {row.count} windows at a time"
            f", which read {tile.lines} x {len(tile.places)} elements of a channel{zeros}. */"
        )
        if tile.places != tuple(range(len(tile.places))):
            yield f"{PAD}static const {self._index} apart[] = {{{', '.join(map(str, tile.places))}}};"
        is_single = row.count <= tile.rows
        inner = [*self._seen(is_single=is_single), *self._tiles(is_single=is_single)]
        if is_single:
            yield from (PAD + line for line in inner)
        else:
            yield f"{PAD}for ({self._index} next = 0; next < {row.count}; next += {tile.rows}) {{"
            last = row.count - tile.rows
            start = "next" if row.count % tile.rows == 0 else f"next < {last} ? next : {last}"
            yield f"{PAD * 2}const {self._index} m0 = {start};"
            yield from (PAD * 2 + line for line in inner)
            yield f"{PAD}}}"
        yield "}"

    def _seen(self, *, is_single: bool) -> Iterator[str]:
        """Pointers to each line of the windows, place by place."""
        tile, depth = self._tile, 0
        yield f"const {self._kind} *seen[{tile.lines * len(tile.places)}];"
        line: Scalar = index(0)
        inside: list[str] = []
        for at, (_, axis) in enumerate(tile.axes[:-1]):
            tap = index(0) if axis.tap is None else axis.tap
            if axis.tap is not None:
                yield PAD * depth + f"{loop(self._index, axis.tap.name, axis.taps)} {{"
                depth += 1
                line = line * index(axis.taps) + axis.tap
            window = index(0) if axis.window is None else axis.window
            where = window * index(axis.stride) + tap * index(axis.dilation) + index(axis.first)
            yield PAD * depth + f"const {self._index} {_place(at).name} = {self._scalars.position(where).text};"
            inside += self._inside(axis, _place(at).name)
        yield PAD * depth + f"{loop(self._index, 'at', len(tile.places))} {{"
        row, name = self._row, _place(len(tile.axes) - 1).name
        first = index(0) if is_single else TILE_ROW * index(row.stride)
        is_plain = tile.places == tuple(range(len(tile.places)))
        apart = self._scalars.position(first + (_AT if is_plain else index(0)) + index(row.first)).text
        yield PAD * (depth + 1) + f"const {self._index} {name} = {apart}{'' if is_plain else ' + apart[at]'};"
        inside += self._inside(row, name)
        found = offset_from(self._one.a.name, self._scalars.position(self._position()))
        text = self._scalars.position(line * index(len(tile.places)) + _AT).text
        if inside:
            assert tile.zeros is not None
            found = f"{' && '.join(inside)} ? {found} : {tile.zeros.name}"
        yield PAD * (depth + 1) + f"seen[{text}] = {found};"
        for level in range(depth, -1, -1):
            yield PAD * level + "}"

    @staticmethod
    def _inside(axis: Along, name: str) -> list[str]:
        """The bounds checks of a place, except those that always hold."""
        last = axis.first + axis.stride * (axis.count - 1) + axis.furthest
        return [f"{name} >= 0"] * (axis.first < 0) + [f"{name} < {axis.extent}"] * (last >= axis.extent)

    def _position(self) -> Scalar:
        """The position of the first channel at a place of all axes."""
        total: Scalar = index(0)
        for at, (axis, _) in enumerate(self._tile.axes):
            total = total + _place(at) * index(self._one.a.actual_strides[axis])
        return total

    def _tiles(self, *, is_single: bool) -> Iterator[str]:
        """Sums and results of all channels, a tile at a time."""
        one, tile, channels, width = self._one, self._tile, self._channels, self._tile.columns
        is_whole = width >= channels
        depth, count = 0, str(width)
        if not is_whole:
            yield f"for ({self._index} n0 = 0; n0 < {channels}; n0 += {width}) {{"
            depth = 1
            if channels % width:
                yield PAD + f"const {self._index} columns = {channels} - n0 < {width} ? {channels} - n0 : {width};"
                count = "columns"
        first = "0" if is_whole else "n0"
        yield PAD * depth + f"{self._kind} tile[{tile.rows * width}];"
        row = self._row
        own = ChannelTile(one.accumulator.name, tile.lanes, tile.rows, row.taps, row.stride, row.dilation, tile.places)
        weights = one.b.name if is_whole else f"{one.b.name} + n0"
        stride = f", {width}" * (tile.rows > 1)
        arguments = f"{count}, {tile.lines}, seen, {first}, {weights}, {channels}, tile{stride}"
        yield PAD * depth + f"{self._scalars.need(own)}({arguments});"
        yield from (PAD * depth + line for line in self._results(count, is_single=is_single, is_whole=is_whole))
        if not is_whole:
            yield "}"

    def _results(self, count: str, *, is_single: bool, is_whole: bool) -> Iterator[str]:
        one, scalars = self._one, self._scalars
        places: dict[Scalar, Scalar] = {
            self._window: self._window_at(is_single=is_single),
            self._channel: COLUMN if is_whole else PANEL + COLUMN,
        }
        where = tuple(replaced(part, places) for part in one.out_index)
        is_row = self._tile.rows == 1
        at = place((0 if is_row else "row", self._tile.columns), ("column", 1))
        sums, epilogue = of_sum(replaced(one.epilogue, places), one.accumulator, self._kind, f"tile[{at}]")
        lets, value = named(epilogue, *where, Load(one.out, ()))
        pad = "" if is_row else PAD
        if not is_row:
            yield f"for ({self._index} row = 0; row < {self._tile.rows}; ++row) {{"
        rolled = scalars.dialect.rolled
        if rolled and is_whole:
            yield pad + rolled
        yield pad + f"for ({self._index} column = 0; column < {count}; ++column) {{"
        yield from (pad + PAD + line for line in sums)
        yield from (pad + PAD + scalars.constant(let) for let in lets)
        yield pad + PAD + scalars.store(one.out, scalars.offset(one.out, where), value)
        yield pad + "}"
        if not is_row:
            yield "}"

    def _window_at(self, *, is_single: bool) -> Scalar:
        """The window of a row of the tile."""
        if self._tile.rows == 1:
            return index(0) if is_single else TILE_ROW
        return ROW if is_single else TILE_ROW + ROW


def _place(axis: int) -> ScalarVar:
    return ScalarVar(f"place{axis}")
