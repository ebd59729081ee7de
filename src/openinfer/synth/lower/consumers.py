"""Lowers consumers: blocks that await variables, and run on copies of them once entry has yielded all of them."""

from collections.abc import Iterable, Mapping

from openinfer.check.bound import BoundGraph
from openinfer.ir import Block, Node, Yield
from openinfer.ir.rules import awaited, is_consumer
from openinfer.synth.lower.emission import Emission
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import CallStep, JoinSizes, Steps, Value, steps_in
from openinfer.synth.program.liveness import definitions


class Consumers:
    """The variables that entry yields to consumers, and awaits from them."""

    def __init__(self, bound: BoundGraph, emission: Emission, variables: VariableValues) -> None:
        self._blocks = bound.graph.blocks
        self._vars = bound.vars
        self._reached = bound.reached
        self._emission = emission
        self._variables = variables
        self.copies: dict[str, dict[str, Value]] = {}
        """For each consumer, its copies of the variables it awaits."""
        self.binds: dict[str, tuple[str, ...]] = {}
        """For each consumer, the dynamic sizes that it may be the first to bind, since no input binds them."""
        self._clobbered: dict[str, set[Value]] = {}
        """For each consumer, the homes of awaited variables that it overwrites while it works on its copies."""
        self._given: dict[str, set[str]] = {name: set() for name in self._blocks}
        """For each consumer, the variables it awaits that entry has yielded since it last started."""
        self._started: set[str] = set()
        self._away: set[str] = set()
        """The variables that entry has yielded and not awaited yet."""
        self._unjoined: set[str] = set()
        """The consumers that have run and may have bound sizes that entry has not."""
        self._awaiting: dict[str, list[tuple[int, Block]]] = {}
        for place, block in enumerate(self._blocks.values()):
            for name in awaited(block) if is_consumer(block) else ():
                self._awaiting.setdefault(name, []).append((place, block))

    def begin(self, block: Block) -> Mapping[str, Value]:
        """Begin a block; returns a consumer's own copies of the variables it awaits."""
        if not is_consumer(block):
            return {}
        own = {name: self._vars[name] for name in awaited(block)}
        shapes = self._emission.shapes
        copies = {name: self._emission.home(name, one.dtype, shapes.of(one)) for name, one in own.items()}
        self.copies[block.name] = copies
        return copies

    def end(self, block: Block, steps: Steps) -> None:
        """Record which homes the finished block overwrites."""
        if copies := self.copies.get(block.name):
            written = {value for step in steps_in(steps) for value in definitions(step)}
            homes = self._variables.homes.values
            self._clobbered[block.name] = {homes[one] for one in copies if one in homes} & written

    # --- entry yields and awaits ----------------------------------------------------------------------------------

    def hand_over(self, node: Node, yielded: tuple[str, ...]) -> None:
        """Run the consumers whose awaited variables have now all been yielded, on copies of their own.

        A consumer cannot change entry's values, from which the next consumer's copies are made.
        """
        self._away |= set(yielded)
        for name in yielded:
            self._emission.require_known(self._variables.read(name, node.index).shape)
        for block in self._takers(yielded):
            own = set(awaited(block))
            self._given[block.name] |= own & set(yielded)
            if self._given[block.name] != own:
                continue
            self._given[block.name] = set()
            self._started.add(block.name)
            self._run(block, own, node)

    def _run(self, block: Block, own: set[str], node: Node) -> None:
        variables, current = self._variables, self._variables.current
        # If it has run before, its copies may still hold the values of variables.
        variables.spare(current.residents({*self.copies[block.name].values()}))
        for name, copy in self.copies[block.name].items():
            self._emission.move(variables.read(name), copy, node.index)
        reach, others = self._reached.blocks[block.name], ~self._reached.bits.of(own)
        for name in current.astray(reach.touches & others & variables.homes.all):
            variables.bring_home(name, node.index)
        variables.spare(current.guests(reach.writes & others))
        # It may overwrite a variable's home while it works on the copy: move everything out, the variable itself
        # included.
        variables.spare(current.residents(self._clobbered[block.name]))
        self._emission.emit(CallStep(block.name, node.index, self.binds[block.name]))
        if self.binds[block.name]:
            self._unjoined.add(block.name)

    def take_back(self, variables: Iterable[str]) -> None:
        """Entry awaits variables: they take the values that consumers have given them."""
        self._away -= set(variables)
        for block in self._takers(variables):
            self._join_sizes(block.name)
        for name in variables:
            for block in self._takers([name]):
                if self._reached.bits.has(self._reached.blocks[block.name].writes, name):
                    self._variables.current[name] = self.copies[block.name][name]

    def take_all_back(self) -> None:
        """The step ends: variables that consumers have yielded take those values even if entry has not awaited them."""
        for name, block in self._blocks.items():
            self._join_sizes(name)
            last = block.nodes[-1].kind
            if name in self._started and isinstance(last, Yield):
                self.take_back(sorted(self._away & set(last.vars)))

    def _join_sizes(self, block: str) -> None:
        if block in self._unjoined:
            self._unjoined.discard(block)
            self._emission.emit(JoinSizes(block, self._emission.place.node))

    def _takers(self, variables: Iterable[str]) -> list[Block]:
        """The consumers that await any of the variables, in source order."""
        found = {place: block for name in variables for place, block in self._awaiting.get(name, ())}
        return [block for _, block in sorted(found.items())]
