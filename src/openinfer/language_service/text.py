"""Ranges and edits of a text, in characters from its start. Protocols count in units of their own."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class TextRange:
    """The characters from ``start`` up to but not including ``end``."""

    start: int
    end: int

    def touches(self, offset: int) -> bool:
        """Whether a cursor at this offset is inside the range or at one of its ends."""
        return self.start <= offset <= self.end


@dataclass(frozen=True)
class TextEdit:
    """A range and its replacement."""

    range: TextRange
    new_text: str


def edited(text: str, edits: Iterable[TextEdit]) -> str:
    """Apply edits, which must not overlap.

    >>> edited("op neg(x)", [TextEdit(TextRange(3, 6), "abs"), TextEdit(TextRange(7, 8), "y")])
    'op abs(y)'
    """
    for edit in sorted(edits, key=lambda one: one.range, reverse=True):
        text = text[: edit.range.start] + edit.new_text + text[edit.range.end :]
    return text
