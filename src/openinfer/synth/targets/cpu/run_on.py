"""Linearizes indices of contiguous rows: with rows of 5, ``x[at / 5, at % 5]`` is ``x[0, at]`` in memory.

Such indices are only printed: they mean something else to the interpreter, so they are created here, after all
verification.
"""

from collections.abc import Sequence
from dataclasses import replace

from openinfer.loops.ir import (
    INDEX,
    Binary,
    Buffer,
    Const,
    Contraction,
    For,
    Load,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    Structure,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, changed_statements, map_statements, with_scalars


def run_on(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements with linearized indices in loads and stores where possible; contractions stay as they are."""
    return map_statements(body, lambda one: (one if isinstance(one, Contraction | Structure) else _changed(one),))


def loops_as_one(outer: For, inner: For, rows: int, columns: int) -> For | None:
    """A perfect nest of two loops as one loop; None if the rows are not contiguous."""
    places = {outer.index: inner.index // Const(columns, INDEX), inner.index: inner.index % Const(columns, INDEX)}
    body = changed_statements(inner.body, lambda part: places.get(part) if isinstance(part, ScalarVar) else None)
    parts = (part for one in walk(run_on(body)) for value in scalars(one) for part in visit(value))
    if any(part in places.values() for part in parts):
        return None
    return replace(inner, extent=Const(rows * columns, INDEX), body=body)


def _changed(statement: Statement) -> Statement:
    one = with_scalars(statement, lambda value: changed(value, _loaded))
    return replace(one, index=_joined(one.buffer, one.index)) if isinstance(one, Store) else one


def _loaded(value: Scalar) -> Scalar | None:
    if not isinstance(value, Load):
        return None
    found = _joined(value.buffer, value.index)
    return None if found == value.index else Load(value.buffer, found)


def _joined(buffer: Buffer, index: Sequence[Scalar]) -> tuple[Scalar, ...]:
    found = list(index)
    for axis in range(len(found) - 1):
        match found[axis], found[axis + 1]:
            case Binary("div", left, Const(value=rows)), Binary("rem", right, Const(value=extent)) if (
                left == right
                and rows == extent
                and buffer.actual_strides[axis] == extent * buffer.actual_strides[axis + 1]
            ):
                found[axis], found[axis + 1] = Const(0, INDEX), left
            case _:
                pass
    return tuple(found)
