"""Finds the functions of a plan in its emitted files: definitions with their comments, and other mentions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

_WORD = re.compile(r"[A-Za-z_]\w*")
_ENTITY = re.compile(r"entity (\w+) is")
_LONGEST_HEAD = 80
"""The most lines in the head of a function."""


@dataclass(frozen=True)
class CodePlace:
    """Lines of a file that concern a function, counted from 1, both inclusive."""

    function: str
    file: str
    first: int
    last: int
    role: Literal["definition", "mention"]

    def facts(self) -> dict[str, object]:
        """The place as plain values."""
        return {
            "function": self.function,
            "file": self.file,
            "first": self.first,
            "last": self.last,
            "role": self.role,
        }


def code_places(files: Mapping[str, str], functions: Iterable[str]) -> list[CodePlace]:
    r"""All places in the files that concern one of the functions.

    The emitted languages are those of the C family, where a function starts and ends at the start of a line, and VHDL,
    where an entity is a file.

    >>> found = code_places({"a.c": "/* Doubles. */\nint f(int x)\n{\n    return 2 * x;\n}\nint y = f(1);"}, ["f"])
    >>> [(one.first, one.last, one.role) for one in found]
    [(1, 5, 'definition'), (6, 6, 'mention')]
    """
    wanted = frozenset(functions)
    return [place for path, text in files.items() for place in _in_file(path, text.split("\n"), wanted)]


def _in_file(path: str, lines: list[str], wanted: frozenset[str]) -> list[CodePlace]:
    found: list[CodePlace] = []
    at = 0
    if path.endswith(".vhd"):
        entities = (_ENTITY.match(line) for line in lines)
        own = next((one[1] for one in entities if one is not None and one[1] in wanted), None)
        if own is not None:
            return [CodePlace(own, path, 1, len(lines), "definition")]
    while at < len(lines):
        names = [word for word in _WORD.findall(lines[at]) if word in wanted]
        end = _end_of_definition(lines, at) if names else None
        if end is not None:
            found.append(CodePlace(names[0], path, _above(lines, at) + 1, end + 1, "definition"))
            at = end + 1
            continue
        found += [CodePlace(name, path, at + 1, at + 1, "mention") for name in dict.fromkeys(names)]
        at += 1
    return found


def _end_of_definition(lines: list[str], at: int) -> int | None:
    """The last line of the function whose head starts here, or None if none does."""
    if not lines[at][:1].isalpha():
        return None
    for body in range(at, min(at + _LONGEST_HEAD, len(lines))):
        if lines[body].rstrip().endswith(";"):
            return None
        if lines[body].rstrip().endswith("{"):
            return next((end for end in range(body, len(lines)) if lines[end].startswith("}")), None)
    return None


def _above(lines: list[str], at: int) -> int:
    """The first line of the comment that ends just above."""
    first = at
    if first and lines[first - 1].rstrip().endswith("*/"):
        first -= 1
        while first and not lines[first].lstrip().startswith("/*"):
            first -= 1
    while first and lines[first - 1].startswith("//"):
        first -= 1
    return first
