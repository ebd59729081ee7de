"""Removes kernels that keep every element in place: a reshape needs no code and no memory."""

from dataclasses import dataclass

import numpy as np

from openinfer.loops.dim import Dim
from openinfer.loops.ir import Binary, Buffer, Const, For, Kernel, Load, Scalar, ScalarVar, Store
from openinfer.loops.rewrite import straightened
from openinfer.ops import Array
from openinfer.synth.program.ir import KernelStep, Move, Program, Step, Value

_MOST = 1 << 16
"""The most elements whose positions are compared one by one."""
_OPERATIONS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.floor_divide,
    "rem": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
}
"""Operations on positions; divisions need a non-negative dividend and a positive divisor."""


@dataclass(frozen=True)
class FreeReshapes:
    """The pass: such kernels become moves, whose operands share memory wherever they can."""

    def run(self, program: Program) -> Program:
        """The program without such kernels."""
        return program.map_kernels(lambda step: (_step(step),))


def _step(step: KernelStep) -> Step:
    if len(step.inputs) != 1 or len(step.outputs) != 1 or step.is_initial or step.scratch:
        return step
    (source,), (target,) = step.inputs, step.outputs
    if not isinstance(source, Value) or source.dtype is not target.dtype or not keeps_places(step.kernel):
        return step
    return Move(source, target, step.node, step.scalars)


def keeps_places(kernel: Kernel) -> bool:
    """Whether a kernel stores every element of its input, unchanged, at its position in the input."""
    (source,), (target,) = kernel.inputs, kernel.outputs
    if any(isinstance(extent, Dim) for extent in (*source.shape, *target.shape)) or source.dtype is not target.dtype:
        return False
    count = int(np.prod(target.shape, dtype=np.int64))
    found = _copied(kernel) if count == int(np.prod(source.shape, dtype=np.int64)) and 0 < count <= _MOST else None
    if found is None or source.strides is not None or target.strides is not None:
        return False
    places = np.ravel(found[0])
    return bool(np.array_equal(places, np.ravel(found[1])) and np.array_equal(np.sort(places), np.arange(count)))


def _copied(kernel: Kernel) -> tuple[Array, Array] | None:
    """The positions of stored elements, and where each is loaded from; None if a kernel does anything else."""
    body, known = straightened(kernel.body), dict[str, Array]()
    loops: list[For] = []
    while len(body) == 1 and isinstance(body[0], For):
        loops.append(body[0])
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Store) or not isinstance(body[0].value, Load):
        return None
    extents = [loop.extent.value for loop in loops if isinstance(loop.extent, Const)]
    if len(extents) < len(loops):
        return None
    for loop, grid in zip(loops, np.indices([int(extent) for extent in extents]), strict=True):
        known[loop.index.name] = grid
    store, load = body[0], body[0].value
    to, place = _place(store.buffer, store.index, known), _place(load.buffer, load.index, known)
    if to is None or place is None:
        return None
    one, other = np.broadcast_arrays(to, place)
    return one, other


def _place(buffer: Buffer, index: tuple[Scalar, ...], known: dict[str, Array]) -> Array | None:
    total: Array = np.zeros((), np.int64)
    for part, step in zip(index, buffer.actual_strides, strict=True):
        value = _value(part, known)
        if value is None:
            return None
        total = total + value * int(step)
    return total


def _value(value: Scalar, known: dict[str, Array]) -> Array | None:
    match value:
        case Const(number) if not isinstance(number, Dim):
            return np.asarray(int(number))
        case ScalarVar(name):
            return known.get(name)
        case Binary(op, left, right) if op in _OPERATIONS:
            one, other = _value(left, known), _value(right, known)
            if one is None or other is None or (op in ("div", "rem") and min(one.min(), other.min() - 1) < 0):
                return None
            return _OPERATIONS[op](one, other)
        case _:
            return None
