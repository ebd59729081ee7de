"""Ops that move values: views, slices, joins and splits."""

from collections.abc import Sequence

import numpy as np

from openinfer.dtypes import DTYPES
from openinfer.importing.aten.context import FIX, AtenContext, AtenResults, aten_op, word
from openinfer.importing.draft import DraftOperand, extent, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.move import resolved_shape
from openinfer.loops.dim import is_same, is_same_shape, is_symbolic, span

_FAR = 1 << 31


@aten_op("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy")
def _view(n: AtenContext) -> AtenResults:
    if n.node.overload == "dtype":
        return n.emit.op("bitcast", n.x, to=n.dtype)
    wanted = n.ints("size") or n.ints("shape")
    known_extents = n.node.extents if len(n.node.extents) == len(wanted) else (None,) * len(wanted)
    pairs = zip(wanted, known_extents, strict=True)
    # PyTorch has resolved -1 already, in a shorter form than a quotient of products.
    shape = tuple(own if is_same(one, -1) and own is not None else one for one, own in pairs)
    return n.emit.reshape(n.x, resolved_shape(n.x.shape, shape, copies_zero=False))


@aten_op("flatten")
def _flatten(n: AtenContext) -> AtenResults:
    first, last = n.axis(n.integer("start_dim")), n.axis(n.integer("end_dim", -1))
    count: int = 1
    for one in n.x.shape[first : last + 1]:
        count = count * one
    return n.emit.reshape(n.x, (*n.x.shape[:first], count, *n.x.shape[last + 1 :]))


@aten_op("unflatten")
def _unflatten(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim"))
    parts = resolved_shape((n.x.shape[axis],), n.ints("sizes"), copies_zero=False)
    return n.emit.reshape(n.x, (*n.x.shape[:axis], *parts, *n.x.shape[axis + 1 :]))


@aten_op("permute", "permute_copy")
def _permute(n: AtenContext) -> AtenResults:
    return n.emit.transpose(n.x, tuple(n.axis(one) for one in n.ints("dims")))


@aten_op("transpose", "t", "transpose_copy", "swapaxes")
def _transpose(n: AtenContext) -> AtenResults:
    if n.rank < 2:
        return n.x
    one, other = (0, 1) if word(n) == "t" else (n.axis(n.integer("dim0")), n.axis(n.integer("dim1")))
    perm = list(range(n.rank))
    perm[one], perm[other] = other, one
    return n.emit.transpose(n.x, perm)


@aten_op("squeeze", "squeeze_copy")
def _squeeze(n: AtenContext) -> AtenResults:
    """Squeeze only the axes of extent 1."""
    wanted = n.axes("dim")
    dropped = tuple(one for one in wanted if is_same(n.x.shape[one], 1)) if n.rank else ()
    return n.emit.op("squeeze", n.x, axes=dropped) if dropped else n.x


@aten_op("unsqueeze", "unsqueeze_copy")
def _unsqueeze(n: AtenContext) -> AtenResults:
    return n.emit.op("unsqueeze", n.x, axes=(n.axis(n.integer("dim"), n.rank + 1),))


@aten_op("expand", "expand_copy", "broadcast_to")
def _expand(n: AtenContext) -> AtenResults:
    return expanded(n, n.x, n.ints("size"))


def expanded(n: AtenContext, x: DraftOperand, wanted: Sequence[int]) -> DraftOperand:
    """Broadcast a tensor to a shape, in which -1 keeps the current extent."""
    own = (1,) * (len(wanted) - len(x.shape)) + tuple(x.shape)
    shape = tuple(one if is_same(two, -1) else two for one, two in zip(own, wanted, strict=True))
    if is_same_shape(shape, own):
        return n.emit.reshape(x, shape)
    return n.emit.op("expand", x, shape=shape)


# --- slices -----------------------------------------------------------------------------------------------------------


@aten_op("slice", "slice_copy")
def _slice(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim"))
    own = n.x.shape[axis]
    start, end, step = n.integer("start"), n.integer("end", _FAR), n.integer("step", 1)
    length = n.node.extents[axis]
    if is_symbolic(own) and length is not None and not is_symbolic(length) and not is_symbolic(start):
        # PyTorch knows that the size is large enough. Explicit indices record that; a slice could come out shorter.
        return n.emit.op("gather", n.x, known(np.arange(length, dtype=np.int64) * step + start), axis=axis)
    return sliced(n, n.x, axis, start, own if not is_symbolic(end) and end >= _FAR else end, step)


def sliced(n: AtenContext, x: DraftOperand, axis: int, start: int, end: int, step: int = 1) -> DraftOperand:
    """The slice between two positions along an axis; the tensor itself if that is all of it."""
    own = x.shape[axis]
    takes_all = is_same(end, own) or (not is_symbolic(end) and end >= span(own)[1])
    if is_same(start, 0) and is_same(step, 1) and takes_all:
        return x
    steps = None if is_same(step, 1) else (step,)
    return n.emit.op("slice", x, starts=(start,), ends=(end,), axes=(axis,), steps=steps)


@aten_op("narrow", "narrow_copy")
def _narrow(n: AtenContext) -> AtenResults:
    axis, start = n.axis(n.integer("dim")), n.integer("start")
    start = start + n.x.shape[axis] if not is_symbolic(start) and start < 0 else start
    return sliced(n, n.x, axis, start, start + n.integer("length"))


@aten_op("select", "select_copy")
def _select(n: AtenContext) -> AtenResults:
    return n.emit.op("gather", n.x, extent(n.integer("index")), axis=n.axis(n.integer("dim")))


@aten_op("unbind", "unbind_copy")
def _unbind(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim"))
    count = _counted(n, axis)
    return tuple(n.emit.op("gather", n.x, extent(place), axis=axis) for place in range(count))


def _counted(n: AtenContext, axis: int) -> int:
    count = n.x.shape[axis]
    if is_symbolic(count):
        raise Unsupported("it splits along a dynamic size", FIX)
    return count


@aten_op("slice_scatter")
def _slice_scatter(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim"))
    own = n.x.shape[axis]
    start, end, step = n.integer("start"), n.integer("end", _FAR), n.integer("step", 1)
    if not is_same(step, 1):
        return _strided_scatter(n, axis, start, end, step)
    return written(n, n.operand("src", n.dtype), axis, start, own if not is_symbolic(end) and end >= _FAR else end)


def _strided_scatter(n: AtenContext, axis: int, start: int, end: int, step: int) -> DraftOperand:
    src, own = n.operand("src", n.dtype), n.x.shape[axis]
    if any(map(is_symbolic, (own, start, end, step))):
        raise Unsupported("it writes a dynamic size with a stride", FIX)
    places = np.arange(*slice(start, end, step).indices(own))
    shape = tuple(len(places) if one == axis else 1 for one in range(n.rank))
    ids = n.emit.op("expand", known(places.reshape(shape)), shape=tuple(src.shape))
    return n.emit.op("scatter", n.x, ids, src, axis=axis)


def written(n: AtenContext, src: DraftOperand, axis: int, start: int, end: int) -> DraftOperand:
    """The first argument with the slice between two positions replaced by another tensor."""
    own = n.x.shape[axis]
    start, end = (_counted_from_start(one, own) for one in (start, end))
    parts = [sliced(n, n.x, axis, 0, start), src, sliced(n, n.x, axis, end, own)]
    kept = [one for one, empty in zip(parts, (is_same(start, 0), False, is_same(end, own)), strict=True) if not empty]
    return kept[0] if len(kept) == 1 else n.emit.op("concat", *kept, axis=axis)


def _counted_from_start(place: int, own: int) -> int:
    """A position counted from the start, clamped to ``own``; a symbolic position or extent is assumed in range."""
    if is_symbolic(place):
        return place
    if place < 0:
        return place + own
    return place if is_symbolic(own) else min(place, own)


@aten_op("select_scatter")
def _select_scatter(n: AtenContext) -> AtenResults:
    axis, index = n.axis(n.integer("dim")), n.integer("index")
    index = index + n.x.shape[axis] if not is_symbolic(index) and index < 0 else index
    row = n.emit.op("unsqueeze", n.operand("src", n.dtype), axes=(axis,))
    return written(n, row, axis, index, index + 1)


# --- joins and splits -------------------------------------------------------------------------------------------------


@aten_op("cat", "concat")
def _cat(n: AtenContext) -> AtenResults:
    """Empty tensors contribute nothing, as in the first step of a cache."""
    given = [n.cast(one, n.dtype) for one in n.tensors("tensors")]
    rank = max(len(one.shape) for one in given)
    axis = n.axis(n.integer("dim"), rank)
    full = [one for one in given if len(one.shape) == rank and not is_same(one.shape[axis], 0)] or given[:1]
    return full[0] if len(full) == 1 else n.emit.op("concat", *full, axis=axis)


@aten_op("stack")
def _stack(n: AtenContext) -> AtenResults:
    given = [n.cast(one, n.dtype) for one in n.tensors("tensors")]
    axis = n.axis(n.integer("dim"), len(given[0].shape) + 1)
    if len(given) == 1:
        return n.emit.op("unsqueeze", given[0], axes=(axis,))
    return n.emit.op("stack", *given, axis=axis)


@aten_op("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "chunk")
def _split(n: AtenContext) -> AtenResults:
    axis = n.axis(n.integer("dim"))
    if n.has("chunks"):
        length = -(-_counted(n, axis) // n.integer("chunks"))
        sizes = _pieces(_counted(n, axis), length)
    elif isinstance(n.values.get("split_size"), int):
        sizes = _pieces(_counted(n, axis), n.integer("split_size"))
    else:
        sizes = n.ints("split_sizes") or n.ints("split_size")
    return n.emit.ops("split", n.x, axis=axis, sizes=tuple(sizes)) if len(sizes) > 1 else (n.x,)


def _pieces(total: int, length: int) -> tuple[int, ...]:
    """Split a length into equal pieces; the last may be shorter."""
    whole, rest = divmod(total, max(length, 1))
    return (*(length,) * whole, *((rest,) if rest or not whole else ()))


@aten_op("repeat", "tile")
def _repeat(n: AtenContext) -> AtenResults:
    repeats = n.ints("repeats") or n.ints("dims")
    repeats = (1,) * (n.rank - len(repeats)) + repeats
    x = n.emit.reshape(n.x, ((1,) * (len(repeats) - n.rank) + tuple(n.x.shape)))
    return x if all(is_same(one, 1) for one in repeats) else n.emit.op("tile", x, repeats=repeats)


@aten_op("repeat_interleave")
def _repeat_interleave(n: AtenContext) -> AtenResults:
    """Repeat each element a number of times in a row."""
    if n.node.overload != "self_int":
        raise Unsupported("the shape of its result depends on data")
    count = n.integer("repeats")
    x = n.x if n.has("dim") else n.emit.reshape(n.x, (_product(n.x.shape),))
    axis = n.axis(n.integer("dim"), len(x.shape))
    longer = n.emit.op("unsqueeze", x, axes=(axis + 1,))
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    wide = n.emit.op("expand", longer, shape=shape)
    return n.emit.reshape(wide, (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :]))


def _product(shape: Sequence[int]) -> int:
    count: int = 1
    for one in shape:
        count = count * one
    return count


@aten_op("flip")
def _flip(n: AtenContext) -> AtenResults:
    return n.emit.op("flip", n.x, axes=tuple(n.axis(one) for one in n.ints("dims")))


@aten_op("roll")
def _roll(n: AtenContext) -> AtenResults:
    shifts, dims = n.ints("shifts"), n.ints("dims")
    if dims:
        return n.emit.op("roll", n.x, shifts=shifts, axes=tuple(n.axis(one) for one in dims))
    flat = n.emit.reshape(n.x, (_product(n.x.shape),))
    return n.emit.reshape(n.emit.op("roll", flat, shifts=shifts, axes=(0,)), n.x.shape)


# --- other ops --------------------------------------------------------------------------------------------------------

_MODES = {"constant": None, "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@aten_op("pad", "constant_pad_nd")
def _pad(n: AtenContext) -> AtenResults:
    """Pads are (begin, end) pairs starting at the last axis; negative pads crop."""
    mode = n.text("mode", "constant")
    if mode not in _MODES:
        raise Unsupported(f"padding by {mode!r} has no translation")
    return padded(n, n.ints("pad"), _MODES[mode], n.real("value"))


@aten_op(*(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3)))
def _mirrored(n: AtenContext) -> AtenResults:
    return padded(n, n.ints("padding"), "reflect" if word(n).startswith("refl") else "edge", 0.0)


def padded(n: AtenContext, given: Sequence[int], mode: str | None, value: float) -> DraftOperand:
    """The first argument padded as ``torch.nn.functional.pad`` does."""
    begins, ends = [0] * n.rank, [0] * n.rank
    for place in range(len(given) // 2):
        axis = n.rank - 1 - place
        begins[axis], ends[axis] = given[2 * place], given[2 * place + 1]
    x = n.x
    for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        low, high = (0 if is_symbolic(one) else min(one, 0) for one in (begin, end))
        x = sliced(n, x, axis, -low, x.shape[axis] + high)
    pads = tuple(one if is_symbolic(one) else max(one, 0) for one in (*begins, *ends))
    if all(is_same(one, 0) for one in pads):
        return x
    number = None if mode or not value else value if x.dtype.kind == "float" else int(value)
    return n.emit.op("pad", x, pads=pads, mode=mode, value=number)


@aten_op("pixel_shuffle")
def _pixel_shuffle(n: AtenContext) -> AtenResults:
    return n.emit.op("depth_to_space", n.x, block=n.integer("upscale_factor"), order="CRD")


@aten_op("tril", "triu")
def _triangle(n: AtenContext) -> AtenResults:
    upper = word(n) == "triu" or None
    x = n.x if n.x.dtype.kind != "bool" else n.emit.cast(n.x, DTYPES["u8"])
    return n.cast(n.emit.op("tri", x, diagonal=n.integer("diagonal") or None, upper=upper), n.dtype)


@aten_op("unfold")
def _unfold(n: AtenContext) -> AtenResults:
    """Sliding windows along an axis: the axis counts windows, a new last axis holds their elements."""
    axis, size, step = n.axis(n.integer("dimension")), n.integer("size"), n.integer("step")
    count = (_counted(n, axis) - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    windows = n.emit.op("gather", n.x, known(places.astype(np.int64)), axis=axis)
    rest = [one for one in range(n.rank + 1) if one != axis + 1]
    return n.emit.transpose(windows, (*rest, axis + 1))


@aten_op("diagonal", "diagonal_copy")
def _diagonal(n: AtenContext) -> AtenResults:
    one, other = n.axis(n.integer("dim1")), n.axis(n.integer("dim2", 1))
    offset = n.integer("offset")
    rows, columns = (n.x.shape[axis] for axis in (one, other))
    if is_symbolic(rows) or is_symbolic(columns):
        raise Unsupported("it takes the diagonal of a dynamic size", FIX)
    first = np.arange(max(0, min(rows + min(offset, 0), columns - max(offset, 0))))
    ids = np.stack([first - min(offset, 0), first + max(offset, 0)], axis=-1).astype(np.int64)
    rest = [axis for axis in range(n.rank) if axis not in (one, other)]
    found = n.emit.op("gather_nd", n.emit.transpose(n.x, (one, other, *rest)), known(ids))
    return n.emit.transpose(found, (*range(1, len(rest) + 1), 0))
