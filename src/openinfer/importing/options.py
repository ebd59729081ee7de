"""Options of an import: sizes, states and fixed inputs, given in Python or as text."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openinfer.importing.problems import bad_option

MOST = 1 << 40
_LONGEST = 200
"""The most characters of a size expression."""


@dataclass(frozen=True)
class SizeChoice:
    """A size that is fixed, or dynamic up to a bound."""

    value: int
    is_bound: bool = False


@dataclass(frozen=True)
class SizeExpression:
    """A size computed from others, which the caller may introduce: a multiple or a sum."""

    text: str


SizeWord = SizeChoice | SizeExpression
"""What the caller says about a size."""


@dataclass(frozen=True)
class ImportOptions:
    """How a model is imported."""

    name: str | None = None
    sizes: Mapping[str, SizeWord] = field(default_factory=dict)
    states: Sequence[tuple[str, str]] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    """Patterns for the names of unwanted outputs."""
    loops: bool = True
    idioms: bool = True


_SIZE = re.compile(r"(?s)(.+?)\s*(<=|=)\s*(.+)")
_FORMS = "write NAME=VALUE, NAME<=BOUND or NAME=EXPRESSION: height=32*h"


def size_choices(texts: Sequence[str]) -> dict[str, SizeWord]:
    """Read ``NAME=VALUE``, ``NAME<=BOUND`` and ``NAME=EXPRESSION``.

    >>> size_choices(["batch=1", "T<=64"])
    {'batch': SizeChoice(value=1, is_bound=False), 'T': SizeChoice(value=64, is_bound=True)}
    >>> size_choices(["height=32*h"])
    {'height': SizeExpression(text='32*h')}
    """
    found: dict[str, SizeWord] = {}
    for text in texts:
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise bad_option(f"cannot understand the size {text!r:.100}", _FORMS)
        name, relation, word = match.groups()
        if name in found:
            raise bad_option(f"the size {name!r:.100} is given twice")
        found[name] = _word(name, word, is_bound=relation == "<=")
    return found


def sizes_given(sizes: Mapping[str, int | str]) -> dict[str, SizeWord]:
    """Read sizes given in Python: a number, ``"<=64"``, or an expression.

    >>> sizes_given({"batch": 1, "T": "<=64"})
    {'batch': SizeChoice(value=1, is_bound=False), 'T': SizeChoice(value=64, is_bound=True)}
    """
    found: dict[str, SizeWord] = {}
    for name, value in sizes.items():
        text = str(value).strip()
        bound = text.removeprefix("<=")
        found[name] = _word(name, bound.strip(), is_bound=bound != text)
    return found


def _word(name: str, text: str, *, is_bound: bool) -> SizeWord:
    if re.fullmatch(r"[0-9]{1,12}", text):
        value = int(text)
        if not (1 if is_bound else 0) <= value <= MOST:
            raise bad_option(f"the size {name!r:.100} cannot be {value}")
        return SizeChoice(value, is_bound)
    if is_bound or not re.search(r"[A-Za-z_]", text) or len(text) > _LONGEST:
        raise bad_option(f"the size {name!r:.100} is a number, a bound or an expression, not {text!r:.60}", _FORMS)
    return SizeExpression(text)


def state_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Read ``OUT=IN``.

    >>> state_pairs(["present.*=past.*"])
    [('present.*', 'past.*')]
    """
    found = []
    for text in texts:
        output, equals, given = text.partition("=")
        if not equals or not output.strip() or not given.strip():
            raise bad_option(f"cannot understand the state {text!r:.100}", "write OUTPUT=INPUT")
        found.append((output.strip(), given.strip()))
    return found


def fixed_inputs(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``INPUT=VALUE``, where the value is a number, a boolean or a list of them, as in JSON.

    >>> fixed_inputs(["sr=16000", "flag=true", "pads=[0, 1]"])
    {'sr': 16000, 'flag': True, 'pads': [0, 1]}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        if not equals or not name or not isinstance(parsed, bool | int | float | list):
            advice = "write INPUT=VALUE with a number, true, false or a list"
            raise bad_option(f"cannot understand the value {text!r:.100}", advice)
        if name in found:
            raise bad_option(f"the input {name!r:.100} is fixed twice")
        found[name] = parsed
    return found
