"""Functions of elements that a later loop computes again: their results stay in registers in place of the elements.

A softmax in few bits has no room in memory for its powers, and computes each of them twice. Where groups share a row
and keep it in registers, the powers can be there.
"""

from collections.abc import Sequence
from dataclasses import replace

from openinfer.loops.ir import Buffer, Let, Load, Math, Scalar, SetLocal, Space, Statement, Store, visit, walk
from openinfer.loops.rewrite import changed_statements
from openinfer.synth.targets.simt.row_loops import RowItem, RowLoop
from openinfer.synth.targets.simt.wide import FreshNames


def with_kept_results(items: Sequence[RowItem], names: FreshNames) -> list[RowItem] | None:
    """The items of a row whose second loop takes what the first one has computed from a buffer; None if none does.

    There is no such buffer: all of it has to be in registers.
    """
    loops = [place for place, one in enumerate(items) if isinstance(one, RowLoop)]
    if len(loops) < 2:
        return None
    begin, end = loops[-2:]
    first, second = items[begin], items[end]
    assert isinstance(first, RowLoop)
    assert isinstance(second, RowLoop)
    made = _with_result(first, second, items[begin:end], names)
    return None if made is None else [*items[:begin], made[0], *items[begin + 1 : end], made[1], *items[end + 1 :]]


def _with_result(
    first: RowLoop, second: RowLoop, before: Sequence[RowItem], names: FreshNames
) -> tuple[RowLoop, RowLoop] | None:
    if first.shape != second.shape or len(first.indices) > 1:
        return None
    for one in first.body:
        if isinstance(one, Let) and isinstance(one.value, Math) and _stays(one.value, first, before):
            kept = Buffer(names.name(one.value.function), one.var.dtype, first.extents, Space.OWN)
            made = _from(second, first, one.value, kept)
            if made is not None:
                return _into(first, one.value, kept), made
    return None


def _stays(value: Scalar, first: RowLoop, before: Sequence[RowItem]) -> bool:
    """Whether nothing that a value depends on changes until the next loop begins, nor is set by the loop itself."""
    parts = set(visit(value))
    inside = {one.var for one in first.body if isinstance(one, Let | SetLocal)}
    plain = tuple(one for one in before if not isinstance(one, RowLoop))
    changed = {one.var for one in walk(plain) if isinstance(one, SetLocal)}
    stored = {one.buffer.name for one in (*first.body, *walk(plain)) if isinstance(one, Store)}
    loaded = {part.buffer.name for part in parts if isinstance(part, Load)}
    return not parts & (inside | changed) and not loaded & stored


def _into(one: RowLoop, value: Scalar, kept: Buffer) -> RowLoop:
    """A loop that also stores a value."""
    known = one.alike((value,))
    body: list[Statement] = []
    for each in one.body:
        body.append(each)
        if isinstance(each, Let) and one.alike((each.value,)) == known:
            body.append(Store(kept, one.indices, each.var))
    edge = None if one.edge is None else _into(one.edge, _same(one.edge, one, value), kept)
    return replace(one, body=tuple(body), edge=edge)


def _same(edge: RowLoop, one: RowLoop, value: Scalar) -> Scalar:
    """The value of an edge that is ``value`` in the loop beside it: the statements of both are the same."""
    place = next(at for at, each in enumerate(one.body) if isinstance(each, Let) and each.value == value)
    each = edge.body[place]
    assert isinstance(each, Let)
    return each.value


def _from(one: RowLoop, first: RowLoop, value: Scalar, kept: Buffer) -> RowLoop | None:
    """A loop that loads a value in place of computing it; None if it does not compute it."""
    known, found = first.alike((value,)), Load(kept, one.indices)
    body = changed_statements(one.body, lambda part: found if one.alike((part,)) == known else None)
    if body == one.body:
        return None
    if one.edge is None or first.edge is None:
        return replace(one, body=body)
    edge = _from(one.edge, first.edge, _same(first.edge, first, value), kept)
    return None if edge is None else replace(one, body=body, edge=edge)
