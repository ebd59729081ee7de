"""A view never looks at memory that is gone, whatever its module does next."""

import gc
from typing import Any

import numpy as np
import pytest
from tests.synth.flags import USUAL

from openinfer import Synthesizer, graph

GROWING = """
dynamic { x: f32[64]; }
persistent { n: i32; K(t): f32[64] @table; P(t): i4[64] @table; }
volatile { y: f32[64]; q: i4[64]; }
block entry {
    cache.write x >> K[n]; cache.increment n;
    op cast(x, to=i4) >> q;
    cache.write q >> P[n];
    op add(x, x) >> y; return y;
}
"""
BOUNDED = """
dynamic { x: f32[4]; } persistent { n: i32; K(t): f32[4] @table @fixed(t=8); } volatile { y: f32[4]; }
block entry { cache.write x >> K[n]; cache.increment n; op add(x, x) >> y; return y; }
"""


def module(text: str) -> Any:
    return Synthesizer(name="view").synthesize(None, graph(text)).build(flags=USUAL)


def step(runs: Any, value: float, width: int) -> None:
    runs.insert(x=np.full(width, value, np.float32))
    runs.run_step()


@pytest.mark.parametrize("after", ["growth", "reset", "load_state", "deletion"])
def test_a_view_of_a_growing_table_keeps_its_values(after: str) -> None:
    runs = module(GROWING)
    for _ in range(4):
        step(runs, 3, 64)
    saved = runs.save_state()
    view, packed = runs.fetch_view("K"), runs.fetch_view("P")
    match after:
        case "growth":
            for _ in range(60):
                step(runs, 5, 64)
        case "reset":
            runs.reset()
            step(runs, 5, 64)
        case "load_state":
            runs.load_state(saved)
            step(runs, 5, 64)
        case _:
            del runs
            gc.collect()
    rest = [np.full(64 * size, 7, np.float32) for size in range(1, 200)]  # freed memory would be used again
    assert len(rest) == 199
    assert view.shape == (4, 64)
    assert (view == 3).all()
    assert packed.shape == (5, 64)
    assert not view.flags.writeable


def test_views_of_outputs_and_bounded_tables_share_memory_and_keep_it() -> None:
    runs = module(BOUNDED)
    step(runs, 1, 4)
    view, table, count = (runs.fetch_view(name) for name in ("y", "K", "n"))
    step(runs, 2, 4)
    assert view.tolist() == [4] * 4
    assert count == 2
    del runs
    gc.collect()
    rest = [np.full(size, 9, np.uint8) for size in range(64, 4096, 64)]
    assert len(rest) == 63
    assert (view == 4).all()
    assert (table == 1).all()


def test_a_view_keeps_memory_but_not_the_module() -> None:
    runs = module(BOUNDED)
    step(runs, 1, 4)
    view = runs.fetch_view("y")
    assert runs not in gc.get_referrers(view)
    base = view.base
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert base.flags.owndata
