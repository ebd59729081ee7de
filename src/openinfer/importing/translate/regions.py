"""Samples images at data-dependent positions: RoiAlign and deformable convolutions."""

import numpy as np

from openinfer.importing.draft import I64, DraftOperand, DraftValue, IndexOperand, known
from openinfer.importing.emitter import slice_at
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.sampling import SampledAxis, require_fixed, sampled
from openinfer.importing.translate.windows import window_of
from openinfer.loops.dim import is_same


@onnx_op("RoiAlign")
def _roi_align(n: NodeContext) -> NodeResults:
    """Each region of an image as ``height`` x ``width`` pooled samples, region by region."""
    rois, batches = n.emit.cast(n.input(1), n.x.dtype), n.emit.cast(n.input(2), I64)
    require_fixed(n.x.shape[2:])
    ratio, mode = n.integer("sampling_ratio", 0), n.text("mode", "avg")
    if ratio < 1:
        raise Unsupported("how many samples it takes depends on data", "export it with a sampling ratio")
    if mode not in ("avg", "max"):
        raise Unsupported(f"its mode {mode!r:.20} is not supported")
    count, channels = rois.shape[0], n.x.shape[1]
    size = (n.integer("output_height", 1), n.integer("output_width", 1))
    places = [n.emit.value(_samples(n, rois, axis, size[axis], ratio)) for axis in (0, 1)]
    images, image = n.emit.value(n.x), n.emit.value(batches)
    y = n.emit.declare(n.x.dtype, (count, channels, *size), n.node.outputs[0] if n.node.outputs else "")
    index = n.emit.open_loop("region")
    own = n.emit.op("gather", images, slice_at(image, index))
    found = _region(n, own, (places[0], places[1]), index, mode)
    tiles = n.emit.reshape(found, (channels, size[0], ratio, size[1], ratio))
    n.emit.copy(
        n.emit.value(n.emit.op("mean_axis" if mode == "avg" else "max_axis", tiles, axes=(2, 4))), slice_at(y, index)
    )
    n.emit.close_loop("regions", index, count)
    return y


def _samples(n: NodeContext, rois: DraftOperand, axis: int, size: int, ratio: int) -> DraftOperand:
    """The positions of all samples of the regions along an axis, [regions, samples]; regions are x1, y1, x2, y2."""
    half = n.text("coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "output_half_pixel")
    scale, shift = n.emit.scalar(n.real("spatial_scale", 1.0), rois.dtype), half == "half_pixel"
    begin, end = (
        n.emit.op("mul", n.emit.op("gather", rois, known(np.int64(column)), axis=1), scale)
        for column in (1 - axis, 3 - axis)
    )
    extent = n.emit.op("sub", end, begin)
    if shift:
        begin = n.emit.op("sub", begin, n.emit.scalar(0.5, rois.dtype))
    else:
        extent = n.emit.op("max", extent, n.emit.scalar(1, rois.dtype))
    steps = known(((np.arange(size * ratio) + 0.5) / (size * ratio)).astype(rois.dtype.array), rois.dtype)
    return n.emit.op(
        "add",
        n.emit.op("unsqueeze", begin, axes=(1,)),
        n.emit.op("mul", n.emit.op("unsqueeze", extent, axes=(1,)), steps),
    )


def _region(
    n: NodeContext, image: DraftOperand, places: tuple[DraftValue, DraftValue], index: IndexOperand, mode: str
) -> DraftOperand:
    """An image [C, H, W] at the samples of one region, [C, rows, columns]; 0 for samples more than 1 outside of it."""
    channels, extents = image.shape[0], image.shape[1:]
    sides = [_sides(n, slice_at(place, index), own) for place, own in zip(places, extents, strict=True)]
    flat = n.emit.reshape(image, (channels, extents[0] * extents[1]))
    total: DraftOperand | None = None
    for line, down in sides[0]:
        for column, across in sides[1]:
            rows = n.emit.op("mul", n.emit.op("unsqueeze", line, axes=(1,)), known(np.int64(extents[1])))
            found = n.emit.op("gather", flat, n.emit.op("add", rows, column), axis=1)
            weight = n.emit.op("mul", n.emit.op("unsqueeze", down, axes=(1,)), across)
            term = n.emit.op("mul", found, weight)
            total = term if total is None else n.emit.op("add" if mode == "avg" else "max", total, term)
    assert total is not None
    return total


def _sides(n: NodeContext, at: DraftOperand, own: int) -> list[tuple[DraftOperand, DraftOperand]]:
    """The elements before and after each position, with their weights."""
    least, most = n.emit.scalar(-1, at.dtype), n.emit.scalar(own, at.dtype)
    one, zero = n.emit.scalar(1, at.dtype), n.emit.scalar(0, at.dtype)
    inside = n.emit.op("and", n.emit.op("ge", at, least), n.emit.op("le", at, most))
    held = n.emit.op("clamp", at, min=0.0, max=float(own - 1))
    first = n.emit.op("floor", held)
    part = n.emit.op("sub", held, first)
    second = n.emit.op("min", n.emit.op("add", first, one), n.emit.scalar(own - 1, at.dtype))
    weights = (n.emit.op("where", inside, weight, zero) for weight in (n.emit.op("sub", one, part), part))
    return [(n.emit.op("cast", place, to=I64), weight) for place, weight in zip((first, second), weights, strict=True)]


@onnx_op("DeformConv")
def _deform_conv(n: NodeContext) -> NodeResults:
    """Samples at shifted positions, weighted by a mask, times the weights: one product for all windows."""
    w, bias = n.input(1), n.optional(3)
    if n.rank != 4 or len(w.shape) != 4:
        raise Unsupported("deformable convolutions are supported over two spatial axes only")
    require_fixed(n.x.shape[2:])
    batch, channels = n.x.shape[:2]
    groups, parts = n.integer("group", 1), n.integer("offset_group", 1)
    kernel = w.shape[2] * w.shape[3]
    places = _shifted(n, parts)
    out = tuple(places[0].shape[2:])
    axes = [SampledAxis(own, "zeros", 0.0, own - 1.0) for own in n.x.shape[2:]]
    images = n.emit.reshape(n.x, (batch * parts, channels // parts, *n.x.shape[2:]))
    found = sampled(n, images, axes, places, "linear")
    mask = n.optional(4)
    if mask is not None:
        found = n.emit.op("mul", found, n.emit.reshape(mask, (batch * parts, 1, kernel, *out)))
    columns = n.emit.reshape(found, (batch, groups, channels // groups * kernel, out[0] * out[1]))
    weights = n.emit.reshape(w, (groups, w.shape[0] // groups, channels // groups * kernel))
    y = n.emit.reshape(n.emit.op("matmul", weights, columns), (batch, w.shape[0], *out))
    return y if bias is None else n.emit.op("add", y, n.emit.reshape(bias, (w.shape[0], 1, 1)))


def _shifted(n: NodeContext, parts: int) -> list[DraftOperand]:
    """The positions of the elements of every window: a tensor [N * parts, kernel, rows, columns] per axis."""
    batch, spatial, size = n.x.shape[0], n.x.shape[2:], n.input(1).shape[2:]
    window, offset = window_of(n, tuple(size), tuple(spatial)), n.input(2)
    kernel, out = size[0] * size[1], tuple(offset.shape[2:])
    require_fixed(out)
    if not is_same(offset.shape[1], parts * kernel * 2):
        raise Unsupported("its offsets do not fit its kernel")
    pairs = n.emit.reshape(offset, (batch * parts, kernel, 2, *out))
    steps = np.stack(np.meshgrid(*(np.arange(one) for one in size), indexing="ij"), axis=-1).reshape(kernel, 2)
    found = []
    for axis in (0, 1):
        begin = np.arange(out[axis]) * window.strides[axis] - window.begins[axis]
        line = begin.reshape((-1, 1) if axis == 0 else (1, -1))
        still = steps[:, axis, None, None] * window.dilations[axis] + line
        moved = n.emit.op("gather", pairs, known(np.int64(axis)), axis=2)
        found.append(n.emit.op("add", moved, known(still.astype(offset.dtype.array), offset.dtype)))
    return found
