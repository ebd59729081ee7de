"""Support functions: what expressions call and a language lacks.

Only the functions that are needed are emitted, after those that they call. Most are text in files, each below a line
``//: NAME``; some are generated for every dtype. Both are found by name, and what they call is found in their text; to
call a function that is defined under another name, list that name: ``//: NAME NEEDS...``. The list also has the dtypes
of 8, 16 and 64 bits whose types the text names, unless a function that it calls names them. Functions with parameters
of their own, such as the inner loops of contractions, are records that contain their text.

Functions that kernels call have one source for all languages, in ``runtime/``. It is written in the common subset of C,
CUDA and GLSL, with macros for what they spell differently: ``oi_u32(x)`` converts, ``oi_bits_f32_u32(x)`` reinterprets
bits, ``oi_make(type, first, second)`` makes a struct, ``OI_TABLE`` begins a table and ``OI_FUNCTION`` a function. A
language brings its own definitions of them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Protocol, TypeAlias

from openinfer.dtypes import DTYPES

_MARK = re.compile(r"^//: (.*)\n", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"\b(?:oi|OI)_\w+")
_CONDITION = re.compile(r"^#if (\w+)(?: & (\d+))?\n((?:(?!#).*\n)*)(?:#else\n((?:(?!#).*\n)*))?#endif\n", re.MULTILINE)
"""A conditional: the text if a word is not 0, or has some bit set, and the text otherwise."""


class Definition(Protocol):
    """A function, type or macro of support code."""

    @property
    def name(self) -> str:
        """Its name in code: one name has one text."""

    @property
    def needs(self) -> tuple["Need", ...]:
        """What must be defined before it."""

    @property
    def text(self) -> str:
        """The definition."""


Need: TypeAlias = str | Definition
"""A dependency on support code: a function by name, or a definition with its text."""


@dataclass(frozen=True)
class SupportFunction:
    """A function with its text."""

    name: str
    needs: tuple[Need, ...]
    text: str
    types: frozenset[str] = frozenset()
    """The dtypes whose types it names; those that functions it calls name may be left out."""


@dataclass(frozen=True)
class Support:
    """Where the support functions of a language come from."""

    folders: tuple[tuple[str, str], ...]
    """Packages, and the folders in them that hold the files."""
    generated: Callable[[], Mapping[str, SupportFunction]]
    """Functions that exist for every dtype, by name."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Words in conditionals whose values are known: only the text that they select is emitted."""

    def knowing(self, words: Mapping[str, int]) -> "Support":
        """The same functions, for a device about which more is known than its compiler can test."""
        return replace(self, known={**self.known, **words})

    def code(self, needs: Iterable[Need]) -> str:
        """The definitions of what is needed and of all that it calls, in an order that compiles."""
        done: dict[str, str] = {}
        for need in sorted(set(needs), key=need_name):
            self._define(need, done)
        return _spaced(done.values())

    def _define(self, need: Need, done: dict[str, str]) -> None:
        name = need_name(need)
        if name in done:
            return
        found = self._called(need) if isinstance(need, str) else need
        for one in found.needs:
            self._define(one, done)
        done[name] = found.text

    def types(self, names: Iterable[str]) -> frozenset[str]:
        """The dtypes whose types functions name, with all that they call."""
        found: set[str] = set()
        done: set[str] = set()
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name in done:
                continue
            done.add(name)
            one = self._called(name)
            found |= one.types
            waiting += map(need_name, one.needs)
        return frozenset(found)

    def _called(self, name: str) -> SupportFunction:
        """A function by name, which needs all that its text calls."""
        found = self._named(name)
        assert found is not None, name
        text = self._chosen(found.text) if self.known else found.text
        called = [one for one in _names_in(text) if one != name and self._named(one) is not None]
        return SupportFunction(name, (*found.needs, *called), text, found.types)

    def _chosen(self, text: str) -> str:
        def choice(match: re.Match[str]) -> str:
            word, bit, then, otherwise = match.groups()
            if word not in self.known:
                return match[0]
            return then if self.known[word] & int(bit or -1) else otherwise or ""

        return _CONDITION.sub(choice, text)

    def _named(self, name: str) -> SupportFunction | None:
        for package, folder in self.folders:
            found = _in_files(package, folder).get(name)
            if found is not None:
                return found
        return self.generated().get(name)


def _spaced(definitions: Iterable[str]) -> str:
    """Definitions in sequence, with an empty line around each that has several lines."""
    found, was_long = "", False
    for text in definitions:
        is_long = text.count("\n") > 1
        found += "\n" * bool(found and (is_long or was_long)) + text
        was_long = is_long
    return found


@cache
def _names_in(text: str) -> tuple[str, ...]:
    """The names of support code in a text, in order."""
    return tuple(dict.fromkeys(_NAME.findall(_COMMENT.sub("", text))))


def need_name(need: Need) -> str:
    """The name in code of a dependency on support code."""
    return need if isinstance(need, str) else need.name


@cache
def _in_files(package: str, folder: str) -> dict[str, SupportFunction]:
    """All functions in the files of a folder."""
    found: dict[str, SupportFunction] = {}
    for file in sorted((files(package) / folder).iterdir(), key=lambda one: one.name):
        parts = _MARK.split(file.read_text(encoding="ascii"))
        for head, text in zip(parts[1::2], parts[2::2], strict=True):
            name, *rest = head.split()
            assert name not in found, name
            types = frozenset(rest) & DTYPES.keys()
            needs = tuple(one for one in rest if one not in types)
            found[name] = SupportFunction(name, needs, text.strip() + "\n", types)
    return found
