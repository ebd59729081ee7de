"""OpenInfer: explicit inference graphs, simulated step by step and synthesized to plain source code.

The public names are imported when they are first used, so that ``import openinfer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openinfer._version import VERSION

if TYPE_CHECKING:
    from openinfer.dtypes import DTYPES, DType, dtype_of
    from openinfer.errors import Code, Diagnostic, MissingExtraError, OinfError, OpenInferError, TensorError
    from openinfer.oinf import ModelLoader
    from openinfer.tensor import Tensor

__version__ = VERSION

_HOMES = {
    "DTYPES": "dtypes",
    "Code": "errors",
    "DType": "dtypes",
    "Diagnostic": "errors",
    "MissingExtraError": "errors",
    "ModelLoader": "oinf",
    "OinfError": "errors",
    "OpenInferError": "errors",
    "Tensor": "tensor",
    "TensorError": "errors",
    "dtype_of": "dtypes",
}

__all__ = [
    "DTYPES",
    "Code",
    "DType",
    "Diagnostic",
    "MissingExtraError",
    "ModelLoader",
    "OinfError",
    "OpenInferError",
    "Tensor",
    "TensorError",
    "__version__",
    "dtype_of",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
