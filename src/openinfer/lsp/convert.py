"""Converts positions, problems and answers of the language service to types of the protocol."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from lsprotocol import types

from openinfer.errors import Diagnostic, Source, Span
from openinfer.language_service import (
    TOKEN_MODIFIERS,
    TOKEN_TYPES,
    CompletionEntry,
    FoldingArea,
    MeaningToken,
    OutlineEntry,
    TextAnalysis,
    TextEdit,
    TextRange,
)

_KINDS = {
    "function": types.CompletionItemKind.Function,
    "keyword": types.CompletionItemKind.Keyword,
    "type": types.CompletionItemKind.Class,
    "property": types.CompletionItemKind.Property,
    "value": types.CompletionItemKind.Value,
    "size": types.CompletionItemKind.TypeParameter,
    "index": types.CompletionItemKind.Variable,
    "variable": types.CompletionItemKind.Variable,
    "temporary": types.CompletionItemKind.Variable,
    "block": types.CompletionItemKind.Module,
}
_OUTLINE = {
    "section": types.SymbolKind.Namespace,
    "block": types.SymbolKind.Function,
    "loop": types.SymbolKind.Array,
    "scope": types.SymbolKind.Package,
    "size": types.SymbolKind.TypeParameter,
    "constant": types.SymbolKind.Constant,
    "constants": types.SymbolKind.Constant,
}


_LINE_END = re.compile(r"\r\n|\r|\n")


class TextPositions:
    r"""Converts offsets of a text to lines and characters in a client's units; ``codec`` is pygls's.

    In the protocol a lone carriage return ends a line, too, and nothing else does but ``\n`` and ``\r\n``.
    """

    def __init__(self, source: Source, codec: Any) -> None:
        self._text = source.text
        self._codec = codec
        self._starts: list[int] = [0]
        self._ends: list[int] = []
        for found in _LINE_END.finditer(source.text):
            self._ends.append(found.start())
            self._starts.append(found.end())
        self._ends.append(len(source.text))

    def offset(self, position: Any) -> int:
        """The offset of a position; beyond the end of a line it is that end."""
        number = int(position.line)
        if number >= len(self._starts):
            return len(self._text)
        start, end = self._starts[number], self._ends[number]
        line = self._text[start:end]
        if line.isascii():
            return min(start + int(position.character), end)
        units = 0
        for place, character in enumerate(line):
            if units >= position.character:
                return start + place
            units += self._codec.client_num_units(character)
        return end

    def position(self, offset: int) -> Any:
        """The position of an offset; within a line ending it is the end of the line."""
        line = bisect_right(self._starts, offset) - 1
        before = self._text[self._starts[line] : min(offset, self._ends[line])]
        units = len(before) if before.isascii() else self._codec.client_num_units(before)
        return types.Position(line, units)

    def range(self, place: TextRange) -> Any:
        """Convert offsets to a range of the protocol."""
        return types.Range(self.position(place.start), self.position(place.end))

    def place(self, given: Any) -> TextRange:
        """Convert a range of the protocol to offsets."""
        return TextRange(self.offset(given.start), self.offset(given.end))

    def edit(self, edit: TextEdit) -> Any:
        """Convert an edit."""
        return types.TextEdit(self.range(edit.range), edit.new_text)


def diagnostic(analysis: TextAnalysis, positions: TextPositions, problem: Diagnostic) -> Any:
    """Convert a problem; its help and notes follow its message."""
    lines = [problem.message]
    if problem.help:
        lines.append(f"help: {problem.help}")
    lines += [f"note: {note}" for note in problem.notes]
    elsewhere = problem.span is not None and not isinstance(problem.span, Span)
    if elsewhere:
        lines.append(f"in {problem.span.facts().get('file')}" if problem.span is not None else "")
    severity = types.DiagnosticSeverity.Warning if problem.code.is_warning else types.DiagnosticSeverity.Error
    return types.Diagnostic(
        range=positions.range(_visible(analysis, problem)),
        message="\n".join(lines),
        severity=severity,
        code=str(problem.code),
        source="openinfer",
    )


def _visible(analysis: TextAnalysis, problem: Diagnostic) -> TextRange:
    """Where a problem is shown: at least one character, if the text has one."""
    place = analysis.range_of(problem)
    if place.start < place.end:
        return place
    return TextRange(max(0, place.start - 1), place.end) if place.start else TextRange(0, min(1, len(analysis.text)))


def completion_item(positions: TextPositions, entry: CompletionEntry, *, snippets: bool) -> Any:
    """Convert a completion, with placeholders if the client supports them."""
    is_snippet = snippets and bool(entry.snippet)
    text = entry.snippet if is_snippet else entry.insert or entry.label
    return types.CompletionItem(
        label=entry.label,
        kind=_KINDS.get(entry.kind, types.CompletionItemKind.Text),
        detail=entry.detail or None,
        documentation=_markdown(entry.documentation) if entry.documentation else None,
        insert_text_format=types.InsertTextFormat.Snippet if is_snippet else types.InsertTextFormat.PlainText,
        text_edit=types.TextEdit(positions.range(entry.range), text),
    )


def _markdown(text: str) -> Any:
    return types.MarkupContent(types.MarkupKind.Markdown, text)


def hover_answer(positions: TextPositions, markdown: str, place: TextRange) -> Any:
    """The hover answer for a range."""
    return types.Hover(_markdown(markdown), positions.range(place))


def document_symbol(positions: TextPositions, entry: OutlineEntry) -> Any:
    """Convert an outline entry and its children."""
    return types.DocumentSymbol(
        name=entry.name or "(no name)",
        kind=_OUTLINE.get(entry.kind, types.SymbolKind.Variable),
        range=positions.range(entry.range),
        selection_range=positions.range(entry.chosen),
        detail=entry.detail or None,
        children=[document_symbol(positions, one) for one in entry.children],
    )


def folding_range(positions: TextPositions, area: FoldingArea) -> Any:
    """Convert a range that can be folded; the line with its closing brace stays visible."""
    start, end = positions.position(area.range.start).line, positions.position(area.range.end).line
    kind = types.FoldingRangeKind.Comment if area.is_comment else types.FoldingRangeKind.Region
    return types.FoldingRange(start_line=start, end_line=end if area.is_comment else max(start, end - 1), kind=kind)


LEGEND = types.SemanticTokensLegend(token_types=list(TOKEN_TYPES), token_modifiers=list(TOKEN_MODIFIERS))


def token_data(positions: TextPositions, tokens: Iterable[MeaningToken]) -> list[int]:
    """Encode tokens for the protocol, each relative to the one before."""
    found: list[int] = []
    line, character = 0, 0
    for token in tokens:
        start, end = positions.position(token.range.start), positions.position(token.range.end)
        skipped = start.character - (character if start.line == line else 0)
        bits = sum(1 << TOKEN_MODIFIERS.index(one) for one in token.modifiers)
        length = end.character - start.character
        found += [start.line - line, skipped, length, TOKEN_TYPES.index(token.type), bits]
        line, character = start.line, start.character
    return found
