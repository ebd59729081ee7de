"""Identically written slices in one op: decides whether their lengths are one size, several, or broadcast to one.

A negative end counts from the extent, and an omitted end is the extent, so identically written slices can have
different lengths. Each length stays a size of its own unless the op's shape rule compares it with another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from openinfer.errors import Code
from openinfer.ir import Index, Node
from openinfer.ir.expr import Ref
from openinfer.ir.text import node_head
from openinfer.loops.build import Builder, index, load, pair
from openinfer.loops.dim import at, expr_of, is_same, is_same_shape, larger, sizes_in, smaller
from openinfer.loops.ir import Buffer, Kernel, LoopKind
from openinfer.ops import Call, OpError, OpRecord, infer
from openinfer.synth.lower.emission import Emission, refused
from openinfer.synth.lower.op_sizes import OpSizes, at_sizes
from openinfer.synth.lower.requirements import Refusals
from openinfer.synth.lower.traced import Path
from openinfer.synth.program.ir import BindSize, KernelStep, RefuseSizes, StepOperand, Value

_Groups = Sequence[Sequence[str]]
"""Groups of lengths that must be equal or broadcast to one; the first of each names the size."""
_TRIED = 48
MUST_FIT = "a length in {} is known only at run time, and must match others"
ADVICE = "read the slice into a variable first, whose dimensions are sizes"


@dataclass(frozen=True)
class Read:
    """An op whose operands have been read."""

    record: OpRecord
    call: Call
    operands: Sequence[StepOperand | None]
    lengths: Mapping[str, Index]
    """The sizes that are lengths of slices, and the slices as written."""


class SliceLengths:
    """Resolves the lengths of the slices that one op reads."""

    def __init__(self, emission: Emission, node: Node, read: Read, first_step: int) -> None:
        self._emission = emission
        self._node = node
        self._read = read
        used = OpSizes(read.record, read.call, read.call, ()).used
        self._bounds = {name: emission.shapes.sizes[name] for name in used}
        self._first_step = first_step
        """The index of the first step that reads the operands."""

    def settled(self) -> Read:
        """The op with operands that its shape rule accepts for all lengths, as far as possible."""
        alike = _written_alike(self._read.lengths)
        if not alike or self._fits(self._read.call):
            return self._read
        merged = (self._compared(alike), alike)
        found = next((groups for groups in merged if self._fits(self._merged(groups))), None)
        if found is None:
            return self._read
        stretched = {name for group in found for name in group if self._is_stretched(name, found)}
        if not stretched:
            names = self._emission.shapes.merge(self._node, found)
            values = self._emission.rename_sizes(names, self._first_step)
            operands = [values.get(one, one) if isinstance(one, Value) else one for one in self._read.operands]
            return _with_operands(self._read, operands)
        return self._stretched(found, stretched)

    def _fits(self, call: Call) -> bool:
        try:
            found = infer(self._read.record, call)
        except OpError:
            return False
        op = OpSizes(self._read.record, call, found, ())
        return op.fits_whatever_lengths_are(self._bounds, self._read.lengths)

    def _merged(self, groups: _Groups) -> Call:
        """The call with the lengths of each group merged into one size."""
        names = {name: group[0] for group in groups for name in group}
        shapes, call = self._emission.shapes, self._read.call
        kinds = (
            None if kind is None else replace(kind, shape=shapes.renamed(kind.shape, names)) for kind in call.inputs
        )
        return replace(call, inputs=tuple(kinds))

    def _compared(self, alike: _Groups) -> list[list[str]]:
        """The groups of lengths that the shape rule requires to be equal."""
        path = Path()
        sizes = {name: path.size(name, bound, bound) for name, bound in self._bounds.items()}
        for group in alike:
            common = min(self._bounds[name] for name in group)
            sizes |= {name: path.size(name, common, self._bounds[name]) for name in group}
        self._code(sizes)
        found = {name: {name} for group in alike for name in group}
        group_of = {name: place for place, group in enumerate(alike) for name in group}
        for asked, is_true in path.taken:
            if asked.op == "==" and is_true and isinstance(asked.left, Ref) and isinstance(asked.right, Ref):
                one, other = asked.left.name, asked.right.name
                if one in group_of and group_of[one] == group_of.get(other):
                    joined = found[one] | found[other]
                    found |= dict.fromkeys(joined, joined)
        groups = {frozenset(group): group for group in found.values()}
        return [[name for name in self._read.lengths if name in group] for group in groups.values() if len(group) > 1]

    def _is_stretched(self, name: str, groups: _Groups) -> bool:
        """Whether the rule accepts one length of 1 while the others of its group differ."""
        sizes = dict(self._bounds)
        for group in groups:
            most = min(self._bounds[other] for other in group if other != name)
            sizes |= dict.fromkeys(group, 0 if name in group and most == 1 else most)
        return self._code({**sizes, name: 1}) is None

    def _code(self, sizes: Mapping[str, int]) -> Code | None:
        """The error code with which the shape rule rejects sizes."""
        try:
            infer(self._read.record, at_sizes(self._read.call, sizes))
        except OpError as error:
            return error.code
        except ZeroDivisionError:
            return Code.BAD_SHAPE
        return None

    # --- broadcasting ---------------------------------------------------------------------------------------------

    def _stretched(self, groups: _Groups, stretched: set[str]) -> Read:
        """Broadcast lengths of 1 to the others', after checking that the rule accepts all lengths."""
        refusals = Refusals(self._code, self._bounds)
        lengths = {group[0]: self._length([name for name in group if name not in stretched], group) for group in groups}
        if not refusals.is_exact or not self._is_result(self._merged(groups), lengths):
            raise refused(self._node, MUST_FIT.format(node_head(self._node)), ADVICE)
        for condition, code in refusals.conditions():
            self._emission.emit(RefuseSizes(condition, self._node.index, code))
        joined: dict[str, int] = {}
        for group in groups:
            joined |= dict.fromkeys(group, self._size_of(lengths[group[0]], group))
        return _with_operands(self._read, [self._widened(one, joined) for one in self._read.operands])

    def _size_of(self, length: int, group: Sequence[str]) -> int:
        """A size equal to a length: one of the group, or a new one."""
        if isinstance(expr_of(length), Ref):
            return length
        size = self._emission.shapes.joined_length(self._node, max(self._bounds[name] for name in group))
        self._emission.emit(BindSize(size, length, self._node.index, is_exact=False))
        return size

    def _length(self, fixed: Sequence[str], group: Sequence[str]) -> int:
        """The length that a group is broadcast to: that of a member which never broadcasts, or the join of all."""
        size = self._emission.shapes.size
        return size(fixed[0]) if fixed else reduce(_joined, map(size, group))

    def _is_result(self, merged: Call, lengths: Mapping[str, int]) -> bool:
        """Whether the op has the same result shapes with broadcast operands; checked on random sizes."""
        numbers = np.random.default_rng(0)
        for _ in range(_TRIED):
            sizes = {name: min(most, int(numbers.choice((0, 1, 2, 3, most)))) for name, most in self._bounds.items()}
            if self._code(sizes) is not None:
                continue
            joined = sizes | {name: at(length, sizes) for name, length in lengths.items()}
            both = ((self._read.call, sizes), (merged, joined))
            one, other = (infer(self._read.record, at_sizes(call, own)).outputs for call, own in both)
            if one != other:
                return False
        return True

    def _widened(self, operand: StepOperand | None, joined: Mapping[str, int]) -> StepOperand | None:
        """An operand broadcast to the joined lengths."""
        if not isinstance(operand, Value):
            return operand
        shape = tuple(joined.get(min(sizes_in(one), default=""), one) for one in operand.shape)
        if is_same_shape(shape, operand.shape):
            return operand
        value = self._emission.value(operand.variable or "", operand.dtype, shape)
        kernel = _stretching(Buffer("x", operand.dtype, operand.shape), Buffer("y", operand.dtype, shape))
        self._emission.emit(KernelStep(kernel, (operand,), (value,), self._node.index))
        return value


def _joined(one: int, other: int) -> int:
    """The broadcast of two lengths that are equal or of which one is 1: the larger, or 0 if either is 0."""
    return larger(one, other) * smaller(smaller(one, other), 1)


def _stretching(x: Buffer, y: Buffer) -> Kernel:
    """Broadcasts ``x``: clamps the index on stretched axes, where it is always 0."""
    builder = Builder()
    with builder.loops(y.shape, LoopKind.PARALLEL) as where:
        own = [
            one if is_same(to, extent) else pair("min", one, index(extent - 1))
            for one, extent, to in zip(where, x.shape, y.shape, strict=True)
        ]
        builder.store(y, where, load(x, *own))
    return Kernel("stretch", (x,), (y,), builder.body, ("lengths of 1 broadcast to those of the other slices",))


def _written_alike(lengths: Mapping[str, Index]) -> list[list[str]]:
    found: dict[Index, list[str]] = {}
    for name, written in lengths.items():
        found.setdefault(written, []).append(name)
    return [group for group in found.values() if len(group) > 1]


def _with_operands(read: Read, operands: Sequence[StepOperand | None]) -> Read:
    kinds = tuple(
        None if kind is None or value is None else replace(kind, shape=value.shape)
        for kind, value in zip(read.call.inputs, operands, strict=True)
    )
    return replace(read, call=replace(read.call, inputs=kinds), operands=operands)
