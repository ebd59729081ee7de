"""Where a circuit's memories go: which memory blocks of the device hold them, and what must stay outside."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openinfer.synth.devices.sections import MemoryBlocks

_IN_LOGIC = 256
"""Memories of at most this many bits are built from logic."""


@dataclass(frozen=True)
class MemoryNeed:
    """Memories of one shape: their number, their words, and the bits of a word."""

    count: int
    words: int
    bits: int

    def blocks(self, kind: MemoryBlocks) -> int:
        """The number of blocks of a kind that they need, in the best of its shapes.

        >>> ebr = MemoryBlocks(kind="ebr", count=30, bits=4096, width=16)
        >>> MemoryNeed(1, 512, 8).blocks(ebr), MemoryNeed(4, 513, 8).blocks(ebr), MemoryNeed(1, 256, 64).blocks(ebr)
        (1, 8, 4)
        """
        if self.words * self.bits <= _IN_LOGIC:
            return 0
        return self.count * min(-(-self.bits // width) * -(-self.words // depth) for width, depth in _shapes(kind))


def _shapes(kind: MemoryBlocks) -> Iterator[tuple[int, int]]:
    """Widths and depths of a block; kinds without a separate write port have one shape."""
    width = kind.width
    while width:
        yield width, 1 << (kind.bits // width).bit_length() - 1
        width = width // 2 if kind.has_write_port else 0


@dataclass(frozen=True)
class MemoryFit:
    """Which weights stay outside, and which kind of block holds the RAM."""

    rom_is_outside: bool
    lanes_are_outside: bool
    has_write_port: bool
    """Whether the RAM's blocks can be read and written in the same clock."""


def memory_fit(kinds: Sequence[MemoryBlocks], ram: MemoryNeed, rom: MemoryNeed, lanes: MemoryNeed) -> MemoryFit | None:
    """The best fit for a device: weights inside if possible, those of the lanes first; None if nothing fits.

    >>> ebr = MemoryBlocks(kind="ebr", count=2, bits=4096, width=16)
    >>> none = MemoryNeed(1, 0, 8)
    >>> memory_fit([ebr], MemoryNeed(1, 512, 8), MemoryNeed(1, 512, 8), none)
    MemoryFit(rom_is_outside=False, lanes_are_outside=False, has_write_port=True)
    >>> memory_fit([ebr], MemoryNeed(1, 512, 8), MemoryNeed(1, 2000, 8), none)
    MemoryFit(rom_is_outside=True, lanes_are_outside=False, has_write_port=True)
    >>> memory_fit([ebr], MemoryNeed(1, 2000, 8), none, none) is None
    True
    """
    if not kinds:
        return MemoryFit(rom_is_outside=False, lanes_are_outside=False, has_write_port=True)
    for rom_out, lanes_out in ((False, False), (True, False), (False, True), (True, True)):
        left = {one: one.count for one in kinds}
        filled = [one for one, is_out in ((lanes, lanes_out), (rom, rom_out)) if not is_out]
        if not all(_take(left, one, [kind for kind in kinds if kind.is_initialised]) for one in filled):
            continue
        for has_port in (True, False):
            if _take(left, ram, [kind for kind in kinds if kind.has_write_port is has_port]):
                return MemoryFit(rom_out, lanes_out, has_port)
    return None


def _take(left: dict[MemoryBlocks, int], need: MemoryNeed, kinds: Sequence[MemoryBlocks]) -> bool:
    """Whether a kind has room for memories; deducts the blocks they use from ``left``."""
    for kind in kinds:
        blocks = need.blocks(kind)
        if blocks <= left[kind]:
            left[kind] -= blocks
            return True
    return False
