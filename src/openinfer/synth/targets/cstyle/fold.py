"""Lines that are too wide for a reader, on several lines.

The code is read as tokens, so that nothing in a string or a comment is taken for code. A line goes on behind what binds
its parts most loosely: the end of a statement, a comma, an assignment, an operator, all of them outside of brackets
before any inside. What follows is indented further, by one more step for each bracket that is open. Comments go on
behind a word; a comment behind code that is too wide for one line stands above it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

WIDEST = 120
_ROOM = 40
"""What a line has at least behind its indentation, however deep it stands."""
_PAD = 4
_SYMBOL = re.compile(
    r"""
    /\*.*?\*/ | //[^\n]*
    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
    | \.?[0-9](?:[eEpP][+-]|[\w.])* | \w+
    | \n | [ \t]+
    | <<=|>>=|\.\.\.|->|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|.
    """,
    re.VERBOSE | re.DOTALL,
)
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
}
"""How tightly what stands before and behind these belongs together."""
_STRINGS, _OPENED = 11, 12
"""The same for strings that a compiler joins, and for a bracket and what is in it."""
_SEPARATORS = (",", ";")
"""What is followed by a blank; operators have one on each side, unless they have one operand or are parts of types."""
_ON = " \\"
"""What a directive goes on behind."""
_HEADS = ("if", "for", "while")


@dataclass(frozen=True)
class _Piece:
    """Code that stays on one line, and how it goes on: the brackets open there, and how tightly the next is bound."""

    text: str
    blank: str = ""
    level: tuple[int, int] = (0, 0)


def folded(text: str) -> str:
    """The text with its wide lines broken, and without blanks that end a line.

    >>> print(folded("    y = " + " + ".join(f"a{i} * (b + {i})" for i in range(10)) + ";"))
        y = a0 * (b + 0) + a1 * (b + 1) + a2 * (b + 2) + a3 * (b + 3) + a4 * (b + 4) + a5 * (b + 5) + a6 * (b + 6) +
                a7 * (b + 7) + a8 * (b + 8) + a9 * (b + 9);
    """
    if all(len(line) <= WIDEST for line in text.split("\n")):
        return "\n".join(line.rstrip() for line in text.split("\n"))
    return "\n".join(part.rstrip() for part in _lines(_SYMBOL.findall(text)))


def _lines(symbols: Sequence[str]) -> Iterator[str]:
    now: list[str] = []
    is_directive = False
    for symbol in (*symbols, "\n"):
        if symbol != "\n":
            now.append(symbol)
            continue
        is_directive = is_directive or "".join(now[:2]).lstrip().startswith("#")
        yield from _folded(now, is_directive=is_directive)
        is_directive = is_directive and now[-1:] == ["\\"]
        now = []


def _folded(symbols: list[str], *, is_directive: bool) -> list[str]:
    """One line; of a directive, all but the last go on behind a backslash."""
    line = "".join(symbols)
    indent = len(line) - len(line.lstrip(" "))
    if all(len(one) <= _widest(indent) for one in line.split("\n")):
        return line.split("\n")
    code = [symbol for symbol in symbols if symbol != "\\"] if is_directive else symbols
    code = code[1:] if code[0].isspace() else code
    if code[-1].startswith("/*") and len(code) > 1 and code == symbols[-len(code) :]:
        return [*_comment(code[-1], indent), *_folded([" " * indent, *code[:-1]], is_directive=is_directive)]
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
    """Where the body of a macro with parameters begins; 0 of all else."""
    if symbols[:2] != ["#", "define"] or symbols[4:5] != ["("]:
        return 0
    end = symbols.index(")") + 1
    return end + symbols[end].isspace()


def _comment(text: str, indent: int) -> list[str]:
    """A comment; where it has several lines, each goes on as it begins."""
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
    """The statements of a line; one behind a condition or the head of a loop stands below it, as do bodies."""
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
    for statement in _parts(_pieces(symbols), (0, 0)):
        if lines[-1].strip() and len(lines[-1]) + len(_text(statement)) > widest:
            lines.append(" " * indent)
        further = min(indent + 2 * _PAD, widest - _ROOM)
        by_structure, one_by_one = [lines[-1]], [lines[-1]]
        _place(statement, by_structure, further, widest)
        _fill(statement, one_by_one, further, widest)
        # Of brackets in brackets, a line for each would say less than full lines do.
        is_better = len(one_by_one) + 1 < len(by_structure) and max(map(len, one_by_one)) <= widest
        lines[-1:] = one_by_one if is_better else by_structure
    return lines


def _head(symbols: Sequence[str]) -> int:
    """Where the head of a statement ends that has another one behind it on the same line; 0 where none does."""
    if symbols[0] not in _HEADS or symbols[-1] == "{":
        return 0
    depth = 0
    for at, symbol in enumerate(symbols):
        depth += (symbol == "(") - (symbol == ")")
        if symbol == ")" and depth == 0:
            return at + 1
    return 0


def _opened(symbols: Sequence[str]) -> int:
    """Where the body of a function begins that stands on one line with its head; 0 where none does."""
    words = [(at, symbol) for at, symbol in enumerate(symbols) if not symbol.isspace()]
    heads = (
        at for (_, before), (at, symbol) in pairwise(words) if (before, symbol) == (")", "{") and symbols[at - 1] == " "
    )
    return next(heads, 0) if symbols[-1] == "}" else 0


def _pieces(symbols: Sequence[str]) -> list[_Piece]:
    """A line as what cannot be broken."""
    found: list[_Piece] = []
    now, open_ = "", ""
    words = [*symbols, ""]
    for at, (symbol, after) in enumerate(pairwise(words)):
        before = words[at - 1] if at else ""
        if symbol.isspace():
            now += symbol
            continue
        open_ = open_[:-1] if symbol in (")", "]", "}") else open_
        strings = _strings(symbol) if symbol.startswith('"') and len(symbol) > WIDEST // 2 else [symbol]
        if len(strings) > 1 and after == "," and (open_[-1:] == "{" or (not now.strip() and not found)):
            # An element of a list: without parentheses, compilers suspect that a comma is missing.
            strings[0], strings[-1] = f"({strings[0]}", f"{strings[-1]})"
        for one in strings[:-1]:
            found.append(_Piece(now + one, " ", (len(open_), _STRINGS)))
            now = ""
        now += strings[-1]
        open_ += symbol if symbol in ("(", "[", "{") else ""
        rank = _rank(before, symbol, after)
        if rank is not None:
            found.append(_Piece(now, " " * after.isspace(), (len(open_), rank)))
            now = ""
    return [_Piece(one.text.lstrip(" "), one.blank, one.level) for one in (*found, _Piece(now)) if one.text.strip()]


def _rank(before: str, symbol: str, after: str) -> int | None:
    """How tightly a symbol binds what stands before and behind it, where a line may go on behind it."""
    if symbol in ("(", "[", "{") and after not in (")", "]", "}", ""):
        return _OPENED
    if symbol in _RANKS and after.isspace() and (before.isspace() or symbol in _SEPARATORS):
        return _RANKS[symbol]
    return None


def _strings(literal: str) -> list[str]:
    """A string as several that a compiler joins; none begins inside of an escape."""
    parts, now = [], ""
    for word in re.split(r"(?<= )", literal[1:-1]):
        if now and len(now) + len(word) > WIDEST - 6 * _PAD:
            parts.append(f'"{now}"')
            now = ""
        now += word
    return [*parts, f'"{now}"']


def _text(pieces: Sequence[_Piece]) -> str:
    return "".join(one.text + one.blank for one in pieces).rstrip()


def _parts(pieces: Sequence[_Piece], level: tuple[int, int]) -> Iterator[list[_Piece]]:
    """Pieces in groups, which end where a line may go on at this level."""
    now: list[_Piece] = []
    for one in pieces:
        now.append(one)
        if one.level == level:
            yield now
            now = []
    if now:
        yield now


def _place(pieces: Sequence[_Piece], lines: list[str], indent: int, widest: int) -> None:
    """Put pieces behind the last line, and on further ones."""
    text, blank, height = _text(pieces), pieces[-1].blank, len(lines)
    levels = {one.level for one in pieces[:-1]}
    if len(lines[-1]) + len(text) <= widest or not levels:
        lines[-1] += text + blank
        return
    level = min(levels)
    for at, part in enumerate(_parts(pieces, level)):
        own = _text(part)
        if len(lines[-1]) + len(own) <= widest:
            lines[-1] += own + part[-1].blank
        elif indent + len(own) <= widest or len(part) == 1:
            lines.append(" " * indent + own + part[-1].blank)
        else:
            # It needs several lines: of its own, unless it is a value that is assigned.
            lines += [" " * indent] * (at > 0 and level[1] != _RANKS["="])
            _place(part, lines, min(indent + _PAD * (len(lines) > height), widest - _ROOM), widest)


def _fill(pieces: Sequence[_Piece], lines: list[str], indent: int, widest: int) -> None:
    """Put pieces behind the last line, as many as fit, and on further ones; what a bracket opens stays with it."""
    now: list[_Piece] = []
    for one in (*pieces[:-1], replace(pieces[-1], level=(0, 0))):
        now.append(one)
        if one.level[1] == _OPENED:
            continue
        text = _text(now)
        if len(lines[-1]) + len(text) > widest and lines[-1].strip():
            lines.append(" " * indent)
        lines[-1] += text + one.blank
        now = []


def _widest(indent: int) -> int:
    return max(WIDEST, indent + _ROOM)
