"""Transposes: reads are contiguous along one index, and writes along another.

A group reads a square of elements in the order of the first, and continues in the order of the second. In between, the
square is in shared memory, whose rows are padded by one element so that columns fall into different banks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from openinfer.dtypes import DType
from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast, index, unflat
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    Alloc,
    Bind,
    Buffer,
    For,
    GroupBarrier,
    If,
    Let,
    Load,
    LoopKind,
    Scalar,
    ScalarVar,
    Space,
    Statement,
    Store,
    scalars,
    visit,
)
from openinfer.loops.rewrite import Statements, renamed
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.partials import shared_type
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.threads import int_extent, nest
from openinfer.synth.targets.simt.wide import FreshNames, KeptElements, WideLoop
from openinfer.synth.targets.simt.word_tiles import WordTile, moved

_SIDE = 128
"""Elements along each side of a square at most."""
_MOST_EACH = 64
"""Bytes per thread at most, all of which are in flight at the same time."""
_ACCESS = 8
"""Elements per access at most."""
_LEAST_WORDS = 2
"""Accesses along a side from which elements that are parts of words are moved as words."""


_Elements: TypeAlias = Callable[[Scalar, Sequence[Scalar]], Iterator[Statement]]
"""What a thread does for contiguous elements, given their start along one axis and positions along the other."""


@dataclass(frozen=True)
class _Square:
    """The axes along which memory is read and written, and the loads along the first."""

    read: int
    written: int
    loads: tuple[Load, ...]


def tiles(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """A perfect nest of parallel loops that reads across what it writes."""
    *before, last = part.body
    if not part.is_parallel or not isinstance(last, For):
        return None
    loops = tuple(nest(last))
    body = loops[-1].body
    if any(is_symbolic(int_extent(one.extent)) for one in loops) or not all(
        isinstance(one, Let | Store) for one in body
    ):
        return None
    found = _square(tuple(one.index for one in loops), body)
    if found is None:
        return None
    side = _side(machine, found)
    if min(int_extent(loops[axis].extent) for axis in (found.read, found.written)) < max(side // 4, 2):
        return None
    return _Tiles(loops, found, side, machine, FreshNames(taken)).formed(tuple(before))


def _side(machine: SimtMachine, square: _Square) -> int:
    side, each = _SIDE, sum(_memory_type(load).bits // 8 for load in square.loads)
    while side > machine.group or side * side * each > machine.group * _MOST_EACH:
        side //= 2
    while side > 1 and side * (side + 1) * each > machine.shared_bytes // 2:
        side //= 2
    return side


def _memory_type(load: Load) -> DType:
    """The type of its elements in shared memory: as stored, unless they are packed or bool."""
    stored = load.buffer.dtype
    return shared_type(load.dtype) if stored.is_packed or stored.kind == "bool" else stored


def _square(indices: Sequence[ScalarVar], body: Statements) -> _Square | None:
    stores = [one for one in body if isinstance(one, Store)]
    along = [_along(one.buffer, one.index, indices) for one in stores]
    if not along or along[0] is None or any(one != along[0] for one in along):
        return None
    if any(one.buffer.dtype.is_packed for one in stores):
        return None  # Packed elements are stored by threads that have whole words.
    names = {one.buffer.name for one in stores}
    own = {one.var.name for one in body if isinstance(one, Let)}
    loads: dict[int, dict[Load, None]] = {}
    for load in (part for one in body for value in scalars(one) for part in visit(value) if isinstance(part, Load)):
        if load.buffer.name in names:
            return None
        axis = _along(load.buffer, load.index, indices)
        if axis is not None and axis != along[0] and not variables(*load.index) & own:
            loads.setdefault(axis, {})[load] = None
    if not loads:
        return None
    axis = max(loads, key=lambda one: len(loads[one]))
    crossing = tuple(load for load in loads[axis] if variables(*load.index) & {indices[along[0]].name})
    return _Square(axis, along[0], crossing) if crossing else None


def _along(buffer: Buffer, where: Sequence[Scalar], indices: Sequence[ScalarVar]) -> int | None:
    """The axis along which accesses are contiguous."""
    found = position(buffer, where)
    if found is None:
        return None
    steps = [found.stride(var) for var in indices]
    return next((axis for axis, step in enumerate(steps) if not is_symbolic(step) and step == 1), None)


class _Tiles:
    def __init__(
        self, loops: Sequence[For], square: _Square, side: int, machine: SimtMachine, names: FreshNames
    ) -> None:
        self._loops, self._square, self._side, self._machine, self._names = loops, square, side, machine, names
        self._extents = [int_extent(one.extent) for one in loops]
        self._lane, self._group = names.var("lane"), names.var("group")
        self._own = {
            load: Buffer(names.name(f"shared_{load.buffer.name}"), _memory_type(load), (side, side + 1), Space.GROUP)
            for load in square.loads
        }
        self._first = {axis: names.var("first") for axis in (square.read, square.written)}
        self._words = self._word_tile()

    def _word_tile(self) -> WordTile | None:
        """The square as words, if its elements are only moved and fit words."""
        what, axes = moved(self._loops[-1].body), (self._square.read, self._square.written)
        loops = self._loops[axes[0]], self._loops[axes[1]]
        extents = self._extents[axes[0]], self._extents[axes[1]]
        if what is None or not WordTile.fits(what, loops, extents, self._machine):
            return None
        if self._side < _LEAST_WORDS * what.each:
            return None
        return WordTile(what, loops, extents, self._side, self._machine, self._names, self._lane)

    def formed(self, before: Statements) -> Formed:
        machine, names, side = self._machine, self._names, self._side
        sides = {self._square.read: side, self._square.written: side}
        if self._words is not None:
            sides = {self._square.read: self._words.columns, self._square.written: self._words.rows}
        counts = [-(-extent // sides.get(axis, 1)) for axis, extent in enumerate(self._extents)]
        needed = 1
        for one in counts:
            needed *= one
        block = names.var("block")
        lets: list[Statement] = []
        for axis, place in enumerate(unflat(block, counts)):
            at = self._first.get(axis)
            lets.append(Let(self._loops[axis].index, place) if at is None else Let(at, place * sides[axis]))
        words, firsts = self._words, (self._first[self._square.read], self._first[self._square.written])
        if words is None:
            body: Statements = (*lets, *self._read(), GroupBarrier(), *self._written())
        else:
            body = (*lets, *words.statements(*firsts))
        count = min(needed, machine.most_groups)
        if needed > count:
            turn = names.var("turn")
            turns = (index(needed) - self._group + (count - 1)) // count
            # Shared memory must be read before the next square overwrites it.
            body = (For(turn, turns, (Let(block, turn * count + self._group), *body, GroupBarrier())),)
        else:
            body = (Let(block, self._group), *body)
        threads = For(self._lane, index(machine.group), (*before, *body), LoopKind.PARALLEL, Bind.THREAD)
        memory = tuple(map(Alloc, self._own.values() if words is None else (words.memory,)))
        loop = For(self._group, index(count), (*memory, threads), LoopKind.PARALLEL, Bind.GROUP)
        kind = "elements" if words is None else "elements, as words"
        size = " x ".join(str(sides[axis]) for axis in (self._square.written, self._square.read))
        return Formed((loop,), count * machine.group, f"tiles: {size} {kind}")

    # --- reading and writing ------------------------------------------------------------------------------------------

    def _read(self) -> Iterator[Statement]:
        """Loads the elements, in the order of reads."""
        square, names = self._square, self._names
        var = self._loops[square.read].index
        loop = WideLoop(var, self._loops[-1].body, self._machine.unaligned)
        width = self._width(square.read, lambda width: all(loop.is_wide(one, width) for one in square.loads))

        def made(across: Scalar, downs: Sequence[Scalar]) -> Iterator[Statement]:
            stores: list[Statement] = []
            for down in downs:
                places: dict[Scalar, Scalar] = {var: self._first[square.read] + across}
                places[self._loops[square.written].index] = self._first[square.written] + down
                for load, memory in self._own.items():
                    own = tuple(names.var(load.buffer.name, load.dtype) for _ in range(width))
                    yield from loop.loaded(load, own, places)
                    for place, value in enumerate(own):
                        stores.append(Store(memory, (down, across + place), _put(value, memory)))
            yield from stores

        yield from self._either(made, width, square.read, square.written)

    def _written(self) -> Iterator[Statement]:
        """Runs the body of the loops, in the order of writes."""
        square, names = self._square, self._names
        var = self._loops[square.written].index
        loop = WideLoop(var, self._loops[-1].body, self._machine.unaligned)
        width = self._width(square.written, loop.has_wide_stores)

        def made(across: Scalar, downs: Sequence[Scalar]) -> Iterator[Statement]:
            for down in downs:
                at = names.var(self._loops[square.read].index.name)
                yield Let(at, self._first[square.read] + down)
                known: dict[Load, tuple[Scalar, ...]] = {}
                for load, memory in self._own.items():
                    own = tuple(names.var(load.buffer.name, load.dtype) for _ in range(width))
                    for place, value in enumerate(own):
                        yield Let(value, cast(Load(memory, (across + place, down)), load.dtype))
                    known[load] = own
                start = self._first[square.written] + across
                copies = loop.copies(start, width, names, KeptElements(known)).statements
                yield from renamed(copies, {self._loops[square.read].index.name: at})

        yield from self._either(made, width, square.written, square.read)

    def _width(self, axis: int, is_wide: Callable[[int], bool]) -> int:
        """Elements per access: at most 16 bytes, and few enough for every thread to have an access."""
        width = _ACCESS
        most = self._side * self._side // self._machine.group
        while width > 1 and not (width <= most and self._extents[axis] % width == 0 and is_wide(width)):
            width //= 2
        return width

    def _either(self, make: _Elements, width: int, along: int, other: int) -> Iterator[Statement]:
        """All elements of a thread at once in full squares; one by one, with bounds checks, in partial ones."""
        side, names = self._side, self._names
        wide = side // width
        step = self._machine.group // wide
        across, first = names.var("across"), names.var("down")
        yield Let(across, self._lane % wide * width)
        yield Let(first, self._lane // wide)
        whole = tuple(make(across, [first + number * step for number in range(side // step)]))
        ends = [axis for axis in (along, other) if self._extents[axis] % side]
        if not ends:
            yield from whole
            return
        full = [self._first[axis] <= self._extents[axis] - side for axis in ends]
        turn, down = names.var("turn"), names.var("down")
        places = ((along, across), (other, down))
        inside = [self._first[axis] + at < self._extents[axis] for axis, at in places if axis in ends]
        some = (Let(down, first + turn * step), If(_all(inside), tuple(make(across, [down]))))
        yield If(_all(full), whole, (For(turn, index(side // step), some),))


def _put(value: Scalar, memory: Buffer) -> Scalar:
    return cast(value, memory.dtype.compute)


def _all(conditions: Sequence[Scalar]) -> Scalar:
    found = conditions[0]
    for one in conditions[1:]:
        found = found & one
    return found
