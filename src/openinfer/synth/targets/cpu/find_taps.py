"""Finds the convolutions with windows as offset lists, and the bands they are computed in."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TypeAlias

from openinfer.loops.affine import position, variables
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Contraction, Scalar, ScalarVar
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.quantized import are_half_floats
from openinfer.synth.targets.cpu.taps import Along, CpuTaps, Taps, windows_along
from openinfer.synth.targets.cpu.tile_shapes import tile_shapes
from openinfer.synth.targets.cpu.window import BAND, is_window

_MOST_TERMS = 1024
"""The most products that a sum accumulates one after the other here."""
_FEW_CHANNELS = 4
"""With more, channels can be columns, or the input of the windows is copied."""
_CHANNELS = 1
"""The channel axis, if there are no groups to identify it."""
_MOST_FEATURES = 15
"""With more results per group, its channels can be columns, as in other convolutions."""


def taps_of(one: Contraction, target: CpuMachine) -> Taps | None:
    """A grouped convolution, without single-iteration indices, as windows on planes; None for other contractions.

    Its weights are the second factor, which must be finite if some terms are invalid.
    """
    return _TapFinder(one, target).run()


def few_channels_of(one: Contraction, target: CpuMachine) -> Taps | None:
    """The same for a convolution of few channels without groups, such as the first one of an image network."""
    return _TapFinder(one, target).run_alone()


FindTaps: TypeAlias = Callable[[Contraction, CpuMachine], Taps | None]


class _TapFinder:
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
        return self._windows(channel[0], groups, features)

    def run_alone(self) -> Taps | None:
        one = self._one
        if not self._is_plain() or not is_window(one) or prod(one.reduced) > _MOST_TERMS:
            return None
        features = [var for var in one.free if var.name not in self._seen]
        is_first = len(one.a_index) > _CHANNELS + 1 and len(one.a_index) == len(one.out_index)
        if not is_first or len(features) != 1 or one.out_index[_CHANNELS] != features[0]:
            return None
        if one.a.shape[_CHANNELS] > _FEW_CHANNELS or self._weights & {var.name for var in one.free} != {
            features[0].name
        }:
            return None
        found = self._windows(_CHANNELS, [], features)
        is_wide = found is not None and any(axis.taps > 1 for axis in found.axes)
        return found if is_wide else None

    def _windows(self, at: int, groups: Sequence[ScalarVar], features: Sequence[ScalarVar]) -> Taps | None:
        """Windows along all axes after the channel axis."""
        one = self._one
        axes = [windows_along(one, axis) for axis in range(at + 1, len(one.a_index))]
        found = [axis for axis in axes if axis is not None]
        inner = [var for var in one.bound if var.name in variables(one.a_index[at])]
        if len(found) < len(axes) or len(inner) > 1 or not self._is_complete(found, groups, features, inner):
            return None
        return self._made(tuple(found), one.a_index[: at + 1], features, inner)

    def _is_plain(self) -> bool:
        one = self._one
        is_static = not any(map(is_symbolic, (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, *one.out.shape)))
        is_float = one.accumulator.name in ("f32", "f64") and one.a.dtype is one.accumulator
        is_float = is_float and (one.b.dtype is one.accumulator or are_half_floats(one, one.b))
        return is_static and is_float and one.a_value is None and one.b_value is None and self._has_rows()

    def _has_rows(self) -> bool:
        """Whether the weights of a sum are stored in the order of its terms."""
        place = position(self._one.b, self._one.b_index)
        step = 1
        for var, extent in zip(reversed(self._one.bound), reversed(self._one.reduced), strict=True):
            if place is None or place.stride(var) != step:
                return False
            step *= extent
        return place is not None

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
        last = self._one.out_index[-1]
        is_row = axes[-1].window is None or last == axes[-1].window
        return len(set(known)) == len(known) and all(var in self._one.free for var in rest) and is_row

    def _made(
        self,
        axes: tuple[Along, ...],
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

    def _height(self, axes: Sequence[Along], features: Sequence[ScalarVar], inner: Sequence[ScalarVar]) -> int:
        """The number of rows of windows in a band: their input and sums should fit in the L1 cache."""
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
