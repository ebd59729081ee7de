"""Convolutions in groups, of one channel each above all: windows are lists of offsets, and nothing is copied for them.

What the windows of a group see is copied once, with zeros around it, so that every window has the same offsets. Where
windows move by more than one position, even and odd positions (in general, those of each remainder) lie apart, so that
neighbouring windows see neighbours. Rows then run on into each other: sums are over whole planes, however narrow these
are, and those that no window has are left out when results are stored.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product as combinations
from math import prod
from operator import and_
from typing import Any

from openinfer.loops.affine import Affine, affine, position, variables
from openinfer.loops.build import flat, index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
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
)
from openinfer.loops.rewrite import changed, straightened
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes
from openinfer.synth.targets.cpu.window import BAND, is_window

_MOST_TERMS = 1024
"""The most products of a sum that are added up one after the other here."""
_MOST_FEATURES = 15
"""With more results for each group, its channels can be columns, as those of other convolutions."""
_PLACE = ScalarVar("place")
"""The position of a sum in a plane."""


@dataclass(frozen=True)
class CpuTaps(Template):
    """Sums of windows on memory in which every window has the same ``offsets``; tiles have sums of several rows."""

    rows: int
    vectors: int
    lanes: int
    offsets: tuple[int, ...]

    @property
    def columns(self) -> int:
        """How many sums of a row a tile has."""
        return self.vectors * self.lanes

    @property
    def text(self) -> str:
        """The tile in words, as part of a kernel's text."""
        return f"in tiles of {self.rows} x {self.columns} by {self.lanes} at offsets {self.offsets}"

    @property
    def facts(self) -> dict[str, Any]:
        """The tile in a plan."""
        return {"rows": self.rows, "columns": self.columns, "divided": None, "chosen_by": "rule", "gain": None}


@dataclass(frozen=True)
class _Along:
    """Windows along an axis: window ``at`` sees ``stride * at + tap + first`` for each of its taps."""

    extent: int
    """How many elements there are to see."""
    count: int
    """How many windows there are."""
    stride: int
    first: int
    dilation: int
    taps: int
    window: ScalarVar | None
    tap: ScalarVar | None

    @property
    def furthest(self) -> int:
        """The last tap."""
        return self.dilation * (self.taps - 1)

    @property
    def places(self) -> int:
        """How many elements of each remainder all windows see."""
        return self.count + self.furthest // self.stride

    @property
    def phases(self) -> int:
        """The remainders for which there is memory."""
        return 1 + max(self.dilation * tap % self.stride for tap in range(self.taps))

    @property
    def is_used(self) -> list[int]:
        """The remainders that some tap has."""
        return sorted({self.dilation * tap % self.stride for tap in range(self.taps)})

    def split(self, tap: int) -> tuple[int, int]:
        """The remainder of a tap, and how many places it is from the first."""
        return self.dilation * tap % self.stride, self.dilation * tap // self.stride


@dataclass(frozen=True)
class Taps:
    """A convolution in groups: the loops around a group, and its windows."""

    one: Contraction
    loops: tuple[tuple[ScalarVar, int], ...]
    axes: tuple[_Along, ...]
    outer: tuple[Scalar, ...]
    """The index of what a group sees, up to the axes of windows."""
    channels: tuple[ScalarVar, int] | None
    features: tuple[ScalarVar, int] | None
    height: int
    tile: CpuTaps

    @property
    def plane(self) -> int:
        """The elements of one channel and one remainder of all axes."""
        return prod(axis.places for axis in self.axes)

    @property
    def count(self) -> int:
        """The sums of a plane, up to the last that a window has."""
        last = 0
        for axis in self.axes:
            last = last * axis.places + axis.count - 1
        return last + 1

    @property
    def rounded(self) -> int:
        """The sums of a plane in whole vectors."""
        return -(-self.count // self.tile.lanes) * self.tile.lanes

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The memory for what is seen, and for sums."""
        rows = 1 if self.features is None else self.features[1]
        seen = (1 if self.channels is None else self.channels[1]) * prod(axis.phases for axis in self.axes) * self.plane
        return (max(seen, max(self.tile.offsets) + self.rounded),), (rows, self.rounded)

    def around(self, *body: Statement) -> tuple[Statement, ...]:
        """The loops with a body."""
        for var, extent in reversed(self.loops):
            body = (For(var, index(extent), body, LoopKind.PARALLEL),)
        return body

    def over(self, plane: Buffer, sums: Buffer) -> tuple[Statement, ...]:
        """Copies, sums and results of one group."""
        return (*straightened(self._copies(plane)), self._sums(plane, sums), *straightened(self._results(sums)))

    def _sums(self, plane: Buffer, sums: Buffer) -> Contraction:
        one, free = self.one, () if self.features is None else (self.features,)
        at: Scalar = _PLACE
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
            free=(*(var for var, _ in free), _PLACE),
            extents=(*(extent for _, extent in free), self.count),
            out_index=(row, _PLACE),
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
        """What a group sees, a remainder of each axis after the other."""
        body: list[Statement] = []
        for phases in combinations(*(axis.is_used for axis in self.axes)):
            start = sum(phase * step for phase, step in zip(phases, self._phase_steps, strict=True))
            body += self._copy(plane, phases, start)
        if self.channels is None:
            return tuple(body)
        return (For(self.channels[0], index(self.channels[1]), tuple(body), LoopKind.PARALLEL),)

    def _copy(self, plane: Buffer, phases: Sequence[int], start: int) -> tuple[Statement, ...]:
        *axes, row = self.axes
        places = [ScalarVar(f"at{number}") for number in range(len(axes))]
        sources, asked = [], []
        for number, (axis, place, phase) in enumerate(zip(axes, places, phases, strict=False)):
            moved = BAND * index(self.height) + place if number == 0 and self._has_bands else place
            source = moved * index(axis.stride) + index(phase + axis.first)
            windows = axis.count * (self._bands if number == 0 else 1)
            last = axis.stride * (windows - 1 + axis.furthest // axis.stride) + phase + axis.first
            asked += [source >= index(0)] * (phase + axis.first < 0) + [source < index(axis.extent)] * (
                last >= axis.extent
            )
            sources.append(source)
        first = flat([*places, index(0)], [axis.places for axis in self.axes]) + index(start)
        if self.channels is not None:
            first = first + self.channels[0] * index(self._slice)
        body = tuple(self._row(plane, row, phases[-1], (sources, first)))
        if asked:
            body = (If(reduce(and_, asked), body, (_zeros(plane, first, 0, row.places),)),)
        for place, axis in zip(reversed(places), reversed(axes), strict=True):
            body = (For(place, index(axis.places), body, LoopKind.PARALLEL),)
        return body

    def _row(self, plane: Buffer, row: _Along, phase: int, at: tuple[Sequence[Scalar], Scalar]) -> Iterator[Statement]:
        """The elements of one remainder of a row, with zeros where there are none."""
        sources, first = at
        start = phase + row.first
        low = min(max(-(start // row.stride), 0), row.places)
        high = min(max(-((start - row.extent) // row.stride), low), row.places)
        place = ScalarVar("at")
        source = (place + index(low)) * index(row.stride) + index(start)
        copy = Store(plane, (first + index(low) + place,), Load(self.one.a, (*self.outer, *sources, source)))
        for loop in (
            _zeros(plane, first, 0, low),
            For(place, index(high - low), (copy,), LoopKind.PARALLEL),
            _zeros(plane, first, high, row.places),
        ):
            if loop.extent != index(0):
                yield loop

    # --- results ----------------------------------------------------------------------------------------------------

    @property
    def _has_bands(self) -> bool:
        return any(var == BAND for var, _ in self.loops)

    @property
    def _bands(self) -> int:
        return next((extent for var, extent in self.loops if var == BAND), 1)

    def _results(self, sums: Buffer) -> tuple[Statement, ...]:
        """What becomes of the sums that windows have."""
        one = self.one
        windows = [index(0) if axis.window is None else axis.window for axis in self.axes]
        row = index(0) if self.features is None else self.features[0]
        total = Load(sums, (row, flat(windows, [axis.places for axis in self.axes])))
        top = self.axes[0].window

        def there(value: Scalar) -> Scalar | None:
            if isinstance(value, ScalarVar) and value.name == ACCUMULATOR:
                return total
            if value == top and self._has_bands:
                return BAND * index(self.height) + value
            return None

        where = tuple(changed(part, there) for part in one.out_index)
        body: tuple[Statement, ...] = (Store(one.out, where, changed(one.epilogue, there)),)
        for axis in reversed(self.axes):
            if axis.window is not None:
                body = (For(axis.window, index(axis.count), body, LoopKind.PARALLEL),)
        if self.features is not None:
            body = (For(self.features[0], index(self.features[1]), body, LoopKind.PARALLEL),)
        return body


def _zeros(memory: Buffer, start: Scalar, first: int, last: int) -> For:
    at = ScalarVar("at")
    store = Store(memory, (start + index(first) + at,), Const(0, memory.dtype))
    return For(at, index(last - first), (store,), LoopKind.PARALLEL)


def taps_of(one: Contraction, target: CpuMachine) -> Taps | None:
    """A convolution in groups, without indices of one position, as windows on planes; None where it is none.

    Its weights are the second factor, without infinities where some terms do not count.
    """
    return _Finder(one, target).run()


class _Finder:
    def __init__(self, one: Contraction, target: CpuMachine) -> None:
        self._one, self._target = one, target
        self._extents = dict(zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True))
        self._seen, self._weights = (variables(*part) for part in (one.a_index, one.b_index))

    def run(self) -> Taps | None:
        one = self._one
        if not self._is_plain() or not is_window(one) or prod(one.reduced) > _MOST_TERMS:
            return None
        groups = [var for var in one.free if var.name in self._seen and var.name in self._weights]
        features = [var for var in one.free if var.name not in self._seen]
        channel = [at for at, part in enumerate(one.a_index) if any(var.name in variables(part) for var in groups)]
        if len(groups) != 1 or len(channel) != 1 or channel[0] == len(one.a_index) - 1:
            return None
        if len(features) > 1 or any(self._extents[var] > _MOST_FEATURES for var in features):
            return None
        axes = [self._along(at) for at in range(channel[0] + 1, len(one.a_index))]
        found = [axis for axis in axes if axis is not None]
        inner = [var for var in one.bound if var.name in variables(one.a_index[channel[0]])]
        if len(found) < len(axes) or len(inner) > 1 or not self._is_complete(found, groups, features, inner):
            return None
        return self._made(tuple(found), one.a_index[: channel[0] + 1], features, inner)

    def _is_plain(self) -> bool:
        one = self._one
        is_static = not any(map(is_symbolic, (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, *one.out.shape)))
        is_float = one.accumulator.name in ("f32", "f64") and one.a.dtype is one.accumulator is one.b.dtype
        return is_static and is_float and one.a_value is None and one.b_value is None and self._has_rows()

    def _has_rows(self) -> bool:
        """Whether the weights of a sum lie in the order of its terms."""
        place = position(self._one.b, self._one.b_index)
        step = 1
        for var, extent in zip(reversed(self._one.bound), reversed(self._one.reduced), strict=True):
            if place is None or place.step(var) != step:
                return False
            step *= extent
        return place is not None

    def _along(self, axis: int) -> _Along | None:
        """The windows along an axis, or None where it is not one window and one tap that say what is seen."""
        one = self._one
        place = affine(one.a_index[axis])
        assert place is not None  # of a window
        windows = [var for var in one.free if place.step(var)]
        taps = [var for var in one.bound if place.step(var)]
        if len(windows) > 1 or len(taps) > 1 or set(place.steps) != {var.name for var in (*windows, *taps)}:
            return None
        window, tap = next(iter(windows), None), next(iter(taps), None)
        return _Along(
            one.a.shape[axis],
            1 if window is None else self._extents[window],
            1 if window is None else place.step(window),
            place.first,
            1 if tap is None else place.step(tap),
            1 if tap is None else self._extents[tap],
            window,
            tap,
        )

    def _is_complete(
        self,
        axes: Sequence[_Along],
        groups: Sequence[ScalarVar],
        features: Sequence[ScalarVar],
        inner: Sequence[ScalarVar],
    ) -> bool:
        """Whether each index has its place: what is left are samples, which no sum runs over."""
        used = [var for axis in axes for var in (axis.window, axis.tap) if var is not None]
        known = [*used, *groups, *features, *inner]
        rest = [var for var in self._extents if var not in known]
        last = self._one.out_index[-1]
        is_row = axes[-1].window is None or last == axes[-1].window
        return len(set(known)) == len(known) and all(var in self._one.free for var in rest) and is_row

    def _made(
        self,
        axes: tuple[_Along, ...],
        outer: tuple[Scalar, ...],
        features: Sequence[ScalarVar],
        inner: Sequence[ScalarVar],
    ) -> Taps:
        one, lanes = self._one, self._target.lanes(self._one.accumulator.bits)
        inside = {axis.window for axis in axes} | set(features)
        loops = [(var, self._extents[var]) for var in one.free if var not in inside]
        height = axes[0].count if len(axes) == 1 or axes[0].window is None else self._height(axes, features, inner)
        if height < axes[0].count:
            loops.append((BAND, axes[0].count // height))
            axes = (replace(axes[0], count=height), *axes[1:])
        own = [(var, self._extents[var]) for var in (*features, *inner)]
        rows, channels = own[: len(features)], own[len(features) :]
        found = Taps(
            one,
            tuple(loops),
            axes,
            outer,
            channels[0] if channels else None,
            rows[0] if rows else None,
            height,
            CpuTaps(1, 1, lanes, (0,)),
        )
        tall, vectors = tile_shapes(rows[0][1] if rows else 1, found.count, lanes, self._target)[0]
        return replace(found, tile=CpuTaps(tall, vectors, lanes, found.offsets()))

    def _height(self, axes: Sequence[_Along], features: Sequence[ScalarVar], inner: Sequence[ScalarVar]) -> int:
        """How many rows of windows a band has: what they see and their sums should fit in the first cache."""
        top, *others = axes
        nbytes = self._one.accumulator.bits // 8

        def size(height: int) -> int:
            planes = [replace(top, count=height), *others]
            seen = prod(axis.phases * axis.places for axis in planes) * prod(self._extents[var] for var in inner)
            sums = height * prod(axis.places for axis in others) * prod(self._extents[var] for var in features)
            return (seen + sums) * nbytes

        heights = [height for height in range(1, top.count + 1) if top.count % height == 0]
        fitting = [height for height in heights if size(height) <= self._target.l1d * 3 // 4]
        lowest = [height for height in heights if height >= min(4, top.count)]
        return max(fitting[-1:] + lowest[:1])


def weights_at(one: Contraction) -> Affine:
    """Where the weights of the first sum of a contraction with ``CpuTaps`` are."""
    place = position(one.b, one.b_index)
    assert place is not None
    gone = {var.name for var in (*one.bound, *one.free)}
    return Affine(place.first, {name: step for name, step in place.steps.items() if name not in gone})
