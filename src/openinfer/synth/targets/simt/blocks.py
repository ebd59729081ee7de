"""Contractions of many rows and columns: a group computes a block of sums, and each of its threads some of them.

Blocks of both factors go through shared memory, so that each element is loaded once for all sums of the block that use
it. While one block is multiplied, the next one is loaded into registers. Terms are added in order, as in plain loops;
very long sums are blocked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

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
from openinfer.synth.targets.simt.products import over_terms, with_fused_sums
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import lets_of
from openinfer.synth.targets.simt.wide import FreshNames

_DEEP = 16
"""Terms per block."""
_WORD = 32
"""Bits of the accumulators that leave registers for the loads of the next block."""
_MOST_TERMS = 8192
"""Terms per accumulator at most: partial sums need as many registers again."""
_RUN = 4
"""Contiguous rows, or columns, of a thread: one access loads them from shared memory."""
_SMALL = 4, 4
"""The fewest rows and columns per thread."""
_SPEEDS = {(8, 8): 1.0, (8, 4): 0.95, (4, 8): 0.95, _SMALL: 0.82}
"""Rows and columns per thread, with their products per second, relative to those of the most."""
_ALONE = 0.85
"""The speed of a group that has a unit to itself, relative to that of several."""


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
    """Whether a contraction has enough rows and columns for blocks, and a known number of them."""
    return not any(map(is_symbolic, one.extents)) and block_sides(one, machine) is not None


def least_groups(one: Contraction, machine: SimtMachine) -> int | None:
    """The number of groups of a contraction in the smallest blocks; None if it does not fit blocks."""
    sides = block_sides(one, machine) if fits_blocks(one, machine) else None
    if sides is None:
        return None
    bits = machine.group.bit_length() - 1
    tall, wide = (1 << (bits // 2)) * _SMALL[0], (1 << (bits - bits // 2)) * _SMALL[1]
    return prod(sides.batches) * -(-sides.rows.count // tall) * -(-sides.columns.count // wide)


def blocks(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """A contraction of many rows and columns."""
    *before, last = part.body
    if not isinstance(last, Contraction) or not fits_blocks(last, machine):
        return None
    sides = block_sides(last, machine)
    assert sides is not None
    return _SumBlocks(last, sides, machine, FreshNames(taken)).formed(tuple(before))


def block_sides(one: Contraction, machine: SimtMachine) -> BlockSides | None:
    """Both sides of a contraction; None if it does not have enough rows and columns, which may be dynamic."""
    if any(map(is_symbolic, one.reduced)) or one.accumulator.bits < 32:
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
    return found is not None and found.stride(one.bound[-1]) == 1


class _Loader:
    """Loads blocks of a factor, padded with zeros; adjacent threads load contiguous elements."""

    def __init__(self, whole: "_SumBlocks", memory: Buffer, side: BlockSide, start: ScalarVar, extent: int) -> None:
        self._whole, self._memory, self._side, self._start, self._extent = whole, memory, side, start, extent
        self._turns = -(-extent * _DEEP // whole.machine.group)
        self._staged: list[ScalarVar] = []
        self._spots: list[tuple[Scalar, Scalar]] = []

    @property
    def is_even(self) -> bool:
        """Whether every thread loads equally many elements, a constant distance apart."""
        threads, length = self._whole.machine.group, _DEEP if self._side.is_along else self._extent
        return self._extent * _DEEP % threads == 0 and (threads % length == 0 or length % threads == 0)

    def declared(self) -> Iterator[Statement]:
        """Registers for the elements of a thread, and where they belong in the block."""
        names, first = self._whole.names, (self._whole.names.var("deep"), self._whole.names.var("place"))
        for var, value in zip(first, self._split(self._whole.lane), strict=True):
            yield Let(var, value)
        for turn in range(self._turns):
            self._staged.append(names.var("staged", self._memory.dtype))
            self._spots.append(self._moved(first, turn))
            yield Local(self._staged[-1], Const(0, self._memory.dtype))

    def _moved(self, first: tuple[Scalar, Scalar], turn: int) -> tuple[Scalar, Scalar]:
        """Where the element of a turn belongs, a constant distance from that of the first turn."""
        (deep, place), step = first, turn * self._whole.machine.group
        length = _DEEP if self._side.is_along else self._extent
        beside, apart = step % length, step // length
        if self._side.is_along:
            return deep + beside if beside else deep, place + apart if apart else place
        return deep + apart if apart else deep, place + beside if beside else place

    def fetched(self, block: Scalar) -> Iterator[Statement]:
        """Loads a block into the registers."""
        for staged, (deep, place) in zip(self._staged, self._spots, strict=True):
            own = self._element(block, deep, place, staged)
            if isinstance(own[-1], If):
                yield SetLocal(staged, Const(0, staged.dtype))
            yield from own

    def put(self) -> Iterator[Statement]:
        """Stores the registers to shared memory."""
        for staged, (deep, place) in zip(self._staged, self._spots, strict=True):
            yield Store(self._memory, (deep, place), staged)

    def loaded(self, block: Scalar) -> Iterator[Statement]:
        """Loads a block straight into shared memory."""
        names, threads, count = self._whole.names, self._whole.machine.group, self._extent * _DEEP
        turn, at, deep, place = (names.var(name) for name in ("turn", "at", "deep", "place"))
        value = names.var("value", self._memory.dtype)
        body: Statements = (
            Let(at, turn * threads + self._whole.lane),
            *(Let(var, where) for var, where in zip((deep, place), self._split(at), strict=True)),
            Local(value, Const(0, value.dtype)),
            *self._element(block, deep, place, value),
            Store(self._memory, (deep, place), value),
        )
        if self.is_even:
            yield For(turn, index(self._turns), body)
        else:
            yield For(turn, (index(count) - self._whole.lane + (threads - 1)) // threads, body)

    def _split(self, at: ScalarVar) -> tuple[Scalar, Scalar]:
        """The term and the row, or column, of an element of the block."""
        extent = self._extent
        return (at % _DEEP, at // _DEEP) if self._side.is_along else (at // extent, at % extent)

    def _element(self, block: Scalar, deep: Scalar, place: Scalar, value: ScalarVar) -> Statements:
        """Sets a variable to an element, if it exists and is valid."""
        one, side, names = self._whole.one, self._side, self._whole.names
        total, term, line = prod(one.reduced), names.var("term"), names.var("line")
        where = (*unflat(term, one.reduced), *unflat(line, side.extents))
        own = {var.name: names.var(var.name) for var in (*one.bound, *side.indices)}
        element: Statement = SetLocal(value, cast(side.value, self._memory.dtype))
        if side.valid is not None:
            element = If(side.valid, (element,))
        lets = (Let(var, at) for var, at in zip((*one.bound, *side.indices), where, strict=True))
        inside: Statements = renamed((*lets, element), own)
        guards = [(term, total, _DEEP), (line, side.count, self._extent)]
        conditions = [var < most for var, most, step in guards if most % step]
        if conditions:
            cond = conditions[0] if len(conditions) == 1 else conditions[0] & conditions[1]
            inside = (If(cond, inside),)
        return (Let(term, block * _DEEP + deep), Let(line, self._start + place), *inside)


class _SumBlocks:
    def __init__(self, one: Contraction, sides: BlockSides, machine: SimtMachine, names: FreshNames) -> None:
        self.one, self.machine, self.names = one, machine, names
        self._sides = sides
        bits = machine.group.bit_length() - 1
        self._down, self._across = 1 << (bits // 2), 1 << (bits - bits // 2)
        self._kind = one.accumulator
        self._high, self._wide = min(filter(self._fits, _SPEEDS), key=self._seconds)
        self.lane, self._group = names.var("lane"), names.var("group")
        self._ty, self._tx = names.var("down"), names.var("across")
        self._height, self._width = self._down * self._high, self._across * self._wide
        self._shared = [
            Buffer(names.name(f"shared_{name}"), self._kind, (_DEEP, extent + _RUN), Space.GROUP)
            for name, extent in (("rows", self._height), ("columns", self._width))
        ]

    def _fits(self, shape: tuple[int, int]) -> bool:
        """Whether two groups have room for blocks of both factors."""
        words = _DEEP * (shape[0] * self._down + shape[1] * self._across) * self._kind.bits // 8
        return shape == _SMALL or words <= self.machine.shared_bytes // 2

    def _counts(self, shape: tuple[int, int]) -> tuple[int, int]:
        """The number of blocks down and across; ``shape`` is the rows and columns per thread."""
        rows, columns = shape[0] * self._down, shape[1] * self._across
        return -(-self._sides.rows.count // rows), -(-self._sides.columns.count // columns)

    def _seconds(self, shape: tuple[int, int]) -> float:
        """The time that the busiest unit takes; ``shape`` is the rows and columns per thread."""
        groups = prod(self._sides.batches) * prod(self._counts(shape))
        each = -(-groups // self.machine.units)
        speed = _SPEEDS[shape] * (_ALONE if each == 1 else 1)
        return each * prod(shape) / speed if groups <= self.machine.most_groups else inf

    def formed(self, before: Statements) -> Formed | None:
        names, sides = self.names, self._sides
        tall, wide = self._counts((self._high, self._wide))
        count = prod(sides.batches) * tall * wide
        if count > self.machine.most_groups:
            return None
        first, second = names.var("top"), names.var("left")
        places = unflat(self._group, (*sides.batches, tall, wide))
        lets = (
            *lets_of(sides.batch, places[:-2]),
            Let(first, places[-2] * self._height),
            Let(second, places[-1] * self._width),
            Let(self._ty, self.lane // self._across),
            Let(self._tx, self.lane % self._across),
        )
        sums = [[names.var("sum", self._kind) for _ in range(self._wide)] for _ in range(self._high)]
        zeros = tuple(Local(one, Const(0, self._kind)) for line in sums for one in line)
        terms: Statements = tuple(self._terms(first, second, sums))
        if prod(self.one.reduced) <= _MOST_TERMS:
            terms = with_fused_sums(terms, self.machine)
        body = (*before, *lets, *zeros, *terms, *self._results(first, second, sums))
        threads = For(self.lane, index(self.machine.group), body, LoopKind.PARALLEL, Bind.THREAD)
        loop = For(self._group, index(count), (*map(Alloc, self._shared), threads), LoopKind.PARALLEL, Bind.GROUP)
        form = f"blocks: {self._height} x {self._width} sums"
        return Formed((loop,), count * self.machine.group, form, most_terms=_MOST_TERMS)

    # --- terms --------------------------------------------------------------------------------------------------------

    def _terms(self, first: ScalarVar, second: ScalarVar, sums: Sequence[Sequence[ScalarVar]]) -> Iterator[Statement]:
        names, total = self.names, prod(self.one.reduced)
        block, deep = names.var("block"), names.var("term")
        count = -(-total // _DEEP)
        loaders = [
            _Loader(self, memory, side, start, extent)
            for memory, side, start, extent in (
                (self._shared[0], self._sides.rows, first, self._height),
                (self._shared[1], self._sides.columns, second, self._width),
            )
        ]
        is_ahead = count > 1 and self._kind.bits == _WORD and all(one.is_even for one in loaders)
        body: list[Statement] = []
        if is_ahead:
            for one in loaders:
                yield from one.declared()
                yield from one.fetched(index(0))
                body += one.put()
        else:
            for one in loaders:
                body += one.loaded(block)
        body.append(GroupBarrier())
        if is_ahead:
            following = tuple(each for one in loaders for each in one.fetched(block + 1))
            body.append(If(block + 1 < index(count), following))
        rows = [names.var("row", self._kind) for _ in range(self._high)]
        columns = [names.var("column", self._kind) for _ in range(self._wide)]
        inner: list[Statement] = []
        for place, row in enumerate(rows):
            inner.append(Let(row, Load(self._shared[0], (deep, _own(self._ty, place, self._down)))))
        for place, column in enumerate(columns):
            inner.append(Let(column, Load(self._shared[1], (deep, _own(self._tx, place, self._across)))))
        for row, line in zip(rows, sums, strict=True):
            inner += [SetLocal(one, one + row * column) for column, one in zip(columns, line, strict=True)]
        body.append(over_terms(deep, _DEEP, tuple(inner), self.machine, names))
        body.append(GroupBarrier())
        yield For(block, index(count), tuple(body))

    # --- results ------------------------------------------------------------------------------------------------------

    def _results(self, first: ScalarVar, second: ScalarVar, sums: Sequence[Sequence[ScalarVar]]) -> Iterator[Statement]:
        names, sides = self.names, self._sides
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
        names, one = self.names, self.one
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
