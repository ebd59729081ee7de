"""Kernels that read or write tensors whose elements only lie in another order, and so need no copy of them.

Neighbours in a row must be neighbours there too; a contraction keeps its factors, which are read as they lie.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from openinfer.loops.affine import affine
from openinfer.loops.build import index
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import (
    Binary,
    Buffer,
    Const,
    Contraction,
    Element,
    Kernel,
    Load,
    Scalar,
    ScalarVar,
    Statement,
    Store,
    Structure,
    While,
    factors_of,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, changed_statements, map_statements, without_unused
from openinfer.synth.passes.fuse.pointwise import Pointwise, expression, pointwise_form

ScalarCoordinates = tuple[Scalar, ...]

_LINE = 64
"""Shorter rows, in bytes, are read faster when contiguous: whole cache lines are used."""


def has_long_rows(buffer: Buffer) -> bool:
    """Whether a row is at least as long as a cache line."""
    return bool(buffer.shape) and buffer.dtype.nbytes(int(buffer.shape[-1])) >= _LINE


# --- what is read -----------------------------------------------------------------------------------------------------


def read_through(producer: Kernel, consumer: Kernel, target: Buffer) -> Kernel | None:
    """The consumer of a tensor whose rows only lie elsewhere, reading them there; None where they do not."""
    form = pointwise_form(producer) if len(producer.inputs) == 1 else None
    source = None if form is None else _moved(form, target)
    if form is None or source is None or not _keeps_rows(source, form, target) or _is_squared(target, consumer):
        return None

    def placed(where: ScalarCoordinates) -> ScalarCoordinates:
        places = dict(zip(form.indices, where, strict=True))
        return tuple(
            changed(one, lambda part: places.get(part) if isinstance(part, ScalarVar) else None) for one in source.index
        )

    def change(one: Scalar) -> Scalar | None:
        return Load(source.buffer, placed(one.index)) if isinstance(one, Load) and one.buffer == target else None

    def moved(one: Element) -> Element:
        return replace(one, buffer=source.buffer, index=placed(one.index)) if one.buffer == target else one

    def factors(one: Statement) -> tuple[Statement]:
        if isinstance(one, Structure):
            return (one.with_elements(moved),)
        if not isinstance(one, Contraction):
            return (one,)
        left = replace(one, a=source.buffer, a_index=placed(one.a_index)) if one.a == target else one
        return (replace(left, b=source.buffer, b_index=placed(one.b_index)) if one.b == target else left,)

    body = map_statements(consumer.body, factors)
    return replace(consumer, body=without_unused(changed_statements(body, change)))


def _is_squared(buffer: Buffer, kernel: Kernel) -> bool:
    """Whether a statement has the same factor twice: one buffer would not say which of the two is meant."""
    return any(factors_of(statement).count(buffer) > 1 for statement in walk(kernel.body))


def _moved(form: Pointwise, like: Buffer) -> Load | None:
    """The element that a kernel only moves, if that is all it does, and leaves its type as it is."""
    source = expression(form)
    return source if isinstance(source, Load) and source.buffer.dtype is like.dtype else None


def _keeps_rows(source: Load, form: Pointwise, made: Buffer) -> bool:
    """Whether all indices are chosen once each, and neighbours in the result are neighbours where they come from."""
    places = [affine(one) for one in source.index]
    names = [name for place in places if place is not None for name in place.steps]
    chosen = [var.name for var, extent in zip(form.indices, made.shape, strict=True) if not is_same(extent, 1)]
    if not form.indices or None in places or not set(chosen) <= set(names) or len(set(names)) < len(names):
        return False
    last = places[-1]
    return last is not None and is_same(last.first, 0) and is_same(last.step(form.indices[-1]), 1)


# --- what is written --------------------------------------------------------------------------------------------------


def stored_through(producer: Kernel, consumer: Kernel, target: Buffer) -> Kernel | None:
    """The producer of a tensor that is then only put into another order, writing it so; None where it is not."""
    form, out, result = pointwise_form(consumer), producer.outputs[0], consumer.outputs[0]
    source = None if form is None else _moved(form, result)
    if form is None or source is None or source.buffer != target or _reads(producer, out):
        return None
    pieces = [_pieces(var, source, extent) for var, extent in zip(form.indices, result.shape, strict=True)]
    found = [one for one in pieces if one is not None]
    last = len(target.shape) - 1
    if not found or len(found) < len(pieces) or not _covers(found, target) or (last, 1) not in found[-1]:
        return None

    def placed(where: Sequence[Scalar]) -> ScalarCoordinates:
        return tuple(_put_together(one, where) for one in found)

    body = with_stores(
        producer.body,
        out,
        lambda store: [Store(result, placed(store.index), store.value)],
        lambda one: replace(one, out=result, out_index=placed(one.out_index)),
    )
    return replace(producer, outputs=(result,), body=body)


def _covers(pieces: Sequence[Sequence[tuple[int, int]]], buffer: Buffer) -> bool:
    """Whether every axis is a piece of one index: then all elements are moved, each to a distinct position."""
    axes = [axis for one in pieces for axis, _ in one]
    long = {axis for axis, extent in enumerate(buffer.shape) if not is_same(extent, 1)}
    return long <= set(axes) and len(set(axes)) == len(axes)


def _reads(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether a kernel reads what it writes there, writes until something happens, or as part of a structure."""
    values = (value for statement in walk(kernel.body) for value in scalars(statement))
    is_read = any(isinstance(one, Load) and one.buffer == buffer for value in values for one in visit(value))
    return is_read or any(isinstance(statement, While | Structure) for statement in walk(kernel.body))


def _pieces(var: ScalarVar, source: Load, extent: int) -> list[tuple[int, int]] | None:
    """The axes that an index is cut into, and what one more along each counts; None where it is not just that.

    ``d`` of ``x[i, d / 32, j, d % 32]`` is 32 times the one along axis 1 and the one along axis 3.
    """
    shape = source.buffer.shape
    found = [(axis, step) for axis, one in enumerate(source.index) if (step := _step(one, var, shape[axis]))]
    found.sort(key=lambda piece: piece[1])
    count = 1
    for axis, step in found:
        if step != count:
            return None
        count *= shape[axis]
    return found if is_same(count, extent) else None


def _step(value: Scalar, var: ScalarVar, extent: int) -> int | None:
    """What one more of a piece counts: 1 of ``d`` and ``d % 32``, 32 of ``d / 32`` and ``d / 32 % 4``; else None."""
    match value:
        case Binary("rem", left, Const(int(most))) if is_same(most, extent):
            return _quotient_step(left, var)
        case _:
            return _quotient_step(value, var)


def _quotient_step(value: Scalar, var: ScalarVar) -> int | None:
    match value:
        case Binary("div", left, Const(int(step))) if not is_symbolic(step):
            inner = _quotient_step(left, var)
            return None if inner is None else inner * step
        case _:
            return 1 if value == var else None


def _put_together(pieces: Sequence[tuple[int, int]], where: Sequence[Scalar]) -> Scalar:
    """The index that has these pieces."""
    total: Scalar = index(0)
    for axis, step in reversed(pieces):
        total = total + where[axis] * index(step)
    return total


def with_stores(
    body: tuple[Statement, ...],
    out: Buffer,
    stored: Callable[[Store], list[Statement]],
    finished: Callable[[Contraction], Contraction],
) -> tuple[Statement, ...]:
    """Statements with others in place of those that write a buffer."""

    def own(one: Statement) -> Sequence[Statement]:
        match one:
            case Store() if one.buffer == out:
                return stored(one)
            case Contraction() if one.out == out:
                return (finished(one),)
            case _:
                return (one,)

    return map_statements(body, own)
