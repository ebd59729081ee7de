"""Operands of steps in the sequencer: where values and weights lie, including weights selected by indices."""

from openinfer.ir.expr import Expr
from openinfer.loops.ir import Scalar
from openinfer.synth.memory.checks.records import ChosenTensor, IndexFailure
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import StepOperand, Value, Weight
from openinfer.synth.targets.vhdl.code import MemoryPlace, SequencerCode, disjunction, integer, looked_up
from openinfer.synth.targets.vhdl.frame import ProgramNames
from openinfer.synth.targets.vhdl.integers import IndexCode
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.ports import MemoryName


class OperandCode:
    """Locates operands."""

    def __init__(self, placed: Placed, places: CircuitMap, code: SequencerCode, names: ProgramNames) -> None:
        self._placed = placed
        self._places = places
        self._code = code
        self._names = names
        self._indices = IndexCode(code, names.named)

    def place(self, operand: StepOperand, checks: ChosenTensor | None) -> MemoryPlace:
        """Where an operand lies; indices that select no tensor fail."""
        if isinstance(operand, Value):
            return self._names.place(operand)
        places = self._placed.weights.places(operand)
        if checks is None:
            return self._places.weights(places.offsets[0])
        if places.line is not None and not places.line[1]:
            self.require(checks)
            return self._places.weights(places.line[0])
        index = self.chosen(operand, checks)
        if places.line is not None:
            first, step = places.line
            return self.dynamic("rom", index * step + self._places.rom.at(first))
        offset = self._code.let(looked_up([*map(self._places.rom.at, places.offsets)], index))
        if checks.gap is not None:
            self._code.fail_if(offset < 0, checks.gap)
        return self.dynamic("rom", offset)

    def dynamic(self, memory: MemoryName, address: Scalar) -> MemoryPlace:
        """A location whose address is computed."""
        bits = self._code.shape.address_bits(memory)
        kept = self._code.machine.variable("at", f"unsigned({bits - 1} downto 0)")
        self._code.machine.line(f"{kept} := {self._code.text(address, bits)};", 2)
        return MemoryPlace(memory, kept, is_fixed=False)

    def chosen(self, weight: Weight, checks: ChosenTensor) -> Scalar:
        """The tensor of a family that its indices select."""
        looked_at = self.require(checks)
        found: Scalar | None = None
        for expr, extent, first in zip(weight.index, weight.extents, weight.firsts, strict=True):
            value = looked_at[expr] if expr in looked_at else self._indices.integer(expr).value
            part = value if first == 0 else value - first
            found = part if found is None else found * integer(extent) + part
        assert found is not None
        return self._code.let(found)

    def require(self, checks: ChosenTensor) -> dict[Expr, Scalar]:
        """Bounds-check the indices of a family; returns the checked ones."""
        self._indices.begin()
        found = {expr: self._indices.integer(expr).value for expr in dict.fromkeys(one.expr for one in checks.spans)}
        tests: list[Scalar] = []
        for one in checks.spans:
            tests += [found[one.expr] < one.first] * one.can_be_below
            tests += [found[one.expr] > one.last] * one.can_be_above
        if isinstance(checks.failure, IndexFailure):
            self._indices.fail_if_bad(checks.failure, disjunction(tests))
        elif checks.failure is not None:
            self._code.fail_if(disjunction(tests), checks.failure)
        return found
