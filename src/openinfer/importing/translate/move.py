"""Ops that move values: shapes, slices, gathers and scatters."""

from collections.abc import Sequence

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.differences import difference
from openinfer.importing.draft import I64, DraftOperand, KnownTensor, extent, extents, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.counted import front
from openinfer.loops.dim import form, is_same, is_same_shape, is_symbolic, larger, smaller, span


@onnx_op("Shape")
def _shape(n: NodeContext) -> NodeResults:
    start, end = n.integer("start", 0), n.integer("end", n.rank)
    return extents(n.x.shape[slice(start, end)])


@onnx_op("Size")
def _size(n: NodeContext) -> NodeResults:
    count: int = 1
    for one in n.x.shape:
        count = one * count
    return extent(count)


@onnx_op("Reshape")
def _reshape(n: NodeContext) -> NodeResults:
    wanted = n.known_ints(1, "the shape")
    return n.emit.reshape(n.x, resolved_shape(n.x.shape, wanted, copies_zero=not n.integer("allowzero", 0)))


def resolved_shape(own: Sequence[int], wanted: Sequence[int], *, copies_zero: bool) -> tuple[int, ...]:
    """A shape with 0 replaced by the copied extent, and -1 by what is left."""
    shape = [
        own[place] if copies_zero and is_same(one, 0) and place < len(own) else one for place, one in enumerate(wanted)
    ]
    open_places = [place for place, one in enumerate(shape) if is_same(one, -1)]
    if not open_places:
        return tuple(shape)
    if len(open_places) > 1:
        raise Unsupported("its shape has -1 twice")
    left = list(own)
    divisor: int = 1
    for place, one in enumerate(shape):
        if place in open_places:
            continue
        match = next((other for other, extent_ in enumerate(left) if is_same(extent_, one)), None)
        if match is None:
            divisor = divisor * one
        else:
            left.pop(match)
    rest: int = 1
    for one in left:
        rest = rest * one
    if is_same(divisor, 0):
        raise Unsupported("its shape has -1 beside 0")
    shape[open_places[0]] = rest // divisor
    return tuple(shape)


@onnx_op("Flatten")
def _flatten(n: NodeContext) -> NodeResults:
    axis = n.integer("axis", 1)
    return n.emit.op("flatten", n.x, axis=axis + n.rank if axis < 0 else axis)


@onnx_op("Transpose")
def _transpose(n: NodeContext) -> NodeResults:
    return n.emit.transpose(n.x, n.ints("perm") or tuple(reversed(range(n.rank))))


@onnx_op("Squeeze")
def _squeeze(n: NodeContext) -> NodeResults:
    axes = n.axes(1, 13)
    if axes is None:
        axes = tuple(place for place, one in enumerate(n.x.shape) if is_same(one, 1))
    dropped = {n.axis(one) for one in axes}
    x = n.x
    for axis in sorted(dropped, reverse=True):
        own = x.shape[axis]
        if is_symbolic(own) and span(own)[1] == 1:  # 0 or 1, e.g. of an empty sequence: 0 stops the run
            x = n.emit.op("gather", x, known(np.int64(0)), axis=axis)
            dropped = {one - (one > axis) for one in dropped - {axis}}
        elif not is_same(own, 1):
            raise Unsupported(f"it drops an axis that is not 1 of the shape {list(n.x.shape)}")
    return n.emit.op("squeeze", x, axes=tuple(sorted(dropped))) if dropped else x


@onnx_op("Unsqueeze")
def _unsqueeze(n: NodeContext) -> NodeResults:
    axes = n.axes(1, 13) or ()
    rank = n.rank + len(axes)
    return n.emit.op("unsqueeze", n.x, axes=tuple(sorted(n.axis(one, rank) for one in axes))) if axes else n.x


@onnx_op("Concat")
def _concat(n: NodeContext) -> NodeResults:
    """Empty inputs contribute nothing, as in the first step of a cache."""
    given = [one for one in n.operands if one is not None]
    axis = n.axis(n.integer("axis", 1 if n.opset < 4 else 0))
    full = [one for one in given if not is_same(one.shape[axis] if len(one.shape) > axis else 1, 0)] or given[:1]
    return full[0] if len(full) == 1 else n.emit.op("concat", *full, axis=axis)


@onnx_op("Split")
def _split(n: NodeContext) -> NodeResults:
    axis = n.axis(n.integer("axis", 0))
    count = len(n.node.outputs)
    sizes = n.ints("split") if n.opset < 13 else None
    if n.opset >= 13 and n.optional(1) is not None:
        sizes = n.known_ints(1, "the list of lengths")
    if sizes is None:
        sizes = _even_parts(n, n.x.shape[axis], n.integer("num_outputs", count))
    return n.emit.ops("split", n.x, axis=axis, sizes=tuple(sizes)) if len(sizes) > 1 else (n.x,)


def _even_parts(n: NodeContext, total: int, count: int) -> tuple[int, ...]:
    """Equal lengths; the last may be shorter if the count does not divide the total."""
    if is_symbolic(total):
        if n.opset >= 18 and form(total % count) != 0:
            advice = f"fix the size, or make it a multiple: --size 'NAME={count}*n' --size 'n<=BOUND'"
            raise Unsupported("it splits a dynamic size into equal parts", advice)
        return (total // count,) * count
    length = -(-total // count)
    return (*(length,) * (count - 1), total - length * (count - 1))


@onnx_op("Slice")
def _slice(n: NodeContext) -> NodeResults:
    if n.opset < 10:
        starts, ends = n.ints("starts") or (), n.ints("ends") or ()
        axes, steps = n.ints("axes"), None
    elif not (n.is_known(1) and n.is_known(2)):
        return _moving_slice(n)
    else:
        starts, ends = n.known_ints(1, "the list of starts"), n.known_ints(2, "the list of ends")
        axes = n.known_ints(3, "the list of axes") if n.optional(3) is not None else None
        steps = n.known_ints(4, "the list of steps") if n.optional(4) is not None else None
    places = tuple(n.axis(one) for one in (axes if axes is not None else range(len(starts))))
    strides = steps if steps is not None else (1,) * len(starts)
    rows = [
        row
        for row in zip(starts, ends, places, strides, strict=True)
        if not _takes_all(n.x.shape[row[2]], row[0], row[1], row[3])
    ]
    flipped = [row for row in rows if _is_backwards(n.x.shape[row[2]], row[0], row[1], row[3])]
    x = n.emit.op("flip", n.x, axes=tuple(sorted(row[2] for row in flipped))) if flipped else n.x
    rows = [row for row in rows if row not in flipped]
    if not rows:
        return x
    clipped = [(*_ends(n.x.shape[axis], start, end, step), axis, step) for start, end, axis, step in rows]
    starts, ends, places, strides = (tuple(one) for one in zip(*clipped, strict=True))
    plain = all(is_same(one, 1) for one in strides)
    return n.emit.op("slice", x, starts=starts, ends=ends, axes=places, steps=None if plain else strides)


def _moving_slice(n: NodeContext) -> NodeResults:
    """A slice with a data-dependent start and a known length; one past the edge stops the run."""
    start, end = n.input(1), n.input(2)
    if not all(is_same_shape(one.shape, (1,)) for one in (start, end)):
        raise Unsupported("the lists of starts and ends are computed from data", _FIX)
    axis = n.axis((n.known_ints(3, "the list of axes") if n.optional(3) is not None else (0,))[0])
    if n.optional(4) is not None and n.known_ints(4, "the list of steps") != (1,):
        raise Unsupported("its start is computed from data and its step is not 1", _FIX)
    if isinstance(start, KnownTensor) and is_same(start.array.reshape(-1)[0], 0):
        return front(n, axis, end)
    length = difference(n.emit, end, start, edge=n.x.shape[axis])
    if length is None or is_symbolic(length) or length < 1:
        raise Unsupported("its length is computed from data", _FIX)
    first = n.emit.cast(start, I64)
    places = first if length == 1 else n.emit.op("add", n.emit.ramp(length), first)
    return n.emit.op("gather", n.x, places, axis=axis or None)


_FIX = "fix the input it depends on: --fix INPUT=VALUE"
_FAR = 1 << 31


def _takes_all(own: int, start: int, end: int, step: int) -> bool:
    if not (is_same(start, 0) and is_same(step, 1)):
        return False
    return is_same(end, own) or (not is_symbolic(end) and end >= min(span(own)[1], _FAR))


def _is_backwards(own: int, start: int, end: int, step: int) -> bool:
    """Whether a slice reverses the whole axis."""
    if is_symbolic(end) or not is_same(step, -1):
        return False
    from_last = is_same(start, -1) or is_same(start, own - 1) or (not is_symbolic(start) and start >= span(own)[1])
    return from_last and end < -span(own)[1]


def _ends(own: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Replace ends beyond every tensor by the edge, where that reads better and means the same."""
    if not is_symbolic(step) and step > 0 and not is_symbolic(end) and end >= _FAR:
        end = own
    return start, end


@onnx_op("Gather")
def _gather(n: NodeContext) -> NodeResults:
    return n.emit.op("gather", n.x, n.input(1), axis=n.axis(n.integer("axis", 0)) or None)


@onnx_op("GatherElements")
def _gather_elements(n: NodeContext) -> NodeResults:
    return n.emit.op("take_along", n.x, n.input(1), axis=n.axis(n.integer("axis", 0)))


@onnx_op("GatherND")
def _gather_nd(n: NodeContext) -> NodeResults:
    return n.emit.op("gather_nd", n.x, n.input(1), batch_dims=n.integer("batch_dims", 0) or None)


@onnx_op("Scatter", "ScatterElements")
def _scatter(n: NodeContext) -> NodeResults:
    axis = n.axis(n.integer("axis", 0))
    return n.emit.op("scatter", n.x, n.input(1), n.input(2), axis=axis, reduce=_reduction(n))


@onnx_op("ScatterND")
def _scatter_nd(n: NodeContext) -> NodeResults:
    return n.emit.op("scatter_nd", n.x, n.input(1), n.input(2), reduce=_reduction(n))


def _reduction(n: NodeContext) -> str | None:
    found = n.text("reduction", "none")
    return None if found == "none" else found


@onnx_op("TensorScatter")
def _tensor_scatter(n: NodeContext) -> NodeResults:
    """Write entries into a cache along an axis, from an index per batch on; in ``circular`` mode they wrap around."""
    update, first = n.input(1), n.optional(2)
    axis = n.axis(n.integer("axis", -2))
    mode = n.text("mode", "linear")
    if mode not in ("linear", "circular") or axis == 0:
        raise Unsupported(f"its mode {mode!r:.20} is not supported, or its axis is the batch axis")
    along = tuple(one if place == axis else 1 for place, one in enumerate(update.shape))
    ids = n.emit.reshape(n.emit.ramp(update.shape[axis]), along)
    if first is not None:
        begins = n.emit.reshape(n.emit.cast(first, I64), (update.shape[0], *(1,) * (n.rank - 1)))
        ids = n.emit.op("add", ids, begins)
    if mode == "circular":
        ids = n.emit.op("mod", ids, extent(n.x.shape[axis]))
    return n.emit.op("scatter", n.x, n.emit.op("expand", ids, shape=update.shape), update, axis=axis)


@onnx_op("Expand")
def _expand(n: NodeContext) -> NodeResults:
    """The shape broadcasts with that of the input: a 1 keeps the input's extent."""
    wanted = n.known_ints(1, "the shape")
    rank = max(n.rank, len(wanted))
    own = (1,) * (rank - n.rank) + tuple(n.x.shape)
    other = (1,) * (rank - len(wanted)) + tuple(wanted)
    shape = tuple(one if is_same(two, 1) else two for one, two in zip(own, other, strict=True))
    if len(shape) == n.rank and all(map(is_same, shape, n.x.shape)):
        return n.x
    return n.emit.op("expand", n.x, shape=shape)


@onnx_op("Tile")
def _tile(n: NodeContext) -> NodeResults:
    repeats = n.known_ints(1, "the list of repeats")
    return n.x if all(is_same(one, 1) for one in repeats) else n.emit.op("tile", n.x, repeats=repeats)


@onnx_op("Pad")
def _pad(n: NodeContext) -> NodeResults:
    if n.opset < 11:
        pads, value = n.ints("pads") or (), n.real("value", 0.0)
    else:
        pads = n.known_ints(1, "the list of pads")
        value = 0.0 if n.optional(2) is None else n.known_number(2, "the value")
    if n.optional(3) is not None:
        axes = [n.axis(one) for one in n.known_ints(3, "the list of axes")]
        full = [0] * (2 * n.rank)
        for place, axis in enumerate(axes):
            full[axis], full[axis + n.rank] = pads[place], pads[place + len(axes)]
        pads = tuple(full)
    if all(is_same(one, 0) for one in pads):
        return n.x
    return padded(n, n.x, pads, n.text("mode", "constant"), value)


def padded(n: NodeContext, x: DraftOperand, pads: Sequence[int], mode: str, value: float) -> DraftOperand:
    """Pad a tensor; negative pads crop."""
    rank = len(x.shape)
    if any(span(one)[0] < 0 for one in pads):
        starts = tuple(-smaller(one, 0) for one in pads[:rank])
        ends = tuple(own + smaller(one, 0) for own, one in zip(x.shape, pads[rank:], strict=True))
        x = n.emit.op("slice", x, starts=starts, ends=ends, axes=tuple(range(rank)))
        pads = tuple(larger(one, 0) for one in pads)
    if all(is_same(one, 0) for one in pads):
        return x
    number = value if mode == "constant" and value else None
    if number is not None and x.dtype.kind in ("int", "uint"):
        number = int(number)
    return n.emit.op("pad", x, pads=tuple(pads), mode=None if mode == "constant" else mode, value=number)


@onnx_op("DepthToSpace")
def _depth_to_space(n: NodeContext) -> NodeResults:
    order = n.text("mode", "DCR")
    return n.emit.op("depth_to_space", n.x, block=n.integer("blocksize", 1), order=None if order == "DCR" else order)


@onnx_op("SpaceToDepth")
def _space_to_depth(n: NodeContext) -> NodeResults:
    block = n.integer("blocksize", 1)
    if n.text("mode", "DCR") != "CRD":
        return n.emit.op("space_to_depth", n.x, block=block)
    batch, channels, height, width = n.x.shape
    tiles = n.emit.reshape(n.x, (batch, channels, height // block, block, width // block, block))
    order = n.emit.transpose(tiles, (0, 1, 3, 5, 2, 4))
    return n.emit.reshape(order, (batch, channels * block * block, height // block, width // block))


@onnx_op("ReverseSequence")
def _reverse_sequence(n: NodeContext) -> NodeResults:
    """In a sequence of length s, position t takes the element at s - 1 - t; positions after the sequence stay."""
    batch, time = n.integer("batch_axis", 1), n.integer("time_axis", 0)
    given = n.input(1)
    if isinstance(given, KnownTensor) and all(is_same(one, n.x.shape[time]) for one in given.array.reshape(-1)):
        return n.emit.op("flip", n.x, axes=(time,))
    lengths = n.emit.cast(given, I64)
    rows = tuple(n.x.shape[one] if one == batch else 1 for one in range(n.rank))
    columns = tuple(n.x.shape[one] if one == time else 1 for one in range(n.rank))
    length = n.emit.reshape(lengths, rows)
    place = n.emit.reshape(n.emit.ramp(n.x.shape[time]), columns)
    mirrored = n.emit.op("sub", n.emit.op("sub", length, known(np.int64(1))), place)
    ids = n.emit.op("where", n.emit.op("lt", place, length), mirrored, place)
    return n.emit.op("take_along", n.x, n.emit.op("expand", ids, shape=n.x.shape), axis=time)


@onnx_op("Trilu", "com.microsoft:Trilu")
def _trilu(n: NodeContext) -> NodeResults:
    diagonal = n.known_number(1, "the diagonal") if n.optional(1) is not None else 0
    upper = bool(n.integer("upper", 1))
    x = n.x if n.x.dtype.kind != "bool" else n.emit.cast(n.x, DTYPES["u8"])
    found = n.emit.op("tri", x, diagonal=diagonal or None, upper=upper or None)
    return n.emit.cast(found, n.x.dtype)
