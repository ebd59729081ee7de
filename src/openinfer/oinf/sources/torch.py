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
from openinfer.errors import Code, Diagnostic, MissingExtraError, OinfError, without_colours
from openinfer.oinf.sources.tensor import SourceTensor, TensorSource, bad_weights, open_weights, read_whole

_BROKEN = (
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    struct.error,
    OSError,
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
"""The exceptions of torch for malformed files."""

_MAX_DEPTH = 200
_MAX_ENTRIES = 1_000_000

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


def open_torch(path: str, resources: ExitStack) -> TensorSource:
    """The tensors of a state dict; nested dicts give dotted names, other values are skipped and listed."""
    torch = _torch()
    descriptor, _ = open_weights(path, resources)
    try:
        # Only the zip form of a checkpoint can be mapped; the legacy form is read whole.
        is_zip = os.pread(descriptor, 4, 0) == b"PK\3\4"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
        leaves = list(_leaves(path, content))
        tensors = [_tensor(path, name, value, torch) for name, value in leaves if isinstance(value, torch.Tensor)]
        skipped = [name for name, value in leaves if not isinstance(value, torch.Tensor)]
    except _BROKEN as error:
        raise _broken(path, error) from error
    if not tensors:
        raise bad_weights(path, "it holds no tensors")
    return TensorSource(path, tensors, skipped=skipped)


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


def _broken(path: str, error: Exception, tensor: str | None = None) -> OinfError:
    """The typed error for what torch raised, about the file or about one of its tensors."""
    reason = without_colours(str(error)).partition("\n")[0] or type(error).__name__
    if reason.startswith("Weights only load failed"):
        # Torch goes on to say how to load it all the same, which would run code in the file.
        reason = "it holds other Python objects than tensors, and loading those can run code"
        advice = "save the tensors alone: torch.save(model.state_dict(), path)"
        return bad_weights(path, reason, advice)
    return bad_weights(path, reason if tensor is None else f"tensor {tensor!r}: {reason}")


def _leaves(path: str, content: Any) -> Iterator[tuple[str, Any]]:
    """All values in nested dicts that are not dicts themselves, in order, with dotted names.

    A pickle can put a dict into itself, or one dict into many places: hence the limits.
    """
    waiting: list[tuple[str, int, Any]] = [("", 0, content)]
    seen = 0
    while waiting:
        name, depth, value = waiting.pop()
        if not isinstance(value, Mapping):
            yield name or "the whole file", value
            continue
        seen += len(value)
        if depth == _MAX_DEPTH:
            raise bad_weights(path, f"its dicts are nested more than {_MAX_DEPTH} deep")
        if seen > _MAX_ENTRIES:
            raise bad_weights(path, f"its dicts have more than {_MAX_ENTRIES} entries")
        items = [(f"{name}.{key}" if name else str(key), depth + 1, item) for key, item in value.items()]
        waiting += reversed(items)


def _tensor(path: str, name: str, tensor: Any, torch: Any) -> SourceTensor:
    type_name = str(tensor.dtype).removeprefix("torch.")
    shape = tuple(tensor.shape)
    foreign = _foreign_form(tensor, type_name, torch)
    if foreign is not None:
        return SourceTensor(name, foreign, None, shape, None)
    array_dtype: np.dtype[Any] = np.dtype(_ARRAY_TYPES[type_name])

    def elements(start: int, count: int) -> npt.NDArray[Any]:
        try:
            flat = tensor.detach().reshape(-1)[start : start + count]
            values: npt.NDArray[Any] = flat.contiguous().view(torch.uint8).numpy().view(array_dtype)
        except _BROKEN as error:
            raise _broken(path, error, name) from error
        return values

    read = elements if tensor.is_contiguous() else read_whole(lambda: elements(0, tensor.numel()))
    return SourceTensor(name, type_name, from_numpy_dtype(array_dtype), shape, read)


def _foreign_form(tensor: Any, type_name: str, torch: Any) -> str | None:
    """The kind of tensor this is, if its values cannot be read; otherwise None."""
    if tensor.layout != torch.strided:
        return f"{tensor.layout} of {type_name}"
    if tensor.device.type != "cpu":
        return f"{type_name} on device {tensor.device}"
    if type_name not in _ARRAY_TYPES:
        return type_name
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        # A few stored bytes can claim any size: such a view could fill memory and disk.
        return f"{type_name} expanded from fewer stored values"
    return None
