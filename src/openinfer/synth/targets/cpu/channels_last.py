"""Chooses the activations to store channels-last: ``[n, y, x, c]``, whatever the order of a graph's axes.

Depthwise convolutions then use vectors of channels, and others store their results as they compute them. Only values
between kernels change: callers see the order of the graph. Kernels take the order of a buffer from its strides, so
nothing else changes.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from openinfer.loops.affine import position, variables
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Contraction, Kernel, Structure, walk
from openinfer.loops.rewrite import with_buffers
from openinfer.synth.program.ir import KernelStep, Mark, Program, Storage, Value
from openinfer.synth.program.liveness import definitions, uses
from openinfer.synth.targets.cpu.channel_taps import channel_windows_of
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.cpu.memory_order import in_memory_order, jumps
from openinfer.synth.targets.cpu.product import without_single

_CHANNELS = 1
"""The channel axis: after the sample axis, before at least one position axis."""
_TRANSPOSED = 0.2
"""The gain per result stored without a transpose, in elements of depthwise convolutions."""
_JUMP = 3.0
"""The cost per element accessed with a non-unit stride, in elements of depthwise convolutions."""
_LEAST_RANK = 3


@dataclass(frozen=True)
class ChannelsLast:
    """The pass: values between convolutions get another order in memory where that pays off."""

    machine: CpuMachine

    def run(self, program: Program) -> Program:
        """The program with the strides of such values in its kernels."""
        if not self.machine.has_vectors:
            return program
        chosen = ChannelGroups(program, self.machine).chosen()
        return program.map_kernels(lambda step: (_relaid(step, chosen),)) if chosen else program


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a channels-last tensor.

    >>> strides((1, 64, 25, 5))
    (8000, 1, 320, 64)
    """
    _, channels, *places = shape
    inner = [channels * prod(places[at + 1 :]) for at in range(len(places))]
    return channels * prod(places), 1, *inner


def _relaid(step: KernelStep, chosen: Mapping[Value, tuple[int, ...]]) -> KernelStep:
    """A call with the new strides of its operands in its kernel, whose loops follow them."""
    kernel = step.kernel
    pairs = [*zip(kernel.inputs, step.inputs, strict=True), *zip(kernel.outputs, step.outputs, strict=True)]
    moved = {
        buffer.name: replace(buffer, strides=chosen[operand])
        for buffer, operand in pairs
        if isinstance(operand, Value) and operand in chosen
    }
    if not moved:
        return step
    found = in_memory_order(with_buffers(kernel, moved))
    known = dict(zip((one.name for one in kernel.scratch), step.scratch, strict=True))
    memory = tuple(
        known.get(one.name) or Value(f"{step.outputs[0].name}_{one.name}", one.dtype, one.shape)
        for one in found.scratch
    )
    return replace(step, kernel=found, scratch=memory)


class ChannelGroups:
    """Groups of values that share kernels, and whether another order pays off for a whole group."""

    def __init__(self, program: Program, machine: CpuMachine) -> None:
        self._machine = machine
        self._steps = [step for step in program.steps() if isinstance(step, KernelStep)]
        self._values = self._candidates(program)
        self._gains: dict[tuple[int, tuple[Value, ...]], float | None] = {}

    def chosen(self) -> dict[Value, tuple[int, ...]]:
        """The values of all groups for which it pays off, with their strides.

        In the other groups, the values of kernels that lose are dropped, and what remains is grouped again.
        """
        while True:
            groups = self._groups()
            losing = [group for group in groups if not self._pays(group)]
            leaving = {
                value
                for group in losing
                for step in group
                if (gain := self._gain_of(step)) is None or gain < 0
                for value in self._own(step)
            }
            if not leaving:
                kept = dict.fromkeys(value for group in groups if group not in losing for value in self._in(group))
                return {value: strides(value.shape) for value in kept}
            self._values = {value: None for value in self._values if value not in leaving}

    def _groups(self) -> list[list[KernelStep]]:
        """The kernels of each group: those that share values, directly or transitively."""
        root = {value: value for value in self._values}

        def found(value: Value) -> Value:
            while root[value] is not value:
                value = root[value]
            return value

        touching = [(step, own) for step in self._steps if (own := self._own(step))]
        for _, own in touching:
            for one in own[1:]:
                root[found(one)] = found(own[0])
        groups: dict[Value, list[KernelStep]] = {}
        for step, own in touching:
            groups.setdefault(found(own[0]), []).append(step)
        return list(groups.values())

    def _in(self, group: Sequence[KernelStep]) -> Iterator[Value]:
        return (value for step in group for value in self._own(step))

    def _pays(self, group: Sequence[KernelStep]) -> bool:
        gains = [self._gain_of(step) for step in group]
        return None not in gains and sum(gain for gain in gains if gain is not None) > 0

    def _gain_of(self, step: KernelStep) -> float | None:
        own = self._own(step)
        key = id(step), own
        if key not in self._gains:
            relaid = _relaid(step, {value: strides(value.shape) for value in own})
            pairs = zip(relaid.kernel.inputs, relaid.inputs, strict=True)
            fixed = {buffer.name for buffer, operand in pairs if not isinstance(operand, Value)}
            self._gains[key] = self.gain(relaid.kernel, fixed)
        return self._gains[key]

    def _own(self, step: KernelStep) -> tuple[Value, ...]:
        operands = dict.fromkeys(one for one in (*step.inputs, *step.outputs) if isinstance(one, Value))
        return tuple(one for one in operands if one in self._values)

    def _candidates(self, program: Program) -> dict[Value, None]:
        """The float values that only kernels access, with several channels and positions."""
        made = dict.fromkeys(value for step in self._steps for value in step.outputs)
        elsewhere = {*program.outputs.values(), *program.inputs.values(), *program.homes.values()}
        for step in program.steps():
            if not isinstance(step, KernelStep | Mark):
                elsewhere |= {*uses(step), *definitions(step)}
        for params in program.params.values():
            elsewhere |= {*params.args, *params.results}
        for step in self._steps:
            elsewhere |= {*step.scalars, *step.scratch}
            if any(isinstance(one, Structure) for one in walk(step.kernel.body)):
                elsewhere |= {one for one in (*step.inputs, *step.outputs) if isinstance(one, Value)}
        return {value: None for value in made if value not in elsewhere and _has_channels(value)}

    def gain(self, kernel: Kernel, weights: Collection[str]) -> float | None:
        """What a kernel gains, in elements; None if it has no good schedule for such an order."""
        gain = -_JUMP * jumps(kernel)
        for one in walk(kernel.body):
            if not isinstance(one, Contraction):
                continue
            own = without_single(one)
            if channel_windows_of(own, self._machine) is not None:
                gain += prod(own.extents)
            elif _is_grouped(own):
                return None
            elif own.out.strides is not None:
                gain += self._results(own, weights)
        return gain

    def _results(self, one: Contraction, weights: Collection[str]) -> float:
        """What results gain that need no transpose; with fewer channels than lanes, vectors are mostly empty.

        Channels are the rows of the weights: results of a linear layer have them last in the order of the graph.
        """
        place = position(one.out, one.out_index)
        factors = ((one.a, one.a_index), (one.b, one.b_index))
        rows = {name for buffer, where in factors if buffer.name in weights for name in variables(*where)}
        channels = [
            extent
            for var, extent in zip(one.free, one.extents, strict=True)
            if place and place.stride(var) == 1 and var.name in rows
        ]
        is_full = bool(channels) and channels[0] >= self._machine.lanes(one.accumulator.bits)
        return (_TRANSPOSED if is_full else -1.0) * prod(one.extents)


def _has_channels(value: Value) -> bool:
    if len(value.shape) < _LEAST_RANK or value.is_home or value.storage is not Storage.ARENA:
        return False
    if any(map(is_symbolic, value.shape)) or value.dtype.name not in ("f32", "f64"):
        return False
    return value.shape[_CHANNELS] > 1 and prod(value.shape[_CHANNELS + 1 :]) > 1


def _is_grouped(one: Contraction) -> bool:
    """Whether an index selects channels of both factors: a grouped convolution."""
    left, right = (variables(*part) for part in (one.a_index, one.b_index))
    return any(var.name in left and var.name in right for var in one.free)
