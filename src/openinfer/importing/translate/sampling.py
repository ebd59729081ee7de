"""Sampling at places that data gives: GridSample."""

import numpy as np

from openinfer.importing.draft import I64, DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_symbolic


@onnx_op("GridSample")
def _grid_sample(n: NodeContext) -> NodeResults:
    """Of images [N, C, H, W] at places [N, h, w, 2]: the nearest element, or a mean of four."""
    mode = {"bilinear": "linear"}.get(n.text("mode", "linear"), n.text("mode", "linear"))
    outside = n.text("padding_mode", "zeros")
    if n.rank != 4 or mode not in ("linear", "nearest") or outside not in ("zeros", "border"):
        raise Unsupported(
            f"sampling {n.rank - 2} dimensions by {mode!r:.20} with {outside!r:.20} outside has no translation"
        )
    if any(map(is_symbolic, n.x.shape[2:])):
        raise Unsupported("it samples an image of dynamic size", "fix the size: --size NAME=VALUE")
    grid = n.emit.cast(n.input(1), n.x.dtype)
    x, y = (_place(n, grid, axis, n.x.shape[3 - axis]) for axis in (0, 1))
    if outside == "border":
        x, y = (
            n.emit.op("clamp", one, min=0.0, max=float(own - 1)) for one, own in ((x, n.x.shape[3]), (y, n.x.shape[2]))
        )
    if mode == "nearest":
        return _picked(n, n.emit.op("round", x), n.emit.op("round", y))
    left, top = n.emit.op("floor", x), n.emit.op("floor", y)
    one = n.emit.scalar(1, n.x.dtype)
    right, bottom = n.emit.op("add", left, one), n.emit.op("add", top, one)
    across, down = n.emit.op("sub", x, left), n.emit.op("sub", y, top)
    total: DraftOperand | None = None
    for column, weight_x in ((left, n.emit.op("sub", one, across)), (right, across)):
        for line, weight_y in ((top, n.emit.op("sub", one, down)), (bottom, down)):
            weight = n.emit.op("unsqueeze", n.emit.op("mul", weight_x, weight_y), axes=(1,))
            term = n.emit.op("mul", _picked(n, column, line), weight)
            total = term if total is None else n.emit.op("add", total, term)
    assert total is not None
    return total


def _place(n: NodeContext, grid: DraftOperand, axis: int, own: int) -> DraftOperand:
    """Coordinates from -1 to 1 as places among ``own`` elements: [N, h, w]."""
    value = n.emit.op("gather", grid, known(np.int64(axis)), axis=3)
    if n.integer("align_corners", 0):
        scale, shift = (own - 1) / 2, (own - 1) / 2
    else:
        scale, shift = own / 2, (own - 1) / 2
    scaled = n.emit.op("mul", value, n.emit.scalar(scale, n.x.dtype))
    return n.emit.op("add", scaled, n.emit.scalar(shift, n.x.dtype))


def _picked(n: NodeContext, x: DraftOperand, y: DraftOperand) -> DraftOperand:
    """The elements at whole places, 0 outside: [N, C, h, w]."""
    batch, channels, height, width = n.x.shape
    zero = n.emit.scalar(0, n.x.dtype)
    inside: DraftOperand | None = None
    for one, own in ((x, width), (y, height)):
        fits = n.emit.op("and", n.emit.op("ge", one, zero), n.emit.op("le", one, n.emit.scalar(own - 1, n.x.dtype)))
        inside = fits if inside is None else n.emit.op("and", inside, fits)
    assert inside is not None
    columns, lines = (
        n.emit.op("cast", n.emit.op("clamp", one, min=0.0, max=float(own - 1)), to=I64)
        for one, own in ((x, width), (y, height))
    )
    place = n.emit.op("add", n.emit.op("mul", lines, known(np.int64(width))), columns)
    rows, across = x.shape[1], x.shape[2]
    flat = n.emit.reshape(place, (batch, 1, rows * across))
    ids = n.emit.op("expand", flat, shape=(batch, channels, rows * across))
    found = n.emit.op("take_along", n.emit.reshape(n.x, (batch, channels, height * width)), ids, axis=2)
    image = n.emit.reshape(found, (batch, channels, rows, across))
    return n.emit.op("where", n.emit.op("unsqueeze", inside, axes=(1,)), image, zero)
