"""How many iterations one thread of a launch runs, which some drivers limit."""

from collections.abc import Mapping, Sequence

from openinfer.loops.intervals import Interval, interval
from openinfer.loops.ir import INDEX, Bind, For, If, Let, Statement

_UNROLLED = 32
"""Shader compilers fully unroll innermost loops of up to this many iterations."""

_UNKNOWN = 1 << 31
"""Bounds from here on depend on unknown values, such as data."""


def iterations(body: Sequence[Statement], known: Mapping[str, Interval] | None = None) -> int:
    """The maximum number of loop iterations of one thread, at the upper bounds of sizes.

    Loops that depend on data have no known bound and are not counted; neither are short loops that compilers unroll.
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
            if one.bind in (Bind.THREAD, Bind.GROUP, Bind.TEAM):
                total += inner
            elif most < _UNKNOWN and (inner or most > _UNROLLED):
                total += max(most, 0) * (1 + inner)
    return total
