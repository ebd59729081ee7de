"""Torch state dicts, loaded with ``weights_only``: a file that wants to run code is refused by torch itself."""

import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openinfer.dtypes import from_numpy_dtype
from openinfer.errors import Code, Diagnostic, MissingExtraError
from openinfer.oinf.sources.tensor import Source, SourceTensor, bad_weights, open_weights, read_whole

_BROKEN = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    RuntimeError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    EOFError,
    ImportError,
    OverflowError,
)
"""What ``torch.load`` raises for files that are not what they should be."""

_ARRAY_TYPES: dict[str, type[np.generic]] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "int64": np.int64,
    "int32": np.int32,
    "int16": np.int16,
    "int8": np.int8,
    "uint64": np.uint64,
    "uint32": np.uint32,
    "uint16": np.uint16,
    "uint8": np.uint8,
    "bool": np.bool_,
}


def open_torch(path: str, resources: ExitStack) -> Source:
    """The tensors of a state dict; nested dicts give dotted names, other values are skipped and named."""
    torch = _torch()
    descriptor, _ = open_weights(path, resources)
    try:
        # Only the zip form of a checkpoint can be mapped; the legacy form is read whole.
        is_zip = os.pread(descriptor, 4, 0) == b"PK\3\4"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except _BROKEN as error:
        raise bad_weights(path, str(error).partition("\n")[0] or type(error).__name__) from error
    tensors, skipped = [], []
    for name, value in _leaves(content, ""):
        if isinstance(value, torch.Tensor):
            tensors.append(_tensor(name, value, torch))
        else:
            skipped.append(name)
    if not tensors:
        raise bad_weights(path, "it holds no tensors")
    return Source(path, tensors, skipped=skipped)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            Diagnostic(
                Code.MISSING_EXTRA,
                "reading torch files needs PyTorch, which is not installed",
                help="pip install 'openinfer[torch]'",
            )
        ) from error
    return torch


def _leaves(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield prefix or "the whole file", value
        return
    for key, item in value.items():
        yield from _leaves(item, f"{prefix}.{key}" if prefix else str(key))


def _tensor(name: str, tensor: Any, torch: Any) -> SourceTensor:
    type_name = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    array_type = _ARRAY_TYPES.get(type_name)
    if array_type is None or tensor.layout != torch.strided:
        kind = type_name if tensor.layout == torch.strided else f"{tensor.layout} of {type_name}"
        return SourceTensor(name, kind, None, shape, None)
    array_dtype: np.dtype[Any] = np.dtype(array_type)
    dtype = from_numpy_dtype(array_dtype)

    def elements(flat: Any) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = flat.contiguous().view(torch.uint8).numpy().view(array_dtype)
        return values

    if not tensor.is_contiguous():
        return SourceTensor(name, type_name, dtype, shape, read_whole(lambda: elements(tensor.detach().reshape(-1))))
    flat = tensor.detach().reshape(-1)
    return SourceTensor(name, type_name, dtype, shape, lambda start, count: elements(flat[start : start + count]))
