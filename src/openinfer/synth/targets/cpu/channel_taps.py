"""Depthwise convolutions with contiguous channels: vectors hold channels, and nothing is copied.

A tile has some adjacent windows of a row, for some channels. Elements that several of these windows share are loaded
once. Windows that cross an edge read a row of zeros there.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from openinfer.loops.affine import Affine, affine, position, variables
from openinfer.loops.build import flat, index
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import Buffer, Const, Contraction, For, LoopKind, ScalarVar, Statement, Store, Template
from openinfer.synth.program.packing import Packing
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.packing import in_panels
from openinfer.synth.targets.cpu.taps import Along, windows_along
from openinfer.synth.targets.cpu.window import in_memory, is_window, without

_MOST_ROWS = 8
"""More adjacent windows hardly share more of their input."""
_MOST_COLUMNS = 128
"""The most channels of a tile: its sums must stay in the L1 cache until they become results."""
_MOST_TAPS = 8
"""The longest row of a window: its weights stay in registers."""
_SEEN = 0.35
"""The cost of locating an input element, in products of a vector."""


@dataclass(frozen=True)
class ChannelTaps(Template):
    """Sums of windows over contiguous channels: ``rows`` adjacent windows and ``columns`` channels at a time.

    ``axes`` are all but the channel axis, by number and in memory order; adjacent windows lie along the last. ``zeros``
    is what windows read outside the input.
    """

    rows: int
    columns: int
    lanes: int
    axes: tuple[tuple[int, Along], ...]
    zeros: Buffer | None

    @property
    def row(self) -> Along:
        """The axis of adjacent windows."""
        return self.axes[-1][1]

    @property
    def lines(self) -> int:
        """The number of input rows that a window reads."""
        return prod(axis.taps for _, axis in self.axes[:-1])

    @property
    def places(self) -> tuple[int, ...]:
        """The offsets of the elements that the windows of a tile read in a row, without duplicates.

        >>> row = Along(10, 5, 2, -1, 1, 3, None, None)
        >>> ChannelTaps(3, 64, 16, ((2, row),), None).places
        (0, 1, 2, 3, 4, 5, 6)
        """
        row = self.row
        windows, taps = range(self.rows), range(row.taps)
        return tuple(sorted({row.stride * window + row.dilation * tap for window in windows for tap in taps}))

    @property
    def text(self) -> str:
        """The tile in words, as part of a kernel's text."""
        zeros = "" if self.zeros is None else f" and {self.zeros.name} around"
        return f"in tiles of {self.rows} windows x {self.columns} channels by {self.lanes}{zeros}"

    @property
    def memory(self) -> tuple[Buffer, ...]:
        """The zeros, stored before the first tile."""
        return () if self.zeros is None else (self.zeros,)

    @property
    def facts(self) -> dict[str, Any]:
        """The tile in a plan."""
        return {"rows": self.rows, "columns": self.columns, "divided": None, "chosen_by": "rule", "gain": None}


@dataclass(frozen=True)
class ChannelWindows:
    """A depthwise convolution over contiguous channels: the loops around a row of windows, and the row."""

    one: Contraction
    loops: tuple[tuple[ScalarVar, int], ...]
    axes: tuple[tuple[int, Along], ...]
    channel: ScalarVar
    channels: int
    machine: CpuMachine

    @property
    def is_edged(self) -> bool:
        """Whether windows cross an edge of the input."""
        return self.one.valid is not None

    def packing(self) -> Packing:
        """The weights: for each tap, those of all channels."""
        place = position(self.one.b, self.one.b_index)
        assert place is not None
        taps = tuple((extent, place.stride(var)) for var, extent in zip(self.one.bound, self.one.reduced, strict=True))
        made = in_panels(place.first, (), taps, ((self.channels, place.stride(self.channel)),), self.channels)
        return replace(made, words="with the channels of each tap contiguous")

    def over(self, panels: Buffer, zeros: Buffer | None) -> tuple[Statement, ...]:
        """The loops, over packed weights and with memory for zeros."""
        weights = (index(0), flat(self.one.bound, self.one.reduced), self.channel)
        row = replace(self.one, b=panels, b_index=weights, template=self._tile(zeros))
        for var, _ in self.loops:
            row = without(row, var)
        body: tuple[Statement, ...] = (row,)
        for var, extent in reversed(self.loops):
            body = (For(var, index(extent), body, LoopKind.PARALLEL),)
        if zeros is None:
            return body
        at = ScalarVar("at")
        fill = For(at, index(self.channels), (Store(zeros, (at,), Const(0, zeros.dtype)),), LoopKind.PARALLEL)
        return (fill, *body)

    def _tile(self, zeros: Buffer | None) -> ChannelTaps:
        lanes = self.machine.lanes(self.one.accumulator.bits)
        _, row = self.axes[-1]
        made = ChannelTaps(1, _columns(self.channels, lanes), lanes, self.axes, zeros)
        free = self.machine.vector_registers - row.taps - 2
        shapes = [replace(made, rows=rows) for rows in range(1, min(_MOST_ROWS, row.count, max(free, 1)) + 1)]
        return min(shapes, key=lambda shape: (self._time(shape), -shape.rows))

    def _time(self, tile: ChannelTaps) -> float:
        """Cycles for a row, roughly; the last tile may overlap the one before."""
        vectors, row = -(-self.channels // tile.lanes), tile.row
        seen = tile.lines * len(tile.places)
        each = (
            vectors * (max(tile.rows * tile.lines * row.taps, seen + tile.lines * row.taps) + tile.rows) + _SEEN * seen
        )
        return each * -(-row.count // tile.rows)


def _columns(channels: int, lanes: int) -> int:
    """The number of channels in a tile: whole vectors, such that no tile has less than one.

    >>> [_columns(channels, 16) for channels in (16, 72, 144, 960, 129)]
    [16, 72, 80, 128, 80]
    """
    count = -(-channels // _MOST_COLUMNS)
    if count == 1:
        return channels
    while True:
        each = -(-channels // (count * lanes)) * lanes
        if channels % each == 0 or channels % each >= lanes:
            return each
        count += 1


def channel_windows_of(one: Contraction, machine: CpuMachine) -> ChannelWindows | None:
    """A depthwise convolution over contiguous channels, without single-iteration indices; None for others.

    Its weights are the second factor, which must be finite if some terms are invalid.
    """
    channel = _channel(one)
    if channel is None or not _is_plain(one) or not one.bound or not is_window(one):
        return None
    axis, var = channel
    lanes = machine.lanes(one.accumulator.bits)
    extents = dict(zip(one.free, one.extents, strict=True))
    if lanes == 1 or extents[var] < lanes or any(map(is_symbolic, (*one.extents, *one.a.shape, *one.out.shape))):
        return None
    others = [at for at in in_memory(one.a) if at != axis]
    axes = [windows_along(one, at) for at in others]
    found = tuple(along for along in axes if along is not None)
    if not found or len(found) < len(axes) or found[-1].window is None or found[-1].taps > _MOST_TAPS:
        return None
    taps = [along.tap for along in found if along.tap is not None]
    windows = [along.window for along in found if along.window is not None]
    if taps != list(one.bound) or {var, *windows} != set(one.free) or len(windows) != len(one.free) - 1:
        return None
    if any(free.name in variables(*one.b_index) for free in windows):
        return None
    loops = tuple((free, extents[free]) for free in windows[:-1])
    return ChannelWindows(one, loops, tuple(zip(others, found, strict=True)), var, extents[var], machine)


def _channel(one: Contraction) -> tuple[int, ScalarVar] | None:
    """The channel axis of the first factor, and the index along it and along the channels of the result."""
    places = [position(one.a, one.a_index), position(one.out, one.out_index), position(one.b, one.b_index)]
    for var in one.free:
        if all(place is not None and is_same(place.stride(var), 1) for place in places[:2]):
            axes = [at for at, part in enumerate(one.a_index) if affine(part) == Affine(0, {var.name: 1})]
            is_weighed = places[2] is not None and places[2].stride(var)
            if len(axes) == 1 and is_weighed and is_same(one.a.shape[axes[0]], one.extents[one.free.index(var)]):
                return axes[0], var
    return None


def _is_plain(one: Contraction) -> bool:
    is_float = one.accumulator.name in ("f32", "f64") and one.a.dtype is one.accumulator
    return is_float and one.b.dtype is one.accumulator and one.a_value is None and one.b_value is None
