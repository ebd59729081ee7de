"""Tracks values whose memory has not been overwritten, live or not."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from openinfer.synth.memory.place import MemoryPlan
from openinfer.synth.program.ir import Storage, Value


class FreshValues:
    """The contents of memory at a point of a block: writing a value invalidates those it overlaps."""

    def __init__(self, plan: MemoryPlan, values: Iterable[Value] = ()) -> None:
        self._plan = plan
        self._values: set[Value] = set()
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._in_arena: list[Value] = []
        """Values with bytes in the arena, sorted by offset; no two of them overlap."""
        self._elsewhere: dict[Value, set[Value]] = {}
        """The other values, by the representative of their memory."""
        self.write(values)

    def __contains__(self, value: Value) -> bool:
        return value in self._values

    def write(self, values: Iterable[Value]) -> None:
        """Write several values at once."""
        written = list(values)
        for value in written:
            self._remove(value)
        for value in written:
            self._add(value)

    def _place(self, value: Value) -> tuple[int, int] | None:
        root = self._plan.classes.root(value)
        if root.storage is not Storage.ARENA or root.nbytes == 0:
            return None
        start = self._plan.offset(root)
        return start, start + root.nbytes

    def _remove(self, value: Value) -> None:
        place = self._place(value)
        if place is None:
            self._values -= self._elsewhere.pop(self._plan.classes.root(value), set())
            return
        start, end = place
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        if first < last:
            self._values.difference_update(self._in_arena[first:last])
            for places in (self._starts, self._ends, self._in_arena):
                del places[first:last]

    def _add(self, value: Value) -> None:
        self._values.add(value)
        place = self._place(value)
        if place is None:
            self._elsewhere.setdefault(self._plan.classes.root(value), set()).add(value)
            return
        number = bisect_left(self._starts, place[0])
        self._starts.insert(number, place[0])
        self._ends.insert(number, place[1])
        self._in_arena.insert(number, value)
