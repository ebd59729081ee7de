"""The simulation of tensor parallelism: the values of one device, and the bytes and times that the page gives."""

import numpy as np
import pytest
from bench.parallel import Layer, Link, Ring, on_many, on_one, ring_seconds

LINK = Link(latency=5e-6, bandwidth=25e9)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_devices_together_give_what_one_gives(size: int) -> None:
    layers = [Layer.random(32, 64)] * 2
    x = np.random.default_rng(1).standard_normal((3, 32))
    ring = Ring(size, LINK)
    assert np.allclose(on_many(x, layers, 8, ring), on_one(x, layers, 8))
    assert ring.messages == 2 * 2 * 2 * (size - 1) * size
    assert sum(layers[0].part(rank, size).elements for rank in range(size)) == layers[0].elements


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_an_addition_over_a_ring_takes_what_its_formula_says(size: int) -> None:
    parts = [np.full(size * 1000, float(rank)) for rank in range(size)]
    ring = Ring(size, LINK)
    for found in ring.all_reduce(parts):
        assert np.array_equal(found, np.full(size * 1000, sum(range(size))))
    assert max(ring.clocks) == pytest.approx(ring_seconds(parts[0].nbytes, size, LINK))
    assert set(ring.sent_bytes) == {2 * (size - 1) * parts[0].nbytes // size}
