"""Quantization parameters: ``real = (stored - zero_point) * scale``, per tensor or per channel."""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from openinfer.errors import Code, Diagnostic, OinfError, counted
from openinfer.oinf.layout import QUANT_HEADER, align

Scheme = Literal["symmetric", "asymmetric"]
SCHEME_TAGS: dict[Scheme, int] = {"symmetric": 1, "asymmetric": 2}
SCHEMES = {tag: name for name, tag in SCHEME_TAGS.items()}
PER_TENSOR, PER_CHANNEL = 1, 2


@dataclass(frozen=True, eq=False)
class QuantScale:
    """The scale factors of a quantized tensor.

    >>> QuantScale.per_tensor(0.5)
    QuantScale(axis=None, values=array([0.5], dtype=float32))
    """

    axis: int | None
    values: npt.NDArray[np.float32]

    @classmethod
    def per_tensor(cls, value: float) -> Self:
        """One scale for the whole tensor."""
        return cls(None, _scales([value]))

    @classmethod
    def per_channel(cls, axis: int, values: npt.ArrayLike) -> Self:
        """One scale for each index along ``axis``."""
        return cls(_axis(axis), _scales(values))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantScale):
            return NotImplemented
        return self.axis == other.axis and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.axis, self.values.tobytes()))


@dataclass(frozen=True, eq=False)
class QuantZeroPoint:
    """The stored value that stands for zero.

    >>> QuantZeroPoint.per_channel(0, [1, 2]).values
    array([1, 2], dtype=int32)
    """

    axis: int | None
    values: npt.NDArray[np.int32]

    @classmethod
    def per_tensor(cls, value: int) -> Self:
        """One zero point for the whole tensor."""
        return cls(None, _zero_points([value]))

    @classmethod
    def per_channel(cls, axis: int, values: npt.ArrayLike) -> Self:
        """One zero point for each index along ``axis``."""
        return cls(_axis(axis), _zero_points(values))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantZeroPoint):
            return NotImplemented
        return self.axis == other.axis and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((self.axis, self.values.tobytes()))


@dataclass(frozen=True)
class QuantParams:
    """How the stored integers of a tensor stand for real numbers.

    >>> QuantParams("symmetric", QuantScale.per_tensor(0.1)).describe()
    'symmetric per_tensor scale=0.1'
    """

    scheme: Scheme
    scale: QuantScale
    zero_point: QuantZeroPoint | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scheme, str) or self.scheme not in SCHEME_TAGS:
            raise _refusal(f"unknown quantization scheme {self.scheme!r}", "use 'symmetric' or 'asymmetric'")
        scale: object = self.scale
        point: object = self.zero_point
        if not isinstance(scale, QuantScale):
            raise _refusal(f"the scale must be a QuantScale, not {scale!r:.100}", "use QuantScale.per_tensor(0.1)")
        if point is not None and not isinstance(point, QuantZeroPoint):
            advice = "use QuantZeroPoint.per_tensor(3)"
            raise _refusal(f"the zero point must be a QuantZeroPoint, not {point!r:.100}", advice)
        if self.zero_point is None:
            return
        if self.scheme == "symmetric":
            raise _refusal("a symmetric quantization has no zero point", "use 'asymmetric', or leave it out")
        if self.zero_point.axis != self.scale.axis or len(self.zero_point.values) != len(self.scale.values):
            raise _refusal("a zero point has the scale's mode, axis and length", None)

    def require_fit(self, name: str, shape: tuple[int, ...]) -> None:
        """Refuse parameters that do not belong to a tensor of this shape."""
        axis, count = self.scale.axis, len(self.scale.values)
        if axis is None:
            return
        if axis >= len(shape):
            raise _refusal(
                f"tensor {name!r} has {counted(len(shape), 'dimension')}, so no axis {axis} to quantize along", None
            )
        if count != shape[axis]:
            raise _refusal(
                f"tensor {name!r} has {shape[axis]} channels along axis {axis}, but {count} scales are given",
                None,
            )

    def encode(self) -> bytes:
        """The parameters as the payload of a version 2 file."""
        per_channel = self.scale.axis is not None
        axis = self.scale.axis or 0
        zero_points = self.zero_point.values if self.zero_point is not None else np.empty(0, np.int32)
        mode = PER_CHANNEL if per_channel else PER_TENSOR
        zero_mode = mode if self.zero_point is not None else 0
        header = QUANT_HEADER.pack(
            SCHEME_TAGS[self.scheme],
            mode,
            zero_mode,
            0,
            axis,
            len(self.scale.values),
            axis if zero_mode else 0,
            len(zero_points),
        )
        payload = header + self.scale.values.tobytes() + zero_points.tobytes()
        return payload.ljust(align(len(payload)), b"\0")

    def dequantize(self, stored: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
        """The real numbers that stored integers stand for.

        >>> QuantParams("symmetric", QuantScale.per_tensor(0.5)).dequantize(np.array([2, -3], np.int8))
        array([ 1. , -1.5], dtype=float32)
        """
        real = stored.astype(np.float32)
        if self.zero_point is not None:
            real -= self._along(self.zero_point.values.astype(np.float32), stored.ndim)
        real *= self._along(self.scale.values, stored.ndim)
        return real

    def _along(self, values: npt.NDArray[np.float32], ndim: int) -> npt.NDArray[np.float32]:
        """Per-channel values shaped to broadcast over a tensor; a per-tensor value as it is."""
        if self.scale.axis is None:
            return values.reshape(())
        return values.reshape([-1 if axis == self.scale.axis else 1 for axis in range(ndim)])

    def describe(self) -> str:
        """The parameters in one line."""
        mode = "per_tensor" if self.scale.axis is None else f"per_channel axis={self.scale.axis}"
        text = f"{self.scheme} {mode} scale={_brief(self.scale.values)}"
        return text if self.zero_point is None else f"{text} zero_point={_brief(self.zero_point.values)}"


def quant_nbytes(scale_count: int, zero_point_count: int) -> int:
    """The size of a quantization payload.

    >>> quant_nbytes(1, 0)
    56
    """
    return align(QUANT_HEADER.size + 4 * scale_count + 4 * zero_point_count)


def _brief(values: npt.NDArray[np.float32] | npt.NDArray[np.int32]) -> str:
    if len(values) == 1:
        return f"{values[0]:.6g}"
    if len(values) == 0:
        return "[]"
    return f"[{values.min():.6g} .. {values.max():.6g}]"


def _axis(axis: int) -> int:
    if not isinstance(axis, int | np.integer) or axis < 0:
        raise _refusal(f"the quantization axis must be an integer from 0 on, not {axis!r}", None)
    return int(axis)


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
