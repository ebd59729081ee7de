"""Nodes of ONNX as ops of the language: a table of translators, one module for each family."""

from openinfer.importing.translate import (
    control,
    elementwise,
    generate,
    linear,
    move,
    normalise,
    pool,
    quantized,
    recurrent,
    reduce,
    regions,
    sampling,
    signal,
    unpool,
)
from openinfer.importing.translate.context import TABLE, NodeContext, NodeResults, Translator

__all__ = [
    "TABLE",
    "NodeContext",
    "NodeResults",
    "Translator",
    "control",
    "elementwise",
    "generate",
    "linear",
    "move",
    "normalise",
    "pool",
    "quantized",
    "recurrent",
    "reduce",
    "regions",
    "sampling",
    "signal",
    "unpool",
]
