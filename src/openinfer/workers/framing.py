"""Messages between a process and its workers: a JSON object, and tensors as raw bytes. Nothing in them is executed."""

import json
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import ml_dtypes
import numpy as np

from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError
from openinfer.ops import Array
from openinfer.tensor import any_array

WorkerMessage = dict[str, Any]
NamedArrays = Mapping[str, Any]
"""Arrays by name, or values that NumPy converts to arrays."""


def send(connection: "Connection[Any, Any]", message: Mapping[str, Any], tensors: NamedArrays | None = None) -> None:
    """Send an object, followed by tensors."""
    arrays = {name: _sendable(name, one) for name, one in (tensors or {}).items()}
    kinds = [[name, one.dtype.name, list(one.shape)] for name, one in arrays.items()]
    connection.send_bytes(json.dumps({**message, "tensors": kinds}).encode())
    for array in arrays.values():
        if array.nbytes:
            connection.send_bytes(array.reshape(-1).view(np.uint8).data)


def _sendable(name: str, value: Any) -> Array:
    """A value as a contiguous array of numbers; nothing else can be sent."""
    array = any_array(value)
    if array.dtype.kind not in "biuf" and not hasattr(ml_dtypes, array.dtype.name):
        message = f"the value of {name!r} is an array of {array.dtype}, which no tensor can hold"
        raise ExecutionError(Diagnostic(Code.UNSUPPORTED_ARRAY, message))
    return np.ascontiguousarray(array).reshape(array.shape)


def received(connection: "Connection[Any, Any]") -> tuple[WorkerMessage, dict[str, Array]]:
    """Receive the next object and its tensors; ``EOFError`` or ``OSError`` if the other side is gone."""
    message: WorkerMessage = json.loads(connection.recv_bytes())
    tensors: dict[str, Array] = {}
    for name, kind, shape in message.pop("tensors"):
        dtype = _dtype(kind)
        has_bytes = bool(int(np.prod(shape, dtype=np.int64)))
        data = connection.recv_bytes() if has_bytes else b""
        tensors[name] = np.frombuffer(data, dtype).reshape(shape)
    return message, tensors


def _dtype(name: str) -> "np.dtype[Any]":
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def told_error(error: OpenInferError) -> list[dict[str, str | None]]:
    """The diagnostics of an error as plain values."""
    return [{"code": str(one.code), "message": one.message, "help": one.help} for one in error.diagnostics]


def heard_error(told: list[dict[str, str | None]]) -> ExecutionError:
    """The error that the other side has reported."""
    return ExecutionError(*(Diagnostic(Code(str(one["code"])), str(one["message"]), None, one["help"]) for one in told))
