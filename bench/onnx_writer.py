"""A small writer of ONNX graphs (nodes and constants in, the bytes of a model out), and ONNX Runtime on them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = Any


class Onnx:
    """A graph that is being written. Values are named by those who make them, or by their number."""

    def __init__(self, constants: Mapping[str, Array] | None = None) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = dict(constants or {})

    def node(self, op: str, *inputs: str, output: str | None = None, domain: str = "", **attributes: Any) -> str:
        return self.nodes_of(op, inputs, (output or f"v{len(self.nodes)}",), domain=domain, **attributes)[0]

    def nodes_of(
        self, op: str, inputs: tuple[str, ...], outputs: tuple[str, ...], **attributes: Any
    ) -> tuple[str, ...]:
        """A node with several results."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), **attributes))
        return outputs

    def ints(self, *values: int) -> str:
        """A constant list of integers."""
        name = "ints_" + "_".join(map(str, values))
        self.constants[name] = np.array(values, np.int64)
        return name

    def number(self, value: float) -> str:
        """A constant f32."""
        name = f"number_{value!r}"
        self.constants[name] = np.array(value, np.float32)
        return name

    def linear(self, x: str, w: str, b: str) -> str:
        return self.node("Add", self.node("MatMul", x, w), b)

    def gelu(self, x: str) -> str:
        erf = self.node("Erf", self.node("Div", x, self.number(2**0.5)))
        gate = self.node("Mul", self.node("Add", erf, self.number(1.0)), self.number(0.5))
        return self.node("Mul", x, gate)

    def model(self, inputs: Mapping[str, Array], outputs: Mapping[str, tuple[int, ...]]) -> bytes:
        """The model: arrays of the inputs' dtypes and shapes, and the shapes of the outputs, which are f32."""
        from onnx import TensorProto, helper, numpy_helper

        graph = helper.make_graph(
            self.nodes,
            "model",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                for name, value in inputs.items()
            ],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
            [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in self.constants.items()],
        )
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())


def ort(model: bytes, threads: int) -> Any:
    """An ONNX Runtime session with so many threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
