"""``NAME=NUMBER`` and ``KEY=VALUE[:DTYPE]``: size variables and metadata in the form of the command line."""

import json
import re
from collections.abc import Iterable
from math import inf, isinf, nan
from typing import Any

import numpy as np

from openinfer.dtypes import ALIASES, DTYPES, DType, dtype_of
from openinfer.errors import Code, Diagnostic, OinfError, TensorError
from openinfer.oinf.authoring import in_field, named_metadata
from openinfer.oinf.metadata import MetadataValue, ScalarValue, metadata_value
from openinfer.oinf.payloads import decode_metadata
from openinfer.tensor import Tensor

_METADATA_FORM = "KEY=VALUE[:DTYPE]"
_NOT_FINITE = {"nan": nan, "inf": inf, "-inf": -inf}
"""Spellings that JSON parsers do not accept; they do accept NaN, Infinity and -Infinity."""


def size_options(texts: Iterable[str]) -> dict[str, int]:
    """Parse ``NAME=NUMBER`` rules.

    >>> size_options(["D=384", "H=6"])
    {'D': 384, 'H': 6}
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not re.fullmatch("[0-9]{1,20}", value):
            raise bad_option(text, "NAME=NUMBER")
        if name in sizes:
            raise _given_twice("size variable", name)
        sizes[name] = int(value)
    return sizes


def metadata_options(texts: Iterable[str]) -> dict[str, MetadataValue]:
    """Parse ``KEY=VALUE[:DTYPE]`` rules; without a dtype it follows from the value.

    >>> {key: value.type_name for key, value in metadata_options(["a=3", "b=3:f64", "c=inf", "d=text"]).items()}
    {'a': 'i8', 'b': 'f64', 'c': 'f32', 'd': 'str'}
    """
    values: dict[str, MetadataValue] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise bad_option(text, _METADATA_FORM)
        if key in values:
            raise _given_twice("metadata", key)
        values[key] = _metadata_option(text, key, value)
    return values


def _metadata_option(text: str, key: str, value: str) -> MetadataValue:
    body, colon, type_name = value.rpartition(":")
    if colon and type_name == "str":
        return named_metadata(key, body)
    if not colon or (type_name not in DTYPES and type_name not in ALIASES):
        plain, dtype = _plain_value(key, value), None
    else:
        plain, dtype = _plain_value(key, body), dtype_of(type_name)
        if isinstance(plain, str):
            article = "an" if type_name[0] in "if" else "a"
            raise bad_option(text, f"{_METADATA_FORM}, and {body!r} is not {article} {type_name}")
    try:
        stored = _stored(plain, dtype)
    except (OinfError, TensorError) as error:
        raise in_field(key, error) from error
    if not isinstance(plain, str):
        _require_held(key, plain, stored)
    return stored


def _stored(plain: Any, dtype: DType | None) -> MetadataValue:
    if dtype is None:
        return metadata_value(plain)
    return metadata_value(Tensor.from_numpy(plain, dtype) if isinstance(plain, list) else ScalarValue(plain, dtype))


def _plain_value(key: str, text: str) -> Any:
    """A number, a boolean, or a list of them in JSON; anything else is the text itself."""
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    too_large: list[str] = []

    def number(digits: str) -> float:
        if isinf(float(digits)):
            too_large.append(digits)
        return float(digits)

    try:
        value = json.loads(text, parse_float=number)
    except (ValueError, RecursionError):
        return text
    if too_large:
        raise _out_of_range(key, too_large[0], "f64")
    return value if isinstance(value, bool | int | float | list) else text


def _require_held(key: str, plain: Any, stored: MetadataValue) -> None:
    """Reject a number that became infinite in its float type."""
    held: Any = decode_metadata(stored.tag, np.frombuffer(stored.payload, np.uint8))
    given, kept = np.asarray(plain, np.float64), np.asarray(held).astype(np.float64)
    lost = given[np.isfinite(given) & ~np.isfinite(kept)]
    if lost.size:
        raise _out_of_range(key, str(lost[0]), stored.type_name.partition("[")[0])


def _out_of_range(key: str, number: str, type_name: str) -> OinfError:
    article = "an" if type_name[0] in "if" else "a"
    message = f"{key!r}: the value {number:.100} is too large for {article} {type_name}"
    return OinfError(Diagnostic(Code.VALUE_OUT_OF_RANGE, message))


def _given_twice(what: str, name: str) -> OinfError:
    return OinfError(Diagnostic(Code.BAD_PACK_OPTION, f"the {what} {name!r} is given twice"))


def bad_option(text: str, form: str) -> OinfError:
    """The error for an option that does not have this form."""
    return OinfError(Diagnostic(Code.BAD_PACK_OPTION, f"cannot understand {text!r}", help=f"write it as {form}"))
