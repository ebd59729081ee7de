"""Convolutions as contractions: windows are index expressions, and what falls outside takes no part."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

from openinfer.loops.build import Builder, Coordinates, Position, index
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Scalar, ScalarVar
from openinfer.ops.lower.linear import contract, finished, indices
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import pads_of, per_axis
from openinfer.ops.types import Shape

Tap = tuple[Scalar, list[Scalar]]
"""Where a position of the window meets an axis of the input, and the conditions under which it does."""


@dataclass(frozen=True)
class _Window:
    """How the window moves, with one number for each spatial axis; the extents are those of the input."""

    extents: Shape
    strides: Shape
    dilations: Shape
    begins: Shape
    ends: Shape

    def forward(self, axis: int, result: ScalarVar, offset: ScalarVar) -> Tap:
        """The element of the input that a result sees through a position of the window."""
        start = result * index(self.strides[axis]) + offset * index(self.dilations[axis])
        at = start - index(self.begins[axis])
        conditions = []
        if _may_be_positive(self.begins[axis]):
            conditions.append(at >= index(0))
        if _may_be_positive(self.ends[axis]):
            conditions.append(at < index(self.extents[axis]))
        return at, conditions

    def backward(self, axis: int, result: ScalarVar, offset: ScalarVar) -> Tap:
        """The element of the input that adds to a result through a position of the window, if there is one."""
        stride = index(self.strides[axis])
        distance = result + index(self.begins[axis]) - offset * index(self.dilations[axis])
        at = distance // stride
        conditions = [distance >= index(0), at < index(self.extents[axis])]
        if self.strides[axis] != 1:
            conditions.append((distance % stride).eq(0))
        return at, conditions


def _may_be_positive(pad: int) -> bool:
    return pad > 0 or is_symbolic(pad)


def _window(call: Call, spatial: Shape) -> _Window:
    rank = len(spatial)
    begins, ends = pads_of(call.params["pads"], rank)
    strides = per_axis(call.params["strides"], rank, "strides", 1)
    return _Window(spatial, strides, per_axis(call.params["dilations"], rank, "dilations", 1), begins, ends)


def _channel(group: Sequence[ScalarVar], inner: ScalarVar, size: int) -> Scalar:
    """A channel as its group, if there are groups, and its index in the group."""
    return group[0] * index(size) + inner if group else inner


def convolution(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    """Free indices are the sample, the group, the feature in it, and the position; or the channels last."""
    _lowered(call, builder, inputs, outputs[0], transposed=False)


def transposed(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    """Each result gathers what the input elements that reach it add."""
    _lowered(call, builder, inputs, outputs[0], transposed=True)


def _lowered(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], out: Buffer, *, transposed: bool
) -> None:
    x, w, bias = (*inputs, None)[:3]
    assert x is not None
    assert w is not None
    last, groups = call.params["layout"] == "NHWC", call.params["groups"]
    channels, spatial = (x.shape[-1], x.shape[1:-1]) if last else (x.shape[1], x.shape[2:])
    per_group = channels // groups
    features = w.shape[1] if transposed else w.shape[0] // groups
    places = out.shape[1:-1] if last else out.shape[2:]
    grouped = () if groups == 1 else (groups,)
    own = (*grouped, features)
    extents = (out.shape[0], *places, *own) if last else (out.shape[0], *own, *places)
    over = indices(builder, extents, (per_group, *w.shape[2:]))
    sample, rest, (inner, *offsets) = over.free[0], over.free[1:], over.bound
    (*group, feature) = rest[-len(own) :] if last else rest[: len(own)]
    where = rest[: -len(own)] if last else rest[len(own) :]
    tap = _window(call, spatial).backward if transposed else _window(call, spatial).forward
    taps = [tap(axis, *pair) for axis, pair in enumerate(zip(where, offsets, strict=True))]
    conditions = [condition for _, own in taps for condition in own]

    def laid_out(channel: Scalar, positions: Sequence[Position]) -> Coordinates:
        return (sample, *positions, channel) if last else (sample, channel, *positions)

    result, channel = _channel(group, feature, features), _channel(group, inner, per_group)
    weights = (channel, feature, *offsets) if transposed else (result, inner, *offsets)
    factors = (x, laid_out(channel, [at for at, _ in taps])), (w, weights)
    valid = reduce(and_, conditions) if conditions else None
    contract(call, builder, over, (out, laid_out(result, where)), factors, finished(call, bias, result), valid)


lowers("conv1d", "conv2d", "conv3d")(convolution)
lowers("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")(transposed)
