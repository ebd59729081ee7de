"""Loops in memory order: the innermost loop stores contiguous elements.

The order of parallel loops only matters to caches and vectors. A reduction whose terms are contiguous across results
rather than along them keeps its accumulators in memory and adds to all of them in turn.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from openinfer.loops.affine import Affine, affine, position, variables
from openinfer.loops.blocked import BLOCK
from openinfer.loops.dim import is_same
from openinfer.loops.ir import (
    Alloc,
    Binary,
    Buffer,
    Const,
    Contraction,
    For,
    Kernel,
    Load,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Space,
    Statement,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, straightened, with_bodies, with_scalars
from openinfer.synth.targets.cpu.spread import count_of, spread


def in_memory_order(kernel: Kernel) -> Kernel:
    """The kernel with its parallel loops in the memory order of what they store."""
    taken = {one.name for one in (*kernel.inputs, *kernel.outputs, *kernel.scratch)}
    body = _LoopOrder(taken).statements(straightened(kernel.body))
    return replace(kernel, body=body)


def jumps(kernel: Kernel) -> int:
    """The number of elements accessed with a non-unit stride, in buffers with strides.

    Innermost loops access them, and the epilogues of contractions, along the results that are contiguous.
    """
    found = 0
    for one in walk(kernel.body):
        if isinstance(one, For) and _is_innermost(one):
            found += _jumps(one)
        elif isinstance(one, Contraction):
            found += _jumps_of_results(one)
    return found


def _is_innermost(loop: For) -> bool:
    return not any(isinstance(one, For | Contraction) for one in walk(loop.body))


def _jumps(loop: For) -> int:
    stores = [(one.buffer, one.index) for one in walk(loop.body) if isinstance(one, Store)]
    values = [value for one in walk(loop.body) for value in scalars(one)]
    return _touched((*stores, *_loads(values)), loop.index)


def _jumps_of_results(one: Contraction) -> int:
    place = position(one.out, one.out_index)
    along = [var for var in one.free if place is not None and is_same(place.stride(var), 1)]
    return _touched(_loads([one.epilogue]), along[-1]) if along else 0


def _loads(values: Sequence[Scalar]) -> list[tuple[Buffer, tuple[Scalar, ...]]]:
    parts = (part for value in values for part in visit(value))
    return [(part.buffer, part.index) for part in parts if isinstance(part, Load)]


def _touched(accesses: Sequence[tuple[Buffer, tuple[Scalar, ...]]], var: ScalarVar) -> int:
    """The elements of the buffers that are accessed with a stride along a variable."""
    touched = {
        buffer
        for buffer, where in accesses
        if buffer.strides is not None and _step_of(buffer, where, var) not in (0, 1)
    }
    return sum(prod(map(int, buffer.shape)) for buffer in touched)


def _step_of(buffer: Buffer, index: Sequence[Scalar], var: ScalarVar) -> int | None:
    """The stride of an access along a loop index; None if it is not constant."""
    total = 0
    for part, step in zip(index, buffer.actual_strides, strict=True):
        if var.name in variables(part):
            place = affine(part)
            if place is None:
                return None
            total += int(place.stride(var)) * int(step)
    return total


class _LoopOrder:
    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def statements(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Statements with their loop nests reordered, at any depth."""
        return tuple(made for one in body for made in self._ordered(one))

    def _ordered(self, statement: Statement) -> tuple[Statement, ...]:
        if not _is_parallel(statement):
            return (with_bodies(statement, self.statements),)
        assert isinstance(statement, For)
        loops, inner = _nest(statement)
        place = _stored(inner)
        if place is None or any(variables(loop.extent) for loop in loops):
            return (with_bodies(statement, self.statements),)
        order = sorted(loops, key=lambda loop: -abs(_step(place, loop.index)))
        last = order[-1]
        body = self._side_by_side(last, inner) if is_same(_step(place, last.index), 1) else None
        if body is None and is_same(_step(place, last.index), 1) and any(isinstance(one, For) for one in inner):
            body = spread(replace(last, body=inner), self._taken)
        if body is None:
            body = (replace(last, body=inner),)
        for loop in reversed(order[:-1]):
            body = (replace(loop, body=body),)
        return body

    def _side_by_side(self, loop: For, body: Sequence[Statement]) -> tuple[Statement, ...] | None:
        """A loop over results, each of which is a reduction, as one reduction over all of them; None for others."""
        match tuple(body):
            case (Local() as local, For(kind=LoopKind.SERIAL) as reduction, Store() as store):
                pass
            case _:
                return None
        loops, inner = _nest(reduction)
        if len(inner) != 1 or not isinstance(inner[0], SetLocal) or inner[0].var != local.var:
            return None
        next_total = inner[0].value
        if any(loop.index.name in variables(one.extent) for one in loops) or not _is_across(next_total, loop):
            return None
        is_sum = isinstance(next_total, Binary) and next_total.op == "add"
        counts = [count_of(one) for one in loops]
        is_long = is_sum and max(prod(counts[:-1]), counts[-1]) > BLOCK
        if not (count_of(loop) and all(counts)) or is_long:
            return None
        totals = self._memory(local, loop)
        here = Load(totals, (loop.index,))

        def each(target: Buffer, value: Scalar) -> For:
            return replace(loop, body=(Store(target, (loop.index,), value),))

        def added(target: Buffer) -> For:
            own = Load(target, (loop.index,))
            return each(target, changed(next_total, lambda part: own if part == local.var else None))

        work: tuple[Statement, ...]
        memory: tuple[Statement, ...] = (Alloc(totals),)
        if is_sum and len(loops) > 1:
            # One partial sum for each iteration of the outer loops: no accumulator takes too many terms.
            parts = self._memory(local, loop)
            zero = Const(0, local.var.dtype)
            work = (replace(loops[-1], body=(added(parts),)),)
            work = (each(parts, zero), *work, each(totals, here + Load(parts, (loop.index,))))
            memory = (*memory, Alloc(parts))
            rest = loops[:-1]
        else:
            work, rest = (added(totals),), loops
        for one in reversed(rest):
            work = (replace(one, body=work),)
        final = with_scalars(store, lambda value: changed(value, lambda part: here if part == local.var else None))
        return (*memory, each(totals, local.value), *work, replace(loop, body=(final,)))

    def _memory(self, local: Local, loop: For) -> Buffer:
        number = 0
        while f"{local.var.name}_all{number}" in self._taken:
            number += 1
        name = f"{local.var.name}_all{number}"
        self._taken.add(name)
        return Buffer(name, local.var.dtype, (count_of(loop),), Space.SCRATCH)


def _is_parallel(statement: Statement) -> bool:
    return isinstance(statement, For) and statement.kind is LoopKind.PARALLEL and statement.bind is None


def _nest(loop: For) -> tuple[list[For], tuple[Statement, ...]]:
    """A perfect nest of loops of the same kind, and the body of the innermost."""
    loops = [loop]
    while len(loops[-1].body) == 1:
        (inner,) = loops[-1].body
        if not isinstance(inner, For) or inner.kind is not loop.kind or inner.bind is not None:
            break
        loops.append(inner)
    return loops, loops[-1].body


def _stored(body: Sequence[Statement]) -> Affine | None:
    """Where statements store results, if that is a single affine position."""
    stores = [one for one in walk(tuple(body)) if isinstance(one, Store)]
    found = {(one.buffer, one.index) for one in stores if one.buffer.space is not Space.SCRATCH}
    if len(found) != 1:
        return None
    ((buffer, index),) = found
    return position(buffer, index)


def _step(place: Affine, var: ScalarVar) -> int:
    return int(place.stride(var))


def _is_across(value: Scalar, loop: For) -> bool:
    """Whether all loads that depend on a loop are contiguous along it."""
    loads = [part for part in visit(value) if isinstance(part, Load)]
    places = [position(one.buffer, one.index) for one in loads if loop.index.name in variables(*one.index)]
    return bool(places) and all(place is not None and is_same(place.stride(loop.index), 1) for place in places)
