"""Windows on a buffer: what they see, copied so that no term of a sum falls outside.

In a contraction over windows only those terms count that lie on its first factor. Over a copy of that factor with zeros
around, all terms count. The result is computed in bands, each with a copy of what its own windows see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from openinfer.loops.affine import Affine, affine
from openinfer.loops.build import index
from openinfer.loops.ir import (
    Binary,
    Buffer,
    Compare,
    Const,
    Contraction,
    For,
    If,
    Load,
    LoopKind,
    Scalar,
    ScalarVar,
    Statement,
    Store,
)
from openinfer.loops.rewrite import changed_statements, straightened

BAND = ScalarVar("band")
"""The index of bands."""


def conditions(condition: Scalar) -> list[Scalar]:
    """Conditions that must all be true."""
    match condition:
        case Binary("and", left, right):
            return [*conditions(left), *conditions(right)]
        case _:
            return [condition]


def is_window(one: Contraction) -> bool:
    """Whether terms count exactly where they lie on the first factor, whose positions are sums of indices."""
    places = [affine(part) for part in one.a_index]
    edges = [affine(part - index(extent)) for part, extent in zip(one.a_index, one.a.shape, strict=True)]
    asked = [] if one.valid is None else conditions(one.valid)
    is_forward = all(place is not None and min(place.steps.values(), default=0) >= 0 for place in places)
    return is_forward and all(_is_edge(part, places, edges) for part in asked)


def _is_edge(condition: Scalar, places: Sequence[Affine | None], edges: Sequence[Affine | None]) -> bool:
    match condition:
        case Compare("ge", left, right):
            return affine(left - right) in places
        case Compare("lt", left, right):
            return affine(left - right) in edges
        case _:
            return False


@dataclass(frozen=True)
class AxisSpan:
    """What a contraction sees of an axis: ``count`` input positions from ``first``, which depends on outer indices."""

    first: Affine
    count: int
    inside: Affine
    """A position, counted from the first."""
    is_edged: bool
    """Whether some of the positions are outside of the axis."""


def spans(one: Contraction, outside: Mapping[str, int]) -> tuple[AxisSpan, ...]:
    """The spans of a contraction that is a window, with the extents of the indices outside of it."""
    own = dict(zip((var.name for var in (*one.free, *one.bound)), (*one.extents, *one.reduced), strict=True))
    found = []
    for part, extent in zip(one.a_index, one.a.shape, strict=True):
        at = affine(part)
        assert at is not None
        inside = Affine(0, {name: step for name, step in at.steps.items() if name in own})
        first = Affine(at.first, {name: step for name, step in at.steps.items() if name not in own})
        count = 1 + _reach(inside, own)
        last = at.first + count - 1 + _reach(first, outside)
        found.append(AxisSpan(first, count, inside, at.first < 0 or last >= extent))
    return tuple(found)


def _reach(place: Affine, extents: Mapping[str, int]) -> int:
    return sum(step * (extents[name] - 1) for name, step in place.steps.items())


def band(one: Contraction, var: ScalarVar, height: int) -> Contraction:
    """The contraction restricted to one band of a free index."""

    def moved(part: Scalar) -> Scalar | None:
        return BAND * index(height) + var if part == var else None

    (found,) = changed_statements((one,), moved)
    assert isinstance(found, Contraction)
    extents = tuple(height if free == var else extent for free, extent in zip(one.free, one.extents, strict=True))
    return replace(found, extents=extents)


def without(one: Contraction, var: ScalarVar) -> Contraction:
    """The contraction for one position of a free index."""
    pairs = [pair for pair in zip(one.free, one.extents, strict=True) if pair[0] != var]
    return replace(one, free=tuple(free for free, _ in pairs), extents=tuple(extent for _, extent in pairs))


def copied(one: Contraction, seen: Sequence[AxisSpan], memory: Buffer) -> tuple[tuple[Statement, ...], Contraction]:
    """Statements that copy what windows see, and the contraction over the copy: all of its terms count.

    The last axis is copied in one piece, with zeros before and behind it.
    """
    *outer, row = seen
    places = [ScalarVar(f"at{axis}") for axis in range(len(outer))]
    sources = [span.first.scalar() + place for span, place in zip(outer, places, strict=True)]
    asked = [
        condition
        for span, source, extent in zip(outer, sources, one.a.shape, strict=False)
        if span.is_edged
        for condition in (source >= index(0), source < index(extent))
    ]
    body = _row(one, row, sources, (memory, places))
    if asked:
        body = (If(reduce(and_, asked), body, (_zeros(memory, places, 0, row.count),)),)
    for place, span in zip(reversed(places), reversed(outer), strict=True):
        body = (For(place, index(span.count), body, LoopKind.PARALLEL),)
    where = tuple(span.inside.scalar() for span in seen)
    return straightened(body), replace(one, a=memory, a_index=where, valid=None)


def _row(
    one: Contraction, row: AxisSpan, sources: Sequence[Scalar], to: tuple[Buffer, Sequence[ScalarVar]]
) -> tuple[Statement, ...]:
    """What is seen of one row, with zeros where it is not on the buffer."""
    memory, places = to
    first = row.first.first
    low, high = max(-first, 0), max(min(row.count, one.a.shape[-1] - first), 0)
    at = ScalarVar("at")
    copy = Store(memory, (*places, at + index(low)), Load(one.a, (*sources, at + index(low + first))))
    loops = (
        _zeros(memory, places, 0, low),
        For(at, index(high - low), (copy,), LoopKind.PARALLEL),
        _zeros(memory, places, high, row.count),
    )
    return tuple(loop for loop in loops if loop.extent != index(0))


def _zeros(memory: Buffer, places: Sequence[ScalarVar], first: int, last: int) -> For:
    at = ScalarVar("at")
    store = Store(memory, (*places, at + index(first)), Const(0, memory.dtype))
    return For(at, index(last - first), (store,), LoopKind.PARALLEL)
