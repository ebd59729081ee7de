"""Values as one line of text."""

from typing import Any

import numpy as np

from openinfer.dtypes import from_numpy_dtype
from openinfer.errors import Code, Diagnostic, TensorError
from openinfer.tensor import as_array


def format_truncated(values: Any, shown: int = 5) -> str:
    """The first elements of an array as text, followed by dots if there are more.

    >>> format_truncated(np.arange(10, dtype=np.float32))
    '[0, 1, 2, 3, 4, ...]'
    >>> format_truncated(np.float32(2.5))
    '2.5'
    """
    array = as_array(values)
    if from_numpy_dtype(array.dtype) is None:
        message = f"an array of NumPy type {array.dtype} has no numbers to show"
        raise TensorError(Diagnostic(Code.UNSUPPORTED_ARRAY, message))
    if array.ndim == 0:
        return _element(array[()])
    elements = [_element(value) for value in array.reshape(-1)[: max(shown, 0)]]
    return f"[{', '.join([*elements, *(['...'] if array.size > len(elements) else [])])}]"


def _element(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if np.issubdtype(type(value), np.integer) else f"{float(value):.6g}"
