"""Long loops outside parallel ones: many groups compute partial reductions, and one group combines them.

A loop whose iterations are independent becomes parallel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import cast, index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Buffer,
    Const,
    For,
    Load,
    Local,
    LoopKind,
    Scalar,
    SetLocal,
    Space,
    Statement,
    Store,
    assigned_by,
    scalars,
    visit,
    walk,
)
from openinfer.loops.reduction import Reduction
from openinfer.loops.rewrite import Statements, changed_statements, renamed, variables_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.row_loops import RowLoop, row_loop
from openinfer.synth.targets.simt.wide import FreshNames

_PARTS = 8
"""Groups per compute unit that reduce at the same time."""
_MULTIPLE = 64
"""Groups start at multiples of this many iterations, so that accesses are aligned."""


def with_long_loops(body: Statements, machine: SimtMachine, names: FreshNames) -> Statements:
    """Statements of a kernel with long loops divided among groups that would otherwise be idle."""
    found: list[Statement] = []
    for place, one in enumerate(body):
        for made in _divided(one, body[:place], machine, names):
            at = 0 if isinstance(made, Alloc) else len(found)
            # A parallel loop is a launch of its own: variables that only later statements use are defined after it.
            while isinstance(made, For) and made.kind is LoopKind.PARALLEL and at and _begins(found[at - 1], made):
                at -= 1
            found.insert(at, made)
    return tuple(found)


def _begins(one: Statement, loop: For) -> bool:
    """Whether a statement initializes a variable with a number, and a loop does not read the variable."""
    is_number = isinstance(one, Local) and isinstance(one.value, Const)
    parts = (part for inner in walk((loop,)) for value in scalars(inner) for part in visit(value))
    return isinstance(one, Local) and is_number and one.var not in parts


def _divided(one: Statement, before: Statements, machine: SimtMachine, names: FreshNames) -> Iterator[Statement]:
    loop = row_loop(one) if isinstance(one, For) and one.kind is LoopKind.SERIAL else None
    if loop is None or any(map(is_symbolic, loop.extents)) or _total(loop) < machine.long_row:
        yield one
    elif not loop.reductions:
        yield from _nested(loop, loop.body, LoopKind.PARALLEL)
    else:
        yield from _in_parts(loop, before, machine, names) or (one,)


def _total(one: RowLoop) -> int:
    total = 1
    for extent in one.extents:
        total *= extent
    return total


def _nested(one: RowLoop, body: Statements, kind: LoopKind = LoopKind.SERIAL) -> Statements:
    for var, extent in zip(reversed(one.indices), reversed(one.extents), strict=True):
        body = (For(var, index(extent), body, kind),)
    return body


def _in_parts(one: RowLoop, before: Sequence[Statement], machine: SimtMachine, names: FreshNames) -> Statements:
    """Partial reductions in as many groups as run at once, then combined; empty if an initial value is unknown."""
    firsts = [_first(each, before) for each in one.reductions]
    longest = max(range(len(one.extents)), key=lambda axis: one.extents[axis])
    extent, multiple = one.extents[longest], _MULTIPLE if longest == len(one.extents) - 1 else 1
    each = max(extent // min(_PARTS * machine.units, extent) // multiple, 1) * multiple
    if 2 * each > extent or None in firsts:
        return ()
    count = extent // each
    group, parts = names.var("part"), [names.var(f"{own.var.name}_part", own.var.dtype) for own in one.reductions]
    memory = [Buffer(names.name(part.name), _kept(part.dtype), (count,), Space.SCRATCH) for part in parts]
    within = _moved(one, longest, each, group * each)
    totals = {red.var.name: part for red, part in zip(one.reductions, parts, strict=True)}
    own = renamed(_nested(within, within.body), totals)
    locals_ = tuple(Local(part, first) for part, first in zip(parts, firsts, strict=True) if first is not None)
    stores = tuple(Store(to, (group,), cast(part, to.dtype)) for to, part in zip(memory, parts, strict=True))
    at = names.var("part")
    joins = tuple(
        SetLocal(red.var, red.joined(cast(Load(to, (at,)), red.var.dtype)))
        for red, to in zip(one.reductions, memory, strict=True)
    )
    made: list[Statement] = [*map(Alloc, memory)]
    made.append(For(group, index(count), (*locals_, *_fresh(own, names), *stores), LoopKind.PARALLEL))
    made.append(For(at, index(count), joins))
    rest = extent - count * each
    if rest:
        left = _moved(one, longest, rest, index(count * each))
        made += _fresh(_nested(left, left.body), names)
    return tuple(made)


def _moved(one: RowLoop, axis: int, extent: int, start: Scalar) -> RowLoop:
    """A slice of the iterations along an axis."""
    var = one.indices[axis]
    body = changed_statements(one.body, lambda part: start + var if part == var else None)
    extents = (*one.extents[:axis], extent, *one.extents[axis + 1 :])
    return replace(one, extents=extents, body=body)


def _fresh(body: Statements, names: FreshNames) -> Statements:
    """A copy of statements with names of its own, so that it can stand beside the original."""
    return renamed(body, {var.name: names.var(var.name, var.dtype) for var in variables_of(body)})


def _first(one: Reduction, before: Sequence[Statement]) -> Scalar | None:
    """The initial value of a partial reduction, if it is known without running anything."""
    if isinstance(one.first, Const):
        return one.first
    changed = {var for each in walk(tuple(before)) for var in assigned_by(each)}
    values = [each.value for each in before if isinstance(each, Local) and each.var == one.var]
    return values[0] if values and isinstance(values[0], Const) and one.var not in changed else None


def _kept(dtype: DType) -> DType:
    return DTYPES["i64"] if dtype is INDEX else dtype
