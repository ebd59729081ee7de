"""Ops that put the same elements into another shape or order.

Results may be views of the operands; whoever runs the ops does not write into either.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import case, special
from openinfer.ops.record import EXACT, REQUIRED, Call, Case, Cases, CostRule, Param, Reference, ShapeRule, op
from openinfer.ops.shapes import axes_of, axis_of, moves
from openinfer.ops.types import ALL, Shape, parameter_error, shape_error

FAMILY = "Move"


def moving(
    *params: Param, shape: ShapeRule, cases: Cases, text: str = "x: T -> T", cost: CostRule = moves
) -> Callable[[Reference], Reference]:
    """An op on all dtypes that puts elements elsewhere."""
    return op(FAMILY, text, *params, shape=shape, cost=cost, tolerance=EXACT, cases=cases, stored=True, T=ALL)


def settings(*settings: tuple[Shape, Mapping[str, Any]]) -> Cases:
    """One case for each shape of the operand and its parameters."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for shape, params in settings:
            yield case(dtype, special(rng, dtype, shape), **params)

    return cases


# --- the same elements in another shape -------------------------------------------------------------------------------


def _reshaped(call: Call) -> tuple[Shape, ...]:
    x, shape = call.input(0), call.params["shape"]
    if shape.count(-1) > 1 or any(extent < -1 for extent in shape):
        raise parameter_error("shape", f"{list(shape)} is not a shape: extents are not negative, but one may be -1")
    known = prod(extent for extent in shape if extent != -1)
    if -1 in shape and known and x.size % known == 0:
        return (tuple(x.size // known if extent == -1 else extent for extent in shape),)
    if -1 in shape or known != x.size:
        raise shape_error(f"{x} has {counted(x.size, 'element')} and cannot have the shape {list(shape)}", "shape")
    return (shape,)


@moving(
    Param("shape", "ints", REQUIRED, "The new extents; one may be -1, which takes what the others leave."),
    shape=_reshaped,
    cases=settings(
        ((), {"shape": ()}),
        ((), {"shape": (1, 1)}),
        ((1, 1), {"shape": ()}),
        ((3, 5), {"shape": 15}),
        ((4, 6), {"shape": (2, -1, 3)}),
        ((2, 3, 4), {"shape": (-1,)}),
        ((2, 0, 3), {"shape": (0, 7)}),
        ((2, 0, 3), {"shape": (-1, 3)}),
    ),
)
def reshape(call: Call, x: Array) -> Array:
    """The same elements in row-major order with another shape, `y[i] = x[i]` for flat positions `i`.

    An extent of 0 means no elements; it does not copy an extent of `x`.
    """
    return x.reshape(call.outputs[0].shape)


def _flattened(call: Call) -> tuple[Shape, ...]:
    shape, axis = call.shape(0), call.params["axis"]
    if not -len(shape) <= axis <= len(shape):
        raise parameter_error("axis", f"{call.input(0)} cannot be divided at axis {axis}")
    axis += len(shape) if axis < 0 else 0
    return ((prod(shape[:axis]), prod(shape[axis:])),)


@moving(
    Param("axis", "int", 1, "The first axis of the second group, from 0 to the number of axes."),
    shape=_flattened,
    cases=settings(
        ((), {"axis": 0}),
        ((7,), {}),
        ((3, 5), {"axis": 0}),
        ((2, 3, 1, 5), {}),
        ((2, 3, 1, 5), {"axis": -1}),
        ((2, 3, 4), {"axis": 3}),
        ((2, 0, 3), {"axis": 2}),
    ),
)
def flatten(call: Call, x: Array) -> Array:
    """A matrix of the same elements: the axes before `axis` become the rows and the others the columns.

    Always two dimensions, as in ONNX: `y = reshape(x, [product of extents before axis, product of the rest])`.
    """
    return x.reshape(call.outputs[0].shape)


def _squeezed(call: Call) -> tuple[Shape, ...]:
    x, axes = call.input(0), call.params["axes"]
    if axes is None:
        return (tuple(extent for extent in x.shape if extent != 1),)
    dropped = axes_of(axes, len(x.shape))
    for axis in dropped:
        if x.shape[axis] != 1:
            raise shape_error(f"axis {axis} of {x} has the extent {x.shape[axis]}, not 1", "axes")
    return (tuple(extent for axis, extent in enumerate(x.shape) if axis not in dropped),)


@moving(
    Param("axes", "ints", None, "The axes to drop, all of extent 1; absent means every axis of extent 1."),
    shape=_squeezed,
    cases=settings(
        ((), {}),
        ((1,), {}),
        ((1, 5, 1, 3), {}),
        ((1, 5, 1, 3), {"axes": 0}),
        ((1, 5, 1, 3), {"axes": (-2, 0)}),
        ((1, 0, 1), {"axes": (2,)}),
        ((3, 5), {"axes": ()}),
    ),
)
def squeeze(call: Call, x: Array) -> Array:
    """The same elements without axes of extent 1, `y[..., j...] = x[..., 0, j...]`."""
    return x.reshape(call.outputs[0].shape)


def _unsqueezed(call: Call) -> tuple[Shape, ...]:
    shape, axes = call.shape(0), call.params["axes"]
    added = axes_of(axes, len(shape) + len(axes))
    rest = iter(shape)
    return (tuple(1 if axis in added else next(rest) for axis in range(len(shape) + len(added))),)


@moving(
    Param("axes", "ints", REQUIRED, "Positions of the new axes in the result."),
    shape=_unsqueezed,
    cases=settings(
        ((), {"axes": 0}),
        ((7,), {"axes": -1}),
        ((3, 5), {"axes": (0, 2)}),
        ((3, 5), {"axes": (-1, 1, 0)}),
        ((2, 0, 3), {"axes": (3,)}),
        ((3, 5), {"axes": ()}),
    ),
)
def unsqueeze(call: Call, x: Array) -> Array:
    """The same elements with new axes of extent 1, `y[..., 0, j...] = x[..., j...]`."""
    return x.reshape(call.outputs[0].shape)


# --- another order ----------------------------------------------------------------------------------------------------


def _permutation(call: Call) -> tuple[int, ...]:
    rank, perm = len(call.shape(0)), call.params["perm"]
    if perm is None:
        return tuple(reversed(range(rank)))
    axes = tuple(axis_of(axis, rank, "perm") for axis in perm)
    if sorted(axes) != list(range(rank)):
        raise parameter_error("perm", f"{list(perm)} does not name every axis of {call.input(0)} once")
    return axes


def _transposed(call: Call) -> tuple[Shape, ...]:
    return (tuple(call.shape(0)[axis] for axis in _permutation(call)),)


@moving(
    Param("perm", "ints", None, "For each axis of the result, the axis of `x` it was; absent means reversed."),
    shape=_transposed,
    cases=settings(
        ((), {}),
        ((7,), {}),
        ((3, 5), {}),
        ((2, 3, 5), {}),
        ((2, 3, 5), {"perm": (1, 2, 0)}),
        ((2, 1, 3, 4), {"perm": (0, -1, 1, 2)}),
        ((2, 0, 3), {"perm": (2, 0, 1)}),
    ),
)
def transpose(call: Call, x: Array) -> Array:
    """The axes in another order: axis `i` of `y` is axis `perm[i]` of `x`."""
    return x.transpose(_permutation(call))


def _axes_exist(call: Call) -> tuple[Shape, ...]:
    axes_of(call.params["axes"], len(call.shape(0)))
    return (call.shape(0),)


@moving(
    Param("axes", "ints", None, "The axes to reverse; absent means all."),
    shape=_axes_exist,
    cases=settings(
        ((), {}),
        ((7,), {}),
        ((3, 5), {"axes": 0}),
        ((2, 3, 4), {"axes": (-1, 0)}),
        ((2, 3, 4), {"axes": ()}),
        ((2, 0, 3), {}),
    ),
)
def flip(call: Call, x: Array) -> Array:
    """The elements in reverse along some axes, `y[i] = x[extent - 1 - i]`."""
    return np.flip(x, axes_of(call.params["axes"], x.ndim))


def _rolls(call: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shifts and the axes they are along."""
    shifts, axes = call.params["shifts"], call.params["axes"]
    along = tuple(axis_of(axis, len(call.shape(0)), "axes") for axis in axes)
    if len(set(along)) < len(along):
        raise parameter_error("axes", "'axes' names an axis twice")
    if len(shifts) == 1:
        shifts *= len(along)
    if len(shifts) != len(along):
        raise parameter_error("shifts", f"there are {len(shifts)} shifts for {len(along)} axes")
    return shifts, along


def _rolled(call: Call) -> tuple[Shape, ...]:
    _rolls(call)
    return (call.shape(0),)


@moving(
    Param("shifts", "ints", REQUIRED, "How far elements move towards higher indices, one for each axis or for all."),
    Param("axes", "ints", REQUIRED, "The axes along which they move."),
    shape=_rolled,
    cases=settings(
        ((7,), {"shifts": 2, "axes": 0}),
        ((7,), {"shifts": -16, "axes": -1}),
        ((3, 5), {"shifts": (1, -2), "axes": (1, 0)}),
        ((2, 3, 4), {"shifts": 3, "axes": (0, 2)}),
        ((2, 0, 3), {"shifts": (1, 1), "axes": (1, 2)}),
        ((1, 1), {"shifts": 1, "axes": 0}),
    ),
)
def roll(call: Call, x: Array) -> Array:
    """The elements moved along axes, round the end, `y[i] = x[(i - shift) mod extent]`."""
    shifts, axes = _rolls(call)
    # NumPy adds shifts in machine integers; only the rest of the division matters.
    small = tuple(shift % (x.shape[axis] or 1) for shift, axis in zip(shifts, axes, strict=True))
    return np.roll(x, small, axes)


# --- blocks of pixels -------------------------------------------------------------------------------------------------

BLOCK = Param("block", "int", REQUIRED, "The height and width of a block of pixels.")


def _images(call: Call) -> tuple[int, int, int, int, int]:
    """The block and the four extents of a batch of images."""
    x, block = call.input(0), call.params["block"]
    if len(x.shape) != 4:
        raise shape_error(f"the operand is [batch, channels, height, width], not {x}", 0)
    if block < 1:
        raise parameter_error("block", f"a block has at least one pixel, not {block} by {block}")
    count, channels, height, width = x.shape
    return block, count, channels, height, width


def _deepened(call: Call) -> tuple[Shape, ...]:
    block, count, channels, height, width = _images(call)
    if height % block or width % block:
        raise shape_error(f"{call.input(0)} does not divide into blocks of {block} by {block} pixels", 0)
    return ((count, channels * block * block, height // block, width // block),)


@moving(
    BLOCK,
    shape=_deepened,
    cases=settings(
        ((1, 1, 2, 2), {"block": 2}),
        ((2, 3, 4, 6), {"block": 2}),
        ((1, 2, 3, 9), {"block": 3}),
        ((2, 3, 5, 1), {"block": 1}),
        ((2, 0, 4, 4), {"block": 2}),
    ),
)
def space_to_depth(call: Call, x: Array) -> Array:
    """Blocks of pixels become channels, `y[n, (i * block + j) * C + c, h, w] = x[n, c, h * block + i, w * block + j]`.

    `x` is [N, C, H, W]; the inverse is `depth_to_space` in the order "DCR".
    """
    block, count, channels, height, width = _images(call)
    parts = x.reshape(count, channels, height // block, block, width // block, block)
    return parts.transpose(0, 3, 5, 1, 2, 4).reshape(call.outputs[0].shape)


def _widened(call: Call) -> tuple[Shape, ...]:
    block, count, channels, height, width = _images(call)
    if channels % (block * block):
        message = f"the channels of {call.input(0)} do not divide into blocks of {block} by {block} pixels"
        raise shape_error(message, 0)
    return ((count, channels // block**2, height * block, width * block),)


@moving(
    BLOCK,
    Param(
        "order",
        "str",
        "DCR",
        "How the channels of `x` are ordered: the place in the block before the channel, or after it.",
        choices=("DCR", "CRD"),
    ),
    shape=_widened,
    cases=settings(
        ((1, 4, 1, 1), {"block": 2}),
        ((2, 12, 3, 2), {"block": 2}),
        ((2, 12, 3, 2), {"block": 2, "order": "CRD"}),
        ((1, 18, 1, 5), {"block": 3, "order": "CRD"}),
        ((2, 3, 5, 1), {"block": 1, "order": "DCR"}),
        ((2, 4, 0, 4), {"block": 2, "order": "CRD"}),
    ),
)
def depth_to_space(call: Call, x: Array) -> Array:
    """Channels become blocks of pixels, `y[n, c, h * block + i, w * block + j] = x[n, d, h, w]`.

    `x` is [N, D, H, W] and `y` has C = D / block**2 channels; `d = (i * block + j) * C + c` in the order "DCR" and
    `d = (c * block + i) * block + j` in the order "CRD" (PyTorch's `pixel_shuffle`).
    """
    block, count, depth, height, width = _images(call)
    channels = depth // block**2
    if call.params["order"] == "DCR":
        parts = x.reshape(count, block, block, channels, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(count, channels, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(call.outputs[0].shape)
