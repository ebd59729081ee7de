"""Thread groups in the interpreter: each thread runs until it waits for others, in any order.

It is an error, as in parallel loops, if two threads touch an element without a barrier in between and one of them
writes it. So is waiting where other threads of the group never arrive. Groups of a team exchange values, and see
nothing else that others write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from openinfer.loops.arithmetic import NumpyScalar, UndefinedError
from openinfer.loops.ir import Bind, Combine, Exchange, For, GroupBarrier, If, Scalar, Statement, While, walk
from openinfer.loops.tile_steps import MIX_TEAM, TileExecution, TileMix

Waiting = GroupBarrier | Exchange | Combine | TileMix


class GroupExecution(TileExecution, Protocol):
    """The interpreter, as threads of a group see it."""

    variables: dict[str, NumpyScalar]
    memory: dict[str, Any]
    iteration: tuple[tuple[int, int], ...]
    runs: int
    """How many parallel loops have been started."""
    order: Callable[[range], Iterable[int]]

    def value(self, scalar: Scalar, /) -> NumpyScalar:
        """The value of an expression."""

    def statement(self, statement: Statement, /) -> None:
        """Run a statement that does not wait."""


def waits(statement: Statement) -> bool:
    """Whether threads wait for each other anywhere in a statement."""
    return any(isinstance(one, Waiting) for one in walk((statement,)))


def is_in_team(statement: Statement) -> bool:
    """Whether groups exchange values anywhere in a statement."""
    return any(isinstance(one, Exchange) for one in walk((statement,)))


def run_group(run: GroupExecution, loop: For) -> None:
    """Run the threads of a group to completion."""
    outside = run.variables, run.memory, run.iteration
    if _LaneGroup(run, loop).went_on(run.iteration) is not None:
        message = "a group exchanges values outside of a team"
        raise UndefinedError(message)
    run.variables, run.memory, run.iteration = outside


def run_team(run: GroupExecution, loop: For) -> None:
    """Run the groups of a team to completion: each runs until it exchanges values, in shared memory of its own."""
    outside = run.variables, run.memory, run.iteration
    count = int(run.value(loop.extent))
    groups = {}
    for number in run.order(range(count)):
        run.variables, run.memory = {**outside[0], loop.index.name: np.int64(number)}, dict(outside[1])
        groups[number] = _begun(run, loop)
    run.runs += 1
    phase = run.runs
    used = set[tuple[int, int]]()
    is_waiting = bool(groups)
    while is_waiting:
        met = {number: group.went_on((*outside[2], (phase, number))) for number, group in groups.items()}
        first = next(iter(met.values()))
        if any(one is not first for one in met.values()) or (first is not None and first.words.groups != count):
            message = "groups of a team wait at an exchange which others do not reach"
            raise UndefinedError(message)
        is_waiting = first is not None
        if first is not None:
            _exchange(first, groups, used)
    run.variables, run.memory, run.iteration = outside


def _exchange(one: Exchange, groups: Mapping[int, "_LaneGroup"], used: set[tuple[int, int]]) -> None:
    """Give each group what all of them have; ``used`` are the words, by row and place, that were used before."""
    given = {number: group.given(one) for number, group in groups.items()}
    rows = {row for row, _ in given.values()}
    places = {(row, one.place) for row in rows}
    if len(rows) > 1 or min(rows) < 0 or max(rows) >= one.words.rows or places & used:
        message = f"groups of a team exchange values through words of rows {sorted(rows)}"
        raise UndefinedError(message)
    used |= places
    for group in groups.values():
        group.take(one, [given[number][1] for number in sorted(given)])


def _begun(run: GroupExecution, loop: For) -> "_LaneGroup":
    """A group before its first step; its memory is allocated."""
    *before, threads = loop.body
    for one in before:
        run.statement(one)
    assert isinstance(threads, For)
    assert threads.bind is Bind.THREAD
    return _LaneGroup(run, threads)


@dataclass
class _Lane:
    number: int
    variables: dict[str, NumpyScalar]
    memory: dict[str, Any]
    steps: Iterator[Waiting]
    at: Waiting | None = None


class _LaneGroup:
    def __init__(self, run: GroupExecution, loop: For) -> None:
        self._run = run
        self._outside = run.iteration
        count = range(int(run.value(loop.extent)))
        self._lanes = [
            _Lane(
                number, {**run.variables, loop.index.name: np.int64(number)}, dict(run.memory), self._steps(loop.body)
            )
            for number in run.order(count)
        ]

    def went_on(self, iteration: tuple[tuple[int, int], ...]) -> Exchange | None:
        """Run, as part of an iteration, until all threads have ended, or exchange values: where they do."""
        self._outside = iteration
        self._next_phase()
        self._advance(self._lanes)
        while any(lane.at is not None for lane in self._lanes):
            first = self._lanes[0].at
            if isinstance(first, Exchange) and self._are_all_at(first):
                return first
            self._meet()
        return None

    def given(self, one: Exchange) -> tuple[int, list[NumpyScalar]]:
        """The row and the values of an exchange, which all threads agree on."""
        found = []
        for lane in self._lanes:
            self._enter(lane)
            found.append((int(self._run.value(one.row)), [self._run.value(value) for value in one.values]))
        row, values = found[0]
        if len({(row, *(value.tobytes() for value in own)) for row, own in found}) > 1:
            message = "threads of a group exchange different values"
            raise UndefinedError(message)
        return row, values

    def take(self, one: Exchange, values: Sequence[Sequence[NumpyScalar]]) -> None:
        """Store what each group has given in the memory of this one."""
        for lane in self._lanes:
            if lane.number < len(values):
                self._enter(lane)
                for buffer, value in zip(one.memory, values[lane.number], strict=True):
                    self._run.put(buffer, (lane.number,), value)

    def _next_phase(self) -> None:
        """From here on, threads see what others wrote before."""
        self._run.runs += 1
        self._phase = self._run.runs

    def _advance(self, lanes: Sequence[_Lane]) -> None:
        for lane in lanes:
            self._enter(lane)
            lane.at = next(lane.steps, None)

    def _enter(self, lane: _Lane) -> None:
        run = self._run
        run.variables, run.memory = lane.variables, lane.memory
        run.iteration = (*self._outside, (self._phase, lane.number))

    def _steps(self, body: tuple[Statement, ...]) -> Iterator[Waiting]:
        """Run a thread, yielding at every statement where it waits."""
        run = self._run
        for statement in body:
            match statement:
                case GroupBarrier() | Exchange() | Combine() | TileMix():
                    yield statement
                case For(index, extent, inside) if waits(statement):
                    for place in range(max(int(run.value(extent)), 0)):
                        run.variables[index.name] = np.int64(place)
                        yield from self._steps(inside)
                case While(cond, inside) if waits(statement):
                    while run.value(cond):
                        yield from self._steps(inside)
                case If(cond, then, otherwise) if waits(statement):
                    yield from self._steps(then if run.value(cond) else otherwise)
                case _:
                    run.statement(statement)

    def _meet(self) -> None:
        """Let threads continue for which all others have arrived."""
        first = self._lanes[0].at
        if isinstance(first, GroupBarrier) and self._are_all_at(first):
            self._next_phase()
            self._advance(self._lanes)
            return
        teams = [team for team in self._teams() if team]
        if not teams:
            where = {type(lane.at).__name__.lower() for lane in self._lanes if lane.at is not None}
            message = f"threads of a group wait at a {' and a '.join(sorted(where))} which others do not reach"
            raise UndefinedError(message)
        for team in teams:
            if isinstance(team[0].at, TileMix):
                self._mix(team[0].at, team)
            else:
                self._combine(team)
            self._advance(team)

    def _are_all_at(self, one: Waiting) -> bool:
        return all(lane.at is one for lane in self._lanes)

    def _teams(self) -> Iterator[list[_Lane]]:
        """The teams of threads that exchange values; an incomplete team is empty."""
        for one in {id(lane.at): lane.at for lane in self._lanes}.values():
            if isinstance(one, Combine | TileMix):
                width = one.width if isinstance(one, Combine) else MIX_TEAM
                there = [lane for lane in self._lanes if lane.at is one]
                for first in sorted({lane.number // width for lane in there}):
                    team = [lane for lane in there if lane.number // width == first]
                    yield team if len(team) == width else []

    def _mix(self, one: TileMix, team: Sequence[_Lane]) -> None:
        known = {}
        for lane in team:
            self._enter(lane)
            known[lane.number] = one.known(self._run)
        for lane in team:
            self._enter(lane)
            one.run_with(self._run, [known[number] for number in sorted(known)])

    def _combine(self, team: Sequence[_Lane]) -> None:
        one = team[0].at
        assert isinstance(one, Combine)
        by_number = {lane.number: lane for lane in team}
        mask = 1
        while mask < one.width:
            made = {}
            for lane in team:
                first, second = by_number[lane.number & ~mask], by_number[lane.number | mask]
                made[lane.number] = self._joined(one, lane, first, second)
                if one.before and lane is second:
                    made[lane.number] |= self._joined_before(one, lane, first)
            for number, values in made.items():
                by_number[number].variables |= values
            mask *= 2

    def _joined(self, one: Combine, lane: _Lane, first: _Lane, second: _Lane) -> dict[str, NumpyScalar]:
        self._enter(lane)
        seen = {var.name: first.variables[var.name] for var in one.variables}
        pairs = zip(one.variables, one.others, strict=True)
        seen |= {other.name: second.variables[var.name] for var, other in pairs}
        self._run.variables = {**lane.variables, **seen}
        return {var.name: self._run.value(value) for var, value in zip(one.variables, one.values, strict=True)}

    def _joined_before(self, one: Combine, lane: _Lane, first: _Lane) -> dict[str, NumpyScalar]:
        """What a thread has of those before it, with the values of another one in front."""
        seen = {var.name: first.variables[var.name] for var in one.variables}
        pairs = zip(one.before, one.others, strict=True)
        seen |= {other.name: lane.variables[var.name] for var, other in pairs}
        self._run.variables = {**lane.variables, **seen}
        return {var.name: self._run.value(value) for var, value in zip(one.before, one.values, strict=True)}
