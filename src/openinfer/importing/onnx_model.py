"""An ONNX model as plain records: what the file says, before any interpretation. Knows nothing of protobuf."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from openinfer.dtypes import Array, DType


@dataclass(frozen=True)
class OnnxTensor:
    """A tensor of the file: the elements as ``dtype.array``."""

    dtype: DType
    array: Array


@dataclass(frozen=True)
class OnnxDim:
    """A dimension of a declared type: a number, a name (which can be an expression), or neither."""

    value: int | None = None
    name: str = ""


@dataclass(frozen=True)
class OnnxValueInfo:
    """An input or output of the model. ``dtype`` is None if it is not a tensor or has no dtype here."""

    name: str
    dtype: DType | None
    dims: tuple[OnnxDim, ...] | None
    kind: str
    """The type in words, for messages."""


AttributeValue = Union[
    int, float, str, tuple[int, ...], tuple[float, ...], tuple[str, ...], OnnxTensor, "OnnxGraph", None
]


@dataclass(frozen=True)
class AttributeRef:
    """In the body of a function: refers to the attribute of the caller with this name."""

    name: str


@dataclass(frozen=True)
class OnnxNode:
    """A node; omitted inputs have empty names."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue | AttributeRef]
    overload: str = ""

    @property
    def kind(self) -> str:
        """The op type, with its domain unless that is ONNX's own."""
        return f"{self.domain}:{self.op}" if self.domain else self.op

    @property
    def title(self) -> str:
        """What messages call the node: its name, or its first output."""
        return self.name or next((name for name in self.outputs if name), "without a name")


@dataclass(frozen=True)
class OnnxGraph:
    """Nodes in topological order, with the inputs, outputs and tensors of the graph."""

    name: str
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[OnnxValueInfo, ...]
    outputs: tuple[OnnxValueInfo, ...]
    tensors: Mapping[str, OnnxTensor]


@dataclass(frozen=True)
class OnnxFunction:
    """A function that a node can call by domain and name."""

    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    opsets: Mapping[str, int]
    defaults: Mapping[str, AttributeValue | AttributeRef] = field(default_factory=dict)


@dataclass(frozen=True)
class OnnxModel:
    """A whole file."""

    path: str
    graph: OnnxGraph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], OnnxFunction]
