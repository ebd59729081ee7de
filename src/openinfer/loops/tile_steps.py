"""Statements about tiles of two factors in shared memory, which the threads of a group multiply on matrix units.

A row of a tile is ``TILE_BYTES`` of adjacent terms of a sum. The layout of its elements is up to the target language,
so only these statements access tiles. They complement the statements of ``openinfer.loops.ir``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, Self

import numpy as np

from openinfer.dtypes import Array
from openinfer.loops.arithmetic import NumpyScalar, UndefinedError, converted
from openinfer.loops.scalar import Buffer, Scalar, ScalarVar

TILE_BYTES = 128
"""The bytes in a row of a tile."""
TILE_ROWS = 64
"""The rows of sums that the threads of one product compute."""
TILE_THREADS = 128
"""The threads of one product: four subgroups of adjacent threads; the first number is a multiple of it."""
MIX_TEAM = 4
"""Adjacent threads that have the weights of a row together."""


class TileExecution(Protocol):
    """The interpreter, as these statements see it."""

    def value(self, scalar: Scalar, /) -> NumpyScalar:
        """The value of an expression."""

    def element(self, buffer: Buffer, where: tuple[int, ...], /) -> NumpyScalar:
        """The value of an element, in its compute type."""

    def elements(self, buffer: Buffer, where: tuple[int, ...], count: int, /) -> Array:
        """Adjacent elements, as stored in memory."""

    def put(self, buffer: Buffer, where: tuple[int, ...], value: NumpyScalar, /) -> None:
        """Store a value in an element."""


@dataclass(frozen=True)
class TileStep:
    """A statement about tiles."""

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The expressions in it."""
        return ()

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The memory that it reads."""
        return ()

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The memory that it writes."""
        return ()

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """A copy with other expressions and memory."""
        del apply, swap
        return self

    def run(self, run: TileExecution) -> None:
        """Execute it in the interpreter."""


@dataclass(frozen=True)
class TileCopy(TileStep):
    """Copies adjacent elements of memory to a row of a tile, or zeros if they are not valid.

    A copy is 16 bytes, aligned to 16. The group sees them after ``TileMoment.ARRIVED`` and a barrier.
    """

    tile: Buffer
    index: tuple[Scalar, ...]
    """The index of the first element in the tile."""
    source: Buffer
    source_index: tuple[Scalar, ...]
    valid: Scalar | None = None
    """The condition under which the elements are valid; None if they always are."""

    @property
    def count(self) -> int:
        """The number of elements."""
        return 16 * 8 // self.tile.dtype.bits

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Both indices, and the condition."""
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
        """A copy with other expressions and memory."""
        index, source_index = tuple(map(apply, self.index)), tuple(map(apply, self.source_index))
        both = swap(self.tile), swap(self.source)
        valid = None if self.valid is None else apply(self.valid)
        return replace(self, tile=both[0], index=index, source=both[1], source_index=source_index, valid=valid)

    def run(self, run: TileExecution) -> None:
        """Copy element by element."""
        *to, first = (int(run.value(one)) for one in self.index)
        is_valid = self.valid is None or bool(run.value(self.valid))
        *origin, start = (int(run.value(one)) for one in self.source_index) if is_valid else (0,)
        for place in range(self.count):
            zero = converted(0, self.tile.dtype.compute)
            value = run.element(self.source, (*origin, start + place)) if is_valid else zero
            run.put(self.tile, (*to, first + place), value)


@dataclass(frozen=True)
class TileStore(TileStep):
    """Stores values in 16 bytes of adjacent elements in a row of a tile; they become visible as those of a copy do."""

    tile: Buffer
    index: tuple[Scalar, ...]
    values: tuple[Scalar, ...]

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The index and the values."""
        return (*self.index, *self.values)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The tile."""
        return (self.tile,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """A copy with other expressions and memory."""
        index, values = tuple(map(apply, self.index)), tuple(map(apply, self.values))
        return replace(self, tile=swap(self.tile), index=index, values=values)

    def run(self, run: TileExecution) -> None:
        """Store element by element."""
        *to, first = (int(run.value(one)) for one in self.index)
        for place, value in enumerate(self.values):
            run.put(self.tile, (*to, first + place), run.value(value))


class TileMoment(StrEnum):
    """What holds from a ``TileSync`` on."""

    BATCH = "batch"
    """The copies since the last such point form a batch."""
    ARRIVED = "arrived"
    """This thread's stores, and all but its last batches of copies, are in their tiles."""
    SUMMED = "summed"
    """All products have been added to the sums."""


@dataclass(frozen=True)
class TileSync(TileStep):
    """A point from which on something holds for the thread that reaches it."""

    moment: TileMoment
    pending: int = 0
    """The number of batches that may still be in flight."""
    sums: Buffer | None = None
    """The sums that are complete."""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The sums."""
        return () if self.sums is None else (self.sums,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """A copy with other memory."""
        del apply
        return self if self.sums is None else replace(self, sums=swap(self.sums))


@dataclass(frozen=True)
class TileProduct(TileStep):
    """Adds products along whole rows of two tiles to the thread's sums: 64 rows of the first, ``width`` of the second.

    ``TILE_THREADS`` adjacent threads reach it together. A thread has two rows and, of every 8 columns, two adjacent
    ones; ``sum_place`` says which. The tiles must not change until the thread reaches the product after the next, or
    ``TileMoment.SUMMED``; until the latter, nothing reads the sums.
    """

    sums: Buffer
    rows: Buffer
    rows_index: tuple[Scalar, ...]
    """The index of the first row, without the axis along the row."""
    columns: Buffer
    columns_index: tuple[Scalar, ...]
    width: int
    """The number of rows of the second tile, which are columns of sums."""
    thread: ScalarVar
    """The thread's number in its group."""

    @property
    def terms(self) -> int:
        """The number of terms in a row."""
        return TILE_BYTES * 8 // self.rows.dtype.bits

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Both indices, and the thread."""
        return (*self.rows_index, *self.columns_index, self.thread)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The tiles and the sums."""
        return (self.rows, self.columns, self.sums)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The sums."""
        return (self.sums,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """A copy with other expressions and memory."""
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
        """Update the thread's own sums, term by term."""
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


@dataclass(frozen=True)
class TileWeights(TileStep):
    """Turns a row of the thread's sums, which are scores, into weights: ``exp(score - most)``.

    No score is larger than ``most``. Of the two rows that ``sum_place`` gives a thread, this is the one of a ``half``.
    """

    sums: Buffer
    half: int
    most: Scalar

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """What is subtracted."""
        return (self.most,)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The sums."""
        return (self.sums,)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The sums."""
        return (self.sums,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """A copy with other expressions and memory."""
        return replace(self, sums=swap(self.sums), most=apply(self.most))

    def run(self, run: TileExecution) -> None:
        """Element by element."""
        kind, most = self.sums.dtype.array.type, np.float64(run.value(self.most))
        for number in range(int(self.sums.shape[0])):
            if number // 2 % 2 == self.half:
                score = np.float64(run.element(self.sums, (number,)))
                run.put(self.sums, (number,), kind(np.exp(score - most)))


@dataclass(frozen=True)
class TileMix(TileStep):
    """Adds rows of a tile to the thread's sums, each times its weight: ``width`` columns, as many rows as weights.

    Weights and sums are laid out as ``sum_place`` says: a thread has weights for two rows of sums, and the other
    threads of its team, ``MIX_TEAM`` adjacent ones, have the rest. They reach it together.
    """

    sums: Buffer
    weights: Buffer
    tile: Buffer
    index: tuple[Scalar, ...]
    """The index of the first row, without the axis along the row."""
    width: int
    thread: ScalarVar
    """The thread's number in its group."""

    @property
    def rows(self) -> int:
        """The number of rows of the tile."""
        return 2 * int(self.weights.shape[0])

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The index, and the thread."""
        return (*self.index, self.thread)

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The tile, the weights and the sums."""
        return (self.tile, self.weights, self.sums)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The sums."""
        return (self.sums,)

    def with_parts(
        self, apply: Callable[[Scalar], Scalar] = lambda one: one, swap: Callable[[Buffer], Buffer] = lambda one: one
    ) -> Self:
        """A copy with other expressions and memory."""
        thread = apply(self.thread)
        assert isinstance(thread, ScalarVar)
        buffers = swap(self.sums), swap(self.weights), swap(self.tile)
        index = tuple(map(apply, self.index))
        return replace(self, sums=buffers[0], weights=buffers[1], tile=buffers[2], index=index, thread=thread)

    def run(self, run: TileExecution) -> None:
        """One thread alone does not know the weights of its team."""
        del run
        raise UndefinedError("threads wait for each other outside of a group")

    def known(self, run: TileExecution) -> Array:
        """The weights that the thread has."""
        return run.elements(self.weights, (0,), self.rows // 2)

    def run_with(self, run: TileExecution, team: Sequence[Array]) -> None:
        """Update the thread's own sums, with the weights of each thread of its team."""
        kind, own = self.sums.dtype, int(run.value(self.thread))
        *first, top = (int(run.value(one)) for one in self.index)
        values = np.stack([run.elements(self.tile, (*first, top + row, 0), self.width) for row in range(self.rows)])
        for number in range(self.width // 2):
            half, column = number // 2 % 2, sum_place(own, number)[1]
            places = range(self.rows)
            weights = [team[row % 8 // 2][row // 8 * 4 + half * 2 + row % 2] for row in places]
            terms = np.array(weights, kind.array) * values[:, column].astype(kind.array)
            total = np.concatenate(([run.element(self.sums, (number,))], terms))
            run.put(self.sums, (number,), np.add.accumulate(total, dtype=kind.array)[-1])


def sum_place(thread: int, number: int) -> tuple[int, int]:
    """The row and the column of one of a thread's sums, relative to the threads of its product.

    >>> [sum_place(5, number) for number in range(6)]
    [(1, 2), (1, 3), (9, 2), (9, 3), (1, 10), (1, 11)]
    """
    own = thread % TILE_THREADS
    row = own // 32 * 16 + own % 32 // 4 + number // 2 % 2 * 8
    return row, number // 4 * 8 + own % 4 * 2 + number % 2


def tile_text(one: TileStep, text: Callable[[Scalar], str]) -> str:
    """A tile statement as text."""

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
        case TileWeights(sums, half, most):
            return f"{sums.name}[..] = exp({sums.name}[..] - {text(most)}) in half {half}"
        case TileMix(sums, weights, tile, index, width, thread):
            where = place(tile, index)
            return f"{sums.name}[..] += {weights.name}[..] * {one.rows} rows {where} of {width} by {thread.name}"
        case _:
            raise TypeError(one)
