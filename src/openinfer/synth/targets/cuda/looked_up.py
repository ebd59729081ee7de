"""Arguments that change from step to step: a kernel gets the address of a word that holds the value.

A graph then stays as it is. To change an argument of a graph costs the host half a microsecond, and a graph whose
arguments have changed runs more slowly.
"""

from collections.abc import Sequence

from openinfer.loops.ir import Bind, Const, For, Kernel, Space
from openinfer.synth.targets.cstyle.statements import kernel_sizes
from openinfer.synth.targets.gpu.arguments import Argument, Given

_MOST = 64
"""The bits of the word that says which arguments are looked up."""


def looked_up(kernel: Kernel) -> frozenset[str]:
    """The parameters that a kernel looks up: results in cells of tables; sizes, unless they set the number of groups.

    Nothing waits for the address of a result before the result is there.
    """
    sizes = kernel_sizes(kernel)
    if len(kernel.inputs) + len(kernel.outputs) + len(sizes) > _MOST:
        return frozenset()
    names = {one.name for one in kernel.outputs if one.space is Space.STATE}
    if fixed_groups(kernel) is not None:
        names |= {f"s_{size}" for size in sizes}
    return frozenset(names)


def looked_up_bits(kernel: Kernel, arguments: Sequence[Argument]) -> int:
    """A bit for each argument that the kernel looks up."""
    names, bits = looked_up(kernel), 0
    for place, one in enumerate(arguments):
        name = f"s_{one.name}" if one.kind is Given.SIZE else one.name
        if name in names:
            bits |= 1 << place
    return bits


def fixed_groups(kernel: Kernel) -> int | None:
    """The number of groups of a launch whose threads cooperate, if it is the same in every step."""
    loops = [one for one in kernel.body if isinstance(one, For) and one.bind is Bind.GROUP]
    if len(loops) != 1 or not isinstance(loops[0].extent, Const) or not isinstance(loops[0].extent.value, int):
        return None
    return loops[0].extent.value
