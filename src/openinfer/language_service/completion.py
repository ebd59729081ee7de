"""Completions: ops, parameters, variables, tensors of the model, keywords."""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from openinfer.dtypes import DTYPES
from openinfer.lang.tokens import SourceToken, trivia
from openinfer.language_service.analysis import TextAnalysis
from openinfer.language_service.hover import described
from openinfer.language_service.symbols import SymbolKind
from openinfer.language_service.text import TextRange
from openinfer.language_service.words import ATTRIBUTES, CONSTRAINTS, FORMS, KEYWORDS, SECTIONS
from openinfer.ops import OPS, usage
from openinfer.ops.arguments import default_text
from openinfer.ops.record import OpRecord, Param

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CACHE = re.compile(r"\bcache\s*\.\s*[A-Za-z]*\Z")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_OPENING = {"_LBRACE": "_RBRACE", "_LPAR": "_RPAR", "_LSQB": "_RSQB"}
_VALUES = (SymbolKind.VARIABLE, SymbolKind.TEMPORARY)
_IN_BRACKETS = (SymbolKind.INDEX, SymbolKind.VARIABLE, SymbolKind.SIZE)
_READERS = frozenset({"TRANSFER", "CACHE_READ", "CACHE_WRITE", "CACHE_RESET", "RETURN", "YIELD", "AWAIT", "_COMMA"})
_COUNTERS = frozenset({"CACHE_INCREMENT", "CACHE_DECREMENT"})
_DECLARATIONS = frozenset({*SECTIONS, "constants", "inputs", "outputs", "state"} - {"block"})


@dataclass(frozen=True)
class CompletionEntry:
    """A completion. ``snippet`` has placeholders, ``${1:name}``; ``range`` is replaced."""

    label: str
    kind: str
    range: TextRange
    detail: str = ""
    documentation: str = ""
    insert: str = ""
    snippet: str = ""


@dataclass(frozen=True)
class _Place:
    """What precedes a cursor: the tokens of its statement, the open brackets, and the word being typed."""

    analysis: TextAnalysis
    offset: int
    range: TextRange
    tokens: tuple[SourceToken, ...]
    """From the start of the statement up to the word."""
    braces: tuple[str, ...]
    """The first word of what each open brace belongs to."""
    brackets: tuple[int, ...]
    """The positions of the open parentheses and square brackets among the tokens."""

    @property
    def last(self) -> str:
        return self.tokens[-1].type if self.tokens else ""

    @property
    def words(self) -> list[str]:
        return [one.type for one in self.tokens]


def completions(analysis: TextAnalysis, offset: int) -> list[CompletionEntry]:
    """The completions at an offset; they replace the word being typed."""
    text = analysis.text[:offset]
    open_mark, start = _opened(analysis, offset)
    if open_mark == "comment":
        return []
    place = _place(analysis, offset)
    if open_mark == "string":
        return list(_entries_of_model(analysis, TextRange(start + 1, offset))) if _names_model(place) else []
    cache = _CACHE.search(text, text.rfind("\n") + 1)
    if cache is not None:
        begin = TextRange(cache.start(), offset)
        return [_form(word, KEYWORDS[word], begin) for word in KEYWORDS if word.startswith("cache.")]
    return list(_found(place))


def _opened(analysis: TextAnalysis, offset: int) -> tuple[str, int]:
    """Whether an offset is inside a comment or a string, and where that begins."""
    tokens = analysis.recovered.tokens
    number = bisect_left(tokens, offset, key=lambda one: one.start_pos)
    behind = tokens[number - 1].start_pos if number else 0
    kind, piece, start = deque(trivia(analysis.text[behind:offset]), maxlen=1).pop() if behind < offset else ("", "", 0)
    if piece.startswith("//") or (piece.startswith("/*") and kind != "comment"):
        return "comment", behind + start
    is_string = piece.startswith('"') and _STRING.fullmatch(piece) is None
    return ("string", behind + start) if is_string else ("", offset)


def _place(analysis: TextAnalysis, offset: int) -> _Place:
    word = _WORD.search(analysis.text, max(0, offset - 200), offset)
    start = word.start() if word else offset
    statement: list[SourceToken] = []
    braces: list[str] = []
    for token in analysis.recovered.tokens:
        if token.end_pos > start:
            break
        if token.type == "_LBRACE":
            braces.append(_heading(statement))
        elif token.type == "_RBRACE" and braces:
            braces.pop()
        statement.append(token)
        if token.type in ("_LBRACE", "_RBRACE", "_SEMICOLON"):
            statement = []
    brackets: list[int] = []
    for number, token in enumerate(statement):
        if token.type in ("_LPAR", "_LSQB"):
            brackets.append(number)
        elif token.type in ("_RPAR", "_RSQB") and brackets:
            brackets.pop()
    return _Place(analysis, offset, TextRange(start, offset), tuple(statement), tuple(braces), tuple(brackets))


def _heading(statement: Sequence[SourceToken]) -> str:
    return "with" if statement and statement[-1].type == "_WITH" else (statement[0].value if statement else "")


# --- by context -------------------------------------------------------------------------------------------------------


def _found(place: _Place) -> Iterator[CompletionEntry]:
    inside = place.braces[-1] if place.braces else ""
    if inside in ("", "graph", "let"):
        yield from (_form(word, text, place.range) for word, text in SECTIONS.items())
    elif inside in _DECLARATIONS:
        yield from _in_section(place, inside)
    elif inside == "with":
        for word, text in CONSTRAINTS.items():
            yield CompletionEntry(word, "property", place.range, "constraint", text, f"{word} = ")
    else:
        yield from _in_block(place)


def _in_section(place: _Place, section: str) -> Iterator[CompletionEntry]:
    if place.last == "_COLON":
        yield from _dtypes(place)
    elif place.last == "_AT":
        for word, text in ATTRIBUTES.items():
            yield CompletionEntry(word, "property", place.range, "attribute", text)
    elif place.brackets or section == "sizes":
        yield from _symbols(place, (SymbolKind.SIZE,))
        yield from _model_sizes(place)
    elif not place.tokens and section != "sizes" and place.analysis.model is not None:
        declared = place.analysis.graph.vars
        for name, info in place.analysis.model.tensors.items():
            if name not in declared and name.isidentifier():
                yield CompletionEntry(
                    name, "value", place.range, info.type_text, "from the model", f"{name}: {info.type_text};"
                )


def _in_block(place: _Place) -> Iterator[CompletionEntry]:
    words = place.words
    opened = place.tokens[place.brackets[-1]].type if place.brackets else ""
    if place.last == "OP":
        yield from _ops(place)
    elif place.last == "_COLON":
        yield from _dtypes(place)
    elif opened == "_LSQB" and "ASSIGN" in words:
        yield from _symbols(place, (SymbolKind.SIZE,))
        yield from _model_sizes(place)
    elif opened == "_LSQB" and words[place.brackets[-1] - 1 : place.brackets[-1]] != ["_EQUALS"]:
        yield from _symbols(place, _IN_BRACKETS)
    elif opened == "_LPAR" and "OP" in words:
        yield from _arguments(place)
    elif opened == "_LPAR" or "_IN" in words:
        yield from _symbols(place, (*_VALUES, SymbolKind.INDEX, SymbolKind.SIZE))
    elif place.last == "_INTO":
        yield from _symbols(place, _VALUES, is_written=True)
    elif words[:1] in (["BRANCH"], ["CALL"]):
        yield from _symbols(place, (SymbolKind.BLOCK, *(_VALUES if words[0] == "BRANCH" else ())))
    elif place.last in _READERS or place.last in _COUNTERS:
        yield from _symbols(place, _VALUES)
    elif not place.tokens:
        yield from (_form(word, text, place.range) for word, text in KEYWORDS.items() if word in FORMS)
        yield from _symbols(place, _VALUES, is_written=True)
    elif place.last == "_EQUALS" and not place.brackets:
        yield _form("op", KEYWORDS["op"], place.range, "op ${1:name}($2);")


def _arguments(place: _Place) -> Iterator[CompletionEntry]:
    """Completions between the parentheses of an op."""
    name = next(two.value for one, two in zip(place.tokens, place.tokens[1:], strict=False) if one.type == "OP")
    record = OPS.get(name)
    if place.last == "_EQUALS":
        label = place.tokens[-2].value if len(place.tokens) > 1 else ""
        param = None if record is None else record.param(label)
        if param is not None:
            yield from _param_values(place, param)
            return
    yield from _symbols(place, (*_VALUES, SymbolKind.INDEX))
    if record is not None and place.last in ("_LPAR", "_COMMA"):
        yield from _parameters(place, record)


def _parameters(place: _Place, record: OpRecord) -> Iterator[CompletionEntry]:
    start = place.brackets[-1]
    given = {
        one.value
        for one, two in zip(place.tokens[start:], place.tokens[start + 1 :], strict=False)
        if two.type == "_EQUALS"
    }
    for param in record.params:
        if param.name not in given:
            detail = f"{param.kind}{default_text(param)}"
            yield CompletionEntry(param.name, "property", place.range, detail, param.doc, f"{param.name}=")


def _param_values(place: _Place, param: Param) -> Iterator[CompletionEntry]:
    for choice in param.choices:
        yield CompletionEntry(f'"{choice}"', "value", place.range, param.name)
    if param.kind == "bool":
        for word in ("true", "false"):
            yield CompletionEntry(word, "keyword", place.range, param.name)
    if param.kind in ("dtype", "dtypes"):
        yield from _dtypes(place)
    yield from _symbols(place, (SymbolKind.VARIABLE,), sections=("constant", "constants"))


# --- candidates -------------------------------------------------------------------------------------------------------


def _ops(place: _Place) -> Iterator[CompletionEntry]:
    for name, record in OPS.items():
        snippet = f"{name}(${{1:{', '.join(one.name for one in record.signature.inputs if not one.optional)}}})"
        yield CompletionEntry(name, "function", place.range, usage(record), record.doc, name, snippet)


def _dtypes(place: _Place) -> Iterator[CompletionEntry]:
    for name in DTYPES:
        yield CompletionEntry(name, "type", place.range, "dtype")


def _symbols(
    place: _Place, kinds: Iterable[SymbolKind], *, is_written: bool = False, sections: Sequence[str] = ()
) -> Iterator[CompletionEntry]:
    analysis, wanted = place.analysis, set(kinds)
    seen: set[str] = set()
    for symbol in analysis.index.visible(place.offset, analysis.block_at(place.offset)):
        if symbol.kind not in wanted or symbol.name in seen or (sections and symbol.detail not in sections):
            continue
        if is_written and symbol.detail in ("constant", "constants"):
            continue
        seen.add(symbol.name)
        yield CompletionEntry(symbol.name, symbol.kind.value, place.range, described(analysis, symbol))


def _model_sizes(place: _Place) -> Iterator[CompletionEntry]:
    known = {symbol.name for symbol in place.analysis.index.symbols if symbol.kind is SymbolKind.SIZE}
    for name, value in place.analysis.model.sizevars.items() if place.analysis.model is not None else ():
        if name not in known:
            yield CompletionEntry(name, "size", place.range, f":= {value}", "from the model")


def _names_model(place: _Place) -> bool:
    """Whether a string here names an entry of the model."""
    tail = [one.value for one in place.tokens if one.type != "BAD_STRING"][-3:]
    return tail[-2:] in (["ref", "("], ["model", "["], ["pattern", "("], ["fmt", "("])


def _entries_of_model(analysis: TextAnalysis, where: TextRange) -> Iterator[CompletionEntry]:
    model = analysis.model
    if model is None:
        return
    for name, info in model.tensors.items():
        yield CompletionEntry(name, "value", where, info.type_text, "a tensor of the model")
    for name, entry in model.metadata_info.items():
        yield CompletionEntry(name, "value", where, entry.type_name, "metadata of the model")


def _form(word: str, text: str, where: TextRange, snippet: str | None = None) -> CompletionEntry:
    return CompletionEntry(word, "keyword", where, documentation=text, insert=word, snippet=snippet or FORMS[word])
