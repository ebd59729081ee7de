"""Tensor parallelism as arithmetic, and its communication as a simulation: ``python -m bench.parallel``.

A transformer's layer is divided among N devices as docs/tensor-parallel.md says; the messages of the ring that adds up
their parts are sent one by one, on links with a latency and a bandwidth. Values are real: they are compared with those
of one device.
"""

import argparse
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True)
class Link:
    """What a message between two neighbours takes: seconds before its first byte, and bytes a second."""

    latency: float
    bandwidth: float


@dataclass
class Ring:
    """Devices in a circle. Each has a clock; a message is received when both its sender and the link are done."""

    size: int
    link: Link
    clocks: list[float] = field(default_factory=list)
    sent_bytes: list[int] = field(default_factory=list)
    messages: int = 0

    def __post_init__(self) -> None:
        self.clocks = [0.0] * self.size
        self.sent_bytes = [0] * self.size

    def compute(self, seconds: float) -> None:
        """Every device works for a while."""
        self.clocks = [clock + seconds for clock in self.clocks]

    def shift(self, chunks: list[Array]) -> list[Array]:
        """Every device sends a chunk to the next one, all at the same time."""
        arrivals = []
        for rank, chunk in enumerate(chunks):
            self.sent_bytes[rank] += chunk.nbytes
            self.messages += 1
            arrivals.append(self.clocks[rank] + self.link.latency + chunk.nbytes / self.link.bandwidth)
        self.clocks = [max(self.clocks[rank], arrivals[rank - 1]) for rank in range(self.size)]
        return [chunks[rank - 1] for rank in range(self.size)]

    def all_reduce(self, parts: list[Array]) -> list[Array]:
        """The sum of the parts, on every device: chunks are added on their way around, then handed around once more."""
        if self.size == 1:
            return parts
        pieces = [[one.copy() for one in np.array_split(part.reshape(-1), self.size)] for part in parts]
        for step in range(self.size - 1):
            moved = self.shift([pieces[rank][(rank - step) % self.size] for rank in range(self.size)])
            for rank, chunk in enumerate(moved):
                pieces[rank][(rank - 1 - step) % self.size] += chunk
        for step in range(self.size - 1):
            moved = self.shift([pieces[rank][(rank + 1 - step) % self.size] for rank in range(self.size)])
            for rank, chunk in enumerate(moved):
                pieces[rank][(rank - step) % self.size] = chunk
        return [np.concatenate(one).reshape(parts[0].shape) for one in pieces]


def ring_seconds(nbytes: float, size: int, link: Link) -> float:
    """What the page says an addition over a ring takes: 2(N - 1) messages of an N-th each.

    >>> ring_seconds(8e6, 4, Link(1e-6, 1e9))
    0.012006
    """
    return 2 * (size - 1) * (link.latency + nbytes / size / link.bandwidth)


@dataclass(frozen=True)
class Layer:
    """The products of one layer of a decoder: queries, keys and values, output, and the two of its MLP."""

    wq: Array
    wk: Array
    wv: Array
    wo: Array
    up: Array
    down: Array

    @classmethod
    def random(cls, width: int, inner: int) -> "Layer":
        random = np.random.default_rng(0)
        shapes = [(width, width)] * 4 + [(width, inner), (inner, width)]
        return cls(*(random.standard_normal(shape) / shape[0] ** 0.5 for shape in shapes))

    def part(self, rank: int, size: int) -> "Layer":
        """What one device has: columns of the products that go in, rows of those that come out."""

        def columns(matrix: Array) -> Array:
            return np.split(matrix, size, axis=1)[rank]

        def rows(matrix: Array) -> Array:
            return np.split(matrix, size, axis=0)[rank]

        heads = columns(self.wq), columns(self.wk), columns(self.wv)
        return Layer(*heads, rows(self.wo), columns(self.up), rows(self.down))

    @property
    def elements(self) -> int:
        return sum(one.size for one in vars(self).values())


def attention(x: Array, layer: Layer, heads: int) -> Array:
    """Attention of the heads that a layer has, and their part of the output's product."""
    q, k, v = (np.stack(np.split(x @ one, heads, axis=1)) for one in (layer.wq, layer.wk, layer.wv))
    scores = q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    return np.concatenate(list(mixed), axis=1) @ layer.wo


def mlp(x: Array, layer: Layer) -> Array:
    return np.tanh(x @ layer.up) @ layer.down


def on_one(x: Array, layers: list[Layer], heads: int) -> Array:
    for layer in layers:
        x = x + attention(x, layer, heads)
        x = x + mlp(x, layer)
    return x


def on_many(x: Array, layers: list[Layer], heads: int, ring: Ring) -> Array:
    """The same on the devices of a ring: two additions over all of them in each layer."""
    size = ring.size
    for layer in layers:
        parts = [layer.part(rank, size) for rank in range(size)]
        x = x + ring.all_reduce([attention(x, part, heads // size) for part in parts])[0]
        x = x + ring.all_reduce([mlp(x, part) for part in parts])[0]
    return x


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.parallel", description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--latency-us", type=float, default=5.0)
    parser.add_argument("--gigabytes", type=float, default=25.0, help="a second, of each link")
    given = parser.parse_args()
    link = Link(given.latency_us * 1e-6, given.gigabytes * 1e9)
    layers = [Layer.random(given.width, 4 * given.width)] * given.layers
    x = np.random.default_rng(1).standard_normal((given.tokens, given.width))
    wanted = on_one(x, layers, given.heads)
    print(f"{'devices':>7} {'messages':>8} {'MB sent by each':>15} {'us':>8} {'us by formula':>13} {'difference':>10}")
    for size in (1, 2, 4, 8):
        ring = Ring(size, link)
        found = on_many(x, layers, given.heads, ring)
        formula = 2 * given.layers * ring_seconds(x.nbytes, size, link)
        times = f"{max(ring.clocks) * 1e6:8.1f} {formula * 1e6:13.1f}"
        sent, difference = max(ring.sent_bytes) / 1e6, float(np.abs(found - wanted).max())
        print(f"{size:7} {ring.messages:8} {sent:15.3f} {times} {difference:10.1e}")


if __name__ == "__main__":
    main()
