"""Finds loops that are independent but not marked as parallel: their iterations can be threads."""

from dataclasses import replace
from itertools import combinations

from openinfer.loops.affine import Affine, position
from openinfer.loops.dim import is_symbolic, span
from openinfer.loops.ir import (
    Const,
    For,
    If,
    Let,
    Load,
    Local,
    LoopKind,
    ScalarVar,
    SetLocal,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements
from openinfer.synth.targets.simt.row_loops import row_loop
from openinfer.synth.targets.simt.threads import int_extent


def with_independent_loops(body: Statements) -> Statements:
    """Marks loops as parallel if each iteration stores to distinct elements.

    This covers top-level loops, and loops that are the entire body of a parallel loop. Loops that the threads of a row
    can share stay as they are, so that elements stay with the threads that hold them.
    """
    return tuple(as_parallel(one) if isinstance(one, For) and not _is_row(one) else one for one in body)


def _is_row(loop: For) -> bool:
    return loop.kind is LoopKind.SERIAL and row_loop(loop) is not None


def as_parallel(loop: For) -> For:
    """A loop, or the loop that is its entire body, marked as parallel if iterations store to distinct elements."""
    if len(loop.body) == 1 and isinstance(loop.body[0], For) and loop.kind is LoopKind.PARALLEL:
        return replace(loop, body=(as_parallel(loop.body[0]),))
    return replace(loop, kind=LoopKind.PARALLEL) if _is_independent(loop) else loop


def _is_independent(loop: For) -> bool:
    is_simple = not any(isinstance(one, For) for one in walk(loop.body))
    return is_simple and type(getattr(loop.extent, "value", None)) is int and is_independent(loop)


def is_independent(loop: For) -> bool:
    """Whether each iteration of a loop, which may have loops inside, stores to distinct elements and reads none."""
    inside = [*walk(loop.body)]
    if loop.bind is not None or not isinstance(loop.extent, Const):
        return False
    if not all(isinstance(one, Let | Local | SetLocal | Store | If | For) for one in inside):
        return False
    names = {one.index if isinstance(one, For) else one.var for one in inside if isinstance(one, For | Let | Local)}
    if any(isinstance(one, SetLocal) and one.var not in names for one in inside):
        return False
    stores = [one for one in inside if isinstance(one, Store)]
    loads = (part for one in inside for value in scalars(one) for part in visit(value) if isinstance(part, Load))
    if not stores or {one.buffer for one in stores} & {one.buffer for one in loads}:
        return False
    return _are_apart(stores, loop.index, span(int_extent(loop.extent))[1], names)


def _are_apart(stores: list[Store], index: ScalarVar, extent: int, names: set[ScalarVar]) -> bool:
    """Whether no two iterations store to the same element."""
    places = [position(one.buffer, one.index) for one in stores]
    found = [(one.buffer, place) for one, place in zip(stores, places, strict=True) if place is not None]
    if len(found) < len(stores) or any(ScalarVar(name) in names for _, place in found for name in place.strides):
        return False
    if any(is_symbolic(place.stride(index)) or place.stride(index) == 0 for _, place in found):
        return False
    pairs = [(one, other) for (a, one), (b, other) in combinations(found, 2) if a == b]
    return all(_never_meet(one, other, index, extent) for one, other in pairs)


def _never_meet(one: Affine, other: Affine, index: ScalarVar, extent: int) -> bool:
    """Whether two stores can hit the same element only in the same iteration."""
    if one.strides != other.strides or is_symbolic(one.first) or is_symbolic(other.first):
        return False
    step, apart = abs(one.stride(index)), abs(one.first - other.first)
    return apart == 0 or apart % step != 0 or apart >= step * extent
