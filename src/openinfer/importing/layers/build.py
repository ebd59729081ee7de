"""Builds one loop from windows of equivalent steps, if the data flow between them allows it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import is_

import numpy as np

from openinfer.importing.cleanup import with_operands
from openinfer.importing.draft import (
    Draft,
    DraftBranch,
    DraftCopy,
    DraftDeclare,
    DraftFamily,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftRead,
    DraftStep,
    DraftTable,
    DraftValue,
    DraftWrite,
    KnownTensor,
    NodeOrigin,
    base_of,
    operands,
)
from openinfer.importing.layers.reads import DraftReads
from openinfer.importing.layers.repeats import Repeat
from openinfer.importing.names import common_name, family_pattern
from openinfer.ir.expr import Num, Ref
from openinfer.ir.operand import Single, Slice
from openinfer.loops.dim import is_same_shape

BodyPlace = tuple[int, int]
"""A step of the body, and the position of one of its results."""


class _NoLoopError(Exception):
    """The data flow between the windows does not fit a loop."""


@dataclass(frozen=True)
class LoopCost:
    """The number of values that a loop carries, and of weights that have no common name."""

    carried: int
    nameless: int


class LoopBuilder:
    """Tries to build one loop from windows."""

    def __init__(self, draft: Draft, reads: DraftReads, repeat: Repeat) -> None:
        self._draft = draft
        self._reads = reads
        self._start, period = repeat.start, repeat.period
        self._end = self._start + repeat.count * period
        self._windows = [draft.steps[at : at + period] for at in range(self._start, self._end, period)]
        self._places: dict[int, tuple[int, int, int]] = {}
        for number, window in enumerate(self._windows):
            for at, step in enumerate(window):
                for which, one in enumerate(_results(step)):
                    self._places[id(one)] = (number, at, which)
        self._initial: dict[BodyPlace, DraftOperand] = {}
        self._variables: dict[BodyPlace, DraftValue] = {}
        self._families: list[DraftFamily] = []
        self._tables: dict[int, DraftTable] = {}
        self._stacks: list[tuple[list[DraftValue], DraftValue]] = []
        self._collected: dict[BodyPlace, DraftValue] = {}
        self._later: set[tuple[BodyPlace, int]] = set()
        self._joint: list[DraftStep] = []
        self._index = "l"

    def plan(self, index: str) -> LoopCost | None:
        """The cost of a loop, or None if none can be built."""
        self._index = index
        try:
            self._joint = [self._joined(at) for at in range(len(self._windows[0]))]
            self._later = self._read_later()
        except _NoLoopError:
            return None
        for place in (*self._initial, *_only_in_last(self._later, len(self._windows) - 1)):
            if place not in self._variables:
                self._variables[place] = self._variable(place)
        collected = (place for place, number in sorted(self._later) if not self._is_last(place, number))
        self._collected = {place: self._stacked(place) for place in collected}
        nameless = sum(family_pattern([one.hint for one in family.members]) is None for family in self._families)
        return LoopCost(len(self._initial) + len(self._collected) + len(self._stacks), nameless)

    def build(self) -> Draft:
        """The draft with the planned loop; sets the hints of the loop's values."""
        hints = list(self._hints())
        before = [*map(self._with_layers, self._draft.steps[: self._start]), *self._starts()]
        before += [DraftDeclare(value) for value in self._collected.values()]
        steps = tuple(self._body(self._joint, self._collected))
        loop = DraftLoop(self._name(), self._index, len(self._windows), steps, self._origin(0), self._comment())
        renamed = self._outside(self._later, self._collected)
        after = [self._with_layers(_with_outside(step, renamed)) for step in self._draft.steps[self._end :]]
        outputs = tuple(replace(port, operand=_outside(port.operand, renamed)) for port in self._draft.outputs)
        states = tuple(
            replace(state, memory=self._tables.get(id(state.memory), state.memory))
            if isinstance(state.memory, DraftTable)
            else state
            for state in self._draft.states
        )
        for value, hint in hints:
            value.hint = hint
        return replace(self._draft, steps=(*before, loop, *after), outputs=outputs, states=states)

    # --- one step for all windows ---------------------------------------------------------------------------------

    def _joined(self, at: int) -> DraftStep:
        """The step at a position of the body, with operands that stand for those of all windows."""
        steps = [window[at] for window in self._windows]
        first = steps[0]
        match first:
            case DraftOp():
                columns = zip(*(step.inputs for step in steps if isinstance(step, DraftOp)), strict=True)
                return replace(first, inputs=tuple(self._operand(column) for column in columns))
            case DraftWrite():
                source = self._operand([step.src for step in steps if isinstance(step, DraftWrite)])
                assert source is not None
                return replace(first, src=source, table=self._layered(steps), layer=self._index)
            case DraftRead():
                return replace(first, table=self._layered(steps), layer=self._index)
        return first

    def _layered(self, steps: Sequence[DraftStep]) -> DraftTable:
        """Merge the tables of all windows into one with a layer index."""
        tables = [step.table for step in steps if isinstance(step, DraftRead | DraftWrite)]
        known = [self._tables.get(id(one)) for one in tables]
        if known[0] is not None and all(one is known[0] for one in known):
            return known[0]
        if any(one is not None for one in known) or len({id(one) for one in tables}) != len(tables):
            raise _NoLoopError
        if any(table.layers for table in tables):
            raise _NoLoopError
        made = replace(tables[0], hint=common_name([one.hint for one in tables]), layers=len(tables))
        self._tables |= {id(one): made for one in tables}
        return made

    def _with_layers(self, step: DraftStep) -> DraftStep:
        """A step outside of the loop, with the table of one layer replaced by the merged one."""
        if not isinstance(step, DraftRead | DraftWrite):
            return step
        joined = self._tables.get(id(step.table))
        if joined is None:
            return step
        numbers = [key for key, table in self._tables.items() if table is joined]
        return replace(step, table=joined, layer=str(numbers.index(id(step.table))))

    def _operand(self, column: Sequence[DraftOperand | None]) -> DraftOperand | None:
        """The operand that stands for a column with one operand per window."""
        first = column[0]
        if first is None:
            return None
        if all(isinstance(one, KnownTensor) for one in column):
            return self._known([one for one in column if isinstance(one, KnownTensor)])
        bases = [base_of(one) for one in column if one is not None]
        found = self._base(bases)
        if isinstance(first, DraftPart):
            if not isinstance(found, DraftValue):
                raise _NoLoopError
            return replace(first, base=found)
        return found

    def _base(self, bases: Sequence[DraftOperand]) -> DraftOperand:
        places = [self._places.get(id(one)) for one in bases]
        if places[0] is None and all(place is None for place in places):
            return bases[0] if all(one is bases[0] for one in bases) else self._layer_of(bases)
        own = places[0]
        if own is not None and all(place == (number, *own[1:]) for number, place in enumerate(places)):
            return bases[0]
        previous = places[1]
        if own is not None or previous is None or isinstance(bases[0], KnownTensor):
            raise _NoLoopError
        if any(place != (number, *previous[1:]) for number, place in enumerate(places[1:])):
            raise _NoLoopError
        return self._carried((previous[1], previous[2]), bases[0])

    def _layer_of(self, bases: Sequence[DraftOperand]) -> DraftOperand:
        """The layer of values from outside, where each window reads its own: they are stacked before the loop."""
        values = [one for one in bases if isinstance(one, DraftValue)]
        if len(values) != len(bases) or len({id(one) for one in bases}) != len(bases):
            raise _NoLoopError
        known = (own for column, own in self._stacks if all(map(is_, column, values)))
        stacked = next(known, None)
        if stacked is None:
            hint = common_name([one.hint for one in values])
            stacked = DraftValue(values[0].dtype, (len(values), *values[0].shape), hint)
            self._stacks.append((values, stacked))
        rest = tuple(Slice() for _ in values[0].shape)
        return DraftPart(stacked, (Single(Ref(self._index)), *rest), values[0].shape)

    def _carried(self, place: BodyPlace, initial: DraftOperand) -> DraftOperand:
        value = _results(self._windows[0][place[0]])[place[1]]
        known = self._initial.setdefault(place, initial)
        if known is not initial or not isinstance(self._windows[0][place[0]], DraftOp):
            raise _NoLoopError
        if initial.dtype is not value.dtype or not is_same_shape(initial.shape, value.shape):
            raise _NoLoopError
        if place not in self._variables:
            self._variables[place] = self._variable(place)
        return self._variables[place]

    def _known(self, column: Sequence[KnownTensor]) -> DraftOperand:
        """A constant that all windows share, or a family with one member per window."""
        if all(one is column[0] or np.array_equal(one.array, column[0].array) for one in column):
            return column[0]
        if any(one.has_sizes for one in column):
            raise _NoLoopError
        for family in self._families:
            if all(one is other for one, other in zip(family.members, column, strict=True)):
                return family
        made = DraftFamily(tuple(column), self._index)
        self._families.append(made)
        return made

    # --- variables ------------------------------------------------------------------------------------------------

    def _variable(self, place: BodyPlace) -> DraftValue:
        """The variable that carries a value between iterations: the initial value itself if nothing else reads it."""
        initial = self._initial.get(place)
        value = _results(self._windows[0][place[0]])[place[1]]
        if isinstance(initial, DraftValue) and self._is_only_initial(initial):
            return initial
        return DraftValue(
            value.dtype, value.shape, common_name([self._result(number, place).hint for number in (0, -1)])
        )

    def _is_only_initial(self, value: DraftValue) -> bool:
        """Whether an op before the windows computes a value, and only the first window reads it."""
        second = self._start + len(self._windows[0])
        if not self._reads.is_computed_before(value, self._start) or self._reads.is_read_from(value, second):
            return False
        return sum(one is value for one in self._initial.values()) <= 1

    def _result(self, number: int, place: BodyPlace) -> DraftValue:
        return _results(self._windows[number][place[0]])[place[1]]

    def _starts(self) -> list[DraftStep]:
        """The declarations and initial values of variables."""
        found: list[DraftStep] = [
            DraftOp("stack", tuple(values), (("axis", 0),), (stacked,)) for values, stacked in self._stacks
        ]
        for place, variable in self._variables.items():
            initial = self._initial.get(place)
            if initial is variable:
                continue
            found.append(DraftDeclare(variable))
            if initial is not None:
                found.append(DraftCopy(initial, variable))
        return found

    # --- values that are read after the loop ----------------------------------------------------------------------

    def _read_later(self) -> set[tuple[BodyPlace, int]]:
        """The results of windows that are read after all windows, with the numbers of their windows."""
        found = set()
        for number, window in enumerate(self._windows):
            for at, step in enumerate(window):
                for which, one in enumerate(_results(step)):
                    if self._reads.is_read_from(one, self._end):
                        if not isinstance(self._windows[0][at], DraftOp):
                            raise _NoLoopError
                        found.add(((at, which), number))
        return found

    def _is_last(self, place: BodyPlace, number: int) -> bool:
        return number == len(self._windows) - 1 and place in self._variables

    def _stacked(self, place: BodyPlace) -> DraftValue:
        value = self._result(0, place)
        hint = common_name([self._result(number, place).hint for number in range(len(self._windows))])
        return DraftValue(value.dtype, (len(self._windows), *value.shape), hint)

    def _outside(
        self, later: set[tuple[BodyPlace, int]], collected: dict[BodyPlace, DraftValue]
    ) -> dict[int, DraftOperand]:
        """The replacements for the results of windows outside of the loop."""
        found: dict[int, DraftOperand] = {}
        for place, number in later:
            value = self._result(number, place)
            if self._is_last(place, number):
                found[id(value)] = self._variables[place]
            else:
                stacked = collected[place]
                rest = tuple(Slice() for _ in value.shape)
                found[id(value)] = DraftPart(stacked, (Single(Num(number)), *rest), value.shape)
        return found

    # --- the body -------------------------------------------------------------------------------------------------

    def _body(self, steps: Sequence[DraftStep], collected: dict[BodyPlace, DraftValue]) -> list[DraftStep]:
        """The steps of the loop; a carried result is written in place where the old value is dead."""
        renamed: dict[int, DraftOperand] = {}
        direct = {place for place in self._variables if self._is_written_in_place(steps, place)}
        found: list[DraftStep] = []
        for at, step in enumerate(steps):
            outputs = _results(step)
            places = [(at, which) for which in range(len(outputs))]
            if isinstance(step, DraftOp) and places and all(place in direct for place in places):
                renamed |= {id(one): self._variables[place] for one, place in zip(outputs, places, strict=True)}
                written = tuple(self._variables[place] for place in places)
                changed = _with_outside(step, _without(renamed, outputs))
                assert isinstance(changed, DraftOp)
                found.append(replace(changed, outputs=written, declares=False))
            else:
                direct -= set(places)
                found.append(_with_outside(step, renamed))
        for place, value in collected.items():
            source = renamed.get(id(self._result(0, place)), self._result(0, place))
            rest = tuple(Slice() for _ in value.shape[1:])
            found.append(DraftCopy(source, DraftPart(value, (Single(Ref(self._index)), *rest), value.shape[1:])))
        found += [
            DraftCopy(self._result(0, place), variable)
            for place, variable in self._variables.items()
            if place not in direct
        ]
        return found

    def _is_written_in_place(self, steps: Sequence[DraftStep], place: BodyPlace) -> bool:
        """Whether the old value of a variable is dead once its new value is computed."""
        variable = self._variables[place]
        return all(base_of(one) is not variable for step in steps[place[0] + 1 :] for one in operands(step))

    def _hints(self) -> Iterator[tuple[DraftValue, str]]:
        """The values of the body, each with what its names in all windows have in common."""
        numbers = range(len(self._windows))
        for at, step in enumerate(self._windows[0]):
            for which, value in enumerate(_results(step)):
                yield value, common_name([self._result(number, (at, which)).hint for number in numbers])

    def _origin(self, number: int) -> NodeOrigin:
        """The origin of the first op of a window."""
        found = (step.origin for step in self._windows[number] if isinstance(step, DraftOp))
        return next(found, NodeOrigin())

    def _comment(self) -> str:
        """The first and last windows, by their first nodes."""
        first, last = self._origin(0).node, self._origin(-1).node
        return f"from {first} to {last}" if first and last else ""

    def _name(self) -> str:
        """The name of the loop: the word before the layer number in the names of nodes."""
        names = [step.origin.node for step in (window[0] for window in self._windows) if isinstance(step, DraftOp)]
        parts = [re.findall(r"(?<![A-Za-z])([a-z][A-Za-z]{3,})[._/]?(\d+)", name) for name in names]
        for word, number in parts[0] if parts else ():
            if any((word, number) not in part for part in parts[1:]):
                return word if word.endswith("s") else f"{word}s"
        return "layers"


def _only_in_last(later: set[tuple[BodyPlace, int]], last: int) -> list[BodyPlace]:
    """The results of which only the last iteration's value is read after the loop."""
    others = {place for place, number in later if number != last}
    return sorted({place for place, number in later if number == last} - others)


def _without(renamed: dict[int, DraftOperand], outputs: Sequence[DraftValue]) -> dict[int, DraftOperand]:
    own = {id(one) for one in outputs}
    return {key: value for key, value in renamed.items() if key not in own}


def _results(step: DraftStep) -> tuple[DraftValue, ...]:
    match step:
        case DraftOp():
            return tuple(one for one in step.outputs if isinstance(one, DraftValue))
        case DraftDeclare(value):
            return (value,)
    return ()


def _outside(operand: DraftOperand, renamed: dict[int, DraftOperand]) -> DraftOperand:
    found = renamed.get(id(base_of(operand)))
    if found is None:
        return operand
    if not isinstance(operand, DraftPart):
        return found
    if isinstance(found, DraftPart):
        rest = iter(operand.indices)
        indices = tuple(next(rest) if isinstance(one, Slice) else one for one in found.indices)
        return DraftPart(found.base, indices, operand.shape)
    assert isinstance(found, DraftValue)
    return replace(operand, base=found)


def _with_outside(step: DraftStep, renamed: dict[int, DraftOperand]) -> DraftStep:
    return _with_targets(with_operands(step, renamed, _outside), renamed)


def _with_targets(step: DraftStep, renamed: dict[int, DraftOperand]) -> DraftStep:
    """A step with its write targets replaced too: a later loop may carry on a value that the windows computed."""
    match step:
        case DraftOp() if not step.declares:
            return replace(step, outputs=tuple(_target(one, renamed) for one in step.outputs))
        case DraftCopy():
            return replace(step, dst=_target(step.dst, renamed))
        case DraftLoop():
            return replace(step, body=tuple(_with_targets(one, renamed) for one in step.body))
        case DraftBranch():
            bodies = (tuple(_with_targets(one, renamed) for one in body) for body in (step.then_body, step.else_body))
            then_body, else_body = bodies
            return replace(step, then_body=then_body, else_body=else_body)
    return step


def _target(target: DraftValue | DraftPart, renamed: dict[int, DraftOperand]) -> DraftValue | DraftPart:
    found = _outside(target, renamed)
    assert isinstance(found, DraftValue | DraftPart)
    return found
