"""Renders diagnostics as text: code, location, the source line or bytes, carets, help.

Names and paths may come from untrusted files, so control characters are escaped.
"""

import re
import unicodedata

from openinfer.errors.diagnostic import Diagnostic
from openinfer.errors.spans import ByteSpan, DocumentSpan, FileSpan, Span

LINE_WIDTH = 120
MESSAGE_WIDTH = 1000
BYTES_PER_ROW = 16
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z\\\\^_])")


def printable(text: str) -> str:
    r"""Escape everything in a text that could move a terminal's cursor or change its colours.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def without_colours(text: str) -> str:
    r"""Strip terminal colour sequences from the output of another program or library.

    >>> without_colours("a \x1b[1;31mred\x1b[0m word")
    'a red word'
    """
    return _SEQUENCE.sub("", text)


def render(diagnostic: Diagnostic) -> str:
    """Render one diagnostic for people."""
    kind = "warning" if diagnostic.code.is_warning else "error"
    lines = [f"{kind}[{diagnostic.code}]: {printable(_shortened(diagnostic.message))}"]
    match diagnostic.span:
        case Span():
            lines += _source_lines(diagnostic.span)
        case ByteSpan():
            lines += _byte_lines(diagnostic.span)
        case FileSpan():
            lines.append(f"  --> {printable(diagnostic.span.path)}")
        case DocumentSpan():
            lines.append(f"  --> {printable(diagnostic.span.file)}: {printable(diagnostic.span.path[:300] or '/')}")
        case None:
            pass
    if diagnostic.help:
        lines.append(f"  = help: {printable(diagnostic.help)}")
    lines += [f"  = note: {printable(note)}" for note in diagnostic.notes]
    return "\n".join(lines)


def _shortened(message: str) -> str:
    """A message without the middle of an overlong name."""
    return message if len(message) <= MESSAGE_WIDTH else f"{message[: MESSAGE_WIDTH - 60]}...{message[-57:]}"


def _source_lines(span: Span) -> list[str]:
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    text = span.source.line(line)
    start = column - 1
    end = end_column - 1 if end_line == line else len(text)
    text, start, end = _crop(text, start, end)
    before, marked, after = (_cells(part) for part in (text[:start], text[start:end], text[end:]))
    gutter = " " * len(str(line))
    return [
        f"{gutter}--> {printable(span.source.name)}:{line}:{column}",
        f"{gutter} |",
        f"{line} | {before}{marked}{after}".rstrip(),
        f"{gutter} | {' ' * _width(before)}{'^' * max(1, _width(marked))}",
    ]


def _crop(text: str, start: int, end: int) -> tuple[str, int, int]:
    """The part of a long line around the marked characters."""
    if len(text) <= LINE_WIDTH:
        return text, start, end
    first = max(0, min(start - 20, len(text) - LINE_WIDTH))
    last = min(len(text), first + LINE_WIDTH)
    head = "..." if first else ""
    tail = "..." if last < len(text) else ""
    shift = len(head) - first
    return head + text[first:last] + tail, start + shift, min(end, last) + shift


def _cells(text: str) -> str:
    return printable(text.replace("\t", "    "))


def _width(text: str) -> int:
    """The number of terminal columns of a text: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _byte_lines(span: ByteSpan) -> list[str]:
    entry = f", entry {span.entry!r}" if span.entry is not None else ""
    place = f"byte {span.offset} (0x{span.offset:x}), field {printable(span.field_name)}{entry}"
    lines = [f"  --> {printable(span.path)}: {place}"]
    if not span.context:
        return lines
    lines.append("   |")
    for row in range(0, len(span.context), BYTES_PER_ROW):
        data = span.context[row : row + BYTES_PER_ROW]
        address = span.context_offset + row
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in data)
        lines.append(f"   | {address:08x}  {data.hex(' '):<47}  |{text}|")
        marks = ["^^" if span.offset <= address + i < span.offset + span.length else "  " for i in range(len(data))]
        if any(mark.strip() for mark in marks):
            lines.append(f"   | {'':8}  {' '.join(marks)}".rstrip())
    return lines
