"""Modulo scheduling: the stage of each step of an iteration, so that iterations overlap, one every ``interval`` clocks.

Every clock of an iteration is a stage with its own registers. Requests to one memory port never collide, because their
stages differ modulo the interval. Reads come before all stores: a dying value may share memory with a new one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from openinfer.loops.ir import Binary, Scalar, ScalarVar, children
from openinfer.loops.used import used_variables
from openinfer.synth.targets.vhdl.flow import (
    FlowProduct,
    FlowRead,
    FlowStep,
    FlowStore,
    FlowUpdate,
    FlowValue,
    NotStraightError,
)
from openinfer.synth.targets.vhdl.ports import MemoryName
from openinfer.synth.targets.vhdl.states import MOST

LATENCY = 2
"""Clocks from a request to its response."""


@dataclass(frozen=True)
class PortUse:
    """The ports that steps use: the memory that each read goes to, and whether stores have their own port."""

    memory: Callable[[str], MemoryName]
    """The memory of a buffer, by buffer name."""
    has_write_port: bool
    shares_products: bool = False
    """Whether all long products share one multiplier."""

    def of(self, step: FlowStep) -> str | None:
        """The port that a step uses, if any."""
        match step:
            case FlowRead(buffer=buffer):
                return self.memory(buffer.name)
            case FlowStore():
                return "write" if self.has_write_port else "ram"
            case FlowProduct() if self.shares_products:
                return "product"
            case _:
                return None


@dataclass
class StageSchedule:
    """The stage of each step; ``ready`` has each name's stage and its chain of operations within that stage."""

    steps: Sequence[FlowStep]
    ports: PortUse
    carried: frozenset[str]
    ready: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Loop indices are missing here: they are ready from the start."""
    at: list[int] = field(default_factory=list)
    """The stage of each step; a read is requested in it, and its response arrives two stages later."""

    def __post_init__(self) -> None:
        asked = [port for step in self.steps if (port := self.ports.of(step)) is not None]
        self.interval = max((asked.count(port) for port in asked), default=1)
        self._taken: set[tuple[str, int]] = set()
        self._last_read = 0
        self._late = self._dependent()
        self.at = [0] * len(self.steps)
        stores = [number for number, step in enumerate(self.steps) if isinstance(step, FlowStore)]
        late = [number for number, step in enumerate(self.steps) if self._is_late(step)]
        for number, step in enumerate(self.steps):
            if number not in stores and number not in late:
                self.at[number] = self._schedule_step(step)
        self._schedule_carried(late)
        self._schedule_stores(stores)
        self.depth = max(
            [at + LATENCY * self._is_answered(step) for at, step in zip(self.at, self.steps, strict=True)], default=0
        )

    def _is_answered(self, step: FlowStep) -> bool:
        """Whether a step is a request whose response comes later."""
        return isinstance(step, FlowRead) or (isinstance(step, FlowProduct) and self.ports.shares_products)

    # --- loop-carried steps ---------------------------------------------------------------------------------------

    def _dependent(self) -> set[str]:
        found = set(self.carried)
        for step in self.steps:
            if not found & looked_at(step):
                continue
            match step:
                case FlowValue(var):
                    found.add(var.name)
                case FlowRead() | FlowProduct():
                    raise NotStraightError
                case _:
                    pass
        return found

    def _is_late(self, step: FlowStep) -> bool:
        return isinstance(step, FlowUpdate) or (isinstance(step, FlowValue) and step.var.name in self._late)

    def _schedule_carried(self, late: Sequence[int]) -> None:
        """Put all loop-carried steps into one stage, so that the next iteration finds their results."""
        if not late:
            return
        others = [name for number in late for name in looked_at(self.steps[number]) - self._late]
        stage = max((self._ready_at(name)[0] + (self._ready_at(name)[1] > 0) for name in others), default=0)
        for name in self.carried:
            self.ready[name] = stage, 0
        for number in late:
            step, self.at[number] = self.steps[number], stage
            if isinstance(step, FlowValue):
                cost = _depth(step.value, {name: one for name, (at, one) in self.ready.items() if at == stage})
                if cost > 2 * MOST:
                    raise NotStraightError
                self.ready[step.var.name] = stage, cost

    # --- other steps ----------------------------------------------------------------------------------------------

    def _ready_at(self, name: str) -> tuple[int, int]:
        return self.ready.get(name, (0, 0))

    def _stage(self, *values: Scalar) -> tuple[int, int]:
        """The first stage in which expressions can be computed, and the chain of operations in that stage."""
        stage = max((self._ready_at(name)[0] for name in used_variables(*values)), default=0)
        known = {name: cost for name in used_variables(*values) for at, cost in [self._ready_at(name)] if at == stage}
        cost = max(_depth(value, known) for value in values)
        if known and cost > MOST and max(known.values(), default=0) > 0:
            return stage + 1, max(_depth(value, {}) for value in values)
        return stage, cost

    def _schedule_step(self, step: FlowStep) -> int:
        match step:
            case FlowRead(var, _, place):
                stage = self._free(self.ports.of(step) or "", self._stage(place)[0])
                self._last_read = max(self._last_read, stage)
                self.ready[var.name] = stage + LATENCY, 1
            case FlowProduct(var, value):
                stage, port = self._stage(value.left, value.right)[0], self.ports.of(step)
                stage = stage if port is None else self._free(port, stage)
                self.ready[var.name] = (stage + 1, 0) if port is None else (stage + LATENCY, 1)
            case FlowValue(var, value):
                stage, cost = self._stage(value)
                self.ready[var.name] = stage, cost
            case _:
                raise TypeError(step)
        return stage

    def _schedule_stores(self, stores: Sequence[int]) -> None:
        """Schedule stores in order within an interval, so that none is overtaken by the next iteration's stores."""
        stage = self._last_read
        for number in stores:
            stage = max(stage, *(self._ready_at(name)[0] for name in looked_at(self.steps[number])), 0)
        for number in stores:
            stage = self._free(self.ports.of(self.steps[number]) or "", stage)
            self.at[number] = stage
            stage += 1

    def _free(self, port: str, stage: int) -> int:
        while (port, stage % self.interval) in self._taken:
            stage += 1
        self._taken.add((port, stage % self.interval))
        return stage


def looked_at(step: FlowStep) -> set[str]:
    """The names that a step uses."""
    match step:
        case FlowRead(_, _, place):
            return used_variables(place)
        case FlowStore(_, place, value, guard):
            return used_variables(place, value, *([] if guard is None else [guard]))
        case FlowProduct(_, value) | FlowValue(_, value) | FlowUpdate(_, value):
            return used_variables(value)


def _depth(value: Scalar, known: dict[str, int]) -> int:
    """Rough length of the longest chain of operations, including those behind names."""
    if isinstance(value, ScalarVar):
        return known.get(value.name, 0)
    own = 2 if isinstance(value, Binary) and value.dtype.bits > 32 else 1
    return own + max((_depth(part, known) for part in children(value)), default=0)
