"""The tokenizer in a GGUF file: data that is read and checked, never executed."""

import os
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import NoReturn

import numpy as np

from openinfer.errors import Code, Diagnostic, FileSpan, ImportingError, printable
from openinfer.importing.gguf_file import GgufFile, MetadataEntry
from openinfer.importing.problems import bad_file
from openinfer.tokenizer import ChatFormat, PieceKind, Tokenizer, Vocabulary, chat_format
from openinfer.tokenizer.encoding import SPACE_SIGN
from openinfer.tokenizer.splits import SPLIT_RULES, SplitRule, patterns_of
from openinfer.tokenizer.vocabulary import BytePieces, ScoredPieces

_MOST_PIECES, _MOST_MERGES = 1 << 20, 1 << 21
_MOST_SHOWN = 40
_PREFIX = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"
_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "[EOS]",
    "<|end_of_text|>", "<eos>",
)  # fmt: skip
"""Tokens that end an answer: text never encodes to one of them, even if the file allows that for any text."""


def gguf_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a GGUF file.

    Byte-level pieces (``gpt2``) and scored pieces (``llama``) are supported; others are refused.
    """
    with GgufFile(os.fspath(path)) as file:
        return Tokenizer(_Reader(file).vocabulary())


def gguf_chat_format(path: str | os.PathLike[str]) -> ChatFormat:
    """The chat format of the model in a GGUF file, if its template has a known form."""
    with GgufFile(os.fspath(path)) as file:
        template = file.metadata.get(_TEMPLATE)
        if not isinstance(template, str):
            raise bad_file(file.path, "it has no chat template", "use a format from openinfer.tokenizer.CHAT_FORMATS")
        try:
            return chat_format(template)
        except ImportingError as error:
            one = error.diagnostics[0]
            raise ImportingError(Diagnostic(one.code, one.message, FileSpan(file.path), one.help)) from error


def _alphabet() -> Mapping[str, int]:
    """The characters that stand for bytes in byte-level pieces: visible ones for themselves, others from U+0100."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [one for one in range(256) if one not in seen]
    return {chr(one): one for one in seen} | {chr(0x100 + at): one for at, one in enumerate(others)}


_BYTES = _alphabet()


class _Reader:
    """Reads the tokenizer of one file."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file

    def vocabulary(self) -> Vocabulary:
        """Read everything and refuse invalid data."""
        readers: dict[str, Callable[[Sequence[str], tuple[PieceKind, ...]], Vocabulary]] = {
            "gpt2": self._byte_level,
            "llama": self._scored,
        }
        model = self._entry("model")
        if not isinstance(model, str):
            self._refuse("model", "is missing, or not a string", "the file has no tokenizer")
        if model not in readers:
            self._unsupported(f"its tokenizer {printable(model)[:_MOST_SHOWN]!r} is not supported", "; ".join(readers))
        texts = self._texts("tokens", _MOST_PIECES)
        if not texts:
            self._refuse("tokens", "is empty")
        seen: dict[str, int] = {}
        for at, one in enumerate(texts):
            if one and seen.setdefault(one, at) != at:
                self._refuse(f"tokens[{at}]", f"is the same as token {seen[one]}: {self._shown(one)}")
        return readers[model](texts, self._kinds(texts))

    # --- entries ----------------------------------------------------------------------------------------------------

    def _entry(self, key: str) -> MetadataEntry | None:
        return self._file.metadata.get(_PREFIX + key)

    def _refuse(self, key: str, reason: str, advice: str | None = None) -> NoReturn:
        raise bad_file(self._file.path, f"{_PREFIX}{key} {reason}", advice)

    def _unsupported(self, reason: str, known: str) -> NoReturn:
        message = f"cannot read the tokenizer of {self._file.path!r}: {reason}"
        raise ImportingError(
            Diagnostic(Code.UNSUPPORTED_NODE, message, FileSpan(self._file.path), f"supported are {known}")
        )

    @staticmethod
    def _shown(text: str) -> str:
        return repr(printable(text)[:_MOST_SHOWN])

    def _texts(self, key: str, most: int) -> list[str]:
        stored = self._entry(key)
        if not isinstance(stored, tuple):
            self._refuse(key, "is missing, or not an array of strings")
        if len(stored) > most:
            self._refuse(key, f"has {len(stored)} strings, more than {most}")
        found = []
        for at, one in enumerate(stored):
            try:
                found.append(one.decode())
            except UnicodeDecodeError:
                self._refuse(f"{key}[{at}]", f"is not UTF-8: {one[:_MOST_SHOWN]!r}")
        return found

    def _numbers(self, key: str, count: int) -> list[float] | None:
        stored = self._entry(key)
        if stored is None:
            return None
        if not isinstance(stored, np.ndarray):
            self._refuse(key, "is not an array of numbers")
        if len(stored) != count:
            self._refuse(key, f"has {len(stored)} numbers for {count} tokens")
        found: list[float] = stored.tolist()
        return found

    def _kinds(self, texts: Sequence[str]) -> tuple[PieceKind, ...]:
        known = {float(one): one for one in PieceKind}
        stored = self._numbers("token_type", len(texts))
        kinds = [known.get(one, PieceKind.NORMAL) for one in stored or [1.0] * len(texts)]
        return tuple(
            PieceKind.CONTROL if kind is PieceKind.USER_DEFINED and text in _ENDS else kind
            for text, kind in zip(texts, kinds, strict=True)
        )

    def _flag(self, key: str, otherwise: bool) -> bool:  # noqa: FBT001  (a value, not a switch)
        value = self._entry(key)
        if value is not None and not isinstance(value, bool):
            self._refuse(key, f"is true or false, not {value!r:.{_MOST_SHOWN}}")
        return otherwise if value is None else value

    def _token(self, key: str, count: int) -> int | None:
        value = self._entry(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            self._refuse(key, f"is the number of one of {count} tokens, not {value!r:.{_MOST_SHOWN}}")
        return value

    # --- byte-level pieces ------------------------------------------------------------------------------------------

    def _byte_level(self, texts: Sequence[str], kinds: tuple[PieceKind, ...]) -> Vocabulary:
        rule = self._rule()
        pieces = tuple(
            self._bytes_of(text) if kind is PieceKind.NORMAL else text.encode()
            for text, kind in zip(texts, kinds, strict=True)
        )
        numbers = {text: at for at, text in enumerate(texts)}
        byte_ids = [-1] * 256
        for sign, byte in _BYTES.items():
            byte_ids[byte] = numbers.get(sign, -1)
        scheme = BytePieces(self._merges(numbers), patterns_of(rule), rule.takes_whole_words)
        return self._whole(pieces, kinds, scheme, byte_ids, adds_begin=rule.adds_begin)

    def _rule(self) -> SplitRule:
        name = self._entry("pre")
        if name is None:
            name = "default"
        if not isinstance(name, str):
            self._refuse("pre", "is not a string")
        if name not in SPLIT_RULES:
            shown = printable(name)[:_MOST_SHOWN]
            self._unsupported(f"its way to split text, {shown!r}, is not supported", ", ".join(SPLIT_RULES))
        return SPLIT_RULES[name]

    @staticmethod
    def _bytes_of(text: str) -> bytes:
        """The bytes that a piece stands for; a piece with other characters stands for its own text."""
        found = [_BYTES.get(one, -1) for one in text]
        return text.encode() if -1 in found else bytes(found)

    def _merges(self, numbers: Mapping[str, int]) -> Mapping[tuple[int, int], tuple[int, int]]:
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, text in enumerate(self._texts("merges", _MOST_MERGES)):
            left, sign, right = text.partition(" ")
            if not left or not sign or not right:
                self._refuse(f"merges[{rank}]", f"is two pieces with a space between them, not {self._shown(text)}")
            for one in (left, right, left + right):
                if one not in numbers:
                    self._refuse(f"merges[{rank}]", f"names {self._shown(one)}, which is not one of the tokens")
            pair = (numbers[left], numbers[right])
            if pair in found:
                self._refuse(f"merges[{rank}]", f"is the same as merge {found[pair][0]}: {self._shown(text)}")
            found[pair] = (rank, numbers[left + right])
        return found

    # --- scored pieces ----------------------------------------------------------------------------------------------

    def _scored(self, texts: Sequence[str], kinds: tuple[PieceKind, ...]) -> Vocabulary:
        scores = self._numbers("scores", len(texts))
        if scores is None:
            self._refuse("scores", "is missing")
        strange = next((at for at, one in enumerate(scores) if isnan(one)), None)
        if strange is not None:
            self._refuse(f"scores[{strange}]", "is not a number")
        order = {score: rank for rank, score in enumerate(sorted(set(scores), reverse=True))}
        unknown = self._token("unknown_token_id", len(texts))
        byte_ids = [-1 if unknown is None else unknown] * 256
        pieces = []
        for at, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
            if kind is PieceKind.BYTE:
                byte = self._byte(at, text)
                byte_ids[byte] = at
                pieces.append(bytes([byte]))
            else:
                is_literal = kind in (PieceKind.CONTROL, PieceKind.USER_DEFINED)
                pieces.append(text.encode() if is_literal else text.encode().replace(SPACE_SIGN, b" "))
        reachable = tuple(  # pieces use a sign for spaces, so one with a real space never matches
            PieceKind.UNUSED if kind is PieceKind.NORMAL and " " in text else kind
            for text, kind in zip(texts, kinds, strict=True)
        )
        scheme = ScoredPieces(tuple(order[one] for one in scores), self._flag("add_space_prefix", otherwise=True))
        return self._whole(tuple(pieces), reachable, scheme, byte_ids, adds_begin=True)

    def _byte(self, at: int, text: str) -> int:
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            digits = text[3:5]
            if all(one in "0123456789ABCDEFabcdef" for one in digits):
                return int(digits, 16)
        self._refuse(f"tokens[{at}]", f"is a byte, <0x00> to <0xFF>, not {self._shown(text)}")

    # --- both -------------------------------------------------------------------------------------------------------

    def _whole(
        self,
        pieces: tuple[bytes, ...],
        kinds: tuple[PieceKind, ...],
        scheme: BytePieces | ScoredPieces,
        byte_ids: Sequence[int],
        *,
        adds_begin: bool,
    ) -> Vocabulary:
        count = len(pieces)
        named = {text.encode() for text in _ENDS}
        ends = {at for at, one in enumerate(pieces) if one in named and kinds[at] is PieceKind.CONTROL}
        ends |= {one for key in ("eos", "eot", "eom") if (one := self._token(f"{key}_token_id", count)) is not None}
        return Vocabulary(
            pieces=pieces,
            kinds=kinds,
            scheme=scheme,
            byte_ids=tuple(byte_ids),
            begin=self._token("bos_token_id", count),
            end=self._token("eos_token_id", count),
            adds_begin=self._flag("add_bos_token", adds_begin),
            adds_end=self._flag("add_eos_token", otherwise=False),
            ends=frozenset(ends),
        )
