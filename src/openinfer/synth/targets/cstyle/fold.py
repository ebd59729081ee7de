"""Lines that are too wide for a reader, on several lines: calls go on behind an argument, comments behind a word."""

import re

WIDEST = 120
_ROOM = 60
"""What a line has at least behind its indentation, however deep it stands."""
_PAD = 4
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|\s+|[^\s"/]+|/')
_BREAKS = (",", "{", "(", "||", "&&", "?", ":")
"""What a line can go on behind: nothing that stands at its end changes what the next line means."""


def folded(text: str) -> str:
    """The text with its wide lines broken, and without blanks that end a line."""
    return "\n".join(part for line in text.split("\n") for part in _folded(line.rstrip()))


def _folded(line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    if len(line) <= _widest(indent) or line.startswith("#"):
        return [line]
    code = line.strip()
    behind = re.fullmatch(r"(.*[;,{]) +(/\*[^*]*\*/)", code)
    if behind is not None:
        return [part for one in (behind[2], behind[1]) for part in _folded(" " * indent + one)]
    if code.startswith("/*") and code.endswith("*/") and "*/" not in code[:-2]:
        return _wrapped(code.split(" "), indent, indent + 3)
    end = _condition(code)
    if 0 < end < len(code):
        then = " " * (indent + _PAD) + code[end:].strip()
        return [*_folded(" " * indent + code[:end]), *_folded(then)]
    return _wrapped(_unbroken(code), indent, indent + 2 * _PAD)


def _condition(code: str) -> int:
    """Where the condition of a statement ends that stands behind it on the same line; 0 where none does."""
    depth = at = 0
    for piece in _PIECES.findall(code) if code.startswith("if (") and not code.endswith("{") else ():
        at += len(piece)
        depth += 0 if piece.startswith('"') else piece.count("(") - piece.count(")")
        if at > len("if (") and depth == 0 and piece.rstrip().endswith(")"):
            return at
    return 0


def _unbroken(code: str) -> list[str]:
    """The parts of a statement between which a line can end; a long string is several."""
    found = [""]
    for piece in _PIECES.findall(code):
        if piece.isspace():
            if found[-1].endswith(_BREAKS):
                found.append("")
            else:
                found[-1] += piece
        elif piece.startswith('"') and len(piece) > WIDEST // 2:
            parts = _strings(piece)
            if len(parts) > 1 and found == [""]:
                # An element of a list: without parentheses, compilers suspect that a comma is missing.
                parts[0], parts[-1] = f"({parts[0]}", f"{parts[-1]})"
            found[-1] += parts[0]
            found += parts[1:]
        else:
            found[-1] += piece
    return found


def _strings(literal: str) -> list[str]:
    """A string as several that a compiler joins; none begins inside of an escape."""
    parts, now = [], ""
    for word in re.split(r"(?<= )", literal[1:-1]):
        if now and len(now) + len(word) > WIDEST - 6 * _PAD:
            parts.append(f'"{now}"')
            now = ""
        now += word
    return [*parts, f'"{now}"']


def _widest(indent: int) -> int:
    return max(WIDEST, indent + _ROOM)


def _wrapped(parts: list[str], indent: int, further: int) -> list[str]:
    lines = [" " * indent + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) <= _widest(indent):
            lines[-1] += f" {part}"
        else:
            lines.append(" " * further + part)
    return lines
