"""The rule ``store_elsewhere``: the producer stores its result in the order that a reordering consumer wants."""

from collections.abc import Sequence
from dataclasses import replace

from openinfer.loops.build import index
from openinfer.loops.dim import is_same, is_symbolic
from openinfer.loops.ir import Binary, Buffer, Const, Kernel, Load, Result, Scalar, ScalarVar, Store, While, walk
from openinfer.synth.passes.fuse.pair import READER_NOT_POINTWISE, Pair, is_read
from openinfer.synth.passes.fuse.pointwise import Pointwise, pointwise_form
from openinfer.synth.passes.fuse.relayout import SHORT_ROWS, ScalarCoordinates, has_long_rows, moved_element
from openinfer.synth.passes.fuse.stores import with_stores
from openinfer.synth.program.refusal import Refusal

_COMPUTES = Refusal("the reader does more than move elements")
_BREAKS_ROWS = Refusal("rows of the producer's result are not rows of the reader's")
_NOT_ONLY_STORED = Refusal("the producer reads its own result, or stores it in a while loop")

AxisPieces = Sequence[tuple[int, int]]
"""The axes that an index is split into, with their strides in the index."""


def store_elsewhere(pair: Pair) -> Kernel | Refusal:
    """The producer, storing its result in the consumer's order."""
    form, result = pointwise_form(pair.consumer), pair.consumer.outputs[0]
    if form is None:
        return READER_NOT_POINTWISE
    source = moved_element(form, result)
    if source is None or source.buffer != pair.between:
        return _COMPUTES
    if not has_long_rows(pair.between):
        return SHORT_ROWS
    if _is_not_only_stored(pair.producer):
        return _NOT_ONLY_STORED
    pieces = _row_pieces(form, source, result)
    if pieces is None:
        return _BREAKS_ROWS
    return _stored_through(pair.producer, result, pieces)


def _row_pieces(form: Pointwise, source: Load, result: Buffer) -> list[AxisPieces] | None:
    """The pieces of each index of the result, if all elements are moved and rows stay contiguous."""
    pieces = [_pieces(var, source, extent) for var, extent in zip(form.indices, result.shape, strict=True)]
    found: list[AxisPieces] = [one for one in pieces if one is not None]
    last = len(source.buffer.shape) - 1
    is_whole = bool(found) and len(found) == len(pieces) and _covers(found, source.buffer)
    return found if is_whole and (last, 1) in found[-1] else None


def _stored_through(producer: Kernel, result: Buffer, pieces: Sequence[AxisPieces]) -> Kernel:
    def placed(where: Sequence[Scalar]) -> ScalarCoordinates:
        return tuple(_composed(one, where) for one in pieces)

    body = with_stores(
        producer.body,
        producer.outputs[0],
        lambda store: [Store(result, placed(store.index), store.value)],
        lambda one: replace(one, out=result, out_index=placed(one.out_index)),
        lambda one: Result(result, placed(one.index), one.value),
    )
    return replace(producer, outputs=(result,), body=body)


def _covers(pieces: Sequence[AxisPieces], buffer: Buffer) -> bool:
    """Whether every axis is a piece of exactly one index: all elements are then moved, each to a distinct position."""
    axes = [axis for one in pieces for axis, _ in one]
    long = {axis for axis, extent in enumerate(buffer.shape) if not is_same(extent, 1)}
    return long <= set(axes) and len(set(axes)) == len(axes)


def _is_not_only_stored(kernel: Kernel) -> bool:
    """Whether a kernel reads its own output, or writes it in a while loop."""
    is_indirect = any(isinstance(statement, While) for statement in walk(kernel.body))
    return is_indirect or is_read(kernel, kernel.outputs[0])


def _pieces(var: ScalarVar, source: Load, extent: int) -> list[tuple[int, int]] | None:
    """The axes that an index is split into, with their strides in it; None if it is not such a split.

    ``d`` in ``x[i, d / 32, j, d % 32]`` is 32 times the position along axis 1 plus the position along axis 3.
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
    """The stride of a piece: 1 for ``d`` and ``d % 32``, 32 for ``d / 32`` and ``d / 32 % 4``; else None."""
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


def _composed(pieces: AxisPieces, where: Sequence[Scalar]) -> Scalar:
    """The index composed of these pieces."""
    total: Scalar = index(0)
    for axis, step in reversed(pieces):
        total = total + where[axis] * index(step)
    return total
