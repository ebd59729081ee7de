"""Support functions: what expressions call and a language lacks.

Only those that are needed are emitted, after those that they call. Most are text in files, where a line ``//: NAME``
stands before each; some are generated for every dtype. Both are known by their names, and what they call is found in
their text; a helper that stands behind another name is called by naming that too: ``//: NAME NEEDS...``. Those with
parameters of their own, as the inner loops of contractions, are records that know their text.

What kernels call has one source for all languages, in ``runtime/``. It is written in what C, CUDA and GLSL share, and
in words for what they say in different ways: ``oi_u32(x)`` converts, ``oi_bits_f32_u32(x)`` looks at bits,
``oi_make(type, first, second)`` is a struct, ``OI_TABLE`` begins a table and ``OI_FUNCTION`` a function. A language
brings its words as definitions like the others.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Protocol, TypeAlias

_MARK = re.compile(r"^//: (.*)\n", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"\b(?:oi|OI)_\w+")
_CONDITION = re.compile(r"^#if (\w+)(?: & (\d+))?\n((?:(?!#).*\n)*)(?:#else\n((?:(?!#).*\n)*))?#endif\n", re.MULTILINE)
"""Text that stands there if a word is not 0, or has some bit; and text that stands there otherwise."""


class Definition(Protocol):
    """A function, type or macro of support code."""

    @property
    def name(self) -> str:
        """What code calls it: one name has one text."""

    @property
    def needs(self) -> tuple["Need", ...]:
        """What must stand before it."""

    @property
    def text(self) -> str:
        """The definition."""


Need: TypeAlias = str | Definition
"""What code needs of support code: a function by its name, or one that brings its text."""


@dataclass(frozen=True)
class SupportFunction:
    """A function whose text is known."""

    name: str
    needs: tuple[Need, ...]
    text: str


@dataclass(frozen=True)
class Support:
    """Where the support functions of a language come from."""

    folders: tuple[tuple[str, str], ...]
    """Packages, and the folders in them that hold the files."""
    generated: Callable[[], Mapping[str, Definition]]
    """Functions that exist for every dtype, by their names."""
    known: Mapping[str, int] = field(default_factory=dict)
    """Words of conditions whose values are known: only the text that they choose is there."""

    def knowing(self, words: Mapping[str, int]) -> "Support":
        """The same functions for a device of which more is known than a compiler could be asked."""
        return replace(self, known={**self.known, **words})

    def code(self, needs: Iterable[Need]) -> str:
        """The definitions of what is needed and all they call, in an order that compiles."""
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

    def _called(self, name: str) -> Definition:
        """A function by its name, with all that its text calls."""
        found = self._named(name)
        assert found is not None, name
        text = self._chosen(found.text) if self.known else found.text
        called = [one for one in _names_in(text) if one != name and self._named(one) is not None]
        return SupportFunction(name, (*found.needs, *called), text)

    def _chosen(self, text: str) -> str:
        def choice(match: re.Match[str]) -> str:
            word, bit, then, otherwise = match.groups()
            if word not in self.known:
                return match[0]
            return then if self.known[word] & int(bit or -1) else otherwise or ""

        return _CONDITION.sub(choice, text)

    def _named(self, name: str) -> Definition | None:
        for package, folder in self.folders:
            found = _in_files(package, folder).get(name)
            if found is not None:
                return found
        return self.generated().get(name)


def _spaced(definitions: Iterable[str]) -> str:
    """Definitions one after the other, with an empty line around each that has several lines."""
    found, was_long = "", False
    for text in definitions:
        is_long = text.count("\n") > 1
        found += "\n" * bool(found and (is_long or was_long)) + text
        was_long = is_long
    return found


@cache
def _names_in(text: str) -> tuple[str, ...]:
    """The names of support code that a text mentions, in the order in which it does."""
    return tuple(dict.fromkeys(_NAME.findall(_COMMENT.sub("", text))))


def need_name(need: Need) -> str:
    """The name by which code calls something of support code."""
    return need if isinstance(need, str) else need.name


@cache
def _in_files(package: str, folder: str) -> dict[str, SupportFunction]:
    """All functions of the files of a folder."""
    found: dict[str, SupportFunction] = {}
    for file in sorted((files(package) / folder).iterdir(), key=lambda one: one.name):
        parts = _MARK.split(file.read_text(encoding="ascii"))
        for head, text in zip(parts[1::2], parts[2::2], strict=True):
            name, *needs = head.split()
            assert name not in found, name
            found[name] = SupportFunction(name, tuple(needs), text.strip() + "\n")
    return found
