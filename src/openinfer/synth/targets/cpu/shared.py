"""Stores weights once, in panels, if one kernel reads them in panels and another by rows.

In many language models the embedding table is also the last matrix. A lookup reads a row of it, a product all of it:
the panels of the product serve both, and no second copy in rows is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from openinfer.loops.ir import INDEX, Buffer, Const, Contraction, Kernel, Load, Scalar, Structure, WideLoad, walk
from openinfer.loops.rewrite import changed_statements
from openinfer.synth.program.ir import KernelStep, Program, Weight
from openinfer.synth.program.packing import Digit, Packing, Strides
from openinfer.synth.targets.cpu.quantized import HALVES

_Tensors = tuple[tuple[str, ...], str]
"""The tensors of an operand, and which part of them it is."""


@dataclass(frozen=True)
class SharePanels:
    """The pass: lookups read the panels of products, for group-quantized weights and 16-bit floats."""

    def run(self, program: Program) -> Program:
        """The program with each such tensor stored once."""
        panels = _panels(program)
        return program.map_kernels(lambda step: (_call(step, panels),)) if panels else program


def _panels(program: Program) -> Mapping[_Tensors, Packing]:
    """The packings of low-bit tensors in products; the scales of group-quantized ones are in panels, too."""
    found: dict[_Tensors, Packing] = {}
    for step in program.steps():
        if isinstance(step, KernelStep):
            own = {(one.names, one.part): one.packing for one in step.inputs if isinstance(one, Weight)}
            halves = {one.names for one in step.inputs if isinstance(one, Weight) and one.dtype.name in HALVES}
            for (names, part), packing in own.items():
                is_stored = own.get((names, "data")) and (names in halves or own.get((names, "scale")))
                if packing is not None and is_stored:
                    found.setdefault((names, part), packing)
    return found


def _call(step: KernelStep, panels: Mapping[_Tensors, Packing]) -> KernelStep:
    wanted = {
        buffer: panels[operand.names, operand.part]
        for buffer, operand in zip(step.kernel.inputs, step.inputs, strict=True)
        if isinstance(operand, Weight) and operand.packing is None and (operand.names, operand.part) in panels
    }
    if not wanted or not _reads_elements(step.kernel) or not all(_are_places(*one) for one in wanted.items()):
        return step
    stored = {buffer: Buffer(buffer.name, buffer.dtype, one.shape, buffer.space) for buffer, one in wanted.items()}

    def moved(part: Scalar) -> Scalar | None:
        if not isinstance(part, Load) or part.buffer not in wanted:
            return None
        return Load(stored[part.buffer], _place(part, wanted[part.buffer]))

    body = changed_statements(step.kernel.body, moved)
    buffers = tuple(stored.get(buffer, buffer) for buffer in step.kernel.inputs)
    inputs = tuple(
        replace(operand, packing=wanted[buffer], shape=wanted[buffer].shape)
        if isinstance(operand, Weight) and buffer in wanted
        else operand
        for buffer, operand in zip(step.kernel.inputs, step.inputs, strict=True)
    )
    return replace(step, kernel=replace(step.kernel, inputs=buffers, body=body), inputs=inputs)


def _reads_elements(kernel: Kernel) -> bool:
    """Whether all reads of a kernel are of single elements."""
    return not any(isinstance(one, Contraction | Structure | WideLoad) for one in walk(kernel.body))


def _are_places(buffer: Buffer, packing: Packing) -> bool:
    """Whether each index of a packing is one axis of the tensor, so that indices determine an element's position."""
    axes, indices = _axes(buffer), [_joined(one) for one in packing.indices]
    return not packing.first and not packing.flip and sorted(indices) == sorted(axes) and len(set(axes)) == len(axes)


def _axes(buffer: Buffer) -> list[Strides]:
    return [((extent, step),) for extent, step in zip(buffer.shape, buffer.actual_strides, strict=True)]


def _joined(strides: Strides) -> Strides:
    """The strides, with axes merged that are contiguous in memory."""
    found: list[tuple[int, int]] = []
    for extent, step in strides:
        if found and found[-1][1] == extent * step:
            found[-1] = (found[-1][0] * extent, step)
        else:
            found.append((extent, step))
    return tuple(found)


def _place(load: Load, packing: Packing) -> tuple[Scalar, ...]:
    """Where an element of the tensor is stored."""
    axes = _axes(load.buffer)
    indices = [load.index[axes.index(_joined(strides))] for strides in packing.indices]
    return tuple(_number(axis, indices, packing) for axis in packing.axes)


def _number(digits: tuple[Digit, ...], indices: list[Scalar], packing: Packing) -> Scalar:
    total: Scalar | None = None
    for digit in digits:
        value = indices[digit.index]
        extent = prod(one for one, _ in packing.indices[digit.index])
        value = value // Const(digit.weight, INDEX) if digit.weight > 1 else value
        is_last = digit.weight * digit.extent >= extent
        value = value if is_last else value % Const(digit.extent, INDEX)
        total = value if total is None else total * Const(digit.extent, INDEX) + value
    assert total is not None
    return total
