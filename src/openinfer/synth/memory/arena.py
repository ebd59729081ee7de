"""Places requests in an arena: those with overlapping lifetimes get disjoint memory, others share it.

Greedy orders come first. If none reaches the lower bound, a search runs (``openinfer.synth.memory.search``) until it
has found or excluded a better placement, or used up a fixed number of steps. The result depends on the requests alone,
never on the clock. Knows nothing of programs.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from openinfer.synth.memory.alignment import aligned
from openinfer.synth.memory.search import Budget, greedy, search
from openinfer.synth.memory.skyline import Component, SearchBudget

GREEDY_STEPS = 3_000_000
"""The most neighbors that all greedy orders together may visit; the first order always completes."""
SEARCH_STEPS = 600_000
"""The most requests that the search may visit in all."""
MOST_MEETINGS = 512
"""If requests overlap more others than this on average, they are not compared pairwise."""


@dataclass(frozen=True)
class Request:
    """A request for memory: its size, and the positions at which it is live."""

    nbytes: int
    lifetime: tuple[tuple[int, int], ...]
    """The first and last position of each interval; intervals are sorted and not adjacent."""
    label: str = ""
    variables: str = ""
    """The names in the graph that the label ends with: they are shown where it has no room."""

    def is_alive(self, position: int) -> bool:
        """Whether it is live at a position."""
        return any(first <= position <= last for first, last in self.lifetime)


@dataclass(frozen=True)
class Placement:
    """Offsets in the arena, its size, and the lower bound of its size."""

    offsets: tuple[int, ...]
    peak: int
    lower_bound: int
    alignment: int
    is_optimal: bool = False
    """Whether no smaller placement exists: the bound is met, or the search has excluded everything below the peak."""

    @property
    def gap(self) -> int:
        """The number of bytes by which the arena exceeds the lower bound."""
        return self.peak - self.lower_bound


def live_bytes(requests: Sequence[Request], alignment: int) -> list[int]:
    """The number of live bytes at each position.

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
    """The most bytes that are live at one position, or the largest request if that is never live."""
    largest = max((aligned(request.nbytes, alignment) for request in requests), default=0)
    return max(largest, max(live_bytes(requests, alignment), default=0))


# --- one arena --------------------------------------------------------------------------------------------------------


def placed(requests: Sequence[Request], alignment: int, steps: int | None = None) -> Placement:
    """Offsets such that requests with overlapping lifetimes do not overlap, in the smallest arena found.

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
        # The others may use as much as one component provably needs.
        if components[number].peak(found[number]) > proven:
            result = search(components[number], found[number], proven, alignment, budget)
            found[number], proven = result.offsets, result.at_least
    # Requests that are empty or never live stay at offset 0.
    offsets = [0] * len(requests)
    peak = least
    for component, own in zip(components, found, strict=True):
        peak = max(peak, component.peak(own))
        for request, offset in zip(component.requests, own, strict=True):
            offsets[request] = offset
    return Placement(tuple(offsets), peak, least, alignment, peak == proven)


def _meetings(requests: Sequence[Request]) -> int:
    """The approximate number of pairs of requests that are live together."""
    changes = sorted(
        change for request in requests for first, last in request.lifetime for change in ((first, 1), (last + 1, -1))
    )
    alive = found = 0
    for _, change in changes:
        found += alive if change > 0 else 0
        alive += change
    return found


def reused(requests: Sequence[Request], alignment: int) -> list[int]:
    """Offsets in one pass: memory is reused for requests of the same size, or at least half of it.

    >>> reused([Request(64, ((0, 1),)), Request(64, ((1, 2),)), Request(64, ((2, 3),))], 64)
    [0, 64, 0]
    """
    offsets = [0] * len(requests)
    free: dict[int, list[int]] = {}
    sizes: list[int] = []
    """The sizes of which there are free blocks, sorted."""
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
    """Connected components of requests with overlapping lifetimes; each is placed on its own."""
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
    """The maximal sets of requests live at once, and the neighbors of each request."""
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
