"""How many iterations one thread of a launch runs, which some drivers limit."""

from collections.abc import Mapping, Sequence

from openinfer.loops.intervals import Interval, interval
from openinfer.loops.ir import INDEX, Bind, For, If, Let, Statement

_UNROLLED = 32
"""Iterations of a loop without loops inside that compilers of shaders run one after the other, without counting."""

_UNKNOWN = 1 << 31
"""What is not below this depends on numbers that nothing is known of, as data is."""


def iterations(body: Sequence[Statement], known: Mapping[str, Interval] | None = None) -> int:
    """The most iterations of all loops that one thread may run at the bounds of sizes.

    What depends on data is not known, and not counted; nor are short loops that become straight code.
    """
    known, total = dict(known or {}), 0
    for one in body:
        if isinstance(one, Let) and one.var.dtype is INDEX:
            known[one.var.name] = interval(one.value, known)
        elif isinstance(one, If):
            total += max(iterations(one.then, known), iterations(one.otherwise, known))
        elif isinstance(one, For):
            most = interval(one.extent, known)[1]
            inner = iterations(one.body, {**known, one.index.name: (0, max(most - 1, 0))})
            if one.bind in (Bind.THREAD, Bind.GROUP):
                total += inner
            elif most < _UNKNOWN and (inner or most > _UNROLLED):
                total += max(most, 0) * (1 + inner)
    return total
