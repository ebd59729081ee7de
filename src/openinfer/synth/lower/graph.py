"""From a bound graph to a program: variables become values, ops become kernels, control flow stays control flow."""

from collections.abc import Iterable, Mapping, Sequence

from openinfer.check.bound import BoundGraph
from openinfer.check.typing import TOO_DEEP_ADVICE
from openinfer.ir import (
    Assign,
    Await,
    Barrier,
    Block,
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
)
from openinfer.ir.expr import TooDeepError
from openinfer.ir.rules import awaited, branch_targets, is_consumer
from openinfer.loops.dim import sizes_in
from openinfer.synth.lower.current import CurrentValues, Homes
from openinfer.synth.lower.ops import Nodes
from openinfer.synth.lower.variables import bound_by, fill_step, refused
from openinfer.synth.program.ir import (
    BranchStep,
    CallStep,
    Fence,
    JoinSizes,
    LoopStep,
    Mark,
    Program,
    Steps,
    Storage,
    Value,
    steps_in,
)
from openinfer.synth.program.liveness import definitions
from openinfer.synth.program.positions import Positions, called_by

MOST_CALLS = 200
"""How deep blocks may call each other."""


def lowered(bound: BoundGraph) -> Program:
    """The program of a bound graph."""
    return _Lowering(bound).run()


class _Lowering(Nodes):
    def __init__(self, bound: BoundGraph) -> None:
        super().__init__(bound)
        self._reached = bound.reached
        self._plain_bits = bound.reached.bits.of(self.plain)
        self._of_entry = {node.index for node in self.graph.blocks["entry"].nodes}
        self._started: set[str] = set()
        self._given: dict[str, set[str]] = {name: set() for name in self.graph.blocks}
        """For each consumer, what it awaits and has been yielded since it last started."""
        self._away: set[str] = set()
        """What entry has yielded and not awaited."""
        self._copies: dict[str, dict[str, Value]] = {}
        self._at_home = Homes(bound.reached.bits)
        """The homes that blocks other than entry find their variables in."""
        self._awaiting: dict[str, list[tuple[int, Block]]] = {}
        for place, block in enumerate(self.graph.blocks.values()):
            for name in awaited(block) if is_consumer(block) else ():
                self._awaiting.setdefault(name, []).append((place, block))
        self._sizes_given: frozenset[str] | None = None
        self._bound_in: dict[str, set[str]] = {}
        """For each block, the dynamic sizes that values in it can be the first to have."""
        self._binds: dict[str, tuple[str, ...]] = {}
        """For each consumer the same, in the blocks that it runs and with no input that has them."""
        self._unjoined: set[str] = set()
        """The consumers that have run and may know sizes that entry does not."""
        self._clobbered: dict[str, set[Value]] = {}
        """For each consumer, the homes of what it awaits in which it works on its copies."""

    def run(self) -> Program:
        outside = set[str]()
        for name in self.graph.blocks:
            if name != "entry":
                outside |= self._own_effects(name).touches
        for name, variable in self.bound.vars.items():
            if variable.kind is MemoryKind.DYNAMIC:
                self.inputs[name] = self._value(name, variable.dtype, self._shape(variable), Storage.INPUT)
            if name in self.plain and (
                variable.kind is MemoryKind.PERSISTENT or (name in outside and self._is_written(name))
            ):
                self._home(name)
        self._at_home = self._places.copy()
        blocks = {name: self._block(name) for name in [*self.graph.blocks] if name != "entry"}
        for name in self._copies:
            reached = _reached(blocks, name) if any(self._bound_in.values()) else set()
            free = {size for one in reached for size in self._bound_in[one]} - self._input_sizes()
            self._binds[name] = tuple(sorted(free))
        entry = self._entry()
        outputs = {name: self._as_value(name) for name in self.bound.output_names if name in self.plain}
        fresh = (fill_step(family.written, 0, -1) for family in self.families.values())
        entry = (*fresh, *entry, *self._take_steps())
        blocks = {"entry": entry, **blocks}
        reached = _reached(blocks, "entry")
        blocks = {name: steps for name, steps in blocks.items() if name in reached}
        program = Program(self.bound, blocks, self.inputs, outputs, self.homes, self.tables, self.sizes)
        _require_shallow(program)
        return program

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _entry(self) -> Steps:
        self.current, self.known = CurrentValues(self._places), self._input_sizes()
        self._body(self.graph.blocks["entry"].nodes)
        self._take_all_back()
        for name, variable in self.bound.vars.items():
            if variable.kind is MemoryKind.PERSISTENT and name in self.plain:
                self._bring_home(name)
        return self._take_steps()

    def _block(self, name: str) -> Steps:
        """A block that runs on homes, and leaves everything there."""
        block = self.graph.blocks[name]
        self.known = self._input_sizes()
        copies: dict[str, Value] = {}
        if is_consumer(block):
            for variable in awaited(block):
                own = self.bound.vars[variable]
                copies[variable] = self._new_home(variable, own.dtype, self._shape(own))
            self._copies[name] = copies
        self.current = CurrentValues(self._places, self._at_home, copies)
        self._body(block.nodes)
        for variable in self.current.touched(self._reached.blocks[name].writes):
            if (place := self.current.beginning(variable)) is not None:
                self._settle(variable, place, block.nodes[-1].index)
        steps = self._take_steps()
        self._bound_in[name] = {
            size for step in steps_in(steps) for size in bound_by(step) if size in self.bound.bounds
        }
        if copies:
            written = {value for step in steps_in(steps) for value in definitions(step)}
            self._clobbered[name] = {self.homes[one] for one in copies if one in self.homes} & written
        return steps

    def _input_sizes(self) -> set[str]:
        """The dynamic sizes that have values before anything runs: those of the inputs, which are all known by now."""
        if self._sizes_given is None:
            extents = (extent for value in self.inputs.values() for extent in value.shape)
            self._sizes_given = frozenset(name for extent in extents for name in sizes_in(extent))
        return set(self._sizes_given)

    def _body(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            try:
                self._node(node)
            except TooDeepError as error:
                raise refused(node, str(error), TOO_DEEP_ADVICE) from error

    def _node(self, node: Node) -> None:
        """A node, and a mark: behind what it computes, but before the nodes that it runs."""
        kind, self.node = node.kind, node.index
        match kind:
            case Op():
                self._emit(Mark(node.index, self._op(node, kind)))
            case Transfer(source, dst) | CacheRead(source, dst) | CacheWrite(source, dst):
                self._emit(Mark(node.index, (self._copy(node, source, dst),)))
            case CacheIncrement(target, amount):
                self._emit(Mark(node.index, (self._count(node, target, amount, 1),)))
            case CacheDecrement(target, amount):
                self._emit(Mark(node.index, (self._count(node, target, amount, -1),)))
            case _:
                self._emit(Mark(node.index))
                self._other(node)

    def _other(self, node: Node) -> None:
        """A node that gives no value."""
        kind = node.kind
        match kind:
            case Assign(name):
                self.current.forget(name)
            case CacheReset(access):
                self._reset(node, access)
            case Barrier():
                self._emit(Fence(node.index))
            case Scope(_, body):
                self._body(body)
            case Loop():
                self._loop(node, kind)
            case Branch():
                self._branch(node, kind)
            case Yield(variables) if node.index in self._of_entry:
                self._hand_over(node, variables)
            case Await(variables) if node.index in self._of_entry:
                self._take_back(variables)

    # --- control flow ---------------------------------------------------------------------------------------------

    def _loop(self, node: Node, kind: Loop) -> None:
        if self._turns((kind,)) == []:
            return
        effects, bits = self.effects[node.index], self._reached.bits
        called = self._reached.called(effects)
        written = (bits.of(effects.writes) | called.writes) & self._plain_bits
        # What the body needs at home is brought there before it, since it may run any number of times, or not at all.
        indexing = bits.of(effects.indexing & self.plain - self.bound.constants.keys())
        needed = indexing | (called.touches & self._places.all)
        for name in self.current.astray(needed | written):
            self._bring_home(name, node.index)
        self._spare(self.current.guests(written))
        scalars = self._scalars(kind.start, kind.end)
        self._settle_weights(kind.index)
        outer, self.steps = self.steps, []
        loops, self.loops = self.loops, (*self.loops, kind)
        before, known = self.current.checkpoint(), set(self.known)
        self._body(kind.body)
        for name in self.current.astray(written):
            self._bring_home(name, node.index)
        body, self.steps, self.loops, self.known = self.steps, outer, loops, known
        # What the body computed for itself is gone after it; what it only read is where it was.
        self.current.restore(before, written)
        self._emit(LoopStep(kind.index, kind.start, kind.end, tuple(body), node.index, kind.name, scalars))

    def _settle_weights(self, index: str) -> None:
        """A loop takes the name of another one's index: what that index chose is copied while it still has a value."""
        self._spare(self.current.chosen_by(index))

    def _branch(self, node: Node, kind: Branch) -> None:
        touched = self._reached.called(self.effects[node.index]).touches
        for name in self.current.astray(touched & self._places.all):
            self._bring_home(name, node.index)
        for block in branch_targets(node):
            self._spare(self.current.guests(self._reached.blocks[block].writes))
        cond = None if kind.cond is None else self._as_value(kind.cond)
        self._emit(BranchStep(cond, kind.then_block, kind.else_block, node.index))

    def _hand_over(self, node: Node, variables: tuple[str, ...]) -> None:
        """Consumers that now have all they await run here, on copies of their own.

        Nothing that a consumer does reaches the values of entry, which the next consumer's copies are made of.
        """
        self._away |= set(variables)
        for name in variables:
            self._require_known(self._read(name, node.index).shape)
        for block in self._takers(variables):
            own = set(awaited(block))
            self._given[block.name] |= own & set(variables)
            if self._given[block.name] != own:
                continue
            self._given[block.name] = set()
            self._started.add(block.name)
            # Where it has run before, what it left may still be the value of a variable.
            self._spare(self.current.residents({*self._copies[block.name].values()}))
            for name, copy in self._copies[block.name].items():
                self._move(self._read(name), copy, node.index)
            reach, others = self._reached.blocks[block.name], ~self._reached.bits.of(own)
            for name in self.current.astray(reach.touches & others & self._places.all):
                self._bring_home(name, node.index)
            self._spare(self.current.guests(reach.writes & others))
            # It may work on a copy in the home of the variable itself: whatever lies there moves away, also that one.
            self._spare(self.current.residents(self._clobbered[block.name]))
            self._emit(CallStep(block.name, node.index, self._binds[block.name]))
            if self._binds[block.name]:
                self._unjoined.add(block.name)

    def _take_back(self, variables: Iterable[str]) -> None:
        self._away -= set(variables)
        for block in self._takers(variables):
            self._join_sizes(block.name)
        for name in variables:
            for block in self._takers([name]):
                if self._reached.bits.has(self._reached.blocks[block.name].writes, name):
                    self.current[name] = self._copies[block.name][name]

    def _take_all_back(self) -> None:
        """The step ends: what consumers have yielded, and entry has not awaited, is theirs all the same."""
        for name in self.graph.blocks:
            self._join_sizes(name)
            last = self.graph.blocks[name].nodes[-1].kind
            if name in self._started and isinstance(last, Yield):
                self._take_back(sorted(self._away & set(last.vars)))

    def _join_sizes(self, block: str) -> None:
        if block in self._unjoined:
            self._unjoined.discard(block)
            self._emit(JoinSizes(block, self.node))

    def _takers(self, variables: Iterable[str]) -> list[Block]:
        """The consumers that await some of the variables, in the order of the text."""
        found = {place: block for name in variables for place, block in self._awaiting.get(name, ())}
        return [block for _, block in sorted(found.items())]


def _require_shallow(program: Program) -> None:
    """Refuse blocks that call each other too deep: each is a function of C, on a stack that may be small."""
    depth = {"entry": 0}
    for name in Positions(program).blocks:
        for step in steps_in(program.blocks[name]):
            for called in called_by(step):
                if depth[name] == MOST_CALLS:
                    nodes = {node.index: node for node in program.bound.graph.walk()}
                    message = f"blocks call each other more than {MOST_CALLS} deep"
                    raise refused(nodes[step.node], message, "let fewer blocks call others, or write some of them out")
                depth[called] = max(depth.get(called, 0), depth[name] + 1)


def _reached(blocks: Mapping[str, Steps], first: str) -> set[str]:
    """The blocks that one runs, itself or through others; what entry does not run is no part of the program."""
    found = {first}
    todo = [first]
    while todo:
        for step in steps_in(blocks[todo.pop()]):
            new = set(called_by(step)) - found
            found |= new
            todo += new
    return found
