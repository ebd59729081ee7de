"""What a tokenizer is made of, as frozen records: pieces, merges or ranks, and how text is split."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from openinfer.tokenizer.patterns import SplitPattern


class PieceKind(IntEnum):
    """What a piece is for, with the numbers that GGUF files have for it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Never made from what a user writes."""
    USER_DEFINED = 4
    """Taken whole wherever its text stands."""
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class BytePieces:
    """Pieces that are made of bytes by merges, within words."""

    merges: Mapping[tuple[int, int], tuple[int, int]]
    """Two pieces that become one: its rank, the smallest first, and the piece."""
    patterns: tuple[SplitPattern, ...]
    takes_whole_words: bool


@dataclass(frozen=True)
class ScoredPieces:
    """Pieces that are made of characters, the one of the best score first; others are written as bytes."""

    ranks: tuple[int, ...]
    """The place of each piece by its score, 0 for the best."""
    has_space_before: bool
    """Whether a text gets a space before it."""


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a model, in the order of their numbers."""

    pieces: tuple[bytes, ...]
    """What each stands for in a text, in UTF-8 or in a part of it."""
    kinds: tuple[PieceKind, ...]
    scheme: BytePieces | ScoredPieces
    byte_ids: tuple[int, ...]
    """The piece of each of the 256 bytes; -1 where there is none, and the byte is left out."""
    begin: int | None
    end: int | None
    adds_begin: bool
    adds_end: bool
    ends: frozenset[int]
    """The pieces that end an answer."""

    @cached_property
    def ordinary(self) -> Mapping[bytes, int]:
        """The pieces that text can become, by their text."""
        return {**self._of(PieceKind.USER_DEFINED), **self._of(PieceKind.NORMAL)}

    @cached_property
    def whole(self) -> Mapping[bytes, int]:
        """The pieces that are taken whole, before a text is split, in any text."""
        return self._of(PieceKind.USER_DEFINED)

    @cached_property
    def special(self) -> Mapping[bytes, int]:
        """Those, and those that only markup may have."""
        return self._of(PieceKind.USER_DEFINED, PieceKind.CONTROL, PieceKind.UNKNOWN)

    def _of(self, *kinds: PieceKind) -> Mapping[bytes, int]:
        named = zip(self.pieces, self.kinds, strict=True)
        return {text: at for at, (text, kind) in enumerate(named) if kind in kinds and text}
