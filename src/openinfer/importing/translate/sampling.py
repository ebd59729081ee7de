"""Interpolates an image at data-dependent positions: GridSample, and the parts of it that other ops need."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from openinfer.importing.draft import I64, DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_symbolic

_CUBIC = -0.75


@dataclass(frozen=True)
class SampledAxis:
    """A spatial axis: its extent, its padding mode, and the edges where it is mirrored."""

    own: int
    outside: str
    low: float
    high: float


@dataclass(frozen=True)
class _Tap:
    """A neighbour along an axis: its index, whether it exists (None: always), and its weight (None: 1)."""

    index: DraftOperand
    inside: DraftOperand | None
    weight: DraftOperand | None


@onnx_op("GridSample", "com.microsoft:GridSample")
def _grid_sample(n: NodeContext) -> NodeResults:
    """Sample images [N, C, ...] at positions [N, ..., axes] from -1 to 1, the last axis first."""
    mode = n.text("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    outside = n.text("padding_mode", "zeros")
    if mode not in ("linear", "nearest", "cubic") or outside not in ("zeros", "border", "reflection"):
        raise Unsupported(f"sampling by {mode!r:.20} with the padding {outside!r:.20} is not supported")
    spatial, grid = n.x.shape[2:], n.emit.cast(n.input(1), n.x.dtype)
    if len(grid.shape) != n.rank or grid.shape[-1] != len(spatial):
        raise Unsupported("its grid does not fit its input")
    require_fixed(spatial)
    align = bool(n.integer("align_corners", 0))
    axes = [SampledAxis(own, outside, 0.0 if align else -0.5, own - (1.0 if align else 0.5)) for own in spatial]
    places = []
    for place, axis in enumerate(axes):
        at = _place(n, grid, len(axes) - 1 - place, axis.own, align=align)
        at = n.emit.op("round", at) if mode == "nearest" else at
        # Cubic neighbours are brought inside one by one, as PyTorch and ONNX Runtime do.
        places.append(at if mode == "cubic" else _folded_in(n, at, axis))
    return sampled(n, n.x, axes, places, mode)


def require_fixed(spatial: Sequence[int]) -> None:
    """Reject images of dynamic size: the arithmetic on positions needs their extents as numbers."""
    if any(map(is_symbolic, spatial)):
        raise Unsupported("it samples an image of dynamic size", "fix the size: --size NAME=VALUE")


def _place(n: NodeContext, grid: DraftOperand, column: int, own: int, *, align: bool) -> DraftOperand:
    """Map coordinates from -1 to 1 to positions among ``own`` elements."""
    value = n.emit.op("gather", grid, known(np.int64(column)), axis=len(grid.shape) - 1)
    scale = (own - 1) / 2 if align else own / 2
    scaled = n.emit.op("mul", value, n.emit.scalar(scale, grid.dtype))
    return n.emit.op("add", scaled, n.emit.scalar((own - 1) / 2, grid.dtype))


def _folded_in(n: NodeContext, at: DraftOperand, axis: SampledAxis) -> DraftOperand:
    """Clamp or mirror positions at the edges; unchanged if there are zeros outside."""
    if axis.outside == "border":
        return n.emit.op("clamp", at, min=0.0, max=float(axis.own - 1))
    return _mirrored(n, at, axis) if axis.outside == "reflection" else at


def _mirrored(n: NodeContext, at: DraftOperand, axis: SampledAxis) -> DraftOperand:
    """Reflect positions between the edges: ``high - abs((at - low) mod 2 width - width)``."""
    width = axis.high - axis.low
    if width == 0:
        return n.emit.op("mul", at, n.emit.scalar(0, at.dtype))
    whole, half = n.emit.scalar(2 * width, at.dtype), n.emit.scalar(width, at.dtype)
    along = n.emit.op("mod", n.emit.op("sub", at, n.emit.scalar(axis.low, at.dtype)), whole)
    back = n.emit.op("abs", n.emit.op("sub", along, half))
    return n.emit.op("sub", n.emit.scalar(axis.high, at.dtype), back)


def sampled(
    n: NodeContext, x: DraftOperand, axes: Sequence[SampledAxis], places: Sequence[DraftOperand], mode: str
) -> DraftOperand:
    """Sample images [N, C, ...] at positions [N, ...], one tensor per spatial axis: [N, C, ...]."""
    batch, channels = x.shape[:2]
    out = tuple(places[0].shape[1:])
    count = reduce(lambda one, other: one * other, out, 1)
    flat = n.emit.reshape(x, (batch, channels, reduce(lambda one, other: one * other, x.shape[2:], 1)))
    total: DraftOperand | None = None
    for taps in product(*(_taps(n, place, axis, mode) for place, axis in zip(places, axes, strict=True))):
        index = taps[0].index
        for tap, axis in zip(taps[1:], axes[1:], strict=True):
            index = n.emit.op("add", n.emit.op("mul", index, known(np.int64(axis.own))), tap.index)
        ids = n.emit.op("expand", n.emit.reshape(index, (batch, 1, count)), shape=(batch, channels, count))
        found = n.emit.reshape(n.emit.op("take_along", flat, ids, axis=2), (batch, channels, *out))
        inside = _joined(n, "and", [tap.inside for tap in taps])
        if inside is not None:
            zero = n.emit.scalar(0, x.dtype)
            found = n.emit.op("where", n.emit.op("unsqueeze", inside, axes=(1,)), found, zero)
        weight = _joined(n, "mul", [tap.weight for tap in taps])
        if weight is not None:
            found = n.emit.op("mul", found, n.emit.op("unsqueeze", weight, axes=(1,)))
        total = found if total is None else n.emit.op("add", total, found)
    assert total is not None
    return total


def _joined(n: NodeContext, op: str, given: Sequence[DraftOperand | None]) -> DraftOperand | None:
    found = [one for one in given if one is not None]
    return reduce(lambda one, other: n.emit.op(op, one, other), found) if found else None


def _taps(n: NodeContext, at: DraftOperand, axis: SampledAxis, mode: str) -> list[_Tap]:
    """The neighbours of a position along one axis."""
    if mode == "nearest":
        return [_tap(n, at, axis, None)]
    first = n.emit.op("floor", at)
    part = n.emit.op("sub", at, first)
    one = n.emit.scalar(1, at.dtype)
    rest = n.emit.op("sub", one, part)
    second = n.emit.op("add", first, one)
    if mode == "linear":
        return [_tap(n, first, axis, rest), _tap(n, second, axis, part)]
    before, behind = n.emit.op("sub", first, one), n.emit.op("add", second, one)
    return [
        _tap(n, before, axis, _far(n, n.emit.op("add", part, one))),
        _tap(n, first, axis, _near(n, part)),
        _tap(n, second, axis, _near(n, rest)),
        _tap(n, behind, axis, _far(n, n.emit.op("add", rest, one))),
    ]


def _polynomial(n: NodeContext, x: DraftOperand, factors: Sequence[float]) -> DraftOperand:
    """Evaluate a polynomial by Horner's rule, highest power first."""
    found: DraftOperand = n.emit.scalar(factors[0], x.dtype)
    for factor in factors[1:]:
        found = n.emit.op("mul", found, x)
        found = n.emit.op("add", found, n.emit.scalar(factor, x.dtype)) if factor else found
    return found


def _near(n: NodeContext, distance: DraftOperand) -> DraftOperand:
    return _polynomial(n, distance, (_CUBIC + 2, -(_CUBIC + 3), 0, 1))


def _far(n: NodeContext, distance: DraftOperand) -> DraftOperand:
    return _polynomial(n, distance, (_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC))


def _tap(n: NodeContext, at: DraftOperand, axis: SampledAxis, weight: DraftOperand | None) -> _Tap:
    """The element at an integer position, or what stands for it outside."""
    last = float(axis.own - 1)
    inside: DraftOperand | None = None
    if axis.outside == "zeros":
        zero, most = n.emit.scalar(0, at.dtype), n.emit.scalar(last, at.dtype)
        inside = n.emit.op("and", n.emit.op("ge", at, zero), n.emit.op("le", at, most))
    elif axis.outside == "reflection":
        at = _mirrored(n, at, axis)
    return _Tap(n.emit.op("cast", n.emit.op("clamp", at, min=0.0, max=last), to=I64), inside, weight)
