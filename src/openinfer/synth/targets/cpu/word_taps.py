"""Convolutions of one channel at a time on a Cortex-M: three neighbours under a window, two windows at once.

Four bytes in a row are what two neighbouring windows see. As pairs they are the bytes 0 and 2, and 1 and 3: each meets
the outer two weights in one window, and one of its halves the middle one in the other.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from openinfer.loops.affine import position, variables
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import Contraction, ScalarVar, Template
from openinfer.synth.targets.cpu.byte_products import are_bytes

WIDTH = 3
"""Neighbours that a window sees."""
_MOST_ROWS = 4
"""Rows of a window whose weights stay in registers."""


@dataclass(frozen=True)
class WordTaps(Template):
    """Windows along the index ``along``, two at a time; ``tap`` counts what each sees there."""

    along: ScalarVar
    tap: ScalarVar

    @property
    def text(self) -> str:
        """In words, as part of a kernel's text."""
        return f"two windows of {WIDTH} at a time along {self.along.name}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a plan says of it."""
        return {"rows": 1, "columns": 2, "divided": None, "chosen_by": "rule", "gain": None}


def word_taps_of(one: Contraction) -> WordTaps | None:
    """How windows of bytes are computed two at a time; None where they are not of that kind."""
    places = [position(one.a, one.a_index), position(one.b, one.b_index), position(one.out, one.out_index)]
    if not _is_plain(one) or any(place is None for place in places):
        return None
    seen, weights, out = (place for place in places if place is not None)
    taps = [var for var, extent in zip(one.bound, one.reduced, strict=True) if extent == WIDTH and seen.step(var) == 1]
    along = [var for var in one.free if is_same(seen.step(var), 1) and is_same(out.step(var), 1)]
    known = {var.name for var in (*one.free, *one.bound)}
    if len(taps) != 1 or len(along) != 1 or weights.step(along[0]) != 0 or not set(seen.steps) <= known:
        return None
    rows = prod(one.reduced) // WIDTH
    return WordTaps(along[0], taps[0]) if rows <= _MOST_ROWS and set(weights.steps) <= known else None


def _is_plain(one: Contraction) -> bool:
    """Whether bytes are read as they lie, all terms count, and each window has weights that no other factor has."""
    extents = (*one.extents, *one.reduced, *one.a.shape, *one.b.shape, *one.out.shape)
    is_one_by_one = one.a_value is None and one.b_value is None and one.valid is None
    is_stored = one.a.dtype.bits == one.b.dtype.bits == 8 and not any(map(is_symbolic, extents))
    is_alone = all(name in variables(*one.a_index) for name in variables(*one.b_index))
    return are_bytes(one) and is_one_by_one and is_stored and is_alone
