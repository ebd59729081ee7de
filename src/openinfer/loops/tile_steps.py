"""What threads of a group do with tiles of two factors in memory that they share, and with matrix units.

A tile has rows of ``TILE_BYTES``, terms of a sum next to each other; how its elements lie in memory is a language's
business. So only these statements touch one. They stand beside the statements of ``openinfer.loops.ir``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, Self

import numpy as np

from openinfer.dtypes import Array
from openinfer.loops.arithmetic import NumpyScalar, converted
from openinfer.loops.scalar import Buffer, Scalar, ScalarVar

TILE_BYTES = 128
"""A row of a tile."""
TILE_ROWS = 64
"""Rows of sums of the threads that multiply together."""
TILE_THREADS = 128
"""How many those are: four subgroups, with neighbouring numbers from a multiple on."""


class TileExecution(Protocol):
    """The interpreter, as these statements see it."""

    def value(self, scalar: Scalar, /) -> NumpyScalar:
        """What an expression is."""

    def element(self, buffer: Buffer, where: tuple[int, ...], /) -> NumpyScalar:
        """What an element is, in its compute type."""

    def elements(self, buffer: Buffer, where: tuple[int, ...], count: int, /) -> Array:
        """Neighbouring elements, as they are in memory."""

    def put(self, buffer: Buffer, where: tuple[int, ...], value: NumpyScalar, /) -> None:
        """Give an element a value."""


@dataclass(frozen=True)
class TileStep:
    """A statement about tiles."""

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The expressions in it."""
        return ()

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """Memory that it reads."""
        return ()

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """Memory that it writes."""
        return ()

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """The same of other expressions and memory."""
        del apply, swap
        return self

    def run(self, run: TileExecution) -> None:
        """Do what it says."""


@dataclass(frozen=True)
class TileCopy(TileStep):
    """Neighbouring elements of memory go into a row of a tile, or zeros where they are not valid.

    They are 16 bytes, from a multiple of so many on, and are there for the group after ``TileSync.ARRIVED`` and a
    barrier.
    """

    tile: Buffer
    index: tuple[Scalar, ...]
    """The first element in the tile."""
    source: Buffer
    source_index: tuple[Scalar, ...]
    valid: Scalar | None = None
    """The condition under which they are; None where they always are."""

    @property
    def count(self) -> int:
        """How many elements."""
        return 16 * 8 // self.tile.dtype.bits

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Both places, and whether elements are valid."""
        condition = () if self.valid is None else (self.valid,)
        return (*self.index, *self.source_index, *condition)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The source."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The tile."""
        return (self.tile,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """The same of other expressions and memory."""
        index, source_index = tuple(map(apply, self.index)), tuple(map(apply, self.source_index))
        both = swap(self.tile), swap(self.source)
        valid = None if self.valid is None else apply(self.valid)
        return replace(self, tile=both[0], index=index, source=both[1], source_index=source_index, valid=valid)

    def run(self, run: TileExecution) -> None:
        """An element after the other."""
        *to, first = (int(run.value(one)) for one in self.index)
        is_valid = self.valid is None or bool(run.value(self.valid))
        *origin, start = (int(run.value(one)) for one in self.source_index) if is_valid else (0,)
        for place in range(self.count):
            zero = converted(0, self.tile.dtype.compute)
            value = run.element(self.source, (*origin, start + place)) if is_valid else zero
            run.put(self.tile, (*to, first + place), value)


@dataclass(frozen=True)
class TileStore(TileStep):
    """Variables become neighbouring elements of a row of a tile: 16 bytes, which are there as those of a copy are."""

    tile: Buffer
    index: tuple[Scalar, ...]
    values: tuple[Scalar, ...]

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The place, and the values."""
        return (*self.index, *self.values)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The tile."""
        return (self.tile,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """The same of other expressions and memory."""
        index, values = tuple(map(apply, self.index)), tuple(map(apply, self.values))
        return replace(self, tile=swap(self.tile), index=index, values=values)

    def run(self, run: TileExecution) -> None:
        """An element after the other."""
        *to, first = (int(run.value(one)) for one in self.index)
        for place, value in enumerate(self.values):
            run.put(self.tile, (*to, first + place), run.value(value))


class TileMoment(StrEnum):
    """What is true from a place on."""

    BATCH = "batch"
    """Copies since the last such place are a batch."""
    ARRIVED = "arrived"
    """What this thread has stored, and its batches but for the last ones, are in their tiles."""
    SUMMED = "summed"
    """All products are in the sums."""


@dataclass(frozen=True)
class TileSync(TileStep):
    """A place from which on something is true, for the thread that comes there."""

    moment: TileMoment
    pending: int = 0
    """The batches that need not have arrived."""
    sums: Buffer | None = None
    """The sums that are complete."""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The sums."""
        return () if self.sums is None else (self.sums,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """The same of other memory."""
        del apply
        return self if self.sums is None else replace(self, sums=swap(self.sums))


@dataclass(frozen=True)
class TileProduct(TileStep):
    """Each thread adds to its sums those of products along whole rows of two tiles: 64 rows of one, some of the other.

    ``TILE_THREADS`` neighbours come here together. A thread has two rows, and of each 8 columns two neighbours:
    ``sum_place`` says which. The tiles must stay as they are until the thread comes to the product after the next, or
    to ``TileSync.SUMMED``; before that, nothing reads the sums.
    """

    sums: Buffer
    rows: Buffer
    rows_index: tuple[Scalar, ...]
    """Where the rows begin, less the axis along them."""
    columns: Buffer
    columns_index: tuple[Scalar, ...]
    width: int
    """How many rows of the second tile, which are columns of sums."""
    thread: ScalarVar
    """The thread's number in its group."""

    @property
    def terms(self) -> int:
        """How many there are in a row."""
        return TILE_BYTES * 8 // self.rows.dtype.bits

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Both places, and the thread."""
        return (*self.rows_index, *self.columns_index, self.thread)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """Tiles and sums."""
        return (self.rows, self.columns, self.sums)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The sums."""
        return (self.sums,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """The same of other expressions and memory."""
        rows, columns = tuple(map(apply, self.rows_index)), tuple(map(apply, self.columns_index))
        buffers = swap(self.sums), swap(self.rows), swap(self.columns)
        thread = apply(self.thread)
        assert isinstance(thread, ScalarVar)
        return replace(
            self,
            sums=buffers[0],
            rows=buffers[1],
            rows_index=rows,
            columns=buffers[2],
            columns_index=columns,
            thread=thread,
        )

    def run(self, run: TileExecution) -> None:
        """The thread's own sums, term by term."""
        kind, own = self.sums.dtype, int(run.value(self.thread))
        *first, top = (int(run.value(one)) for one in self.rows_index)
        *second, left = (int(run.value(one)) for one in self.columns_index)
        known: dict[tuple[bool, int], Array] = {}

        def line(buffer: Buffer, where: tuple[int, ...], *, is_row: bool) -> Array:
            key = (is_row, where[-1])
            if key not in known:
                known[key] = run.elements(buffer, (*where, 0), self.terms).astype(kind.array)
            return known[key]

        for number in range(self.width // 2):
            row, column = sum_place(own, number)
            one = line(self.rows, (*first, top + row), is_row=True)
            other = line(self.columns, (*second, left + column), is_row=False)
            total = run.element(self.sums, (number,))
            terms = np.concatenate(([total], one * other))
            run.put(self.sums, (number,), np.add.accumulate(terms, dtype=kind.array)[-1])


def sum_place(thread: int, number: int) -> tuple[int, int]:
    """The row and the column of one of a thread's sums, among those of the threads that multiply together.

    >>> [sum_place(5, number) for number in range(6)]
    [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11)]
    """
    own = thread % TILE_THREADS
    row = own // 32 * 16 + own % 32 // 4 + number // 2 % 2 * 8
    return row, number // 4 * 8 + own % 4 * 2 + number % 2


def tile_text(one: TileStep, text: Callable[[Scalar], str]) -> str:
    """A statement about tiles in words."""

    def place(buffer: Buffer, index: tuple[Scalar, ...]) -> str:
        return f"{buffer.name}[{', '.join(map(text, index))}..]"

    match one:
        case TileCopy(tile, index, source, source_index, valid):
            where = "" if valid is None else f" where {text(valid)}"
            return f"tile {place(tile, index)} = {place(source, source_index)}{where}"
        case TileStore(tile, index, values):
            return f"tile {place(tile, index)} = {', '.join(map(text, values))}"
        case TileSync(moment, pending):
            return f"tiles {moment} but {pending}" if pending else f"tiles {moment}"
        case TileProduct():
            both = place(one.rows, one.rows_index), place(one.columns, one.columns_index)
            return f"{one.sums.name}[..] += {both[0]} * {both[1]} of {one.width} by {one.thread.name}"
        case _:
            raise TypeError(one)
