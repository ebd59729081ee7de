"""Windows with positions: pools that return where their maxima are, and ops that put windows back in place."""

from math import prod

import numpy as np
import numpy.typing as npt

from openinfer.importing.draft import I64, DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.windows import Window, shortened, window_of
from openinfer.loops.dim import is_symbolic

_MOST_PLACES = 1 << 24


def largest_places(n: NodeContext, window: Window, out: tuple[int, ...]) -> DraftOperand:
    """The position of the maximum in each window, in the flattened input."""
    spatial = n.x.shape[2:]
    if any(map(is_symbolic, n.x.shape)):
        raise Unsupported("positions in a tensor of dynamic size have no translation", "fix the size: --size N=VALUE")
    batch, channels = n.x.shape[:2]
    count, area = prod(out), prod(spatial)
    if count * prod(window.kernel) > _MOST_PLACES:
        raise Unsupported("its windows have too many elements")
    rows, columns = _window_places(window, tuple(spatial), out), None
    if n.integer("storage_order", 0):
        columns = np.arange(area).reshape(spatial).transpose(*range(len(spatial) - 2), -1, -2)
        columns = np.argsort(columns.reshape(-1)).astype(np.int64)
    # Padding is an element of its own after the others, smaller than all of them.
    flat = n.emit.reshape(n.x, (batch, channels, area))
    smallest = -(1 << (n.x.dtype.bits - 1)) if n.x.dtype.kind == "int" else 0
    least = float("-inf") if n.x.dtype.kind == "float" else smallest
    flat = n.emit.op("pad", flat, pads=(0, 0, 0, 0, 0, 1), value=least)
    under = n.emit.op("gather", flat, known(rows), axis=2)
    best = n.emit.op("argmax_axis", under, axis=3, keepdims=True)
    numbers = rows if columns is None else np.append(columns, area)[rows]
    all_rows = n.emit.op("expand", known(numbers), shape=(batch, channels, *rows.shape))
    place = n.emit.reshape(n.emit.op("take_along", all_rows, best, axis=3), (batch, channels, *out))
    base = (np.arange(batch * channels) * area).reshape(batch, channels, *(1,) * len(out)).astype(np.int64)
    return n.emit.op("add", place, known(base)) if batch * channels > 1 else place


def _window_places(window: Window, spatial: tuple[int, ...], out: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The flat positions in each window, [windows, kernel]; padding has the position after the last."""
    found = np.zeros((*out, *window.kernel), np.int64)
    inside = np.ones(found.shape, bool)
    rank = len(out)
    for axis, own in enumerate(spatial):
        steps = np.arange(window.kernel[axis]) * window.dilations[axis]
        at = (np.arange(out[axis]) * window.strides[axis] - window.begins[axis])[:, None] + steps
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        at = at.reshape(shape)
        found = found * own + at
        inside &= (at >= 0) & (at < own)
    return np.where(inside, found, prod(spatial)).reshape(prod(out), prod(window.kernel))


@onnx_op("MaxUnpool")
def _max_unpool(n: NodeContext) -> NodeResults:
    """Put elements at their positions, with zeros elsewhere; a requested shape adds zeros at the end."""
    kernel = n.ints("kernel_shape")
    if kernel is None or len(kernel) != n.rank - 2:
        raise Unsupported("its kernel does not fit its input")
    window = window_of(n, kernel, tuple(n.x.shape[2:]))
    spatial = [
        (own - 1) * stride - begin - end + size
        for own, stride, begin, end, size in zip(
            n.x.shape[2:], window.strides, window.begins, window.ends, kernel, strict=True
        )
    ]
    shape = (*n.x.shape[:2], *spatial)
    wanted = n.known_ints(2, "the shape") if n.optional(2) is not None else shape
    if any(map(is_symbolic, (*shape, *wanted))):
        raise Unsupported("positions in a tensor of dynamic size have no translation", "fix the size: --size N=VALUE")
    flat = n.emit.reshape(n.x, (prod(n.x.shape),))
    places = n.emit.reshape(n.emit.cast(n.input(1), I64), (prod(n.x.shape),))
    found = n.emit.op("scatter", n.emit.zeros(n.x.dtype, (prod(shape),)), places, flat, axis=0)
    added = tuple(one - own for one, own in zip(wanted, shape, strict=True))
    found = n.emit.reshape(found, shape)
    return n.emit.op("pad", found, pads=(*(0,) * n.rank, *added)) if any(added) else found


@onnx_op("Col2Im")
def _col2im(n: NodeContext) -> NodeResults:
    """Add up columns at the positions of their windows: a transposed convolution with weights of 1."""
    image, block = n.known_ints(1, "the shape of the image"), n.known_ints(2, "the shape of a block")
    count = len(block)
    if count != len(image) or not 1 <= count <= 3 or n.rank != 3:
        raise Unsupported("blocks are supported over one to three axes")
    if any(map(is_symbolic, (*image, *block, n.x.shape[1]))):
        raise Unsupported("its image has a dynamic size", "fix the size: --size NAME=VALUE")
    window = window_of(n, tuple(block), tuple(image))
    kernel, rows, left = prod(block), [], []
    for own, size, stride, dilation, begin, end in zip(
        image, block, window.strides, window.dilations, window.begins, window.ends, strict=True
    ):
        room = own + begin + end - dilation * (size - 1) - 1
        rows.append(room // stride + 1)
        left.append(room % stride)
    channels = n.x.shape[1] // kernel
    weights = np.tile(np.eye(kernel, dtype=n.x.dtype.array), (channels, 1)).reshape(channels * kernel, 1, *block)
    x = n.emit.reshape(n.x, (n.x.shape[0], channels * kernel, *rows))
    return n.emit.op(
        f"conv_transpose{count}d",
        x,
        known(weights, n.x.dtype),
        **window.params(),
        groups=None if channels == 1 else channels,
        output_padding=shortened(tuple(left), 0),
    )
