"""Pooling and resampling."""

from math import floor

import numpy as np

from openinfer.importing.aten.context import FIX, AtenContext, AtenResults, aten_op, paired, word
from openinfer.importing.draft import DraftOperand, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.pool import SampleSettings, interpolation
from openinfer.importing.translate.windows import shortened
from openinfer.loops.dim import is_same, is_symbolic

_RANKS = (1, 2, 3)


@aten_op(*(f"max_pool{rank}d{end}" for rank in _RANKS for end in ("", "_with_indices")))
def _max_pool(n: AtenContext) -> AtenResults:
    gives_positions = word(n).endswith("_with_indices")
    if gives_positions and n.reads(1):
        raise Unsupported("it returns the positions of the largest elements", "use only its values")
    found = _pooled(n, "max_pool", dilations=shortened(_each(n, "dilation", (1,)), 1))
    return (found, None) if gives_positions else found


@aten_op(*(f"avg_pool{rank}d" for rank in _RANKS))
def _avg_pool(n: AtenContext) -> AtenResults:
    count = _spatial(n)
    include = n.flag("count_include_pad", default=True) and any(_each(n, "padding", (0,)))
    if not n.has("divisor_override"):
        return _pooled(n, "avg_pool", count_include_pad=include or None)
    kernel = int(np.prod(paired(n.numbers("kernel_size"), count)))
    mean = _pooled(n, "avg_pool", count_include_pad=True)
    return n.emit.op("mul", mean, n.emit.scalar(kernel / n.real("divisor_override"), n.dtype))


def _spatial(n: AtenContext) -> int:
    return next(rank for rank in _RANKS if f"{rank}d" in word(n))


def _each(n: AtenContext, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    return paired(n.numbers(name, default) or default, _spatial(n))


def _pooled(n: AtenContext, op: str, **extra: object) -> DraftOperand:
    count = _spatial(n)
    kernel = _each(n, "kernel_size", (1,))
    strides = paired(n.numbers("stride"), count) or kernel
    pads = _each(n, "padding", (0,)) * 2
    x = n.x if n.rank == count + 2 else n.emit.op("unsqueeze", n.x, axes=(0,))
    found = n.emit.op(
        op,
        x,
        kernel=shortened(kernel, -1),
        strides=None if strides == kernel else shortened(strides, -1),
        pads=shortened(pads, 0),
        ceil_mode=n.flag("ceil_mode") or None,
        **extra,
    )
    return found if n.rank == count + 2 else n.emit.op("squeeze", found, axes=(0,))


# --- adaptive pools ---------------------------------------------------------------------------------------------------


@aten_op(*(f"{start}adaptive_{kind}_pool{rank}d" for start in ("", "_") for kind in ("avg", "max") for rank in _RANKS))
def _adaptive(n: AtenContext) -> AtenResults:
    """A result of a given size; the windows follow from the size of the input."""
    count = _spatial(n)
    kind = "max" if "max" in word(n) else "avg"
    wanted = paired(n.ints("output_size"), count)
    own = n.x.shape[-count:]
    if all(is_same(one, 1) for one in wanted):
        found = n.emit.op(
            "max_axis" if kind == "max" else "mean_axis", n.x, axes=tuple(range(n.rank - count, n.rank)), keepdims=True
        )
    elif all(map(is_same, wanted, own)):
        found = n.x
    else:
        found = _evenly(n, kind, tuple(own), tuple(wanted))
    if kind == "max" and n.reads(1):
        raise Unsupported("it returns the positions of the largest elements", "use only its values")
    return (found, None) if kind == "max" else found


def _evenly(n: AtenContext, kind: str, own: tuple[int, ...], wanted: tuple[int, ...]) -> DraftOperand:
    if any(map(is_symbolic, (*own, *wanted))):
        raise Unsupported("its windows depend on a size", FIX)
    if all(one % other == 0 for one, other in zip(own, wanted, strict=True)):
        kernel = tuple(one // other for one, other in zip(own, wanted, strict=True))
        x = n.x if n.rank == len(own) + 2 else n.emit.op("unsqueeze", n.x, axes=(0,))
        found = n.emit.op(f"{kind}_pool", x, kernel=shortened(kernel, -1))
        return found if n.rank == len(own) + 2 else n.emit.op("squeeze", found, axes=(0,))
    found = n.x
    for place, (old, new) in enumerate(zip(own, wanted, strict=True)):
        axis = n.rank - len(own) + place
        found = _largest(n, found, axis, new) if kind == "max" else _along(n, found, axis, _shares(old, new))
    return found


def _largest(n: AtenContext, x: DraftOperand, axis: int, new: int) -> DraftOperand:
    """The maximum of each window along an axis, for windows of different sizes."""
    rows = []
    for first, last in _windows(x.shape[axis], new):
        window = n.emit.op("slice", x, starts=(first,), ends=(last,), axes=(axis,))
        rows.append(n.emit.op("max_axis", window, axes=(axis,), keepdims=True))
    return rows[0] if len(rows) == 1 else n.emit.op("concat", *rows, axis=axis)


def _windows(old: int, new: int) -> list[tuple[int, int]]:
    return [(row * old // new, -(-(row + 1) * old // new)) for row in range(new)]


def _shares(old: int, new: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """A matrix with the weight of each input element in each element of the result."""
    found = np.zeros((new, old))
    for row, (first, last) in enumerate(_windows(old, new)):
        found[row, first:last] = 1 / (last - first)
    return found


def _along(
    n: AtenContext, x: DraftOperand, axis: int, weights: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"
) -> DraftOperand:
    """A product with a weight matrix along one axis."""
    order = [one for one in range(n.rank) if one != axis] + [axis]
    product = n.emit.op("matmul", n.emit.transpose(x, order), known(weights.T.astype(x.dtype.array), x.dtype))
    return n.emit.transpose(product, [order.index(one) for one in range(n.rank)])


# --- resize -----------------------------------------------------------------------------------------------------------

_MODES = {
    **{f"upsample_nearest{rank}d": "nearest" for rank in _RANKS},
    **{f"_upsample_nearest_exact{rank}d": "exact" for rank in _RANKS},
    "upsample_linear1d": "linear",
    "upsample_bilinear2d": "linear",
    "upsample_trilinear3d": "linear",
    "upsample_bicubic2d": "cubic",
}


@aten_op(*_MODES)
def _upsample(n: AtenContext) -> AtenResults:
    count = n.rank - 2
    mode = _MODES[word(n)]
    factors = n.values.get("scale_factors")
    own = n.x.shape[2:]
    sizes = n.ints("output_size")
    scale: tuple[float, ...] | None = None
    if not sizes:
        if not isinstance(factors, tuple) or not all(isinstance(one, int | float) for one in factors):
            raise Unsupported("its scales are computed from data")
        scale = tuple(map(float, factors))
    elif n.node.overload != "vec":
        scale = _scales(n, count)
    corners = n.flag("align_corners")
    if scale is not None and (
        corners or all(float(int(old) * one).is_integer() for old, one in zip(own, scale, strict=True))
    ):
        sizes = tuple(_scaled(old, one) for old, one in zip(own, scale, strict=True))
        scale = None if not any(map(is_symbolic, own)) else scale
    coordinates = "align_corners" if corners else "asymmetric" if mode == "nearest" else None
    nearest = {"nearest": "floor", "exact": "round_prefer_ceil"}.get(mode)
    return n.emit.op(
        "resize",
        n.x,
        size=None if scale is not None else shortened(tuple(sizes), -1),
        scale=None if scale is None else (scale[:1] if len(set(scale)) == 1 else scale),
        mode=None if nearest else mode,
        coordinates=coordinates,
        nearest=nearest,
    )


@aten_op("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def _smoothed(n: AtenContext) -> AtenResults:
    """Antialiased resampling: a product with a weight matrix along each axis."""
    own, sizes = n.x.shape[2:], n.ints("output_size")
    if any(map(is_symbolic, (*own, *sizes))) or not sizes:
        raise Unsupported("its weights depend on a size", FIX)
    coordinates = "align_corners" if n.flag("align_corners") else "half_pixel"
    mode = "linear" if "bilinear" in word(n) else "cubic"
    settings = SampleSettings(mode, coordinates, "", cubic=-0.5, antialias=True, exclude_outside=True)
    scales = _scales(n, 2) if n.node.overload != "vec" else None
    found = n.x
    for place, (old, new) in enumerate(zip(own, sizes, strict=True)):
        scale = new / old if scales is None else scales[place]
        found = _along(n, found, 2 + place, interpolation(settings, old, new, scale, 2 + place, n.rank))
    return found


def _scaled(old: int, scale: float) -> int:
    return old * int(scale) if scale == int(scale) else floor(old * scale)


def _scales(n: AtenContext, count: int) -> tuple[float, ...] | None:
    """The requested scales, if all are given: they decide which elements are neighbours."""
    names = ("scales_d", "scales_h", "scales_w")[-count:]
    given = [n.values.get(name, n.values.get("scales") if count == 1 else None) for name in names]
    return tuple(float(one) for one in given) if all(isinstance(one, int | float) for one in given) else None
