"""Shared memory that a launch fills before its main work: vectors, and results computed from a few rows."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import rounded
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    Buffer,
    For,
    GroupBarrier,
    If,
    Load,
    Scalar,
    Space,
    Statement,
    Store,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, map_statements
from openinfer.synth.targets.simt.row_loops import RowItem, RowLoop, row_items
from openinfer.synth.targets.simt.team import LaneTeam, common_widths
from openinfer.synth.targets.simt.threads import int_extent, nest

_MOST_ROWS = 8
_MOST_ELEMENTS = 1 << 15
"""Rows that a group may recompute, and elements that it may traverse for them."""


@dataclass(frozen=True)
class GroupMemory:
    """A buffer in shared memory: as it is, or laid out so that elements which one thread loads together are far apart.

    Then adjacent threads, which have adjacent accesses, touch adjacent words, or adjacent runs of words.
    """

    buffer: Buffer
    stored: DType
    """The dtype that elements are rounded to."""
    width: int = 1
    run: int = 1
    """Elements that stay adjacent, so that one access can load them."""

    @classmethod
    def of(cls, one: Buffer, name: str, width: int = 1, run: int = 1) -> "GroupMemory":
        """Shared memory for a buffer; along its last axis, ``width`` elements are loaded together."""
        dtype = one.dtype.compute if one.dtype.compute.bits >= 32 else DTYPES["i32"]
        inner = (one.shape[-1] // width,) if run == 1 else (one.shape[-1] // width, run)
        shape = one.shape if width == 1 else (*one.shape[:-1], width // run, *inner)
        return cls(Buffer(name, dtype, shape, Space.GROUP), one.dtype, width, run)

    def place(self, where: Sequence[Scalar]) -> tuple[Scalar, ...]:
        """The index of an element in shared memory."""
        if self.width == 1:
            return tuple(where)
        return (*where[:-1], *self.inner(where[-1] % self.width, where[-1] // self.width))

    def inner(self, place: Scalar, chunk: Scalar) -> tuple[Scalar, ...]:
        """The last coordinates of an element of the chunk that a thread loads together."""
        return (place, chunk) if self.run == 1 else (place // self.run, chunk, place % self.run)


@dataclass(frozen=True)
class ProloguePart:
    """A few rows, of which each thread computes some elements without reading those of others."""

    loops: tuple[For, ...]
    """The loops over rows."""
    items: tuple[RowItem, ...]

    @property
    def work(self) -> int:
        """The number of elements that it traverses."""
        rows = prod(int_extent(one.extent) for one in self.loops)
        return rows * sum(prod(one.extents) for one in self.items if isinstance(one, RowLoop))

    @property
    def stores(self) -> Iterator[Store]:
        """What it stores."""
        for item in self.items:
            body = item.body if isinstance(item, RowLoop) else (item,)
            yield from (one for one in walk(body) if isinstance(one, Store))

    def statements(self, team: LaneTeam) -> Iterator[Statement]:
        """The rows, computed by all threads of a group together."""
        widths = common_widths([one for one in self.items if isinstance(one, RowLoop)], team.machine)
        own = replace(team, widths=widths)
        made: Statements = tuple(each for one in self.items for each in _item(one, own))
        for loop in reversed(self.loops):
            made = (For(loop.index, loop.extent, made),)
        yield from made


@dataclass(frozen=True)
class Prologue:
    """What every group computes for itself, with barriers between the parts."""

    parts: tuple[ProloguePart, ...]

    @property
    def stores(self) -> Iterator[Store]:
        """What it stores."""
        for part in self.parts:
            yield from part.stores

    def statements(self, team: LaneTeam) -> Iterator[Statement]:
        """The parts, computed by all threads of a group together."""
        for number, part in enumerate(self.parts):
            if number:
                yield GroupBarrier()
            yield from part.statements(team)


def _item(one: RowItem, team: LaneTeam) -> Iterator[Statement]:
    match one:
        case RowLoop():
            yield from team.loop(one)
        case Store():
            yield If(team.member.eq(0), (one,))
        case _:
            yield one


def prologue_of(body: Statements, made: Collection[Buffer]) -> Prologue | None:
    """Statements that compute rows into buffers of their own; None if they are anything else, or too much to repeat."""
    parts: list[ProloguePart] = []
    while body:
        found = ((n, _part(body[:n], made)) for n in range(len(body), 0, -1))
        count, part = next(((n, part) for n, part in found if part is not None), (0, None))
        if part is None:
            return None
        parts.append(part)
        body = body[count:]
    return Prologue(tuple(parts)) if sum(one.work for one in parts) <= _MOST_ELEMENTS else None


def _part(body: Statements, made: Collection[Buffer]) -> ProloguePart | None:
    """Statements as one part; None if they are not."""
    loops = tuple(nest(body[0])) if len(body) == 1 and not _has_rows(body) else ()
    outer = [int_extent(one.extent) for one in loops]
    # Independent elements are distributed over the threads at once; otherwise one row comes after the other.
    count = next((n for n in range(len(loops), 0, -1) if _are_few(outer[:n]) and _has_rows(loops[n - 1].body)), 0)
    loops = loops[:count]
    items = row_items(loops[-1].body if loops else body)
    if items is None:
        return None
    if any(is_symbolic(extent) for one in items if isinstance(one, RowLoop) for extent in one.extents):
        return None
    written = {one.buffer for one in walk(body) if isinstance(one, Store)}
    is_own = written <= set(made) and all(one.dtype.kind == "float" for one in written)
    return ProloguePart(loops, tuple(items)) if is_own else None


def _are_few(extents: Sequence[int]) -> bool:
    return not any(map(is_symbolic, extents)) and prod(extents) <= _MOST_ROWS


def _has_rows(body: Statements) -> bool:
    found = row_items(body)
    return found is not None and any(isinstance(one, RowLoop) for one in found)


def in_group(body: Statements, memory: Mapping[Buffer, GroupMemory]) -> Statements:
    """Statements with these buffers in shared memory."""

    def stored(one: Statement) -> Statements:
        if not isinstance(one, Store) or one.buffer not in memory:
            return (one,)
        own = memory[one.buffer]
        return (Store(own.buffer, own.place(one.index), rounded(one.value, own.stored)),)

    return changed_statements(map_statements(body, stored), lambda part: loaded(part, memory))


def loaded(part: Scalar, memory: Mapping[Buffer, GroupMemory]) -> Scalar | None:
    """A load of one of these buffers, from shared memory; None for anything else."""
    if not isinstance(part, Load) or part.buffer not in memory:
        return None
    own = memory[part.buffer]
    return Load(own.buffer, own.place(part.index))


def with_memory(one: Prologue, memory: Mapping[Buffer, GroupMemory]) -> Prologue:
    """A prologue that works in shared memory."""

    def own(item: RowItem) -> Iterator[RowItem]:
        if isinstance(item, RowLoop):
            yield replace(item, body=in_group(item.body, memory))
        else:
            yield from in_group((item,), memory)

    parts = (replace(part, items=tuple(made for item in part.items for made in own(item))) for part in one.parts)
    return Prologue(tuple(parts))
