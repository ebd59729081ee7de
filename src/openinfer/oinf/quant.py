"""Quantization parameters: ``real = (stored - zero_point) * scale``, per tensor, per channel or per group.

Groups also allow ``real = stored * scale + offset``, which is called affine.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code, Diagnostic, OinfError, counted
from openinfer.oinf.layout import GROUP_HEADER, QUANT_HEADER, TAG_OF_DTYPE, align

Scheme = Literal["symmetric", "asymmetric", "affine"]
SCHEME_TAGS: dict[Scheme, int] = {"symmetric": 1, "asymmetric": 2, "affine": 3}
SCHEMES = {tag: name for name, tag in SCHEME_TAGS.items()}
PER_TENSOR, PER_CHANNEL, PER_GROUP = 1, 2, 3
GROUP_DTYPES = tuple(DTYPES[name] for name in ("f32", "f16", "bf16"))
"""The dtypes in which scales and offsets of groups may be stored."""
MAX_GROUP = (1 << 32) - 1


@dataclass(frozen=True, eq=False)
class QuantScale:
    """The scale factors of a quantized tensor.

    >>> QuantScale.per_tensor(0.5)
    QuantScale(axis=None, values=array([0.5], dtype=float32), group=None)
    """

    axis: int | None
    values: npt.NDArray[Any]
    """f32; scales of groups may be f16 or bf16."""
    group: int | None = None
    """How many consecutive elements along the axis share a scale; None if all of a channel do."""

    @classmethod
    def per_tensor(cls, value: float) -> Self:
        """One scale for the whole tensor."""
        return cls(None, _scales([value]))

    @classmethod
    def per_channel(cls, axis: int, values: npt.ArrayLike) -> Self:
        """One scale per index along ``axis``."""
        return cls(_axis(axis), _scales(values))

    @classmethod
    def per_group(cls, axis: int, group: int, values: npt.ArrayLike) -> Self:
        """One scale per run of ``group`` elements along ``axis``, in element order.

        Scales may be zero or negative. Arrays of f16 and bf16 keep their dtype; anything else becomes f32.

        >>> QuantScale.per_group(1, 32, np.ones((4, 2), np.float16)).values.shape
        (8,)
        """
        return cls(_axis(axis), _group_numbers(values), _group(group))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantScale):
            return NotImplemented
        return (self.axis, self.group) == (other.axis, other.group) and _same(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.axis, self.group, self.values.tobytes()))


@dataclass(frozen=True, eq=False)
class QuantOffset:
    """The number added to ``stored * scale`` in each group of an affine quantization."""

    axis: int
    values: npt.NDArray[Any]
    group: int

    @classmethod
    def per_group(cls, axis: int, group: int, values: npt.ArrayLike) -> Self:
        """One offset per run of ``group`` elements along ``axis``."""
        return cls(_axis(axis), _group_numbers(values), _group(group))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantOffset):
            return NotImplemented
        return (self.axis, self.group) == (other.axis, other.group) and _same(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.axis, self.group, self.values.tobytes()))


@dataclass(frozen=True, eq=False)
class QuantZeroPoint:
    """The stored value that represents zero.

    >>> QuantZeroPoint.per_channel(0, [1, 2]).values
    array([1, 2], dtype=int32)
    """

    axis: int | None
    values: npt.NDArray[np.int32]
    group: int | None = None

    @classmethod
    def per_tensor(cls, value: int) -> Self:
        """One zero point for the whole tensor."""
        return cls(None, _zero_points([value]))

    @classmethod
    def per_channel(cls, axis: int, values: npt.ArrayLike) -> Self:
        """One zero point per index along ``axis``."""
        return cls(_axis(axis), _zero_points(values))

    @classmethod
    def per_group(cls, axis: int, group: int, values: npt.ArrayLike) -> Self:
        """One zero point per run of ``group`` elements along ``axis``."""
        return cls(_axis(axis), _zero_points(values), _group(group))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantZeroPoint):
            return NotImplemented
        return (self.axis, self.group) == (other.axis, other.group) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.axis, self.group, self.values.tobytes()))


@dataclass(frozen=True)
class QuantParams:
    """How the stored integers of a tensor represent real numbers.

    >>> QuantParams("symmetric", QuantScale.per_tensor(0.1)).describe()
    'symmetric per_tensor scale=0.1'
    """

    scheme: Scheme
    scale: QuantScale
    zero_point: QuantZeroPoint | None = None
    offset: QuantOffset | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, str) or self.scheme not in SCHEME_TAGS:
            advice = "use 'symmetric', 'asymmetric' or 'affine'"
            raise _refusal(f"unknown quantization scheme {self.scheme!r}", advice)
        scale: object = self.scale
        point: object = self.zero_point
        offset: object = self.offset
        if not isinstance(scale, QuantScale):
            raise _refusal(f"the scale must be a QuantScale, not {scale!r:.100}", "use QuantScale.per_tensor(0.1)")
        if point is not None and not isinstance(point, QuantZeroPoint):
            advice = "use QuantZeroPoint.per_tensor(3)"
            raise _refusal(f"the zero point must be a QuantZeroPoint, not {point!r:.100}", advice)
        if offset is not None and not isinstance(offset, QuantOffset):
            advice = "use QuantOffset.per_group(1, 32, values)"
            raise _refusal(f"the offset must be a QuantOffset, not {offset!r:.100}", advice)
        if self.zero_point is not None and self.scheme != "asymmetric":
            advice = "use 'asymmetric', or leave it out"
            raise _refusal(f"{_article(self.scheme)} quantization has no zero point", advice)
        if (self.offset is not None) != (self.scheme == "affine"):
            advice = "use 'affine', QuantScale.per_group and QuantOffset.per_group together"
            raise _refusal("an offset belongs to an affine quantization, and an affine quantization has one", advice)
        for what, other in (("a zero point", self.zero_point), ("an offset", self.offset)):
            if other is not None and (other.axis, other.group, len(other.values)) != (
                self.scale.axis,
                self.scale.group,
                len(self.scale.values),
            ):
                raise _refusal(f"{what} has the scale's mode, axis and length", None)
        if self.offset is not None and self.offset.values.dtype != self.scale.values.dtype:
            raise _refusal("scales and offsets have the same dtype", None)

    @property
    def mode(self) -> int:
        """The granularity of scales: ``PER_TENSOR``, ``PER_CHANNEL`` or ``PER_GROUP``."""
        return PER_TENSOR if self.scale.axis is None else PER_CHANNEL if self.scale.group is None else PER_GROUP

    @property
    def scale_dtype(self) -> DType:
        """The dtype in which scales are stored."""
        return next(dtype for dtype in GROUP_DTYPES if dtype.array == self.scale.values.dtype)

    def require_fit(self, name: str, shape: tuple[int, ...]) -> None:
        """Reject parameters that do not fit a tensor of this shape."""
        axis, count, group = self.scale.axis, len(self.scale.values), self.scale.group
        if axis is None:
            return
        if axis >= len(shape):
            raise _refusal(
                f"tensor {name!r} has {counted(len(shape), 'dimension')}, so no axis {axis} to quantize along", None
            )
        if group is not None and count != prod(group_shape(shape, axis, group)):
            groups = counted(prod(group_shape(shape, axis, group)), "group")
            raise _refusal(f"tensor {name!r} has {groups} along axis {axis}, but {count} scales are given", None)
        if group is None and count != shape[axis]:
            raise _refusal(
                f"tensor {name!r} has {shape[axis]} channels along axis {axis}, but {count} scales are given",
                None,
            )

    def encode(self) -> bytes:
        """Encode the parameters as the payload of a version 2 file, or of version 3 if there are groups."""
        axis = self.scale.axis or 0
        other = self.zero_point or self.offset
        others = other.values if other is not None else np.empty(0, np.int32)
        header = QUANT_HEADER.pack(
            SCHEME_TAGS[self.scheme],
            self.mode,
            self.mode if other is not None else 0,
            self.scale.group or 0,
            axis,
            len(self.scale.values),
            axis if other is not None else 0,
            len(others),
        )
        if self.scale.group is not None:
            header += GROUP_HEADER.pack(TAG_OF_DTYPE[self.scale_dtype], 0)
        payload = header + self.scale.values.tobytes() + others.tobytes()
        return payload.ljust(align(len(payload)), b"\0")

    def dequantize(self, stored: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
        """The real numbers that stored integers represent.

        >>> QuantParams("symmetric", QuantScale.per_tensor(0.5)).dequantize(np.array([2, -3], np.int8))
        array([ 1. , -1.5], dtype=float32)
        """
        real = stored.astype(np.float32)
        if self.zero_point is not None:
            real -= self.along(self.zero_point.values, stored.shape)
        real *= self.along(self.scale.values, stored.shape)
        if self.offset is not None:
            real += self.along(self.offset.values, stored.shape)
        return real

    def along(self, values: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Scales, zero points or offsets in f32, shaped to broadcast over a tensor."""
        axis, group, real = self.scale.axis, self.scale.group, values.astype(np.float32)
        if axis is None:
            return real.reshape(())
        if group is None:
            return real.reshape([-1 if at == axis else 1 for at in range(len(shape))])
        repeated = np.repeat(real.reshape(group_shape(shape, axis, group)), min(group, max(shape[axis], 1)), axis)
        return repeated[(slice(None),) * axis + (slice(shape[axis]),)]

    def describe(self) -> str:
        """The parameters in one line."""
        axis, group = self.scale.axis, self.scale.group
        mode = "per_tensor" if axis is None else f"per_channel axis={axis}"
        if group is not None:
            mode = f"per_group={group} axis={axis}"
        text = f"{self.scheme} {mode} scale={_brief(self.scale.values)}"
        for name, other in (("zero_point", self.zero_point), ("offset", self.offset)):
            text += "" if other is None else f" {name}={_brief(other.values)}"
        return text


def group_shape(shape: tuple[int, ...], axis: int, group: int) -> tuple[int, ...]:
    """The number of groups along each axis; the last group of an axis may be shorter.

    >>> group_shape((4, 70), 1, 32)
    (4, 3)
    """
    return (*shape[:axis], -(-shape[axis] // group), *shape[axis + 1 :])


def quant_nbytes(scale_count: int, zero_point_count: int) -> int:
    """The size of a quantization payload, per tensor or per channel.

    >>> quant_nbytes(1, 0)
    56
    """
    return align(QUANT_HEADER.size + 4 * scale_count + 4 * zero_point_count)


def group_nbytes(count: int, scales: DType, *, has_offsets: bool) -> int:
    """The size of a per-group quantization payload.

    >>> group_nbytes(8, DTYPES["f16"], has_offsets=False)
    72
    """
    return align(QUANT_HEADER.size + GROUP_HEADER.size + count * scales.nbytes(1) * (1 + has_offsets))


def _article(scheme: Scheme) -> str:
    return f"{'an' if scheme[0] == 'a' else 'a'} {scheme}"


def _same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return one is other or (one.dtype == other.dtype and np.array_equal(one, other))


def _brief(values: npt.NDArray[Any]) -> str:
    if len(values) == 1:
        return f"{float(values[0]):.6g}"
    if len(values) == 0:
        return "[]"
    return f"[{float(values.min()):.6g} .. {float(values.max()):.6g}]"


def _axis(axis: int) -> int:
    if not isinstance(axis, int | np.integer) or axis < 0:
        raise _refusal(f"the quantization axis must be an integer from 0 on, not {axis!r}", None)
    return int(axis)


def _group(group: int) -> int:
    if not isinstance(group, int | np.integer) or not 0 < group <= MAX_GROUP:
        raise _refusal(f"a group has from 1 to {MAX_GROUP} elements, not {group!r:.100}", None)
    return int(group)


def _group_numbers(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Scales or offsets of groups, in a dtype in which they may be stored."""
    given = np.asarray(values)
    kept = any(given.dtype == dtype.array for dtype in GROUP_DTYPES)
    with np.errstate(all="ignore"):
        numbers = np.ascontiguousarray(given).reshape(-1) if kept else _numbers(given).astype(np.float32)
    if not np.isfinite(numbers.astype(np.float32)).all():
        raise _refusal("scales and offsets of groups must be finite", None)
    return numbers


def _scales(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    with np.errstate(all="ignore"):
        scales = _numbers(values).astype(np.float32)
    if not (np.isfinite(scales) & (scales > 0)).all():
        raise _refusal("scales must be finite and greater than zero in f32", None)
    return scales


def _zero_points(values: npt.ArrayLike) -> npt.NDArray[np.int32]:
    wide = _numbers(values)
    with np.errstate(all="ignore"):
        points = wide.astype(np.int32)
    if not np.array_equal(points, wide):
        raise _refusal("zero points must be integers that fit i32", None)
    return points


def _numbers(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """A flat array of real numbers."""
    try:
        numbers = np.asarray(values).reshape(-1)
    except ValueError as error:
        raise _refusal(f"scales and zero points are numbers or flat lists of them: {error}", None) from error
    if numbers.dtype.kind not in "iuf" and numbers.size:
        raise _refusal("scales and zero points are numbers or flat lists of them", None)
    return numbers


def _refusal(message: str, advice: str | None) -> OinfError:
    return OinfError(Diagnostic(Code.BAD_QUANTIZATION, message, help=advice))
