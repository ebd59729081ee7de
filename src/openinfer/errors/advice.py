"""Help lines that know which change of the source they name, so that an editor can make it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class FixPlace(StrEnum):
    """Where a fix changes the source, seen from the place of its diagnostic."""

    FIRST = "first"
    """The first place, in or around the diagnostic's, where the old text stands."""
    WHOLE = "whole"
    """All that the diagnostic points at."""
    STATEMENT = "statement"
    """The statement around it, with its semicolon."""
    BEFORE = "before"
    """A line of its own in front of the statement."""
    END = "end"
    """Behind all that the diagnostic points at."""
    TYPE = "type"
    """The type of the declaration."""
    TYPE_END = "type end"
    """Behind the type of the declaration."""
    ARGUMENT = "argument"
    """The last argument of the call that the statement makes."""
    MOVED = "moved"
    """The statement further below that begins with the old text, moved in front of this one."""


@dataclass(frozen=True)
class Fix:
    """One change of the source: ``new`` in place of ``old``, or at a place that needs no old text."""

    new: str
    old: str = ""
    place: FixPlace = FixPlace.FIRST
    more: tuple["Fix", ...] = ()
    """Changes that are made together with this one."""

    @property
    def title(self) -> str:
        """What the change does, in a few words.

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
    """A help line with the fixes that it names. It is a string like others wherever people read it.

    >>> Advice("write ';' here", Fix(";", place=FixPlace.END)).fixes[0].new
    ';'
    """

    __slots__ = ("fixes",)
    fixes: tuple[Fix, ...]

    def __new__(cls, text: str, *fixes: Fix) -> Self:
        """The help line."""
        found = super().__new__(cls, text)
        found.fixes = fixes
        return found


def fixes_of(help_line: str | None) -> tuple[Fix, ...]:
    """The fixes that a help line names.

    >>> fixes_of("choose another name")
    ()
    """
    return help_line.fixes if isinstance(help_line, Advice) else ()
