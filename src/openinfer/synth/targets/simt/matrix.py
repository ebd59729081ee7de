"""Large contractions on matrix units: a group computes a tile of sums, and every 128 threads 64 rows of it.

Asynchronous copies bring tiles of both factors into shared memory, in a ring of stages: the units multiply one stage
while others are in flight. Products of two elements are exact, but how the units round sums is unspecified. So they are
used for integers, and for floats whose sums are rounded to fewer bits in the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from openinfer.loops.affine import affine, position
from openinfer.loops.build import index, unflat
from openinfer.loops.dim import is_multiple, is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Bind,
    Buffer,
    Cast,
    Const,
    Contraction,
    For,
    GroupBarrier,
    If,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Space,
    Statement,
    Store,
    WideStore,
    visit,
)
from openinfer.loops.rewrite import Statements, replaced
from openinfer.loops.tile_steps import (
    TILE_BYTES,
    TILE_ROWS,
    TILE_THREADS,
    TileCopy,
    TileMoment,
    TileProduct,
    TileStore,
    TileSync,
)
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.blocks import BlockSide, BlockSides, block_sides
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_PIECE = 16
"""Bytes per copy."""
_MOST_REGISTERS = 192
"""Registers of a thread for sums, and for what their epilogues load."""
_PANEL = 8
"""Adjacent tiles that groups take before they move down: all of them find what they read in the cache."""


@dataclass(frozen=True)
class _TileShape:
    """The tile of sums of a group, and the fraction of peak throughput that it reaches."""

    height: int
    width: int
    reached: float

    @property
    def threads(self) -> int:
        return self.height // TILE_ROWS * TILE_THREADS

    @property
    def stage_bytes(self) -> int:
        return (self.height + self.width) * TILE_BYTES

    def groups(self, sides: BlockSides) -> int:
        tall, wide = -(-sides.rows.count // self.height), -(-sides.columns.count // self.width)
        return prod(sides.batches) * tall * wide

    def cost(self, sides: BlockSides, machine: SimtMachine) -> float:
        """The estimated time, in sums per unit."""
        return -(-int(self.groups(sides)) // machine.units) * self.height * self.width / self.reached

    def stages(self, sides: BlockSides, machine: SimtMachine) -> int:
        """The number of stages: the more groups share a unit's memory, the fewer; a group alone has more in flight."""
        beside = min(-(-int(self.groups(sides)) // machine.units), _MOST_BESIDE)
        found = [machine.most_shared_bytes // (self.stage_bytes * each) for each in range(beside, 0, -1)]
        return min(next((each for each in found if each >= _LEAST_STAGES), 0), _MOST_STAGES)


_LEAST_STAGES, _MOST_STAGES, _MOST_BESIDE = 3, 8, 4
_SHAPES = (
    _TileShape(128, 256, 1.0),
    _TileShape(128, 128, 0.9),
    _TileShape(64, 128, 0.7),
    _TileShape(64, 64, 0.55),
)


def matrix_units(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """A contraction of many rows and columns, on the matrix units of a device."""
    *before, last = part.body
    if not isinstance(last, Contraction) or not fits_units(last, machine):
        return None
    sides = block_sides(last, machine)
    assert sides is not None
    fitting = [one for one in _SHAPES if one.stages(sides, machine)]
    if _is_contiguous(last, sides.rows) and not _is_contiguous(last, sides.columns):
        sides = BlockSides(sides.batch, sides.batches, sides.columns, sides.rows)
    shape = min(fitting, key=lambda one: one.cost(sides, machine))
    if shape.groups(sides) > machine.most_groups:
        return None
    return _MatrixForm(last, sides, shape, machine, FreshNames(taken)).formed(tuple(before))


def fits_units(one: Contraction, machine: SimtMachine) -> bool:
    """Whether a contraction is computed on matrix units: it suits them, and has enough rows and columns."""
    sides = block_sides(one, machine) if is_for_units(one, machine) else None
    return sides is not None and any(shape.stages(sides, machine) for shape in _SHAPES)


def is_for_units(one: Contraction, machine: SimtMachine) -> bool:
    """Whether the matrix units of a device can multiply the elements of a contraction."""
    loads = [_load_of(value) for value in one.factors]
    if not machine.has_matrix_units or one.valid is not None or None in loads:
        return False
    if prod(one.reduced) < 4 * machine.least_block:
        return False
    kinds = {load.buffer.dtype.name for load in loads if load is not None}
    if kinds == {"i8"}:
        return one.accumulator.name == "i32"
    is_rounded = one.out.dtype.kind == "float" and one.out.dtype.bits <= 16
    return len(kinds) == 1 and kinds <= {"bf16", "f16"} and one.accumulator.name == "f32" and is_rounded


def _load_of(value: Scalar) -> Load | None:
    """The load that a factor consists of, up to a cast; None if it is any other expression."""
    inner = value.operand if isinstance(value, Cast) else value
    return inner if isinstance(inner, Load) else None


def _is_contiguous(one: Contraction, side: BlockSide) -> bool:
    """Whether results are contiguous along the last index of a side."""
    found = position(one.out, one.out_index)
    return found is not None and bool(side.indices) and found.stride(side.indices[-1]) == 1


@dataclass(frozen=True)
class _Factor:
    """A factor and its tiles."""

    side: BlockSide
    load: Load
    tile: Buffer
    start: ScalarVar
    extent: int
    is_copied: bool
    """Whether the pieces of its rows are contiguous in memory, too."""


class _MatrixForm:
    def __init__(
        self, one: Contraction, sides: BlockSides, shape: _TileShape, machine: SimtMachine, names: FreshNames
    ) -> None:
        self._one, self._sides, self._shape, self._machine, self._names = one, sides, shape, machine, names
        self._lane, self._group = names.var("lane"), names.var("group")
        self._stages = shape.stages(sides, machine)
        self._rows = self._factor(sides.rows, "rows", shape.height)
        self._columns = self._factor(sides.columns, "columns", shape.width)
        bits = self._rows.tile.dtype.bits
        self._each, self._deep = _PIECE * 8 // bits, TILE_BYTES * 8 // bits
        self._blocks = -(-prod(one.reduced) // self._deep)
        self._sums = Buffer(names.name("sums"), one.accumulator, (shape.width // 2,), Space.OWN)
        self._early = self._early_loads()

    def _factor(self, side: BlockSide, name: str, extent: int) -> _Factor:
        load = _load_of(side.value)
        assert load is not None
        dtype = load.buffer.dtype
        shape = (self._stages, extent, TILE_BYTES * 8 // dtype.bits)
        tile = Buffer(self._names.name(f"tile_{name}"), dtype, shape, Space.GROUP)
        start = self._names.var("top" if name == "rows" else "left")
        return _Factor(side, load, tile, start, extent, _has_pieces(self._one, load, self._machine))

    def formed(self, before: Statements) -> Formed:
        one, shape, threads = self._one, self._shape, self._shape.threads
        count = shape.groups(self._sides)
        body: list[Statement] = [*before, *self._place(), Alloc(self._sums)]
        number = self._names.var("number")
        zero = Store(self._sums, (number,), Const(0, one.accumulator))
        body.append(For(number, index(shape.width // 2), (zero,), bind=Bind.UNROLL))
        body += [*self._terms(), TileSync(TileMoment.SUMMED, sums=self._sums), *self._results()]
        inner = For(self._lane, index(threads), tuple(body), LoopKind.PARALLEL, Bind.THREAD)
        memory = (Alloc(self._rows.tile), Alloc(self._columns.tile))
        loop = For(self._group, index(count), (*memory, inner), LoopKind.PARALLEL, Bind.GROUP)
        form = f"matrix units: {shape.height} x {shape.width} sums, {self._stages} stages"
        return Formed((loop,), count * threads, form)

    def _place(self) -> Statements:
        """The position of a group's tile: groups move down panels of adjacent tiles."""
        sides, shape = self._sides, self._shape
        tall, wide = -(-sides.rows.count // shape.height), -(-sides.columns.count // shape.width)
        if is_multiple(wide, _PANEL) and not is_symbolic(tall) and tall > 1:
            *batch, panel, down, across = unflat(self._group, (*sides.batches, wide // _PANEL, tall, _PANEL))
            across = panel * _PANEL + across
        else:
            *batch, down, across = unflat(self._group, (*sides.batches, tall, wide))
        return (
            *lets_of(sides.batch, batch),
            Let(self._rows.start, down * shape.height),
            Let(self._columns.start, across * shape.width),
        )

    # --- terms --------------------------------------------------------------------------------------------------------

    def _terms(self) -> Iterator[Statement]:
        stages = self._stages
        ahead = stages - 2  # one stage is being multiplied, and another one may still be
        for first in range(ahead):
            if first < self._blocks:
                yield from self._stage(index(first), index(first))
            yield TileSync(TileMoment.BATCH)
        block, later = self._names.var("block"), self._names.var("later")
        body: list[Statement] = [TileSync(TileMoment.ARRIVED, ahead - 1), GroupBarrier()]
        if self._blocks > ahead:
            copies = (Let(later, block + ahead), *self._stage(later, later % stages))
            body.append(If(block < self._blocks - ahead, copies))
        body.append(TileSync(TileMoment.BATCH))
        at = block % stages
        own = self._lane // TILE_THREADS * TILE_ROWS
        rows, columns = self._rows.tile, self._columns.tile
        both = (at, own), (at, index(0))
        body.append(TileProduct(self._sums, rows, both[0], columns, both[1], self._shape.width, self._lane))
        yield For(block, index(self._blocks), tuple(body))

    def _stage(self, block: Scalar, stage: Scalar) -> Iterator[Statement]:
        for factor in (self._rows, self._columns):
            turn = self._names.var("turn")
            pieces = factor.extent * (TILE_BYTES // _PIECE)
            made = self._copied if factor.is_copied else self._stored
            body = tuple(made(factor, block, stage, turn * self._shape.threads + self._lane))
            yield For(turn, index(pieces // self._shape.threads), body, bind=Bind.UNROLL if factor.is_copied else None)

    def _copied(self, factor: _Factor, block: Scalar, stage: Scalar, at: Scalar) -> Iterator[Statement]:
        """Copies a piece of a row."""
        names, pieces = self._names, TILE_BYTES // _PIECE
        line, term, place = names.var("line"), names.var("term"), names.var("place")
        yield Let(place, at // pieces)
        yield Let(line, factor.start + place)
        yield Let(term, block * self._deep + at % pieces * self._each)
        known = self._known(factor, line, term)
        where = tuple(replaced(part, known) for part in factor.load.index)
        valid = self._valid(factor, line, term)
        own = (stage, place, term - block * self._deep)
        yield TileCopy(factor.tile, own, factor.load.buffer, where, valid)

    def _known(self, factor: _Factor, line: Scalar, term: Scalar) -> dict[Scalar, Scalar]:
        one, side = self._one, factor.side
        places = (*unflat(term, one.reduced), *unflat(line, side.extents))
        return dict(zip((*one.bound, *side.indices), places, strict=True))

    def _valid(self, factor: _Factor, line: Scalar, term: Scalar) -> Scalar | None:
        guards = ((line, factor.side.count, factor.extent), (term, prod(self._one.reduced), self._deep))
        found = [value < index(most) for value, most, step in guards if not is_multiple(most, step)]
        return None if not found else found[0] if len(found) == 1 else found[0] & found[1]

    def _stored(self, factor: _Factor, block: Scalar, stage: Scalar, at: Scalar) -> Iterator[Statement]:
        """Gathers a piece of a row element by element; adjacent threads load what is contiguous in memory."""
        names, kind = self._names, factor.tile.dtype.compute
        line, place, first = names.var("line"), names.var("place"), names.var("first")
        yield Let(place, at % factor.extent)
        yield Let(line, factor.start + place)
        yield Let(first, block * self._deep + at // factor.extent * self._each)
        values = tuple(names.var("value", kind) for _ in range(self._each))
        for number, value in enumerate(values):
            term = names.var("term")
            inside: Statements = (SetLocal(value, replaced(factor.load, self._known(factor, line, term))),)
            valid = self._valid(factor, line, term)
            yield Local(value, Const(0, kind))
            yield Let(term, first + number)
            yield from inside if valid is None else (If(valid, inside),)
        yield TileStore(factor.tile, (stage, place, first - block * self._deep), values)

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self) -> Iterator[Statement]:
        names, sides, lane = self._names, self._sides, self._lane
        half, unit, row, column = names.var("half"), names.var("unit"), names.var("row"), names.var("column")
        own = lane // TILE_THREADS * TILE_ROWS + lane // 32 % 4 * 16 + lane % 32 // 4
        pair = self._pair(row, column, unit, half)
        units: Statements = (self._units(unit, column, pair),)
        if self._early:
            before, first = names.var("unit"), names.var("column")
            units = (self._units(before, first, self._loaded(row, first, before)), *units)
        outer = (
            Let(row, self._rows.start + own + half * 8),
            *_guarded(row, sides.rows.count, self._shape.height, units),
        )
        yield from map(Alloc, self._early.values())
        yield For(half, index(2), outer, bind=Bind.UNROLL)

    def _units(self, unit: ScalarVar, column: ScalarVar, body: Statements) -> Statement:
        """A loop over the pairs of adjacent columns that a thread has in a row."""
        inner = (
            Let(column, self._columns.start + unit * 8 + self._lane % 4 * 2),
            *_guarded(column, self._sides.columns.count, self._shape.width, body),
        )
        return For(unit, index(self._shape.width // 8), inner, bind=Bind.UNROLL)

    def _loaded(self, row: Scalar, column: Scalar, unit: Scalar) -> Statements:
        """Loads what the epilogues of a row need, before any of its results is stored: all loads are in flight then."""
        made: list[Statement] = []
        for number in range(2):
            at = column + 1 if number else column
            lets, known = self._indices(row, at)
            stores = (Store(own, (unit * 2 + number,), replaced(load, known)) for load, own in self._early.items())
            own: Statements = (*lets, *stores)
            is_inside = number == 0 or is_multiple(self._sides.columns.count, 2)
            made += own if is_inside else [If(at < index(self._sides.columns.count), own)]
        return tuple(made)

    def _pair(self, row: Scalar, column: Scalar, unit: Scalar, half: Scalar) -> Statements:
        """Stores two adjacent results, in one access if possible."""
        number = unit * 4 + half * 2
        first, where, value = self._result(row, column, number, unit * 2)
        second, other, next_value = self._result(row, column + 1, number + 1, unit * 2 + 1)
        is_even = is_multiple(self._sides.columns.count, 2)
        if not is_even or not self._is_wide():
            again = (*second, Store(self._one.out, other, next_value))
            again = again if is_even else (If(column + 1 < index(self._sides.columns.count), again),)
            return (*first, Store(self._one.out, where, value), *again)
        names = tuple(self._names.var("out", value.dtype) for _ in range(2))
        lets = (Let(names[0], value), *second, Let(names[1], next_value))
        return (*first, *lets, WideStore(self._one.out, where, names))

    def _result(
        self, row: Scalar, column: Scalar, number: Scalar, early: Scalar
    ) -> tuple[Statements, tuple[Scalar, ...], Scalar]:
        one = self._one
        lets, known = self._indices(row, column)
        known[ScalarVar(ACCUMULATOR, one.accumulator)] = Load(self._sums, (number,))
        place = tuple(replaced(part, known) for part in one.out_index)
        epilogue = replaced(one.epilogue, {load: Load(own, (early,)) for load, own in self._early.items()})
        return lets, place, replaced(epilogue, known)

    def _indices(self, row: Scalar, column: Scalar) -> tuple[Statements, dict[Scalar, Scalar]]:
        """The indices of a result by name, and what they replace."""
        known: dict[Scalar, Scalar] = {}
        made: list[Statement] = []
        for side, at in ((self._sides.rows, row), (self._sides.columns, column)):
            for var, where in zip(side.indices, unflat(at, side.extents), strict=True):
                known[var] = new = self._names.var(var.name)
                made.append(Let(new, where))
        return tuple(made), known

    def _early_loads(self) -> dict[Load, Buffer]:
        """What the epilogue of every result loads, and registers for a row of it, if there are enough."""
        one, width = self._one, self._shape.width
        parts = [*visit(one.epilogue)]
        found = [*dict.fromkeys(part for part in parts if isinstance(part, Load))]
        inside = [part for load in found for place in load.index for part in visit(place)]
        inside += [each for part in parts if isinstance(part, Select) for each in visit(part)]
        if any(isinstance(part, Load) for part in inside) or len(found) * width // 4 + width // 2 > _MOST_REGISTERS:
            return {}
        name = self._names.name
        return {load: Buffer(name("early"), load.dtype, (width // 4,), Space.OWN) for load in found}

    def _is_wide(self) -> bool:
        out, indices = self._one.out, self._sides.columns.indices
        found = position(out, self._one.out_index)
        if found is None or out.name in self._machine.unaligned or out.dtype.bits < 16:
            return False
        others = [found.first, *(step for name, step in found.strides.items() if name != indices[-1].name)]
        is_even = all(is_multiple(each, 2) for each in (*others, self._sides.columns.extents[-1]))
        return is_even and found.stride(indices[-1]) == 1


def _has_pieces(one: Contraction, load: Load, machine: SimtMachine) -> bool:
    """Whether every 16 bytes of a row are contiguous terms in memory, and aligned."""
    each, last = _PIECE * 8 // load.buffer.dtype.bits, one.bound[-1]
    found, along = position(load.buffer, load.index), affine(load.index[-1]) if load.index else None
    if found is None or along is None or load.buffer.name in machine.unaligned or one.reduced[-1] % each:
        return False
    others = [found.first, *(step for name, step in found.strides.items() if name != last.name)]
    is_aligned = all(is_multiple(step, each) for step in others)
    return is_aligned and found.stride(last) == 1 and along.stride(last) == 1


def _guarded(var: Scalar, count: int, step: int, body: Statements) -> Statements:
    return body if is_multiple(count, step) else (If(var < index(count), body),)
