"""The variables that blocks touch, including through the blocks they run, as bit sets.

A set is an integer with one bit per variable. A graph may have thousands of blocks that each touch thousands of
variables through one another; as sets of names, these would take memory quadratic in the size of the text.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MOST_REACHED = 1 << 30
"""The maximum number of blocks times variables in a graph."""


class NameBits:
    """Maps names, in sorted order, to bits of integers.

    >>> bits = NameBits(["y", "x", "z"])
    >>> bits.of(["z", "x"]), bits.names(5), 5 & bits.of("y")
    (5, ['x', 'z'], 0)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._places = {name: place for place, name in enumerate(self._names)}

    def of(self, names: Iterable[str]) -> int:
        """The bit set of some names; unknown names are ignored."""
        places = [self._places[name] for name in names if name in self._places]
        if len(places) < 8:
            return sum(1 << place for place in set(places))
        found = bytearray(len(self._names) // 8 + 1)
        for place in places:
            found[place // 8] |= 1 << place % 8
        return int.from_bytes(found, "little")

    def names(self, bits: int) -> list[str]:
        """The names in a bit set, in order."""
        return list(self.each(bits))

    def each(self, bits: int) -> Iterator[str]:
        """Iterate over the names in a bit set."""
        digits = f"{bits:b}"[::-1]
        place = digits.find("1")
        while place >= 0:
            yield self._names[place]
            place = digits.find("1", place + 1)

    def has(self, bits: int, name: str) -> bool:
        """Whether a name is in a bit set."""
        return bool(bits & self.of((name,)))


@dataclass(frozen=True)
class Effects:
    """The variables that a node reads and writes, including everything inside it, and the blocks it runs."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    indexing: frozenset[str] = frozenset()
    """The variables that index expressions and loop bounds read."""
    calls: frozenset[str] = frozenset()
    """The blocks that it runs. Their effects are not included; ``Reached`` adds them."""

    @property
    def touches(self) -> frozenset[str]:
        """The variables that it reads or writes."""
        return self.reads | self.writes

    def __or__(self, other: "Effects") -> "Effects":
        return Effects(
            self.reads | other.reads,
            self.writes | other.writes,
            self.indexing | other.indexing,
            self.calls | other.calls,
        )


@dataclass(frozen=True)
class Reach:
    """The variables read and written, including by all blocks that are run, as bit sets."""

    reads: int = 0
    writes: int = 0

    @property
    def touches(self) -> int:
        """The variables read or written."""
        return self.reads | self.writes

    def __or__(self, other: "Reach") -> "Reach":
        return Reach(self.reads | other.reads, self.writes | other.writes)


@dataclass(frozen=True)
class Reached:
    """The variables that each block reads and writes, including through the blocks it runs."""

    bits: NameBits
    blocks: Mapping[str, Reach]

    def called(self, effects: Effects) -> Reach:
        """The reach of the blocks that some nodes run."""
        found = Reach()
        for name in effects.calls:
            found |= self.blocks[name]
        return found

    def of(self, effects: Effects) -> Reach:
        """The reach of some nodes, including the blocks that they run."""
        own = Reach(self.bits.of(effects.reads), self.bits.of(effects.writes))
        return own | self.called(effects) if effects.calls else own

    def whole(self, effects: Effects) -> Effects:
        """The effects of some nodes, including those of the blocks that they run."""
        if not effects.calls:
            return effects
        found = self.called(effects)
        return effects | Effects(frozenset(self.bits.each(found.reads)), frozenset(self.bits.each(found.writes)))
