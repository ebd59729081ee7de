"""Splits text into words with the few forms of regular expressions that tokenizers use, matched without a library.

A pattern is parsed once into plain records, which Python matches here and a C program holds as tables. It consists of
alternatives of items, each a character set with a count. The first alternative that fits is taken, and each item is as
long as possible while the rest still fits: the meaning of regular expressions of this form.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from openinfer.tokenizer.unicode_classes import LETTERS, MARKS, NUMBERS, PUNCTUATION, SPACES

CLASSES = {"L": LETTERS, "M": MARKS, "N": NUMBERS, "P": PUNCTUATION, "s": SPACES}
"""The classes that sets can contain, by their letter in a pattern; bit ``i`` stands for the ``i``-th."""
_BITS = {letter: 1 << at for at, letter in enumerate(CLASSES)}
SPACE = _BITS["s"]
UNBOUNDED = 1 << 30
_ESCAPED = {"r": "\r", "n": "\n", "t": "\t"}


@cache
def class_bits(code: int) -> int:
    """The classes of a character, one bit each.

    >>> class_bits(ord("a")) == 1, class_bits(ord(" ")) == SPACE, class_bits(ord("+"))
    (True, True, 0)
    """
    found = 0
    for letter, table in CLASSES.items():
        at = bisect_right(table, code)
        if at % 2 or (at and table[at - 1] == code):
            found |= _BITS[letter]
    return found


@dataclass(frozen=True)
class CharSet:
    """The characters of some classes and ranges, or all others."""

    classes: int
    ranges: tuple[tuple[int, int], ...]
    is_negated: bool = False

    def has(self, code: int, bits: int) -> bool:
        """Whether a character with these classes is in the set."""
        is_named = bool(bits & self.classes) or any(first <= code <= last for first, last in self.ranges)
        return is_named != self.is_negated


@dataclass(frozen=True)
class PatternItem:
    """A number of characters from a set."""

    characters: CharSet
    least: int
    most: int


@dataclass(frozen=True)
class Alternative:
    """A sequence of items."""

    text: str
    """The source in the pattern."""
    items: tuple[PatternItem, ...]
    is_before_space: bool
    """Whether only a space or the end may follow: ``(?!\\S)``."""


@dataclass(frozen=True)
class SplitPattern:
    """A parsed pattern, which matches the words of a text."""

    alternatives: tuple[Alternative, ...]

    def words(self, codes: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
        """Split a range of text into words and what is between them."""
        at = left = start
        while at < end:
            stop = self._end_of_word(codes, at, end)
            if stop == at:
                at += 1
                continue
            if left < at:
                yield left, at
            yield at, stop
            at = left = stop
        if left < end:
            yield left, end

    def _end_of_word(self, codes: Sequence[int], at: int, end: int) -> int:
        for one in self.alternatives:
            stop = _matched(one, 0, codes, at, end)
            if stop > at:
                return stop
        return at


def _matched(one: Alternative, which: int, codes: Sequence[int], at: int, end: int) -> int:
    """Where the items from ``which`` on end, or -1 if they do not match."""
    if which == len(one.items):
        is_allowed = not one.is_before_space or at == end or class_bits(codes[at]) & SPACE
        return at if is_allowed else -1
    item = one.items[which]
    stop, most = at, min(end, at + item.most)
    while stop < most and item.characters.has(codes[stop], class_bits(codes[stop])):
        stop += 1
    for stopped in range(stop, at + item.least - 1, -1):
        found = _matched(one, which + 1, codes, stopped, end)
        if found >= 0:
            return found
    return -1


# --- parsing ----------------------------------------------------------------------------------------------------------

_ITEM = re.compile(r"(\[\^?(?:\\.(?:\{.\})?|[^\]\\])+\]|\\p\{.\}|\\.|[^\\\[\](){}|?*+])(\?|\*|\+|\{\d+(?:,\d+)?\})?")
_MEMBER = re.compile(r"\\p\{(.)\}|\\(.)(?:-(.))?|(.)(?:-(.))?", re.DOTALL)
_BEFORE_SPACE = "(?!\\S)"


def split_pattern(text: str) -> SplitPattern:
    r"""Parse a pattern: alternatives of character sets with counts, with ``(?!\S)`` at the end of one.

    >>> words = split_pattern(r" ?\p{L}+|\s+").words([ord(one) for one in "so it is"], 0, 8)
    >>> list(words)
    [(0, 2), (2, 5), (5, 8)]
    """
    return SplitPattern(tuple(_alternative(one) for one in _alternatives(text)))


def _alternatives(text: str) -> list[str]:
    """Split a pattern at bars outside of brackets."""
    found, depth = [""], 0
    for at, one in enumerate(text):
        is_escaped = at > 0 and text[at - 1] == "\\"
        depth += (one == "[") - (one == "]") if not is_escaped else 0
        if one == "|" and not depth and not is_escaped:
            found.append("")
        else:
            found[-1] += one
    return found


def _alternative(text: str) -> Alternative:
    body = text.removesuffix(_BEFORE_SPACE)
    items, at = [], 0
    while at < len(body):
        match = _ITEM.match(body, at)
        assert match is not None, text
        items.append(PatternItem(_char_set(match[1]), *_counts(match[2] or "")))
        at = match.end()
    return Alternative(text, tuple(items), body != text)


def _counts(text: str) -> tuple[int, int]:
    known = {"": (1, 1), "?": (0, 1), "*": (0, UNBOUNDED), "+": (1, UNBOUNDED)}
    if text in known:
        return known[text]
    least, _, most = text[1:-1].partition(",")
    return int(least), int(most or least)


def _char_set(text: str) -> CharSet:
    if not text.startswith("["):
        return _set_of(text, is_negated=False)
    return _set_of(text[1:-1].removeprefix("^"), is_negated=text.startswith("[^"))


def _set_of(members: str, *, is_negated: bool) -> CharSet:
    classes, ranges = 0, []
    for match in _MEMBER.finditer(members):
        letter, escaped, last_escaped, plain, last_plain = match.groups()
        if letter is not None or escaped == "s":
            classes |= _BITS[letter or "s"]
            continue
        first = _ESCAPED.get(escaped, escaped) if escaped is not None else plain
        ranges.append((ord(first), ord(last_escaped or last_plain or first)))
    return CharSet(classes, tuple(ranges), is_negated)
