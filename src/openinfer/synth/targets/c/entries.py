"""Entries of prefix tables in C: which one indices choose, and the step's own in place of the model's."""

from dataclasses import replace
from math import prod

from openinfer.synth.program.failures import NO_TENSOR
from openinfer.synth.program.ir import Action, EntryStep, Family, WeightCheck
from openinfer.synth.targets.c.operands import Operands
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile


class Entries:
    """Prints steps on entries."""

    def __init__(self, file: HostFile, pointers: Pointers, operands: Operands) -> None:
        self._file = file
        self._pointers = pointers
        self._operands = operands

    def check(self, step: WeightCheck, depth: int) -> None:
        """Indices name a tensor."""
        names = step.weight.names
        if "" not in names:
            self._operands.require(step.weight, step.node, depth)
            return
        index, there = self._operands.chosen(step.weight, step.node, depth), tuple(int(bool(name)) for name in names)
        listed = self._file.lists.name("there", there, there)
        self._file.line(depth, f"if (!{listed}[{index}]) {self._file.fail(step.node, NO_TENSOR)}")

    def entry(self, step: EntryStep, depth: int) -> None:
        """An entry of a family that the graph writes: the step's own if it has written it, else the model's."""
        family, is_write = step.family, step.action is Action.WRITE
        places = self._file.placed.weights.places(family.entries)
        weight = replace(family.entries, index=step.index)
        self._file.line(depth, "{")
        self._file.line(depth + 1, f"const int64_t at = {self._operands.chosen(weight, step.node, depth + 1)};")
        checked = self._slot(family) if is_write else self._offset(family)
        if (family.has_gaps if is_write else places.has_gaps) or step.action is Action.CHECK:
            self._file.line(depth + 1, f"if ({checked} < 0) {self._file.fail(step.node, NO_TENSOR)}")
        if step.action is not Action.CHECK:
            self._access(step, weight.dtype.nbytes(prod(weight.shape)), depth + 1)
        self._file.line(depth, "}")

    def _slot(self, family: Family) -> str:
        """Where among the step's own entries the chosen one is."""
        return f"{self._file.lists.name('slots', family, family.slots)}[at]"

    def _offset(self, family: Family) -> str:
        """Where among the weights the chosen entry is."""
        places = self._file.placed.weights.places(family.entries)
        return f"{self._file.lists.name('offsets', places, places.offsets)}[at]"

    def _access(self, step: EntryStep, nbytes: int, depth: int) -> None:
        family = step.family
        own, written, value = map(self._pointers.pointer, (family.own, family.written, step.value))
        slot = self._slot(family)
        mine = f"{own} + {slot} * {nbytes}"
        if step.action is Action.READ:
            chosen = f"{slot} >= 0 && {written}[{slot}] ? {mine} : c->weights + {self._offset(family)}"
            self._file.line(depth, f"memcpy({value}, {chosen}, {nbytes});")
        else:
            self._file.line(depth, f"memcpy({mine}, {value}, {nbytes});")
            self._file.line(depth, f"{written}[{slot}] = 1;")
