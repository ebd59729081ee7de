"""Requests and answers as gRPC messages."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from openinfer.ops import Array
from openinfer.serve.datatypes import checked_shape, from_bytes, from_numbers
from openinfer.serve.describe import DESCRIPTION
from openinfer.serve.messages import GivenTensor, InferAnswer, InferRequest, with_parameters
from openinfer.serve.problems import bad_request

SERVICE = "inference.GRPCInferenceService"
_CONTENTS = {
    "BOOL": ("bool_contents", np.bool_),
    **dict.fromkeys(("INT8", "INT16", "INT32"), ("int_contents", np.int32)),
    "INT64": ("int64_contents", np.int64),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), ("uint_contents", np.uint32)),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
}
"""By datatype, the field with the elements and their dtype in it; other datatypes are only sent as raw bytes."""


@cache
def _messages() -> Mapping[str, Any]:
    """The message classes, in a pool of their own: other packages may define the same names."""
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTION.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    names = [message.name for file in files.file for message in file.message_type]
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in names}


def message(name: str) -> Any:
    """A message class by name."""
    return _messages()[name]


def parsed(kind: str, data: bytes) -> Any:
    """Parse a message; malformed bytes are an error."""
    try:
        return message(kind).FromString(data)
    except DecodeError as error:
        raise bad_request(f"the bytes of the request are not a {kind}") from error


def decoded_message(request: Any) -> InferRequest:
    """Decode a request."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise bad_request(f"there are {len(request.inputs)} inputs, and the bytes of {len(raw)}")
    inputs = {}
    for at, tensor in enumerate(request.inputs):
        if tensor.name in inputs:
            raise bad_request(f"there are two inputs {tensor.name[:80]!r}")
        inputs[tensor.name] = GivenTensor(tensor.datatype, _array(tensor, raw[at] if raw else None))
    outputs = tuple(dict.fromkeys(one.name for one in request.outputs))
    return with_parameters(InferRequest(inputs, outputs, request.id), _values(request.parameters))


def _array(tensor: Any, raw: bytes | None) -> Array:
    shape = checked_shape(tensor.name, list(tensor.shape))
    if raw is not None:
        return from_bytes(tensor.name, tensor.datatype, shape, raw)
    listed = _CONTENTS.get(tensor.datatype)
    if listed is None:
        raise bad_request(f"elements of {tensor.datatype[:20]!r} go into raw_input_contents")
    field, element = listed
    return from_numbers(tensor.name, tensor.datatype, shape, np.array(getattr(tensor.contents, field), element))


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {name: one.WhichOneof("parameter_choice") for name, one in parameters.items()}
    return {name: getattr(parameters[name], choice) for name, choice in chosen.items() if choice is not None}


def encoded_message(answer: InferAnswer) -> Any:
    """Encode an answer, with its tensors as bytes."""
    found = message("ModelInferResponse")(model_name=answer.model, model_version=answer.version, id=answer.id)
    for name, given in answer.outputs.items():
        found.outputs.add(name=name, datatype=given.datatype, shape=given.array.shape)
        found.raw_output_contents.append(given.array.tobytes())
    for name, value in answer.parameters.items():
        kind = {bool: "bool_param", int: "int64_param"}.get(type(value), "string_param")
        setattr(found.parameters[name], kind, value)
    return found
