"""The interface of every source: named tensors whose elements can be read run by run."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, FileSpan, OinfError
from openinfer.oinf.file import open_regular
from openinfer.oinf.metadata import MetadataValue
from openinfer.oinf.package import Blob
from openinfer.oinf.quant import QuantParams
from openinfer.oinf.quantize import ReadElements


@dataclass(frozen=True)
class SourceTensor:
    """A tensor of a weights file.

    ``dtype`` is None if the source's element type has no counterpart here: the values must then be cast or, if ``read``
    is None as well, left out. ``read`` is also None for a tensor without data. ``stored`` holds the bytes if they can
    be copied unchanged.
    """

    name: str
    type_name: str
    dtype: DType | None
    shape: tuple[int, ...]
    read: ReadElements | None
    stored: Blob | None = None
    quant: QuantParams | None = None

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def values(self, start: int, count: int) -> npt.NDArray[Any]:
        """A run of elements, flat, in row-major order."""
        assert self.read is not None, self.name
        elements = self.read(start, count)
        if elements.dtype == np.bool_ and elements.view(np.uint8).max(initial=0) > 1:
            message = f"tensor {self.name!r} is bool but holds bytes other than 0 and 1"
            raise OinfError(Diagnostic(Code.BAD_WEIGHTS_FILE, message))
        return elements

    @property
    def is_float(self) -> bool:
        """Whether the values are real numbers (all foreign element types that can be read are)."""
        return self.dtype is None or self.dtype.kind == "float"


@dataclass(frozen=True)
class TensorSource:
    """A weights file: its tensors, and what else a model file takes from it."""

    path: str
    tensors: list[SourceTensor]
    sizevars: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    """Entries of the file that are not tensors."""


def read_elements(descriptor: int, path: str, offset: int, dtype: "np.dtype[Any]") -> ReadElements:
    """A reader of elements stored in an open file from ``offset`` on."""

    def read(start: int, count: int) -> npt.NDArray[Any]:
        values = np.empty(count, dtype)
        buffer = memoryview(values.view(np.uint8).data)
        done = 0
        while done < len(buffer):
            size = os.preadv(descriptor, [buffer[done:]], offset + start * dtype.itemsize + done)
            if size == 0:
                raise bad_weights(path, "it was cut off while it was being read")
            done += size
        return values

    return read


def read_whole(load: Callable[[], npt.NDArray[Any]]) -> ReadElements:
    """A reader of a tensor that can only be loaded whole; it is released after its last element."""
    held: npt.NDArray[Any] | None = None

    def read(start: int, count: int) -> npt.NDArray[Any]:
        nonlocal held
        if held is None:
            held = np.ascontiguousarray(load()).reshape(-1)
        piece = held[start : start + count]
        if start + count == held.size:
            held = None
        return piece

    return read


def open_weights(path: str, resources: ExitStack) -> tuple[int, int]:
    """The descriptor and the size of a weights file; it is closed with the resources."""
    descriptor, size = open_regular(path)
    resources.callback(os.close, descriptor)
    return descriptor, size


def bad_weights(path: str, reason: str, advice: str | None = None) -> OinfError:
    """The error for a weights file that violates its own format."""
    return OinfError(Diagnostic(Code.BAD_WEIGHTS_FILE, f"{path!r} cannot be read: {reason}", FileSpan(path), advice))
