"""Rows of scratch memory whose elements are computed again wherever they are read.

Pooling first joins the rows that a row of windows sees into one, and then adjacent elements of that row, which suits a
processor with vectors. A thread of a GPU has no fast memory for a row: it computes the elements that its own result
reads, in the same order, and all results of a row become independent of each other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from openinfer.loops.affine import affine
from openinfer.loops.build import cast, index
from openinfer.loops.dim import is_same, is_same_shape, is_symbolic
from openinfer.loops.ir import (
    Alloc,
    Buffer,
    Const,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    Store,
    bodies,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import (
    Statements,
    map_statements,
    renamed,
    replaced,
    variables_of,
    with_bodies,
    with_scalars,
)
from openinfer.synth.targets.simt.independent import is_independent
from openinfer.synth.targets.simt.iterations import iterations
from openinfer.synth.targets.simt.threads import int_extent
from openinfer.synth.targets.simt.wide import FreshNames

_MOST_ITERATIONS = 1024
"""Iterations of one result at most: with larger windows, a group shares the work of a row."""


def with_recomputed_rows(kernel: Kernel) -> Kernel:
    """A kernel without the scratch rows of its parallel loops, where no element of a row depends on another one."""
    taken = {var.name for var in variables_of(kernel.body)}
    taken |= {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    names = FreshNames(taken)

    def own(statement: Statement) -> Statements:
        is_parallel = isinstance(statement, For) and statement.kind is LoopKind.PARALLEL
        return (with_bodies(statement, lambda body: _recomputed(body, names)) if is_parallel else statement,)

    return replace(kernel, body=map_statements(kernel.body, own))


def _recomputed(body: Statements, names: FreshNames) -> Statements:
    """The body of a parallel loop, with its last loop as a parallel loop around everything else if that is possible."""
    *before, reader = body or (None,)
    rows = tuple(one.buffer for one in before if isinstance(one, Alloc))
    lets = tuple(one for one in before if isinstance(one, Let))
    if not isinstance(reader, For) or not rows or not all(_is_row(row, rows[0]) for row in rows):
        return body
    made = _Scratch(rows, tuple(one for one in before if not isinstance(one, Alloc | Let)), names)
    if any(load.buffer in rows for load in _loads(lets)) or not made.suits(reader):
        return body
    found = replace(reader, body=(*lets, *made.reading(reader.body)))
    is_better = is_independent(found) and iterations(found.body) <= _MOST_ITERATIONS
    return (replace(found, kind=LoopKind.PARALLEL),) if is_better else body


def _is_row(buffer: Buffer, like: Buffer) -> bool:
    """Whether a variable can be an element of a buffer, at the same place as one of another."""
    is_computed = buffer.dtype.compute is buffer.dtype
    return len(buffer.shape) == 1 and is_computed and is_same_shape(buffer.shape, like.shape)


def _loads(statements: Statements) -> Iterator[Load]:
    """The loads directly in statements."""
    values = (value for one in statements for value in scalars(one))
    return (part for value in values for part in visit(value) if isinstance(part, Load))


@dataclass(frozen=True)
class _Scratch:
    """Rows, and the statements that write them."""

    rows: tuple[Buffer, ...]
    writers: Statements
    names: FreshNames

    def suits(self, reader: For) -> bool:
        """Whether its iterations can compute what they read, and only read it."""
        if self._at(self.writers, index(0), {row: ScalarVar(row.name, row.dtype) for row in self.rows}) is None:
            return False
        for one in walk((reader,)):
            own = [load for load in _loads((one,)) if load.buffer in self.rows]
            is_nested = any(self._is_read(part) for load in own for part in load.index)
            if is_nested or (own and bodies(one)) or (isinstance(one, Store) and one.buffer in self.rows):
                return False
        return True

    def _is_read(self, value: Scalar) -> bool:
        return any(isinstance(part, Load) and part.buffer in self.rows for part in visit(value))

    def reading(self, statements: Statements) -> Statements:
        """Statements that compute what they read."""
        made: list[Statement] = []
        for one in statements:
            known: dict[Scalar, Scalar] = {}
            for load in dict.fromkeys(_loads((one,))):
                if load.buffer in self.rows:
                    made += self._computed(load, known)
            made.append(with_scalars(one, partial(replaced, parts=known)) if known else with_bodies(one, self.reading))
        return tuple(made)

    def _computed(self, load: Load, known: dict[Scalar, Scalar]) -> Iterator[Statement]:
        place = self.names.var("place")
        cells = {row: self.names.var(row.name, row.dtype) for row in self.rows}
        body = self._at(self.writers, place, cells)
        assert body is not None
        made = _initialized((*(Local(cell, Const(0, row.dtype)) for row, cell in cells.items()), *body))
        own = {var.name: self.names.var(var.name, var.dtype) for var in variables_of(body)}
        yield Let(place, load.index[0])
        yield from renamed(made, own)
        known[load] = cells[load.buffer]

    def _at(self, writers: Statements, place: Scalar, cells: Mapping[Buffer, ScalarVar]) -> Statements | None:
        """What statements do to the elements at one place, in variables; None if these depend on other elements."""
        made: list[Statement] = []
        known = dict(cells)
        for one in writers:
            match one:
                case Let() if not any(load.buffer in known for load in _loads((one,))):
                    made.append(one)
                case Alloc(buffer) if _is_row(buffer, self.rows[0]):
                    known[buffer] = self.names.var(buffer.name, buffer.dtype)
                    made.append(Local(known[buffer], Const(0, buffer.dtype)))
                case For() if any(load.buffer in known for load in _loads((one,))):
                    return None
                case For(body=(Store() as store,)) if store.buffer in known:
                    own = _element(one, store, place, known)
                    if own is None:
                        return None
                    made += own
                case For():
                    body = self._at(one.body, place, known)
                    if body is None:
                        return None
                    made.append(replace(one, body=body))
                case _:
                    return None
        return _initialized(made)


def _initialized(statements: Iterable[Statement]) -> Statements:
    """Statements with variables declared with the constant that they are set to first."""
    made: list[Statement] = []
    for one in statements:
        if isinstance(one, SetLocal) and isinstance(one.value, Const):
            places = (place for place, each in enumerate(made) if isinstance(each, Local) and each.var == one.var)
            place = next(places, len(made))
            if place < len(made) and all(isinstance(each, Let | Local) for each in made[place:]):
                made[place] = Local(one.var, one.value)
                continue
        made.append(one)
    return tuple(made)


def _element(loop: For, store: Store, place: Scalar, cells: Mapping[Buffer, ScalarVar]) -> Statements | None:
    """The iteration of a loop that stores the element at a place."""
    where, column = affine(store.index[0]), loop.index
    if where is None or where.strides != {column.name: 1} or is_symbolic(where.first):
        return None
    known: dict[Scalar, Scalar] = {Load(row, store.index): cell for row, cell in cells.items()}
    value = replaced(store.value, known)
    if any(isinstance(part, Load) and part.buffer in cells for part in visit(value)):
        return None
    guards = [index(where.first) <= place] if where.first else []
    count = int_extent(loop.extent) if isinstance(loop.extent, Const) else None
    if count is None or not is_same(where.first + count, store.buffer.shape[0]):
        guards.append(place < loop.extent + where.first)
    own: Statements = (Let(column, place - where.first), SetLocal(cells[store.buffer], cast(value, store.buffer.dtype)))
    if guards:
        own = (If(guards[0] if len(guards) == 1 else guards[0] & guards[1], own),)
    return own
