"""Splits source text into tokens; comments are kept aside.

Reserved words are always keywords. Contextual ones (``state``, ``after`` ...) are keywords only where the grammar
accepts them, according to the parser's state, and names everywhere else.
"""

import re
from collections.abc import Callable, Container, Iterator

from openinfer.dtypes import ALIASES, DTYPES
from openinfer.ir.words import RESERVED

_TYPES = {"in": "_IN", "with": "_WITH", "true": "BOOL", "false": "BOOL", "inf": "SPECIAL", "nan": "SPECIAL"}
WORDS = {word: _TYPES.get(word, "DTYPE" if word in DTYPES or word in ALIASES else word.upper()) for word in RESERVED}
"""The reserved words and their token types."""

STATEMENT_WORDS = (
    *(
        "op",
        "assign",
        "transfer",
        "loop",
        "scope",
        "branch",
        "call",
        "return",
        "barrier",
        "dep",
        "yield",
        "await",
        "effect",
    ),
)
"""The words that can start a statement, besides a name and ``cache.``."""

CONTEXTUAL = {
    "sizes": "SIZES",
    "state": "STATE",
    "pattern": "PATTERN",
    "let": "_LET",
    "graph": "_GRAPH",
    "buffer": "_BUFFER",
    "after": "_AFTER",
    "before": "_BEFORE",
    "call": "CALL",
}
MEMORY_WORDS = ("dynamic", "volatile", "constant", "constants", "persistent", "inputs", "outputs")
CONTEXTUAL |= dict.fromkeys(MEMORY_WORDS, "MEMORY")

SYMBOLS = {
    "{": "_LBRACE",
    "}": "_RBRACE",
    "(": "_LPAR",
    ")": "_RPAR",
    "[": "_LSQB",
    "]": "_RSQB",
    ",": "_COMMA",
    ";": "_SEMICOLON",
    ":": "_COLON",
    "=": "_EQUALS",
    "!": "_BANG",
    "@": "_AT",
    "-": "MINUS",
    "+": "OPERATOR",
    "*": "OPERATOR",
    "/": "OPERATOR",
    "%": "OPERATOR",
    ">>": "_INTO",
    "..": "RANGE",
    ":=": "SIZE_RELATION",
    "<=": "SIZE_RELATION",
}

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+)
  | (?P<comment>//[^\n]*|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)
  | (?P<bad_comment>/\*.*)
  | (?P<cache>cache\s*\.\s*(?:read|write|increment|decrement|reset)(?![A-Za-z0-9_]))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<float>[0-9][0-9_]*\.[0-9][0-9_]*(?:[eE][+-]?[0-9]+)?|[0-9][0-9_]*[eE][+-]?[0-9]+)
  | (?P<int>0[xX][0-9A-Fa-f_]+|0[bB][01_]+|[0-9][0-9_]*)
  | (?P<string>"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+")
  | (?P<symbol>>>|\.\.|:=|<=|[{}()\[\],;:=!@+\-*/%])
  | (?P<bad_string>"[^\n]*)
  | (?P<unknown>.)
    """,
    re.VERBOSE | re.DOTALL,
)


_NAME_FOLLOWS = re.compile(r"(?:[ \t\r\n\f]|//[^\n]*\n|/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*+/)+[A-Za-z_]")


class SourceToken:
    """A token: its type, text and offsets."""

    __slots__ = ("end_pos", "start_pos", "type", "value")

    def __init__(self, kind: str, value: str, start_pos: int, end_pos: int) -> None:
        self.type = kind
        self.value = value
        self.start_pos = start_pos
        self.end_pos = end_pos

    def __repr__(self) -> str:
        return f"{self.type}:{self.value!r}"


def tokens(text: str, accepted: Callable[[], Container[str]]) -> Iterator[SourceToken]:
    """The tokens of a text, one at a time; ``accepted`` gives the token types that the parser currently accepts."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "word":
            word = match.group()
            name = WORDS.get(word)
            if name is None:
                name = CONTEXTUAL.get(word)
                # At the start of a statement, `call` may also be a variable; in that case, no name follows.
                is_name = name == "CALL" and not _NAME_FOLLOWS.match(text, match.end())
                if name is None or is_name or name not in accepted():
                    name = "IDENT"
            yield SourceToken(name, word, match.start(), match.end())
        elif kind == "symbol":
            symbol = match.group()
            yield SourceToken(SYMBOLS[symbol], symbol, match.start(), match.end())
        elif kind == "cache":
            name = "CACHE_" + match.group().rpartition(".")[2].strip().upper()
            yield SourceToken(name, match.group(), match.start(), match.end())
        elif kind not in ("space", "comment"):
            assert kind is not None
            yield SourceToken(kind.upper(), match.group(), match.start(), match.end())


def trivia(text: str) -> Iterator[tuple[str, str, int]]:
    """The whole text in pieces with offsets: spaces and comments verbatim, everything else as ``token``."""
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup in ("space", "comment") else "token"
        yield kind or "token", match.group(), match.start()
