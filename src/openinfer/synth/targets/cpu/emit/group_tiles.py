"""Tiles of group-quantized integers: the sum of a group is multiplied with the scales of its columns, then accumulated.

If groups have offsets, too, these are multiplied with the sum of the row's elements in the group.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.synth.targets.cpu.emit.places import ahead, place, row_of, vector_at
from openinfer.synth.targets.cpu.emit.tiles import (
    FloatTile,
    HalfLoad,
    each_row,
    element,
    products,
    sum_name,
    zero_sums,
)
from openinfer.synth.targets.cstyle.support import Need

_LINE = 64
"""The bytes of a cache line."""
_AHEAD = 1024
"""The prefetch distance in bytes: about what is multiplied during the latency of memory."""
SCALE_TYPES = {"f32": "float", "f16": "uint16_t"}
"""The C types of scales in memory."""


@dataclass(frozen=True)
class GroupTile:
    """The function that computes a tile of ``tile.stored`` integers; ``group`` of them share scales and offsets."""

    tile: FloatTile
    group: int
    scales: str
    is_affine: bool

    @property
    def name(self) -> str:
        """The function."""
        kind = f"{self.scales}{'_affine' * self.is_affine}"
        return f"{self.tile.name}_by_{self.group}_{kind}"

    @property
    def needs(self) -> tuple[Need, ...]:
        """The needs of the tile, and the loads of scales."""
        return (*self.tile.needs, *((HalfLoad("f16", self.tile.lanes),) if self.scales == "f16" else ()))

    @property
    def text(self) -> str:
        """Its definition."""
        tile, kind = self.tile, SCALE_TYPES[self.scales]
        about = f"{tile.rows} row{'s' * (tile.rows > 1)} of a, {tile.width} columns of {tile.stored} of b"
        what = "scale and an offset" if self.is_affine else "scale"
        offset = f"const {kind} *offset, " * self.is_affine
        return "\n".join(
            [
                f"/* c = a * b: {about}; each group of {self.group} products of a column has a {what}. */",
                f"static void {self.name}(int64_t groups, const float *a, {tile.row_stride}int64_t a_step,",
                f"        const {tile.stored_type} *b, int64_t b_row, const {kind} *scale,",
                f"        {offset}float *c, int64_t c_row)",
                "{",
                "#if defined(__GNUC__)",
                *self._vectors(),
                "#else",
                *self._plain(),
                "#endif",
                "}",
                "",
            ]
        )

    def _vectors(self) -> Iterator[str]:
        tile, vector = self.tile, self.tile.vector
        splits = max(1, 4 // (tile.rows * tile.vectors))
        totals = [f"t{row}_{column} = {{0}}" for row in range(tile.rows) for column in range(tile.vectors)]
        yield f"    {vector.name} {', '.join(totals)};"
        yield "    for (; groups > 0; --groups) {"
        yield from (f"    {line}" for line in zero_sums(vector.name, tile.rows, tile.vectors, splits))
        if self.is_affine:
            yield f"        float {', '.join(f'sum{row} = 0' for row in range(tile.rows))};"
        steps = f"a += {place((splits, 'a_step'))}, b += {place((splits, 'b_row'))}"
        yield f"        for (int i = 0; i < {self.group}; {'++i' if splits == 1 else f'i += {splits}'}, {steps}) {{"
        for split in range(splits):
            yield from (f"    {line}" for line in products(tile, split))
            if self.is_affine:
                places = [place((row, "a_row"), (split, "a_step")) for row in range(tile.rows)]
                yield "            " + " ".join(f"sum{row} += a[{at}];" for row, at in enumerate(places))
        yield from self._ahead(splits)
        yield "        }"
        yield from self._added(splits)
        yield f"        scale += c_row;{' offset += c_row;' * self.is_affine}"
        yield "    }"
        for row in range(tile.rows):
            for column in range(tile.vectors):
                to = vector_at(vector.name, "c", (row, "c_row"), more=column * tile.lanes)
                yield f"    {to} = t{row}_{column};"

    def _ahead(self, splits: int) -> Iterator[str]:
        """Prefetches what is read a little later: hardware prefetching stops at the end of a page."""
        row = self.tile.width // 2 if self.tile.is_bare else self.tile.width
        for line in range(0, splits * row, _LINE):
            yield f"            __builtin_prefetch((const void *)((uintptr_t)b + {_AHEAD + line}));"

    def _added(self, splits: int) -> Iterator[str]:
        """Accumulates the sums of a group, times the scales, and the contribution of the offsets."""
        tile = self.tile
        for column in range(tile.vectors):
            for name in ("scale", "offset")[: 1 + self.is_affine]:
                yield f"        const {tile.vector.name} {name}{column} = {self._loaded(name, column)};"
            for row in range(tile.rows):
                total = " + ".join(sum_name(row, column, split) for split in range(splits))
                # High nibbles are loaded as 16 times their value.
                scale = f"(scale{column} * 0.0625f)" if tile.is_bare and column % 2 else f"scale{column}"
                yield f"        t{row}_{column} += ({total}) * {scale};"
                if self.is_affine:
                    fma = tile.vector.fma
                    yield f"        t{row}_{column} = {fma}(sum{row}, offset{column}, t{row}_{column});"

    def _loaded(self, name: str, column: int) -> str:
        first = column * self.tile.lanes
        if self.scales == "f16":
            return f"{HalfLoad(self.scales, self.tile.lanes).name}({ahead(name, more=first)})"
        return vector_at(f"const {self.tile.vector.name}", name, more=first)

    def _plain(self) -> Iterator[str]:
        tile, row = self.tile, row_of(self.tile.rows)
        left = f"a[{place((row, 'a_row'), ('i', 'a_step'))}]"
        number = "oi_from_f16({})" if self.scales == "f16" else "{}"

        def lines() -> Iterator[str]:
            yield f"for (int n = 0; n < {tile.width}; ++n) {{"
            yield "    float total = 0;"
            yield "    for (int64_t g = 0; g < groups; ++g) {"
            yield f"        float part = 0{', sum = 0' * self.is_affine};"
            yield f"        for (int64_t i = g * {self.group}; i < (g + 1) * {self.group}; ++i) {{"
            yield f"            part += {left} * {element(tile)};"
            if self.is_affine:
                yield f"            sum += {left};"
            yield "        }"
            yield f"        total += part * {number.format('scale[g * c_row + n]')};"
            if self.is_affine:
                yield f"        total += sum * {number.format('offset[g * c_row + n]')};"
            yield "    }"
            yield f"    c[{place((row, 'c_row'), ('n', 1))}] = total;"
            yield "}"

        return each_row(tile.rows, *lines())
