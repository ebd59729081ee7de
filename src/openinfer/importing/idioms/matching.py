"""Lookups for pattern matching: the producer of a value, its readers, and known numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from openinfer.dtypes import DType
from openinfer.importing.draft import (
    Draft,
    DraftOp,
    DraftOperand,
    DraftParam,
    DraftStep,
    DraftValue,
    KnownTensor,
    base_of,
    operands,
    walk,
)
from openinfer.loops.dim import is_same
from openinfer.ops import OPS, Call, complete, infer


class Matches:
    """One draft, indexed for pattern matching."""

    def __init__(self, draft: Draft) -> None:
        self._makers: dict[int, DraftOp] = {}
        self._reads: Counter[int] = Counter(id(base_of(port.operand)) for port in draft.outputs)
        for step in walk(draft.steps):
            self._reads.update(id(base_of(one)) for one in operands(step))
            if isinstance(step, DraftOp) and step.declares:
                self._makers.update((id(one), step) for one in step.outputs)

    def maker(self, operand: DraftOperand | None, *ops: str) -> DraftOp | None:
        """The op that computes a value, if it is one of these ops."""
        found = None if operand is None else self._makers.get(id(operand))
        return found if found is not None and found.op in ops else None

    def inner(self, operand: DraftOperand | None, *ops: str) -> DraftOp | None:
        """Like ``maker``, but only if nothing else reads the value, so that it can be removed with the pattern."""
        found = self.maker(operand, *ops)
        return found if found is not None and self._reads[id(operand)] == 1 else None

    def reads(self, operand: DraftOperand) -> int:
        """The number of times a value is read."""
        return self._reads[id(operand)]


def number(operand: DraftOperand | None) -> float | None:
    """The value of a known tensor with one element, else None."""
    if not isinstance(operand, KnownTensor) or operand.has_sizes or operand.array.size != 1:
        return None
    return float(operand.array.reshape(-1)[0])


def is_known_as(operand: DraftOperand | None, wanted: int) -> bool:
    """Whether all elements of a known tensor equal this number."""
    if not isinstance(operand, KnownTensor) or operand.has_sizes or operand.array.size > 4096:
        return False
    return operand.array.size > 0 and bool(np.all(operand.array == wanted))


def is_near(value: float | None, wanted: float, dtype: DType) -> bool:
    """Whether a number is another as files of this dtype store it: six digits, or the precision of small floats."""
    tolerance = 2e-5 if dtype.bits >= 32 else 1e-3 if dtype.name == "f16" else 1e-2
    return value is not None and abs(value - wanted) <= tolerance * abs(wanted)


def params(step: DraftOp) -> dict[str, DraftParam]:
    """All parameters of an op, including defaults."""
    return complete(OPS[step.op], dict(step.params))


def first(step: DraftOp) -> DraftOperand:
    """The first input."""
    found = step.inputs[0]
    assert found is not None
    return found


def pair(step: DraftOp) -> tuple[DraftOperand, DraftOperand]:
    """The first two inputs."""
    one, other = step.inputs[:2]
    assert one is not None
    assert other is not None
    return one, other


def orders(step: DraftOp) -> Iterable[tuple[DraftOperand, DraftOperand]]:
    """The inputs of a commutative op, in both orders."""
    one, other = pair(step)
    return ((one, other), (other, one))


def made(op: str, inputs: Sequence[DraftOperand | None], given: dict[str, DraftParam], like: DraftOp) -> DraftOp:
    """A new op that takes over the results of another."""
    written = {
        name: value
        for name, value in given.items()
        if value is not None and (own := OPS[op].param(name)) is not None and own.default != value
    }
    return DraftOp(op, tuple(inputs), tuple(written.items()), like.outputs, like.origin)


def new(op: str, inputs: Sequence[DraftOperand | None], given: dict[str, DraftParam], like: DraftOp) -> DraftOp:
    """A new op with new results."""
    record = OPS[op]
    types = [None if one is None else one.type for one in inputs]
    types += [None] * (len(record.signature.inputs) - len(types))
    call = infer(record, Call(tuple(types), complete(record, given)))
    outputs = tuple(DraftValue(output.dtype, output.shape) for output in call.outputs)
    return DraftOp(op, tuple(inputs), tuple(given.items()), outputs, like.origin)


def fits(step: DraftOp) -> bool:
    """Whether an op accepts its operands and infers exactly its declared results."""
    record = OPS[step.op]
    types: list[Any] = [None if one is None else one.type for one in step.inputs]
    types += [None] * (len(record.signature.inputs) - len(types))
    from openinfer.ops import OpError

    try:
        call = infer(record, Call(tuple(types), complete(record, dict(step.params))))
    except OpError:
        return False
    return all(
        own.dtype is found.dtype and len(own.shape) == len(found.shape) and all(map(is_same, own.shape, found.shape))
        for own, found in zip(step.outputs, call.outputs, strict=True)
    )


def last_axis_only(step: DraftOp) -> bool:
    """Whether a reduction runs over the last axis and keeps it."""
    given = params(step)
    rank = len(first(step).shape)
    return (
        bool(given["keepdims"])
        and given["axes"] is not None
        and tuple(one % rank for one in given["axes"]) == (rank - 1,)
    )


def is_vector(operand: DraftOperand, length: int) -> bool:
    """Whether an operand has one element per element of the last axis, and no other extent but 1."""
    shape = operand.shape
    return bool(shape) and is_same(shape[-1], length) and all(is_same(one, 1) for one in shape[:-1])


def flat(operand: DraftOperand, like: DraftOp, steps: list[DraftStep]) -> DraftOperand:
    """A vector without leading axes of extent 1."""
    if len(operand.shape) == 1:
        return operand
    if isinstance(operand, KnownTensor):
        return KnownTensor(operand.dtype, np.reshape(operand.array, -1), operand.hint)
    step = new("reshape", [operand], {"shape": (operand.shape[-1],)}, like)
    steps.append(step)
    result = step.outputs[0]
    assert isinstance(result, DraftValue)
    return result
