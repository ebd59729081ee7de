"""Contractions of few rows: the large factor is read once, and each of its elements is used for all rows.

The result has the form of ``openinfer.synth.targets.simt.rows``: a team of threads shares each sum, and each thread has
several accesses in flight.
"""

from collections.abc import Iterator
from itertools import product

from openinfer.loops.affine import position, variables
from openinfer.loops.build import cast
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Binary,
    Buffer,
    Const,
    Contraction,
    For,
    Let,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    Store,
)
from openinfer.loops.rewrite import Statements, replaced
from openinfer.synth.targets.simt.wide import FreshNames

_MOST_ROWS = 8


def streamed(one: Contraction, names: FreshNames) -> Statements | None:
    """A contraction as loops over the rows of the large factor, around sums for all rows of the other one."""
    large, small = sorted((one.a, one.b), key=_elements, reverse=True)
    if one.valid is not None or not one.bound or large == small:
        return None
    along = position(large, one.index_of(large))
    if along is None or is_symbolic(along.stride(one.bound[-1])) or along.stride(one.bound[-1]) != 1:
        return None
    factor, other = one.factors if large == one.a else one.factors[::-1]
    used = variables(factor)
    inside = [(var, extent) for var, extent in zip(one.free, one.extents, strict=True) if var.name not in used]
    count = 1
    for _, extent in inside:
        count = count * extent
    if is_symbolic(count) or not 2 <= count <= _MOST_ROWS:
        return None
    return tuple(_loops(one, factor, other, inside, names))


def _elements(buffer: Buffer) -> int:
    total: int = 1
    for extent in buffer.shape:
        total = int(extent) * total
    return total


def _loops(
    one: Contraction, factor: Scalar, other: Scalar, inside: list[tuple[ScalarVar, int]], names: FreshNames
) -> Iterator[Statement]:
    kind, own = one.accumulator, names.var("factor", one.accumulator)
    total = ScalarVar(ACCUMULATOR, kind)
    before: list[Statement] = []
    body: list[Statement] = [Let(own, cast(factor, kind))]
    after: list[Statement] = []
    for places in product(*(range(extent) for _, extent in inside)):
        known: dict[Scalar, Scalar] = {var: Const(place, INDEX) for (var, _), place in zip(inside, places, strict=True)}
        acc = names.var(ACCUMULATOR, kind)
        before.append(Local(acc, Const(0, kind)))
        term = Binary("mul", replaced(cast(other, kind), known), own)
        body.append(SetLocal(acc, Binary("add", acc, term)))
        index = tuple(replaced(part, known) for part in one.out_index)
        after.append(Store(one.out, index, replaced(one.epilogue, {**known, total: acc})))
    inner = tuple(body)
    for var, extent in zip(reversed(one.bound), reversed(one.reduced), strict=True):
        inner = (For(var, Const(extent, INDEX), inner),)
    made: Statements = (*before, *inner, *after)
    skipped = {var for var, _ in inside}
    for var, extent in zip(reversed(one.free), reversed(one.extents), strict=True):
        if var not in skipped:
            made = (For(var, Const(extent, INDEX), made, LoopKind.PARALLEL),)
    yield from made
