"""Slices of tensors and tables in the sequencer: which cells indices select, and how they are accessed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from openinfer.dtypes import DTYPES, DType
from openinfer.ir import Index, Single
from openinfer.ir.expr import Expr
from openinfer.loops.build import cast
from openinfer.loops.ir import BOOL, Binary, Buffer, Const, Scalar, Select
from openinfer.synth.memory.checks.records import LengthChecks, SliceChecks
from openinfer.synth.program.ir import Action
from openinfer.synth.targets.vhdl.code import (
    I64,
    MemoryPlace,
    SequencerCode,
    conjunction,
    disjunction,
    integer,
)
from openinfer.synth.targets.vhdl.integers import IndexCode
from openinfer.synth.targets.vhdl.sizes import SizeCode

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class SliceCells:
    """The cells that an index selects along an axis: the first one, their number, and their end."""

    first: Scalar
    count: Scalar
    end: Scalar
    is_wrong: Scalar
    """Whether the index selects none because it is negative or too large for any axis."""


@dataclass(frozen=True)
class CellGrid:
    """An array of cells in memory, of ``entry`` elements each."""

    place: MemoryPlace
    dtype: DType
    """Of an element; those below 8 bits share bytes if ``is_packed``, and have a byte each otherwise."""
    extents: tuple[Scalar, ...]
    most: int
    """The largest possible number of elements."""
    entry: int = 1
    is_packed: bool = True

    @property
    def element(self) -> DType:
        """The dtype of an element in memory; floats are raw bits."""
        if self.dtype.bits < 8:
            return DTYPES[f"u{self.dtype.bits}"] if self.is_packed else DTYPES["u8"]
        return DTYPES[f"u{self.dtype.bits}"] if self.dtype.kind != "bool" else DTYPES["u8"]


class SliceCode:
    """Resolves slices and iterates over their cells."""

    def __init__(self, code: SequencerCode, sizes: SizeCode, indices: IndexCode) -> None:
        self._code = code
        self._sizes = sizes
        self._indices = indices

    # --- indices --------------------------------------------------------------------------------------------------

    def computed(self, indices: Sequence[Index], checks: SliceChecks) -> Mapping[Expr, Scalar]:
        """Compute the expressions in the indices of an access, in source order."""
        self._indices.begin()
        ends = [(one.value,) if isinstance(one, Single) else (one.start, one.end) for one in indices]
        exprs = dict.fromkeys(end for both in ends for end in both if end is not None)
        found = {expr: self._code.let(self._wide(self._indices.integer(expr).value)) for expr in exprs}
        if checks.indices is not None:
            self._indices.fail_if_bad(checks.indices)
        return found

    def _wide(self, value: Scalar) -> Scalar:
        return cast(value, I64)

    def chosen(
        self, index: Index, computed: Mapping[Expr, Scalar], extent: Scalar, start: int, *, is_grown: bool
    ) -> SliceCells:
        """The cells of one index; negative slice bounds count from the extent."""
        code = self._code
        if isinstance(index, Single):
            at = computed[index.value]
            too_large = at > _LARGEST - 1 - (start if is_grown else 0)
            is_wrong = code.let(Binary("or", at < 0, too_large))
            inside = code.let(Select(is_wrong, integer(0), at))
            first, end = (integer(0), inside + start) if is_grown else (inside, inside + 1)
        else:
            first = integer(0) if index.start is None else self._from(computed[index.start], extent)
            end = extent if index.end is None else self._from(computed[index.end], extent)
            is_wrong = Const(0, BOOL)
        first, end = code.let(first), code.let(end)
        is_some = code.let(end > first)
        count = code.let(Select(is_some, end - first, integer(0)))
        return SliceCells(first, count, code.let(Select(is_some, end, first)), is_wrong)

    def _from(self, at: Scalar, extent: Scalar) -> Scalar:
        """A slice bound: negative ones count from the extent, and are clamped to zero."""
        from_end = self._code.let(at + extent)
        return self._code.let(Select(at < 0, Select(from_end < 0, integer(0), from_end), at))

    def fail_outside(
        self,
        is_outside: Scalar,
        indices: Sequence[Index],
        computed: Mapping[Expr, Scalar],
        checks: SliceChecks,
        bounds: Sequence[Scalar | None],
    ) -> None:
        """Fail for an index that is out of bounds; a negative first one has a failure of its own."""
        with self._code.when(is_outside):
            if checks.negative is not None:
                with self._code.when(self._is_negative(indices, computed, bounds)):
                    self._code.fail(checks.negative)
            self._code.fail(checks.outside)

    def _is_negative(
        self, indices: Sequence[Index], computed: Mapping[Expr, Scalar], bounds: Sequence[Scalar | None]
    ) -> Scalar:
        """Whether the first out-of-bounds index is negative; axes without a bound have no upper limit."""
        found: Scalar = Const(0, BOOL)
        for index, bound in reversed([*zip(indices, bounds, strict=True)]):
            ends = [] if bound is None else self._beyond(index, computed, bound)
            found = Select(disjunction(ends), Const(0, BOOL), found) if ends else found
            if isinstance(index, Single):
                found = Select(computed[index.value] < 0, Const(1, BOOL), found)
            found = self._code.let(found)
        return found

    def _beyond(self, index: Index, computed: Mapping[Expr, Scalar], bound: Scalar) -> list[Scalar]:
        if isinstance(index, Single):
            return [computed[index.value] > bound - 1]
        ends = [end for end in (index.start, index.end) if end is not None]
        return [computed[end] > bound for end in ends]

    def lengths(self, lengths: Sequence[LengthChecks], cells: Sequence[SliceCells]) -> None:
        """Check the lengths of a slice against those of a tensor."""
        for one in lengths:
            self._sizes.check(one.checks, cells[one.axis].count)

    # --- cells ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _over(self, counts: Sequence[Scalar], most: Sequence[int]) -> Iterator[list[Scalar]]:
        """Loop over all positions."""
        with ExitStack() as loops:
            yield [
                loops.enter_context(self._code.count(integer(0), count, (0, max(limit, 0))))
                for count, limit in zip(counts, most, strict=True)
            ]

    def access(
        self,
        action: Action,
        grid: CellGrid,
        cells: Sequence[SliceCells],
        most: Sequence[int],
        value: CellGrid | None,
        fill: int,
    ) -> None:
        """Read cells into a tensor, write them from one, or reset them to their initial contents.

        Reads outside the grid give the initial element, ``fill``; writes there are dropped. A reset with a value copies
        the elements at the same offsets of that value.
        """
        code = self._code
        own = code.buffer(grid.place, grid.element, grid.most)
        other = None if value is None else code.buffer(value.place, value.element, value.most)
        at = code.local(integer(0), (0, 2**40), "at")
        counts = [one.count for one in cells]
        if action is not Action.READ:
            rooms = [
                code.let(Select(one.first < extent, extent - one.first, integer(0)))
                for one, extent in zip(cells, grid.extents, strict=True)
            ]
            counts = [code.let(Select(count < room, count, room)) for count, room in zip(counts, rooms, strict=True)]
        with self._over([*counts, integer(grid.entry)], [*most, grid.entry]) as places:
            inside, cell = self._cell(grid, cells, places[:-1])
            element = code.let(cell * grid.entry + places[-1])
            self._element(action, (own, other), (element, at), inside, fill)
            code.set(at, at + 1)

    def _cell(self, grid: CellGrid, cells: Sequence[SliceCells], places: Sequence[Scalar]) -> tuple[Scalar, Scalar]:
        """Whether the cell is inside the grid, and its linear index."""
        spots = [self._code.let(one.first + place) for one, place in zip(cells, places, strict=True)]
        inside = conjunction([spot < extent for spot, extent in zip(spots, grid.extents, strict=True)])
        cell: Scalar = integer(0)
        for spot, extent in zip(spots, grid.extents, strict=True):
            cell = cell * extent + spot
        return self._code.let(inside), self._code.let(cell)

    def _element(
        self,
        action: Action,
        buffers: tuple[Buffer, Buffer | None],
        places: tuple[Scalar, Scalar],
        inside: Scalar,
        fill: int,
    ) -> None:
        code, (own, other), (element, at) = self._code, buffers, places
        if action is Action.READ:
            assert other is not None
            made = code.local(Const(fill, other.dtype.compute))
            with code.when(inside):
                code.set(made, _fitted(code.load(own, element), made.dtype))
            code.store(other, at, made)
        elif other is None:
            code.store(own, element, Const(fill, own.dtype.compute))
        else:
            source = element if action is Action.RESET else at
            code.store(own, element, _fitted(code.load(other, source), own.dtype.compute))


def _fitted(value: Scalar, dtype: DType) -> Scalar:
    return cast(value, dtype)
