"""Finds where the steps of a draft repeat: windows of the same ops on operands of the same types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openinfer.importing.draft import (
    DraftDeclare,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftRead,
    DraftStep,
    DraftValue,
    DraftWrite,
    KnownTensor,
    base_of,
    operands,
)
from openinfer.loops.dim import form

LEAST_PERIOD = 3
LEAST_SAVED = 8
"""A loop that saves fewer steps is not worth it."""
_LONGEST_PERIOD = 2000
_MOST_COMPARED = 8_000_000
_MOST_TRIED = 400_000
"""Search limits, in steps: in larger models only shorter periods and fewer windows are tried."""


@dataclass(frozen=True)
class Repeat:
    """The steps from ``start`` on are ``count`` equivalent windows of ``period`` steps each."""

    start: int
    period: int
    count: int

    @property
    def saved(self) -> int:
        """The number of steps that a loop saves."""
        return (self.count - 1) * self.period


def signatures(steps: Sequence[DraftStep]) -> list[int]:
    """A number for each step, equal for equivalent steps. A step that cannot be in a loop gets a number of its own."""
    numbers: dict[Any, int] = {}
    found = []
    for place, step in enumerate(steps):
        key = _signature(step)
        found.append(numbers.setdefault(key if key is not None else ("alone", place), len(numbers)))
    return found


def _signature(step: DraftStep) -> Any:
    match step:
        case DraftOp() if step.declares:
            inputs = tuple(map(_kind, step.inputs))
            params = tuple((name, _param(value)) for name, value in step.params)
            return ("op", step.op, inputs, params, tuple(map(_kind, step.outputs)))
        case DraftDeclare(value):
            return ("declare", _kind(value))
        case DraftWrite(src, table, added):
            return ("write", _kind(src), table.entry, table.bound, id(table.counter), form(added))
        case DraftRead(table, dst, added):
            return ("read", _kind(dst), table.entry, table.bound, id(table.counter), form(added))
    return None


def _kind(operand: DraftOperand | None) -> Any:
    if operand is None:
        return None
    shape = tuple(map(form, operand.shape))
    known = isinstance(operand, KnownTensor)
    indices = operand.indices if isinstance(operand, DraftPart) else ()
    return (operand.dtype.name, shape, known, indices)


def _param(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_param, value))
    return form(value) if isinstance(value, int) and not isinstance(value, bool) else (type(value).__name__, value)


def repeats(numbers: Sequence[int]) -> list[Repeat]:
    """The repeats that save most, best first, including several ways to cut the same steps into windows."""
    found: list[Repeat] = []
    longest = min(len(numbers) // 2, _LONGEST_PERIOD, _MOST_COMPARED // max(len(numbers), 1))
    array = np.asarray(numbers)
    for period in range(LEAST_PERIOD, longest + 1):
        is_equal = np.concatenate(([False], array[:-period] == array[period:], [False]))
        edges = np.flatnonzero(is_equal[1:] != is_equal[:-1]).tolist()
        for place, end in zip(edges[::2], edges[1::2], strict=True):
            length = end - place
            if length >= period and length >= LEAST_SAVED:
                found += _cuts(place, length + period, period)
    best = max((one.saved for one in found), default=0)
    near = [one for one in found if one.saved >= max(best - best // 3, LEAST_SAVED)]
    return sorted(near, key=lambda one: (-one.saved, one.period, one.start))[
        : max(_MOST_TRIED // max(len(numbers), 1), 8)
    ]


def _cuts(start: int, length: int, period: int) -> list[Repeat]:
    """All ways to cut a periodic run into windows."""
    found = []
    for offset in range(min(period, length - 2 * period + 1)):
        count = (length - offset) // period
        if count >= 2 and (count - 1) * period >= LEAST_SAVED:
            found.append(Repeat(start + offset, period, count))
    return found


def with_first(
    steps: Sequence[DraftStep], numbers: Sequence[int], repeat: Repeat
) -> tuple[list[DraftStep], Repeat] | None:
    """The repeat with one more window in front; extra steps between those of its body move before the window.

    Equal ops are merged into the first layer, which therefore has more steps than the others.
    """
    body = list(numbers[repeat.start : repeat.start + repeat.period])
    place = repeat.start - 1
    inside: list[int] = []
    extra: list[int] = []
    for wanted in reversed(body):
        while place >= 0 and numbers[place] != wanted and len(extra) < repeat.period:
            extra.append(place)
            place -= 1
        if place < 0 or numbers[place] != wanted:
            return None
        inside.append(place)
        place -= 1
    window = {id(one) for at in inside for one in _results(steps[at])}
    moved = sorted(extra)
    for at in moved:
        if any(id(base_of(one)) in window for one in operands(steps[at])) or not isinstance(steps[at], DraftOp):
            return None
    order = [*range(place + 1), *moved, *sorted(inside), *range(repeat.start, len(steps))]
    first = place + 1 + len(moved)
    return [steps[at] for at in order], Repeat(first, repeat.period, repeat.count + 1)


def _results(step: DraftStep) -> tuple[DraftValue, ...]:
    match step:
        case DraftOp():
            return tuple(one for one in step.outputs if isinstance(one, DraftValue))
        case DraftDeclare(value):
            return (value,)
    return ()
