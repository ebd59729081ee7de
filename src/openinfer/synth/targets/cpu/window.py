"""Windows on a buffer: their input, copied with padding so that no term of a sum is out of bounds.

In a contraction over windows, only terms inside the first factor are valid. Over a zero-padded copy of that factor, all
terms are valid. The result is computed in bands, each with a copy of the input of its own windows.
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
    """The conditions of a conjunction."""
    match condition:
        case Binary("and", left, right):
            return [*conditions(left), *conditions(right)]
        case _:
            return [condition]


def is_window(one: Contraction) -> bool:
    """Whether terms are valid exactly inside the first factor, whose positions are affine and non-decreasing."""
    places = [affine(part) for part in one.a_index]
    edges = [affine(part - index(extent)) for part, extent in zip(one.a_index, one.a.shape, strict=True)]
    asked = [] if one.valid is None else conditions(one.valid)
    is_forward = all(place is not None and min(place.strides.values(), default=0) >= 0 for place in places)
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
    """What a contraction reads of an axis: ``count`` positions from ``first``, which depends on outer indices."""

    first: Affine
    count: int
    inside: Affine
    """A position, relative to the first."""
    is_edged: bool
    """Whether some of the positions are outside the axis."""


def spans(one: Contraction, outside: Mapping[str, int]) -> tuple[AxisSpan, ...]:
    """The spans of a window contraction; ``outside`` has the extents of the indices around it."""
    own = dict(zip((var.name for var in (*one.free, *one.bound)), (*one.extents, *one.reduced), strict=True))
    found = []
    for part, extent in zip(one.a_index, one.a.shape, strict=True):
        at = affine(part)
        assert at is not None
        inside = Affine(0, {name: step for name, step in at.strides.items() if name in own})
        first = Affine(at.first, {name: step for name, step in at.strides.items() if name not in own})
        count = 1 + _reach(inside, own)
        last = at.first + count - 1 + _reach(first, outside)
        found.append(AxisSpan(first, count, inside, at.first < 0 or last >= extent))
    return tuple(found)


def _reach(place: Affine, extents: Mapping[str, int]) -> int:
    return sum(step * (extents[name] - 1) for name, step in place.strides.items())


def band(one: Contraction, var: ScalarVar, height: int) -> Contraction:
    """The contraction restricted to one band of a free index."""

    def moved(part: Scalar) -> Scalar | None:
        return BAND * index(height) + var if part == var else None

    (found,) = changed_statements((one,), moved)
    assert isinstance(found, Contraction)
    extents = tuple(height if free == var else extent for free, extent in zip(one.free, one.extents, strict=True))
    return replace(found, extents=extents)


def without(one: Contraction, var: ScalarVar) -> Contraction:
    """The contraction at one position of a free index."""
    pairs = [pair for pair in zip(one.free, one.extents, strict=True) if pair[0] != var]
    return replace(one, free=tuple(free for free, _ in pairs), extents=tuple(extent for _, extent in pairs))


def copied(one: Contraction, seen: Sequence[AxisSpan], memory: Buffer) -> tuple[tuple[Statement, ...], Contraction]:
    """Statements that copy the input of the windows, and the contraction over the copy, where all terms are valid.

    The contiguous axis is copied in one piece, with zeros before and after it.
    """
    *outer, last = in_memory(one.a)
    places = [ScalarVar(f"at{axis}") for axis in range(len(seen))]
    sources = [span.first.scalar() + place for span, place in zip(seen, places, strict=True)]
    asked = [
        condition
        for axis in outer
        if seen[axis].is_edged
        for condition in (sources[axis] >= index(0), sources[axis] < index(one.a.shape[axis]))
    ]
    row = _Row(one, memory, places, sources, last)
    body = row.copied(seen[last])
    if asked:
        body = (If(reduce(and_, asked), body, (row.zeros(0, seen[last].count),)),)
    for axis in reversed(outer):
        body = (For(places[axis], index(seen[axis].count), body, LoopKind.PARALLEL),)
    where = tuple(span.inside.scalar() for span in seen)
    return straightened(body), replace(one, a=memory, a_index=where, valid=None)


def in_memory(buffer: Buffer) -> list[int]:
    """The axes of a buffer in memory order, the contiguous one last.

    >>> from openinfer.dtypes import DTYPES
    >>> in_memory(Buffer("x", DTYPES["f32"], (2, 3, 4), strides=(12, 1, 3)))
    [0, 2, 1]
    """
    return sorted(range(len(buffer.shape)), key=lambda axis: -buffer.actual_strides[axis])


def strides_like(buffer: Buffer, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a copy of part of a buffer, with the same order of axes; None for row-major.

    >>> from openinfer.dtypes import DTYPES
    >>> strides_like(Buffer("x", DTYPES["f32"], (2, 3, 4), strides=(12, 1, 3)), (2, 3, 6))
    (18, 1, 3)
    """
    if buffer.strides is None:
        return None
    steps, step = [0] * len(shape), 1
    for axis in reversed(in_memory(buffer)):
        steps[axis], step = step, step * shape[axis]
    return tuple(steps)


@dataclass(frozen=True)
class _Row:
    """The input along one axis, at fixed positions of the others."""

    one: Contraction
    memory: Buffer
    places: Sequence[ScalarVar]
    sources: Sequence[Scalar]
    axis: int

    def copied(self, row: AxisSpan) -> tuple[Statement, ...]:
        """The elements, with zeros outside the buffer."""
        first, at = row.first.first, ScalarVar("at")
        low, high = max(-first, 0), max(min(row.count, self.one.a.shape[self.axis] - first), 0)
        element = Load(self.one.a, self._with(self.sources, at + index(low + first)))
        copy = Store(self.memory, self._with(self.places, at + index(low)), element)
        loops = (
            self.zeros(0, low),
            For(at, index(high - low), (copy,), LoopKind.PARALLEL),
            self.zeros(high, row.count),
        )
        return tuple(loop for loop in loops if loop.extent != index(0))

    def zeros(self, first: int, last: int) -> For:
        """Zeros from ``first`` to ``last``."""
        at = ScalarVar("at")
        store = Store(self.memory, self._with(self.places, at + index(first)), Const(0, self.memory.dtype))
        return For(at, index(last - first), (store,), LoopKind.PARALLEL)

    def _with(self, others: Sequence[Scalar], own: Scalar) -> tuple[Scalar, ...]:
        return (*others[: self.axis], own, *others[self.axis + 1 :])
