"""How two model files differ: which sizes, metadata and tensors, and by how much."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.oinf.channels import blocks
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.parse import TensorInfo
from openinfer.oinf.payloads import Value
from openinfer.oinf.quantize import Loss
from openinfer.oinf.report import number_text
from openinfer.oinf.statistics import PIECE
from openinfer.tensor import Tensor


@dataclass(frozen=True)
class Difference:
    """One entry that is not the same on both sides; a side is None where the entry is absent."""

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
            "max_error": None if loss is None else loss.largest,
            "rms_error": None if loss is None else loss.rms,
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


def diff(left: ModelLoader, right: ModelLoader) -> list[Difference]:
    """All differences, sizes first, then metadata, then tensors, each by name."""
    return [
        *_plain("size", _texts(left.sizevars), _texts(right.sizevars)),
        *_plain("metadata", _metadata(left), _metadata(right)),
        *_tensors(left, right),
    ]


def _texts(values: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _metadata(model: ModelLoader) -> dict[str, str]:
    return {name: f"{info.type_name} {_exact(model.metadata[name])}" for name, info in model.metadata_info.items()}


def _exact(value: Value) -> str:
    """A value so that different values look different."""
    return str(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


def _plain(table: str, left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield Difference(table, name, left.get(name), right.get(name))


def _tensors(left: ModelLoader, right: ModelLoader) -> Iterator[Difference]:
    for name in sorted(left.tensors.keys() | right.tensors.keys()):
        first, second = left.tensors.get(name), right.tensors.get(name)
        if first is None or second is None:
            yield Difference("tensor", name, first and _type(first), second and _type(second))
        elif first.shape != second.shape or first.has_data != second.has_data:
            yield Difference("tensor", name, _type(first), _type(second))
        elif first.has_data:
            yield from _values(left, right, first, second)
        elif _type(first) != _type(second) or first.quant != second.quant:
            yield Difference("tensor", name, _type(first), _type(second))


def _type(info: TensorInfo) -> str:
    quant = f" {info.quant.describe()}" if info.quant is not None else ""
    return f"{info.type_text}{quant}" if info.has_data else f"{info.type_text}{quant} uninitialized"


def _values(left: ModelLoader, right: ModelLoader, first: TensorInfo, second: TensorInfo) -> Iterator[Difference]:
    same_type = first.dtype is second.dtype and first.quant == second.quant
    one, other = left.load(first.name), right.load(second.name)
    if same_type and np.array_equal(one.raw(), other.raw()):
        return
    loss, changed = Loss(), 0
    for a, b in zip(_real(one, first), _real(other, second), strict=True):
        loss.add(a, b)
        changed += int(((a != b) & ~(np.isnan(a) & np.isnan(b))).sum())
    detail = f"{changed} of {one.size} values differ"
    if changed:
        detail += f", by at most {number_text(loss.largest)}, rms {number_text(loss.rms)}"
    yield Difference("tensor", first.name, _type(first), _type(second), detail, changed, loss)


def _real(tensor: Tensor, info: TensorInfo) -> Iterator[npt.NDArray[np.float64]]:
    """The real values of a tensor, dequantized where it is quantized, in pieces that depend on its size only."""
    flat = Tensor(tensor.dtype, (tensor.size,), tensor.storage)
    for start in range(0, tensor.size, PIECE):
        yield (
            flat[start : start + PIECE].to_numpy().astype(np.float64)
            if info.quant is None
            else _dequantized(flat, info, start)
        )


def _dequantized(flat: Tensor, info: TensorInfo, start: int) -> npt.NDArray[np.float64]:
    assert info.quant is not None
    stored = flat[start : start + PIECE].to_numpy().astype(np.float64)
    axis = info.quant.scale.axis
    channel: Any = 0
    if axis is not None:
        whole = next(blocks(info.shape, axis, flat.size))
        channel = np.arange(start, start + stored.size) // whole.inner % info.shape[axis]
    if info.quant.zero_point is not None:
        stored -= info.quant.zero_point.values[channel]
    stored *= info.quant.scale.values[channel]
    return stored
