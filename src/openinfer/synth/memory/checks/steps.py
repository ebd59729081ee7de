"""Plans the checks of every step of a block, in the order of the steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.ir import Loop, Node
from openinfer.ir.expr import Expr, names
from openinfer.loops.dim import sizes_in
from openinfer.loops.ir import Fail, walk
from openinfer.loops.rewrite import straightened
from openinfer.synth.memory.checks.certain import Certain
from openinfer.synth.memory.checks.indices import IndexPlanner
from openinfer.synth.memory.checks.records import (
    AsideSizes,
    BlockChecks,
    CallChecks,
    ChosenTensor,
    EntryChecks,
    ExtentChecks,
    IntegerChecks,
    JoinedSizes,
    KernelChecks,
    LoopChecks,
    MoveChecks,
    NoChecks,
    SizeChecks,
    StepChecks,
    WatchPoint,
    WhenKnown,
)
from openinfer.synth.memory.checks.sizes import SizePlanner
from openinfer.synth.memory.checks.slices import SlicePlanner
from openinfer.synth.memory.place import MemoryPlan
from openinfer.synth.memory.state import StateLayout
from openinfer.synth.memory.weights import WeightLayout
from openinfer.synth.program.failures import BAD_SIZE, INTERRUPTED, OVER_BUDGET, FailureNumbers, mistake
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import (
    Action,
    BindSize,
    BlockParams,
    CallStep,
    EntryStep,
    IntegerStep,
    JoinSizes,
    KernelStep,
    LoopStep,
    Move,
    PartStep,
    Program,
    RefuseSizes,
    RequireSize,
    Step,
    Steps,
    TableStep,
    Value,
    WeightCheck,
)


@dataclass(frozen=True)
class Layouts:
    """The memory layouts of a program."""

    program: Program
    memory: MemoryPlan
    state: StateLayout
    weights: WeightLayout
    is_interruptible: bool

    @property
    def threads(self) -> int:
        """The most threads that share a kernel."""
        return max([1, *(step.parts for step in self.program.steps() if isinstance(step, KernelStep))])


class StepPlanner:
    """Plans the checks of one block; ``nodes`` are the graph's, ``known`` the sizes that are bound before it."""

    def __init__(
        self, layouts: Layouts, nodes: Mapping[int, Node], numbers: FailureNumbers, known: Iterable[str]
    ) -> None:
        self._layouts = layouts
        self._program = layouts.program
        self._numbers = numbers
        self._now = Certain(known=set(known))
        self._sizes = SizePlanner(layouts.program, numbers, self._now)
        self._indices = IndexPlanner(layouts.program, layouts.weights, numbers, self._sizes, self._now)
        self._slices = SlicePlanner(layouts.state, numbers, self._sizes, self._indices)
        self._nodes = nodes

    def block(self, name: str) -> BlockChecks:
        """The checks of a block."""
        nodes = self._program.bound.graph.blocks[name].nodes
        params = self._program.params.get(name, BlockParams())
        # The caller has checked the sizes of the arguments.
        self._now.known |= {size for one in params.args for extent in one.shape for size in sizes_in(extent)}
        self._now.loops += [(index.name, Computed(index.least, index.most)) for index in params.indices]
        watch = self._watch(_executed(nodes), nodes[0].index if nodes else -1)
        return BlockChecks(watch, self._body(self._program.blocks[name]))

    def guard(self, value: Value) -> SizeChecks:
        """The checks of a value that exists before anything runs."""
        return tuple(self._sizes.guard([value], -1))

    def _watch(self, nodes: int, node: int) -> WatchPoint | None:
        if not self._layouts.is_interruptible:
            return None
        first = self._numbers.number(node, INTERRUPTED)
        self._numbers.number(node, OVER_BUDGET)
        return WatchPoint(nodes, first)

    def _body(self, steps: Steps) -> tuple[StepChecks, ...]:
        return tuple(self._step(step) for step in steps)

    def _step(self, step: Step) -> StepChecks:
        match step:
            case KernelStep():
                return self._kernel(step)
            case Move():
                return self._move(step)
            case LoopStep():
                return self._loop(step)
            case BindSize() | RequireSize() | RefuseSizes():
                return self._extents(step)
            case CallStep(block=block) if block in self._program.params:
                return self._block_call(step)
            case CallStep():
                aside = tuple(size for size in step.sizes if size not in self._now.known)
                self._now.aside[step.block] = aside
                return AsideSizes(aside)
            case JoinSizes():
                has_any = bool(self._now.aside[step.block])
                return JoinedSizes(self._numbers.number(step.node, BAD_SIZE) if has_any else None)
            case TableStep():
                return self._slices.table(step)
            case PartStep():
                return self._slices.part(step)
            case EntryStep() | WeightCheck():
                return self._entry(step)
            case IntegerStep():
                return self._integer(step)
            case _:
                return NoChecks()

    def _extents(self, step: BindSize | RequireSize | RefuseSizes) -> ExtentChecks:
        match step:
            case BindSize(declared, found):
                known = tuple(self._sizes.known(sizes_in(found), step.node))
                agree = self._sizes.agree(declared, step.node, is_exact=step.is_exact)
                return ExtentChecks((*known, *agree))
            case RequireSize():
                return ExtentChecks(tuple(self._sizes.require(step)))
            case RefuseSizes():
                return ExtentChecks(tuple(self._sizes.refuse(step)))

    # --- operands of kernels and moves ----------------------------------------------------------------------------

    def _kernel(self, step: KernelStep) -> KernelChecks:
        when = self._sizes.when_known(step.outputs) if step.is_initial else None
        if when is None:
            return KernelChecks(None, *self._call(step))
        with self._now.maybe():
            self._sizes.assume(when)
            return KernelChecks(when, *self._call(step))

    def _call(self, step: KernelStep) -> tuple[SizeChecks, tuple[ChosenTensor | None, ...], int | None]:
        extents = tuple(self._sizes.guard([*step.outputs, *step.scratch], step.node))
        inputs = tuple(self._indices.operand(one, step.node) for one in step.inputs)
        return extents, inputs, self._failure(step)

    def _failure(self, step: KernelStep) -> int | None:
        """The failure of a kernel; None if it can fail only in loops without iterations."""
        reasons = dict.fromkeys(one.reason for one in walk(step.kernel.body) if isinstance(one, Fail))
        if not reasons or not any(isinstance(one, Fail) for one in walk(straightened(step.kernel.body))):
            return None
        return self._numbers.number(step.node, mistake("ERROR_VALUE", "; or ".join(reasons)))

    def _move(self, step: Move) -> StepChecks:
        if isinstance(step.src, Value) and self._layouts.memory.is_same(step.src, step.dst):
            return NoChecks()
        when = self._sizes.when_known([step.dst])
        if when is None:
            return self._copy(step, None)
        with self._now.maybe():
            self._sizes.assume(when)
            return self._copy(step, when)

    def _copy(self, step: Move, when: WhenKnown | None) -> MoveChecks:
        extents = tuple(self._sizes.guard([step.dst], step.node))
        return MoveChecks(when, extents, self._indices.operand(step.src, step.node))

    def _entry(self, step: EntryStep | WeightCheck) -> EntryChecks:
        if isinstance(step, WeightCheck):
            chosen = self._indices.chosen(step.weight, step.node)
            return EntryChecks(self._indices.missing(chosen, step.node) if "" in step.weight.names else chosen)
        family, places = step.family, self._layouts.weights.places(step.family.entries)
        chosen = self._indices.chosen(replace(family.entries, index=step.index), step.node)
        has_gaps = family.has_gaps if step.action is Action.WRITE else places.has_gaps
        if has_gaps or step.action is Action.CHECK:
            chosen = self._indices.missing(chosen, step.node)
        return EntryChecks(chosen)

    # --- integers -------------------------------------------------------------------------------------------------

    def _integer(self, step: IntegerStep) -> IntegerChecks:
        known = tuple(self._sizes.known(self._sizes_in([step.expr]), step.node))
        return IntegerChecks(known, self._indices.failure([self._indices.integer(step.expr)], step.node))

    def _sizes_in(self, exprs: Iterable[Expr]) -> set[str]:
        """The dynamic sizes that index expressions read."""
        sizes = {name for expr in exprs for name in names(expr)} & self._program.sizes.keys()
        loops = {index for index, _ in self._now.loops}
        return {size for size in sizes if size not in self._program.bound.vars and size not in loops}

    def _block_call(self, step: CallStep) -> CallChecks:
        known = tuple(self._sizes.known(self._sizes_in(step.integers), step.node))
        args = tuple(self._indices.operand(one, step.node) for one in step.args)
        integers = [self._indices.integer(one) for one in step.integers]
        return CallChecks(known, args, self._indices.failure(integers, step.node))

    def _loop(self, step: LoopStep) -> LoopChecks:
        start, end = self._indices.integer(step.start), self._indices.integer(step.end)
        bounds = self._indices.failure([start, end], step.node)
        self._now.loops.append((step.index, Computed(start.least, max(end.most - 1, start.least))))
        watch = self._watch(max(_executed(self._nodes[step.node].body), 1), step.node)
        with self._now.maybe():
            body = self._body(step.body)
        self._now.loops.pop()
        return LoopChecks(bounds, watch, body)


def _executed(nodes: Sequence[Node]) -> int:
    """The number of nodes executed with these, not counting loop bodies."""
    todo, count = list(nodes), 0
    while todo:
        node = todo.pop()
        count += 1
        if not isinstance(node.kind, Loop):
            todo += node.body
    return count
