"""Where a circuit stops for traces: at the marks of nodes, if it is built for traces and the host has requested one.

A stop reports rows of the trace, and holds numbers for the host to read: dynamic sizes, addresses of values, loop
indices. A circuit built without traces contains none of this and takes the same clocks.
"""

from dataclasses import dataclass

from openinfer.loops.ir import Scalar
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported, TracePoints
from openinfer.synth.program.ir import Mark, Step, Value
from openinfer.synth.targets.vhdl.code import MemoryPlace, SequencerCode
from openinfer.synth.targets.vhdl.frame import ProgramNames
from openinfer.synth.targets.vhdl.ports import MemoryName
from openinfer.synth.targets.vhdl.ranges import WireType

_NUMBER = WireType("signed", 64)
_MOST_ROWS = 64
"""The most rows of one stop."""


@dataclass(frozen=True)
class TraceStop:
    """A state that waits for the host."""

    first: int
    """The index of its first row."""
    rows: tuple[Reported, ...]
    memories: tuple[MemoryName | None, ...]
    """The memory of each row's value; None if the circuit holds no value for it."""


class TraceStops:
    """Follows the sequencer and records its stops."""

    def __init__(self, placed: Placed, code: SequencerCode, names: ProgramNames) -> None:
        self._code = code
        self._names = names
        self._points = TracePoints(placed)
        self._waiting: list[Reported] = []
        self.stops: list[TraceStop] = []

    @property
    def reported(self) -> tuple[Reported, ...]:
        """All rows, in order."""
        return tuple(self._points.reported)

    def begin(self, block: str) -> None:
        """Note that a block begins."""
        self._points.begin(block)

    def follow(self, step: Step) -> None:
        """Note that a step is done."""
        self._points.follow(step)

    def mark(self, mark: Mark) -> None:
        """Note that a node has been executed; the next stop reports it."""
        self._waiting += self._points.shown(mark, tuple(name for name, _ in self._names.frame.loops))

    def stop(self, call: int | None = None) -> None:
        """Stop here if there are rows to report; those of node ``call`` itself wait for the next stop."""
        kept = [row for row in self._waiting if row.node == call and not row.is_return]
        rows = self._waiting[: len(self._waiting) - len(kept)]
        first = len(self._points.reported) - len(self._waiting)
        self._waiting = kept
        for at in range(0, len(rows), _MOST_ROWS):
            self._add(first + at, tuple(rows[at : at + _MOST_ROWS]))

    def _add(self, first: int, rows: tuple[Reported, ...]) -> None:
        places = [self._names.place(row.value) if isinstance(row.value, Value) else None for row in rows]
        numbers = [self._number(size) for size in self._names.sizes.values()]
        numbers += [_address(one) for one in places if one is not None]
        numbers += [self._number(index.value) for _, index in self._names.frame.loops]
        memories = tuple(None if one is None else one.memory for one in places)
        told = [f"if trace_select = {at} then trace_number <= {text}; end if;" for at, text in enumerate(numbers)]
        self._code.machine.hold([f"trace_stop <= to_unsigned({len(self.stops)}, 16);", *told])
        self.stops.append(TraceStop(first, rows, memories))

    def _number(self, value: Scalar) -> str:
        return self._code.expressions.text(value, _NUMBER)


def _address(place: MemoryPlace) -> str:
    return f"oi_s({place.base}, {_NUMBER.bits})"
