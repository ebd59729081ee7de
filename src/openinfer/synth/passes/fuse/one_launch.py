"""The rule ``one_launch``: runs two kernels in sequence within a single device launch.

The value between them becomes scratch memory of the kernel. Only a target knows what fits in one launch: a norm in
front of a matrix-vector product, say, which each workgroup recomputes, or two products that share their rows.
"""

from collections.abc import Callable
from dataclasses import replace

from openinfer.loops.ir import Alloc, Contraction, Kernel, Space, Structure, walk
from openinfer.loops.rewrite import with_buffers
from openinfer.synth.passes.fuse.pair import FusionRule, Pair
from openinfer.synth.program.refusal import Refusal

IsLaunch = Callable[[Kernel], bool]
"""Whether a device runs a kernel in one launch."""
_SEVERAL = Refusal("the device would run them in a launch each")


def one_launch(is_launch: IsLaunch) -> FusionRule:
    """The rule for a device."""

    def rule(pair: Pair) -> Kernel | Refusal:
        memory = replace(pair.between, space=Space.SCRATCH)
        first = with_buffers(pair.producer, {pair.producer.outputs[0].name: memory})
        then = with_buffers(pair.consumer, {pair.between.name: memory})
        inputs = (*first.inputs, *(one for one in then.inputs if one.name != memory.name))
        body = (Alloc(memory), *first.body, *then.body)
        made = replace(then, name=pair.name, inputs=inputs, body=body)
        return made if is_launch(made) else _SEVERAL

    return rule


def is_cheap(kernel: Kernel) -> bool:
    """Whether a kernel is cheap enough to duplicate into each reader: it has no products, and cannot fail."""
    return not kernel.can_fail and not any(isinstance(one, Contraction | Structure) for one in walk(kernel.body))
