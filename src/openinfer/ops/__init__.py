"""The op records: types, shapes, parameters, reference, cost, documentation and test inputs of every op.

Knows nothing of graphs, executors or targets. Importing the package registers all ops.
"""

from openinfer.dtypes import Array
from openinfer.ops import (
    activation,
    attention,
    binary,
    casts,
    convolution,
    fill,
    filters,
    indexing,
    linear,
    move,
    normalise,
    parts,
    pool,
    recurrent,
    reduce,
    resize,
    rotary,
    sample,
    scan,
    signal,
    sorting,
    unary,
)
from openinfer.ops.arguments import complete, slots, spec_of, usage
from openinfer.ops.infer import infer, type_variables, with_dtypes
from openinfer.ops.kernel import ReferenceKernel, apply, op_named
from openinfer.ops.record import OPS, Call, Case, OpCost, OpRecord, Param
from openinfer.ops.types import OpError, Shape, TensorType

__all__ = [
    "OPS",
    "Array",
    "Call",
    "Case",
    "OpCost",
    "OpError",
    "OpRecord",
    "Param",
    "ReferenceKernel",
    "Shape",
    "TensorType",
    "activation",
    "apply",
    "attention",
    "binary",
    "casts",
    "complete",
    "convolution",
    "fill",
    "filters",
    "indexing",
    "infer",
    "linear",
    "move",
    "normalise",
    "op_named",
    "parts",
    "pool",
    "recurrent",
    "reduce",
    "resize",
    "rotary",
    "sample",
    "scan",
    "signal",
    "slots",
    "sorting",
    "spec_of",
    "type_variables",
    "unary",
    "usage",
    "with_dtypes",
]
