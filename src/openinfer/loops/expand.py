"""Expansion of structured statements to plain loops, for targets that have no template for them."""

from collections.abc import Iterator
from dataclasses import replace

from openinfer.loops.build import Builder, cast
from openinfer.loops.expand_attend import attended
from openinfer.loops.expand_order import ordered
from openinfer.loops.expand_scan import scanned
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Alloc,
    Attend,
    Binary,
    Const,
    Contraction,
    For,
    If,
    Kernel,
    Local,
    LoopKind,
    Order,
    ScalarVar,
    Scan,
    SetLocal,
    Statement,
    Store,
    Structure,
    walk,
)
from openinfer.loops.rewrite import binders, map_statements, variables_of


def expanded(one: Contraction) -> tuple[Statement, ...]:
    """A contraction as plain loops, for targets without a generator of their own."""
    total = ScalarVar(ACCUMULATOR, one.accumulator)
    left, right = (cast(factor, one.accumulator) for factor in one.factors)
    add: Statement = SetLocal(total, Binary("add", total, Binary("mul", left, right)))
    if one.valid is not None:
        add = If(one.valid, (add,))
    inner: tuple[Statement, ...] = (add,)
    for variable, extent in zip(reversed(one.bound), reversed(one.reduced), strict=True):
        inner = (For(variable, Const(extent, INDEX), inner),)
    body: tuple[Statement, ...] = (
        Local(total, Const(0, one.accumulator)),
        *inner,
        Store(one.out, one.out_index, one.epilogue),
    )
    for variable, extent in zip(reversed(one.free), reversed(one.extents), strict=True):
        body = (For(variable, Const(extent, INDEX), body, LoopKind.PARALLEL),)
    return body


def plain(kernel: Kernel, kept: frozenset[type[Structure]] = frozenset()) -> Kernel:
    """A kernel with its structures expanded to loops, except for structures of the types in ``kept``.

    Contractions stay: the schedule of a target chooses their loops. The loops' scratch memory is allocated where the
    structure was. The kernel's documentation names the algorithms.
    """
    places = iter(list(_places(kernel)))
    notes: list[str] = []
    taken = {var.name for var in variables_of(kernel.body)} | {one.name for one in kernel.scratch}

    def own(statement: Statement) -> tuple[Statement, ...]:
        if not isinstance(statement, Structure):
            return (statement,)
        bound, allocated = next(places)
        if type(statement) in kept:
            return (statement,)
        taken.difference_update(axis.index.name for axis in statement.axes)
        builder = Builder(taken, bound, allocated)
        _write(statement, builder)
        notes.extend(builder.notes)
        taken.update(var.name for var in variables_of(builder.body))
        taken.update(one.buffer.name for one in walk(builder.body) if isinstance(one, Alloc))
        return builder.body

    body = map_statements(kernel.body, own)
    return replace(kernel, body=body, doc=tuple(dict.fromkeys((*kernel.doc, *notes))))


def _write(one: Structure, builder: Builder) -> None:
    match one:
        case Scan():
            scanned(one, builder)
        case Order():
            ordered(one, builder)
        case Attend():
            attended(one, builder)
        case _:
            raise TypeError(one)


def _places(kernel: Kernel) -> Iterator[tuple[int, int]]:
    """For each structure, in order, how many variables are bound and how many buffers allocated before it."""
    bound = allocated = 0
    for statement in walk(kernel.body):
        if isinstance(statement, Structure):
            yield bound, allocated
        bound += len(binders(statement))
        allocated += isinstance(statement, Alloc)
