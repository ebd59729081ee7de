"""One group per iteration: all of its threads share each statement, with barriers around writes.

The buffers of an iteration are in shared memory. So a whole group works on each iteration of a parallel loop around
attention over some keys, or around anything else that consists of reductions, loops over independent elements, and
loops around these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openinfer.loops.build import index, unflat
from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.ir import (
    Alloc,
    Bind,
    Fail,
    For,
    GroupBarrier,
    If,
    Let,
    Load,
    LoopKind,
    Space,
    Statement,
    Store,
    While,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, map_statements
from openinfer.synth.targets.simt.baseline import Formed
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.row_loops import is_consistent, row_loop
from openinfer.synth.targets.simt.segments import LaunchPart
from openinfer.synth.targets.simt.team import LaneTeam, common_widths
from openinfer.synth.targets.simt.threads import int_extent, lets_of, nest
from openinfer.synth.targets.simt.wide import FreshNames

_MANY = 16
"""Iterations per compute unit from which one thread for each of them is enough."""


def together(part: LaunchPart, machine: SimtMachine, taken: set[str]) -> Formed | None:
    """Few iterations with much work each, whose buffers fit shared memory."""
    *before, last = part.body
    if not part.is_parallel or not isinstance(last, For):
        return None
    loops = tuple(nest(last))
    body = loops[-1].body
    count: int = 1
    for one in loops:
        count = count * int_extent(one.extent)
    if is_symbolic(count) or not 0 < count < _MANY * machine.units or not _has_work(body, machine):
        return None
    if not _is_private(body, machine):
        return None
    return _Together(machine, FreshNames(taken)).formed(tuple(before), loops, count)


def _has_work(body: Statements, machine: SimtMachine) -> bool:
    """Whether there are loops that several threads can share, with buffers between them; sorting stays serial."""
    if any(isinstance(one, While) for one in walk(body)):
        return False
    found = [row_loop(one) for one in walk(body) if isinstance(one, For)]
    longest = max((most_elements(one.extents) for one in found if one is not None), default=0)
    return longest >= machine.least_row and any(isinstance(one, Alloc) for one in body)


def _is_private(body: Statements, machine: SimtMachine) -> bool:
    """Whether only buffers of the iteration are both written and read, and these fit shared memory."""
    own = [one.buffer for one in body if isinstance(one, Alloc)]
    if sum(isinstance(one, Alloc) for one in walk(body)) > len(own):
        return False
    if any(is_symbolic(extent) for one in own for extent in one.shape) or any(one.dtype.bits < 32 for one in own):
        return False
    if sum(one.dtype.nbytes(most_elements(one.shape)) for one in own) > machine.shared_bytes * 3 // 4:
        return False
    written = {one.buffer.name for one in walk(body) if isinstance(one, Store)} - {one.name for one in own}
    parts = (part for one in walk(body) for value in scalars(one) for part in visit(value))
    return not any(isinstance(part, Load) and part.buffer.name in written for part in parts)


class _Together:
    def __init__(self, machine: SimtMachine, names: FreshNames) -> None:
        self._machine, self._names = machine, names
        self._lane = names.var("lane")
        self._team = LaneTeam(machine, names, machine.group, self._lane, self._lane, {})

    def formed(self, before: Statements, loops: Sequence[For], count: int) -> Formed:
        group, extents = self._names.var("group"), tuple(int_extent(one.extent) for one in loops)
        body = _in_group(loops[-1].body)
        memory = [one.buffer for one in body if isinstance(one, Alloc)]
        lets = lets_of(tuple(one.index for one in loops), unflat(group, extents))
        made = (*before, *lets, *self._statements([one for one in body if not isinstance(one, Alloc)]))
        threads = For(self._lane, index(self._machine.group), made, LoopKind.PARALLEL, Bind.THREAD)
        memory += [one for buffers in self._team.shared.values() for one in buffers]
        loop = For(group, index(count), (*map(Alloc, memory), threads), LoopKind.PARALLEL, Bind.GROUP)
        return Formed((loop,), count * self._machine.group, "together: a group each")

    def _statements(self, body: Sequence[Statement]) -> Statements:
        found: list[Statement] = []
        for one in body:
            is_writing = any(isinstance(inner, Store) for inner in walk((one,)))
            if is_writing and not (found and isinstance(found[-1], GroupBarrier)):
                found.append(GroupBarrier())
            found += self._statement(one)
            if is_writing:
                found.append(GroupBarrier())
        return tuple(found)

    def _statement(self, one: Statement) -> Iterator[Statement]:
        match one:
            case Store():
                yield If(self._lane.eq(0), (one,))
            case For():
                yield from self._loop(one)
            case If(cond, then, otherwise) if not isinstance(then[0], Fail):
                yield If(cond, self._statements(then), self._statements(otherwise))
            case _:
                yield one

    def _loop(self, one: For) -> Iterator[Statement]:
        found = row_loop(one)
        if found is not None and is_consistent([found]):
            yield from replace(self._team, widths=common_widths([found], self._machine)).loop(found)
            return
        loops = tuple(nest(one))
        if not loops:
            yield replace(one, body=self._statements(one.body))
            return
        yield from self._shared_out(loops)

    def _shared_out(self, loops: Sequence[For]) -> Iterator[Statement]:
        """Distributes parallel iterations of any kind over the threads, round robin."""
        extents = tuple(int_extent(one.extent) for one in loops)
        total: int = 1
        for extent in extents:
            total = total * extent
        threads, turn, at = self._machine.group, self._names.var("turn"), self._names.var("at")
        lets = lets_of(tuple(one.index for one in loops), unflat(at, extents))
        turns = (index(total) - self._lane + (threads - 1)) // threads
        yield For(turn, turns, (Let(at, turn * threads + self._lane), *lets, *loops[-1].body))


def _in_group(body: Statements) -> Statements:
    """Statements with their own buffers in shared memory."""
    own = {one.buffer: replace(one.buffer, space=Space.GROUP) for one in body if isinstance(one, Alloc)}

    def stored(one: Statement) -> Statements:
        if isinstance(one, Store | Alloc):
            return (replace(one, buffer=own.get(one.buffer, one.buffer)),)
        return (one,)

    return changed_statements(
        map_statements(body, stored),
        lambda part: replace(part, buffer=own[part.buffer]) if isinstance(part, Load) and part.buffer in own else None,
    )
