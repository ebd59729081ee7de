"""JSON documents that people write or commit: reads them, and reports validation errors with their locations."""

import os
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from openinfer.errors import Code, DeviceError, Diagnostic, DocumentSpan, FileSpan, GraphError
from openinfer.ir.document import load_document, shown
from openinfer.oinf.file import read_plain, reason_of

_MOST_PROBLEMS = 20
_EXPECTED = {
    "model_type": "an object",
    "tuple_type": "a list",
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
}
"""What the validator expected, by its error type; its messages for other types are good enough."""


def document_bytes(path: str | os.PathLike[str], what: str, code: Code, most: int) -> bytes:
    """The bytes of a document file, at most ``most``."""
    name = os.fspath(path)
    try:
        data = read_plain(name, most)
    except (OSError, ValueError) as error:
        message = f"the {what} {name!r} cannot be read: {reason_of(error)}"
        raise DeviceError(Diagnostic(code, message, FileSpan(name))) from error
    if len(data) > most:
        message = f"{name!r} is too large for a {what}: it has more than {most >> 20} MiB"
        raise DeviceError(Diagnostic(code, message, FileSpan(name)))
    return data


def parsed_document(document: str | bytes, name: str) -> Any:
    """The values of a JSON text."""
    try:
        return load_document(document, name).value
    except GraphError as error:
        raise DeviceError(*error.diagnostics) from error


def validation_problems(error: ValidationError, document: Any, name: str, code: Code) -> list[Diagnostic]:
    """Validation errors as diagnostics: one per location, and not too many."""
    found: dict[str, Diagnostic] = {}
    for one in error.errors(include_url=False, include_context=False):
        keys = _keys(one["loc"], document)
        if one["type"] == "missing":
            last = str(one["loc"][-1])
            message = "there are too few elements" if last.isdecimal() else f"the key {last!r} is missing"
        elif one["type"] == "extra_forbidden":
            message = f"the key {keys[-1]!r:.80} is unknown"
        else:
            message = f"expected {_EXPECTED.get(one['type']) or _rule(one['msg'])}, found {shown(one['input'])}"
        path = "".join(f"/{key}" for key in keys)
        problem = Diagnostic(code, message, DocumentSpan(path, name))
        found.setdefault(f"{path} {message if one['type'] == 'missing' else ''}", problem)
    problems = list(found.values())
    more = len(problems) - _MOST_PROBLEMS
    if more <= 0:
        return problems
    return [*problems[:_MOST_PROBLEMS], Diagnostic(code, f"{more} more problems", DocumentSpan("", name))]


def _keys(location: Sequence[int | str], document: Any) -> list[str]:
    """The keys of a location, without the names of union alternatives, which are not part of the document."""
    found, value = [], document
    for key in location:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            continue
        found.append(str(key))
    return found


def _rule(sentence: str) -> str:
    """A validator's sentence, as the object of ``expected``."""
    text = sentence.removeprefix("Input should be ").removeprefix("String should ")
    return f"a text to {text}" if text.startswith(("match", "have")) else text[:1].lower() + text[1:]
