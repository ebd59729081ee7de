"""OpenInfer: explicit inference graphs, simulated step by step and synthesized to plain source code."""

from openinfer._version import VERSION
from openinfer.dtypes import DTYPES, DType, dtype_of
from openinfer.errors import Code, Diagnostic, MissingExtraError, OinfError, OpenInferError, TensorError
from openinfer.oinf import ModelLoader
from openinfer.tensor import Tensor

__version__ = VERSION

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
