"""The semantic type of each token, for editors that highlight by meaning."""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.lang.tokens import WORDS, trivia
from openinfer.language_service.analysis import TextAnalysis
from openinfer.language_service.symbols import Occurrence, SymbolKind, SymbolRole
from openinfer.language_service.text import TextRange

TOKEN_TYPES = (
    *("namespace", "type", "typeParameter", "parameter", "variable", "property", "function", "keyword"),
    *("comment", "string", "number", "operator", "decorator", "label"),
)
"""The token types, in the order of their numbers."""
TOKEN_MODIFIERS = ("declaration", "readonly", "modification")

_OF_SYMBOL = {
    SymbolKind.SIZE: "typeParameter",
    SymbolKind.VARIABLE: "variable",
    SymbolKind.TEMPORARY: "variable",
    SymbolKind.INDEX: "parameter",
    SymbolKind.BLOCK: "namespace",
    SymbolKind.LOOP: "label",
    SymbolKind.OP: "function",
    SymbolKind.PARAMETER: "property",
    SymbolKind.ATTRIBUTE: "decorator",
    SymbolKind.CONSTRAINT: "property",
    SymbolKind.UNKNOWN: "variable",
}
_OF_TOKEN = {
    "DTYPE": "type",
    "INT": "number",
    "FLOAT": "number",
    "SPECIAL": "number",
    "BOOL": "keyword",
    "STRING": "string",
    "OPERATOR": "operator",
    "MINUS": "operator",
    "_INTO": "operator",
    "RANGE": "operator",
    "SIZE_RELATION": "operator",
}
_WORDS = frozenset(WORDS.values()) | {
    *("SIZES", "STATE", "PATTERN", "_LET", "_GRAPH", "_BUFFER", "_AFTER", "_BEFORE", "CALL", "MEMORY"),
    *("CACHE_READ", "CACHE_WRITE", "CACHE_INCREMENT", "CACHE_DECREMENT", "CACHE_RESET"),
}


@dataclass(frozen=True)
class MeaningToken:
    """A range with its type, one of ``TOKEN_TYPES``, and modifiers."""

    range: TextRange
    type: str
    modifiers: tuple[str, ...] = ()


def meaning_tokens(analysis: TextAnalysis) -> list[MeaningToken]:
    """The semantic tokens of a text, in order; none of them spans lines."""
    names = {one.range.start: one for one in analysis.index.occurrences if one.symbol.kind is not SymbolKind.ENTRY}
    found: list[MeaningToken] = []
    for token in analysis.recovered.tokens:
        place = TextRange(token.start_pos, token.end_pos)
        name = names.get(token.start_pos)
        if name is not None:
            found.append(MeaningToken(place, _OF_SYMBOL[name.symbol.kind], tuple(_modifiers(name))))
        elif token.type in _OF_TOKEN:
            found.append(MeaningToken(place, _OF_TOKEN[token.type]))
        elif token.type in _WORDS:
            found.append(MeaningToken(place, "keyword"))
    found += _comments(analysis.text)
    return sorted((piece for one in found for piece in _lines(analysis.text, one)), key=lambda one: one.range)


def _modifiers(name: Occurrence) -> Iterator[str]:
    if name.role is SymbolRole.DECLARE:
        yield "declaration"
    if name.symbol.detail in ("constant", "constants") or name.symbol.kind is SymbolKind.SIZE:
        yield "readonly"
    if name.role is SymbolRole.WRITE:
        yield "modification"


def _comments(text: str) -> Iterator[MeaningToken]:
    for kind, piece, start in trivia(text):
        if kind == "comment":
            yield MeaningToken(TextRange(start, start + len(piece)), "comment")


def _lines(text: str, token: MeaningToken) -> Iterator[MeaningToken]:
    start = token.range.start
    for line in text[start : token.range.end].splitlines(keepends=True):
        length = len(line.rstrip("\r\n"))
        if length:
            yield MeaningToken(TextRange(start, start + length), token.type, token.modifiers)
        start += len(line)
