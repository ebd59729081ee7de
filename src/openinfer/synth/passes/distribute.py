"""Loop distribution: rows that the iterations of a parallel loop share inside become a table with a loop of its own.

A rotary embedding computes the angles of a position, then rotates all heads there. In one loop over positions, that is
what a processor wants: a row of angles in its cache. A GPU has threads for every angle, and for every head. As loops
of their own, both are parallel; and a table of angles that is the same in every layer is computed once (``hoist``).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from openinfer.loops.dim import is_symbolic, most_elements
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
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, map_statements, renamed, variables_of
from openinfer.synth.program.ir import KernelStep, Program

_MOST_ELEMENTS = 1 << 22
"""Elements of a table at most."""


def distributed(program: Program) -> Program:
    """The program with such rows as tables."""
    return program.map_kernels(lambda step: (_distributed(step),))


def _distributed(step: KernelStep) -> KernelStep:
    kernel = step.kernel
    memory = dict(zip((one.name for one in kernel.scratch), step.scratch, strict=True))
    tables: dict[str, Buffer] = {}
    body = tuple(one for statement in kernel.body for one in _parts(statement, kernel, tables))
    if not tables:
        return step
    allocs = tuple(map(Alloc, tables.values()))
    made = replace(kernel, body=(*allocs, *body))
    own = {name: replace(memory[name], shape=buffer.shape) for name, buffer in tables.items()}
    scratch = tuple(own.get(one.name) or memory[one.name] for one in made.scratch)
    return replace(step, kernel=made, scratch=scratch)


def _parts(whole: Statement, kernel: Kernel, tables: dict[str, Buffer]) -> Iterator[Statement]:
    """The loop over the rows, and the loop over what reads them; the statement itself if it is something else."""
    loops = tuple(_nest(whole))
    rows = _rows(loops[-1].body) if loops and not kernel.can_fail else ()
    places = tuple(one.index for one in loops)
    extents = tuple(map(_extent, loops))
    found = _divided(loops[-1].body, rows) if rows else None
    if found is None or max(most_elements((*extents, *row.shape)) for row in rows) > _MOST_ELEMENTS:
        yield whole
        return
    own = {row: replace(row, shape=(*extents, *row.shape)) for row in rows}
    tables |= {one.name: one for one in own.values()}
    taken = {var.name for var in variables_of(kernel.body)}
    known = set[str]()
    for part in found:
        inside = tuple(_in_tables(one, own, places) for one in part)
        for loop in reversed(loops):
            inside = (replace(loop, body=inside),)
        names = {var.name: var for var in variables_of(inside)}
        yield from renamed(inside, {name: _fresh(var, taken) for name, var in names.items() if name in known})
        known |= {*names}


def _nest(loop: Statement) -> Iterator[For]:
    """The parallel loops around everything else."""
    while isinstance(loop, For) and loop.kind is LoopKind.PARALLEL and isinstance(loop.extent, Const):
        yield loop
        if len(loop.body) != 1:
            return
        loop = loop.body[0]


def _extent(loop: For) -> int:
    """The extent of a loop: a number, or a ``Dim``."""
    assert isinstance(loop.extent, Const)
    assert isinstance(loop.extent.value, int)
    return loop.extent.value


def _rows(body: Statements) -> tuple[Buffer, ...]:
    """The memory of an iteration, if all of it is rows of known length."""
    rows = tuple(one.buffer for one in body if isinstance(one, Alloc))
    is_all = len(rows) == sum(isinstance(one, Alloc) for one in walk(body))
    return rows if is_all and not any(is_symbolic(extent) for row in rows for extent in row.shape) else ()


def _fresh(var: ScalarVar, taken: set[str]) -> ScalarVar:
    name = next(name for name in (f"{var.name}_{number}" for number in count(2)) if name not in taken)
    taken.add(name)
    return replace(var, name=name)


def _divided(body: Statements, rows: tuple[Buffer, ...]) -> list[Statements] | None:
    """Each loop that writes rows, and what only reads them: a parallel loop. None if they cannot be told apart."""
    *before, reader = (one for one in body if not isinstance(one, Alloc))
    if not isinstance(reader, For) or reader.kind is not LoopKind.PARALLEL or _stored((reader,)) & {*rows}:
        return None
    lets = [one for one in before if isinstance(one, Let)]
    writers = [one for one in before if not isinstance(one, Let)]
    loops = [one for one in writers if isinstance(one, For) and _is_elementwise(one, {*rows})]
    if not writers or len(loops) < len(writers):
        return None
    if not _stored(tuple(writers)) <= {*rows} or not _loaded((reader,)) & {*rows} or _loaded(tuple(lets)) & {*rows}:
        return None
    found = [(replace(one, body=(*_needed(lets, one), *one.body), kind=LoopKind.PARALLEL),) for one in loops]
    return [*found, (*_needed(lets, reader), reader)]


def _needed(lets: list[Let], user: Statement) -> list[Let]:
    """What a statement needs of some definitions."""
    used, found = _used((user,)), list[Let]()
    for one in reversed(lets):
        if one.var in used:
            found.insert(0, one)
            used |= _used((one,))
    return found


def _is_elementwise(loop: For, rows: set[Buffer]) -> bool:
    """Whether every iteration computes elements of its own place from what is no row."""
    inside = [*walk(loop.body)]
    if not isinstance(loop.extent, Const) or is_symbolic(_extent(loop)):
        return False
    if not all(isinstance(one, Let | Local | SetLocal | If | Store) for one in inside) or _loaded(loop.body) & rows:
        return False
    known = {one.var for one in inside if isinstance(one, Local)}
    stores = [one for one in inside if isinstance(one, Store)]
    return all(one.var in known for one in inside if isinstance(one, SetLocal)) and all(
        one.index == (loop.index,) for one in stores
    )


def _in_tables(one: Statement, own: dict[Buffer, Buffer], places: tuple[ScalarVar, ...]) -> Statement:
    """A statement with the elements of rows in tables."""

    def stored(each: Statement) -> Statements:
        if isinstance(each, Store) and each.buffer in own:
            return (replace(each, buffer=own[each.buffer], index=(*places, *each.index)),)
        return (each,)

    def change(value: Scalar) -> Scalar | None:
        if isinstance(value, Load) and value.buffer in own:
            return replace(value, buffer=own[value.buffer], index=(*places, *value.index))
        return None

    (made,) = changed_statements(map_statements((one,), stored), change)
    return made


def _stored(body: Statements) -> set[Buffer]:
    return {one.buffer for one in walk(body) if isinstance(one, Store)}


def _loaded(body: Statements) -> set[Buffer]:
    return {part.buffer for part in _values(body) if isinstance(part, Load)}


def _used(body: Statements) -> set[ScalarVar]:
    return {part for part in _values(body) if isinstance(part, ScalarVar)}


def _values(body: Statements) -> Iterator[Scalar]:
    return (part for one in walk(body) for value in scalars(one) for part in visit(value))
