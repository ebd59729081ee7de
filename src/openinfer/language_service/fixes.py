"""Changes of the text that problems name in their help, for an editor to make."""

import re
from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, Fix, FixPlace, GraphError, fixes_of
from openinfer.lang.format import format_source
from openinfer.language_service.analysis import TextAnalysis
from openinfer.language_service.text import TextEdit, TextRange


@dataclass(frozen=True)
class CodeFix:
    """A change that makes a problem go away."""

    title: str
    edits: tuple[TextEdit, ...]
    problem: Diagnostic


def code_fixes(analysis: TextAnalysis, place: TextRange) -> list[CodeFix]:
    """The changes for the problems that touch a range."""
    found: list[CodeFix] = []
    for problem in analysis.problems:
        where = analysis.range_of(problem)
        if where.start > place.end or where.end < place.start:
            continue
        for fix in fixes_of(problem.help):
            edit = _edit(analysis, where, fix)
            if edit is not None:
                found.append(CodeFix(fix.title, (edit,), problem))
        if problem.code is Code.OLD_SPELLING:
            found += _formatted(analysis, problem)
    return found


def _edit(analysis: TextAnalysis, where: TextRange, fix: Fix) -> TextEdit | None:
    text = analysis.text
    match fix.place:
        case FixPlace.FIRST:
            start = _first(text, where, fix.old)
            return None if start is None else TextEdit(TextRange(start, start + len(fix.old)), fix.new)
        case FixPlace.WHOLE:
            return TextEdit(where, fix.new)
        case FixPlace.STATEMENT:
            return TextEdit(statement_around(analysis, where), fix.new)
        case FixPlace.BEFORE:
            start = statement_around(analysis, where).start
            line = text.rfind("\n", 0, start) + 1
            indent = text[line:start] if text[line:start].isspace() else ""
            return TextEdit(TextRange(start, start), f"{fix.new}\n{indent}")
        case FixPlace.END:
            return TextEdit(TextRange(where.end, where.end), fix.new)
        case FixPlace.TYPE:
            found = re.compile(r"[A-Za-z]\w*(?:\s*\[[^\];]*\])?").match(text, _behind_colon(text, where))
            return None if found is None else TextEdit(TextRange(*found.span()), fix.new)


def _behind_colon(text: str, where: TextRange) -> int:
    found = re.compile(r"[^:;]*:\s*").match(text, where.start)
    return where.start if found is None else found.end()


def _first(text: str, where: TextRange, old: str) -> int | None:
    """Where the old text stands first, in the range or around it; words are whole words."""
    pattern = re.escape(old)
    if re.match(r"\w", old):
        pattern = rf"(?<!\w){pattern}"
    if re.search(r"\w\Z", old):
        pattern = rf"{pattern}(?!\w)"
    begin = max(0, where.start - len(old) + (where.start < where.end))
    for found in re.compile(pattern).finditer(text, begin, where.end + len(old)):
        if found.start() <= where.end and found.end() >= where.start:
            return found.start()
    return None


def statement_around(analysis: TextAnalysis, where: TextRange) -> TextRange:
    """The statement around a place, from its first token to its semicolon."""
    ends = ("_SEMICOLON", "_LBRACE", "_RBRACE")
    tokens = analysis.recovered.tokens
    before = [one for one in tokens if one.end_pos <= where.start and one.type in ends]
    floor = before[-1].end_pos if before else 0
    inside = [one for one in tokens if one.start_pos >= floor]
    start = inside[0].start_pos if inside else where.start
    after = next((one for one in inside if one.type in ends and one.end_pos >= where.end), None)
    if after is None:
        return TextRange(start, where.end)
    return TextRange(start, after.end_pos if after.type == "_SEMICOLON" else after.start_pos)


def _formatted(analysis: TextAnalysis, problem: Diagnostic) -> list[CodeFix]:
    edits = format_edits(analysis)
    return [CodeFix("put the whole text into canonical form", tuple(edits), problem)] if edits else []


def format_edits(analysis: TextAnalysis) -> list[TextEdit]:
    """The edits that put a text into canonical form; none where it is so already, or where its syntax is wrong."""
    try:
        formatted = format_source(analysis.text, analysis.source.name)
    except GraphError:
        return []
    if formatted == analysis.text:
        return []
    return [TextEdit(TextRange(0, len(analysis.text)), formatted)]
