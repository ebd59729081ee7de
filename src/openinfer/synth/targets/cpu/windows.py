"""Finds the convolutions with channels as columns, and the bands they are computed in.

Their weights are in panels, as for other products, and their input is read in place. With positions as columns, the
input is copied once per tap of the window, but the results of a tile need not be transposed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod

from openinfer.loops.affine import Affine, affine, variables
from openinfer.loops.build import index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Contraction, For, LoopKind, ScalarVar, Space, Statement
from openinfer.synth.targets.cpu.choices import ChooseTile, shape_of
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.product import Product, transposed_product_of, window_product_of
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cpu.tile_shapes import StepCycles, tile_shapes, tile_time, usual_step
from openinfer.synth.targets.cpu.window import (
    BAND,
    AxisSpan,
    band,
    copied,
    in_memory,
    is_window,
    spans,
    strides_like,
    without,
)

_SETS = 512
"""Cache lines at addresses that differ by a multiple of this many bytes share at most an eighth of the sets."""
_COPY = 0.4
"""The cost of copying an element, in cycles."""
_RUN = 10.0
"""The additional cost per contiguous run of positions, with positions as columns."""
_COPIED_FROM = 32
"""With at least this many rows, position columns are copied even if they could be read in place."""
_TRANSPOSE = 0.6
"""The cost of transposing an element of the result."""
_LEAST_GAIN = 0.98
"""The most time, relative to that of positions as columns: both are estimates."""
_TWO_AT_ONCE = 8
"""The least number of accumulators in flight where processors multiply two vectors at a time."""
_LARGE = 500_000
"""From this many products on, dividing among threads pays off."""
_LEAST_HEIGHT = 4
"""Lower bands would copy much of the input that adjacent bands copy, too."""
_MOST_PARTS = 8


@dataclass(frozen=True)
class Windows:
    """A convolution in bands: the loops around it, the contraction inside them, and the spans it reads."""

    loops: tuple[tuple[ScalarVar, int], ...]
    one: Contraction
    seen: tuple[AxisSpan, ...]
    is_copied: bool
    tile: CpuTile

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the copied input.

        Elements of one channel would share a few cache sets if they were a multiple of ``_SETS`` apart: padding
        prevents it.
        """
        counts = [span.count for span in self.seen]
        last = in_memory(self.one.a)[-1]
        is_apart = self.tile.has_windows and counts[last] * self.one.accumulator.bits % (8 * _SETS) == 0
        counts[last] += self.tile.lanes * is_apart
        return tuple(counts)

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The strides of the copied input."""
        return strides_like(self.one.a, self.shape)

    def over(self, memory: Buffer | None) -> tuple[tuple[Statement, ...], Contraction]:
        """The statements before the contraction, and the contraction over the copy if there is one."""
        return ((), self.one) if memory is None else copied(self.one, self.seen, memory)

    def around(self, *body: Statement) -> tuple[Statement, ...]:
        """A body inside the loops."""
        for var, extent in reversed(self.loops):
            body = (For(var, index(extent), body, LoopKind.PARALLEL),)
        return body


def windows_of(one: Contraction, usual: Product, target: CpuMachine, choose: ChooseTile) -> Windows | None:
    """The bands of a contraction; None if it has no windows, or if its usual product is no slower."""
    if any(map(is_symbolic, (*one.extents, *one.reduced, *one.a.shape, *one.out.shape))):
        return None
    if one.a_value is not None or one.a.dtype is not one.accumulator or not is_window(one):
        return None
    product = _product(one, transposed_product_of)
    if product is None or not product.inner.vars:
        return None
    clock = _Clock(target, target.lanes(one.accumulator.bits))
    rows, vectors = clock.shape(product)
    copies = _COPY * prod(product.left.buffer.shape) if _is_copied(one) else 0.0
    time = clock.time(product, (rows, vectors)) + copies + _TRANSPOSE * prod(one.extents)
    if time > _LEAST_GAIN * clock.usual_time(usual):
        return None
    shape = shape_of(one, product, has_panels=True)
    choice = None if shape is None else choose(shape.model_copy(update={"left": "windows"}))
    if choice is not None:
        rows, vectors = choice.rows, choice.vectors
    gain = None if choice is None else choice.gain
    tile = CpuTile(rows, vectors * clock.lanes, clock.lanes, has_panels=True, is_transposed=True, gain=gain)
    return _in_bands(one, product, tile, target)


def row_windows_of(one: Contraction, target: CpuMachine) -> Windows | None:
    """The bands of a convolution whose channels are contiguous in the result, and whose windows may cross the edges.

    Rows are windows and columns are channels, so nothing is transposed.
    """
    if any(map(is_symbolic, (*one.extents, *one.reduced, *one.a.shape, *one.out.shape))):
        return None
    if one.a_value is not None or one.a.dtype is not one.accumulator or not is_window(one) or len(one.bound) == 1:
        return None
    alone = [affine(part) for part in one.a_index]
    channels = [var for var in one.bound if Affine(0, {var.name: 1}) in alone]
    order = sorted(zip(one.bound, one.reduced, strict=True), key=lambda pair: pair[0] not in channels)
    one = replace(one, bound=tuple(var for var, _ in order), reduced=tuple(extent for _, extent in order))
    product = _product(one, window_product_of)
    if product is None:
        return None
    clock = _Clock(target, target.lanes(one.accumulator.bits))
    rows, vectors = clock.shape(product)
    tile = CpuTile(rows, vectors * clock.lanes, clock.lanes, has_panels=True, has_windows=True)
    return _in_bands(one, product, tile, target)


def window_tiles(rows: int, columns: int, lanes: int, target: CpuMachine) -> list[tuple[int, int]]:
    """All tile shapes that fit, by increasing estimated time."""
    clock = _Clock(target, lanes)
    return tile_shapes(rows, columns, lanes, target, spare=clock.least_spare, step=clock.step)


def _is_copied(one: Contraction) -> bool:
    """Whether windows cross the edges, so that their input cannot be read in place."""
    return one.valid is not None


def _product(one: Contraction, find: Callable[[Contraction], Product | None]) -> Product | None:
    """The product, over a copied input if one is needed."""
    if not _is_copied(one):
        return find(one)
    seen = spans(one, {})
    shape = tuple(span.count for span in seen)
    memory = Buffer("copy", one.accumulator, shape, Space.SCRATCH, strides_like(one.a, shape))
    return find(copied(one, seen, memory)[1])


# --- time -------------------------------------------------------------------------------------------------------------


def _short_step(rows: int, vectors: int) -> float:
    """A step of a tile on processors with short vectors: they multiply two at once, and load two values."""
    return max(rows * vectors, _TWO_AT_ONCE, 1.15 * (rows + vectors)) / 2 + 0.3 * vectors


@dataclass(frozen=True)
class _Clock:
    """Estimates of time, in cycles."""

    target: CpuMachine
    lanes: int

    @property
    def step(self) -> StepCycles:
        return usual_step if self.target.reads_factors else _short_step

    @property
    def least_spare(self) -> int | None:
        """Registers besides accumulators and columns: row factors that stay in memory need none."""
        return 0 if self.target.reads_factors else None

    def shape(self, product: Product) -> tuple[int, int]:
        """The rows and vectors of a tile."""
        rows, columns = product.rows.extent, product.columns.extent
        usual = tile_shapes(rows, columns, self.lanes, self.target, step=self.step)[0]
        full = tile_shapes(rows, columns, self.lanes, self.target, spare=self.least_spare, step=self.step)[0]
        return full if self.time(product, full) < 0.98 * self.time(product, usual) else usual

    def time(self, product: Product, shape: tuple[int, int]) -> float:
        """The time of all tiles."""
        each = tile_time(product.rows.extent, product.columns.extent, shape, self.lanes, self.step)
        return each * product.inner.extent * product.outside.extent

    def usual_time(self, product: Product) -> float:
        """The time with positions as columns, which are copied for each tap of the window."""
        rows, columns = product.rows.extent, product.columns.extent
        is_copied = product.right.place is None or rows >= _COPIED_FROM
        runs = columns // product.columns.extents[-1]
        copies = (_COPY * columns + _RUN * runs) * product.inner.extent * product.outside.extent if is_copied else 0.0
        return self.time(product, tile_shapes(rows, columns, self.lanes, self.target)[0]) + copies


# --- bands ------------------------------------------------------------------------------------------------------------


def _in_bands(one: Contraction, product: Product, tile: CpuTile, target: CpuMachine) -> Windows | None:
    """A loop for each position index that is outside of the tiles, the last of them in bands."""
    extents = dict(zip(one.free, one.extents, strict=True))
    channels = variables(one.factors[1])
    places = [var for var in product.outside.vars if var.name not in channels]
    loops = {var: extents[var] for var in places[:-1]}
    inner = one
    for var in loops:
        inner = without(inner, var)
    if places:
        height = _height(inner, places[-1], loops, target)
        if height is None:
            return None
        if height < extents[places[-1]]:
            inner = band(inner, places[-1], height)
            loops[BAND] = extents[places[-1]] // height
    seen = _seen(inner, loops)
    if _is_copied(one) and seen[in_memory(one.a)[-1]].first.strides:
        return None
    return Windows(tuple(loops.items()), inner, seen, _is_copied(one), tile)


def _height(one: Contraction, var: ScalarVar, loops: Mapping[ScalarVar, int], target: CpuMachine) -> int | None:
    """The positions of an index in a band: all bands have the same number, and their input must fit in a cache.

    A large contraction gets bands that 2, 4 or 8 threads can share evenly, as high as that allows.
    """
    extent = one.extents[one.free.index(var)]
    heights = [height for height in range(1, extent + 1) if extent % height == 0]
    if _is_copied(one):
        heights = [height for height in heights if _nbytes(band(one, var, height), loops) <= target.l2]
    is_large = prod(one.extents) * prod(one.reduced) >= _LARGE

    def rank(height: int) -> tuple[int, int, int]:
        return min(height, _LEAST_HEIGHT), gcd(extent // height, _MOST_PARTS) if is_large else 0, height

    return max(heights, key=rank, default=None)


def _nbytes(one: Contraction, loops: Mapping[ScalarVar, int]) -> int:
    """The size of a copy, which does not depend on the number of bands."""
    return prod(span.count for span in _seen(one, {**loops, BAND: 1})) * one.accumulator.bits // 8


def _seen(one: Contraction, loops: Mapping[ScalarVar, int]) -> tuple[AxisSpan, ...]:
    return spans(one, {var.name: extent for var, extent in loops.items()})
