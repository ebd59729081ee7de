"""How many clocks something takes: a number, or the least and the most where data decides."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce


@dataclass(frozen=True)
class Clocks:
    """The least and the most; None where nothing bounds it.

    >>> Clocks.of(3) * Clocks.of(4) + Clocks(1, 2)
    Clocks(least=13, most=14)
    """

    least: int = 0
    most: int | None = 0

    @staticmethod
    def of(count: int) -> "Clocks":
        """As many, whatever the data."""
        return Clocks(count, count)

    @property
    def exact(self) -> int | None:
        """The number, if data has no say in it."""
        return self.least if self.least == self.most else None

    def __add__(self, other: "Clocks") -> "Clocks":
        most = None if self.most is None or other.most is None else self.most + other.most
        return Clocks(self.least + other.least, most)

    def __mul__(self, other: "Clocks") -> "Clocks":
        if self.most == 0 or other.most == 0:
            return Clocks()
        most = None if self.most is None or other.most is None else self.most * other.most
        return Clocks(self.least * other.least, most)

    def or_else(self, other: "Clocks") -> "Clocks":
        """One of the two."""
        most = None if self.most is None or other.most is None else max(self.most, other.most)
        return Clocks(min(self.least, other.least), most)

    def without_last(self) -> "Clocks":
        """One less."""
        return Clocks(max(self.least - 1, 0), None if self.most is None else max(self.most - 1, 0))


def either(ways: Iterable[Clocks]) -> Clocks:
    """One of several ways; of none, nothing."""
    found = list(ways)
    return reduce(Clocks.or_else, found) if found else Clocks()
