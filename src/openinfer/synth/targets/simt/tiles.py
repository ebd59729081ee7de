"""Transposes: what is read steps along one index where it is next to each other, and what is written along another.

A group reads a square of elements in the order of one, and goes on in the order of the other; in between they are in
memory that it shares, whose rows have one element more, so that columns are in different banks of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
from openinfer.loops.rewrite import Statements, changed, replaced, with_scalars
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.team import shared_type
from openinfer.synth.targets.simt.threads import int_extent, nest
from openinfer.synth.targets.simt.wide import FreshNames

_SIDE = 64
"""Elements along each side of a square, where a group has threads enough; each of them has several on its way."""
_MOST_EACH = 16
"""The most elements of a thread."""


_Elements: TypeAlias = Callable[[Sequence[Scalar]], Iterator[Statement]]
"""What a thread does for its elements, by where they are along the index that it does not step along."""


@dataclass(frozen=True)
class _Square:
    """The indices along which memory is read and written, and what is read along the first."""

    read: int
    written: int
    loads: tuple[Load, ...]


def tiles(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """Nested parallel loops without others inside that read across what they write."""
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
    side = _SIDE
    while side > machine.group or side * side > machine.group * _MOST_EACH:
        side //= 2
    while side > 1 and sum(_shared_bytes(load, side) for load in square.loads) > machine.shared_bytes // 2:
        side //= 2
    return side


def _shared_bytes(load: Load, side: int) -> int:
    return side * (side + 1) * max(load.dtype.bits, 32) // 8


def _square(indices: Sequence[ScalarVar], body: Statements) -> _Square | None:
    stores = [one for one in body if isinstance(one, Store)]
    along = [_along(one.buffer, one.index, indices) for one in stores]
    if not along or along[0] is None or any(one != along[0] for one in along):
        return None
    if any(one.buffer.dtype.is_packed for one in stores):
        return None  # Elements that share words are stored by threads that have whole words.
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
    """The index along which neighbours in memory are."""
    found = position(buffer, where)
    if found is None:
        return None
    steps = [found.step(var) for var in indices]
    return next((axis for axis, step in enumerate(steps) if not is_symbolic(step) and step == 1), None)


class _Tiles:
    def __init__(
        self, loops: Sequence[For], square: _Square, side: int, machine: SimtMachine, names: FreshNames
    ) -> None:
        self._loops, self._square, self._side, self._machine, self._names = loops, square, side, machine, names
        self._extents = [int_extent(one.extent) for one in loops]
        self._lane, self._group, self._turn = names.var("lane"), names.var("group"), names.var("turn")
        self._own = {
            load: Buffer(
                names.name(f"shared_{load.buffer.name}"), shared_type(load.dtype), (side, side + 1), Space.GROUP
            )
            for load in square.loads
        }
        self._first = {axis: names.var("first") for axis in (square.read, square.written)}
        self._across, self._down = names.var("across"), names.var("down")

    def formed(self, before: Statements) -> Formed:
        machine, names, side = self._machine, self._names, self._side
        counts = [-(-extent // side) if axis in self._first else extent for axis, extent in enumerate(self._extents)]
        needed = 1
        for one in counts:
            needed *= one
        block = names.var("block")
        places = unflat(block, counts)
        lets: list[Statement] = []
        for axis, place in enumerate(places):
            at = self._first.get(axis)
            lets.append(Let(self._loops[axis].index, place) if at is None else Let(at, place * side))
        body: Statements = (*lets, *self._body())
        count = min(needed, machine.most_groups)
        if needed > count:
            turns = (index(needed) - self._group + (count - 1)) // count
            # What is shared is read before the next square comes there.
            body = (For(self._turn, turns, (Let(block, self._turn * count + self._group), *body, GroupBarrier())),)
        else:
            body = (Let(block, self._group), *body)
        own = (Let(self._across, self._lane % side), Let(self._down, self._lane // side))
        threads = For(self._lane, index(machine.group), (*before, *own, *body), LoopKind.PARALLEL, Bind.THREAD)
        memory = tuple(map(Alloc, self._own.values()))
        loop = For(self._group, index(count), (*memory, threads), LoopKind.PARALLEL, Bind.GROUP)
        return Formed((loop,), count * machine.group, f"tiles: {side} x {side} elements")

    def _body(self) -> Iterator[Statement]:
        yield from self._either(self._read, self._square.read, self._square.written)
        yield GroupBarrier()
        yield from self._either(self._written, self._square.written, self._square.read)

    def _either(self, make: _Elements, along: int, other: int) -> Iterator[Statement]:
        """All elements of a thread at once in whole squares; those at an end, one after the other."""
        side, step = self._side, self._machine.group // self._side
        whole = tuple(make([self._down + number * step for number in range(side // step)]))
        ends = [axis for axis in (along, other) if self._extents[axis] % side]
        if not ends:
            yield from whole
            return
        full = [self._first[axis] <= self._extents[axis] - side for axis in ends]
        turn, down = self._names.var("turn"), self._names.var("down")
        inside = [
            self._first[axis] + at < self._extents[axis]
            for axis, at in ((along, self._across), (other, down))
            if axis in ends
        ]
        some = For(
            turn,
            index(side // step),
            (Let(down, self._down + turn * step), If(_all(inside), tuple(make([down])))),
        )
        yield If(_all(full), whole, (some,))

    def _read(self, downs: Sequence[Scalar]) -> Iterator[Statement]:
        """Elements in the order in which they are read: along the square's first index."""
        stores: list[Statement] = []
        for down in downs:
            known = self._places(self._across, down)
            for load, memory in self._own.items():
                value = self._names.var(load.buffer.name, load.dtype)
                yield Let(value, replaced(load, known))
                stores.append(Store(memory, (down, self._across), cast(value, memory.dtype)))
        yield from stores

    def _written(self, downs: Sequence[Scalar]) -> Iterator[Statement]:
        """The loops' body, in the order in which its results are written."""
        for down in downs:
            known = dict(self._places(down, self._across))
            shared: dict[Scalar, Scalar] = {
                load: cast(Load(memory, (self._across, down)), load.dtype) for load, memory in self._own.items()
            }
            for one in self._loops[-1].body:
                yield _copied(one, shared, known, self._names)

    def _places(self, read: Scalar, written: Scalar) -> dict[Scalar, Scalar]:
        """Where the square's indices are."""
        pairs = ((self._square.read, read), (self._square.written, written))
        return {self._loops[axis].index: self._first[axis] + at for axis, at in pairs}


def _copied(
    one: Statement, shared: Mapping[Scalar, Scalar], known: dict[Scalar, Scalar], names: FreshNames
) -> Statement:
    """A statement at other places, with what is shared in place of loads; names that it gives are its own."""
    made = with_scalars(one, lambda value: replaced(changed(value, shared.get), known))
    if isinstance(made, Let):
        fresh = names.var(made.var.name, made.var.dtype)
        known[made.var] = fresh
        made = Let(fresh, made.value)
    return made


def _all(conditions: Sequence[Scalar]) -> Scalar:
    found = conditions[0]
    for one in conditions[1:]:
        found = found & one
    return found
