"""Quantizes weights in groups: each run of elements along an axis has a scale and, if asymmetric, an offset."""

from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array
from openinfer.errors import Code, Diagnostic, OinfError
from openinfer.oinf.quant import QuantOffset, QuantParams, QuantScale, group_nbytes, group_shape
from openinfer.oinf.quant_spec import QuantSpec
from openinfer.oinf.quantize import CHUNK, Loss, ReadElements, packed_chunks, require_axis, require_finite


class GroupedData:
    """The stored integers of a tensor, quantized in groups, some rows at a time in two passes over the source."""

    def __init__(self, name: str, shape: tuple[int, ...], read: ReadElements, spec: QuantSpec, loss: Loss) -> None:
        require_axis(name, shape, spec)
        assert spec.groups is not None
        assert spec.axis is not None
        self._name, self._shape, self._read, self._spec, self._loss = name, shape, read, spec, loss
        self._axis = spec.axis % len(shape)
        self._groups = spec.groups
        self._rows, self._length, self._inner = (
            prod(shape[: self._axis]),
            shape[self._axis],
            prod(shape[self._axis + 1 :]),
        )
        self.nbytes = spec.dtype.nbytes(prod(shape))

    @property
    def quant_nbytes(self) -> int:
        """The size of the payload of scales and offsets."""
        count = prod(group_shape(self._shape, self._axis, self._groups.size))
        return group_nbytes(count, self._groups.scales, has_offsets=self._spec.scheme == "asymmetric")

    @cached_property
    def parameters(self) -> QuantParams:
        """Scales and offsets from the range of each group: the first pass."""
        empty = np.zeros(0, self._groups.scales.array)
        scales, offsets = [empty], [empty]
        for values in self._parts():
            one, other = self._fitted(values)
            scales.append(one.reshape(-1))
            offsets.append(other.reshape(-1))
        place = self._axis, self._groups.size
        scale = QuantScale.per_group(*place, np.concatenate(scales))
        if self._spec.scheme == "symmetric":
            return QuantParams("symmetric", scale)
        return QuantParams("affine", scale, offset=QuantOffset.per_group(*place, np.concatenate(offsets)))

    def _parts(self) -> Iterator[Array]:
        """The tensor in chunks: whole rows along the axis, or whole groups of a long row."""
        row, group = self._length * self._inner, self._groups.size
        if 0 < row <= CHUNK:
            step = CHUNK // row
            for first in range(0, self._rows, step):
                yield self._part(first * row, min(step, self._rows - first), self._length)
        elif row:
            step = max(1, CHUNK // (self._inner * group)) * group
            for first in range(self._rows):
                for at in range(0, self._length, step):
                    yield self._part(first * row + at * self._inner, 1, min(step, self._length - at))

    def _part(self, start: int, rows: int, length: int) -> Array:
        values = self._read(start, rows * length * self._inner)
        require_finite(self._name, values)
        wide = values if values.dtype == np.float64 else values.astype(np.float32)
        return wide.reshape(rows, length, self._inner)

    def _fitted(self, values: Array) -> tuple[Array, Array]:
        """The scale and the offset of each group, as they are stored."""
        starts = range(0, values.shape[1], self._groups.size)
        low, high = (ufunc.reduceat(values, starts, axis=1) for ufunc in (np.minimum, np.maximum))
        least, most = self._spec.dtype.minimum, self._spec.dtype.maximum
        if self._spec.scheme == "symmetric":
            if self._spec.dtype.kind == "uint" and low.min() < 0:
                message = f"tensor {self._name!r} has negative values, which {self._spec} cannot hold"
                raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message, help="use asymmetric or a signed dtype"))
            scales = self._stored(np.maximum(-low, high) / most)
            return scales, np.zeros_like(scales)
        scales = self._stored((high - low) / (most - least))
        return scales, self._stored(low - least * scales.astype(np.float64))

    def _stored(self, values: Array) -> Array:
        """Scales or offsets in the dtype in which they are stored."""
        dtype = self._groups.scales
        with np.errstate(over="ignore"):
            stored: Array = values.astype(dtype.array)
        if not np.isfinite(stored.astype(np.float32)).all():
            message = f"tensor {self._name!r} holds values too large for scales in {dtype.name}"
            advice = None if dtype.name == "f32" else "add scales=f32"
            raise OinfError(Diagnostic(Code.BAD_PACK_OPTION, message, help=advice))
        return stored

    def chunks(self) -> Iterator[Any]:
        """The stored bytes: the second pass."""
        return packed_chunks(self._codes(), self._spec.dtype)

    def _codes(self) -> Iterator[Array]:
        # Recomputed for each chunk, with equal results: the parameters hold those of all chunks.
        dtype = self._spec.dtype
        # A symmetric range excludes the most negative integer, so that both sides are equal.
        least = -dtype.maximum if self._spec.scheme == "symmetric" and dtype.kind == "int" else dtype.minimum
        for values in self._parts():
            scales, offsets = (self._spread(one, values.shape[1]) for one in self._fitted(values))
            steps = np.rint((values - offsets) / np.where(scales == 0, 1, scales))
            stored: Array = np.clip(np.where(scales == 0, 0, steps), least, dtype.maximum)
            self._loss.add(values, stored * scales + offsets)
            yield stored.astype(np.int16).astype(np.uint8)

    def _spread(self, values: Array, length: int) -> Array:
        """Scales or offsets repeated for each element."""
        return np.repeat(values.astype(np.float64), min(self._groups.size, length), axis=1)[:, :length]
