"""Finds the convolutions of bytes with windows as offset lists, and the bands they are computed in."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from openinfer.loops.affine import position, variables
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Contraction, ScalarVar, Space
from openinfer.synth.targets.cpu.border import without_border
from openinfer.synth.targets.cpu.byte_products import GROUP, are_bytes, flipped
from openinfer.synth.targets.cpu.byte_taps import ByteTaps, ByteWindows
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.product import without_single
from openinfer.synth.targets.cpu.taps import Along, windows_along
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes
from openinfer.synth.targets.cpu.window import BAND

_MOST_TERMS = 1024
"""The most groups in a window: each is an entry of the offset list."""
_FEW_CHANNELS = 4
"""Without groups, more channels are better copied by position."""
_MOST_FEATURES = 15
"""The same holds for more results per group."""
_MOST_AXES = 2
"""Windows along more axes would leave gaps between planes."""
_SUM_BYTES = 4


def byte_windows_of(one: Contraction, target: CpuMachine) -> ByteWindows | None:
    """A convolution of bytes, without single-iteration indices, as windows in groups of four; None for others.

    Its weights are the second factor.
    """
    is_stored = one.a.dtype.bits == one.b.dtype.bits == 8 and one.b_value is None
    counts = (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, *one.out.shape)
    if not (target.has_vectors and are_bytes(one) and is_stored) or any(map(is_symbolic, counts)):
        return None
    found = without_border(one)
    if found is None or position(one.b, one.b_index) is None:
        return None
    plain, fill = found
    made = _ByteTapFinder(plain, target, fill).run()
    return None if made is None else replace(made, one=one)


class _ByteTapFinder:
    def __init__(self, one: Contraction, target: CpuMachine, fill: int) -> None:
        self._one, self._target, self._fill = one, target, fill
        self._extents = dict(zip((*one.free, *one.bound), (*one.extents, *one.reduced), strict=True))
        self._seen, self._weights = (variables(*part) for part in (one.a_index, one.b_index))

    def run(self) -> ByteWindows | None:
        one = self._one
        groups = [var for var in one.free if var.name in self._seen and var.name in self._weights]
        features = [var for var in one.free if var.name in self._weights and var.name not in self._seen]
        if len(groups) > 1 or len(features) > 1:
            return None
        if groups and any(self._extents[var] > _MOST_FEATURES for var in features):
            return None
        for axis in range(max(1, len(one.a_index) - _MOST_AXES), len(one.a_index)):
            found = self._windows(axis, groups, features)
            if found is not None:
                return found
        return None

    def _windows(self, axis: int, groups: Sequence[ScalarVar], features: Sequence[ScalarVar]) -> ByteWindows | None:
        """Windows along all axes from one on; the axis before it is the channel axis."""
        one = self._one
        along = [windows_along(one, at) for at in range(axis, len(one.a_index))]
        axes = [own for own in along if own is not None]
        channel = variables(one.a_index[axis - 1])
        inner = [var for var in one.bound if var.name in channel]
        if len(axes) < len(along) or len(inner) > 1 or any(var.name not in channel for var in groups):
            return None
        if not groups and (one.a.shape[axis - 1] > _FEW_CHANNELS or not features):
            return None
        if any(own.window is None and own.tap is not None for own in axes):
            return None  # This may be a channel axis: its sum has no windows.
        is_window = any(own.window is not None and own.tap is not None for own in axes)
        if not is_window or not self._is_complete(axes, groups, features, inner):
            return None
        return self._made(axis, axes, features, inner)

    def _is_complete(
        self,
        axes: Sequence[Along],
        groups: Sequence[ScalarVar],
        features: Sequence[ScalarVar],
        inner: Sequence[ScalarVar],
    ) -> bool:
        """Whether every index has a role: those left are samples, over which no sum runs."""
        used = [var for axis in axes for var in (axis.window, axis.tap) if var is not None]
        known = [*used, *groups, *features, *inner]
        rest = [var for var in self._extents if var not in known]
        is_own = len(set(known)) == len(known) and not any(var.name in self._weights for var in rest)
        return is_own and all(var in self._one.free for var in rest)

    def _made(
        self, axis: int, axes: Sequence[Along], features: Sequence[ScalarVar], inner: Sequence[ScalarVar]
    ) -> ByteWindows | None:
        one, target = self._one, self._target
        last, row = axes[-1], axes[0] if len(axes) > 1 else None
        inside = {own.window for own in axes} | set(features)
        loops = [(var, self._extents[var]) for var in one.free if var not in inside]
        rows = self._extents[features[0]] if features else 1
        channels = (inner[0], self._extents[inner[0]]) if inner else None
        bands = 1
        if row is not None and row.window is not None:
            height = self._height(row, last, rows, 1 if channels is None else channels[1])
            bands, row = row.count // height, replace(row, count=height)
            loops += [(BAND, bands)] * (bands > 1)
        is_flipped = target.dot and one.a.dtype is one.b.dtype
        dtype = flipped(one.a.dtype) if is_flipped else one.a.dtype
        lanes = target.lanes(one.accumulator.bits)
        quads = Buffer("quads", dtype, (0,), Space.SCRATCH)
        taps = ByteTaps(1, 1, lanes, quads, axis, row, last, channels, bands, self._fill, is_flipped)
        if len(taps.offsets) > _MOST_TERMS:
            return None
        tall, vectors = tile_shapes(rows, taps.windows, lanes, target.for_bytes)[0]
        return ByteWindows(
            one,
            tuple(loops),
            (features[0], rows) if features else None,
            replace(taps, rows=tall, vectors=vectors),
        )

    def _height(self, row: Along, last: Along, rows: int, channels: int) -> int:
        """The number of rows of windows in a band: their input and sums should fit in the L1 cache."""
        each = GROUP * -(-last.taps // GROUP) * channels

        def size(height: int) -> int:
            seen = replace(row, count=height)
            return last.count * (each * seen.phases * seen.places + _SUM_BYTES * rows * height)

        heights = [height for height in range(1, row.count + 1) if _has_rows(row, height)]
        fitting = [height for height in heights if size(height) <= self._target.l1d * 3 // 4]
        lowest = [height for height in heights if height * last.count >= self._target.lanes(32)]
        return max(fitting[-1:] + lowest[:1] + heights[:1])


def _has_rows(row: Along, height: int) -> bool:
    """Whether rows divide into bands of a height, each of which reads rows of the plane in every phase."""
    if row.count % height or height == row.count:
        return height == row.count
    places, last = replace(row, count=height).places, row.count - height
    return all(
        -((phase + row.first) // row.stride) <= places
        and -((phase + row.first - row.extent) // row.stride) >= max(last, 0)
        for phase in row.used
    )


def is_byte_windows(one: Contraction, target: CpuMachine) -> bool:
    """Whether a contraction is such a convolution, so that all input of its windows is copied."""
    return prod(one.extents) * prod(one.reduced) > 0 and byte_windows_of(without_single(one), target) is not None
