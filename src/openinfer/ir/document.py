"""JSON documents from any source: loading and navigating them, with errors that point to the place.

Duplicate keys, numbers that JSON does not have, excessive nesting and values of the wrong type are refused.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn, TypeVar

from openinfer.errors import Code, Diagnostic, DocumentSpan, GraphError, GraphPlace, Source, Span, nearest
from openinfer.ir.words import RESERVED

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def load_document(text: str | bytes, name: str) -> "Cursor":
    """Load a JSON text; ``name`` identifies it in errors."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        found = json.loads(decoded, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise _bad_json("it is nested too deeply", DocumentSpan("", name)) from error
    except json.JSONDecodeError as error:
        at = min(error.pos, len(error.doc))
        raise _bad_json(error.msg, Span(Source(name, error.doc), at, min(at + 1, len(error.doc)))) from error
    except ValueError as error:
        raise _bad_json(str(error), DocumentSpan("", name)) from error
    for path, mistake in _mistakes(found):
        raise _bad_json(mistake.message, DocumentSpan(path, name))
    return Cursor(found, name=name)


@dataclass(frozen=True)
class _Mistake:
    """A placeholder for a value that JSON does not have, until its path is known."""

    message: str


def _mistakes(document: Any) -> Iterator[tuple[str, _Mistake]]:
    stack = [("", document)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Mistake):
            yield path, value
        elif isinstance(value, dict):
            stack.extend((f"{path}/{key}", item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            stack.extend((f"{path}/{index}", item) for index, item in reversed([*enumerate(value)]))


def _bad_json(reason: str, place: GraphPlace) -> GraphError:
    return GraphError(Diagnostic(Code.BAD_JSON, f"this is not JSON we can read: {reason}", place))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Mistake:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
    return _Mistake(f"the key {twice!r:.80} occurs twice")


def _no_constant(name: str) -> _Mistake:
    return _Mistake(f'{name} is not JSON; write "{name.lower().replace("infinity", "inf")}"')


def _finite(text: str) -> float | _Mistake:
    number = float(text)
    return number if isfinite(number) else _Mistake('this number is too large; write "inf" if you mean infinity')


class Cursor:
    """A value in a document, with its path."""

    def __init__(self, value: Any, path: str = "", depth: int = 0, name: str = "<json>") -> None:
        self.value = value
        self.path = path
        self.depth = depth
        self.document = name

    def fail(self, message: str, advice: str | None = None) -> NoReturn:
        """Raise an error at this value."""
        raise GraphError(Diagnostic(Code.BAD_DOCUMENT, message, self.place, advice))

    @property
    def place(self) -> DocumentSpan:
        """The location of this value."""
        return DocumentSpan(self.path, self.document)

    def step(self, key: str | int, value: Any) -> "Cursor":
        """A value directly inside this one."""
        return Cursor(value, f"{self.path}/{key}", self.depth + 1, self.document)

    def object(self, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, "Cursor"]:
        """The members of an object, which has these keys and no others."""
        if not isinstance(self.value, dict):
            self.fail(f"expected an object, found {shown(self.value)}")
        for key in self.value:
            if key not in required and key not in optional:
                self.fail(f"the key {key!r:.80} is unknown", nearest(str(key), [*required, *optional]))
        for key in required:
            if key not in self.value:
                self.fail(f"the key {key!r} is missing")
        return {key: self.step(key, value) for key, value in self.value.items()}

    def items(self) -> list["Cursor"]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            self.fail(f"expected a list, found {shown(self.value)}")
        return [self.step(index, value) for index, value in enumerate(self.value)]

    def text(self, pattern: "re.Pattern[str] | None" = None) -> str:
        """A string, which must match the pattern if one is given."""
        if not isinstance(self.value, str):
            self.fail(f"expected a string, found {shown(self.value)}")
        if pattern is not None and not pattern.fullmatch(self.value):
            self.fail(f"{self.value!r:.80} cannot be a name")
        if not self.value.isascii():
            try:
                self.value.encode("utf-8")
            except UnicodeEncodeError:
                self.fail("half of a surrogate pair is not text")
        return self.value

    def name(self) -> str:
        """An identifier."""
        name = self.text(_NAME)
        if name in RESERVED:
            self.fail(f"{name!r} is a reserved word and cannot be a name")
        return name

    def names(self) -> tuple[str, ...]:
        """A list of identifiers."""
        return tuple(item.name() for item in self.items())

    def integer(self) -> int:
        """An integer of up to 64 bits."""
        if type(self.value) is not int or not -(1 << 63) <= self.value < 1 << 64:
            self.fail(f"expected an integer of up to 64 bits, found {shown(self.value)}")
        return self.value

    def boolean(self) -> bool:
        """``true`` or ``false``."""
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, found {shown(self.value)}")
        return self.value

    def number(self) -> float:
        """A float, or the name of a float that JSON lacks."""
        if isinstance(self.value, str) and self.value in _SPECIAL:
            return _SPECIAL[self.value]
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fail(f"expected a number, found {shown(self.value)}")
        try:
            number = float(self.value)
        except OverflowError:
            self.fail("this number is too large")
        if not isfinite(number):
            self.fail('JSON has no such number; write "inf", "-inf" or "nan"')
        return number

    def tagged(self) -> tuple[str, "Cursor"]:
        """The tag and value of an object with a single key; a plain string is a tag without a value."""
        if isinstance(self.value, str):
            return self.value, self.step("", None)
        if not isinstance(self.value, dict) or len(self.value) != 1:
            self.fail(f"expected an object with one key, found {shown(self.value)}")
        ((tag, value),) = self.value.items()
        return str(tag), self.step(tag, value)

    def parsed(self, parser: Callable[[str], T]) -> T:
        """The result of a parser applied to this string."""
        try:
            return parser(self.text())
        except ValueError as error:
            self.fail(str(error))


def shown(value: Any) -> str:
    """A value as an error message shows it."""
    if type(value) is int and value.bit_length() > 128:
        return "a larger one"
    return f"{json.dumps(value, default=str)[:40]}" if not isinstance(value, dict | list) else type(value).__name__
