"""Offsets in an arena: requests with overlapping lifetimes get disjoint memory, the others share it.

Greedy orders come first; where none reaches the lower bound, a search does (``openinfer.synth.memory.search``), until
it has found or excluded a better placement or used up a fixed number of steps. The result depends on the requests
alone, never on the clock. Knows nothing of programs.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from openinfer.synth.memory.alignment import aligned
from openinfer.synth.memory.search import Budget, greedy, search
from openinfer.synth.memory.skyline import Component, SearchBudget

GREEDY_STEPS = 3_000_000
"""How many neighbours the greedy orders may look at, all together; the first order always runs to its end."""
SEARCH_STEPS = 600_000
"""How many requests the search may look at, all together."""
MOST_MEETINGS = 512
"""Where requests are alive together with more others than this, on average, they are not compared with each other."""


@dataclass(frozen=True)
class Request:
    """Memory that is needed: how much, and the positions at which it must not be shared."""

    nbytes: int
    lifetime: tuple[tuple[int, int], ...]
    """The first and the last position of each interval; these are in order, and do not touch each other."""
    label: str = ""

    def is_alive(self, position: int) -> bool:
        """Whether it is needed at a position."""
        return any(first <= position <= last for first, last in self.lifetime)


@dataclass(frozen=True)
class Placement:
    """Offsets in the arena, how large it is, and how large it must be at least."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int
    alignment: int
    is_optimal: bool = False
    """Whether no placement is smaller: the bound is met, or the search has excluded everything below the peak."""

    @property
    def gap(self) -> int:
        """How many bytes the arena is above the lower bound."""
        return self.peak - self.lower_bound


def live_bytes(requests: Sequence[Request], alignment: int) -> list[int]:
    """How many bytes are alive at each position.

    >>> live_bytes([Request(64, ((0, 1),)), Request(100, ((1, 2),))], 64)
    [64, 192, 128]
    """
    changes = [0] * (1 + max((request.lifetime[-1][1] + 1 for request in requests if request.lifetime), default=0))
    for request in requests:
        for first, last in request.lifetime:
            changes[first] += aligned(request.nbytes, alignment)
            changes[last + 1] -= aligned(request.nbytes, alignment)
    alive = 0
    found = []
    for change in changes[:-1]:
        alive += change
        found.append(alive)
    return found


def lower_bound(requests: Sequence[Request], alignment: int) -> int:
    """The most bytes that are alive at one position; no request is larger, alive or not."""
    largest = max((aligned(request.nbytes, alignment) for request in requests), default=0)
    return max(largest, max(live_bytes(requests, alignment), default=0))


# --- one arena --------------------------------------------------------------------------------------------------------


def placed(requests: Sequence[Request], alignment: int, steps: int | None = None) -> Placement:
    """Offsets such that what is alive together does not overlap, in an arena as small as was found.

    >>> placed([Request(100, ((0, 1),)), Request(64, ((1, 2),)), Request(100, ((2, 2),))], 64).offsets
    (0, 128, 0)
    """
    least = proven = lower_bound(requests, alignment)
    if _meetings(requests) > MOST_MEETINGS * len(requests):
        offsets = reused(requests, alignment)
        peak = max(
            offset + aligned(request.nbytes, alignment) for request, offset in zip(requests, offsets, strict=True)
        )
        return Placement(tuple(offsets), peak, least, alignment, peak == least)
    components = _components(requests, alignment)
    budget = Budget(SearchBudget(GREEDY_STEPS), SearchBudget(SEARCH_STEPS if steps is None else steps))
    found = [greedy(component, least, budget.greedy) for component in components]
    highest = sorted(range(len(found)), key=lambda number: -components[number].peak(found[number]))
    for number in highest:
        # What one component certainly needs the others may use.
        if components[number].peak(found[number]) > proven:
            result = search(components[number], found[number], proven, alignment, budget)
            found[number], proven = result.offsets, result.at_least
    # What is never alive, or has no bytes, lies at the start.
    offsets = [0] * len(requests)
    peak = least
    for component, own in zip(components, found, strict=True):
        peak = max(peak, component.peak(own))
        for request, offset in zip(component.requests, own, strict=True):
            offsets[request] = offset
    return Placement(tuple(offsets), peak, least, alignment, peak == proven)


def _meetings(requests: Sequence[Request]) -> int:
    """About how many pairs of requests are alive together."""
    changes = sorted(
        change for request in requests for first, last in request.lifetime for change in ((first, 1), (last + 1, -1))
    )
    alive = found = 0
    for _, change in changes:
        found += alive if change > 0 else 0
        alive += change
    return found


def reused(requests: Sequence[Request], alignment: int) -> list[int]:
    """Offsets that take one look at each request: memory is used again by what needs as much, or at least half of it.

    >>> reused([Request(64, ((0, 1),)), Request(64, ((1, 2),)), Request(64, ((2, 3),))], 64)
    [0, 64, 0]
    """
    offsets = [0] * len(requests)
    free: dict[int, list[int]] = {}
    sizes: list[int] = []
    """Those of which something is free."""
    taken: list[tuple[int, int, int]] = []
    top = 0
    alive = [number for number, request in enumerate(requests) if request.nbytes > 0 and request.lifetime]
    for number in sorted(alive, key=lambda one: (requests[one].lifetime[0][0], one)):
        begin, end = requests[number].lifetime[0][0], requests[number].lifetime[-1][1]
        while taken and taken[0][0] < begin:
            _, offset, size = heappop(taken)
            if not free.setdefault(size, []):
                insort(sizes, size)
            heappush(free[size], offset)
        size = aligned(requests[number].nbytes, alignment)
        place = bisect_left(sizes, size)
        if place < len(sizes) and sizes[place] <= 2 * size:
            size = sizes[place]
            offsets[number] = heappop(free[size])
            if not free[size]:
                del sizes[place]
        else:
            offsets[number] = top
            top += size
        heappush(taken, (end, offsets[number], size))
    return offsets


def _components(requests: Sequence[Request], alignment: int) -> list[Component]:
    """Groups of requests whose lifetimes are connected by overlaps; each group is placed by itself."""
    sections, neighbours = _sections(requests)
    group: dict[int, int] = {}
    groups: list[list[int]] = []
    for start in sorted(neighbours):
        if start in group:
            continue
        group[start] = len(groups)
        members = [start]
        for one in members:
            for other in neighbours[one]:
                if other not in group:
                    group[other] = len(groups)
                    members.append(other)
        groups.append(sorted(members))
    own_sections: list[list[list[int]]] = [[] for _ in groups]
    number = {request: place for members in groups for place, request in enumerate(members)}
    for section in sections:
        own_sections[group[section[0]]].append(sorted(number[request] for request in section))
    return [
        Component(
            tuple(members),
            tuple(aligned(requests[one].nbytes, alignment) for one in members),
            tuple(tuple(sorted(number[other] for other in neighbours[one])) for one in members),
            tuple(map(tuple, own)),
        )
        for members, own in zip(groups, own_sections, strict=True)
    ]


def _sections(requests: Sequence[Request]) -> tuple[list[list[int]], dict[int, set[int]]]:
    """The maximal sets of requests alive at once, and which requests are alive together."""
    starts: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    neighbours: dict[int, set[int]] = {}
    for number, request in enumerate(requests):
        if request.nbytes > 0 and request.lifetime:
            neighbours[number] = set()
            for first, last in request.lifetime:
                starts.setdefault(first, []).append(number)
                ends.setdefault(last + 1, []).append(number)
    sections: list[list[int]] = []
    alive: dict[int, None] = {}
    has_grown = False
    for position in sorted({*starts, *ends}):
        if position in ends:
            if has_grown:
                sections.append(list(alive))
                has_grown = False
            for number in ends[position]:
                del alive[number]
        for number in starts.get(position, ()):
            neighbours[number].update(alive)
            for other in alive:
                neighbours[other].add(number)
            alive[number] = None
            has_grown = True
    return sections, neighbours
