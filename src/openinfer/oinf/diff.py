"""Compares two model files: which sizes, metadata and tensors differ, and by how much."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.errors import counted
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import TensorInfo
from openinfer.oinf.payloads import PayloadValue
from openinfer.oinf.quantize import Loss
from openinfer.oinf.report import jsonable, number_text
from openinfer.oinf.statistics import PIECE, pieces
from openinfer.tensor import Tensor

Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FileDifference:
    """An entry that differs between the files; a side is None if the entry is absent there."""

    table: str
    name: str
    left: str | None
    right: str | None
    detail: str = ""
    changed: int | None = None
    loss: Loss | None = None

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        loss = self.loss
        return {
            "table": self.table,
            "name": self.name,
            "left": self.left,
            "right": self.right,
            "changed": self.changed,
            "max_error": None if loss is None else jsonable(loss.largest),
            "rms_error": None if loss is None else jsonable(loss.rms),
            "detail": self.detail,
        }

    def line(self) -> str:
        """The difference as a line of text."""
        if self.left is None:
            return f"+ {self.table} {self.name}: {self.right}"
        if self.right is None:
            return f"- {self.table} {self.name}: {self.left}"
        change = f"{self.left} -> {self.right}" if self.left != self.right else self.left
        return f"~ {self.table} {self.name}: {change}{f' ({self.detail})' if self.detail else ''}"


def diff(left: ModelLoader, right: ModelLoader, names: Sequence[str] | None = None) -> list[FileDifference]:
    """All differences, sizes first, then metadata, then tensors, each by name; or those of the named tensors."""
    if names is not None:
        for name in names:
            if name not in right.tensors:
                left.info(name)
        return list(_tensors(left, right, set(names)))
    return [
        *_plain("size", _texts(left.sizevars), _texts(right.sizevars)),
        *_plain("metadata", _metadata(left), _metadata(right)),
        *_tensors(left, right, left.tensors.keys() | right.tensors.keys()),
    ]


def _texts(values: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _metadata(model: ModelLoader) -> dict[str, str]:
    return {name: f"{info.type_name} {_exact(model.metadata[name])}" for name, info in model.metadata_info.items()}


def _exact(value: PayloadValue) -> str:
    """A value as text that is different for different values."""
    return str(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


def _plain(table: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[FileDifference]:
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield FileDifference(table, name, left.get(name), right.get(name))


def _tensors(left: ModelLoader, right: ModelLoader, names: Set[str]) -> Iterator[FileDifference]:
    for name in sorted(names):
        first, second = left.tensors.get(name), right.tensors.get(name)
        if first is None or second is None:
            yield FileDifference("tensor", name, first and _type(first), second and _type(second))
        elif first.shape != second.shape or first.has_data != second.has_data:
            yield FileDifference("tensor", name, _type(first), _type(second))
        elif first.has_data:
            yield from _values(left, right, first, second)
        elif _type(first) != _type(second) or first.quant != second.quant:
            yield FileDifference("tensor", name, _type(first), _type(second))


def _type(info: TensorInfo) -> str:
    quant = f" {info.quant.describe()}" if info.quant is not None else ""
    return f"{info.type_text}{quant}" if info.has_data else f"{info.type_text}{quant} uninitialized"


def _values(left: ModelLoader, right: ModelLoader, first: TensorInfo, second: TensorInfo) -> Iterator[FileDifference]:
    same_type = first.dtype is second.dtype and first.quant == second.quant
    one, other = left.load(first.name), right.load(second.name)
    if same_type and np.array_equal(one.raw(), other.raw()):
        return
    loss = Loss()
    if same_type and first.dtype.kind != "float":
        changed = _compare_integers(one, other, first, loss)
    else:
        changed = _compare_reals(_real(one, first), _real(other, second), loss)
    detail = f"{changed} of {counted(one.size, 'value')} differ"
    if changed:
        detail += f", by at most {number_text(loss.largest)}, rms {number_text(loss.rms)}"
    elif same_type:
        detail = "only bits differ"
    yield FileDifference("tensor", first.name, _type(first), _type(second), detail, changed, loss)


def _compare_reals(one: Iterator[Reals], other: Iterator[Reals], loss: Loss) -> int:
    """Accumulate the distance between two tensors and count the values that differ; NaN equals NaN."""
    changed = 0
    for a, b in zip(one, other, strict=True):
        loss.add(a, b)
        changed += int(((a != b) & ~(np.isnan(a) & np.isnan(b))).sum())
    return changed


def _compare_integers(one: Tensor, other: Tensor, info: TensorInfo, loss: Loss) -> int:
    """The same for integers of one type, but exact: f64 cannot tell large ones apart."""
    changed = start = 0
    for a, b in zip(pieces(one), pieces(other), strict=True):
        # Arithmetic modulo 2**64 gives the distance between any two 64-bit integers exactly.
        apart = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
        changed += int(np.count_nonzero(apart))
        real = apart.astype(np.float64)
        if info.quant is None:
            largest: float = int(apart.max())
        else:
            real *= np.abs(info.quant.scale.values[_channel(info, start, a.size)].astype(np.float64))
            largest = float(real.max())
        loss.count += a.size
        loss.largest = max(loss.largest, largest)
        loss.squares += float(real @ real)
        start += a.size
    return changed


def _real(tensor: Tensor, info: TensorInfo) -> Iterator[Reals]:
    """The real values of a tensor, dequantized if it is quantized, in chunks that depend on its size only."""
    flat = Tensor(tensor.dtype, (tensor.size,), tensor.storage)
    for start in range(0, tensor.size, PIECE):
        yield (
            flat[start : start + PIECE].to_numpy().astype(np.float64)
            if info.quant is None
            else _dequantized(flat, info, start)
        )


def _dequantized(flat: Tensor, info: TensorInfo, start: int) -> Reals:
    assert info.quant is not None
    stored = flat[start : start + PIECE].to_numpy().astype(np.float64)
    channel = _channel(info, start, stored.size)
    if info.quant.zero_point is not None:
        stored -= info.quant.zero_point.values[channel]
    stored *= info.quant.scale.values[channel]
    if info.quant.offset is not None:
        stored += info.quant.offset.values[channel]
    return stored


def _channel(info: TensorInfo, start: int, count: int) -> Any:
    """The index of the scale for each of ``count`` elements from ``start`` on."""
    assert info.quant is not None
    axis, group = info.quant.scale.axis, info.quant.scale.group
    if axis is None:
        return 0
    inner = prod(info.shape[axis + 1 :])
    place = np.arange(start, start + count)
    along = place // inner % info.shape[axis]
    if group is None:
        return along
    groups = -(-info.shape[axis] // group)
    outer = place // (inner * info.shape[axis])
    return (outer * groups + along // group) * inner + place % inner
