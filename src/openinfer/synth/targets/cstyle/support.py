"""Support functions: what expressions call and a language lacks.

Only those that are needed are emitted, after those that they call. Most are text in files, where a line
``//: NAME NEEDS...`` stands before each; some are generated for every dtype. Both are known by their names. Those with
parameters of their own, as the inner loops of contractions, are records that know their text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol, TypeAlias

_MARK = re.compile(r"^//: (.*)\n", re.MULTILINE)


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
    always: tuple[str, ...] = ()
    """What is emitted in any case: constants, which literals may be."""

    def code(self, needs: Iterable[Need]) -> str:
        """The definitions of what is needed and all they call, in an order that compiles."""
        done: dict[str, str] = {}
        for need in sorted({*needs, *self.always}, key=need_name):
            self._define(need, done)
        return "".join(done.values())

    def _define(self, need: Need, done: dict[str, str]) -> None:
        name = need_name(need)
        if name in done:
            return
        found = self._named(need) if isinstance(need, str) else need
        for one in found.needs:
            self._define(one, done)
        done[name] = found.text

    def _named(self, name: str) -> Definition:
        for package, folder in self.folders:
            found = _in_files(package, folder).get(name)
            if found is not None:
                return found
        return self.generated()[name]


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
