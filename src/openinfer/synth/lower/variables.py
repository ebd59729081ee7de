"""Variables during lowering: the current value of each, and its home."""

from collections.abc import Iterable, Sequence

from openinfer.check.bound import BoundGraph, FromCaller, FromInit, FromModel, FromPattern
from openinfer.check.reach import Effects
from openinfer.ir import Index, MemoryKind, Node, Single
from openinfer.ir.expr import Expr, names
from openinfer.synth.lower.current import CurrentValues, Homes
from openinfer.synth.lower.emission import Emission
from openinfer.synth.program.ir import Move, StepOperand, Storage, Value, Weight, WeightCheck


class VariableValues:
    """The current value of each variable. Every write makes a new value; homes hold values where control flow joins."""

    def __init__(self, bound: BoundGraph, emission: Emission) -> None:
        self.bound = bound
        self.plain = {
            name
            for name, variable in bound.vars.items()
            if not variable.is_table and not isinstance(variable.origin, FromPattern)
        }
        """The variables that are single tensors."""
        self.inputs: dict[str, Value] = {}
        self.homes = Homes(bound.reached.bits)
        self.current = CurrentValues(self.homes)
        self._emission = emission
        blocks = bound.graph.blocks
        self._written = frozenset[str]().union(*(self.effects(name).writes for name in blocks))

    def effects(self, block: str) -> Effects:
        """The effects of a block itself, without those of the blocks it runs."""
        found = [self.bound.effects[node.index] for node in self.bound.graph.blocks[block].nodes]
        reads, writes = ([getattr(one, kind) for one in found] for kind in ("reads", "writes"))
        return Effects(frozenset().union(*reads), frozenset().union(*writes))

    def is_written(self, name: str) -> bool:
        """Whether any node writes a variable."""
        return name in self._written

    # --- values ---------------------------------------------------------------------------------------------------

    def read(self, name: str, node: int = -1) -> StepOperand:
        """The current value of a variable; initializes it if nothing has read or written it yet."""
        if name not in self.current:
            self.current[name] = self.current.beginning(name) or self._initial(name, node)
        return self.current[name]

    def _initial(self, name: str, node: int) -> StepOperand:
        variable = self.bound.vars[name]
        if variable.kind is MemoryKind.PERSISTENT:
            return self.home(name)
        match variable.origin:
            case FromCaller():
                return self.inputs[name]
            case FromModel(entry):
                return Weight((entry,), variable.dtype, variable.shape)
            case FromInit(value):
                number = 0 if value is None else value.value
                return self._emission.filled(variable, number, node)
            case _:
                raise AssertionError(name)

    def as_value(self, name: str) -> Value:
        """A variable's value in the arena or the state: addressable, and valid after the step."""
        found = self.read(name)
        if isinstance(found, Value) and found.storage in (Storage.ARENA, Storage.STATE):
            return found
        return self._copied(name, found)

    def _copied(self, name: str, value: StepOperand) -> Value:
        copy = self._emission.value(name, value.dtype, value.shape)
        self._emission.emit(Move(value, copy, -1))
        return copy

    def chosen_now(self, weight: Weight, node: Node) -> StepOperand:
        """Copy a weight now if its index reads variables, which may change before it is used."""
        scalars = self.scalars(*weight.index)
        if not scalars:
            if weight.can_miss:
                self._emission.emit(WeightCheck(weight, node.index))
            return weight
        copy = self._emission.value(weight.names[0], weight.dtype, weight.shape)
        self._emission.emit(Move(weight, copy, node.index, scalars))
        return copy

    # --- homes ----------------------------------------------------------------------------------------------------

    def home(self, name: str) -> Value:
        """A variable's home, which holds its value wherever control flow joins."""
        if name not in self.homes.values:
            variable = self.bound.vars[name]
            storage = Storage.STATE if variable.kind is MemoryKind.PERSISTENT else Storage.ARENA
            shape = self._emission.shapes.of(variable)
            self.homes.add(name, self._emission.home(name, variable.dtype, shape, storage))
        return self.homes.values[name]

    def bring_home(self, name: str, node: int = -1) -> None:
        """Move a variable's value to its home."""
        self.settle(name, self.home(name), node)

    def settle(self, name: str, home: Value, node: int) -> None:
        """Make a home hold the value of its variable."""
        value = self.read(name, node)
        if value is not home:
            self.spare(one for one in self.current.residents({home}) if one != name)
            self._emission.move(value, home, node)
            self.current[name] = home

    def spare(self, variables: Iterable[str]) -> None:
        """Copy variables out of homes that are about to be overwritten."""
        for name in variables:
            self.current[name] = self._copied(name, self.current[name])

    # --- index expressions ----------------------------------------------------------------------------------------

    def scalars(self, *exprs: Expr | None) -> tuple[Value, ...]:
        """The homes of the variables that index expressions read, with the values moved there."""
        shapes, place = self._emission.shapes, self._emission.place
        found: list[Value] = []
        for expr in exprs:
            for name in () if expr is None else names(expr):
                if place.is_index(name) or name in self.bound.constants:
                    continue
                if name in self.bound.vars:
                    self.bring_home(name)
                    found.append(self.home(name))
                elif name in shapes.sizes:
                    self._emission.require_known([shapes.size(name)])
        return tuple(found)

    def index_scalars(self, indices: Sequence[Index]) -> tuple[Value, ...]:
        """The same for the expressions in indices."""
        exprs: list[Expr | None] = []
        for index in indices:
            exprs += [index.value] if isinstance(index, Single) else [index.start, index.end]
        return self.scalars(*exprs)
