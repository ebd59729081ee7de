"""Pooling and resampling."""

from dataclasses import dataclass
from math import floor

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import DTYPES
from openinfer.importing.draft import DraftOperand, KnownTensor, known
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.importing.translate.move import padded
from openinfer.importing.translate.unpool import largest_places
from openinfer.importing.translate.windows import Window, shortened, window_of
from openinfer.loops.dim import is_same, is_symbolic


@onnx_op("MaxPool")
def _max_pool(n: NodeContext) -> NodeResults:
    y = _pooled(n, "max_pool", n.x)
    if not n.reads(1):
        return y
    kernel = n.ints("kernel_shape") or ()
    return (y, largest_places(n, window_of(n, kernel, tuple(n.x.shape[2:])), tuple(y.shape[2:])))


@onnx_op("AveragePool")
def _average_pool(n: NodeContext) -> NodeResults:
    include = bool(n.integer("count_include_pad", 0)) or None
    return _pooled(n, "avg_pool", n.x, count_include_pad=include)


@onnx_op("LpPool")
def _lp_pool(n: NodeContext) -> NodeResults:
    """The p-norm of a window: the p-th root of a sum of powers, which is a mean times the size of the window."""
    power = n.integer("p", 2)
    magnitudes = n.emit.op("abs", n.x)
    exponent = n.emit.scalar(power, n.x.dtype)
    powers = magnitudes if power == 1 else n.emit.op("pow", magnitudes, exponent)
    mean = _pooled(n, "avg_pool", powers, count_include_pad=True)
    count = int(np.prod(n.ints("kernel_shape") or (1,)))
    total = n.emit.op("mul", mean, n.emit.scalar(count, n.x.dtype))
    return total if power == 1 else n.emit.op("pow", total, n.emit.scalar(1 / power, n.x.dtype))


def _pooled(n: NodeContext, op: str, x: DraftOperand, **extra: object) -> DraftOperand:
    kernel = n.ints("kernel_shape")
    if kernel is None or len(kernel) != n.rank - 2:
        raise Unsupported("its kernel does not fit its input")
    window = window_of(n, kernel, tuple(x.shape[2:]))
    ceil = bool(n.integer("ceil_mode", 0)) or None
    if any(one < 0 for one in window.pads):
        x = padded(n, x, (0, 0, *window.begins, 0, 0, *window.ends), "constant", 0.0)
        window = Window(kernel, window.strides, window.dilations, (0,) * len(kernel), (0,) * len(kernel))
    strides = None if window.strides == kernel else window.strides
    return n.emit.op(
        op,
        x,
        kernel=shortened(kernel, -1),
        strides=None if strides is None else shortened(strides, -1),
        pads=shortened(window.pads, 0),
        dilations=shortened(window.dilations, 1),
        ceil_mode=ceil,
        **extra,
    )


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(n: NodeContext) -> NodeResults:
    return n.emit.op("global_avg_pool" if n.node.op == "GlobalAveragePool" else "global_max_pool", n.x)


@onnx_op("GlobalLpPool")
def _global_lp_pool(n: NodeContext) -> NodeResults:
    return n.emit.op("norm_axis", n.x, axes=tuple(range(2, n.rank)), keepdims=True, p=float(n.integer("p", 2)))


# --- resize -----------------------------------------------------------------------------------------------------------

_MOST_WEIGHTS = 1 << 24
_COORDINATES = {"half_pixel", "align_corners", "asymmetric"}
SampleWeights = npt.NDArray[np.float64]


@onnx_op("Upsample")
def _upsample(n: NodeContext) -> NodeResults:
    scales = n.node.attributes.get("scales") if n.opset < 9 else None
    if scales is None:
        scales = tuple(_floats(n, 1))
    assert isinstance(scales, tuple)
    mode = n.text("mode", "nearest")
    return _resized(n, SampleSettings(mode, "asymmetric", "floor"), tuple(float(one) for one in scales), None)


@onnx_op("Resize")
def _resize(n: NodeContext) -> NodeResults:
    if n.opset < 11:
        return _resized(n, SampleSettings(n.text("mode", "nearest"), "asymmetric", "floor"), _floats(n, 1), None)
    axes = tuple(n.axis(one) for one in n.ints("axes") or range(n.rank))
    settings = SampleSettings(
        n.text("mode", "nearest"),
        n.text("coordinate_transformation_mode", "half_pixel"),
        n.text("nearest_mode", "round_prefer_floor"),
        n.real("cubic_coeff_a", -0.75),
        bool(n.integer("exclude_outside", 0)),
        bool(n.integer("antialias", 0)),
        n.real("extrapolation_value", 0.0),
        _region(n, axes),
    )
    if n.optional(3) is not None and n.input(3).shape != (0,):
        sizes = n.known_ints(3, "the list of sizes")
        return _resized(n, settings, None, _all_sizes(n, axes, sizes))
    scales = [1.0] * n.rank
    for axis, one in zip(axes, _floats(n, 2), strict=True):
        scales[axis] = one
    return _resized(n, settings, tuple(scales), None)


def _all_sizes(n: NodeContext, axes: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of the result; a policy may keep the aspect ratio."""
    found = list(n.x.shape)
    policy = n.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratios = [one / n.x.shape[axis] for axis, one in zip(axes, sizes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        sizes = tuple(floor(n.x.shape[axis] * ratio + 0.5) for axis in axes)
    for axis, one in zip(axes, sizes, strict=True):
        found[axis] = one
    return tuple(found)


def _region(n: NodeContext, axes: tuple[int, ...]) -> tuple[float, ...]:
    """The region of the input that is sampled; an axis that is not given spans 0 to 1."""
    given = _floats(n, 1)
    if len(given) != 2 * len(axes):
        return ()
    starts, ends = [0.0] * n.rank, [1.0] * n.rank
    for place, axis in enumerate(axes):
        starts[axis], ends[axis] = given[place], given[place + len(axes)]
    return (*starts, *ends)


def _floats(n: NodeContext, position: int) -> tuple[float, ...]:
    given = n.optional(position)
    if given is None:
        return ()
    if not isinstance(given, KnownTensor) or given.has_sizes:
        raise Unsupported("its scales are computed from data", "fix what it depends on: --fix INPUT=VALUE")
    return tuple(float(one) for one in given.array.reshape(-1))


@dataclass(frozen=True)
class SampleSettings:
    """How a Resize node samples."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0
    region: tuple[float, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the op ``resize`` supports these settings."""
        known_mode = self.coordinates in _COORDINATES and not self.antialias and not self.exclude_outside
        return known_mode and (self.mode != "cubic" or self.cubic == -0.75)


def _resized(
    n: NodeContext, settings: SampleSettings, scales: tuple[float, ...] | None, sizes: tuple[int, ...] | None
) -> DraftOperand:
    if scales is not None and len(scales) != n.rank:
        raise Unsupported(f"it has {len(scales)} scales for {n.rank} dimensions")
    changed = [
        axis
        for axis in range(n.rank)
        if (scales is not None and scales[axis] != 1)
        or (sizes is not None and not is_same(sizes[axis], n.x.shape[axis]))
    ]
    if not changed:
        return n.x
    fits = settings.coordinates != "align_corners" or scales is None or _is_whole(n, scales)
    if (
        settings.is_plain
        and fits
        and n.rank >= 3
        and min(changed) >= 2
        and (settings.mode == "nearest" or n.x.dtype.kind == "float")
    ):
        return n.emit.op(
            "resize",
            n.x,
            size=None if sizes is None else shortened(sizes[2:], -1),
            scale=None if scales is None else _same(scales[2:]),
            mode=None if settings.mode == "nearest" else settings.mode,
            coordinates=None if settings.coordinates == "half_pixel" else settings.coordinates,
            nearest=settings.nearest
            if settings.mode == "nearest" and settings.nearest != "round_prefer_floor"
            else None,
        )
    return _sampled(n, settings, scales, sizes, changed)


def _is_whole(n: NodeContext, scales: tuple[float, ...]) -> bool:
    """Whether scaled extents are integers; otherwise corners align with the extents before truncation."""
    return all(float(own * one).is_integer() for own, one in zip(map(int, n.x.shape), scales, strict=True))


def _same(values: tuple[float, ...]) -> tuple[float, ...]:
    return values[:1] if len(set(values)) == 1 else values


def _sampled(
    n: NodeContext,
    settings: SampleSettings,
    scales: tuple[float, ...] | None,
    sizes: tuple[int, ...] | None,
    changed: list[int],
) -> DraftOperand:
    """Resample one axis after the other, as a product with the weights of the neighbours."""
    axes = range(n.rank) if settings.coordinates == "tf_crop_and_resize" else changed
    found = n.x if n.x.dtype.kind == "float" else n.emit.cast(n.x, DTYPES["f32"])
    for axis in axes:
        old = found.shape[axis]
        new = sizes[axis] if sizes is not None else floor(old * (scales or ())[axis])
        if is_symbolic(old) or is_symbolic(new):
            raise Unsupported("this way of sampling needs fixed sizes", "fix the size: --size NAME=VALUE")
        if old * new > _MOST_WEIGHTS:
            raise Unsupported(f"sampling {old} elements at {new} places needs a matrix that is too large")
        scale = new / old if scales is None else scales[axis]
        weights = interpolation(settings, old, new, scale, axis, n.rank)
        order = [one for one in range(n.rank) if one != axis] + [axis]
        last = n.emit.transpose(found, order)
        product = n.emit.op("matmul", last, known(weights.T.astype(found.dtype.array), found.dtype))
        back = [order.index(one) for one in range(n.rank)]
        found = n.emit.transpose(product, back)
        outside = _outside(settings, old, new, scale, axis, n.rank)
        if outside is not None and outside.any():
            mask = known(outside.reshape([-1 if one == axis else 1 for one in range(n.rank)]))
            found = n.emit.op("where", mask, n.emit.scalar(settings.outside, found.dtype), found)
    return found if found.dtype is n.x.dtype else n.emit.cast(n.emit.op("round", found), n.x.dtype)


def _places(settings: SampleSettings, old: int, new: int, scale: float, axis: int, rank: int) -> SampleWeights:
    """The positions of the elements of the result, in coordinates of the input."""
    index = np.arange(new, dtype=np.float64)
    match settings.coordinates:
        case "align_corners":
            return index * (old - 1) / (old * scale - 1) if old * scale > 1 else index * 0
        case "asymmetric":
            return index / scale
        case "half_pixel":
            return (index + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (index + 0.5) / scale - 0.5 if new > 1 else index * 0
        case "half_pixel_symmetric":
            adjustment = new / (scale * old)
            return old / 2 * (1 - adjustment) + (index + 0.5) / scale - 0.5
        case "tf_half_pixel_for_nn":
            return (index + 0.5) / scale
        case "tf_crop_and_resize" if len(settings.region) == 2 * rank:
            start, end = settings.region[axis], settings.region[axis + rank]
            if new == 1:
                return np.array([0.5 * (start + end) * (old - 1)])
            return start * (old - 1) + index * (end - start) * (old - 1) / (new - 1)
    raise Unsupported(f"its coordinates {settings.coordinates!r:.40} are not supported")


def _outside(
    settings: SampleSettings, old: int, new: int, scale: float, axis: int, rank: int
) -> npt.NDArray[np.bool_] | None:
    if settings.coordinates != "tf_crop_and_resize":
        return None
    at = _places(settings, old, new, scale, axis, rank)
    return (at < 0) | (at > old - 1)


def interpolation(settings: SampleSettings, old: int, new: int, scale: float, axis: int, rank: int) -> SampleWeights:
    """A matrix with the weight of each input element in each element of the result."""
    at = _places(settings, old, new, scale, axis, rank)
    found = np.zeros((new, old))
    if settings.mode == "nearest":
        found[np.arange(new), np.clip(_rounded(settings.nearest, at), 0, old - 1).astype(int)] = 1
        return found
    stretch = max(1 / scale, 1.0) if settings.antialias else 1.0
    radius = (1 if settings.mode == "linear" else 2) * stretch
    for row, centre in enumerate(at):
        first, last = int(np.floor(centre - radius)) + 1, int(np.ceil(centre + radius)) - 1
        if not settings.antialias:
            first, last = (
                int(np.floor(centre)) - (settings.mode == "cubic"),
                int(np.floor(centre)) + 1 + (settings.mode == "cubic"),
            )
        columns = np.arange(first, last + 1)
        weights = _kernel(settings, np.abs(columns - centre) / stretch)
        if settings.exclude_outside or settings.antialias:
            weights = np.where((columns < 0) | (columns >= old), 0, weights) if settings.exclude_outside else weights
            weights = weights / weights.sum()
        np.add.at(found[row], np.clip(columns, 0, old - 1), weights)
    return found


def _rounded(rule: str, at: SampleWeights) -> SampleWeights:
    match rule:
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
    return np.ceil(at - 0.5)


def _kernel(settings: SampleSettings, distance: SampleWeights) -> SampleWeights:
    if settings.mode == "linear":
        return np.maximum(1 - distance, 0)
    a = settings.cubic
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
