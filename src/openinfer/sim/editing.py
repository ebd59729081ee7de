"""Edits variables, or parts of them, in a suspended step."""

import json
import re
from typing import Any

from openinfer.check.bound import BoundVar
from openinfer.check.inserted import accepted_array
from openinfer.ir import Access
from openinfer.ops import Array
from openinfer.sim.commands import RefusedError
from openinfer.sim.views import ExecutionPoint

_WORDS = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""The spellings of these numbers for Python's JSON parser."""


def number_or_list(text: str) -> Any:
    """A number or a list of numbers, as people write them; None for anything else.

    >>> number_or_list("[1, -inf]"), number_or_list("@x.npy")
    ([1, -inf], None)
    """
    try:
        value = json.loads(re.sub(r"-?\b(?:nan|inf)\b", lambda word: _WORDS[word[0]], text))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, bool | int | float | list) else _refused(text)


def refused_value(text: str) -> RefusedError:
    """The error for a text that is not a value."""
    return RefusedError(f"{text!r:.60} is neither a number nor a list of numbers")


def _refused(text: str) -> Any:
    raise refused_value(text)


def edited_array(place: ExecutionPoint, access: Access, variable: BoundVar, given: Any) -> Array:
    """The new array of a variable that is edited, in whole or in part."""
    old = place.read(Access(access.base))
    part = place.read(access)
    value = accepted_array(access.base, given, variable.dtype)
    if value.ndim and value.shape != part.shape:
        message = f"{access} has the shape {list(part.shape)}, but the value has {list(value.shape)}"
        raise RefusedError(message)
    new = old.copy()
    new[(*place.variables.cells(access, old.shape), ...)] = value
    return new
