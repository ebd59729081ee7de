"""The fusion rules, in the order in which they are tried.

To add a rule, add a file with a function from a pair of kernels to one kernel or a refusal, and list it here. Every op
must still round as it does alone.
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
    """The result of the first rule that applies, or the distinct reasons why none does."""
    refusals: list[Refusal] = []
    for rule in rules:
        made = rule(pair)
        if isinstance(made, Kernel):
            return made
        refusals.append(made)
    return tuple(dict.fromkeys(refusals))
