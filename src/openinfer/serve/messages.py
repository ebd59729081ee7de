"""Protocol-independent requests and answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from openinfer.ops import Array
from openinfer.serve.problems import bad_request

_MOST_STEPS = 1 << 20
_LONGEST_ID = 1024


@dataclass(frozen=True)
class SequencePart:
    """The session of a step, and whether the step begins it, ends it, or saves it before it is answered."""

    id: str
    starts: bool = False
    ends: bool = False
    saves: bool = False


@dataclass(frozen=True)
class GivenTensor:
    """A tensor of a request or an answer: its values, and the datatype it is sent as."""

    datatype: str
    array: Array


@dataclass(frozen=True)
class InferRequest:
    """Inputs for a step of a model."""

    inputs: Mapping[str, GivenTensor]
    outputs: tuple[str, ...] = ()
    """The requested outputs; empty for all of them."""
    id: str = ""
    sequence: SequencePart | None = None
    timeout: float | None = None
    """Seconds, from now on."""
    steps: int = 1
    """The number of steps on the same inputs; more than one only for streams."""
    traces_nodes: bool = False
    """Whether the request gets a span per node."""


@dataclass(frozen=True)
class InferAnswer:
    """The outputs of a step, with the datatypes they are sent as."""

    model: str
    version: str
    outputs: Mapping[str, GivenTensor]
    id: str = ""
    parameters: Mapping[str, bool | int | str] = field(default_factory=dict)


def with_parameters(request: InferRequest, parameters: Mapping[str, Any]) -> InferRequest:
    """Apply parameters to a request; unknown ones are ignored, as the protocol demands."""
    sequence = parameters.get("sequence_id", 0)
    if not isinstance(sequence, int | str) or isinstance(sequence, bool) or len(str(sequence)) > _LONGEST_ID:
        raise bad_request("sequence_id is a number or a short text")
    flags = [_flag(parameters, f"sequence_{name}") for name in ("start", "end", "save")]
    timeout = parameters.get("timeout")
    if timeout is not None and (type(timeout) is not int or not 0 <= timeout < 1 << 53):
        raise bad_request("timeout is a number of microseconds")
    steps = parameters.get("steps", 1)
    if type(steps) is not int or not 1 <= steps <= _MOST_STEPS:
        raise bad_request(f"steps is a number from 1 to {_MOST_STEPS}")
    if sequence in (0, "") and any(flags):
        raise bad_request("a request without sequence_id is not part of a sequence")
    return replace(
        request,
        sequence=None if sequence in (0, "") else SequencePart(str(sequence), *flags),
        timeout=None if not timeout else timeout / 1e6,
        steps=steps,
        traces_nodes=_flag(parameters, "trace_nodes"),
    )


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise bad_request(f"{name} is true or false")
    return value
