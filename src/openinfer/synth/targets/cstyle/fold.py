"""Breaks lines that are too wide to read.

Code is read as tokens, so that strings and comments are never taken for code. A line breaks after the token that binds
most loosely: the end of a statement, a comma, an assignment, an operator; all of them outside of brackets before any
inside. Continuation lines are indented further, by one more step for each open bracket. Comments break between words; a
trailing comment that makes its line too wide moves above it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil

WIDEST = 120
_ROOM = 40
"""The least width of a line after its indentation, however deep that is."""
_PAD = 4
_BLANKS = frozenset(" \t\n\r\f\v")
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_NOTHING = (*_CLOSING, "")
"""The tokens after an opening bracket that is empty or ends a line."""
_NO_CODE = r"""
    /\*.*?\*/ | //[^\n]*
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
"""
"""Comments and strings: their contents are not code, and some have several lines."""
_LINE = re.compile(rf"""((?: {_NO_CODE} | [^\n"'/]+ | ["'/] )*)\n""", re.VERBOSE | re.DOTALL)
_SYMBOL = re.compile(
    rf"""
    {_NO_CODE}
    | \.?[0-9](?:[eEpP][+-]|[\w.])* | \w+
    | \n | [ \t]+
    | <<=|>>=|\.\.\.|->|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|.
    """,
    re.VERBOSE | re.DOTALL,
)
_STRINGS, _OPENED = 11, 12
"""How tightly adjacent strings, which a compiler joins, bind to each other, and a bracket to its contents."""
_RANKS = {
    **dict.fromkeys((";",), 0),
    **dict.fromkeys((",",), 1),
    **dict.fromkeys(("=", "+=", "-=", "*=", "|=", "&=", "^="), 2),
    **dict.fromkeys(("?", ":"), 3),
    **dict.fromkeys(("||",), 4),
    **dict.fromkeys(("&&",), 5),
    **dict.fromkeys(("|", "^", "&"), 6),
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 7),
    **dict.fromkeys(("<<", ">>"), 8),
    **dict.fromkeys(("+", "-"), 9),
    **dict.fromkeys(("*", "/", "%"), 10),
    **dict.fromkeys(_OPENING, _OPENED),
}
"""How tightly each token binds the code before and after it."""
_SEPARATORS = (",", ";")
"""Tokens that a blank follows; operators have one on each side, unless they are unary or part of a type."""
_ON = " \\"
"""The end of a directive's line that continues."""
_HEADS = ("if", "for", "while")


@dataclass(frozen=True)
class _CodePiece:
    """Code that cannot be broken. ``level``: how many brackets are open after it, and how tightly it binds the next."""

    text: str
    """With the trailing blank."""
    width: int
    """Without the trailing blank."""
    blank: int = 0
    """The width of the trailing blank."""
    level: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _PieceGroup:
    """Pieces, split into parts where they bind most loosely."""

    pieces: Sequence[_CodePiece]
    """The pieces of the whole statement."""
    first: int
    last: int
    width: int
    blank: int
    level: tuple[int, int]
    parts: Sequence["_CodePiece | _PieceGroup"]

    @property
    def text(self) -> str:
        """The code of the group, with the trailing blank."""
        return _text(self.pieces[self.first : self.last + 1])


def folded(text: str) -> str:
    """The text with its wide lines broken, and without trailing blanks.

    >>> print(folded("    y = " + " + ".join(f"a{i} * (b + {i})" for i in range(10)) + ";"))
        y = a0 * (b + 0) + a1 * (b + 1) + a2 * (b + 2) + a3 * (b + 3) + a4 * (b + 4) + a5 * (b + 5) + a6 * (b + 6) +
                a7 * (b + 7) + a8 * (b + 8) + a9 * (b + 9);
    """
    return "\n".join(part.rstrip() for part in _lines(text))


def _lines(text: str) -> Iterator[str]:
    """The lines of a text; only wide ones are read as tokens, since most are not wide."""
    is_directive = False
    for line in _LINE.findall(f"{text}\n"):
        is_directive = is_directive or line.lstrip().startswith("#")
        parts = line.split("\n")
        widest = max(map(len, parts))
        if widest <= WIDEST or widest <= _widest(_indent(line)):
            yield from parts
        else:
            yield from _folded(_SYMBOL.findall(line), _indent(line), is_directive=is_directive)
        is_directive = is_directive and line.endswith("\\")


def _folded(symbols: list[str], indent: int, *, is_directive: bool) -> list[str]:
    """Breaks a wide line; a directive continues with backslashes."""
    code = [symbol for symbol in symbols if symbol != "\\"] if is_directive else symbols
    code = code[1:] if code[0].isspace() else code
    if code[-1].startswith("/*") and len(code) > 1 and code == symbols[-len(code) :]:
        rest = [" " * indent, *code[:-1]]
        parts = "".join(rest).split("\n")
        is_wide = max(map(len, parts)) > _widest(indent)
        return [
            *_comment(code[-1], indent),
            *(_folded(rest, indent, is_directive=is_directive) if is_wide else parts),
        ]
    if code[0].startswith("/*") and len(code) == 1:
        return _comment(code[0], indent)
    if not is_directive:
        return _statements(code, indent, _widest(indent))
    end = _macro(code)
    room = _widest(indent) - len(_ON)
    lines = [*["".join(code[:end])] * bool(end), *_statements(code[end:], indent + _PAD * bool(end), room)]
    found = [one.rstrip() for one in lines]
    return [*(one + _ON for one in found[:-1]), found[-1] + _ON * (symbols[-1] == "\\")]


def _macro(symbols: Sequence[str]) -> int:
    """The start of the body of a macro with parameters; 0 for anything else."""
    if symbols[:2] != ["#", "define"] or symbols[4:5] != ["("]:
        return 0
    end = symbols.index(")") + 1
    return end + symbols[end].isspace()


def _comment(text: str, indent: int) -> list[str]:
    """Breaks a comment; each of its lines continues with the prefix that it begins with."""
    found = []
    for line in (" " * indent + text).split("\n"):
        start = re.match(r"\s*(/\*|\*)?\s*", line)
        further = len(start[0]) if start is not None else indent
        mark = " " * further
        if line.lstrip().startswith("*") or "\n" in text:
            mark = line[:further].replace("/*", " *")
        words = line[further:].split(" ")
        found += _filled(line[:further] + words[0], words[1:], mark, _widest(indent))
    return found


def _filled(first: str, words: Sequence[str], mark: str, widest: int) -> list[str]:
    lines = [first]
    for word in words:
        if len(lines[-1]) + 1 + len(word) <= widest:
            lines[-1] += f" {word}"
        else:
            lines.append(mark + word)
    return lines


# --- code -------------------------------------------------------------------------------------------------------------


def _statements(symbols: list[str], indent: int, widest: int) -> list[str]:
    """Breaks the statements of a line; one after a condition or a loop head moves below it, and so do bodies."""
    end = _head(symbols)
    if 0 < end < len(symbols):
        then = symbols[end + symbols[end].isspace() :]
        return [*_statements(symbols[:end], indent, widest), *_statements(then, indent + _PAD, widest)]
    start = _opened(symbols)
    if start:
        body = [symbol for at, symbol in enumerate(symbols[start + 1 : -1]) if at or not symbol.isspace()]
        inner = _statements(body, indent + _PAD, widest)
        return [*_statements(symbols[:start], indent, widest), " " * indent + "{", *inner, " " * indent + "}"]
    lines = [" " * indent]
    for statement in _split(_pieces(symbols)):
        if lines[-1].strip() and len(lines[-1]) + len(_text(statement).rstrip()) > widest:
            lines.append(" " * indent)
        further = min(indent + 2 * _PAD, widest - _ROOM)
        lines[-1:] = _placed(statement, lines[-1], further, widest)
    return lines


def _placed(statement: Sequence[_CodePiece], start: str, indent: int, widest: int) -> list[str]:
    """Appends a statement to the start of a line, broken by its structure, or into full lines if that takes fewer."""
    group = _grouped(statement)
    by_structure, one_by_one = [start], [start]
    _place(group, by_structure, indent, widest)
    least = ceil(group.width / (widest - min(indent, len(start))))
    if least + 1 >= len(by_structure):
        return by_structure
    _fill(statement, one_by_one, indent, widest)
    # Nested brackets read better on full lines than on a line each.
    is_better = len(one_by_one) + 1 < len(by_structure) and max(map(len, one_by_one)) <= widest
    return one_by_one if is_better else by_structure


def _head(symbols: Sequence[str]) -> int:
    """The end of a statement's head that another statement follows on the same line; 0 if there is none."""
    if symbols[0] not in _HEADS or symbols[-1] == "{":
        return 0
    depth = 0
    for at, symbol in enumerate(symbols):
        depth += (symbol == "(") - (symbol == ")")
        if symbol == ")" and depth == 0:
            return at + 1
    return 0


def _opened(symbols: Sequence[str]) -> int:
    """The start of a function's body that is on the same line as its head; 0 if there is none."""
    if symbols[-1] != "}":
        return 0
    words = [(at, symbol) for at, symbol in enumerate(symbols) if not symbol.isspace()]
    heads = (
        at for (_, before), (at, symbol) in pairwise(words) if (before, symbol) == (")", "{") and symbols[at - 1] == " "
    )
    return next(heads, 0)


def _pieces(symbols: Sequence[str]) -> list[_CodePiece]:
    """Splits a line into pieces that cannot be broken."""
    found: list[_CodePiece] = []
    now, open_, depth = "", "", 0
    for at, (symbol, after) in enumerate(pairwise([*symbols, ""])):
        if symbol[:1] in _BLANKS:
            now += symbol if now else ""
            continue
        if symbol in _CLOSING:
            open_, depth = open_[:-1], max(depth - 1, 0)
        strings = _strings(symbol) if symbol[:1] == '"' and len(symbol) > WIDEST // 2 else [symbol]
        if strings[1:] and after == "," and (open_[-1:] == "{" or not (now or found)):
            # An element of a list: without parentheses, compilers warn that a comma may be missing.
            strings[0], strings[-1] = f"({strings[0]}", f"{strings[-1]})"
        for one in strings[:-1]:
            found.append(_CodePiece(f"{now}{one} ", len(now + one), 1, (depth, _STRINGS)))
            now = ""
        now += strings[-1]
        blank = after[:1] in _BLANKS
        if symbol in _OPENING:
            open_, depth, goes_on = open_ + symbol, depth + 1, after not in _NOTHING
        else:
            goes_on = (
                blank and symbol in _RANKS and (symbol in _SEPARATORS or (at > 0 and symbols[at - 1][:1] in _BLANKS))
            )
        if goes_on:
            found.append(_CodePiece(now + " " * blank, len(now), blank, (depth, _RANKS[symbol])))
            now = ""
    rest = now.rstrip()
    return [*found, *[_CodePiece(rest, len(rest))] * bool(rest)]


def _strings(literal: str) -> list[str]:
    """Splits a string into several that a compiler joins; none begins inside of an escape."""
    parts, now = [], ""
    for word in re.split(r"(?<= )", literal[1:-1]):
        if now and len(now) + len(word) > WIDEST - 6 * _PAD:
            parts.append(f'"{now}"')
            now = ""
        now += word
    return [*parts, f'"{now}"']


def _text(pieces: Sequence[_CodePiece]) -> str:
    return "".join([one.text for one in pieces])


def _split(pieces: Sequence[_CodePiece]) -> list[Sequence[_CodePiece]]:
    """The pieces of each statement."""
    ends = [at + 1 for at, one in enumerate(pieces) if one.level == (0, 0)]
    return [pieces[first:end] for first, end in pairwise([0, *ends, len(pieces)]) if first < end]


def _grouped(pieces: Sequence[_CodePiece]) -> _CodePiece | _PieceGroup:
    """Nests the pieces of a statement in groups, in one pass: brackets can be as deep as the code is long."""
    starts = [0, *accumulate([one.width + one.blank for one in pieces])]
    open_: list[tuple[tuple[int, int], int, list[_CodePiece | _PieceGroup]]] = []
    for at, one in enumerate(pieces):
        now: _CodePiece | _PieceGroup = one
        first, is_last = at, one is pieces[-1]
        while open_ and (is_last or open_[-1][0] > one.level):
            level, first, parts = open_.pop()
            parts.append(now)
            now = _PieceGroup(pieces, first, at, starts[at] - starts[first] + one.width, one.blank, level, parts)
        if open_ and open_[-1][0] == one.level:
            open_[-1][2].append(now)
        else:
            open_.append((one.level, first, [now]))
    return now


def _place(group: _CodePiece | _PieceGroup, lines: list[str], indent: int, widest: int) -> None:
    """Append a group to the last line, and continue on new ones."""
    height, width = len(lines), len(lines[-1])
    if isinstance(group, _CodePiece) or width + group.width <= widest:
        lines[-1] += group.text
        return
    for at, part in enumerate(group.parts):
        if width + part.width <= widest:
            lines[-1] += part.text
            width += part.width + part.blank
        elif indent + part.width <= widest or isinstance(part, _CodePiece):
            lines.append(" " * indent + part.text)
            width = indent + part.width + part.blank
        else:
            # It needs several lines: new ones, unless it is the value of an assignment.
            lines += [" " * indent] * (at > 0 and group.level[1] != _RANKS["="])
            _place(part, lines, min(indent + _PAD * (len(lines) > height), widest - _ROOM), widest)
            width = len(lines[-1])


def _fill(pieces: Sequence[_CodePiece], lines: list[str], indent: int, widest: int) -> None:
    """Append pieces to the last line, as many as fit, then to new ones; a bracket stays with what it opens."""
    now, before, width = "", 0, len(lines[-1])
    for one in pieces:
        now += one.text
        if one.level[1] == _OPENED and one is not pieces[-1]:
            before += one.width + one.blank
            continue
        if width + before + one.width > widest and lines[-1].strip():
            lines.append(" " * indent)
            width = indent
        lines[-1] += now
        width += before + one.width + one.blank
        now, before = "", 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _widest(indent: int) -> int:
    return max(WIDEST, indent + _ROOM)
