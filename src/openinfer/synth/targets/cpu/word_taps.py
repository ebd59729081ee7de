"""Depthwise convolutions on a Cortex-M: windows are three elements wide, and computed two at a time.

Two adjacent windows read four contiguous bytes. These form the pairs of bytes 0 and 2, and 1 and 3: each pair is
multiplied with the outer two weights in one window, and one of its halves with the middle weight in the other.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from openinfer.loops.affine import position, variables
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import Contraction, ScalarVar, Template
from openinfer.synth.targets.cpu.byte_products import are_bytes

WIDTH = 3
"""The number of adjacent elements in a window row."""
_MOST_ROWS = 4
"""The most rows of a window whose weights stay in registers."""


@dataclass(frozen=True)
class WordTaps(Template):
    """Windows along the index ``along``, two at a time; ``tap`` indexes the elements of each along that axis."""

    along: ScalarVar
    tap: ScalarVar

    @property
    def text(self) -> str:
        """The windows in words, as part of a kernel's text."""
        return f"two windows of {WIDTH} at a time along {self.along.name}"

    @property
    def facts(self) -> dict[str, Any]:
        """The windows in a plan."""
        return {"rows": 1, "columns": 2, "divided": None, "chosen_by": "rule", "gain": None}


def word_taps_of(one: Contraction) -> WordTaps | None:
    """How to compute windows of bytes two at a time; None if they are of another kind."""
    places = [position(one.a, one.a_index), position(one.b, one.b_index), position(one.out, one.out_index)]
    if not _is_plain(one) or any(place is None for place in places):
        return None
    seen, weights, out = (place for place in places if place is not None)
    taps = [
        var for var, extent in zip(one.bound, one.reduced, strict=True) if extent == WIDTH and seen.stride(var) == 1
    ]
    along = [var for var in one.free if is_same(seen.stride(var), 1) and is_same(out.stride(var), 1)]
    known = {var.name for var in (*one.free, *one.bound)}
    if len(taps) != 1 or len(along) != 1 or weights.stride(along[0]) != 0 or not set(seen.strides) <= known:
        return None
    rows = prod(one.reduced) // WIDTH
    return WordTaps(along[0], taps[0]) if rows <= _MOST_ROWS and set(weights.strides) <= known else None


def _is_plain(one: Contraction) -> bool:
    """Whether bytes are read in place, all terms are valid, and the first factor has every index of the weights."""
    extents = (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, *one.out.shape)
    is_one_by_one = one.a_value is None and one.b_value is None and one.valid is None
    is_stored = one.a.dtype.bits == one.b.dtype.bits == 8 and not any(map(is_symbolic, extents))
    is_alone = all(name in variables(*one.a_index) for name in variables(*one.b_index))
    return are_bytes(one) and is_one_by_one and is_stored and is_alone
