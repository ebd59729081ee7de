"""The clocks of a contraction on lanes, found by simulating its state clock by clock until it repeats."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LaneTiming:
    """What determines when terms are issued and results are stored."""

    positions: int
    """The number of passes over all blocks of features."""
    blocks: tuple[int, ...]
    """The results of each block."""
    terms: int
    interval: int
    """Clocks from one result to the next."""
    depth: int
    """The last stage of a result."""
    asks: frozenset[int]
    """The stages of a result in which no term can be issued."""


TERM_STAGES = 4
"""Clocks from issuing the last term until its sum is complete."""


def lane_clocks(timing: LaneTiming) -> int:
    """The clocks spent in the pipelined state.

    >>> lane_clocks(LaneTiming(1, (1,), 9, 1, 3, frozenset({3})))
    17
    """
    run = _LaneRun(timing)
    seen: dict[tuple[object, ...], tuple[int, int]] = {}
    position = 0
    while position < timing.positions:
        state = run.state
        if state in seen:
            before, clock = seen.pop(state)
            times = (timing.positions - position - 1) // (position - before)
            if times > 0:
                run.clock += times * (run.clock - clock)
                position += times * (position - before)
                seen.clear()
                continue
        else:
            seen[state] = position, run.clock
        run.position()
        position += 1
    run.is_running = False
    while not run.is_over:
        run.step()
    return run.clock


class _LaneRun:
    """Simulates the registers of the circuit."""

    def __init__(self, timing: LaneTiming) -> None:
        self.timing = timing
        self.clock = 0
        self.is_running = True
        self.tokens = [False] * timing.depth
        self.lasts = [False] * TERM_STAGES
        """Per term stage, whether the last term of a block has reached it."""
        self.begun = [False] * 2
        self.left = self.gap = self.waiting = 0
        self.is_busy = False

    @property
    def state(self) -> tuple[object, ...]:
        return (*self.tokens, *self.lasts, *self.begun, self.left, self.gap, self.waiting, self.is_busy)

    @property
    def is_over(self) -> bool:
        return not (self.is_busy or any(self.tokens) or any(self.lasts) or any(self.begun))

    def position(self) -> None:
        for count in self.timing.blocks:
            for term in range(self.timing.terms):
                is_last = term == self.timing.terms - 1
                while not self.step(wants=True, is_last=is_last, count=count):
                    pass

    def step(self, *, wants: bool = False, is_last: bool = False, count: int = 0) -> bool:
        """Simulate a clock; returns whether a term was issued in it."""
        timing = self.timing
        is_taken = any(self.tokens[stage - 1] for stage in timing.asks if stage)
        begins = self.left > 0 and self.gap == 0
        is_taken |= begins and 0 in timing.asks
        self.tokens = ([begins, *self.tokens[:-1]]) if self.tokens else []
        if begins:
            self.left -= 1
            self.gap = timing.interval - 1
        elif self.gap:
            self.gap -= 1
        if not (self.left or self.waiting or any(self.tokens)):
            self.is_busy = False
        if self.lasts[-1]:
            self.left, self.gap, self.waiting = self.waiting, 0, 0
        begun = wants and not is_taken and not (is_last and self.is_busy)
        self.lasts = [begun and is_last, *self.lasts[:-1]]
        self.begun = [begun, *self.begun[:-1]]
        if begun and is_last:
            self.is_busy, self.waiting = True, count
        self.clock += 1
        return begun
