"""Requests and answers as JSON, with the extension that appends tensors as raw bytes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openinfer.errors import OpenInferError
from openinfer.ops import Array
from openinfer.serve.datatypes import checked_shape, from_bytes, from_list, to_list
from openinfer.serve.messages import GivenTensor, InferAnswer, InferRequest, with_parameters
from openinfer.serve.problems import bad_request

HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class WantedForm:
    """The outputs that a client wants as bytes."""

    is_binary: bool = False
    """The default for outputs that are not named."""
    named: Mapping[str, bool] | None = None

    def is_binary_for(self, name: str) -> bool:
        """Whether an output is sent as bytes."""
        return (self.named or {}).get(name, self.is_binary)


@dataclass(frozen=True)
class EncodedAnswer:
    """The body of an answer; ``header_length`` is the length of its JSON if bytes follow."""

    body: bytes
    header_length: int | None = None


def decoded_json(data: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        found = json.loads(data, parse_constant=_refused_constant)
    except RecursionError:
        raise bad_request("the JSON of the request is nested too deeply") from None
    except (ValueError, UnicodeError) as error:
        raise bad_request(f"the request is not JSON: {str(error)[:100]}") from error
    if not isinstance(found, dict):
        raise bad_request("the request is not a JSON object")
    return found


def _refused_constant(text: str) -> float:
    message = f"{text} is not a JSON number"
    raise ValueError(message)


def decoded_request(body: bytes, header: str | None) -> tuple[InferRequest, WantedForm]:
    """Decode a request and the wanted form of its answer. ``header`` is the length of its JSON if bytes follow."""
    length = _length(header, len(body))
    facts = decoded_json(body[:length])
    rest = memoryview(body)[length:]
    inputs, used = {}, 0
    for tensor in _objects(facts, "inputs"):
        name, given, size = _input(tensor, rest[used:])
        if name in inputs:
            raise bad_request(f"there are two inputs {name[:80]!r}")
        inputs[name], used = given, used + size
    if used != len(rest):
        raise bad_request(f"{len(rest) - used} bytes after the JSON belong to no input")
    parameters = _object(facts, "parameters")
    named = {_name(one): _is_binary(one) for one in _objects(facts, "outputs")} if facts.get("outputs") else {}
    everything = parameters.get("binary_data_output", False)
    if not isinstance(everything, bool):
        raise bad_request("binary_data_output is true or false")
    wished = {name: found for name, found in named.items() if found is not None}
    request_id = facts.get("id", "")
    if not isinstance(request_id, str):
        raise bad_request("the id of a request is a text")
    request = with_parameters(InferRequest(inputs, tuple(named), request_id), parameters)
    return request, WantedForm(everything, wished)


def _length(header: str | None, most: int) -> int:
    if header is None:
        return most
    if not (header.isascii() and header.isdigit()) or len(header) > 15 or int(header) > most:
        raise bad_request(f"{HEADER_LENGTH} is the number of bytes that the JSON has")
    return int(header)


def _input(facts: Mapping[str, Any], rest: memoryview) -> tuple[str, GivenTensor, int]:
    """An input, and how many of the bytes after the JSON belong to it."""
    name, datatype = _name(facts), facts.get("datatype")
    if not isinstance(datatype, str):
        raise bad_request(f"the input {name[:80]!r} has no datatype")
    shape = checked_shape(name, facts.get("shape"))
    size = _object(facts, "parameters").get("binary_data_size")
    if size is None:
        if "data" not in facts:
            raise bad_request(f"the input {name[:80]!r} has no data")
        return name, GivenTensor(datatype, _listed(name, datatype, shape, facts["data"])), 0
    if type(size) is not int or not 0 <= size <= len(rest):
        raise bad_request(f"binary_data_size of {name[:80]!r} is not a number of the bytes after the JSON")
    return name, GivenTensor(datatype, from_bytes(name, datatype, shape, rest[:size])), size


def _listed(name: str, datatype: str, shape: tuple[int, ...], data: object) -> Array:
    if not isinstance(data, list):
        raise bad_request(f"the data of {name[:80]!r} is not a list")
    try:
        return from_list(name, datatype, shape, data)
    except RecursionError:
        raise bad_request(f"the data of {name[:80]!r} is nested too deeply") from None


def _name(facts: Mapping[str, Any]) -> str:
    name = facts.get("name")
    if not isinstance(name, str):
        raise bad_request("a tensor has a name")
    return name


def _is_binary(facts: Mapping[str, Any]) -> bool | None:
    wished = _object(facts, "parameters").get("binary_data")
    if wished is not None and not isinstance(wished, bool):
        raise bad_request("binary_data is true or false")
    return wished


def _object(facts: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = facts.get(key) or {}
    if not isinstance(found, dict):
        raise bad_request(f"{key!r} is a JSON object")
    return found


def _objects(facts: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = facts.get(key, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise bad_request(f"{key!r} is a list of JSON objects")
    return found


def encoded_answer(answer: InferAnswer, form: WantedForm) -> EncodedAnswer:
    """Encode an answer as JSON, followed by the bytes of outputs that are wanted as bytes."""
    outputs: list[dict[str, Any]] = []
    chunks: list[bytes] = []
    for name, given in answer.outputs.items():
        facts: dict[str, Any] = {"name": name, "datatype": given.datatype, "shape": list(given.array.shape)}
        if form.is_binary_for(name):
            chunks.append(given.array.tobytes())
            facts["parameters"] = {"binary_data_size": len(chunks[-1])}
        else:
            facts["data"] = to_list(name, given.array)
        outputs.append(facts)
    head: dict[str, Any] = {"model_name": answer.model, "model_version": answer.version, "outputs": outputs}
    head |= {"id": answer.id} if answer.id else {}
    head |= {"parameters": dict(answer.parameters)} if answer.parameters else {}
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    return EncodedAnswer(b"".join((text, *chunks)), len(text) if chunks else None)


def encoded_error(error: OpenInferError, message: str) -> bytes:
    """Encode an error as in the protocol, a text, plus its code."""
    return json.dumps({"error": message, "code": str(error.code)}).encode()
