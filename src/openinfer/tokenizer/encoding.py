"""Text to tokens and back: first pieces that are taken whole, then words, then merges in each; streams of text."""

import codecs
import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, ImportingError, counted
from openinfer.tokenizer.vocabulary import BytePieces, PieceKind, ScoredPieces, Vocabulary

SPACE_SIGN = "\u2581".encode()
"""Stands for a space in scored pieces."""
_REPLACEMENT = "\ufffd"
_EACH_BYTE = "openinfer.each_byte"
"""The error handler that turns bytes that are not UTF-8 into text."""

Joined = Callable[[int, int], tuple[int, int] | None]
"""The rank of a pair of pieces and the piece they merge into, or None."""


class Tokenizer:
    """Text to token numbers and back, by a vocabulary.

    User text never becomes a control token; ``encode_markup`` is for text of your own.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._whole, self._special = _WholePieces(vocabulary.whole), _WholePieces(vocabulary.special)
        self._known: dict[bytes, tuple[int, ...]] = {}

    def encode(self, text: str | bytes, *, is_begin: bool = False) -> list[int]:
        """The tokens of a text. Each byte that is not UTF-8 becomes U+FFFD.

        ``is_begin`` adds the tokens that this model has around a whole text.
        """
        found = self._encoded(_plain(text), self._whole)
        return self._framed(found) if is_begin else found

    def encode_markup(self, text: str | bytes, *, is_begin: bool = False) -> list[int]:
        """Like ``encode``, but the names of control tokens stand for the tokens."""
        found = self._encoded(_plain(text), self._special)
        return self._framed(found) if is_begin else found

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Encode texts in sequence, some of them markup; words may span texts, but not control tokens."""
        pending, found = b"", []
        for text, is_markup in parts:
            if not is_markup:
                pending += _plain(text)
                continue
            for fragment in self.fragments(text):
                if isinstance(fragment, bytes):
                    pending += fragment
                    continue
                found += self.encode(pending) if pending else []
                found.append(fragment)
                pending = b""
        return found + (self.encode(pending) if pending else [])

    def fragments(self, markup: str) -> Iterator[bytes | int]:
        """Markup as control tokens and the texts between them."""
        return self._special.fragments(_plain(markup))

    def decode(self, tokens: Iterable[int], *, has_control: bool = False) -> str:
        """The text of tokens; ``has_control`` includes the names of control tokens."""
        data = b"".join(self.piece(one, has_control=has_control) for one in tokens)
        scheme = self.vocabulary.scheme
        if isinstance(scheme, ScoredPieces) and scheme.has_space_before:
            data = data.removeprefix(b" ")
        return data.decode(errors=_EACH_BYTE)

    def piece(self, token: int, *, has_control: bool = False) -> bytes:
        """The bytes that a token adds to a text; none for a control token, unless ``has_control``."""
        if not 0 <= token < len(self.vocabulary.pieces):
            most = counted(len(self.vocabulary.pieces), "token")
            message = f"there is no token {token} in a vocabulary of {most}"
            raise ImportingError(Diagnostic(Code.NO_SUCH_PIECE, message))
        is_silent = self.vocabulary.kinds[token] in (PieceKind.CONTROL, PieceKind.UNKNOWN)
        return b"" if is_silent and not has_control else self.vocabulary.pieces[token]

    # --- encoding ---------------------------------------------------------------------------------------------------

    def _framed(self, found: list[int]) -> list[int]:
        one = self.vocabulary
        before = [one.begin] if one.adds_begin and one.begin is not None else []
        after = [one.end] if one.adds_end and one.end is not None else []
        return [*before, *found, *after]

    def _encoded(self, data: bytes, whole: "_WholePieces") -> list[int]:
        found: list[int] = []
        is_first = True
        for fragment in whole.fragments(data):
            if isinstance(fragment, int):
                found.append(fragment)
                is_first = True
                continue
            scheme = self.vocabulary.scheme
            if isinstance(scheme, BytePieces):
                found += self._words(fragment, scheme)
            else:
                found += self._characters(fragment, scheme, is_first=is_first)
            is_first = False
        return found

    def _words(self, data: bytes, scheme: BytePieces) -> Iterator[int]:
        text = data.decode()
        codes = [ord(one) for one in text]
        spans = [(0, len(codes))]
        for pattern in scheme.patterns:
            spans = [word for start, end in spans for word in pattern.words(codes, start, end)]
        for start, end in spans:
            yield from self._word(text[start:end].encode(), scheme)

    def _word(self, word: bytes, scheme: BytePieces) -> tuple[int, ...]:
        known = self._known.get(word)
        if known is None:
            known = tuple(self._merged(word, scheme))
            if len(word) <= 64 and len(self._known) < 1 << 16:
                self._known[word] = known
        return known

    def _merged(self, word: bytes, scheme: BytePieces) -> list[int]:
        whole = self.vocabulary.ordinary.get(word) if scheme.takes_whole_words else None
        if whole is not None:
            return [whole]
        merges = scheme.merges
        ids = [self.vocabulary.byte_ids[one] for one in word]
        return [one for one in _joined(ids, lambda left, right: merges.get((left, right))) if one >= 0]

    def _characters(self, data: bytes, scheme: ScoredPieces, *, is_first: bool) -> Iterator[int]:
        text = (b" " if scheme.has_space_before and is_first else b"") + data.replace(SPACE_SIGN, b" ")
        marks = [one.encode() for one in text.decode()]
        numbers, pieces = self.vocabulary.ordinary, self.vocabulary.pieces
        ids = [numbers.get(one, at - len(marks)) for at, one in enumerate(marks)]  # negative if it is not a piece

        def text_of(one: int) -> bytes:
            return pieces[one] if one >= 0 else marks[one]

        def joined(left: int, right: int) -> tuple[int, int] | None:
            found = numbers.get(text_of(left) + text_of(right))
            return None if found is None else (scheme.ranks[found], found)

        for one in _joined(ids, joined):
            if one >= 0:
                yield one
            else:
                bytes_of = (self.vocabulary.byte_ids[byte] for byte in marks[one])
                yield from (byte for byte in bytes_of if byte >= 0)


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each byte that belongs to no character."""
    assert isinstance(error, UnicodeDecodeError)
    return _REPLACEMENT, error.start + 1


codecs.register_error(_EACH_BYTE, _each_byte)


def _plain(text: str | bytes) -> bytes:
    """Text as valid UTF-8."""
    data = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    return data.decode(errors=_EACH_BYTE).encode()


class _WholePieces:
    """Finds pieces that are taken whole: the longest at each position."""

    def __init__(self, numbers: Mapping[bytes, int]) -> None:
        self._numbers = numbers
        lengths: dict[int, set[int]] = {}
        for text in numbers:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        firsts = b"".join(re.escape(bytes([one])) for one in lengths)
        self._candidates = re.compile(b"[" + firsts + b"]") if firsts else None

    def fragments(self, data: bytes) -> Iterator[bytes | int]:
        """A text as the numbers of such pieces and the text between them."""
        at = 0
        while self._candidates is not None:
            start, text = self._next(data, at)
            if text is None:
                break
            if start > at:
                yield data[at:start]
            yield self._numbers[text]
            at = start + len(text)
        if at < len(data):
            yield data[at:]

    def _next(self, data: bytes, at: int) -> tuple[int, bytes | None]:
        assert self._candidates is not None
        for match in self._candidates.finditer(data, at):
            for length in self._lengths[match[0][0]]:
                text = data[match.start() : match.start() + length]
                if text in self._numbers:
                    return match.start(), text
        return len(data), None


def _joined(ids: Sequence[int], joined: Joined) -> list[int]:
    """Merge neighbours while any pair merges: the lowest rank first, the leftmost of equals."""
    kept = list(ids)
    following = [*range(1, len(kept)), -1]
    before = list(range(-1, len(kept) - 1))
    is_alive = [True] * len(kept)
    queue: list[tuple[int, int, int, int, int]] = []

    def consider(left: int, right: int) -> None:
        found = joined(kept[left], kept[right]) if left >= 0 and right >= 0 else None
        if found is not None:
            heapq.heappush(queue, (found[0], left, kept[left], kept[right], found[1]))

    for left in range(len(kept) - 1):
        consider(left, left + 1)
    while queue:
        _, left, one, other, piece = heapq.heappop(queue)
        right = following[left]
        if not is_alive[left] or right < 0 or (kept[left], kept[right]) != (one, other):
            continue
        kept[left], is_alive[right] = piece, False
        following[left] = following[right]
        if following[left] >= 0:
            before[following[left]] = left
        consider(before[left], left)
        consider(left, following[left])
    return [one for one, alive in zip(kept, is_alive, strict=True) if alive]


@dataclass
class TextStream:
    r"""Decodes text that arrives in chunks of bytes: an incomplete character waits for its remaining bytes.

    >>> stream = TextStream()
    >>> [stream.feed(one) for one in (b"caf", b"\xc3", b"\xa9", b"!")], stream.finish()
    (['caf', '', 'é', '!'], '')
    """

    _waiting: bytes = b""

    def feed(self, data: bytes) -> str:
        """The text that is complete so far."""
        data = self._waiting + data
        cut = len(data)
        for back in range(1, min(4, len(data)) + 1):
            lead = data[-back]
            if lead & 0xC0 != 0x80:  # the last byte that starts a character
                needed = 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
                cut = len(data) - back if 0xC2 <= lead <= 0xF4 and back < needed else cut
                break
        self._waiting = data[cut:]
        return data[:cut].decode(errors=_EACH_BYTE)

    def finish(self) -> str:
        """The rest, with U+FFFD for bytes that never became a character."""
        left, self._waiting = self._waiting.decode(errors=_EACH_BYTE), b""
        return left
