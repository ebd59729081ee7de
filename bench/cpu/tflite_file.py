"""A small writer of TFLite files: tensors and operators in, the bytes of a flatbuffer out.

The classes of the format come with LiteRT, so that this module is imported in its environment only.
"""

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Array = Any
TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "int8": schema.TensorType.INT8,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "uint8": schema.TensorType.UINT8,
    "bool": schema.TensorType.BOOL,
}
VERSION = 3
MOST_RECENT = {"FULLY_CONNECTED": 5, "CONV_2D": 5, "DEPTHWISE_CONV_2D": 4, "BATCH_MATMUL": 2, "ADD": 2, "MUL": 2}
"""Versions of operators whose newer options are used; others are of version 1, which the runtime reads as well."""


class TfLite:
    """A graph that is being written. Tensors are numbers."""

    def __init__(self) -> None:
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.buffers = [schema.BufferT()]
        self.codes: dict[str, int] = {}
        self._constants: dict[bytes, int] = {}

    def tensor(self, shape: tuple[int, ...], dtype: str = "float32", quant: Any = None, data: Array = None) -> int:
        """A new tensor; ``quant`` is scales, zero points, and the axis that they belong to."""
        one = schema.TensorT()
        one.name, one.shape, one.type = f"t{len(self.graph.tensors)}", list(shape), TYPES[dtype]
        one.buffer = 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.buffers.append(buffer)
            one.buffer = len(self.buffers) - 1
        if quant is not None:
            scales, zeros, axis = quant
            one.quantization = schema.QuantizationParametersT()
            one.quantization.scale = np.atleast_1d(scales).astype(np.float32)
            one.quantization.zeroPoint = np.atleast_1d(zeros).astype(np.int64)
            one.quantization.quantizedDimension = axis
        self.graph.tensors.append(one)
        return len(self.graph.tensors) - 1

    def constant(self, data: Array, quant: Any = None) -> int:
        data = np.ascontiguousarray(data)
        return self.tensor(data.shape, data.dtype.name, quant, data)

    def operator(self, code: str, inputs: list[int], outputs: list[int], options: Any = None) -> None:
        one = schema.OperatorT()
        one.opcodeIndex = self.codes.setdefault(code, len(self.codes))
        one.inputs, one.outputs = inputs, outputs
        if options is not None:
            one.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
            one.builtinOptions = options
        self.graph.operators.append(one)

    def finished(self) -> bytes:
        model = schema.ModelT()
        model.version, model.subgraphs, model.buffers = VERSION, [self.graph], self.buffers
        model.description, model.operatorCodes = "bench", []
        for code in self.codes:
            one = schema.OperatorCodeT()
            one.builtinCode = getattr(schema.BuiltinOperator, code)
            one.deprecatedBuiltinCode = min(one.builtinCode, 127)
            one.version = MOST_RECENT.get(code, 1)
            model.operatorCodes.append(one)
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def options(kind: str, **values: Any) -> Any:
    """The options of an operator, by the names that the format has."""
    found = getattr(schema, f"{kind}OptionsT")()
    for name, value in values.items():
        setattr(found, name, value)
    return found
