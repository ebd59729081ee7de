"""The search for a smaller arena.

Requests are placed from the bottom upwards, each on the skyline of those below it, so that a state is an order and not
a set of offsets; every arena that cannot be made lower is reached this way. A branch ends where, at some position, what
is still to come cannot fit under the capacity any more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property


class Steps:
    """A number of steps that may be used up."""

    def __init__(self, count: int) -> None:
        self.left = count

    @property
    def used_up(self) -> bool:
        """Whether none are left."""
        return self.left <= 0

    def use(self, count: int) -> None:
        """Some steps less."""
        self.left -= count


@dataclass(frozen=True)
class Component:
    """Requests by numbers of their own: sizes, who is alive together with whom, and the largest sets alive at once."""

    requests: tuple[int, ...]
    """The number of each outside."""
    sizes: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]
    sections: tuple[tuple[int, ...], ...]

    @cached_property
    def sections_of(self) -> tuple[tuple[int, ...], ...]:
        """The sections each request is in."""
        found: list[list[int]] = [[] for _ in self.sizes]
        for number, section in enumerate(self.sections):
            for one in section:
                found[one].append(number)
        return tuple(map(tuple, found))

    def peak(self, offsets: Sequence[int]) -> int:
        """Where the highest request ends."""
        return max(offset + size for offset, size in zip(offsets, self.sizes, strict=True))

    def orders(self) -> list[list[int]]:
        """Ways to go through the requests: what is hard to place first."""
        loads = [sum(self.sizes[one] for one in section) for section in self.sections]
        load = [max(loads[number] for number in own) for own in self.sections_of]
        length = [len(own) for own in self.sections_of]
        start = [own[0] for own in self.sections_of]
        size = self.sizes
        area = [one * other for one, other in zip(size, length, strict=True)]
        keys = (
            lambda one: (-size[one], -length[one]),
            lambda one: (-area[one], -size[one]),
            lambda one: (-load[one], -area[one]),
            lambda one: (-length[one], -size[one]),
            lambda one: (start[one], -size[one]),
        )
        return [sorted(range(len(size)), key=lambda one, key=key: (key(one), one)) for key in keys]  # type: ignore[misc]


@dataclass(frozen=True)
class Result:
    """The best offsets, and a size below which there is certainly no placement."""

    offsets: tuple[int, ...]
    at_least: int


def search(component: Component, best: tuple[int, ...], least: int, unit: int, steps: Steps) -> Result:
    """A placement smaller than the best one, down to the least size; sizes are multiples of a unit."""
    # The least size first, as it is nearly always possible; then by halves between what is possible and what is not, or
    # was not found. Each try gets half of the steps that are left.
    low = capacity = least
    while low < component.peak(best) and steps.left >= 2 * len(component.sizes):
        share = Steps(steps.left // 2)
        found = _under(component, capacity, share)
        steps.use(steps.left // 2 - share.left)
        if found.offsets is not None:
            best = found.offsets
        else:
            low = capacity + unit
            least = low if found.is_excluded else least
        capacity = low + (component.peak(best) - low) // (2 * unit) * unit
    return Result(best, least)


@dataclass(frozen=True)
class _Answer:
    """Offsets under a capacity, or None: there are none, or none were found."""

    offsets: tuple[int, ...] | None
    is_excluded: bool


def _under(component: Component, capacity: int, steps: Steps) -> _Answer:
    """Offsets under a capacity: every order for a while, then every order for longer."""
    orders = component.orders()
    limit = 8 * len(component.sizes) ** 2
    while True:
        for order in orders:
            own = Steps(min(limit, steps.left))
            steps.use(own.left)
            answer = _Tree(component, capacity, order).run(own)
            steps.use(-own.left)
            if answer.offsets is not None or answer.is_excluded or steps.used_up:
                return answer
        limit *= 4


class _Tree:
    """One search through the orders in which requests can be stacked, in ascending order of their offsets."""

    def __init__(self, component: Component, capacity: int, order: Sequence[int]) -> None:
        self._component = component
        self._capacity = capacity
        self._rank = {one: rank for rank, one in enumerate(order)}
        self._left = dict.fromkeys(order)
        self._offset = [-1] * len(order)
        self._low = [0] * len(order)
        """How high the skyline under each request is, until it is placed."""
        self._rest = [sum(component.sizes[one] for one in section) for section in component.sections]
        """What is still to be placed of each section."""
        self._placed: list[tuple[int, list[tuple[int, int]]]] = []
        """The requests that are placed, each with the requests it lifted and how high those were before."""

    def run(self, steps: Steps) -> _Answer:
        """The search, until it succeeds, has seen everything, or used up its steps."""
        stack = [self._candidates(steps)]
        while stack:
            one = next(stack[-1], None)
            if one is None:
                stack.pop()
                if self._placed:
                    self._take_back()
            elif not self._place(one, steps):
                self._take_back()
            elif not self._left:
                return _Answer(tuple(self._offset), is_excluded=False)
            elif steps.used_up:
                return _Answer(None, is_excluded=False)
            else:
                stack.append(self._candidates(steps))
        return _Answer(None, is_excluded=True)

    def _candidates(self, steps: Steps) -> Iterator[int]:
        """The requests that can come next, from the lowest."""
        sizes, low, left = self._component.sizes, self._low, self._left
        steps.use(len(left))
        last = self._placed[-1][0] if self._placed else None
        bottom = (-1, -1) if last is None else (self._offset[last], self._rank[last])
        # Below what could still slip in there is no point in leaving a hole; and everything of a section that is still
        # to come lies above what comes now.
        under = min(low[one] + sizes[one] for one in left)
        most = self._capacity - max(self._rest)
        found = [(low[one], self._rank[one], one) for one in left if low[one] < under and low[one] <= most]
        return iter([one for offset, rank, one in sorted(found) if (offset, rank) > bottom])

    def _place(self, one: int, steps: Steps) -> bool:
        """Put a request on the skyline; whether everything may still fit."""
        component, low = self._component, self._low
        offset = self._offset[one] = low[one]
        top = offset + component.sizes[one]
        del self._left[one]
        lifted = [(other, low[other]) for other in component.neighbours[one] if other in self._left and low[other] < top]
        for other, _ in lifted:
            low[other] = top
        for section in component.sections_of[one]:
            self._rest[section] -= component.sizes[one]
        self._placed.append((one, lifted))
        touched = {*component.sections_of[one], *(number for other, _ in lifted for number in component.sections_of[other])}
        steps.use(len(touched))
        return all(self._fits(section, offset) for section in touched)

    def _fits(self, section: int, offset: int) -> bool:
        low = self._low
        lows = [low[one] for one in self._component.sections[section] if one in self._left]
        return not lows or max(min(lows), offset) + self._rest[section] <= self._capacity

    def _take_back(self) -> None:
        """Undo the last placement."""
        one, lifted = self._placed.pop()
        for other, before in lifted:
            self._low[other] = before
        for section in self._component.sections_of[one]:
            self._rest[section] += self._component.sizes[one]
        self._offset[one] = -1
        self._left[one] = None
