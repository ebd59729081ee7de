"""Diagnostics and the exceptions that carry them. Knows nothing of the rest of the package."""

from openinfer.errors.advice import Advice, Fix, FixPlace, fixes_of
from openinfer.errors.codes import Code
from openinfer.errors.diagnostic import (
    BatchError,
    DeviceError,
    Diagnostic,
    ExecutionError,
    GraphError,
    ImportingError,
    MissingExtraError,
    OinfError,
    OpenInferError,
    ServingError,
    TensorError,
    nearest,
)
from openinfer.errors.explain import Explanation, explanation
from openinfer.errors.render import printable, without_colours
from openinfer.errors.spans import ByteSpan, DocumentSpan, FileSpan, GraphPlace, Place, Source, Span
from openinfer.errors.words import counted

__all__ = [
    "Advice",
    "BatchError",
    "ByteSpan",
    "Code",
    "DeviceError",
    "Diagnostic",
    "DocumentSpan",
    "ExecutionError",
    "Explanation",
    "FileSpan",
    "Fix",
    "FixPlace",
    "GraphError",
    "GraphPlace",
    "ImportingError",
    "MissingExtraError",
    "OinfError",
    "OpenInferError",
    "Place",
    "ServingError",
    "Source",
    "Span",
    "TensorError",
    "counted",
    "explanation",
    "fixes_of",
    "nearest",
    "printable",
    "without_colours",
]
