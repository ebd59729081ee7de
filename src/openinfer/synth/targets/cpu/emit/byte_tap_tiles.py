"""Sums of byte windows that are offset lists of groups of four, in C: the copy into groups, and tiles of sums."""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.loops.affine import affine, position
from openinfer.loops.ir import Contraction
from openinfer.synth.targets.cpu.byte_products import FLIP, GROUP
from openinfer.synth.targets.cpu.byte_taps import ByteTaps, plane_start
from openinfer.synth.targets.cpu.emit.byte_tiles import Dot
from openinfer.synth.targets.cpu.emit.places import ahead, place, row_of, vector_at
from openinfer.synth.targets.cpu.emit.tiles import ELEMENTS, each_row, sum_name
from openinfer.synth.targets.cpu.emit.tiling import PAD, PANEL, TILE_ROW, counted, offset_from
from openinfer.synth.targets.cpu.taps import Along
from openinfer.synth.targets.cpu.tile_shapes import row_sizes
from openinfer.synth.targets.cpu.window import BAND
from openinfer.synth.targets.cstyle.scalars import ScalarPrinter
from openinfer.synth.targets.cstyle.support import Need

_SHUFFLED = 15
"""The last byte that one shuffle can select."""


@dataclass(frozen=True)
class Quads:
    """The function that copies bytes into groups of four: ``to[n][j] = x[at + stride * n + dilation * j]``."""

    dtype: str
    made: str
    stride: int
    dilation: int

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_quads_{self.dtype}{self.made}_{self.stride}_{self.dilation}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """Nothing."""
        return ()

    @property
    def _is_shuffled(self) -> bool:
        return 3 * self.stride + 3 * self.dilation <= _SHUFFLED

    def _bytes(self, count: int) -> str:
        """The byte indices of the groups of four windows, for each 16 bytes of a vector."""
        each = [self.stride * at + self.dilation * j for at in range(4) for j in range(GROUP)]
        return ", ".join(map(str, each * (count // 16)))

    @property
    def text(self) -> str:
        """Its definition. While there are bytes to read, it writes vectors of groups, possibly more than ``count``."""
        flip = f" ^ {FLIP}" if self.dtype != self.made else ""
        kind, made, s, d = ELEMENTS[self.dtype], ELEMENTS[self.made], self.stride, self.dilation
        place = f"at + {'' if s == 1 else f'{s} * '}n"
        far = f" + {'' if d == 1 else f'{d} * '}j"
        lines = [
            f"/* Groups of four bytes, {d} apart, one group every {s}: to[n][j] = x[{place}{far}]{flip}.",
            " * x has total bytes; to has space for a vector after the last group. */",
            f"static void {self.name}(int64_t count, const {kind} *x, int64_t at, int64_t total, {made} *to)",
            "{",
            "    int64_t n = 0;",
            f"    for (; n < count && {place} < 0; ++n) {{",
            *self._checked(f"{place}{far}", flip, made),
            "    }",
        ]
        if self._is_shuffled:
            lines += [
                "#if defined(__AVX512BW__)",
                *self._avx512(place, flip),
                "#elif defined(__AVX2__)",
                *self._avx2(place, flip),
                "#endif",
            ]
        lines += [
            f"    for (; n < count && {place} + {3 * d} < total; ++n) {{",
            f"        for (int j = 0; j < {GROUP}; ++j) to[{GROUP} * n + j] = ({made})(x[{place}{far}]{flip});",
            "    }",
            "    for (; n < count; ++n) {",
            *self._checked(f"{place}{far}", flip, made),
            "    }",
            "}",
        ]
        own = "\n".join(lines) + "\n"
        header = "#if defined(__AVX512BW__) || defined(__AVX2__)\n#include <immintrin.h>\n#endif\n"
        return header + own if self._is_shuffled else own

    def _checked(self, place: str, flip: str, made: str) -> list[str]:
        """One group, some bytes of which may be out of bounds."""
        return [
            f"        for (int j = 0; j < {GROUP}; ++j) {{",
            f"            const int64_t from = {place};",
            f"            to[{GROUP} * n + j] = ({made})((from < 0 || from >= total ? 0 : x[from]){flip});",
            "        }",
        ]

    def _avx512(self, place: str, flip: str) -> list[str]:
        """16 groups: every four of them are selected from 16 bytes."""
        words = ", ".join(str(self.stride * lane + word) for lane in range(4) for word in range(4))
        chosen = "_mm512_shuffle_epi8(_mm512_permutexvar_epi32(words, _mm512_loadu_si512(x + " + place + ")), bytes)"
        bits = f"_mm512_xor_si512({chosen}, _mm512_set1_epi8(-{FLIP}))" if flip else chosen
        return [
            f"    const __m512i words = _mm512_setr_epi32({words});",
            "    const __m512i bytes = _mm512_broadcast_i32x4(",
            f"            _mm_setr_epi8({self._bytes(16)}));",
            f"    for (; n < count && {place} + 64 <= total; n += 16) {{",
            f"        _mm512_storeu_si512(to + {GROUP} * n,",
            f"                {bits});",
            "    }",
        ]

    def _avx2(self, place: str, flip: str) -> list[str]:
        """Eight groups: every four of them are selected from 16 bytes."""
        ahead = 4 * self.stride
        loads = [f"_mm_loadu_si128((const __m128i *)(const void *)(x + {place}{more}))" for more in ("", f" + {ahead}")]
        bits = "_mm256_shuffle_epi8(both, bytes)"
        return [
            "    const __m256i bytes = _mm256_broadcastsi128_si256(",
            f"            _mm_setr_epi8({self._bytes(16)}));",
            f"    for (; n < count && {place} + {ahead + 16} <= total; n += 8) {{",
            f"        const __m128i low = {loads[0]},",
            f"                high = {loads[1]};",
            "        const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);",
            f"        _mm256_storeu_si256((__m256i *)(void *)(to + {GROUP} * n),",
            f"                {f'_mm256_xor_si256({bits}, _mm256_set1_epi8(-{FLIP}))' if flip else bits});",
            "    }",
        ]


@dataclass(frozen=True)
class ByteTapTile:
    """The function that computes a tile of sums: each row of weights is multiplied with the groups of all windows."""

    left: str
    right: str
    lanes: int
    rows: int
    vectors: int

    @property
    def name(self) -> str:
        """The function."""
        return f"oi_taps_{self.left}{self.right}x{self.lanes}_{self.rows}x{self.vectors}"

    @property
    def dot(self) -> Dot:
        """The dot product that it accumulates."""
        return Dot(self.left, self.right, self.lanes)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The dot product."""
        return (self.dot,)

    @property
    def text(self) -> str:
        """``c[r][n] = start[r] + sum over t and j of a[r][t][j] * x[taps[t] + 4 * n + j]``."""
        vector, width = self.dot.vector, self.lanes * self.vectors
        rows, is_row = f"{self.rows} row{'s' * (self.rows > 1)}", self.rows == 1
        a_row, c_row = ("", "") if is_row else (", int64_t a_row", ", int64_t c_row")
        lines = [
            f"/* {rows} of weights a, {width} adjacent windows: window n reads four bytes at x[taps[t] + 4 * n]. */",
            f"static void {self.name}(int64_t count, const {ELEMENTS[self.left]} *a{a_row},",
            f"        const {ELEMENTS[self.right]} *x, const int32_t *taps, const uint32_t *start,",
            f"        int32_t *c{c_row})",
            "{",
            "#if defined(__GNUC__)",
        ]
        for row in range(self.rows):
            sums = [
                f"{sum_name(row, column, 0)} = start[{row}] - ({vector.name}){{0}}" for column in range(self.vectors)
            ]
            lines.append(f"    {vector.name} {', '.join(sums)};")
        loads = [
            f"b{column} = {vector_at(f'const {vector.name}', 'b', more=GROUP * self.lanes * column)}"
            for column in range(self.vectors)
        ]
        lines += [
            f"    for (int64_t t = 0; t < count; ++t, a += {GROUP}) {{",
            f"        const {ELEMENTS[self.right]} *const b = x + taps[t];",
            f"        const {vector.name} {', '.join(loads)};",
        ]
        for row in range(self.rows):
            totals = [(sum_name(row, column, 0), column) for column in range(self.vectors)]
            steps = [f"{total} = {self.dot.name}(a{row}, b{column}, {total});" for total, column in totals]
            lines.append(f"        const {vector.name} a{row} = {vector.spread}({ahead('a', (row, 'a_row'))});")
            lines.append(f"        {' '.join(steps)}")
        lines.append("    }")
        lines += [
            f"    {vector_at(vector.name, 'c', (row, 'c_row'), more=column * self.lanes)} = {sum_name(row, column, 0)};"
            for row in range(self.rows)
            for column in range(self.vectors)
        ]
        own = row_of(self.rows)
        left = f"a[{place((own, 'a_row'), ('i', 1))}]"
        product = f"(uint32_t){left} * (uint32_t)x[taps[i / {GROUP}] + {GROUP} * n + i % {GROUP}]"
        lines += [
            "#else",
            *each_row(
                self.rows,
                f"for (int n = 0; n < {width}; ++n) {{",
                f"    uint32_t sum = start[{own}];",
                f"    for (int64_t i = 0; i < {GROUP} * count; ++i) sum += {product};",
                f"    c[{place((own, 'c_row'), ('n', 1))}] = (int32_t)sum;",
                "}",
            ),
            "#endif",
            "}",
        ]
        return "\n".join(lines) + "\n"


def byte_tap_lines(one: Contraction, taps: ByteTaps, scalars: ScalarPrinter) -> list[str]:
    """The lines of a contraction of bytes whose windows are offset lists."""
    return list(_ByteTapLines(one, taps, scalars).lines())


class _ByteTapLines:
    def __init__(self, one: Contraction, taps: ByteTaps, scalars: ScalarPrinter) -> None:
        self._one, self._taps, self._scalars = one, taps, scalars
        counts = (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, taps.quads.shape[0])
        self._index = counted(scalars, (*one.free, *one.bound, PANEL, TILE_ROW), counts)
        row = affine(one.out_index[0])
        rows = [
            extent for var, extent in zip(one.free, one.extents, strict=True) if row is not None and row.stride(var)
        ]
        self._rows = rows[0] if rows else 1

    @property
    def _fill(self) -> str:
        """A byte of a border, as stored in the copy."""
        value = self._taps.fill
        if self._taps.is_flipped:
            value ^= FLIP
            if self._taps.quads.dtype.name == "u8":
                value &= 255
            elif value >= FLIP:
                value -= 2 * FLIP
        return str(value)

    def lines(self) -> Iterator[str]:
        """The copy into groups, the contribution of flipped bytes, and the tiles."""
        taps = self._taps
        offsets = ", ".join(map(str, taps.offsets))
        yield "{"
        yield (
            f"{PAD}/* Windows as offset lists: {taps.windows} windows of {len(taps.offsets)} groups of four bytes"
            f" each, {taps.vectors * taps.lanes} windows at a time. */"
        )
        yield f"{PAD}static const int32_t taps[] = {{{offsets}}};"
        for line in self._copies():
            yield PAD + line
        for line in self._start():
            yield PAD + line
        heights = row_sizes(self._rows, min(taps.rows, self._rows))
        full = self._rows // heights[0] * heights[0]
        yield from self._tiles("m0" if full > heights[0] else 0, heights[0], full)
        if len(heights) > 1:
            yield from self._tiles(full, heights[1], self._rows)
        yield "}"

    # --- copies -----------------------------------------------------------------------------------------------------

    def _copies(self) -> Iterator[str]:
        """Groups of all rows: by channel, group and phase, in memory order."""
        taps, index = self._taps, self._index
        start = self._scalars.position(plane_start(self._one, taps).scalar())
        yield f"{_type(taps.quads.dtype.name)} *to = {taps.quads.name};"
        yield f"{index} plane = {start.text};"
        steps = self._one.a.actual_strides[taps.axis - 1]
        size = taps.groups * taps.phases * taps.places * taps.last.count * GROUP
        if taps.channels is not None:
            ahead = f"++channel, plane += {steps}, to += {size}"
            yield f"for ({index} channel = 0; channel < {taps.channels[1]}; {ahead}) {{"
        pad = PAD if taps.channels is not None else ""
        plane = taps.places * taps.last.count * GROUP
        for group in range(taps.groups):
            for phase in range(taps.phases):
                for line in self._plane(group, phase, (group * taps.phases + phase) * plane):
                    yield pad + line
        if taps.channels is not None:
            yield "}"

    def _plane(self, group: int, phase: int, begin: int) -> Iterator[str]:
        """The rows of one phase, with one group of four of each row of windows."""
        taps = self._taps
        row, at = taps.row, taps.last.first + taps.last.dilation * GROUP * group
        if row is None:
            yield self._call("plane", at, ahead("to", more=begin), str(taps.last.count))
            yield from self._patches(group, "to", begin)
            return
        if phase not in row.used:
            return
        first, last = self._lines_seen(row, phase)
        name = "line" if row.stride == 1 else f"{row.stride} * line"
        about = f"/* A line that windows read is row {self._source(row, phase, name)} of the plane. */"
        if isinstance(first, int) and isinstance(last, int):
            yield about
            yield from self._border(begin, 0, first)
            yield from self._rows_seen(row, phase, group, begin, (first, last))
            yield from self._border(begin, last, taps.places)
            return
        yield "{"
        yield PAD + about
        yield f"{PAD}const {self._index} first = {first}, last = {last};"
        yield from (PAD + line for line in self._border(begin, 0, "first"))
        yield from (PAD + line for line in self._rows_seen(row, phase, group, begin, None))
        yield from (PAD + line for line in self._border(begin, "last", taps.places))
        yield "}"

    def _rows_seen(self, row: Along, phase: int, group: int, begin: int, seen: tuple[int, int] | None) -> Iterator[str]:
        """The lines that are rows of the plane: from ``first`` to ``last`` in C, or this range."""
        taps, last = self._taps, self._taps.last
        at, width, patches = (
            last.first + last.dilation * GROUP * group,
            last.count * GROUP,
            [*self._patches(group, "own")],
        )
        if seen is not None and seen[0] == seen[1]:
            return
        is_flat = row.stride == last.stride == 1 and last.count == last.extent
        if is_flat:
            # Rows are contiguous; what a window would read of adjacent rows is patched with the border.
            if seen is None:
                source = f"plane + ({self._source(row, phase, 'first')}) * {last.extent}"
                target = ahead("to", ("first", width), more=begin)
                yield self._call(source, at, target, f"(last - first) * {last.count}")
            else:
                first = at + (seen[0] + phase + row.first) * last.extent
                target = ahead("to", more=begin + seen[0] * width)
                yield self._call("plane", first, target, str((seen[1] - seen[0]) * last.count))
        if seen is not None and seen[1] == seen[0] + 1:
            own = begin + seen[0] * width
            if not is_flat:
                first = at + (seen[0] * row.stride + phase + row.first) * last.extent
                yield self._call("plane", first, ahead("to", more=own), str(last.count))
            yield from self._patches(group, "to", own)
            return
        if is_flat and not patches:
            return
        start, end = ("first", "last") if seen is None else seen
        yield f"for ({self._index} line = {start}; line < {end}; ++line) {{"
        yield f"{PAD}{_type(taps.quads.dtype.name)} *const own = {ahead('to', more=begin)} + line * {width};"
        if not is_flat:
            name = "line" if row.stride == 1 else f"{row.stride} * line"
            source = f"plane + ({self._source(row, phase, name)}) * {last.extent}"
            yield PAD + self._call(source, at, "own", str(last.count))
        yield from (PAD + line for line in patches)
        yield "}"

    def _source(self, row: Along, phase: int, line: str) -> str:
        """The row of the plane for a line of a phase."""
        text = line
        if self._taps.bands > 1:
            text += f" + {BAND.name} * {row.count * row.stride}"
        away = phase + row.first
        return text if away == 0 else f"{text} {'+' if away > 0 else '-'} {abs(away)}"

    def _lines_seen(self, row: Along, phase: int) -> tuple[int, int] | tuple[str, str]:
        """The range of lines of a band that are rows of the plane: the first, and one past the last."""
        taps, away = self._taps, phase + row.first
        if taps.bands == 1:
            low = min(max(-(away // row.stride), 0), row.places)
            return low, min(max(-((away - row.extent) // row.stride), low), row.places)
        lines = row.count
        before, behind = -(away // row.stride), -((away - row.extent) // row.stride)
        first = f"{before} - {BAND.name} * {lines}"
        last = f"{behind} - {BAND.name} * {lines}"
        return f"{first} > 0 ? {first} : 0", f"{last} < {row.places} ? {last} : {row.places}"

    def _border(self, begin: int, first: int | str, last: int | str) -> Iterator[str]:
        """Lines outside the plane, if there are any."""
        if first == last:
            return
        width = self._taps.last.count * GROUP
        low, high, to = place((first, width)), place((last, width)), place((begin, 1), ("k", 1))
        yield f"for ({self._index} k = {low}; k < {high}; ++k) to[{to}] = {self._fill};"

    def _patches(self, group: int, to: str, begin: int = 0) -> Iterator[str]:
        """The bytes of a row's groups that belong to a border."""
        own = self._taps.last
        for window in range(own.count):
            for j in range(GROUP):
                tap = GROUP * group + j
                place = own.stride * window + own.first + own.dilation * tap
                if tap < own.taps and not 0 <= place < own.extent:
                    yield f"{to}[{begin + GROUP * window + j}] = {self._fill};"

    def _call(self, source: str, at: int, to: str, count: str) -> str:
        one, own = self._one, self._taps.last
        name = self._scalars.need(Quads(one.a.dtype.name, self._taps.quads.dtype.name, own.stride, own.dilation))
        away = "" if at == 0 else f" {'+' if at > 0 else '-'} {abs(at)}"
        total = one.a.shape[0]
        for extent in one.a.shape[1:]:
            total *= extent
        return f"{name}({count}, {one.a.name}, {source}{away}, {total}, {to});"

    # --- sums -------------------------------------------------------------------------------------------------------

    def _weights(self) -> tuple[str, int]:
        """The start of the weights of the first row, and the stride of rows."""
        one, length = self._one, GROUP * len(self._taps.offsets)
        place = position(one.b, one.b_index)
        assert place is not None
        gone = {var.name for var in (*one.bound, *one.free)}
        outer = type(place)(place.first, {name: step for name, step in place.strides.items() if name not in gone})
        return offset_from(one.b.name, self._scalars.position(outer.scalar())), length

    def _start(self) -> Iterator[str]:
        """The initial values of sums: minus the contribution of flipped bytes."""
        weights, length = self._weights()
        if not self._taps.is_flipped:
            yield f"const uint32_t start[{self._rows}] = {{0}};"
            return
        sign = "-" if self._taps.quads.dtype.name == "u8" else ""
        own = weights if self._rows == 1 else f"{weights} + row * {length}"
        yield f"uint32_t start[{self._rows}];"
        yield f"for ({self._index} row = 0; row < {self._rows}; ++row) {{"
        yield f"{PAD}const {_type(self._one.b.dtype.name)} *const own = {own};"
        yield f"{PAD}uint32_t sum = 0;"
        yield f"{PAD}for ({self._index} k = 0; k < {length}; ++k) sum += (uint32_t)own[k];"
        yield f"{PAD}start[row] = {sign}{FLIP}u * sum;"
        yield "}"

    def _tiles(self, row: int | str, height: int, last: int) -> Iterator[str]:
        """Tiles of one height, from a row on or in a loop over the variable ``row``."""
        is_loop = isinstance(row, str)
        if is_loop:
            yield f"{PAD}for ({self._index} m0 = 0; m0 < {last}; m0 += {height}) {{"
        pad = PAD * 2 if is_loop else PAD
        vectors = -(-self._taps.windows // self._taps.lanes)
        each = min(self._taps.vectors, vectors)
        whole, rest = vectors // each, vectors % each
        width = each * self._taps.lanes
        if whole > 1:
            head = f"for ({self._index} n0 = 0; n0 < {whole * width}; n0 += {width})"
            yield f"{pad}{head} {self._tile(row, 'n0', height, each)}"
        else:
            yield pad + self._tile(row, 0, height, each)
        if rest:
            yield pad + self._tile(row, whole * width, height, rest)
        if is_loop:
            yield f"{PAD}}}"

    def _tile(self, row: int | str, column: int | str, height: int, vectors: int) -> str:
        """The call for one tile."""
        one, taps = self._one, self._taps
        name = self._scalars.need(ByteTapTile(one.b.dtype.name, taps.quads.dtype.name, taps.lanes, height, vectors))
        weights, length = self._weights()
        stride = one.out.shape[-1]
        start, own = ahead("start", (row, 1)), ahead(weights, (row, length))
        to = ahead(one.out.name, (row, stride), (column, 1))
        x = ahead(taps.quads.name, (column, GROUP))
        if height == 1:
            return f"{name}({len(taps.offsets)}, {own}, {x}, taps, {start}, {to});"
        return f"{name}({len(taps.offsets)}, {own}, {length}, {x}, taps, {start}, {to}, {stride});"


def _type(dtype: str) -> str:
    return ELEMENTS[dtype]
