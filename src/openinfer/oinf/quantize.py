"""Quantizes weights: real numbers become small integers with a scale, and the loss is measured."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf, isinf, log10, sqrt
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Array, DType, pack
from openinfer.errors import Code, Diagnostic, OinfError, counted
from openinfer.oinf.channels import ChannelBlock, blocks
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint, quant_nbytes
from openinfer.oinf.quant_spec import QuantSpec

ReadElements = Callable[[int, int], Array]
"""Elements ``start`` to ``start + count`` of a source tensor, flat, in row-major order."""

CHUNK = 1 << 20
"""Elements processed at a time."""


@dataclass
class Loss:
    """How far stored values are from the originals."""

    count: int = 0
    largest: float = 0.0
    squares: float = 0.0
    signal: float = 0.0

    def add(self, original: Array, stored: Array) -> None:
        """Compare one chunk.

        The same NaN or infinity on both sides does not count; on one side only, it is an infinite loss.
        """
        exact, kept = original.astype(np.float64).reshape(-1), stored.astype(np.float64).reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            difference = exact - kept
            finite = np.isfinite(difference)
            if not finite.all():
                self._add_infinite(exact[~finite], kept[~finite])
                difference, exact = difference[finite], exact[finite]
            self.count += difference.size
            self.largest = max(self.largest, float(np.abs(difference).max(initial=0.0)))
            self.squares += float(difference @ difference)
            self.signal += float(exact @ exact)

    def _add_infinite(self, exact: Array, kept: Array) -> None:
        same = (exact == kept) | (np.isnan(exact) & np.isnan(kept))
        if not same.all():
            self.count += int(same.size - same.sum())
            self.largest = self.squares = inf

    @property
    def rms(self) -> float:
        """The root mean square of the differences."""
        return sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def snr_db(self) -> float:
        """The signal-to-noise ratio in decibels; infinite if nothing was lost."""
        if self.squares == 0:
            return inf
        if isinf(self.squares):
            return -inf
        return 10 * log10(self.signal / self.squares) if self.signal else -inf


def require_axis(name: str, shape: tuple[int, ...], spec: QuantSpec) -> None:
    """Reject a tensor without the axis to quantize along."""
    if not spec.is_for(shape):
        axis = "axis" if spec.axis is None or spec.axis < 0 else f"axis {spec.axis}"
        message = f"tensor {name!r} has {counted(len(shape), 'dimension')}, so no {axis} to quantize along"
        raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message))


def require_finite(name: str, values: Array) -> None:
    """Reject values that no scale fits."""
    if not np.isfinite(values).all():
        message = f"tensor {name!r} holds NaN or infinity and cannot be quantized"
        raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message))


class QuantizedData:
    """The stored integers of a tensor, quantized chunk by chunk in two passes over the source."""

    def __init__(self, name: str, shape: tuple[int, ...], read: ReadElements, spec: QuantSpec, loss: Loss) -> None:
        require_axis(name, shape, spec)
        self._name, self._shape, self._read, self._spec, self._loss = name, shape, read, spec, loss
        self.nbytes = spec.dtype.nbytes(int(np.prod(shape, dtype=object)))

    @cached_property
    def parameters(self) -> QuantParams:
        """Scales and zero points from the range of each channel: the first pass."""
        count = 1 if self._spec.axis is None else self._shape[self._spec.axis]
        low, high = np.zeros(count), np.zeros(count)
        for block, values in self._blocks():
            require_finite(self._name, values)
            where = slice(block.first_channel, block.first_channel + block.channels)
            low[where] = np.minimum(low[where], values.min(axis=(0, 2)))
            high[where] = np.maximum(high[where], values.max(axis=(0, 2)))
        return self._from_ranges(low, high)

    def _from_ranges(self, low: Array, high: Array) -> QuantParams:
        spec, axis = self._spec, self._spec.axis
        least, most = spec.dtype.minimum, spec.dtype.maximum
        if spec.scheme == "symmetric":
            if spec.dtype.kind == "uint" and low.min() < 0:
                message = f"tensor {self._name!r} has negative values, which {spec} cannot hold"
                raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message, help="use asymmetric or a signed dtype"))
            return QuantParams("symmetric", QuantScale(axis, self._scales(np.maximum(-low, high) / most)))
        scales = self._scales(high / (most - least) - low / (most - least))
        zero_points = np.clip(np.rint(least - low / scales), least, most).astype(np.int32)
        return QuantParams("asymmetric", QuantScale(axis, scales), QuantZeroPoint(axis, zero_points))

    def _scales(self, steps: Array) -> npt.NDArray[np.float32]:
        """Scales as f32, never zero: channels of zeros get 1, vanishing ones the smallest normal number."""
        limits = np.finfo(np.float32)
        if steps.max(initial=0.0) > limits.max:
            message = f"tensor {self._name!r} holds values too large for an f32 scale"
            raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message))
        scales: Array = np.where(steps > 0, np.maximum(steps, limits.tiny), 1.0)
        return scales.astype(np.float32)

    def _blocks(self) -> Iterator[tuple[ChannelBlock, Array]]:
        for block in blocks(self._shape, self._spec.axis, CHUNK):
            values = self._read(block.start, block.size)
            wide = values if values.dtype == np.float64 else values.astype(np.float32)
            yield block, wide.reshape(block.outer, block.channels, block.inner)

    def chunks(self) -> Iterator[Any]:
        """The stored bytes: the second pass."""
        return packed_chunks((self._quantized(block, values) for block, values in self._blocks()), self._spec.dtype)

    def _quantized(self, block: ChannelBlock, values: Array) -> Array:
        dtype, parameters = self._spec.dtype, self.parameters
        where = slice(block.first_channel, block.first_channel + block.channels)
        scales = parameters.scale.values[where, None]
        points = 0 if parameters.zero_point is None else parameters.zero_point.values[where, None]
        steps = np.rint(values / scales)
        # A symmetric range excludes the most negative integer, so that both sides are equal.
        least = -dtype.maximum if parameters.zero_point is None and dtype.kind == "int" else dtype.minimum
        stored: Array = np.clip(steps + points, least, dtype.maximum)
        self._loss.add(values, (stored - points) * scales.astype(np.float64))
        return stored.astype(np.int16).astype(np.uint8)

    @property
    def quant_nbytes(self) -> int:
        """The size of the payload of scales and zero points."""
        count = 1 if self._spec.axis is None else self._shape[self._spec.axis]
        return quant_nbytes(count, count if self._spec.scheme == "asymmetric" else 0)


class HasQuantPayload(Protocol):
    """Data with quantization parameters, whose size is known before they are."""

    @property
    def parameters(self) -> QuantParams:
        """The parameters, once the data has been read."""

    @property
    def quant_nbytes(self) -> int:
        """The size of their payload."""


@dataclass(frozen=True)
class QuantPayload:
    """The quantization payload of data; its bytes are known once the data has been read."""

    data: HasQuantPayload

    @property
    def nbytes(self) -> int:
        """The size of the payload."""
        return self.data.quant_nbytes

    def chunks(self) -> Iterator[bytes]:
        """The payload."""
        yield self.data.parameters.encode()


def packed_chunks(pieces: Iterator[Array], dtype: DType) -> Iterator[Any]:
    """Pack chunks of byte-sized codes to stored bytes; codes that do not fill a byte wait for the next chunk."""
    if not dtype.is_packed:
        yield from (np.ascontiguousarray(piece).reshape(-1).view(np.uint8) for piece in pieces)
        return
    rest = np.empty(0, np.uint8)
    for piece in pieces:
        codes = np.concatenate([rest, piece.reshape(-1).view(np.uint8)])
        whole = codes.size - codes.size % 8
        yield pack(codes[:whole], dtype)
        rest = codes[whole:]
    if rest.size:
        yield pack(rest, dtype)
