"""Text as numbers: a vocabulary of short pieces of ASCII text, and the rule by which neighbours are joined.

The rule needs nothing but the list of pieces, so that the C program can follow it too: begin with single characters,
and join the two neighbours whose joined text comes first in the list, until no two can be joined.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

END = "\0"
"""The piece with the number 0: the end of one text and the beginning of another."""
CHARACTERS = [END, "\n", *map(chr, range(32, 127))]
WORD = re.compile(r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9 \n\0]+|\0|\n+| +?(?= [^ \n\0])| +")
"""No piece goes across the border of two words; a word has the space before it."""
SAME = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u2013": "-", "\u2026": "...", "\t": " "}
)


def plain(text: str) -> str:
    """Text with the characters that there are pieces for; others are left out."""
    return "".join(one for one in text.translate(SAME) if one in _KNOWN)


_KNOWN = frozenset(CHARACTERS) - {END}


def _joined(parts: list[str], one: str, other: str) -> list[str]:
    """The same parts with every ``one`` before an ``other`` joined to it, from the left."""
    found: list[str] = []
    for part in parts:
        if part == other and found and found[-1] == one:
            found[-1] = one + other
        else:
            found.append(part)
    return found


def learned(texts: Iterable[str], size: int) -> list[str]:
    """A vocabulary for some texts: all characters, then the pairs that are most frequent, one after the other."""
    words = Counter(word for text in texts for word in WORD.findall(text))
    words = Counter({word: count for word, count in words.items() if count > 2})
    split = {word: list(word) for word in words}
    pieces = list(CHARACTERS)
    while len(pieces) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        one, other = min(pairs, key=lambda pair: (-pairs[pair], pair))
        pieces.append(one + other)
        split = {word: _joined(parts, one, other) if one + other in word else parts for word, parts in split.items()}
    return pieces


class Tokenizer:
    """Text to numbers and back, by a vocabulary.

    >>> tokenizer = Tokenizer([*CHARACTERS, "th", " a", "the"])
    >>> [tokenizer.pieces[token] for token in tokenizer.encode("the a")]
    ['the', ' a']
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = list(pieces)
        self._numbers = {piece: number for number, piece in enumerate(self.pieces)}
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """The numbers of a text that has only characters of the vocabulary."""
        return [number for word in WORD.findall(text) for number in self._word(word)]

    def _word(self, word: str) -> list[int]:
        if word not in self._known:
            self._known[word] = self._split(word)
        return self._known[word]

    def _split(self, word: str) -> list[int]:
        parts = list(word)
        while True:
            pairs = enumerate(pairwise(parts))
            joined = ((self._numbers.get(one + other), place) for place, (one, other) in pairs)
            number, place = min(((number, place) for number, place in joined if number is not None), default=(0, 0))
            if number == 0:
                return [self._numbers[part] for part in parts]
            parts[place : place + 2] = [self.pieces[number]]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some numbers."""
        return "".join(self.pieces[token] for token in tokens)
