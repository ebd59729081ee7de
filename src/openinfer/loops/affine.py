"""Affine index maps: positions in memory as sums of indices times strides, for tiling and packing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openinfer.loops.dim import is_same
from openinfer.loops.ir import INDEX, Binary, Buffer, Const, Scalar, ScalarVar, visit


@dataclass(frozen=True)
class Affine:
    """``first + sum of index * stride``; indices with stride 0 are omitted."""

    first: int
    strides: Mapping[str, int]

    def stride(self, var: ScalarVar) -> int:
        """The stride of an index."""
        return self.strides.get(var.name, 0)

    def scalar(self) -> Scalar:
        """The position as an expression."""
        total: Scalar = Const(self.first, INDEX)
        for name, stride in self.strides.items():
            total = total + ScalarVar(name) * Const(stride, INDEX)
        return total


def affine(value: Scalar) -> Affine | None:
    """The affine form of an index expression; None if it is not affine."""
    match value:
        case Const(number) if isinstance(number, int):
            return Affine(number, {})
        case ScalarVar(name) if value.dtype is INDEX:
            return Affine(0, {name: 1})
        case Binary("add" | "sub" | "mul", left, right):
            one, other = affine(left), affine(right)
            if one is None or other is None:
                return None
            if value.op == "mul":
                if other.strides:
                    one, other = other, one
                return None if other.strides else scaled(one, other.first)
            return added(one, other if value.op == "add" else scaled(other, -1))
        case _:
            return None


def scaled(one: Affine, factor: int) -> Affine:
    """A position multiplied by a constant."""
    return Affine(one.first * factor, {name: stride * factor for name, stride in one.strides.items()})


def added(one: Affine, other: Affine) -> Affine:
    """The sum of two positions."""
    strides = dict(one.strides)
    for name, stride in other.strides.items():
        strides[name] = strides[name] + stride if name in strides else stride
    return Affine(one.first + other.first, {name: stride for name, stride in strides.items() if not is_same(stride, 0)})


def position(buffer: Buffer, index: Sequence[Scalar]) -> Affine | None:
    """The linear position of an element in a buffer, counted in elements; None if it is not affine."""
    total = Affine(0, {})
    for one, stride in zip(index, buffer.actual_strides, strict=True):
        found = affine(one)
        if found is None:
            return None
        total = added(total, scaled(found, stride))
    return total


def variables(*values: Scalar) -> set[str]:
    """The names of the variables in expressions."""
    return {one.name for value in values for one in visit(value) if isinstance(one, ScalarVar)}
