"""The fixes that problems name in their help, as edits for an editor."""

import re
from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, Fix, FixPlace, GraphError, fixes_of
from openinfer.lang.format import format_source
from openinfer.language_service.analysis import TextAnalysis
from openinfer.language_service.text import TextEdit, TextRange


@dataclass(frozen=True)
class CodeFix:
    """A change that fixes a problem."""

    title: str
    edits: tuple[TextEdit, ...]
    problem: Diagnostic


def code_fixes(analysis: TextAnalysis, place: TextRange) -> list[CodeFix]:
    """The fixes for the problems that touch a range."""
    found: list[CodeFix] = []
    for problem in analysis.problems:
        where = analysis.range_of(problem)
        if where.start > place.end or where.end < place.start:
            continue
        for fix in fixes_of(problem.help):
            edits = [edit for one in (fix, *fix.more) for edit in _edits(analysis, where, one) or (None,)]
            if None not in edits:
                found.append(CodeFix(fix.title, tuple(edit for edit in edits if edit is not None), problem))
        if problem.code is Code.OLD_SPELLING:
            found += _formatted(analysis, problem)
    return found


def _edits(analysis: TextAnalysis, where: TextRange, fix: Fix) -> list[TextEdit]:
    """The edits of a fix; none if the text is not as the fix expects."""
    text = analysis.text
    match fix.place:
        case FixPlace.FIRST:
            start = _first(analysis, where, fix.old)
            return [] if start is None else [TextEdit(TextRange(start, start + len(fix.old)), fix.new)]
        case FixPlace.WHOLE:
            return [TextEdit(where, fix.new)]
        case FixPlace.STATEMENT:
            return [TextEdit(statement_around(analysis, where), fix.new)]
        case FixPlace.BEFORE:
            return [_line_before(analysis, where, fix.new)]
        case FixPlace.END:
            return [TextEdit(TextRange(where.end, where.end), fix.new)]
        case FixPlace.TYPE | FixPlace.TYPE_END:
            found = re.compile(r"[A-Za-z]\w*(?:\s*\[[^\];]*\])?").match(text, _behind_colon(text, where))
            if found is None:
                return []
            start = found.start() if fix.place is FixPlace.TYPE else found.end()
            return [TextEdit(TextRange(start, found.end()), fix.new)]
        case FixPlace.ARGUMENT:
            return _argument(analysis, where, fix.new)
        case FixPlace.MOVED:
            return _moved(analysis, where, fix.old)


def _line_before(analysis: TextAnalysis, where: TextRange, new: str) -> TextEdit:
    """Insert a line in front of the statement, with its indentation."""
    start = statement_around(analysis, where).start
    before = analysis.text[analysis.text.rfind("\n", 0, start) + 1 : start]
    indent = before if before.isspace() else ""
    return TextEdit(TextRange(start, start), f"{new}\n{indent}")


def _argument(analysis: TextAnalysis, where: TextRange, new: str) -> list[TextEdit]:
    """Add an argument to the first parentheses of the statement."""
    around = statement_around(analysis, where)
    inside = [one for one in analysis.recovered.tokens if around.start <= one.start_pos < around.end]
    closing = next((at for at, one in enumerate(inside) if one.type == "_RPAR"), 0)
    if not closing:
        return []
    place = inside[closing].start_pos
    return [TextEdit(TextRange(place, place), new if inside[closing - 1].type == "_LPAR" else f", {new}")]


def _moved(analysis: TextAnalysis, where: TextRange, beginning: str) -> list[TextEdit]:
    """Move a later statement in front of the one around the range."""
    text, around = analysis.text, statement_around(analysis, where)
    found = re.compile(rf"{re.escape(beginning)}\b[^;{{}}]*;").search(text, around.end)
    if found is None:
        return []
    start, end = found.span()
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].isspace() and text[end : end + 1] == "\n":
        start, end = line, end + 1  # it is alone on its line
    return [_line_before(analysis, where, found.group()), TextEdit(TextRange(start, end), "")]


def _behind_colon(text: str, where: TextRange) -> int:
    found = re.compile(r"[^:;]*:\s*").match(text, where.start)
    return where.start if found is None else found.end()


def _first(analysis: TextAnalysis, where: TextRange, old: str) -> int | None:
    """Where the old text first occurs, in or around the range, or alone in its statement; words match as a whole."""
    pattern = re.escape(old)
    if re.match(r"\w", old):
        pattern = rf"(?<!\w){pattern}"
    if re.search(r"\w\Z", old):
        pattern = rf"{pattern}(?!\w)"
    sought = re.compile(pattern)
    begin = max(0, where.start - len(old) + (where.start < where.end))
    for found in sought.finditer(analysis.text, begin, where.end + len(old)):
        if found.start() <= where.end and found.end() >= where.start:
            return found.start()
    around = statement_around(analysis, where)
    alone = [found.start() for found in sought.finditer(analysis.text, around.start, around.end)]
    return alone[0] if len(alone) == 1 else None


def statement_around(analysis: TextAnalysis, where: TextRange) -> TextRange:
    """The statement around a range, from its first token to its semicolon."""
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
    """The edits that bring a text into canonical form; none if it is canonical already, or its syntax is wrong."""
    try:
        formatted = format_source(analysis.text, analysis.source.name)
    except GraphError:
        return []
    if formatted == analysis.text:
        return []
    return [TextEdit(TextRange(0, len(analysis.text)), formatted)]
