"""Entries of prefix tables in C: the one that indices select, and the step's own in place of the model's."""

from dataclasses import replace
from math import prod

from openinfer.synth.memory.checks.records import ChosenTensor
from openinfer.synth.program.ir import Action, EntryStep, Family, WeightCheck
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.operands import Operands
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile


class Entries:
    """Prints steps that access entries."""

    def __init__(self, file: HostFile, pointers: Pointers, operands: Operands, calls: MemoryCalls) -> None:
        self._file = file
        self._copy = f"{calls.copy}({calls.queue}"
        self._pointers = pointers
        self._operands = operands

    def check(self, step: WeightCheck, checks: ChosenTensor, depth: int) -> None:
        """Checks that indices name a tensor."""
        if checks.gap is None:
            self._operands.require(checks, depth)
            return
        index = self._operands.chosen(step.weight, checks, depth)
        there = tuple(int(bool(name)) for name in step.weight.names)
        listed = self._file.lists.name("there", there, there)
        self._file.line(depth, f"if (!{listed}[{index.text}]) {self._file.fail(checks.gap)}")

    def entry(self, step: EntryStep, checks: ChosenTensor, depth: int) -> None:
        """Accesses an entry of a family that the graph writes: the step's own if written, else the model's."""
        weight = replace(step.family.entries, index=step.index)
        self._file.line(depth, "{")
        self._file.line(depth + 1, f"const int64_t at = {self._operands.chosen(weight, checks, depth + 1).text};")
        checked = self._slot(step.family) if step.action is Action.WRITE else self._offset(step.family)
        if checks.gap is not None:
            self._file.line(depth + 1, f"if ({checked} < 0) {self._file.fail(checks.gap)}")
        if step.action is not Action.CHECK:
            self._access(step, weight.dtype.nbytes(prod(weight.shape)), depth + 1)
        self._file.line(depth, "}")

    def _slot(self, family: Family) -> str:
        """The position of the selected entry among the step's own; negative if nothing writes it."""
        return f"{self._file.lists.name('slots', family, family.slots)}[at]"

    def _offset(self, family: Family) -> str:
        """The offset of the selected entry in the weights."""
        places = self._file.placed.weights.places(family.entries)
        return f"{self._file.lists.name('offsets', places, places.offsets)}[at]"

    def _access(self, step: EntryStep, nbytes: int, depth: int) -> None:
        family = step.family
        own, written, value = map(self._pointers.pointer, (family.own, family.written, step.value))
        slot = self._slot(family)
        mine = f"{own} + {slot} * {nbytes}"
        if step.action is Action.READ:
            chosen = f"{slot} >= 0 && {written}[{slot}] ? {mine} : c->weights + {self._offset(family)}"
            self._file.line(depth, f"{self._copy}{value}, {chosen}, {nbytes});")
        else:
            self._file.line(depth, f"{self._copy}{mine}, {value}, {nbytes});")
            self._file.line(depth, f"{written}[{slot}] = 1;")
