"""The steps of one body during fusion: the readers and writers of each value, and obstacles between two steps.

Steps keep their positions when others are removed, so a query costs the same in a long body as in a short one.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set

from openinfer.synth.program.constraints import ProgramConstraints
from openinfer.synth.program.ir import (
    Action,
    EntryStep,
    Fence,
    IntegerStep,
    KernelStep,
    LoopStep,
    Mark,
    Move,
    PartStep,
    Step,
    Steps,
    TableStep,
    Value,
)
from openinfer.synth.program.liveness import definitions, uses
from openinfer.synth.program.refusal import Refusal

_OTHER_READER = Refusal("something other than a kernel of this body reads the value too")
_READ_BEFORE = Refusal("the value is read before it is written")
_FENCED = Refusal("a barrier lies between them")
_OBSTRUCTED = Refusal("something that must stay in place lies between them")
_OPERAND_CHANGES = Refusal("an operand changes between them")


def values_read(steps: Iterable[Step], inside: Mapping[int, Set[Value]]) -> set[Value]:
    """The values that steps read; ``inside`` gives those of loop bodies, by the ``id`` of the loop."""
    found: set[Value] = set()
    for step in steps:
        found.update(uses(step))
        found |= inside.get(id(step), set())
    return found


class Body:
    """The steps of a body, by position."""

    def __init__(
        self, steps: Sequence[Step], inside: Mapping[int, Set[Value]], constraints: ProgramConstraints
    ) -> None:
        self._steps: dict[int, Step] = dict(enumerate(steps))
        self._constraints = constraints
        self._definitions: dict[Value, list[int]] = {}
        self._readers: dict[Value, dict[int, int]] = {}
        """For each value, the positions of the kernels that read it, with the node that reads."""
        self._other_readers: set[Value] = set()
        """Values that are read by something other than a kernel."""
        self._fences: list[int] = []
        self._obstacles: list[int] = []
        """The positions of steps, other than fences, that nothing may move past."""
        self._fixed: list[int] = []
        """The positions of the marks of nodes that must stay in place."""
        self._marks: dict[int, int] = {}
        for place, step in self._steps.items():
            self._add(place, step)
        for step in steps:
            if isinstance(step, LoopStep):
                self._other_readers |= inside[id(step)] & self._definitions.keys()

    def _add(self, place: int, step: Step) -> None:
        for value in definitions(step):
            self._definitions.setdefault(value, []).append(place)
        is_read = isinstance(step, TableStep | PartStep | EntryStep) and step.action is Action.READ
        match step:
            case KernelStep():
                self._read(place, step, {})
                return
            case Mark(node=node):
                self._marks[node] = place
                if self._constraints.must_stay(node):
                    self._fixed.append(place)
            case Fence():
                self._fences.append(place)
            case _ if not is_read and not isinstance(step, Move | IntegerStep):
                self._obstacles.append(place)
        self._other_readers.update(uses(step))

    def _read(self, place: int, step: KernelStep, nodes: Mapping[Value, int]) -> None:
        """Register the operands that a call reads, each for a node: that in ``nodes``, else the call's."""
        for operand in step.inputs:
            if isinstance(operand, Value):
                self._readers.setdefault(operand, {})[place] = nodes.get(operand, step.node)
        self._other_readers.update(step.scalars)

    @property
    def steps(self) -> Steps:
        """The remaining steps, in order."""
        return tuple(self._steps.values())

    def kernels(self) -> list[int]:
        """The positions of the kernel calls."""
        return [place for place, step in self._steps.items() if isinstance(step, KernelStep)]

    def kernel(self, place: int) -> KernelStep | None:
        """The kernel call at a position, if there is one."""
        step = self._steps.get(place)
        return step if isinstance(step, KernelStep) else None

    def only_reader(self, value: Value, behind: int) -> int | Refusal:
        """The position of a value's only reader, if it is a kernel call after ``behind``; otherwise a refusal."""
        readers = self._readers.get(value, {})
        if value in self._other_readers:
            return _OTHER_READER
        if len(readers) != 1:
            return Refusal("{} kernels read the value", (len(readers),))
        (place,) = readers
        return place if place > behind else _READ_BEFORE

    def readers(self, value: Value, behind: int) -> tuple[int, ...]:
        """The positions of all readers of a value, if all are kernel calls after ``behind``; otherwise none."""
        found = tuple(sorted(self._readers.get(value, {})))
        is_all = value not in self._other_readers and all(place > behind for place in found)
        return found if is_all else ()

    def reading_nodes(self, value: Value, behind: int) -> list[int]:
        """The nodes whose kernels in this body read what the step at ``behind`` writes to a value."""
        end = _next(self._definitions.get(value, []), behind)
        readers = self._readers.get(value, {})
        return [readers[place] for place in sorted(readers) if behind < place <= end]

    def join(self, first: int, last: int, made: KernelStep) -> list[int]:
        """Replace two calls by their fusion; returns the positions of kernels whose results it reads, to try again."""
        nodes: dict[Value, int] = {}
        for place in (last, first):
            gone = self._steps[place]
            assert isinstance(gone, KernelStep)
            read = dict.fromkeys(operand for operand in gone.inputs if isinstance(operand, Value))
            nodes |= {value: self._readers[value].pop(place) for value in read}
        del self._steps[first]
        self._steps[last] = made
        self._read(last, made, nodes)
        makers = {place for operand in made.inputs if isinstance(operand, Value) for place in self._makers(operand)}
        return [place for place in makers if self.kernel(place) is not None]

    def copy(self, first: int, made: Mapping[int, KernelStep]) -> list[int]:
        """Replace calls by fusions that each repeat the first call's work; returns positions to try again."""
        gone = self._steps[first]
        assert isinstance(gone, KernelStep)
        again: set[int] = set()
        for last, step in made.items():
            # Each join removes the first call: put it back for the next one.
            self._steps[first] = gone
            self._read(first, gone, {})
            again |= set(self.join(first, last, step))
        return [*again, *made]

    def _makers(self, value: Value) -> Sequence[int]:
        return () if value.is_home else self._definitions.get(value, ())

    # --- obstacles between two steps --------------------------------------------------------------------------------

    def passed_refusal(self, nodes: Sequence[int], first: int, last: int) -> Refusal | None:
        """Why nodes cannot move from the first position to the last, past nodes in between; None if they can."""
        fixed = _next(self._fixed, first)
        if fixed < last:
            step = self._steps[int(fixed)]
            assert isinstance(step, Mark)
            return Refusal("node {}, which lies between them, says no_reorder = true", (step.node,))
        for one in nodes:
            later = [(self._marks[other], other) for other in self._constraints.after(one) if other in self._marks]
            between = [pair for pair in later if first < pair[0] < last]
            if between:
                return Refusal("a dep keeps node {} before node {}", (one, min(between)[1]))
        return None

    def obstacle(self, read: Iterable[Value], first: int, last: int) -> Refusal | None:
        """Why a step that reads some values cannot move to the last position; None if it can."""
        changed = min((_next(self._definitions.get(value, []), first) for value in read), default=float("inf"))
        fence, other = _next(self._fences, first), _next(self._obstacles, first)
        nearest = min(changed, fence, other)
        if nearest >= last:
            return None
        if nearest == fence:
            return _FENCED
        if nearest == other:
            return _OBSTRUCTED
        return _OPERAND_CHANGES


def _next(places: Sequence[int], behind: int) -> float:
    place = bisect_right(places, behind)
    return places[place] if place < len(places) else float("inf")
