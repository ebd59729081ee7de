"""Liveness analysis: which values are live where.

Positions number the steps of a program; a block that is called in several places is numbered once. A value occupies
memory at every position where it is read, written, or live.

Each value is followed on its own, from one step that touches it to the next: liveness does not change in between.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from openinfer.synth.program.interval_set import IntervalSet
from openinfer.synth.program.ir import (
    Action,
    BranchStep,
    CallStep,
    EntryStep,
    IntegerStep,
    KernelStep,
    LoopStep,
    Mark,
    Move,
    PartStep,
    Program,
    Step,
    Steps,
    Storage,
    TableStep,
    Value,
    WeightCheck,
)
from openinfer.synth.program.positions import Positions, called_by

_MOST_CALLED, _ALWAYS_CALLED = 16, 20_000
"""The most homes to follow through block calls: per step of the program, and in total whatever its size."""


def uses(step: Step) -> Sequence[Value]:
    """The values a step reads."""
    match step:
        case KernelStep():
            return [*(operand for operand in step.inputs if isinstance(operand, Value)), *step.scalars]
        case Move(src=src):
            return [src, *step.scalars] if isinstance(src, Value) else step.scalars
        case BranchStep(cond=cond):
            return [] if cond is None else [cond]
        case CallStep(args=args):
            return [*(one for one in args if isinstance(one, Value)), *step.scalars]
        case TableStep(action=Action.WRITE, value=Value() as value):
            return [value, *step.scalars]
        case TableStep() | LoopStep() | IntegerStep() | WeightCheck():
            return step.scalars
        case EntryStep(action=Action.CHECK):
            return step.scalars
        case EntryStep(action=action, value=value, family=family):
            # A write keeps the other entries, so it reads them too.
            return [family.own, family.written, *([value] if action is Action.WRITE else []), *step.scalars]
        case PartStep(action=Action.CHECK):
            return step.scalars
        case PartStep():
            parts = (step.whole,) if step.action is Action.READ else (step.whole, step.value)
            return [*(one for one in parts if isinstance(one, Value)), *step.scalars]
        case _:
            return []


def definitions(step: Step) -> Sequence[Value]:
    """The values a step writes."""
    match step:
        case KernelStep():
            return [*step.outputs, *step.scratch]
        case Move(dst=dst):
            return [dst]
        case CallStep(results=results):
            return results
        case (
            TableStep(action=Action.READ, value=Value() as value) | PartStep(action=Action.READ, value=Value() as value)
        ):
            return [value]
        case EntryStep(action=Action.READ, value=value) | IntegerStep(value=value):
            return [value]
        case _:
            return []


@dataclass(frozen=True)
class Lives:
    """The positions that each value occupies, the steps by position, and which touched values stay live."""

    occupied: Mapping[Value, IntervalSet]
    steps: Steps
    alive_after: tuple[frozenset[Value], ...]
    """For each position, the values that its step reads or writes and that are live after it."""
    at_marks: Mapping[int, frozenset[Value]]
    """By the ``id`` of a mark, which has no position: its values that are live there."""


@dataclass(frozen=True, eq=False)
class Touch:
    """A step that reads or writes a value, or contains steps that do; these are ``inner``, the last one first."""

    step: Step
    is_read: bool
    is_written: bool
    inner: "tuple[Touch, ...]" = ()


Touches = dict[Value, list[Touch]]


@dataclass(frozen=True)
class Life:
    """The live range of a value."""

    occupied: IntervalSet
    needed_behind: Steps
    """The steps and marks that touch it and after which it is live."""


class Liveness:
    """The values of a program, with the steps that touch them in each block."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.positions = Positions(program)
        self.needed = set(program.outputs.values())
        self.needed |= {home for home in program.homes.values() if home.storage is Storage.STATE}
        """The values that are live when the step ends."""
        most = max(_ALWAYS_CALLED, _MOST_CALLED * len(self.positions.steps))
        self.is_exact = self._fill(most)
        """Whether values are followed through calls; if that is too much work, homes count as always live."""
        if not self.is_exact:
            self._fill(None)

    def _fill(self, most: int | None) -> bool:
        """Collect the touches of all values. Gives up after ``most`` touches by calls; None leaves calls out."""
        self.touches: dict[Value, dict[str, tuple[Touch, ...]]] = {}
        self._loops: dict[Value, LoopStep] = {}
        """For values that exist only inside a loop, that loop; their touches are those in its body."""
        self._left, self._follows_calls = most or 0, most is not None
        homes: dict[str, list[Value]] = {}
        for name in reversed(self.positions.blocks):
            touched = self._touched(name, self.program.blocks[name], homes)
            if self._left < 0:
                return False
            # A value that is not a home belongs to one block, or is an input, which always exists.
            homes[name] = [value for value in touched if value.is_home]
            for value, found in touched.items():
                self.touches.setdefault(value, {})[name] = tuple(found)
        return self._follows_calls

    def _touched(self, block: str, steps: Steps, homes: Mapping[str, list[Value]]) -> Touches:
        found: Touches = {}
        for step in reversed(steps):
            inner = self._inside(block, step, homes) if isinstance(step, LoopStep) else {}
            read, written = set(uses(step)), set(definitions(step))
            touched = dict.fromkeys([*read, *written, *inner, *self._called(step, homes)])
            for value in touched:
                inside = tuple(inner.get(value, ()))
                found.setdefault(value, []).append(Touch(step, value in read, value in written, inside))
        return found

    def _inside(self, block: str, loop: LoopStep, homes: Mapping[str, list[Value]]) -> Touches:
        """Touches inside a loop of values that also exist outside of it."""
        found = self._touched(block, loop.body, homes)
        for value in [one for one in found if not one.is_home and any(touch.is_written for touch in found[one])]:
            self.touches[value] = {block: tuple(found.pop(value))}
            self._loops[value] = loop
        return found

    def region(self, value: Value, block: str) -> tuple[int, int]:
        """The first and last position of the body that contains a value's touches."""
        loop = self._loops.get(value)
        return self.positions.region(block) if loop is None else self.positions.body(loop)

    def _called(self, step: Step, homes: Mapping[str, list[Value]]) -> Iterator[Value]:
        """Values that a step touches indirectly: through the blocks it runs, or as a mark, which shows values."""
        if isinstance(step, Mark):
            yield from (value for value in step.values if isinstance(value, Value))
        for name in called_by(step) if self._follows_calls else ():
            self._left -= len(homes[name])
            if self._left < 0:
                return
            yield from homes[name]

    def life(self, value: Value) -> Life:
        """The live range of a value."""
        if self.is_exact or not value.is_home:
            return _Follower(self, value).life()
        steps = tuple(touch.step for found in self.touches.get(value, {}).values() for touch in _all(found))
        return Life(IntervalSet([(0, len(self.positions.steps) - 1)]), steps)


def _all(touches: Iterable[Touch]) -> Iterator[Touch]:
    for touch in touches:
        yield touch
        yield from _all(touch.inner)


class _Follower:
    """Follows one value backwards through the blocks that touch it."""

    def __init__(self, liveness: Liveness, value: Value) -> None:
        self._value = value
        self._positions = liveness.positions
        self._region = liveness.region
        self._keeps_marked = liveness.program.keeps_marked
        self._touches = liveness.touches.get(value, {})
        self._blocks = sorted(self._touches, key=liveness.positions.order.__getitem__)
        self._is_needed = value in liveness.needed
        self._occupied: list[tuple[int, int]] = []
        """The intervals found so far."""
        self._needed_behind: list[Step] = []
        self._inside: dict[int, bool] = {}
        """By the ``id`` of a loop's inner touches: whether the value is live into its body."""
        self._through: dict[str, tuple[bool, bool]] = {}
        """Whether the value is live into a block: if it is dead after it, and if it is live after it."""
        self._behind = dict.fromkeys(self._blocks, False)
        """Whether the value is live after some call of a block."""

    def life(self) -> Life:
        for name in reversed(self._blocks):
            touches = self._touches[name]
            self._through[name] = (self._before(touches, alive=False), self._before(touches, alive=True))
        if self._is_needed and "entry" not in self._touches:
            self._occupy(*self._positions.region("entry"))
        for name in self._blocks:
            is_result = self._value.storage is Storage.RESULT
            is_needed = self._is_needed if name == "entry" else self._behind[name] or is_result
            self._body(self._touches[name], *self._region(self._value, name), alive=is_needed)
        return Life(IntervalSet(self._occupied), tuple(self._needed_behind))

    # --- whether a value is live before a step --------------------------------------------------------------------

    def _before(self, touches: Iterable[Touch], *, alive: bool) -> bool:
        for touch in touches:
            alive = self._needs(touch, alive=alive)
        return alive

    def _needs(self, touch: Touch, *, alive: bool) -> bool:
        """Whether the value is live before a step, given whether it is live after it."""
        step = touch.step
        match step:
            case Mark():
                return alive or self._keeps_marked
            case LoopStep():
                return alive or touch.is_read or self._needs_inside(touch.inner)
            case BranchStep(cond=cond, else_block=otherwise):
                is_skipped = alive and cond is not None and otherwise is None
                return touch.is_read or is_skipped or self._needs_called(step, alive=alive)
            case _ if called_by(step):
                return touch.is_read or (not touch.is_written and self._needs_called(step, alive=alive))
            case _:
                return touch.is_read or (alive and not touch.is_written)

    def _needs_called(self, step: Step, *, alive: bool) -> bool:
        return any(self._through[name][alive] if name in self._through else alive for name in called_by(step))

    def _needs_inside(self, inner: tuple[Touch, ...]) -> bool:
        if id(inner) not in self._inside:
            self._inside[id(inner)] = self._before(inner, alive=False)
        return self._inside[id(inner)]

    # --- its live range -------------------------------------------------------------------------------------------

    def _body(self, touches: Iterable[Touch], first: int, last: int, *, alive: bool) -> None:
        """Follow the value through a body, which has the positions ``first`` to ``last``."""
        for touch in touches:
            place = self._positions.first(touch.step)
            if alive:
                self._occupy(first, place - 1)
            is_mark = isinstance(touch.step, Mark)
            if alive or (is_mark and self._keeps_marked):
                self._needed_behind.append(touch.step)
            before = self._needs(touch, alive=alive)
            if is_mark:
                first = place
            else:
                if alive or before or touch.is_written:
                    self._occupied.append((place, place))
                self._inner(touch, alive=alive)
                first = self._positions.last(touch.step) + 1
            alive = before
        if alive:
            self._occupy(first, last)

    def _inner(self, touch: Touch, *, alive: bool) -> None:
        if isinstance(touch.step, LoopStep):
            # The back edge: what is live into one iteration is live at the end of the one before.
            is_needed = alive or self._needs_inside(touch.inner)
            self._body(touch.inner, *self._positions.body(touch.step), alive=is_needed)
            return
        # Arguments and results of a block stay in memory while it runs.
        is_given = touch.is_read or touch.is_written
        for name in called_by(touch.step):
            if alive and name in self._behind:
                self._behind[name] = True
            if (alive and name not in self._behind) or (is_given and isinstance(touch.step, CallStep)):
                self._occupied += self._positions.reach(name)

    def _occupy(self, first: int, last: int) -> None:
        """Occupy a range of steps that do not touch the value, and the blocks that these steps run elsewhere."""
        if first > last:
            return
        self._occupied.append((first, last))
        for one in self._positions.elsewhere(first, last):
            self._occupied += one


def lives_of(program: Program) -> Lives:
    """The live range of every value, from the outputs and the state backwards."""
    liveness = Liveness(program)
    positions = liveness.positions
    occupied: dict[Value, IntervalSet] = {}
    alive_after: list[set[Value]] = [set() for _ in positions.steps]
    at_marks: dict[int, set[Value]] = {}
    for value in liveness.touches.keys() | liveness.needed:
        life = liveness.life(value)
        if life.occupied:
            occupied[value] = life.occupied
        for step in life.needed_behind:
            if isinstance(step, Mark):
                at_marks.setdefault(id(step), set()).add(value)
            else:
                alive_after[positions.first(step)].add(value)
    after = tuple(map(frozenset, alive_after))
    return Lives(occupied, tuple(positions.steps), after, {mark: frozenset(found) for mark, found in at_marks.items()})
