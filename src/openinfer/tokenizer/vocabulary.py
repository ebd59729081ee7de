"""The parts of a tokenizer as frozen records: pieces, merges or ranks, and the rules that split text."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from openinfer.tokenizer.patterns import SplitPattern


class PieceKind(IntEnum):
    """The purpose of a piece, with the numbers that GGUF files use."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Never produced from user text."""
    USER_DEFINED = 4
    """Taken whole wherever its text occurs."""
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class BytePieces:
    """Pieces built from bytes by merges within words."""

    merges: Mapping[tuple[int, int], tuple[int, int]]
    """Pairs of pieces that merge: the rank, lowest first, and the merged piece."""
    patterns: tuple[SplitPattern, ...]
    takes_whole_words: bool


@dataclass(frozen=True)
class ScoredPieces:
    """Pieces built from characters, the best score first; characters without a piece are written as bytes."""

    ranks: tuple[int, ...]
    """The rank of each piece by score, 0 for the best."""
    has_space_before: bool
    """Whether a text gets a leading space."""


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a model, in numeric order."""

    pieces: tuple[bytes, ...]
    """The bytes of each piece in a text: UTF-8, or a part of it."""
    kinds: tuple[PieceKind, ...]
    scheme: BytePieces | ScoredPieces
    byte_ids: tuple[int, ...]
    """The piece for each of the 256 bytes; -1 if there is none, and the byte is dropped."""
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
        """The pieces that are taken whole in any text, before it is split."""
        return self._of(PieceKind.USER_DEFINED)

    @cached_property
    def special(self) -> Mapping[bytes, int]:
        """The pieces in ``whole``, and those that only markup may contain."""
        return self._of(PieceKind.USER_DEFINED, PieceKind.CONTROL, PieceKind.UNKNOWN)

    def _of(self, *kinds: PieceKind) -> Mapping[bytes, int]:
        named = zip(self.pieces, self.kinds, strict=True)
        return {text: at for at, (text, kind) in enumerate(named) if kind in kinds and text}
