"""Contractions of many rows and columns: a group computes a block of sums, and each of its threads some of them.

Blocks of both factors go through shared memory, so that each element is loaded once for all sums of the block that use
it. Terms are added in order, as in plain loops; very long sums are blocked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast, index, unflat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    Alloc,
    Bind,
    Buffer,
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
    SetLocal,
    Space,
    Statement,
    Store,
)
from openinfer.loops.rewrite import Statements, renamed, replaced
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.products import with_fused_sums
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_DEEP = 16
"""Terms per block."""
_MOST_TERMS = 8192
"""Terms per accumulator at most: partial sums need as many registers again."""
_RUN = 4
"""Contiguous rows, or columns, of a thread: one access loads them from shared memory."""
_SMALL, _LARGE = 4, 8
"""Rows and columns per thread; the larger number if that still leaves enough blocks for all units."""


@dataclass(frozen=True)
class BlockSide:
    """A factor, and the indices that only it has."""

    indices: tuple[ScalarVar, ...]
    extents: tuple[int, ...]
    value: Scalar
    is_along: bool
    """Whether memory is contiguous along the reduction."""
    valid: Scalar | None = None
    """The condition under which its factor counts; elsewhere it is 0."""

    @property
    def count(self) -> int:
        """The number of rows, or columns."""
        return prod(self.extents)


@dataclass(frozen=True)
class BlockSides:
    """The indices that both factors share, and what each has alone."""

    batch: tuple[ScalarVar, ...]
    batches: tuple[int, ...]
    rows: BlockSide
    columns: BlockSide


def fits_blocks(one: Contraction, machine: SimtMachine) -> bool:
    """Whether a contraction has enough rows and columns for blocks."""
    return block_sides(one, machine) is not None


def least_groups(one: Contraction, machine: SimtMachine) -> int | None:
    """The number of groups of a contraction in the smallest blocks; None if it does not fit blocks."""
    sides = block_sides(one, machine)
    if sides is None:
        return None
    bits = machine.group.bit_length() - 1
    tall, wide = (1 << (bits // 2)) * _SMALL, (1 << (bits - bits // 2)) * _SMALL
    return prod(sides.batches) * -(-sides.rows.count // tall) * -(-sides.columns.count // wide)


def blocks(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """A contraction of many rows and columns."""
    *before, last = part.body
    sides = block_sides(last, machine) if isinstance(last, Contraction) else None
    if sides is None or not isinstance(last, Contraction):
        return None
    return _Blocks(last, sides, machine, FreshNames(taken)).formed(tuple(before))


def block_sides(one: Contraction, machine: SimtMachine) -> BlockSides | None:
    """Both sides of a contraction; None if it does not have enough rows and columns for blocks."""
    if any(map(is_symbolic, (*one.extents, *one.reduced))) or one.accumulator.bits < 32:
        return None
    if prod(one.reduced) < machine.least_block or not one.bound:
        return None
    left, right = one.factors
    both, pairs = (variables(left), variables(right)), tuple(zip(one.free, one.extents, strict=True))
    rows = [pair for pair in pairs if pair[0].name not in both[1]]
    columns = [pair for pair in pairs if pair[0].name not in both[0]]
    batch = [pair for pair in pairs if pair not in rows and pair not in columns]
    made = [
        BlockSide(tuple(var for var, _ in own), tuple(extent for _, extent in own), value, _is_along(one, buffer))
        for own, value, buffer in ((rows, left, one.a), (columns, right, one.b))
    ]
    if any(side.count < machine.least_block for side in made):
        return None
    if one.valid is not None:
        place = _zeroed(one, made, machine)
        if place is None:
            return None
        made[place] = replace(made[place], valid=one.valid)
    return BlockSides(tuple(var for var, _ in batch), tuple(extent for _, extent in batch), *made)


def _zeroed(one: Contraction, sides: Sequence[BlockSide], machine: SimtMachine) -> int | None:
    """The side that can be set to 0 where a term is invalid: the other one must be finite and not in the condition."""
    assert one.valid is not None
    used = variables(one.valid)
    others = (sides[1], one.b, one.b_value), (sides[0], one.a, one.a_value)
    for place, (side, buffer, value) in enumerate(others):
        is_number = buffer.dtype.kind != "float" and value is None
        is_finite = is_number or buffer.name in machine.finite
        if is_finite and not used & {var.name for var in side.indices}:
            return place
    return None


def _is_along(one: Contraction, buffer: Buffer) -> bool:
    found = position(buffer, one.index_of(buffer))
    return found is not None and found.step(one.bound[-1]) == 1


class _Blocks:
    def __init__(self, one: Contraction, sides: BlockSides, machine: SimtMachine, names: FreshNames) -> None:
        self._one, self._sides, self._machine, self._names = one, sides, machine, names
        bits = machine.group.bit_length() - 1
        self._down, self._across = 1 << (bits // 2), 1 << (bits - bits // 2)
        self._each = self._sums()
        self._kind = one.accumulator
        self._lane, self._group = names.var("lane"), names.var("group")
        self._ty, self._tx = names.var("down"), names.var("across")
        heights = self._height, self._width
        self._shared = [
            Buffer(names.name(f"shared_{name}"), self._kind, (_DEEP, extent + _RUN), Space.GROUP)
            for name, extent in zip(("rows", "columns"), heights, strict=True)
        ]

    def _sums(self) -> int:
        """Rows, and columns, per thread."""
        tall, wide = (-(-side.count // (each * _LARGE)) for side, each in self._pairs())
        words = _DEEP * _LARGE * (self._down + self._across) * self._one.accumulator.bits // 8
        is_enough = tall * wide * prod(self._sides.batches) >= self._machine.units
        return _LARGE if is_enough and words <= self._machine.shared_bytes // 2 else _SMALL

    def _pairs(self) -> tuple[tuple[BlockSide, int], tuple[BlockSide, int]]:
        return (self._sides.rows, self._down), (self._sides.columns, self._across)

    @property
    def _height(self) -> int:
        return self._down * self._each

    @property
    def _width(self) -> int:
        return self._across * self._each

    def formed(self, before: Statements) -> Formed | None:
        names, sides = self._names, self._sides
        tall, wide = -(-sides.rows.count // self._height), -(-sides.columns.count // self._width)
        count = prod(sides.batches) * tall * wide
        if count > self._machine.most_groups:
            return None
        first, second = names.var("top"), names.var("left")
        places = unflat(self._group, (*sides.batches, tall, wide))
        lets = (
            *lets_of(sides.batch, places[:-2]),
            Let(first, places[-2] * self._height),
            Let(second, places[-1] * self._width),
            Let(self._ty, self._lane // self._across),
            Let(self._tx, self._lane % self._across),
        )
        sums = [[names.var("sum", self._kind) for _ in range(self._each)] for _ in range(self._each)]
        zeros = tuple(Local(one, Const(0, self._kind)) for line in sums for one in line)
        terms: Statements = tuple(self._terms(first, second, sums))
        if prod(self._one.reduced) <= _MOST_TERMS:
            terms = with_fused_sums(terms, self._machine)
        body = (*before, *lets, *zeros, *terms, *self._results(first, second, sums))
        threads = For(self._lane, index(self._machine.group), body, LoopKind.PARALLEL, Bind.THREAD)
        loop = For(self._group, index(count), (*map(Alloc, self._shared), threads), LoopKind.PARALLEL, Bind.GROUP)
        form = f"blocks: {self._height} x {self._width} sums"
        return Formed((loop,), count * self._machine.group, form, most_terms=_MOST_TERMS)

    # --- terms --------------------------------------------------------------------------------------------------------

    def _terms(self, first: ScalarVar, second: ScalarVar, sums: Sequence[Sequence[ScalarVar]]) -> Iterator[Statement]:
        names, total = self._names, prod(self._one.reduced)
        block, deep = names.var("block"), names.var("term")
        body: list[Statement] = []
        for memory, side, start, extent in (
            (self._shared[0], self._sides.rows, first, self._height),
            (self._shared[1], self._sides.columns, second, self._width),
        ):
            body += self._loaded(memory, side, start, extent, block)
        body.append(GroupBarrier())
        rows = [names.var("row", self._kind) for _ in range(self._each)]
        columns = [names.var("column", self._kind) for _ in range(self._each)]
        inner: list[Statement] = []
        for place in range(self._each):
            inner.append(Let(rows[place], Load(self._shared[0], (deep, _own(self._ty, place, self._down)))))
            inner.append(Let(columns[place], Load(self._shared[1], (deep, _own(self._tx, place, self._across)))))
        for row, line in zip(rows, sums, strict=True):
            inner += [SetLocal(one, one + row * column) for column, one in zip(columns, line, strict=True)]
        body.append(For(deep, index(_DEEP), tuple(inner)))
        body.append(GroupBarrier())
        yield For(block, index(-(-total // _DEEP)), tuple(body))

    def _loaded(
        self, memory: Buffer, side: BlockSide, start: ScalarVar, extent: int, block: ScalarVar
    ) -> Iterator[Statement]:
        """Loads a block of a factor, padded with zeros; adjacent threads load contiguous elements."""
        one, names, threads = self._one, self._names, self._machine.group
        total, turn, at = prod(one.reduced), names.var("turn"), names.var("at")
        deep, place = names.var("deep"), names.var("place")
        count = extent * _DEEP
        split = (at % _DEEP, at // _DEEP) if side.is_along else (at // extent, at % extent)
        lets: list[Statement] = [Let(at, turn * threads + self._lane), Let(deep, split[0]), Let(place, split[1])]
        value, term, line = names.var("value", self._kind), names.var("term"), names.var("line")
        lets += [Let(term, block * _DEEP + deep), Let(line, start + place)]
        places = zip((*one.bound, *side.indices), self._places(term, line, side), strict=True)
        own = {var.name: names.var(var.name) for var in (*one.bound, *side.indices)}
        element: Statement = SetLocal(value, cast(side.value, self._kind))
        if side.valid is not None:
            element = If(side.valid, (element,))
        inside: Statements = (*(Let(var, where) for var, where in places), element)
        guards = [(term, total, _DEEP), (line, side.count, extent)]
        conditions = [var < most for var, most, step in guards if most % step]
        guarded: Statements = renamed(inside, own)
        if conditions:
            cond = conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]
            guarded = (If(cond, guarded),)
        lets += [Local(value, Const(0, self._kind)), *guarded, Store(memory, (deep, place), value)]
        if count % threads == 0:
            yield For(turn, index(count // threads), tuple(lets))
        else:
            yield For(turn, (index(count) - self._lane + (threads - 1)) // threads, tuple(lets))

    def _places(self, term: Scalar, line: Scalar, side: BlockSide) -> tuple[Scalar, ...]:
        return (*unflat(term, self._one.reduced), *unflat(line, side.extents))

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, first: ScalarVar, second: ScalarVar, sums: Sequence[Sequence[ScalarVar]]) -> Iterator[Statement]:
        names, sides = self._names, self._sides
        total = ScalarVar(ACCUMULATOR, self._kind)
        for place, line in enumerate(sums):
            row = names.var("row")
            inner: list[Statement] = []
            for other, own in enumerate(line):
                column = names.var("column")
                store = self._store(sides, row, column, {total: own})
                inner += [
                    Let(column, second + _own(self._tx, other, self._across)),
                    *_guarded(column, sides.columns.count, self._width, store),
                ]
            yield Let(row, first + _own(self._ty, place, self._down))
            yield from _guarded(row, sides.rows.count, self._height, tuple(inner))

    def _store(self, sides: BlockSides, row: Scalar, column: Scalar, known: dict[Scalar, Scalar]) -> Statements:
        names, one = self._names, self._one
        made: list[Statement] = []
        for side, at in ((sides.rows, row), (sides.columns, column)):
            for var, where in zip(side.indices, unflat(at, side.extents), strict=True):
                known[var] = new = names.var(var.name)
                made.append(Let(new, where))
        place = tuple(replaced(part, known) for part in one.out_index)
        return (*made, Store(one.out, place, replaced(one.epilogue, known)))


def _own(thread: ScalarVar, place: int, threads: int) -> Scalar:
    """A row, or column, of a thread: runs of contiguous ones, interleaved with those of the other threads."""
    first = thread * _RUN
    return first + (place // _RUN * threads * _RUN + place % _RUN) if place else first


def _guarded(var: Scalar, count: int, step: int, body: Statements) -> Statements:
    return (If(var < count, body),) if count % step else body
