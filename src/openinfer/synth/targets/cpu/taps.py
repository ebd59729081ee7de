"""Grouped convolutions, above all depthwise ones: windows are offset lists, without a copy per window.

The input of a group is copied once, with zeros around it, so that every window has the same offsets. With a stride
above one, even and odd positions (in general, those of each phase) are stored separately, so that adjacent windows read
adjacent elements. Rows are then contiguous: sums run over whole planes, however narrow these are, and those that belong
to no window are left out when results are stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from itertools import product as combinations
from math import prod
from operator import and_
from typing import Any

from openinfer.loops.affine import Affine, affine, position, variables
from openinfer.loops.build import flat, index
from openinfer.loops.ir import (
    ACCUMULATOR,
    BOOL,
    INDEX,
    Bind,
    Buffer,
    Const,
    Contraction,
    For,
    If,
    Load,
    LoopKind,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    Template,
    visit,
)
from openinfer.loops.rewrite import changed, straightened
from openinfer.synth.targets.cpu.window import BAND

_LONG_ROW = 3
"""Rows of this many vectors become results directly: little is lost at their ends."""
_SHIFTED_LANES = 16
"""AVX-512 shifts vectors of this many elements by any number of them in one instruction."""
PLACE = ScalarVar("place")
"""The position of a sum in a plane."""


@dataclass(frozen=True)
class CpuTaps(Template):
    """Sums of windows over memory in which every window has the same ``offsets``; tiles span several rows."""

    rows: int
    vectors: int
    lanes: int
    offsets: tuple[int, ...]

    @property
    def columns(self) -> int:
        """The number of sums in a row of a tile."""
        return self.vectors * self.lanes

    @property
    def run(self) -> int:
        """The length of the runs of consecutive offsets, if it is uniform and vectors can be shifted; else 1.

        >>> [CpuTaps(1, 4, lanes, (0, 1, 2, 9, 10, 11)).run for lanes in (8, 16)], CpuTaps(1, 4, 16, (0, 1, 7)).run
        ([1, 3], 1)
        """
        if self.lanes != _SHIFTED_LANES or self.rows > 1:
            return 1
        breaks = [at for at in range(1, len(self.offsets)) if self.offsets[at] != self.offsets[at - 1] + 1]
        ends = [0, *breaks, len(self.offsets)]
        lengths = {last - first for first, last in pairwise(ends)}
        return lengths.pop() if len(lengths) == 1 and lengths <= set(range(self.lanes)) else 1

    @property
    def text(self) -> str:
        """The tile in words, as part of a kernel's text."""
        return f"in tiles of {self.rows} x {self.columns} by {self.lanes} at offsets {self.offsets}"

    @property
    def facts(self) -> dict[str, Any]:
        """The tile in a plan."""
        return {"rows": self.rows, "columns": self.columns, "divided": None, "chosen_by": "rule", "gain": None}


@dataclass(frozen=True)
class Along:
    """Windows along an axis: window ``at`` reads ``stride * at + dilation * tap + first`` for each tap."""

    extent: int
    """The number of elements."""
    count: int
    """The number of windows."""
    stride: int
    first: int
    dilation: int
    taps: int
    window: ScalarVar | None
    tap: ScalarVar | None

    def __str__(self) -> str:
        """The windows as part of a kernel's text, with everything that distinguishes them."""
        where = " + ".join(one.name for one in (self.window, self.tap) if one is not None)
        windows = f"{self.count} windows of {self.taps} taps along {where or 0}"
        return f"{windows} (extent {self.extent}, stride {self.stride}, dilation {self.dilation}, first {self.first})"

    @property
    def furthest(self) -> int:
        """The distance of the last tap from the first."""
        return self.dilation * (self.taps - 1)

    @property
    def places(self) -> int:
        """The number of elements of each phase that all windows together read."""
        return self.count + self.furthest // self.stride

    @property
    def phases(self) -> int:
        """The number of phases that have memory."""
        return 1 + max(self.dilation * tap % self.stride for tap in range(self.taps))

    @property
    def used(self) -> set[int]:
        """The phases that some tap has."""
        return {self.dilation * tap % self.stride for tap in range(self.taps)}

    def inside(self, phase: int) -> tuple[int, int]:
        """The range of places of a phase that are elements: the first, and one past the last."""
        start = phase + self.first
        low = min(max(-(start // self.stride), 0), self.places)
        return low, min(max(-((start - self.extent) // self.stride), low), self.places)

    def split(self, tap: int) -> tuple[int, int]:
        """The phase of a tap, and its place relative to the window's."""
        return self.dilation * tap % self.stride, self.dilation * tap // self.stride


@dataclass(frozen=True)
class Taps:
    """A grouped convolution: the loops around a group, and its windows."""

    one: Contraction
    loops: tuple[tuple[ScalarVar, int], ...]
    axes: tuple[Along, ...]
    outer: tuple[Scalar, ...]
    """The index of a group's input, up to the window axes."""
    channels: tuple[ScalarVar, int] | None
    features: tuple[ScalarVar, int] | None
    height: int
    tile: CpuTaps

    @property
    def plane(self) -> int:
        """The number of elements of one channel and one phase of all axes."""
        return prod(axis.places for axis in self.axes)

    @property
    def count(self) -> int:
        """The number of sums in a plane, up to the last that belongs to a window."""
        last = 0
        for axis in self.axes:
            last = last * axis.places + axis.count - 1
        return last + 1

    @property
    def rounded(self) -> int:
        """The number of sums in a plane, in whole vectors."""
        return -(-self.count // self.tile.lanes) * self.tile.lanes

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of the memory for the input and for sums."""
        rows = 1 if self.features is None else self.features[1]
        # With runs, one vector past the input of the windows is loaded, of which few elements are used.
        most = max(self.tile.offsets) + self.rounded + (self.tile.lanes + 1 - self.tile.run) * (self.tile.run > 1)
        return (max(self._seen, most),), (rows, self.rounded)

    @property
    def _seen(self) -> int:
        """The number of elements copied for a group."""
        return (1 if self.channels is None else self.channels[1]) * prod(axis.phases for axis in self.axes) * self.plane

    def around(self, *body: Statement) -> tuple[Statement, ...]:
        """A body inside the loops."""
        for var, extent in reversed(self.loops):
            body = (For(var, index(extent), body, LoopKind.PARALLEL),)
        return body

    def over(self, plane: Buffer, sums: Buffer) -> tuple[Statement, ...]:
        """Copies, sums and results of one group."""
        seen, used = self._seen, max(self.tile.offsets) + self.rounded
        behind = (_zeros(plane, index(seen), 0, used - seen),) if used > seen else ()
        copies = (*self._copies(plane), *behind)
        return (*straightened(copies), self._sums(plane, sums), *straightened(self._results(sums)))

    def _sums(self, plane: Buffer, sums: Buffer) -> Contraction:
        one, free = self.one, () if self.features is None else (self.features,)
        at: Scalar = PLACE
        if self.channels is not None:
            at = at + self.channels[0] * index(self._slice)
        for axis, phase, place in zip(self.axes, self._phase_steps, self._place_steps, strict=True):
            if axis.tap is not None:
                tap = axis.tap * index(axis.dilation)
                at = at + tap // index(axis.stride) * index(place) + tap % index(axis.stride) * index(phase)
        row = index(0) if self.features is None else self.features[0]
        return replace(
            one,
            out=sums,
            a=plane,
            free=(*(var for var, _ in free), PLACE),
            extents=(*(extent for _, extent in free), self.rounded),
            out_index=(row, PLACE),
            a_index=(at,),
            epilogue=ScalarVar(ACCUMULATOR, one.accumulator),
            valid=None,
            template=self.tile,
        )

    @property
    def _slice(self) -> int:
        return prod(axis.phases for axis in self.axes) * self.plane

    @property
    def _phase_steps(self) -> list[int]:
        return [self.plane * prod(axis.phases for axis in self.axes[number + 1 :]) for number in range(len(self.axes))]

    @property
    def _place_steps(self) -> list[int]:
        return [prod(axis.places for axis in self.axes[number + 1 :]) for number in range(len(self.axes))]

    def offsets(self) -> tuple[int, ...]:
        """The offsets of all terms of a sum, in the order of its inner indices."""
        ranges = {self.channels[0]: self.channels[1]} if self.channels is not None else {}
        found = []
        for values in combinations(*(range(extent) for extent in self.one.reduced)):
            at = dict(zip(self.one.bound, values, strict=True))
            total = sum(at[var] * self._slice for var in ranges)
            for axis, phase, place in zip(self.axes, self._phase_steps, self._place_steps, strict=True):
                remainder, steps = axis.split(0 if axis.tap is None else at[axis.tap])
                total += remainder * phase + steps * place
            found.append(total)
        return tuple(found)

    # --- copies -----------------------------------------------------------------------------------------------------

    def _copies(self, plane: Buffer) -> tuple[Statement, ...]:
        """Copies of a group's input, one phase of each axis after the other."""
        body: list[Statement] = []
        for phases in combinations(*(range(axis.phases) for axis in self.axes)):
            start = sum(phase * step for phase, step in zip(phases, self._phase_steps, strict=True))
            if all(phase in axis.used for phase, axis in zip(phases, self.axes, strict=True)):
                body += self._copy(plane, phases, start)
            else:
                # No window reads it, but vectors that extend past the last window do.
                first = index(start) if self.channels is None else self.channels[0] * index(self._slice) + index(start)
                body.append(_zeros(plane, first, 0, self.plane))
        if self.channels is None:
            return tuple(body)
        return (For(self.channels[0], index(self.channels[1]), tuple(body), LoopKind.PARALLEL),)

    def _copy(self, plane: Buffer, phases: Sequence[int], start: int) -> tuple[Statement, ...]:
        first: Scalar = index(start)
        if self.channels is not None:
            first = first + self.channels[0] * index(self._slice)
        return tuple(self._axis(plane, phases, (), first))

    def _axis(
        self, plane: Buffer, phases: Sequence[int], outer: tuple[Scalar, ...], first: Scalar
    ) -> Iterator[Statement]:
        """The elements at some outer indices, with zeros outside the input, stored from ``first`` on."""
        number = len(outer)
        axis, phase = self.axes[number], phases[number]
        if number == len(self.axes) - 1:
            yield from self._row(plane, phase, outer, first)
            return
        place, size = ScalarVar(f"at{number}"), self._place_steps[number]
        if number == 0 and self._has_bands:
            yield self._bands_axis(plane, phases, place, first)
            return
        low, high = axis.inside(phase)
        source = (place + index(low)) * index(axis.stride) + index(phase + axis.first)
        body = tuple(self._axis(plane, phases, (*outer, source), first + (place + index(low)) * index(size)))
        loop = For(place, index(high - low), body, LoopKind.PARALLEL)
        yield from _padded(plane, first, (low, loop, high), axis, size)

    def _bands_axis(self, plane: Buffer, phases: Sequence[int], place: ScalarVar, first: Scalar) -> Statement:
        """The same for the axis of bands, the first and last of which may extend past the input."""
        axis, start, size = self.axes[0], phases[0] + self.axes[0].first, self._place_steps[0]
        source = (BAND * index(self.height) + place) * index(axis.stride) + index(start)
        last = axis.stride * (axis.count * self._bands - 1 + axis.furthest // axis.stride) + start
        asked = [source >= index(0)] * (start < 0) + [source < index(axis.extent)] * (last >= axis.extent)
        to = first + place * index(size)
        body = tuple(self._axis(plane, phases, (source,), to))
        if asked:
            body = (If(reduce(and_, asked), body, (_zeros(plane, to, 0, size),)),)
        return For(place, index(axis.places), body, LoopKind.PARALLEL)

    def _row(self, plane: Buffer, phase: int, outer: tuple[Scalar, ...], first: Scalar) -> Iterator[Statement]:
        """The elements of one phase of a row, with zeros outside the input."""
        row, place = self.axes[-1], ScalarVar("at")
        low, high = row.inside(phase)
        source = (place + index(low)) * index(row.stride) + index(phase + row.first)
        copy = Store(plane, (first + index(low) + place,), Load(self.one.a, (*self.outer, *outer, source)))
        bind = Bind.ROLLED if row.stride == 1 else None
        loop = For(place, index(high - low), (copy,), LoopKind.PARALLEL, bind)
        yield from _padded(plane, first, (low, loop, high), row, 1)

    # --- results ----------------------------------------------------------------------------------------------------

    @property
    def _has_bands(self) -> bool:
        return any(var == BAND for var, _ in self.loops)

    @property
    def _bands(self) -> int:
        return next((extent for var, extent in self.loops if var == BAND), 1)

    def _results(self, sums: Buffer) -> tuple[Statement, ...]:
        """The results of the sums that belong to windows.

        If they depend on nothing but the channel, whole planes are computed in vectors first and then copied by rows.
        """
        one = self.one
        windows = [index(0) if axis.window is None else axis.window for axis in self.axes]
        total: Scalar = Load(sums, (self.row_of_sums, flat(windows, [axis.places for axis in self.axes])))
        before: tuple[Statement, ...] = ()
        value = self._there(one.epilogue, total)
        if self._is_by_channel(one.epilogue):
            here = Load(sums, (self.row_of_sums, PLACE))
            store = Store(sums, here.index, self._there(one.epilogue, here))
            before = self.by_feature((For(PLACE, index(self.rounded), (store,), LoopKind.PARALLEL),))
            value = total
        body: tuple[Statement, ...] = (
            Store(one.out, tuple(self._there(part, total) for part in one.out_index), value),
        )
        for axis in reversed(self.axes):
            if axis.window is not None:
                bind = Bind.ROLLED if before and axis is self.axes[-1] else None
                body = (For(axis.window, index(axis.count), body, LoopKind.PARALLEL, bind),)
        return (*before, *self.by_feature(body))

    @property
    def row_of_sums(self) -> Scalar:
        """The row of sums of a feature."""
        return index(0) if self.features is None else self.features[0]

    def _there(self, value: Scalar, total: Scalar) -> Scalar:
        """An expression with a sum in place of the accumulator, in its band."""
        top = self.axes[0].window

        def there(part: Scalar) -> Scalar | None:
            if isinstance(part, ScalarVar) and part.name == ACCUMULATOR:
                return total
            return BAND * index(self.height) + part if part == top and self._has_bands else None

        return changed(value, there)

    def by_feature(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """Statements for each row of sums."""
        if self.features is None:
            return body
        return (For(self.features[0], index(self.features[1]), body, LoopKind.PARALLEL),)

    def _is_by_channel(self, value: Scalar) -> bool:
        """Whether a float expression is the same for all windows of a channel, and its rows are short."""
        if self.axes[-1].count >= _LONG_ROW * self.tile.lanes:
            return False
        windows = {axis.window.name for axis in self.axes if axis.window is not None}
        parts = [part for part in visit(value) if part.dtype is not INDEX]
        are_floats = all(part.dtype is self.one.accumulator or part.dtype is BOOL for part in parts)
        is_more = len(parts) > 1 and self.one.out.dtype is self.one.accumulator
        return is_more and are_floats and not windows & variables(value)


def _padded(memory: Buffer, start: Scalar, inside: tuple[int, For, int], axis: Along, each: int) -> Iterator[Statement]:
    """A loop over the places of an axis that are elements, with zeros before and after them."""
    low, loop, high = inside
    for one in (
        _zeros(memory, start, 0, low * each),
        loop,
        _zeros(memory, start, high * each, axis.places * each),
    ):
        if one.extent != index(0):
            yield one


def _zeros(memory: Buffer, start: Scalar, first: int, last: int) -> For:
    at = ScalarVar("at")
    store = Store(memory, (start + index(first) + at,), Const(0, memory.dtype))
    return For(at, index(last - first), (store,), LoopKind.PARALLEL)


def windows_along(one: Contraction, axis: int) -> Along | None:
    """The windows along an axis; None if its position depends on more than one window and one tap index."""
    extents = dict(zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True))
    place = affine(one.a_index[axis])
    assert place is not None  # positions of windows are affine
    windows = [var for var in one.free if place.stride(var)]
    taps = [var for var in one.bound if place.stride(var)]
    if len(windows) > 1 or len(taps) > 1 or set(place.strides) != {var.name for var in (*windows, *taps)}:
        return None
    window, tap = next(iter(windows), None), next(iter(taps), None)
    return Along(
        one.a.shape[axis],
        1 if window is None else extents[window],
        1 if window is None else place.stride(window),
        place.first,
        1 if tap is None else place.stride(tap),
        1 if tap is None else extents[tap],
        window,
        tap,
    )


def weights_at(one: Contraction) -> Affine:
    """The position of the weights of the first sum of a contraction with ``CpuTaps``."""
    return _outer(one, position(one.b, one.b_index))


def sums_at(one: Contraction) -> Affine:
    """The position of its first sum, which depends on an outer loop if features are divided."""
    return _outer(one, position(one.out, one.out_index))


def _outer(one: Contraction, place: Affine | None) -> Affine:
    assert place is not None
    gone = {var.name for var in (*one.bound, *one.free)}
    return Affine(place.first, {name: step for name, step in place.strides.items() if name not in gone})
