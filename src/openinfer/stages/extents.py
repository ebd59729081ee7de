"""Which indices loops and brackets have, where that is known before a step."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod

from openinfer.check.bound import BoundGraph
from openinfer.errors import OpenInferError
from openinfer.ir import Loop
from openinfer.ir.expr import Expr, evaluate, names

_MOST = 1 << 20
"""So many combinations of indices are listed one by one."""
IndexRanges = Mapping[str, range]


def loop_range(bound: BoundGraph, loop: Loop) -> range | None:
    """The indices of a loop; None where they differ from step to step."""
    known = {**bound.sizes, **{name: one for name, one in bound.constants.items() if isinstance(one, int)}}
    used = {*names(loop.start), *names(loop.end)}
    if not used <= known.keys():
        return None
    return range(evaluate(loop.start, known.__getitem__), evaluate(loop.end, known.__getitem__))


def values_of(exprs: Iterable[Expr], ranges: IndexRanges, known: Mapping[str, int]) -> Iterator[tuple[int, ...]] | None:
    """Every value that index expressions have together in some loops; None where that is not known, or too many."""
    wanted = list(exprs)
    used = sorted({name for one in wanted for name in names(one)} - (known.keys() - ranges.keys()))
    if not all(name in ranges for name in used) or prod(len(ranges[name]) for name in used) > _MOST:
        return None
    return _each(wanted, used, ranges, known)


def _each(
    exprs: list[Expr], used: list[str], ranges: IndexRanges, known: Mapping[str, int]
) -> Iterator[tuple[int, ...]]:
    for numbers in product(*(ranges[name] for name in used)):
        values = {**known, **dict(zip(used, numbers, strict=True))}
        try:
            yield tuple(evaluate(one, values.__getitem__) for one in exprs)
        except OpenInferError:  # a division by zero, which the step will say
            continue
