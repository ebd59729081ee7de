"""Lowers a bound graph to a program: variables become values, ops become kernels, control flow stays control flow."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from openinfer.check.bound import BoundGraph
from openinfer.check.order import after_needs
from openinfer.check.typing import TOO_DEEP_ADVICE
from openinfer.ir import (
    Assign,
    Await,
    Barrier,
    Block,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Loop,
    MemoryKind,
    Node,
    Op,
    Scope,
    Transfer,
    Yield,
    walk,
)
from openinfer.ir.expr import TooDeepError
from openinfer.ir.rules import blocks_run
from openinfer.loops.dim import sizes_in
from openinfer.loops.ir import Structure
from openinfer.synth.lower.access import Accesses
from openinfer.synth.lower.block_calls import BlockCalls
from openinfer.synth.lower.consumers import Consumers
from openinfer.synth.lower.copies import Copies
from openinfer.synth.lower.current import CurrentValues, Homes
from openinfer.synth.lower.emission import Emission, bound_by, fill_step, refused
from openinfer.synth.lower.families import Families
from openinfer.synth.lower.ops import Ops
from openinfer.synth.lower.place import LoweringPlace
from openinfer.synth.lower.shapes import Shapes
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import (
    BranchStep,
    Fence,
    LoopStep,
    Mark,
    Program,
    Steps,
    Storage,
    steps_in,
)
from openinfer.synth.program.positions import Positions, called_by

MOST_CALLS = 200
"""The deepest nesting of block calls."""


def lowered(
    bound: BoundGraph, kept: frozenset[type[Structure]] = frozenset(), short: Collection[tuple[str, str]] = ()
) -> Program:
    """The program of a bound graph. Structured statements are lowered to loops, except for the ``kept`` types.

    ``short`` are the functions that the target has for results of few bits, by name and the dtype of the result.
    Kernels are therefore compared and fused in the form that code is generated from.
    """
    return _Lowering(bound, kept, short).run()


class _Lowering:
    """Lowers the blocks of a graph, node by node."""

    def __init__(self, bound: BoundGraph, kept: frozenset[type[Structure]], short: Collection[tuple[str, str]]) -> None:
        self._bound = bound
        self._blocks = bound.graph.blocks
        self._reached = bound.reached
        self._place = LoweringPlace(bound)
        self._shapes = Shapes(bound)
        self._emission = Emission(self._shapes, self._place)
        self._variables = VariableValues(bound, self._emission)
        self._families = Families(bound, self._emission, self._variables)
        self._accesses = Accesses(bound, self._emission, self._variables, self._families)
        self._ops = Ops(bound, self._emission, self._variables, self._families, self._accesses, kept, short)
        self._copies = Copies(bound, self._emission, self._variables, self._accesses)
        self._consumers = Consumers(bound, self._emission, self._variables)
        self._calls = BlockCalls(bound, self._emission, self._variables, self._copies)
        self._plain_bits = bound.reached.bits.of(self._variables.plain)
        self._of_entry = {node.index for node in self._blocks["entry"].nodes}
        self._at_home = Homes(bound.reached.bits)
        """The homes in which blocks other than entry find their variables."""
        self._sizes_given: frozenset[str] = frozenset()
        """The dynamic sizes that are bound before anything runs: those of the inputs."""
        self._bound_in: dict[str, set[str]] = {}
        """For each block, the dynamic sizes that it may be the first to bind."""

    def run(self) -> Program:
        """The program."""
        self._begin()
        plain = {name: block for name, block in self._blocks.items() if block.params is None and name != "entry"}
        blocks = {name: self._block(block) for name, block in plain.items()}
        for name in self._consumers.copies:
            reached = (
                _reached(blocks, name) if any(self._bound_in.values()) or len(plain) < len(self._blocks) - 1 else set()
            )
            free = {size for one in reached for size in self._may_bind(one)} - self._sizes_given
            self._consumers.binds[name] = tuple(sorted(free))
        entry = self._entry()
        variables = self._variables
        outputs = {name: variables.as_value(name) for name in self._bound.output_names if name in variables.plain}
        fresh = (fill_step(family.written, 0, -1) for family in self._families.written.values())
        entry = (*fresh, *entry, *self._emission.taken())
        blocks = {"entry": entry, **blocks}
        self._called(blocks)
        reached = _reached(blocks, "entry")
        blocks = {name: steps for name, steps in blocks.items() if name in reached}
        tables, homes = self._accesses.tables, variables.homes.values
        sizes, params = self._shapes.sizes, {name: one for name, one in self._calls.params.items() if name in blocks}
        program = Program(self._bound, blocks, variables.inputs, outputs, homes, tables, sizes, params=params)
        _require_shallow(program)
        return program

    def _begin(self) -> None:
        """Give inputs values, and variables that outlive blocks homes."""
        variables = self._variables
        outside = set[str]()
        for name in self._blocks:
            if name != "entry":
                outside |= variables.effects(name).touches - self._blocks[name].locals
        for name, variable in self._bound.vars.items():
            if variable.kind is MemoryKind.DYNAMIC:
                shape = self._shapes.of(variable)
                variables.inputs[name] = self._emission.value(name, variable.dtype, shape, Storage.INPUT)
            is_shared = name in outside and variables.is_written(name)
            if name in variables.plain and (variable.kind is MemoryKind.PERSISTENT or is_shared):
                variables.home(name)
        self._at_home = variables.homes.copy()
        extents = (extent for value in variables.inputs.values() for extent in value.shape)
        self._sizes_given = frozenset(name for extent in extents for name in sizes_in(extent))

    def _called(self, blocks: dict[str, Steps]) -> None:
        """Lower the blocks with parameters, each once all its calls are known."""
        called = {name: block for name, block in self._blocks.items() if block.params is not None}
        if not called:
            return
        runs = {
            name: [one for node in walk(block.nodes) for one in blocks_run(node)]
            for name, block in self._blocks.items()
        }
        for name in reversed([*after_needs(runs, runs.__getitem__)]):
            if name in called and name in _reached(blocks, "entry"):
                blocks[name] = self._block(called[name])
        for name, steps in blocks.items():
            blocks[name] = self._calls.finished(steps)

    def _may_bind(self, block: str) -> Iterable[str]:
        """The dynamic sizes that a block may be the first to bind; a block that is not lowered yet may bind any."""
        return self._bound_in.get(block, self._bound.bounds)

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _entry(self) -> Steps:
        variables = self._variables
        variables.current = CurrentValues(variables.homes)
        self._emission.begin(self._sizes_given)
        self._body(self._blocks["entry"].nodes)
        self._consumers.take_all_back()
        for name, variable in self._bound.vars.items():
            if variable.kind is MemoryKind.PERSISTENT and name in variables.plain:
                variables.bring_home(name)
        return self._emission.taken()

    def _block(self, block: Block) -> Steps:
        """Lower a block, which finds variables in their homes and leaves them there."""
        variables, name = self._variables, block.name
        self._emission.begin(self._sizes_given)
        variables.current = CurrentValues(variables.homes, self._at_home, self._consumers.begin(block))
        if block.params is not None:
            self._place.loops = self._calls.begin(block)
            self._emission.begin(self._sizes_given | self._calls.sizes(name))
        self._body(block.nodes)
        self._place.loops = ()
        if block.params is not None:
            self._calls.end(block)
        for variable in variables.current.touched(self._reached.blocks[name].writes):
            if (place := variables.current.beginning(variable)) is not None:
                variables.settle(variable, place, block.nodes[-1].index)
        steps = self._emission.taken()
        bounds = self._bound.bounds
        self._bound_in[name] = {size for step in steps_in(steps) for size in bound_by(step) if size in bounds}
        self._consumers.end(block, steps)
        return steps

    def _body(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            try:
                self._node(node)
            except TooDeepError as error:
                raise refused(node, str(error), TOO_DEEP_ADVICE) from error

    def _node(self, node: Node) -> None:
        """Lower a node, with a mark after what it computes but before the nodes that it runs."""
        kind, self._place.node = node.kind, node.index
        match kind:
            case Op():
                self._emission.emit(Mark(node.index, self._ops.op(node, kind)))
            case Transfer(source, dst) | CacheRead(source, dst) | CacheWrite(source, dst):
                self._emission.emit(Mark(node.index, (self._copies.copy(node, source, dst),)))
            case CacheIncrement(target, amount):
                self._emission.emit(Mark(node.index, (self._copies.count(node, target, amount, 1),)))
            case CacheDecrement(target, amount):
                self._emission.emit(Mark(node.index, (self._copies.count(node, target, amount, -1),)))
            case BlockCall():
                self._calls.call(node, kind)
            case _:
                self._emission.emit(Mark(node.index))
                self._other(node)

    def _other(self, node: Node) -> None:
        """Lower a node without a result."""
        kind = node.kind
        match kind:
            case Assign(name):
                self._variables.current.forget(name)
            case CacheReset(access):
                self._accesses.reset(node, access)
            case Barrier():
                self._emission.emit(Fence(node.index))
            case Scope(_, body):
                self._body(body)
            case Loop():
                self._loop(node, kind)
            case Branch():
                self._branch(node, kind)
            case Yield(variables) if node.index in self._of_entry:
                self._consumers.hand_over(node, variables)
            case Await(variables) if node.index in self._of_entry:
                self._consumers.take_back(variables)

    # --- control flow ---------------------------------------------------------------------------------------------

    def _loop(self, node: Node, kind: Loop) -> None:
        if self._place.iterations((kind,)) == []:
            return
        variables, current, bits = self._variables, self._variables.current, self._reached.bits
        effects = self._bound.effects[node.index]
        called = self._reached.called(effects)
        written = (bits.of(effects.writes) | called.writes) & self._plain_bits
        # Variables that the body needs at home go there before the loop, which may run any number of times, or not at
        # all.
        indexing = bits.of(effects.indexing & variables.plain - self._bound.constants.keys())
        needed = indexing | (called.touches & variables.homes.all)
        for name in current.astray(needed | written):
            variables.bring_home(name, node.index)
        variables.spare(current.guests(written))
        scalars = variables.scalars(kind.start, kind.end)
        # The index shadows an outer one of the same name: copy what that one selects while it is visible.
        variables.spare(current.chosen_by(kind.index))
        loops, self._place.loops = self._place.loops, (*self._place.loops, kind)
        with self._emission.body() as body:
            before = current.checkpoint()
            self._body(kind.body)
            for name in current.astray(written):
                variables.bring_home(name, node.index)
        self._place.loops = loops
        # Values that only the body computed are gone after it; what it only read is where it was.
        current.restore(before, written)
        step = LoopStep(kind.index, kind.start, kind.end, tuple(body), node.index, kind.name, scalars)
        self._emission.emit(step)

    def _branch(self, node: Node, kind: Branch) -> None:
        variables, current = self._variables, self._variables.current
        touched = self._reached.called(self._bound.effects[node.index]).touches
        for name in current.astray(touched & variables.homes.all):
            variables.bring_home(name, node.index)
        for block in blocks_run(node):
            variables.spare(current.guests(self._reached.blocks[block].writes))
        cond = None if kind.cond is None else variables.as_value(kind.cond)
        self._emission.emit(BranchStep(cond, kind.then_block, kind.else_block, node.index))


def _require_shallow(program: Program) -> None:
    """Reject block calls that nest too deeply: each block is a C function, on a stack that may be small."""
    depth = {"entry": 0}
    for name in Positions(program).blocks:
        for step in steps_in(program.blocks[name]):
            for called in called_by(step):
                if depth[name] == MOST_CALLS:
                    nodes = {node.index: node for node in program.bound.graph.walk()}
                    message = f"blocks call each other more than {MOST_CALLS} deep"
                    raise refused(nodes[step.node], message, "let fewer blocks call others, or inline some of them")
                depth[called] = max(depth.get(called, 0), depth[name] + 1)


def _reached(blocks: Mapping[str, Steps], first: str) -> set[str]:
    """The blocks that are reachable from one. What entry does not reach is not part of the program."""
    found = {first}
    todo = [first]
    while todo:
        for step in steps_in(blocks.get(todo.pop(), ())):
            new = set(called_by(step)) - found
            found |= new
            todo += new
    return found
