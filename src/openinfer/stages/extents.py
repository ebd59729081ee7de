"""The index values of loops and subscripts that are known before a step runs."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod

from openinfer.check.bound import BoundGraph
from openinfer.errors import OpenInferError
from openinfer.ir import Loop
from openinfer.ir.expr import Expr, evaluate, names

_MOST = 1 << 20
"""The most combinations of indices that are enumerated."""
IndexRanges = Mapping[str, range]


def loop_range(bound: BoundGraph, loop: Loop) -> range | None:
    """The range of a loop; None if it differs from step to step."""
    known = {**bound.sizes, **{name: one for name, one in bound.constants.items() if isinstance(one, int)}}
    used = {*names(loop.start), *names(loop.end)}
    if not used <= known.keys():
        return None
    return range(evaluate(loop.start, known.__getitem__), evaluate(loop.end, known.__getitem__))


def values_of(exprs: Iterable[Expr], ranges: IndexRanges, known: Mapping[str, int]) -> Iterator[tuple[int, ...]] | None:
    """All combined values of index expressions within loops; None if they are unknown or too many."""
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
        except OpenInferError:  # a division by zero, which the step will report
            continue
