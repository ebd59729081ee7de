"""The rules by which two kernels become one, in the order in which they are tried.

Another rule is another file with a function from a pair of kernels to one kernel or a refusal, and its entry here.
Every op still rounds as it does alone.
"""

from collections.abc import Sequence

from openinfer.loops.ir import Kernel
from openinfer.synth.passes.fuse.inline import inline
from openinfer.synth.passes.fuse.pair import FusionRule, Pair
from openinfer.synth.passes.fuse.read_elsewhere import read_elsewhere
from openinfer.synth.passes.fuse.sink import sink
from openinfer.synth.passes.fuse.store_elsewhere import store_elsewhere
from openinfer.synth.program.refusal import Refusal

RULES: tuple[FusionRule, ...] = (sink, inline, read_elsewhere, store_elsewhere)


def joined(pair: Pair, rules: Sequence[FusionRule] = RULES) -> Kernel | tuple[Refusal, ...]:
    """What the first rule that applies makes of two kernels, or why none does; rules that agree say it once."""
    refusals: list[Refusal] = []
    for rule in rules:
        made = rule(pair)
        if isinstance(made, Kernel):
            return made
        refusals.append(made)
    return tuple(dict.fromkeys(refusals))
