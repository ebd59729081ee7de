"""Clock counts: a number, or the least and the most where they depend on data."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce


@dataclass(frozen=True)
class Clocks:
    """The least and the most clocks; ``most`` is None if unbounded.

    >>> Clocks.of(3) * Clocks.of(4) + Clocks(1, 2)
    Clocks(least=13, most=14)
    """

    least: int = 0
    most: int | None = 0

    @staticmethod
    def of(count: int) -> "Clocks":
        """An exact count, whatever the data."""
        return Clocks(count, count)

    @property
    def exact(self) -> int | None:
        """The count if it does not depend on data, else None."""
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
        """Bounds for either alternative."""
        most = None if self.most is None or other.most is None else max(self.most, other.most)
        return Clocks(min(self.least, other.least), most)

    def without_last(self) -> "Clocks":
        """One clock less."""
        return Clocks(max(self.least - 1, 0), None if self.most is None else max(self.most - 1, 0))


def either(ways: Iterable[Clocks]) -> Clocks:
    """Bounds for one of several alternatives; zero clocks without any."""
    found = list(ways)
    return reduce(Clocks.or_else, found) if found else Clocks()
