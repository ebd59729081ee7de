"""Structures as loops, for targets that have no templates for them."""

from dataclasses import replace

from openinfer.loops.expand import plain
from openinfer.loops.ir import Structure
from openinfer.synth.program.ir import KernelStep, Program, Value


def with_loops(program: Program, kept: frozenset[type[Structure]]) -> Program:
    """The program with loops in place of all structures but those of the types that are kept.

    It runs before kernels are shared and fused, which then see what code will be made of: loops are fused as loops.
    """

    def own(step: KernelStep) -> tuple[KernelStep]:
        kernel = plain(step.kernel, kept)
        if kernel == step.kernel:
            return (step,)
        known = dict(zip((buffer.name for buffer in step.kernel.scratch), step.scratch, strict=True))
        memory = tuple(
            known.get(one.name) or Value(f"{step.outputs[0].name}_{one.name}", one.dtype, one.shape, variable=one.name)
            for one in kernel.scratch
        )
        return (replace(step, kernel=kernel, scratch=memory),)

    return program.map_kernels(own)
