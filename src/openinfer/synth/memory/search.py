"""Finds a small arena for requests that overlap in time: greedy orders, and a search that improves on them.

The search takes the requests that exceed a capacity, with all their neighbors, and stacks them exactly
(``openinfer.synth.memory.skyline``); the others are fitted around them. Requests that now exceed it join the stack,
until none does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from openinfer.synth.memory.skyline import Answer, Component, SearchBudget, stacked

Gap = Callable[[int, list[tuple[int, int]]], int]
"""Chooses an offset for a number of bytes, given the sorted intervals that are taken."""


@dataclass(frozen=True)
class Budget:
    """The remaining steps: neighbors that greedy orders may visit, and requests that the search may visit."""

    greedy: SearchBudget
    search: SearchBudget


def first_gap(size: int, taken: list[tuple[int, int]]) -> int:
    """First fit: the lowest offset.

    >>> first_gap(10, [(0, 10), (30, 40), (50, 60)])
    10
    """
    offset = 0
    for start, end in taken:
        if offset + size <= start:
            break
        offset = max(offset, end)
    return offset


def best_gap(size: int, taken: list[tuple[int, int]]) -> int:
    """Best fit: the offset in the smallest gap; on top of everything if no gap fits.

    >>> best_gap(10, [(0, 10), (30, 40), (50, 60)])
    40
    """
    offset, best, spare = 0, -1, 0
    for start, end in taken:
        if offset + size <= start and (best < 0 or start - offset < spare):
            best, spare = offset, start - offset
        offset = max(offset, end)
    return offset if best < 0 else best


def greedy(component: Component, enough: int, steps: SearchBudget) -> tuple[int, ...]:
    """The best greedy placement, or the first that is good enough."""
    best: tuple[int, ...] | None = None
    for offsets in _placements(component, {}, steps):
        if best is None or component.peak(offsets) < component.peak(best):
            best = offsets
        if component.peak(best) <= enough:
            break
    assert best is not None
    return best


def _placements(component: Component, fixed: Mapping[int, int], steps: SearchBudget) -> Iterator[tuple[int, ...]]:
    """Placements around fixed offsets: each order with each gap strategy, while steps remain."""
    for order in component.orders:
        for gap in (first_gap, best_gap):
            yield _placed_in_gaps(component, fixed, order, gap, steps)
            if steps.used_up:
                return


def _placed_in_gaps(
    component: Component, fixed: Mapping[int, int], order: Sequence[int], gap: Gap, steps: SearchBudget
) -> tuple[int, ...]:
    """Places one request after another into a gap between those already placed."""
    sizes = component.sizes
    offsets = [fixed.get(one, -1) for one in range(len(sizes))]
    for own in order:
        if own in fixed:
            continue
        neighbours = component.neighbours[own]
        taken = [(offsets[one], offsets[one] + sizes[one]) for one in neighbours if offsets[one] >= 0]
        taken.sort()
        offsets[own] = gap(sizes[own], taken)
        steps.use(len(neighbours))
    return tuple(offsets)


@dataclass(frozen=True)
class Found:
    """The best offsets, and a proven lower bound of the size."""

    offsets: tuple[int, ...]
    at_least: int


def search(component: Component, best: tuple[int, ...], least: int, unit: int, budget: Budget) -> Found:
    """A placement smaller than the best one, down to the least size; sizes are multiples of ``unit``."""
    # Try the least size first, as it is nearly always possible; then bisect between sizes that are possible and those
    # that are not or were not found. Each attempt gets half of the remaining steps.
    low = capacity = least
    while low < component.peak(best) and budget.search.left >= 2 * len(component.sizes) and not budget.greedy.used_up:
        share = budget.search.taken(budget.search.left // 2)
        answer = _under(component, capacity, Budget(budget.greedy, share))
        budget.search.use(-share.left)
        if answer.offsets is not None:
            best = answer.offsets
        else:
            low = capacity + unit
            least = low if answer.is_excluded else least
        capacity = low + (component.peak(best) - low) // (2 * unit) * unit
    return Found(best, least)


def _under(component: Component, capacity: int, budget: Budget) -> Answer:
    """Offsets within a capacity: critical requests are stacked exactly, the others fitted around them."""
    fixed: dict[int, int] = {}
    while True:
        offsets, above = _least_above(component, capacity, fixed, budget.greedy)
        if not above:
            return Answer(offsets)
        if budget.search.used_up or budget.greedy.used_up:
            return Answer(None)
        core = component.only({*fixed, *above, *(other for one in above for other in component.neighbours[one])})
        answer = stacked(core, capacity, budget.search)
        if answer.offsets is None:
            return answer
        fixed = dict(zip(core.requests, answer.offsets, strict=True))


def _least_above(
    component: Component, capacity: int, fixed: Mapping[int, int], steps: SearchBudget
) -> tuple[tuple[int, ...], list[int]]:
    """The placement with the fewest requests above a capacity, and these requests."""
    best: tuple[tuple[int, ...], list[int]] | None = None
    for offsets in _placements(component, fixed, steps):
        above = [one for one, offset in enumerate(offsets) if offset + component.sizes[one] > capacity]
        if best is None or len(above) < len(best[1]):
            best = (offsets, above)
        if not above:
            break
    assert best is not None
    return best
