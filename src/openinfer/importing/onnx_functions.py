"""Definitions of op types that ONNX itself composes of others."""

from collections.abc import Sequence
from typing import Any

from openinfer.importing.draft import DraftOperand
from openinfer.importing.onnx_model import OnnxFunction, OnnxGraph, OnnxNode, OnnxTensor
from openinfer.importing.onnx_read import function_of, onnx_package, plain_attribute
from openinfer.importing.onnx_tensors import ELEMENT_TYPES, TensorReader
from openinfer.loops.dim import is_symbolic

_CODES = {name: code for code, name in ELEMENT_TYPES.items()}


def function_body(node: OnnxNode, opset: int, operands: Sequence[DraftOperand | None]) -> OnnxFunction | None:
    """The definition of an op type in terms of others, if ONNX has one."""
    onnx = onnx_package()
    try:
        schema = onnx.defs.get_schema(node.op, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    body = _body(onnx, schema, node, opset, operands)
    if body is None or not body.node:
        return None
    found = function_of(body, _attribute)
    return OnnxFunction(
        found.domain,
        found.name or node.op,
        "",
        tuple(
            schema.inputs[place].name if place >= len(body.input) else name for place, name in enumerate(found.inputs)
        ),
        found.outputs,
        found.nodes,
        found.opsets or {"": opset},
        _defaults(schema),
    )


def _defaults(schema: Any) -> dict[str, Any]:
    found = {}
    for name, attribute in schema.attributes.items():
        value = attribute.default_value
        if value.name or value.type:
            found[name] = _attribute(value)
    return found


def _attribute(proto: Any) -> Any:
    if proto.ref_attr_name:
        from openinfer.importing.onnx_model import AttributeRef

        return AttributeRef(proto.ref_attr_name)
    if proto.type == proto.TENSOR:
        return TensorReader("").read(proto.t)
    if proto.type == proto.GRAPH:
        return _graph(proto.g)
    return plain_attribute(proto)


def _graph(proto: Any) -> OnnxGraph:
    from openinfer.importing.onnx_model import OnnxValueInfo

    function = function_of(_AsFunction(proto), _attribute)
    return OnnxGraph(
        proto.name,
        function.nodes,
        tuple(OnnxValueInfo(one.name, None, None, "") for one in proto.input),
        tuple(OnnxValueInfo(one.name, None, None, "") for one in proto.output),
        {one.name: TensorReader("").read(one) for one in proto.initializer},
    )


class _AsFunction:
    """A graph with the fields of a function."""

    def __init__(self, proto: Any) -> None:
        self.node, self.domain, self.name = proto.node, "", proto.name
        self.input, self.output = [one.name for one in proto.input], [one.name for one in proto.output]
        self.opset_import: list[Any] = []
        self.attribute_proto: list[Any] = []


def _body(onnx: Any, schema: Any, node: OnnxNode, opset: int, operands: Sequence[DraftOperand | None]) -> Any:
    """The plain body, or the one that depends on the operand types."""
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = [_type(onnx, one) for one in operands]
    versions = [one for one in schema.context_dependent_function_opset_versions if one <= opset]
    proto = onnx.helper.make_node(node.op, node.inputs, node.outputs, **_plain(node))
    if not versions:
        return None
    data = schema.get_context_dependent_function_with_opset_version(
        max(versions), proto.SerializeToString(), [one.SerializeToString() for one in types]
    )
    body = onnx.FunctionProto()
    body.ParseFromString(data)
    return body


def _plain(node: OnnxNode) -> dict[str, Any]:
    return {name: value for name, value in node.attributes.items() if not isinstance(value, OnnxTensor | OnnxGraph)}


def _type(onnx: Any, operand: DraftOperand | None) -> Any:
    if operand is None:
        return onnx.TypeProto()
    shape = [None if is_symbolic(one) else int(one) for one in operand.shape]
    return onnx.helper.make_tensor_type_proto(_CODES[operand.dtype.name], shape)
