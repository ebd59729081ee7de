"""Sets of positions as intervals, so that a long lifetime takes no more space than a short one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """Positions as disjoint intervals in ascending order; adjacent intervals are merged. A set never changes.

    >>> IntervalSet([(5, 6), (0, 0), (1, 2)])
    IntervalSet([(0, 2), (5, 6)])
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, intervals: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in intervals:
            self._add(first, last)

    def _add(self, first: int, last: int) -> None:
        """Add the positions from ``first`` to ``last``, inclusive, while the set is being made."""
        firsts, lasts = self._firsts, self._lasts
        # The intervals that this one overlaps or adjoins: they end no earlier than it begins, and begin no later than
        # it ends.
        begin = bisect_left(lasts, first - 1)
        end = bisect_right(firsts, last + 1)
        if begin < end:
            first, last = min(first, firsts[begin]), max(last, lasts[end - 1])
        firsts[begin:end] = [first]
        lasts[begin:end] = [last]

    def union(self, more: Iterable[tuple[int, int]]) -> "IntervalSet":
        """The set with the positions of more intervals; cheapest if these are fewer.

        >>> IntervalSet([(0, 1), (5, 6)]).union([(2, 3)])
        IntervalSet([(0, 3), (5, 6)])
        """
        made = IntervalSet()
        made._firsts, made._lasts = self._firsts[:], self._lasts[:]
        for first, last in more:
            made._add(first, last)
        return made

    def overlaps(self, other: "IntervalSet", forgiven: int | None = None) -> bool:
        """Whether the sets share a position other than ``forgiven``.

        >>> one, other = IntervalSet([(0, 4)]), IntervalSet([(4, 9)])
        >>> one.overlaps(other), one.overlaps(other, 4)
        (True, False)
        """
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        for first, last in few:
            place = bisect_left(many._lasts, first)
            while place < len(many) and many._firsts[place] <= last:
                begin, end = max(first, many._firsts[place]), min(last, many._lasts[place])
                if forgiven is None or (begin, end) != (forgiven, forgiven):
                    return True
                place += 1
        return False

    def meets(self, positions: list[int]) -> bool:
        """Whether the set contains any of ``positions``, which must be in ascending order."""
        for first, last in self:
            place = bisect_left(positions, first)
            if place < len(positions) and positions[place] <= last:
                return True
        return False

    def reversed(self, last: int) -> "IntervalSet":
        """The set with positions counted from the other end.

        >>> IntervalSet([(0, 1), (4, 4)]).reversed(5)
        IntervalSet([(1, 1), (4, 5)])
        """
        made = IntervalSet()
        made._firsts = [last - one for one in reversed(self._lasts)]
        made._lasts = [last - one for one in reversed(self._firsts)]
        return made

    @property
    def order(self) -> list[tuple[int, int]]:
        """A sort key: sets are ordered as the integers whose set bits are their positions."""
        return [(last, -first) for first, last in zip(reversed(self._firsts), reversed(self._lasts), strict=True)]

    @property
    def end(self) -> int:
        """One more than the last position; 0 if empty."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def __contains__(self, position: int) -> bool:
        place = bisect_left(self._lasts, position)
        return place < len(self) and self._firsts[place] <= position

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and self._firsts == other._firsts and self._lasts == other._lasts

    def __hash__(self) -> int:
        return hash((*self._firsts, *self._lasts))

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"
