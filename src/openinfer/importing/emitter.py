"""Builds a draft op by op: infers types from op records and folds known inputs at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from openinfer.dtypes import DType
from openinfer.importing.counts import DataCounts
from openinfer.importing.draft import (
    I64,
    DraftCopy,
    DraftDeclare,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftParam,
    DraftPart,
    DraftStep,
    DraftValue,
    IndexOperand,
    KnownTensor,
    NodeOrigin,
    known,
)
from openinfer.importing.extents import DynamicSizes, tidied
from openinfer.importing.fold import folded
from openinfer.importing.identifiers import Identifiers
from openinfer.importing.multiples import Types, multiple_advice
from openinfer.importing.problems import Unsupported
from openinfer.ir.expr import Ref, TooDeepError
from openinfer.ir.operand import Single, Slice
from openinfer.loops.dim import expr_of, is_same
from openinfer.ops import OPS, Call, complete, infer, slots
from openinfer.ops.types import OpError, Shape


class Bodies:
    """The stack of open bodies; steps are added to the innermost."""

    def __init__(self) -> None:
        self._open: list[list[DraftStep]] = [[]]

    @property
    def steps(self) -> tuple[DraftStep, ...]:
        """All steps so far, without those of open bodies."""
        return tuple(self._open[0])

    def add(self, step: DraftStep) -> None:
        """Add a step."""
        self._open[-1].append(step)

    def open(self) -> None:
        """Open a body; steps are added to it from now on."""
        self._open.append([])

    def close(self) -> tuple[DraftStep, ...]:
        """Close the innermost body and return its steps."""
        return tuple(self._open.pop())

    def mark(self) -> tuple[int, int]:
        """A position among the steps, for ``rollback`` and ``insert``."""
        return len(self._open), len(self._open[-1])

    def rollback(self, mark: tuple[int, int]) -> None:
        """Remove everything added since a mark."""
        depth, count = mark
        del self._open[depth:]
        del self._open[-1][count:]

    def insert(self, mark: tuple[int, int], steps: Sequence[DraftStep]) -> None:
        """Insert steps at a mark in the open body."""
        depth, count = mark
        assert depth == len(self._open)
        self._open[-1][count:count] = steps


class Emitter:
    """Builds the steps of one draft."""

    def __init__(self, sizes: DynamicSizes, counts: DataCounts | None = None) -> None:
        self.sizes = sizes
        self.counts = counts or DataCounts({})
        self.bodies = Bodies()
        self.origin = NodeOrigin()
        self._indices = Identifiers()
        self._asked: dict[int, tuple[str, tuple[DraftOperand | None, ...], DraftOperand]] = {}

    # --- ops ------------------------------------------------------------------------------------------------------

    def op(self, name: str, *inputs: DraftOperand | None, **params: DraftParam) -> DraftOperand:
        """Add an op with one result."""
        return self.ops(name, *inputs, **params)[0]

    def ops(self, name: str, *inputs: DraftOperand | None, **params: DraftParam) -> tuple[DraftOperand, ...]:
        """Add an op with several results, or compute it now if all of its inputs are known."""
        given = _needed(name, params)
        call = self._call(name, inputs, given)
        constants = [one for one in inputs if one is None or isinstance(one, KnownTensor)]
        if len(constants) == len(inputs):
            ordered = constants + [None] * (len(call.inputs) - len(constants))
            results = folded(name, call, ordered)
            if results is not None:
                return tuple(map(self._tidied, results))
        placed = tuple(self.placed(one) for one in inputs)
        outputs = tuple(DraftValue(output.dtype, self.shape(output.shape)) for output in call.outputs)
        self.bodies.add(DraftOp(name, _trimmed(placed), tuple(given.items()), outputs, self.origin))
        if len(outputs) == 1 and all(is_same(one, 1) for one in outputs[0].shape):
            self._asked[id(outputs[0])] = (name, inputs, outputs[0])
        return outputs

    def asked(self, operand: DraftOperand) -> tuple[str, tuple[DraftOperand | None, ...]] | None:
        """The op and inputs that a single number was computed from, before sizes became values of the graph."""
        found = self._asked.get(id(operand))
        return None if found is None else found[:2]

    def into(
        self, name: str, outputs: Sequence[DraftValue | DraftPart], *inputs: DraftOperand | None, **params: DraftParam
    ) -> None:
        """Add an op that writes existing variables."""
        given = _needed(name, params)
        self._call(name, inputs, given)
        placed = tuple(self.placed(one) for one in inputs)
        self.bodies.add(
            DraftOp(name, _trimmed(placed), tuple(given.items()), tuple(outputs), self.origin, declares=False)
        )

    def _call(self, name: str, inputs: Sequence[DraftOperand | None], params: dict[str, DraftParam]) -> Call:
        record = OPS[name]
        types = [None if one is None else one.type for one in inputs]

        def inferred(given: Types) -> Call:
            places = slots(record, [None] * len(inputs))
            ordered = tuple(None if place is None else given[place] for place in places)
            return infer(record, Call(ordered, complete(record, params)))

        try:
            return inferred(types)
        except OpError as error:
            advice = error.advice or multiple_advice(types, inferred)
            raise Unsupported(f"{error.message} (as op {name})", advice) from error
        except TooDeepError as error:
            advice = "fix more sizes, or make them multiples that divide evenly: --size 'NAME=32*n' --size 'n<=BOUND'"
            raise Unsupported(str(error), advice) from error
        except ZeroDivisionError as error:
            raise Unsupported("a size is divided by zero") from error

    def shape(self, shape: Shape) -> Shape:
        """A shape with its extents simplified."""
        return tuple(tidied(one, self.sizes) for one in shape)

    def _tidied(self, operand: KnownTensor) -> KnownTensor:
        if not operand.has_sizes:
            return operand
        flat = [tidied(one, self.sizes) for one in operand.array.reshape(-1)]
        found = np.empty(len(flat), object)
        found[:] = flat
        return known(found.reshape(operand.shape), operand.dtype, operand.hint)

    # --- operands -------------------------------------------------------------------------------------------------

    def placed(self, operand: DraftOperand | None) -> DraftOperand | None:
        """The operand as a step can take it: sizes become values of the graph."""
        if not isinstance(operand, KnownTensor) or not operand.has_sizes:
            return operand
        elements = [self._number(int_or_size) for int_or_size in operand.array.reshape(-1)]
        if operand.shape == ():
            found: DraftOperand = elements[0]
        else:
            found = (
                self.op("stack", *elements, axis=0)
                if len(elements) > 1
                else self.op("reshape", elements[0], shape=(1,))
            )
            found = found if len(operand.shape) == 1 else self.op("reshape", found, shape=operand.shape)
        return found if operand.dtype is I64 else self.op("cast", found, to=operand.dtype)

    def _number(self, value: int) -> DraftOperand:
        """A size as an i64 scalar of the graph: the last element of a ramp from 0 up to it."""
        if not hasattr(value, "expr"):
            return known(np.int64(value))
        return self.part(self.ramp(value + 1), Single(expr_of(value)))

    def ramp(self, count: int) -> DraftOperand:
        """0, 1, 2, ...: as many numbers as ``count``, which may depend on sizes."""
        zero = self.op("expand", known(np.int64(0)), shape=(count,))
        return self.op("iota", zero, axis=0)

    def part(self, operand: DraftOperand, *indices: Single | Slice) -> DraftOperand:
        """Index a value of the graph, with one index per dimension."""
        base = self.value(operand)
        pairs = zip(indices, base.shape, strict=True)
        shape = tuple(_length(index, own) for index, own in pairs if isinstance(index, Slice))
        return DraftPart(base, indices, shape)

    def value(self, operand: DraftOperand) -> DraftValue:
        """The operand as a value of its own."""
        found = self.placed(operand)
        if isinstance(found, DraftValue):
            return found
        assert found is not None
        copy = DraftValue(found.dtype, found.shape)
        if isinstance(found, DraftPart | IndexOperand):
            self.bodies.add(DraftDeclare(copy))
            self.bodies.add(DraftCopy(found, copy, self.origin))
            return copy
        self.bodies.add(DraftOp("reshape", (found,), (("shape", found.shape),), (copy,), self.origin))
        return copy

    # --- shorthands for translators -------------------------------------------------------------------------------

    def cast(self, operand: DraftOperand, dtype: DType) -> DraftOperand:
        """Cast an operand, unless it already has the dtype."""
        return operand if operand.dtype is dtype else self.op("cast", operand, to=dtype)

    def reshape(self, operand: DraftOperand, shape: Sequence[int]) -> DraftOperand:
        """Reshape an operand, unless it already has the shape."""
        wanted = self.shape(tuple(shape))
        if len(wanted) == len(operand.shape) and all(map(is_same, wanted, operand.shape)):
            return operand
        return self.op("reshape", operand, shape=wanted)

    def transpose(self, operand: DraftOperand, perm: Sequence[int]) -> DraftOperand:
        """Permute the axes of an operand."""
        if tuple(perm) == tuple(range(len(perm))):
            return operand
        return self.op("transpose", operand, perm=tuple(perm))

    def scalar(self, value: float, dtype: DType) -> KnownTensor:
        """A number as an operand."""
        return known(np.asarray(value).astype(dtype.array), dtype)

    def zeros(self, dtype: DType, shape: Shape) -> DraftOperand:
        """A tensor of zeros."""
        return self.full(self.scalar(0, dtype), shape)

    def full(self, value: DraftOperand, shape: Shape) -> DraftOperand:
        """A tensor filled with one value."""
        return self.op("expand", value, shape=tuple(shape)) if shape else self.reshape(value, ())

    # --- bodies ----------------------------------------------------------------------------------------------------

    def declare(self, dtype: DType, shape: Shape, hint: str = "") -> DraftValue:
        """Declare a variable that is written later."""
        made = DraftValue(dtype, shape, hint)
        self.bodies.add(DraftDeclare(made))
        return made

    def copy(self, src: DraftOperand, dst: DraftValue | DraftPart) -> None:
        """Copy a value into a variable."""
        found = self.placed(src)
        assert found is not None
        self.bodies.add(DraftCopy(found, dst, self.origin))

    def variable(self, initial: DraftOperand, hint: str = "") -> DraftValue:
        """Declare a variable with an initial value."""
        made = self.declare(initial.dtype, initial.shape, hint)
        if not (isinstance(initial, KnownTensor) and not initial.has_sizes and not np.any(initial.array)):
            self.copy(initial if isinstance(initial, DraftValue | DraftPart) else self.value(initial), made)
        return made

    def open_loop(self, name: str) -> IndexOperand:
        """Open a loop; steps are added to its body from now on."""
        self.bodies.open()
        return IndexOperand(self._indices.unique(name[0]))

    def close_loop(self, name: str, index: IndexOperand, count: int) -> None:
        """Close the innermost loop."""
        body = self.bodies.close()
        comment = f"{self.origin.kind} {self.origin.node}".strip()
        self.bodies.add(DraftLoop(name, index.name, count, body, self.origin, comment))


def slice_at(operand: DraftValue, index: IndexOperand, axis: int = 0) -> DraftPart:
    """The slice of a variable along an axis at a loop index."""
    rest = (*operand.shape[:axis], *operand.shape[axis + 1 :])
    where = Single(Ref(index.name))
    indices = tuple(where if one == axis else Slice() for one in range(len(operand.shape)))
    return DraftPart(operand, indices, rest)


def _length(index: Slice, own: int) -> int:
    assert index == Slice(), index
    return own


def _needed(op: str, params: Mapping[str, DraftParam]) -> dict[str, DraftParam]:
    """The parameters that are neither None nor the op's default."""
    record = OPS[op]
    found = {}
    for name, value in params.items():
        own = record.param(name)
        if value is not None and (own is None or own.default is None or own.default != value or own.is_required):
            found[name] = value
    return found


def _trimmed(inputs: tuple[DraftOperand | None, ...]) -> tuple[DraftOperand | None, ...]:
    """Drop the omitted inputs at the end."""
    count = len(inputs)
    while count and inputs[count - 1] is None:
        count -= 1
    return inputs[:count]


def integers(operand: DraftOperand | None, what: str) -> tuple[int, ...]:
    """The elements of a known integer tensor, in order; sizes among them are ``Dim``."""
    if not isinstance(operand, KnownTensor):
        raise Unsupported(f"{what} is computed from data", "fix the input it depends on: --fix INPUT=VALUE")
    return tuple(one if hasattr(one, "expr") else int(one) for one in operand.array.reshape(-1).tolist())


def number(operand: DraftOperand | None, what: str) -> Any:
    """The single element of a known tensor."""
    if not isinstance(operand, KnownTensor) or operand.array.size != 1:
        raise Unsupported(f"{what} is computed from data", "fix the input it depends on: --fix INPUT=VALUE")
    found = operand.array.reshape(-1)[0]
    return found if hasattr(found, "expr") else found.item()
