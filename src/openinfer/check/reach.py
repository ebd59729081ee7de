"""What blocks touch through the blocks they run: sets that many blocks have nearly the same of.

A set is an integer with a bit for each variable. A graph may have thousands of blocks that each touch thousands of
variables, one through the other: as sets of names these would need the square of the text.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MOST_REACHED = 1 << 30
"""How many blocks, times variables, a graph may have."""


class NameBits:
    """Names as bits of integers, in their own order.

    >>> bits = NameBits(["y", "x", "z"])
    >>> bits.of(["z", "x"]), bits.names(5), 5 & bits.of("y")
    (5, ['x', 'z'], 0)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        self._places = {name: place for place, name in enumerate(self._names)}

    def of(self, names: Iterable[str]) -> int:
        """The bits of some names; those that it does not know have none."""
        places = [self._places[name] for name in names if name in self._places]
        if len(places) < 8:
            return sum(1 << place for place in set(places))
        found = bytearray(len(self._names) // 8 + 1)
        for place in places:
            found[place // 8] |= 1 << place % 8
        return int.from_bytes(found, "little")

    def names(self, bits: int) -> list[str]:
        """The names of some bits, in order."""
        return list(self.each(bits))

    def each(self, bits: int) -> Iterator[str]:
        """The names of some bits, one after the other."""
        digits = f"{bits:b}"[::-1]
        place = digits.find("1")
        while place >= 0:
            yield self._names[place]
            place = digits.find("1", place + 1)

    def has(self, bits: int, name: str) -> bool:
        """Whether a name is among some bits."""
        return bool(bits & self.of((name,)))


@dataclass(frozen=True)
class Effects:
    """The variables a node reads and writes, everything inside it included; and the blocks it runs."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    indexing: frozenset[str] = frozenset()
    """Those that index expressions and loop bounds read."""
    calls: frozenset[str] = frozenset()
    """The blocks that it runs, whose own effects are not among these: ``Reached`` adds them."""

    @property
    def touches(self) -> frozenset[str]:
        """Both."""
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
    """The variables that something reads and writes, with every block it runs, as bits."""

    reads: int = 0
    writes: int = 0

    @property
    def touches(self) -> int:
        """Both."""
        return self.reads | self.writes

    def __or__(self, other: "Reach") -> "Reach":
        return Reach(self.reads | other.reads, self.writes | other.writes)


@dataclass(frozen=True)
class Reached:
    """What each block reads and writes, the blocks that it runs included."""

    bits: NameBits
    blocks: Mapping[str, Reach]

    def called(self, effects: Effects) -> Reach:
        """What the blocks do that some nodes run."""
        found = Reach()
        for name in effects.calls:
            found |= self.blocks[name]
        return found

    def of(self, effects: Effects) -> Reach:
        """What some nodes do, and the blocks that they run."""
        own = Reach(self.bits.of(effects.reads), self.bits.of(effects.writes))
        return own | self.called(effects) if effects.calls else own

    def whole(self, effects: Effects) -> Effects:
        """The effects of some nodes with those of the blocks that they run among their own."""
        if not effects.calls:
            return effects
        found = self.called(effects)
        return effects | Effects(frozenset(self.bits.each(found.reads)), frozenset(self.bits.each(found.writes)))
