"""Stacks requests within a capacity: the exact part of the memory planner.

Requests are placed from the bottom upwards, each on the skyline of those below it, so a search state is an order rather
than a set of offsets; every arena in which nothing can move down is reached this way. A branch is pruned when, at some
position, the remaining requests no longer fit within the capacity.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_VISITS = 16
"""The average number of requests that a step may visit."""


class SearchBudget:
    """A budget of steps, and of requests visited on the way."""

    def __init__(self, count: int) -> None:
        self.left = count
        self._visits = _VISITS * count

    @property
    def used_up(self) -> bool:
        """Whether the budget is exhausted."""
        return self.left <= 0 or self._visits <= 0

    def visit(self, count: int) -> None:
        """Count visited requests."""
        self._visits -= count

    def use(self, count: int) -> None:
        """Use up steps."""
        self.left -= count

    def taken(self, count: int) -> "SearchBudget":
        """Move up to ``count`` steps to a budget of their own; unused ones can be given back."""
        own = SearchBudget(min(count, self.left))
        self.left -= own.left
        return own


@dataclass(frozen=True)
class Component:
    """Requests with local numbers: sizes, which of them overlap in time, and the maximal sets live at once."""

    requests: tuple[int, ...]
    """The global number of each request."""
    sizes: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]
    sections: tuple[tuple[int, ...], ...]
    """The maximal sets of requests live at once, in time order."""

    @cached_property
    def sections_of(self) -> tuple[tuple[int, ...], ...]:
        """The sections that contain each request."""
        found: list[list[int]] = [[] for _ in self.sizes]
        for number, section in enumerate(self.sections):
            for one in section:
                found[one].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def orders(self) -> tuple[list[int], ...]:
        """Orders of the requests, hardest to place first by different measures."""
        loads = [sum(self.sizes[one] for one in section) for section in self.sections]
        load = [max(loads[number] for number in own) for own in self.sections_of]
        length = [len(own) for own in self.sections_of]
        size = self.sizes
        everyone = range(len(size))
        return (
            sorted(everyone, key=lambda one: (-size[one], -length[one], one)),
            sorted(everyone, key=lambda one: (-size[one] * length[one], -size[one], one)),
            sorted(everyone, key=lambda one: (-load[one], -size[one] * length[one], one)),
            sorted(everyone, key=lambda one: (-length[one], -size[one], one)),
            sorted(everyone, key=lambda one: (self.sections_of[one][0], -size[one], one)),
        )

    def peak(self, offsets: Sequence[int]) -> int:
        """The end of the highest request."""
        return max(offset + size for offset, size in zip(offsets, self.sizes, strict=True))

    def only(self, members: Iterable[int]) -> "Component":
        """The component of some of the requests; their global numbers are their local ones here."""
        own = sorted(members)
        number = {one: place for place, one in enumerate(own)}
        sections: list[set[int]] = []
        for section in self.sections:
            left = {number[one] for one in section if one in number}
            if sections and left <= sections[-1]:
                continue
            while sections and sections[-1] <= left:
                sections.pop()
            sections.append(left)
        return Component(
            tuple(own),
            tuple(self.sizes[one] for one in own),
            tuple(tuple(number[other] for other in self.neighbours[one] if other in number) for one in own),
            tuple(tuple(sorted(section)) for section in sections if section),
        )


@dataclass(frozen=True)
class Answer:
    """Offsets within a capacity, or None: provably impossible (``is_excluded``), or just not found."""

    offsets: tuple[int, ...] | None
    is_excluded: bool = False


def stacked(component: Component, capacity: int, steps: SearchBudget) -> Answer:
    """Offsets within a capacity: tries every order briefly, then every order for longer."""
    limit = 8 * len(component.sizes) ** 2
    while True:
        for order in component.orders:
            own = steps.taken(limit)
            answer = _SearchTree(component, capacity, order).run(own)
            steps.use(-own.left)
            if answer.offsets is not None or answer.is_excluded or steps.used_up:
                return answer
        limit *= 4


class _SearchTree:
    """One search over the orders in which requests can be stacked, in ascending order of their offsets."""

    def __init__(self, component: Component, capacity: int, order: Sequence[int]) -> None:
        self._component = component
        self._capacity = capacity
        self._rank = {one: rank for rank, one in enumerate(order)}
        self._left = set(order)
        self._offset = [-1] * len(order)
        self._low = [0] * len(order)
        """The height of the skyline below each request, until it is placed."""
        self._rest = [sum(component.sizes[one] for one in section) for section in component.sections]
        """The total size of the requests of each section that are not placed yet."""
        self._placed: list[tuple[int, list[tuple[int, int]]]] = []
        """The placed requests, each with the requests it lifted and their previous heights."""

    def run(self, steps: SearchBudget) -> Answer:
        """Search until success, exhaustion, or the end of the budget."""
        stack = [self._candidates(steps)]
        while stack:
            one = next(stack[-1], None)
            if one is None:
                stack.pop()
                if self._placed:
                    self._backtrack()
            elif not self._place(one, steps):
                self._backtrack()
            elif not self._left:
                return Answer(tuple(self._offset))
            elif steps.used_up:
                return Answer(None)
            else:
                stack.append(self._candidates(steps))
        return Answer(None, is_excluded=True)

    def _candidates(self, steps: SearchBudget) -> Iterator[int]:
        """The requests that can come next, lowest first."""
        sizes, low, left = self._component.sizes, self._low, self._left
        steps.use(len(left))
        last = self._placed[-1][0] if self._placed else None
        bottom = (-1, -1) if last is None else (self._offset[last], self._rank[last])
        # A request so high that another would fit below it must wait for that one. And all remaining requests of a
        # section lie above the next one.
        under = min(low[one] + sizes[one] for one in left)
        most = self._capacity - max(self._rest)
        found = [(low[one], self._rank[one], one) for one in left if low[one] < under and low[one] <= most]
        return iter([one for offset, rank, one in sorted(found) if (offset, rank) > bottom])

    def _place(self, one: int, steps: SearchBudget) -> bool:
        """Put a request on the skyline; returns whether everything may still fit."""
        component, low, left = self._component, self._low, self._left
        left.remove(one)
        offset = self._offset[one] = low[one]
        top = offset + component.sizes[one]
        lifted = [(other, low[other]) for other in component.neighbours[one] if other in left and low[other] < top]
        for other, _ in lifted:
            low[other] = top
        for section in component.sections_of[one]:
            self._rest[section] -= component.sizes[one]
        self._placed.append((one, lifted))
        touched = set(component.sections_of[one])
        for other, _ in lifted:
            touched.update(component.sections_of[other])
        steps.use(len(touched))
        return all(self._fits(section, offset, steps) for section in touched)

    def _fits(self, section: int, offset: int, steps: SearchBudget) -> bool:
        """Whether the rest of a section may fit above its lowest skyline."""
        low = self._low
        steps.visit(len(self._component.sections[section]))
        lows = [low[one] for one in self._component.sections[section] if one in self._left]
        return not lows or max(min(lows), offset) + self._rest[section] <= self._capacity

    def _backtrack(self) -> None:
        """Remove the last placement."""
        one, lifted = self._placed.pop()
        for other, before in lifted:
            self._low[other] = before
        for section in self._component.sections_of[one]:
            self._rest[section] += self._component.sizes[one]
        self._left.add(one)
