"""Quantizes weights of a float model by variable and entry, with a scale per channel."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from openinfer.check.bound import BoundGraph, FromModel, FromPattern
from openinfer.check.indices import spelled, spelling
from openinfer.dtypes import Array
from openinfer.ir import Access, ModelRef, Single
from openinfer.ir.expr import evaluate
from openinfer.oinf.quant import QuantParams, QuantScale
from openinfer.quantizing.ranges import Smoothing, weight_codes, weight_scales


@dataclass(frozen=True)
class StoredCodes:
    """A tensor of the model as codes."""

    codes: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float32]
    axis: int

    @property
    def params(self) -> QuantParams:
        """The quantization parameters as a model file stores them."""
        return QuantParams("symmetric", QuantScale.per_channel(self.axis, self.scales))

    @property
    def sums(self) -> npt.NDArray[np.int64]:
        """The sum of the codes of each channel: what each step of a zero point adds to a product."""
        axes = tuple(axis for axis in range(self.codes.ndim) if axis != self.axis)
        return np.asarray(self.codes.astype(np.int64).sum(axis=axes), np.int64)

    def real(self) -> npt.NDArray[np.float32]:
        """The numbers that the codes stand for."""
        shape = [1] * self.codes.ndim
        shape[self.axis] = -1
        return self.codes.astype(np.float32) * self.scales.reshape(shape)


class StoredWeights:
    """The tensors of the model behind the variables of a graph, and their codes."""

    def __init__(self, bound: BoundGraph, smoothing: Mapping[str, Smoothing] | None = None) -> None:
        """``smoothing`` is keyed by matrix name: those weights are multiplied before they are quantized."""
        assert bound.model is not None
        self._bound = bound
        self._model = bound.model
        self._smoothing = smoothing or {}
        self._codes: dict[tuple[str, int], StoredCodes] = {}

    def entries(self, name: str) -> Iterator[str]:
        """The tensors behind a variable: one, or all that match the pattern of a prefix table."""
        origin = self._bound.vars[name].origin
        if isinstance(origin, FromModel):
            yield origin.name
        if isinstance(origin, FromPattern):
            pattern = spelling(origin.pattern)
            yield from (entry for entry in self._model.tensors if pattern.fullmatch(entry))

    def entry(self, access: Access, indices: Mapping[str, int]) -> str:
        """The tensor behind an access, at the given loop indices."""
        variable = self._bound.vars[access.base]
        if isinstance(variable.origin, FromModel):
            return variable.origin.name
        assert isinstance(variable.origin, FromPattern)
        assert variable.decl is not None
        known = {**self._bound.sizes, **indices}
        values = [evaluate(one.value, known.__getitem__) for one in access.indices if isinstance(one, Single)]
        return spelled(variable.origin.pattern, dict(zip(variable.decl.table_indices, values, strict=True)))

    def spelled(self, reference: ModelRef) -> Iterator[str]:
        """The tensors that an operand refers to by name."""
        pattern = spelling(reference.name)
        yield from (entry for entry in self._model.tensors if entry == reference.name or pattern.fullmatch(entry))

    def array(self, entry: str) -> Array:
        """A tensor of the model in floats."""
        return self._model.load(entry).to_numpy()

    def codes(self, entry: str, axis: int) -> StoredCodes:
        """A tensor of the model as codes, with a scale per index along an axis."""
        key = entry, axis
        if key not in self._codes:
            weights = self.array(entry)
            if entry in self._smoothing:
                weights = smoothed_weights(weights, axis, self._smoothing[entry])
            scales = weight_scales(weights, axis)
            self._codes[key] = StoredCodes(weight_codes(weights, scales, axis), scales, axis)
        return self._codes[key]

    def rounded(self, entry: str, axis: int) -> Array:
        """A tensor rounded to codes and back, without the outliers that moved into it."""
        real = self.codes(entry, axis).real()
        if entry not in self._smoothing:
            return real
        smoothing = self._smoothing[entry]
        return smoothed_weights(real, axis, replace(smoothing, factors=np.reciprocal(smoothing.factors)))


def smoothed_weights(weights: Array, axis: int, smoothing: Smoothing) -> Array:
    """A matrix with the outliers of its operand moved into it; ``axis`` is that of its results' channels."""
    factors = smoothing.factors
    return np.asarray(weights * (factors if axis == 0 else factors[:, np.newaxis]), np.float32)
