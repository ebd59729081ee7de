"""Thread groups in the interpreter: each thread runs until it waits for others, in any order.

It is an error, as in parallel loops, if two threads touch an element without a barrier in between and one of them
writes it. So is waiting where other threads of the group never arrive. The same holds for the groups of a team, with
barriers of all of them in between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from openinfer.loops.arithmetic import NumpyScalar, UndefinedError
from openinfer.loops.ir import Bind, Combine, For, GroupBarrier, If, Scalar, Statement, While, walk
from openinfer.loops.tile_steps import MIX_TEAM, TileExecution, TileMix

Waiting = GroupBarrier | Combine | TileMix


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
    """Whether groups wait for each other anywhere in a statement."""
    return any(isinstance(one, GroupBarrier) and one.groups > 1 for one in walk((statement,)))


def run_group(run: GroupExecution, loop: For) -> None:
    """Run the threads of a group to completion."""
    outside = run.variables, run.memory, run.iteration
    if _LaneGroup(run, loop).went_on(run.iteration) is not None:
        message = "a group waits for others outside of a team"
        raise UndefinedError(message)
    run.variables, run.memory, run.iteration = outside


def run_team(run: GroupExecution, loop: For) -> None:
    """Run the groups of a team to completion: each runs until it waits for the others, in shared memory of its own."""
    outside = run.variables, run.memory, run.iteration
    count = int(run.value(loop.extent))
    groups = {}
    for number in run.order(range(count)):
        run.variables, run.memory = {**outside[0], loop.index.name: np.int64(number)}, dict(outside[1])
        groups[number] = _begun(run, loop)
    is_waiting = bool(groups)
    while is_waiting:
        run.runs += 1
        phase = run.runs
        met = {number: group.went_on((*outside[2], (phase, number))) for number, group in groups.items()}
        first = next(iter(met.values()))
        if any(one is not first for one in met.values()) or (first is not None and first.groups != count):
            message = "groups of a team wait at a barrier which others do not reach"
            raise UndefinedError(message)
        is_waiting = first is not None
    run.variables, run.memory, run.iteration = outside


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

    def went_on(self, iteration: tuple[tuple[int, int], ...]) -> GroupBarrier | None:
        """Run, as part of an iteration, until all threads have ended, or wait for other groups: where they wait."""
        self._outside = iteration
        self._next_phase()
        self._advance(self._lanes)
        while any(lane.at is not None for lane in self._lanes):
            first = self._lanes[0].at
            if isinstance(first, GroupBarrier) and first.groups > 1 and self._are_all_at(first):
                return first
            self._meet()
        return None

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
                case GroupBarrier() | Combine() | TileMix():
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
