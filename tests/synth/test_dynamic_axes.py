"""Ops with a dynamic axis give in C what they give in the simulator, at every size from 0 to the bound."""

import numpy as np
import pytest
from tests.synth.both_ways import agree, planned
from tests.synth.dynamic_axes import problems, trials

from openinfer import GraphError
from openinfer.dtypes import DTYPES
from openinfer.errors import Code

CUTS = """
sizes { T <= 7; }
dynamic { x: f32[T]; im: f32[1, 1, T]; }
volatile { declared: f32[T]; }
block entry {
    a = op slice(x, starts=2, ends=5);
    b = op slice(x, starts=0, ends=9223372036854775807);
    c = op slice(x, starts=-3, ends=1000);
    d = op slice(x, starts=6, ends=-1000, steps=-2);
    e = op slice(x, starts=5, ends=2);
    f = op slice(x, starts=1, ends=-1);
    g = op slice(x, starts=-6, ends=-1, steps=2);
    h = op slice(x, starts=-1, ends=-5, steps=-1);
    op slice(x, starts=0, ends=9223372036854775807) >> declared;
    r = op resize(im, scale=0.6, mode="nearest");
    s = op resize(im, scale=1.5);
    t = op resize(im, scale=0.1);
    return a, b, c, d, e, f, g, h, declared, r, s, t;
}
"""
FITTING = """
sizes { T <= 7; }
dynamic { x: f32[T]; }
volatile { y: f32[T-3]; }
block entry { op slice(x, starts=1, ends=-2) >> y; return y; }
"""


def test_slices_and_scales_follow_the_size() -> None:
    """Beyond the end, before the start, backwards: at every size as NumPy cuts."""
    values = np.arange(1, 8, dtype=np.float32)
    inputs = [{"x": values[:size], "im": values[None, None, :size]} for size in range(8)]
    agree(CUTS, inputs=inputs.__getitem__, steps=8)
    agree(FITTING, inputs=lambda size: {"x": values[:size]}, steps=8)


@pytest.mark.parametrize(("op", "place"), [("pad", 2), ("max_pool", 1), ("fir", 0)])
def test_a_sample_of_the_sweep(op: str, place: int) -> None:
    found = list(trials(op, DTYPES["f32"], place + 1))
    assert problems(found[-1]) == []


def test_a_size_of_two_is_not_taken_for_another_extent() -> None:
    """At 1 the simulator would stretch it, and code for equal extents would read past its end."""
    text = "sizes { T <= 2; } dynamic { a: f32[2, 3]; b: f32[T, 3]; } block entry { y = op prelu(a, b); return y; }"
    with pytest.raises(GraphError) as caught:
        planned(text)
    assert caught.value.code is Code.NOT_SYNTHESIZED
