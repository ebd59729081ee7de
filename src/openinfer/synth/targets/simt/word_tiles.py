"""Transposes of elements of up to four bytes that are only moved: words go through shared memory.

A thread reads 16 bytes of a row. Later it reads one word from each of several consecutive rows, and turns these words
into one access, of 16 bytes or fewer, to each column that they cover. Rows in shared memory are rotated by one access
for every access that is written, so that adjacent threads find their words in different banks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openinfer.dtypes import DTYPES
from openinfer.loops.build import index
from openinfer.loops.ir import (
    Binary,
    Buffer,
    Const,
    For,
    GroupBarrier,
    If,
    Let,
    Load,
    Scalar,
    ScalarVar,
    Space,
    Statement,
    Store,
    WideLoad,
    WideStore,
)
from openinfer.loops.rewrite import Statements, replaced
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.wide import FreshNames, WideLoop

_U32 = DTYPES["u32"]
_BYTES, _WORDS = 16, 4
"""Per access."""
_MOST_ACCESSES = 4
"""Accesses that a thread has in flight."""
_NEIGHBOURS = 8
"""Adjacent threads that write contiguously: their accesses cover all banks. With narrow accesses, twice as many."""


@dataclass(frozen=True)
class Moved:
    """What a body moves: its only load and its only store."""

    load: Load
    store: Store

    @property
    def each(self) -> int:
        """Elements per access."""
        return _BYTES * 8 // self.load.buffer.dtype.bits


def moved(body: Statements) -> Moved | None:
    """What a body moves; None if it does anything else, or elements are neither words nor parts of them."""
    names: dict[Scalar, Scalar] = {}
    for one in body[:-1]:
        if not isinstance(one, Let):
            return None
        names[one.var] = replaced(one.value, names)
    last = body[-1]
    value = replaced(last.value, names) if isinstance(last, Store) else None
    if not isinstance(last, Store) or not isinstance(value, Load) or any(one in names for one in last.index):
        return None
    is_same = value.buffer.dtype is last.buffer.dtype and value.buffer.dtype.bits in (8, 16, 32)
    return Moved(value, Store(last.buffer, last.index, value)) if is_same else None


class WordTile:
    """A rectangle of ``rows`` x ``columns`` elements that a group reads along rows and writes along columns."""

    def __init__(
        self,
        what: Moved,
        loops: tuple[For, For],
        extents: tuple[int, int],
        side: int,
        machine: SimtMachine,
        names: FreshNames,
        lane: ScalarVar,
    ) -> None:
        (self._read, self._written), self._what, self._extents = loops, what, extents
        self._machine, self._names, self._lane = machine, names, lane
        self._per = what.each // _WORDS
        self.rows = side
        # Rows are longer than columns if there is room for it.
        is_small = 2 * side * side // what.each <= machine.group * _MOST_ACCESSES
        self.columns = 2 * side if is_small and extents[0] >= 2 * side else side
        self._accesses = self.columns // what.each
        """Accesses per row."""
        self._run = self._written_at_once(what, loops[1], extents[1], machine)
        self.memory = Buffer(names.name("shared_words"), _U32, (side, self.columns // self._per), Space.GROUP)

    @classmethod
    def fits(cls, what: Moved, loops: tuple[For, For], extents: tuple[int, int], machine: SimtMachine) -> bool:
        """Whether reads are whole, aligned accesses, and so are writes, unless elements are words."""
        loads = WideLoop(loops[0].index, (what.store,), machine.unaligned)
        is_whole = extents[0] % what.each == 0 and loads.is_wide(what.load, what.each)
        return is_whole and cls._written_at_once(what, loops[1], extents[1], machine) > 0

    @staticmethod
    def _written_at_once(what: Moved, loop: For, extent: int, machine: SimtMachine) -> int:
        """Elements of a column per access: 16 bytes; fewer only if elements are words; 0 if there is no such access."""
        stores = WideLoop(loop.index, (what.store,), machine.unaligned)
        widths = (_WORDS, _WORDS // 2) if what.each == _WORDS else (what.each,)
        found = (one for one in widths if extent % one == 0 and stores.has_wide_stores(one))
        return next(found, 1 if what.each == _WORDS else 0)

    def statements(self, first_read: Scalar, first_written: Scalar) -> Iterator[Statement]:
        """The statements of a thread."""
        kept: list[Statement] = []
        for number in range(-(-self.rows * self._accesses // self._machine.group)):
            loaded, stored = self._in(number, first_read, first_written)
            yield from loaded
            kept += stored
        yield from kept
        yield GroupBarrier()
        units = self.rows // self._run * (self.columns // self._per)
        for number in range(-(-units // self._machine.group)):
            yield from self._out(number, first_read, first_written)

    # --- reading and writing ------------------------------------------------------------------------------------------

    def _in(self, number: int, first_read: Scalar, first_written: Scalar) -> tuple[Statements, Statements]:
        names, count = self._names, self._accesses
        unit, row, part = (names.var(name) for name in ("unit", "row", "part"))
        lets: Statements = (
            Let(unit, self._lane + number * self._machine.group),
            Let(row, unit // count),
            Let(part, unit % count),
        )
        places: dict[Scalar, Scalar] = {self._read.index: first_read + part * self._what.each}
        places[self._written.index] = first_written + row
        load = self._what.load
        words = tuple(names.var("word", _U32) for _ in range(_WORDS))
        wide = WideLoad(words, load.buffer, tuple(replaced(one, places) for one in load.index))
        rotated = (part + row // self._run) % count
        stores = tuple(Store(self.memory, (row, rotated * _WORDS + at), word) for at, word in enumerate(words))
        cond = self._inside(unit, self.rows * count, places, number)
        if cond is None:
            return (*lets, wide), stores
        return (*lets, If(cond, (wide, *stores))), ()

    def _out(self, number: int, first_read: Scalar, first_written: Scalar) -> Iterator[Statement]:
        names, run, columns = self._names, self._run, self.columns // self._per
        beside = min(self.rows // run, _NEIGHBOURS if run == self._what.each else 2 * _NEIGHBOURS)
        unit, down, column = (names.var(name) for name in ("unit", "down", "column"))
        yield Let(unit, self._lane + number * self._machine.group)
        yield Let(down, unit % beside + unit // (beside * columns) * beside)
        yield Let(column, unit // beside % columns)
        rotated = (column // _WORDS + down) % self._accesses
        words = [names.var("word", _U32) for _ in range(run)]
        body: list[Statement] = [
            Let(word, Load(self.memory, (down * run + at, rotated * _WORDS + column % _WORDS)))
            for at, word in enumerate(words)
        ]
        places: dict[Scalar, Scalar] = {self._read.index: first_read + column * self._per}
        places[self._written.index] = first_written + down * run
        for at, values in enumerate(self._transposed(words, body)):
            own = {**places, self._read.index: first_read + (column * self._per + at)}
            store = self._what.store
            body.append(WideStore(store.buffer, tuple(replaced(one, own) for one in store.index), tuple(values)))
        cond = self._inside(unit, self.rows // run * columns, places, number)
        yield from body if cond is None else (If(cond, tuple(body)),)

    def _inside(self, unit: Scalar, units: int, places: dict[Scalar, Scalar], number: int) -> Scalar | None:
        """The condition under which a thread has work; None if every thread has."""
        found: list[Scalar] = []
        if (number + 1) * self._machine.group > units:
            found.append(unit < units)
        sides = (self.columns, self.rows)
        for loop, extent, side in zip((self._read, self._written), self._extents, sides, strict=True):
            if extent % side:
                found.append(places[loop.index] < index(extent))
        cond = found[0] if found else None
        for one in found[1:]:
            cond = one if cond is None else cond & one
        return cond

    def _transposed(self, words: Sequence[ScalarVar], body: list[Statement]) -> list[list[ScalarVar]]:
        """Transposes words of rows into words of columns: first between pairs of rows, then between pairs of pairs."""
        if self._per == 1:
            return [[*words]]
        width = 32 // self._per
        pairs = [self._exchanged(words[at], words[at + 1], width, body) for at in range(0, len(words), 2)]
        if self._per == 2:
            return [[pair[which] for pair in pairs] for which in range(2)]
        found: list[list[ScalarVar]] = [[] for _ in range(4)]
        for at in range(0, len(pairs), 2):
            for which in range(2):
                low, high = self._exchanged(pairs[at][which], pairs[at + 1][which], 16, body)
                found[which].append(low)
                found[which + 2].append(high)
        return found

    def _exchanged(
        self, one: ScalarVar, other: ScalarVar, width: int, body: list[Statement]
    ) -> tuple[ScalarVar, ScalarVar]:
        """The even fields of two words as one word, and the odd ones as another."""
        low = Const(0xFFFF if width == 16 else 0x00FF00FF, _U32)
        high, by = Const(int(low.value) << width, _U32), Const(width, _U32)
        even = Binary("or", Binary("and", one, low), Binary("shl", Binary("and", other, low), by))
        odd = Binary("or", Binary("and", Binary("shr", one, by), low), Binary("and", other, high))
        names = self._names.var("even", _U32), self._names.var("odd", _U32)
        body += [Let(names[0], even), Let(names[1], odd)]
        return names
