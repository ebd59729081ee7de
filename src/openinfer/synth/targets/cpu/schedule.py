"""Schedules contractions: which are computed in tiles, and which weights are stored in panels for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from openinfer.dtypes import DType
from openinfer.loops.affine import position
from openinfer.loops.build import flat
from openinfer.loops.dim import Dim, is_same, is_symbolic
from openinfer.loops.expand import expanded
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Bind,
    Buffer,
    Const,
    Contraction,
    For,
    Kernel,
    Load,
    LoopKind,
    Scalar,
    Select,
    Space,
    Statement,
    walk,
)
from openinfer.loops.reduction import reductions
from openinfer.loops.rewrite import changed, straightened, with_bodies
from openinfer.loops.scales import factored
from openinfer.synth.memory.weights import FiniteWeights
from openinfer.synth.program.ir import KernelStep, Program, Value, Weight
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu.byte_products import are_bytes
from openinfer.synth.targets.cpu.bytes import grouped
from openinfer.synth.targets.cpu.channel_taps import channel_windows_of
from openinfer.synth.targets.cpu.choices import ChooseTile, by_rule, shape_of
from openinfer.synth.targets.cpu.find_byte_taps import byte_windows_of
from openinfer.synth.targets.cpu.find_taps import FindTaps, few_channels_of, taps_of
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.packable import Packable, uses_of
from openinfer.synth.targets.cpu.packing import in_panels
from openinfer.synth.targets.cpu.product import FusedAxis, Product, product_of, tiled_product, without_single
from openinfer.synth.targets.cpu.quantized import are_half_floats, integers_of
from openinfer.synth.targets.cpu.run_on import loops_as_one
from openinfer.synth.targets.cpu.steps import in_steps
from openinfer.synth.targets.cpu.tile import CpuTile
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes
from openinfer.synth.targets.cpu.windows import row_windows_of, windows_of
from openinfer.synth.targets.cpu.word_taps import word_taps_of
from openinfer.synth.targets.cpu.words import worded

_LEAST = 512
"""Contractions of fewer products stay plain loops: tiles gain nothing."""
_PACKED_FROM = 32
"""With at least this many rows, copying a panel of columns that could be read in place pays off."""
_LANES_FROM = 32
"""Reductions of at least this many values run in lanes, which are combined at the end."""
_FEW_ROWS = 4
"""Up to this many rows, a copy does not pay off."""
_PAGE = 4096
"""Rows with this stride, in bytes, map to the same L1 set, which cannot hold all rows of a tile."""
_LEAST_PANELS = 4
"""Rows that collide are copied for at least this many panels; for fewer, copying costs more."""


@dataclass(frozen=True)
class Schedule:
    """The pass: contractions get tiles, and weights are packed for them."""

    target: CpuMachine
    choose: ChooseTile = by_rule
    """Tiles that measured best; where there is none, rules decide."""

    def run(self, program: Program) -> Program:
        """The program with scheduled kernels."""
        finite = FiniteWeights(program)
        return program.map_kernels(lambda step: (self._call(step, finite),))

    def _call(self, step: KernelStep, finite_weights: FiniteWeights) -> KernelStep:
        names = [buffer.name for buffer in step.kernel.inputs]
        pairs = list(zip(names, step.inputs, strict=True))
        weights = {name: operand for name, operand in pairs if isinstance(operand, Weight)}
        finite = None
        if any(isinstance(one, Contraction) and one.valid is not None for one in walk(step.kernel.body)):
            finite = frozenset(name for name, weight in weights.items() if weight in finite_weights)
        kernel, packings = scheduled(step.kernel, self.target, frozenset(weights), finite, self.choose)
        inputs = tuple(
            replace(operand, packing=packings[name], shape=packings[name].shape)
            if isinstance(operand, Weight) and name in packings
            else operand
            for name, operand in zip(names, step.inputs, strict=True)
        )
        known = dict(zip((buffer.name for buffer in step.kernel.scratch), step.scratch, strict=True))
        memory = tuple(
            known.get(buffer.name) or Value(f"{step.outputs[0].name}_{buffer.name}", buffer.dtype, buffer.shape)
            for buffer in kernel.scratch
        )
        return replace(step, kernel=kernel, inputs=inputs, scratch=memory)


def scheduled(
    kernel: Kernel,
    target: CpuMachine,
    weights: frozenset[str],
    finite: frozenset[str] | None = None,
    choose: ChooseTile = by_rule,
) -> tuple[Kernel, dict[str, Packing]]:
    """A kernel with tiles for its contractions, and the packings of the weights among its inputs, by name.

    ``finite`` names the inputs without infinities and NaN; None means all weights.
    """
    planner = _Planner(kernel, target, weights, weights if finite is None else finite, choose)
    body = straightened(kernel.body)
    body = planner.statements(straightened(in_steps(body)) if target.words else body)
    inputs = tuple(planner.panels.get(buffer.name, buffer) for buffer in kernel.inputs)
    return replace(kernel, body=body, inputs=inputs), planner.packings


class _Planner:
    def __init__(
        self, kernel: Kernel, target: CpuMachine, weights: frozenset[str], finite: frozenset[str], choose: ChooseTile
    ) -> None:
        self._target = target
        self._choose = choose
        self._weights = weights
        self._finite = finite
        self._uses = list(uses_of(kernel.body))
        self._needed: list[Buffer] = []
        """Scratch memory that is not yet allocated."""
        self._allocated = 0
        self.packings: dict[str, Packing] = {}
        self.panels: dict[str, Buffer] = {}

    def statements(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(made for statement in body for made in self._statements(statement))

    def _statements(self, statement: Statement) -> tuple[Statement, ...]:
        if isinstance(statement, Contraction) and self._target.has_vectors:
            statement = factored(statement)
        if isinstance(statement, Contraction) and self._is_read_along(statement):
            return self.statements(expanded(statement))
        if isinstance(statement, Contraction):
            return (
                self._by_byte_taps(statement)
                or self._by_channels(statement)
                or self._by_taps(statement, taps_of)
                or self._in_bands(statement)
                or self._by_taps(statement, few_channels_of)
                or self._with_memory(self._tiled(statement))
            )
        return (self._statement(statement),)

    def _with_memory(self, *statements: Statement) -> tuple[Statement, ...]:
        """The pending allocations, followed by the statements that need them."""
        memory, self._needed = self._needed, []
        return (*map(Alloc, memory), *statements)

    def _statement(self, statement: Statement) -> Statement:
        made = _as_one_loop(with_bodies(statement, self.statements))
        return replace(made, bind=Bind.LANES) if isinstance(made, For) and _has_lanes(made) else made

    def _in_bands(self, statement: Contraction) -> tuple[Statement, ...] | None:
        """A convolution with channels as columns, if that is faster."""
        one = _ordered(without_single(statement), self._weights)
        is_plain = (one.b_value is None and one.b.dtype is one.accumulator) or are_half_floats(one, one.b)
        if not self._has_tiles(one) or not is_plain or not self._packable(one)(one.b):
            return None
        if one.valid is not None and one.b.name not in self._finite:
            return None
        usual = product_of(one, self._packable(one))
        if usual is None or not _is_large(usual):
            return None
        found = windows_of(one, usual, self._target, self._choose)
        if found is None and usual.left.place is None:
            # Its rows would be copied once per tap.
            found = row_windows_of(without_single(statement), self._target)
        if found is None:
            return None
        memory = self._buffer(one, found.shape, strides=found.strides) if found.is_copied else None
        copy, inner = found.over(memory)
        product = tiled_product(inner, found.tile)
        return found.around(*self._with_memory(*copy, self._with_panels(inner, product, found.tile)))

    def _by_taps(self, statement: Contraction, find: FindTaps) -> tuple[Statement, ...] | None:
        """A grouped or few-channel convolution, with windows as offset lists."""
        one = without_single(statement)
        is_finite = one.valid is None or one.b.name in self._finite
        found = find(one, self._target) if self._has_tiles(one) and is_finite else None
        if found is None or prod(one.extents) * prod(one.reduced) < _LEAST:
            return None
        plane, sums = (self._buffer(one, shape) for shape in found.shapes)
        return found.around(*self._with_memory(*found.over(plane, sums)))

    def _by_channels(self, statement: Contraction) -> tuple[Statement, ...] | None:
        """A depthwise convolution with contiguous channels."""
        one = without_single(statement)
        found = channel_windows_of(one, self._target) if self._has_tiles(one) else None
        if found is None or not self._packable(one)(one.b) or (found.is_edged and one.b.name not in self._finite):
            return None
        packing = found.packing()
        panels = Buffer(one.b.name, one.b.dtype, packing.shape, one.b.space)
        self.packings[panels.name], self.panels[panels.name] = packing, panels
        zeros = self._buffer(one, (found.channels,)) if found.is_edged else None
        return self._with_memory(*found.over(panels, zeros))

    def _by_byte_taps(self, statement: Contraction) -> tuple[Statement, ...] | None:
        """A convolution of bytes, with windows as offset lists of groups of four."""
        one = without_single(statement)
        found = byte_windows_of(one, self._target) if self._has_tiles(one) and self._packable(one)(one.b) else None
        if found is None or prod(one.extents) * prod(one.reduced) < _LEAST:
            return None
        packing = found.packing()
        panels = Buffer(one.b.name, one.b.dtype, packing.shape, one.b.space)
        self.packings[panels.name], self.panels[panels.name] = packing, panels
        quads = self._buffer(one, found.quads_shape, found.quads_dtype)
        sums = self._buffer(one, found.sums_shape)
        made = None if found.made_shape is None else self._buffer(one, found.made_shape, one.out.dtype)
        return found.around(*self._with_memory(*found.over(panels, quads, sums, made)))

    def _has_tiles(self, one: Contraction) -> bool:
        """Whether a contraction is of a kind that can be tiled."""
        extents = (*one.extents, *one.reduced)
        is_empty = any(not extent and not is_symbolic(extent) for extent in extents)
        is_float = one.accumulator.name in ("f32", "f64")
        has_registers = self._target.has_vectors or (self._target.words and not is_float)
        return (is_float or are_bytes(one)) and has_registers and not is_empty

    def _tiled(self, statement: Contraction) -> Contraction:
        if not self._has_tiles(statement):
            return statement
        one = without_single(statement)
        windows = word_taps_of(one) if self._target.words else None
        if windows is not None:
            return replace(one, template=windows)
        one = _ordered(one, self._weights)
        product = product_of(one, self._packable(one))
        if product is None or not _is_large(product):
            return statement
        if are_bytes(one):
            return self._in_groups(one, product)
        # In a tile, invalid terms are zeros times the other factor: infinities would turn them into NaN.
        other = _other_than_zero(one, product)
        if other is not None and other.dtype.kind == "float" and other.name not in self._finite:
            return statement
        tile = self._tile(one, product, has_panels=self._packable(one)(product.right.buffer))
        if tile.has_panels:
            return self._with_panels(one, product, tile)
        return replace(one, template=self._with_scratch(one, product, tile))

    def _in_groups(self, one: Contraction, product: Product) -> Contraction:
        """A contraction of bytes that are multiplied in groups of four."""
        if is_symbolic(product.inner.extent):
            return one
        if not self._target.has_vectors:
            return self._in_words(one, product)
        target = self._target.for_bytes
        lanes = target.lanes(one.accumulator.bits)
        rows, vectors = tile_shapes(product.rows.extent, product.columns.extent, lanes, target)[0]
        tile = CpuTile(rows, vectors * lanes, lanes)
        found = grouped(one, product, tile, target, self._packable(one), self._allocated)
        self._needed += found.scratch
        self._allocated += len(found.scratch)
        self.packings |= found.packings
        self.panels |= found.panels
        return found.contraction

    def _in_words(self, one: Contraction, product: Product) -> Contraction:
        """A contraction of bytes that are multiplied in pairs."""
        found = worded(one, product, self._packable(one), self._allocated)
        if found is None:
            return one
        self._needed.append(found.scratch)
        self._allocated += 1
        self.packings[found.name] = found.packing
        self.panels[found.name] = found.panels
        return found.contraction

    def _tile(self, one: Contraction, product: Product, *, has_panels: bool) -> CpuTile:
        """The tile that measured best, or else the one that the rules choose."""
        lanes = self._target.lanes(one.accumulator.bits)
        lies, copies = product.right.place is not None, product.rows.extent >= _PACKED_FROM
        shape = shape_of(one, product, has_panels=has_panels)
        choice = None if shape is None else self._choose(shape)
        if choice is not None:
            copies = copies if choice.copies is None else choice.copies
            tile = CpuTile(choice.rows, choice.vectors * lanes, lanes, wanted=choice.divided, gain=choice.gain)
            return replace(tile, has_panels=has_panels, is_direct=lies and not copies)
        # Vectors of 4-bit integers are stored in pairs.
        pairs = has_panels and product.right.buffer.dtype.bits < 8
        rows, vectors = tile_shapes(product.rows.extent, product.columns.extent, lanes, self._target, pairs=pairs)[0]
        return CpuTile(rows, vectors * lanes, lanes, has_panels=has_panels, is_direct=lies and not copies)

    def _is_read_along(self, one: Contraction) -> bool:
        """Whether a few rows of sums run along contiguous elements that must be converted, such as integer weights.

        Each element is read only once, so it is best converted where it is read.
        """
        if one.accumulator.name not in ("f32", "f64") or len(one.bound) != 1 or one.reduced[0] < _LANES_FROM:
            return False
        product = product_of(one, self._packable(one))
        if product is None or product.rows.extent > _FEW_ROWS or product.right.buffer.dtype is one.accumulator:
            return False
        if self._packable(one)(product.right.buffer):
            return False
        place = position(product.right.buffer, one.index_of(product.right.buffer))
        return place is not None and is_same(place.stride(one.bound[0]), 1)

    def _packable(self, one: Contraction) -> "Packable":
        return Packable(one, self._weights, tuple(self._uses))

    def _buffer(
        self,
        one: Contraction,
        shape: tuple[int, ...],
        dtype: DType | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> Buffer:
        made = Buffer(f"pack{self._allocated}", dtype or one.accumulator, shape, Space.SCRATCH, strides)
        self._allocated += 1
        self._needed.append(made)
        return made

    def _with_scratch(self, one: Contraction, product: Product, tile: CpuTile) -> CpuTile:
        """The tile with memory for the factors that cannot, or should not, be read in place."""
        depth, columns = product.inner.extent, product.columns.extent
        right = product.right
        is_converted = right.buffer.dtype is not one.accumulator and not are_half_floats(one, right.buffer)
        if tile.has_panels and is_converted and _many(product.rows.extent):
            tile = replace(tile, right=self._buffer(one, (depth, tile.columns)))
        if not tile.has_panels and (not tile.is_direct or columns % tile.lanes or is_symbolic(columns)):
            tile = replace(tile, right=self._buffer(one, (depth, tile.columns)))
        is_half = product.left.buffer.name in self._weights and are_half_floats(one, product.left.buffer)
        if is_half and product.rows.extent > tile.rows:
            tile = replace(tile, left=self._buffer(one, (tile.rows, depth)), block=tile.rows, is_left_converted=True)
        elif product.left.place is None or self._rows_collide(one, product, tile):
            room = self._target.l2 // 2 // (one.accumulator.bits // 8) // max(int(depth), 1)
            tiles = max(1, min(room // tile.rows, -(-int(product.rows.extent) // tile.rows)))
            stride = depth + tile.lanes if _collides(depth, one) else depth
            tile = replace(tile, left=self._buffer(one, (tiles * tile.rows, stride)), block=tiles * tile.rows)
        return tile

    def _rows_collide(self, one: Contraction, product: Product, tile: CpuTile) -> bool:
        """Whether rows evict each other from the L1 cache, and are read often enough for that to matter."""
        panels = product.columns.extent // tile.columns
        return (
            not tile.reads_windows
            and product.rows.extent >= _PACKED_FROM
            and panels >= _LEAST_PANELS
            and _collides(product.left.step(product.rows), one)
        )

    def _with_panels(self, one: Contraction, product: Product, tile: CpuTile) -> Contraction:
        buffer = product.right.buffer
        place = position(buffer, one.index_of(buffer))
        assert place is not None
        outside = product.outside.used_by(place)
        lanes = tile.lanes if buffer.dtype.bits < 8 else 0
        packing = in_panels(
            place.first,
            outside.strides(place),
            product.inner.strides(place),
            product.columns.strides(place),
            tile.columns,
            lanes=lanes,
        )
        panels = Buffer(buffer.name, buffer.dtype, packing.shape, buffer.space)
        self.packings[buffer.name] = packing
        self.panels[buffer.name] = panels
        column, depth = (flat(axis.vars, axis.extents) for axis in (product.columns, product.inner))
        width = Const(tile.columns, INDEX)
        inside = column % width
        if lanes:
            pair, own = Const(2 * lanes, INDEX), Const(lanes, INDEX)
            inside = inside // pair * pair + inside % own * 2 + inside % pair // own
        where = (*outside.vars, column // width, depth, inside)
        stored = integers_of(one, buffer)
        scales = stored.groups.loads if stored is not None and stored.groups is not None else ()
        moves = {buffer: Load(panels, where)} | {load.buffer: self._scales(one, product, tile, load) for load in scales}

        def moved(part: Scalar) -> Scalar | None:
            return moves.get(part.buffer) if isinstance(part, Load) else None

        value = one.a_value if buffer == one.a else one.b_value
        found = one.with_factor(buffer, panels, where, None if value is None else changed(value, moved))
        return replace(found, template=self._with_scratch(found, product, tile))

    def _scales(self, one: Contraction, product: Product, tile: CpuTile, load: Load) -> Load:
        """The scales or offsets of groups, in panels like those of the integers, with a row per group."""
        place = position(load.buffer, load.index)
        assert place is not None
        outside, groups = product.outside.used_by(place), FusedAxis(one.bound[:1], one.reduced[:1])
        packing = in_panels(
            place.first, outside.strides(place), groups.strides(place), product.columns.strides(place), tile.columns
        )
        panels = Buffer(load.buffer.name, load.buffer.dtype, packing.shape, load.buffer.space)
        self.packings[panels.name] = packing
        self.panels[panels.name] = panels
        column, width = flat(product.columns.vars, product.columns.extents), Const(tile.columns, INDEX)
        return Load(panels, (*outside.vars, column // width, one.bound[0], column % width))


def _is_large(product: Product) -> bool:
    """Whether tiling pays off."""
    return product.rows.extent * product.columns.extent * product.inner.extent >= _LEAST


def _many(rows: int) -> bool:
    """Whether converting a panel once for all tiles of rows pays off."""
    return is_symbolic(rows) or rows > 2 * _FEW_ROWS


def _has_lanes(loop: For) -> bool:
    """Whether a loop reduces enough values for lanes to pay off."""
    extent = loop.extent.value if isinstance(loop.extent, Const) else 0
    is_long = extent >= _LANES_FROM or isinstance(extent, Dim)
    return loop.kind is LoopKind.SERIAL and loop.bind is None and is_long and bool(reductions(loop))


def _as_one_loop(statement: Statement) -> Statement:
    """A nest of two loops that reduces the rows of a plane, each too short for lanes, as one loop over the plane."""
    match statement:
        case For(extent=Const(value=int(rows)), body=(For(extent=Const(value=int(columns))) as row,)) if (
            statement.kind is row.kind is LoopKind.SERIAL and statement.bind is row.bind is None
        ):
            pass
        case _:
            return statement
    is_short = columns < _LANES_FROM <= rows * columns
    if not is_short or is_symbolic(rows) or is_symbolic(columns) or not reductions(row):
        return statement
    return loops_as_one(statement, row, rows, columns) or statement


def _collides(step: int, one: Contraction) -> bool:
    """Whether elements at a stride map to the same cache set."""
    return step > 0 and step * one.accumulator.bits // 8 % _PAGE == 0


def _ordered(one: Contraction, weights: frozenset[str]) -> Contraction:
    """The contraction with its inner indices in the memory order of a factor that is not packed ahead of time."""
    if len(one.bound) < 2:
        return one
    places = [position(one.a, one.a_index), position(one.b, one.b_index)]
    known = [
        place for place, buffer in zip(places, (one.a, one.b), strict=True) if place and buffer.name not in weights
    ]
    known += [place for place in places if place]
    if not known:
        return one
    pairs = sorted(zip(one.bound, one.reduced, strict=True), key=lambda pair: -abs(int(known[0].stride(pair[0]))))
    return replace(one, bound=tuple(var for var, _ in pairs), reduced=tuple(extent for _, extent in pairs))


def _other_than_zero(one: Contraction, product: Product) -> Buffer | None:
    """The factor that is multiplied by zeros where terms are invalid; None if all are valid."""
    if one.valid is None:
        return None
    left = product.left.value
    return (product.right if isinstance(left, Select) and left.cond == one.valid else product.left).buffer
