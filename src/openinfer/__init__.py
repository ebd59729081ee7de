"""OpenInfer: explicit inference graphs, simulated step by step and synthesized to plain source code.

The public names are imported when they are first used, so that ``import openinfer`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from openinfer._version import VERSION

if TYPE_CHECKING:
    from openinfer.dtypes import DTYPES, DType, dtype_of
    from openinfer.errors import (
        Code,
        Diagnostic,
        GraphError,
        MissingExtraError,
        OinfError,
        OpenInferError,
        TensorError,
    )
    from openinfer.ir import Graph
    from openinfer.ir.builder import GraphBuilder
    from openinfer.lang import graph, load_graph
    from openinfer.oinf import ModelLoader
    from openinfer.tensor import Tensor

__version__ = VERSION

_HOMES = {
    "DTYPES": "dtypes",
    "Code": "errors",
    "DType": "dtypes",
    "Diagnostic": "errors",
    "Graph": "ir",
    "GraphBuilder": "ir.builder",
    "GraphError": "errors",
    "MissingExtraError": "errors",
    "ModelLoader": "oinf",
    "OinfError": "errors",
    "OpenInferError": "errors",
    "Tensor": "tensor",
    "TensorError": "errors",
    "dtype_of": "dtypes",
    "graph": "lang",
    "load_graph": "lang",
}

__all__ = [
    "DTYPES",
    "Code",
    "DType",
    "Diagnostic",
    "Graph",
    "GraphBuilder",
    "GraphError",
    "MissingExtraError",
    "ModelLoader",
    "OinfError",
    "OpenInferError",
    "Tensor",
    "TensorError",
    "__version__",
    "dtype_of",
    "graph",
    "load_graph",
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
