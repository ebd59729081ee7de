"""Iterates over a tensor channel by channel without holding it.

Along an axis a tensor is ``outer x channels x inner``. A block is a run of consecutive elements that covers whole
channels if they are small, or a part of one channel if they are large.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple


class ChannelBlock(NamedTuple):
    """Elements ``start`` to ``start + outer * channels * inner``, and the channels they belong to."""

    start: int
    outer: int
    first_channel: int
    channels: int
    inner: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.outer * self.channels * self.inner


def blocks(shape: tuple[int, ...], axis: int | None, limit: int) -> Iterator[ChannelBlock]:
    """Cut a tensor into blocks of at most ``limit`` elements, in order. Without an axis it is a single channel.

    >>> [tuple(block) for block in blocks((2, 3, 4), 1, 8)]
    [(0, 1, 0, 2, 4), (8, 1, 2, 1, 4), (12, 1, 0, 2, 4), (20, 1, 2, 1, 4)]
    """
    channels = 1 if axis is None else shape[axis]
    inner = prod(shape) if axis is None else prod(shape[axis + 1 :])
    slab = channels * inner
    if slab == 0:
        return
    outer = prod(shape) // slab
    if slab <= limit:
        step = limit // slab
        for first in range(0, outer, step):
            yield ChannelBlock(first * slab, min(step, outer - first), 0, channels, inner)
    elif inner <= limit:
        step = limit // inner
        for first in range(0, outer * channels, channels):
            for channel in range(0, channels, step):
                yield ChannelBlock((first + channel) * inner, 1, channel, min(step, channels - channel), inner)
    else:
        for row in range(outer * channels):
            for part in range(0, inner, limit):
                yield ChannelBlock(row * inner + part, 1, row % channels, 1, min(limit, inner - part))
