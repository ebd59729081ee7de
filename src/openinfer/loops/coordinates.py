"""Named positions that are nothing but coordinates of elements.

Whoever computes an element has checked its coordinates: such a name is in bounds wherever it is used. This holds for
indices from memory too, of which the value alone says nothing.
"""

from collections.abc import Iterator

from openinfer.loops.dim import span
from openinfer.loops.intervals import Interval
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    For,
    If,
    Let,
    Load,
    Local,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    Store,
    While,
    children,
    scalars,
    visit,
    walk,
)

_Coordinate = tuple[Buffer, int]
"""A buffer, and the axis that a position counts along."""


def coordinate_ranges(body: tuple[Statement, ...]) -> dict[str, Interval]:
    """The ranges, wherever they are used, of the names of positions that only ever are coordinates.

    >>> from openinfer.dtypes import DTYPES
    >>> from openinfer.loops.scalar import Cast, Const
    >>> ids, x, y = (Buffer(name, DTYPES["i64"], (7,)) for name in ("ids", "x", "y"))
    >>> place, zero = ScalarVar("place"), Const(0, INDEX)
    >>> given = Let(place, Cast(Load(ids, (zero,)), INDEX))
    >>> coordinate_ranges((given, Store(y, (zero,), Load(x, (place,)))))
    {'place': (0, 6)}
    >>> coordinate_ranges((given, Store(y, (zero,), Load(x, (place - 1,)))))
    {}
    """
    named = {one.var.name for one in walk(body) if isinstance(one, Let) and one.var.dtype is INDEX}
    found: dict[str, Interval] = {}
    others: set[str] = set()
    for name, coordinate in _uses(body) if named else ():
        if coordinate is None:
            others.add(name)
        elif name in named:
            buffer, axis = coordinate
            most = max(span(buffer.shape[axis])[1] - 1, 0)
            found[name] = (0, max(most, found.get(name, (0, 0))[1]))
    return {name: ends for name, ends in found.items() if name not in others}


def _uses(body: tuple[Statement, ...]) -> Iterator[tuple[str, _Coordinate | None]]:
    """Every use of a variable, and the coordinate that it is; None if it is anything else."""
    for statement in walk(body):
        match statement:
            case Store(buffer, index, value):
                yield from _in_index(buffer, index)
                yield from _in_value(value)
            case For() | While() | If() | Let() | Local() | SetLocal():
                for value in scalars(statement):
                    yield from _in_value(value)
            case _:  # Templates may compute positions of elements that they then leave alone.
                parts = (part for value in scalars(statement) for part in visit(value))
                yield from ((part.name, None) for part in parts if isinstance(part, ScalarVar))


def _in_index(buffer: Buffer, index: tuple[Scalar, ...]) -> Iterator[tuple[str, _Coordinate | None]]:
    for axis, one in enumerate(index):
        if isinstance(one, ScalarVar):
            yield one.name, (buffer, axis)
        else:
            yield from _in_value(one)


def _in_value(value: Scalar) -> Iterator[tuple[str, _Coordinate | None]]:
    stack = [value]
    while stack:
        match stack.pop():
            case ScalarVar(name):
                yield name, None
            case Load(buffer, index):
                yield from _in_index(buffer, index)
            case part:
                stack.extend(children(part))
