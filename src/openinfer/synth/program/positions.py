"""Numbers the steps of a program backwards; a block gets its positions at the first call encountered.

A step, the steps inside it and the blocks that it is the first to call have consecutive positions. Any further call of
a block refers to positions elsewhere: what is live at such a call is live there too.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from openinfer.synth.program.interval_set import IntervalSet
from openinfer.synth.program.ir import BranchStep, CallStep, LoopStep, Mark, Program, Step, steps_in

_MOST_INTERVALS = 32
"""Values live at many calls of scattered blocks also count as live in the smallest gaps between them."""


def called_by(step: Step) -> tuple[str, ...]:
    """The blocks that a step runs."""
    match step:
        case BranchStep(then_block=then, else_block=otherwise):
            return (then,) if otherwise is None or otherwise == then else (then, otherwise)
        case CallStep(block=block):
            return (block,)
        case _:
            return ()


def callees_first(program: Program) -> tuple[str, ...]:
    """The blocks, each after those that it runs, and entry last. Not recursive: a chain may exceed Python's limit."""
    found: dict[str, None] = {}
    for name in sorted(program.blocks, key="entry".__eq__):
        path = [] if name in found else [(name, _called(program, name))]
        while path:
            block, called = path[-1]
            missing = next((one for one in called if one not in found), None)
            if missing is None:
                found[block] = None
                path.pop()
            else:
                path.append((missing, _called(program, missing)))
    return tuple(found)


def _called(program: Program, block: str) -> Iterator[str]:
    return (one for step in steps_in(program.blocks[block]) for one in called_by(step))


class Positions:
    """The position of each step, and those elsewhere that belong to it. Marks have no positions of their own."""

    def __init__(self, program: Program) -> None:
        self.steps: list[Step] = []
        self.blocks: list[str] = []
        """The blocks that are run, each before those that it calls."""
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._regions: dict[str, tuple[int, int]] = {}
        self._calls: dict[int, list[str]] = {}
        """By the position of a call: the blocks it runs that have their positions elsewhere."""
        self._called: dict[str, dict[str, None]] = {}
        self._number(program)
        self._reach = self._reaches()
        self._places = sorted(self._calls)
        self._tree = _UnionTree([_union(*(self._reach[name] for name in self._calls[place])) for place in self._places])

    def first(self, step: Step) -> int:
        """The position of a step; for a mark, that of the step before it."""
        return self._first[id(step)]

    def last(self, step: Step) -> int:
        """The last position of a step and everything inside it."""
        return self._last[id(step)]

    def body(self, loop: LoopStep) -> tuple[int, int]:
        """The first and last position of a loop's body; last < first if it is empty."""
        return self.first(loop) + 1, self.last(loop)

    def region(self, block: str) -> tuple[int, int]:
        """The first and last position of a block; last < first if it has no steps."""
        return self._regions[block]

    def reach(self, block: str) -> IntervalSet:
        """The positions of a block and of everything it calls."""
        return self._reach[block]

    def elsewhere(self, first: int, last: int) -> Iterator[IntervalSet]:
        """The positions elsewhere of blocks that are called between two positions."""
        begin, end = bisect_left(self._places, first), bisect_right(self._places, last)
        return self._tree.between(begin, end)

    def _number(self, program: Program) -> None:
        """Number steps in a backward walk. The stack is explicit: calls may exceed Python's recursion limit."""
        # Work items: a step to number, the end of a step or block, or a block to enter from a call.
        todo: list[tuple[str, Step | None, str]] = [("enter", None, "entry")]
        order: list[str] = []
        while todo:
            what, step, name = todo.pop()
            if what == "enter":
                if name in self._regions:
                    if step is not None:
                        self._calls.setdefault(self.first(step), []).append(name)
                    continue
                self._regions[name] = (len(self.steps), -1)
                self._called[name] = {}
                todo.append(("leave", None, name))
                todo += [("step", one, name) for one in program.blocks[name]]
            elif what == "leave":
                self._regions[name] = (self._regions[name][0], len(self.steps) - 1)
                order.append(name)
            elif what == "end":
                self._last[id(step)] = len(self.steps) - 1
            elif step is not None:
                self._first[id(step)] = self._last[id(step)] = len(self.steps)
                if isinstance(step, Mark):
                    continue
                self.steps.append(step)
                todo.append(("end", step, name))
                if isinstance(step, LoopStep):
                    todo += [("step", one, name) for one in step.body]
                called = called_by(step)
                self._called[name].update(dict.fromkeys(called))
                todo += [("enter", step, one) for one in reversed(called)]
        self.blocks = order[::-1]
        self.order = {name: place for place, name in enumerate(self.blocks)}

    def _reaches(self) -> dict[str, IntervalSet]:
        known: dict[str, IntervalSet] = {}
        for name in reversed(self.blocks):
            first, last = self._regions[name]
            own = IntervalSet([(first, last)] if first <= last else [])
            known[name] = _union(own, *(known[one] for one in self._called[name]))
        return known


def _union(*sets: IntervalSet) -> IntervalSet:
    """The union of sets; the smallest gaps are filled if it has too many intervals."""
    if len(sets) == 1:
        return sets[0]
    found = IntervalSet(interval for one in sets for interval in one)
    intervals = list(found)
    if len(intervals) <= _MOST_INTERVALS:
        return found
    gaps = sorted(range(1, len(intervals)), key=lambda place: intervals[place][0] - intervals[place - 1][1])
    filled = gaps[: len(intervals) - _MOST_INTERVALS]
    return found.union((intervals[place - 1][1], intervals[place][0]) for place in filled)


class _UnionTree:
    """A segment tree of unions: the union of any range of sets is made of a few nodes."""

    def __init__(self, leaves: list[IntervalSet]) -> None:
        self._levels = [leaves]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append([_union(*below[place : place + 2]) for place in range(0, len(below), 2)])

    def between(self, begin: int, end: int) -> Iterator[IntervalSet]:
        for level in self._levels:
            if begin >= end:
                return
            if begin % 2:
                yield level[begin]
                begin += 1
            if end % 2 and begin < end:
                end -= 1
                yield level[end]
            begin, end = begin // 2, end // 2
