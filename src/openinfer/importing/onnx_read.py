"""Reads ONNX files into plain records. The file is hostile: nothing is trusted, nothing outside its folder read."""

import os
from collections.abc import Mapping
from typing import Any

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code, Diagnostic, MissingExtraError, printable
from openinfer.importing.onnx_model import (
    AttributeRef,
    AttributeValue,
    OnnxDim,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    OnnxTensor,
    OnnxValueInfo,
)
from openinfer.importing.onnx_tensors import ELEMENT_TYPES, TensorReader, TensorRefusal
from openinfer.importing.problems import bad_file

_DEEPEST = 64
"""How deeply graphs may be nested in attributes."""
_LARGEST = (1 << 31) - 1
"""The most bytes that protobuf reads."""
_OLDEST_OPSET = 7


def onnx_package() -> Any:
    """The package ``onnx``; the error says how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            Diagnostic(
                Code.MISSING_EXTRA,
                "importing ONNX models needs the package onnx, which is not installed",
                help="pip install 'openinfer[onnx]'",
            )
        ) from error
    return onnx


def read_onnx(path: str) -> OnnxModel:
    """The records of a file; raises coded errors."""
    onnx = onnx_package()
    from google.protobuf.message import DecodeError  # comes with onnx, which is optional

    proto = onnx.ModelProto()
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST:
                raise bad_file(path, "it is larger than 2 GiB", "store its weights as external data")
            proto.ParseFromString(file.read())
    except (OSError, ValueError) as error:
        raise bad_file(path, getattr(error, "strerror", None) or "the path is not one") from error
    except DecodeError as error:
        advice = "is it a .onnx or .gguf file, and complete?"
        raise bad_file(path, "it is neither an ONNX nor a GGUF model", advice) from error
    return _Reader(path).model(proto)


class _Reader:
    """Reads one file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._tensors = TensorReader(os.path.dirname(os.path.abspath(path)))

    def model(self, proto: Any) -> OnnxModel:
        opsets = {_text(one.domain).replace("ai.onnx.ml", "ml"): int(one.version) for one in proto.opset_import}
        opsets = {("" if domain == "ai.onnx" else domain): version for domain, version in opsets.items()}
        if not proto.HasField("graph"):
            raise bad_file(self._path, "it has no graph", "is it a .onnx or .gguf file, and complete?")
        version = opsets.setdefault("", 1 if not opsets else _OLDEST_OPSET)
        if version < _OLDEST_OPSET:
            advice = "convert it: onnx.version_converter.convert_version(model, 17)"
            raise bad_file(self._path, f"its opset is {version}; the oldest supported one is {_OLDEST_OPSET}", advice)
        functions = [self._function(one) for one in proto.functions]
        graph = self._graph(proto.graph, 0)
        return OnnxModel(self._path, graph, opsets, {(one.domain, one.name, one.overload): one for one in functions})

    def _graph(self, proto: Any, depth: int) -> OnnxGraph:
        if depth > _DEEPEST:
            raise bad_file(self._path, f"its graphs are nested more than {_DEEPEST} deep")
        tensors: dict[str, OnnxTensor] = {}
        for one in proto.initializer:
            tensors[_text(one.name)] = self._tensor(one, f"the initializer {_text(one.name)!r}")
        for one in proto.sparse_initializer:
            tensors[_text(one.values.name)] = self._sparse(one)
        nodes = tuple(self._node(one, depth) for one in proto.node)
        return OnnxGraph(
            _text(proto.name),
            self._ordered(nodes),
            tuple(self._value_info(one) for one in proto.input),
            tuple(self._value_info(one) for one in proto.output),
            tensors,
        )

    def _function(self, proto: Any) -> OnnxFunction:
        return function_of(proto, lambda attribute: self._attribute(attribute, 1))

    def _node(self, proto: Any, depth: int) -> OnnxNode:
        return _node_of(proto, {_text(one.name): self._attribute(one, depth) for one in proto.attribute})

    def _attribute(self, proto: Any, depth: int) -> AttributeValue | AttributeRef:
        if proto.ref_attr_name:
            return AttributeRef(_text(proto.ref_attr_name))
        if proto.type == proto.TENSOR:
            return self._tensor(proto.t, f"the attribute {_text(proto.name)!r}")
        if proto.type == proto.SPARSE_TENSOR:
            return self._sparse(proto.sparse_tensor)
        if proto.type == proto.GRAPH:
            return self._graph(proto.g, depth + 1)
        return plain_attribute(proto)

    def _tensor(self, proto: Any, what: str) -> OnnxTensor:
        try:
            return self._tensors.read(proto)
        except TensorRefusal as error:
            raise bad_file(self._path, f"{what}: {error}", error.advice) from error

    def _sparse(self, proto: Any) -> OnnxTensor:
        name = _text(proto.values.name)
        values, indices = (self._tensor(one, f"the sparse tensor {name!r}") for one in (proto.values, proto.indices))
        try:
            return self._tensors.dense(values, indices, tuple(proto.dims))
        except TensorRefusal as error:
            raise bad_file(self._path, f"the sparse tensor {name!r}: {error}") from error

    def _value_info(self, proto: Any) -> OnnxValueInfo:
        kind = proto.type.WhichOneof("value")
        name = _text(proto.name)
        if kind != "tensor_type":
            return OnnxValueInfo(name, None, None, (kind or "no type").removesuffix("_type").replace("_", " "))
        tensor = proto.type.tensor_type
        dtype = element_dtype(tensor.elem_type)
        dims = tuple(_dim(one) for one in tensor.shape.dim) if tensor.HasField("shape") else None
        word = dtype.name if dtype is not None else f"tensor of element type {tensor.elem_type}"
        return OnnxValueInfo(name, dtype, dims, word)

    def _ordered(self, nodes: tuple[OnnxNode, ...]) -> tuple[OnnxNode, ...]:
        """The nodes as they are, since ONNX requires them sorted. No value may be computed twice."""
        seen: set[str] = set()
        for node in nodes:
            for name in node.outputs:
                if name and name in seen:
                    raise bad_file(self._path, f"two nodes compute {printable(name)!r}")
                seen.add(name)
        return nodes


def function_of(proto: Any, attribute: Any) -> OnnxFunction:
    """A function; ``attribute`` reads the attributes of its nodes."""
    nodes = tuple(_node_of(one, {_text(a.name): attribute(a) for a in one.attribute}) for one in proto.node)
    domain = _text(proto.domain)
    return OnnxFunction(
        "" if domain == "ai.onnx" else domain,
        _text(proto.name),
        _text(getattr(proto, "overload", "")),
        tuple(map(_text, proto.input)),
        tuple(map(_text, proto.output)),
        nodes,
        {("" if one.domain == "ai.onnx" else _text(one.domain)): int(one.version) for one in proto.opset_import},
        {_text(one.name): attribute(one) for one in proto.attribute_proto},
    )


def _node_of(proto: Any, attributes: Mapping[str, AttributeValue | AttributeRef]) -> OnnxNode:
    domain = _text(proto.domain)
    return OnnxNode(
        _text(proto.op_type),
        "" if domain == "ai.onnx" else domain,
        _text(proto.name),
        tuple(map(_text, proto.input)),
        tuple(map(_text, proto.output)),
        attributes,
        _text(getattr(proto, "overload", "")),
    )


def plain_attribute(proto: Any) -> AttributeValue:
    """The value of an attribute that is neither a tensor nor a graph; None for kinds that no op here uses."""
    match proto.type:
        case proto.FLOAT:
            return float(proto.f)
        case proto.INT:
            return int(proto.i)
        case proto.STRING:
            return _text(proto.s)
        case proto.FLOATS:
            return tuple(map(float, proto.floats))
        case proto.INTS:
            return tuple(map(int, proto.ints))
        case proto.STRINGS:
            return tuple(map(_text, proto.strings))
    return None


def element_dtype(element_type: int) -> DType | None:
    """The dtype of an ONNX element type, or None."""
    found = ELEMENT_TYPES.get(element_type)
    return None if found is None else DTYPES[found]


def _dim(proto: Any) -> OnnxDim:
    if proto.WhichOneof("value") == "dim_value":
        value = int(proto.dim_value)
        return OnnxDim(value) if value >= 0 else OnnxDim()
    name = _text(proto.dim_param).strip()
    return OnnxDim(None, "" if name in ("", "?", "-1", "None") else name)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
