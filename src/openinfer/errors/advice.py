"""Help lines with machine-applicable fixes, which editors can offer."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class FixPlace(StrEnum):
    """Where a fix changes the source, relative to its diagnostic."""

    FIRST = "first"
    """The first occurrence of the old text, in or around the diagnostic's span."""
    WHOLE = "whole"
    """The whole span of the diagnostic."""
    STATEMENT = "statement"
    """The statement that contains it, with its semicolon."""
    BEFORE = "before"
    """A new line before the statement."""
    END = "end"
    """The end of the diagnostic's span."""
    TYPE = "type"
    """The type of the declaration."""
    TYPE_END = "type end"
    """After the type of the declaration."""
    ARGUMENT = "argument"
    """A new last argument in the statement's call."""
    MOVED = "moved"
    """The statement further down that starts with the old text, moved to before this one."""


@dataclass(frozen=True)
class Fix:
    """One change of the source: ``new`` replaces ``old``, or is placed where no old text is needed."""

    new: str
    old: str = ""
    place: FixPlace = FixPlace.FIRST
    more: tuple["Fix", ...] = ()
    """Further changes, made together with this one."""

    @property
    def title(self) -> str:
        """The change in a few words.

        >>> Fix("relu", "rleu").title, Fix(";", place=FixPlace.END).title, Fix("", ";").title
        ("change 'rleu' to 'relu'", "add ';'", "remove ';'")
        """
        if self.place is FixPlace.MOVED:
            return f"move '{self.old}' up"
        if not self.new:
            return f"remove '{self.old}'"
        if self.place in (FixPlace.BEFORE, FixPlace.END, FixPlace.TYPE_END, FixPlace.ARGUMENT):
            return f"add '{self.new.strip()}'"
        return f"change '{self.old}' to '{self.new}'" if self.old else f"write '{self.new}'"


class Advice(str):
    """A help line with the fixes that it mentions; otherwise an ordinary string.

    >>> Advice("write ';' here", Fix(";", place=FixPlace.END)).fixes[0].new
    ';'
    """

    __slots__ = ("fixes",)
    fixes: tuple[Fix, ...]

    def __new__(cls, text: str, *fixes: Fix) -> Self:
        """Create a help line."""
        found = super().__new__(cls, text)
        found.fixes = fixes
        return found


def fixes_of(help_line: str | None) -> tuple[Fix, ...]:
    """The fixes that a help line mentions.

    >>> fixes_of("choose another name")
    ()
    """
    return help_line.fixes if isinstance(help_line, Advice) else ()
