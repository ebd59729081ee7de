"""Ranges and edits of a text, in characters from its beginning. Protocols have their own ways to count them."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class TextRange:
    """The characters ``start`` up to, not including, ``end``."""

    start: int
    end: int

    def touches(self, offset: int) -> bool:
        """Whether a cursor at this offset is inside or at one of the ends."""
        return self.start <= offset <= self.end


@dataclass(frozen=True)
class TextEdit:
    """A range and what replaces it."""

    range: TextRange
    new_text: str


def edited(text: str, edits: Iterable[TextEdit]) -> str:
    """A text after edits, which do not overlap.

    >>> edited("op neg(x)", [TextEdit(TextRange(3, 6), "abs"), TextEdit(TextRange(7, 8), "y")])
    'op abs(y)'
    """
    for edit in sorted(edits, key=lambda one: one.range, reverse=True):
        text = text[: edit.range.start] + edit.new_text + text[edit.range.end :]
    return text
