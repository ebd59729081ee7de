"""The rule ``one_launch``: two kernels one after the other in one, where a device runs them in a single launch.

What is between them is memory of the kernel. Only a target can say which kernels are a launch: a norm in front of a
product with a vector, say, which each group of threads computes again, or two products that have their rows in common.
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
    """Whether each reader may compute what a kernel does: there are no products in it, and it cannot fail."""
    return not kernel.can_fail and not any(isinstance(one, Contraction | Structure) for one in walk(kernel.body))
