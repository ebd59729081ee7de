"""Grammar-aware mutants of source texts. The same seed and index always give the same mutant.

A text is cut into tokens (by rules of our own, not the parser's); tokens are deleted, doubled, swapped, replaced
and put in from the whole vocabulary; lines are exchanged between texts; texts are cut off, and littered with odd
characters.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

from tests.lang.sources import sources

from openinfer.dtypes import DTYPES

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|cache\.\w+|[0-9][\w.]*[0-9]|\w+|>>|\.\.|:=|<=|\s+|.', re.DOTALL)
SYMBOLS = (*"{}()[],;:=!@+-*/%$#.<>?'\"\\&|^~`", ">>", "..", ":=", "<=", "//", "/*", "*/", "==", "...", "->", "::")
WORDS = (
    *(
        "op",
        "assign",
        "loop",
        "in",
        "block",
        "branch",
        "return",
        "yield",
        "await",
        "barrier",
        "dep",
        "transfer",
        "scope",
    ),
    *("with", "effect", "model", "fmt", "true", "false", "inf", "nan", "sizes", "state", "pattern", "let", "graph"),
    *("buffer", "after", "before", "dynamic", "volatile", "constant", "constants", "persistent", "inputs", "outputs"),
    *(
        "cache.read",
        "cache.write",
        "cache.increment",
        "cache.decrement",
        "cache.reset",
        "cache",
        "read",
        "write",
        "index",
    ),
    *(
        "@init",
        "@ref",
        "@pattern",
        "@table",
        "@auto_dim",
        "@fixed",
        "@other",
        "value",
        "axis",
        "entry",
        "body",
        "f8e5m2",
    ),
    *DTYPES,
)
VALUES = (
    *(
        "0",
        "1",
        "-1",
        "007",
        "0x",
        "0xFF",
        "0b2",
        "0b11",
        "1_0",
        "1__",
        "_1",
        "1e5",
        "1e999",
        "1.5",
        "1.",
        ".5",
        "-inf",
    ),
    *("1e", "0.1e-5", "18446744073709551615", "18446744073709551616", "9223372036854775808", "99999999999999999999999"),
    *(
        '""',
        '"a"',
        '"\\"',
        '"\\u12"',
        '"\\ud800"',
        '"W.{l}"',
        '"{',
        '"é"',
        "[1, 2]",
        "[f32]",
        "[1.0, D]",
        "[[1]]",
        "()",
    ),
    *("x", "y", "h", "K[l, t]", "A[]", "A[..]", "A[0..-3]", "A[,]", "W[l]", 'model["s"]', 'model[fmt("{l}")]', "D*2"),
)
LINES = (
    *(
        "op add(x, x) >> x;",
        "assign x: f32;",
        "return;",
        "barrier;",
        "branch entry;",
        "yield x;",
        "await x;",
        "t = op f();",
    ),
    *("dep after(f) before(f);", "cache.reset x;", "loop l (i in 0..2) { }", 'scope "s" { }', "transfer x >> x;"),
    *(
        "dynamic { x: f32; }",
        "block entry { return; }",
        "persistent { K(i): f32 @table; }",
        "sizes { N := 1; }",
        "graph! {",
    ),
)
ODD = (
    "\0",
    "\x01",
    "\x1b[31m",
    "\x7f",
    "\r",
    "\v",
    "\f",
    "\t",
    "\u00a0",
    "\u2028",
    "\ufeff",
    "\u202e",
    "é",
    "漢",
    "🙂",
)
BROKEN = ("\ud800", "\udfff")
VOCABULARY = (*SYMBOLS, *WORDS, *VALUES, *LINES)


@dataclass(frozen=True)
class Mutant:
    """A text to be judged, and how it came about."""

    label: str
    text: str


@cache
def tokens(text: str) -> tuple[str, ...]:
    """The tokens of a text, spaces included."""
    found = tuple(_TOKEN.findall(text))
    assert "".join(found) == text
    return found


def mutant(seed: int, index: int) -> Mutant:
    """The mutant with this number."""
    rng = Random(seed << 40 | index)
    number = rng.randrange(len(sources()))
    parts = list(tokens(sources()[number]))
    steps = rng.choices(_STEPS, _WEIGHTS, k=rng.choice((1, 1, 1, 1, 2, 2, 3, 6)))
    for step in steps:
        step(rng, parts)
    return Mutant(f"{seed}:{index} source {number}: {[step.__name__ for step in steps]}", "".join(parts))


def _words(parts: list[str]) -> list[int]:
    """Where the tokens are that are no spaces."""
    return [position for position, part in enumerate(parts) if not part.isspace()] or [0]


def _pick(rng: Random, parts: list[str]) -> int:
    if not parts:
        parts.append(" ")
    return rng.choice(_words(parts))


def delete(rng: Random, parts: list[str]) -> None:
    """A token is missing."""
    del parts[_pick(rng, parts)]


def double(rng: Random, parts: list[str]) -> None:
    """A token stands twice."""
    position = _pick(rng, parts)
    parts[position:position] = [parts[position], " "]


def swap(rng: Random, parts: list[str]) -> None:
    """Two tokens change places."""
    first, second = _pick(rng, parts), _pick(rng, parts)
    parts[first], parts[second] = parts[second], parts[first]


def swap_neighbours(rng: Random, parts: list[str]) -> None:
    """A token and the next one change places."""
    words = _words(parts)
    if len(words) > 1:
        at = rng.randrange(len(words) - 1)
        first, second = words[at], words[at + 1]
        parts[first], parts[second] = parts[second], parts[first]


def replace(rng: Random, parts: list[str]) -> None:
    """A token of the vocabulary instead of the right one."""
    parts[_pick(rng, parts)] = rng.choice(VOCABULARY)


def replace_alike(rng: Random, parts: list[str]) -> None:
    """Another token of the same text instead of the right one."""
    parts[_pick(rng, parts)] = parts[_pick(rng, parts)]


def replace_kind(rng: Random, parts: list[str]) -> None:
    """A name for a name, a number for a number: what is wrong then is not the grammar."""
    position = _pick(rng, parts)
    kind = _kind(parts[position])
    alike = [part for part in (*VOCABULARY, *_names(parts) * 5) if _kind(part) == kind]
    parts[position] = rng.choice(alike or [parts[position]])


def _kind(part: str) -> str:
    """What a token looks like."""
    if part in WORDS:
        return "dtype" if part in DTYPES else "word"
    if part in VALUES and "[" in part:
        return "value"
    return "name" if part.isidentifier() else "number" if part[:1].isdecimal() else part[:1]


def _names(parts: list[str]) -> tuple[str, ...]:
    return tuple({part: None for part in parts if part.isidentifier() and part not in WORDS})


def insert_line(rng: Random, parts: list[str]) -> None:
    """A statement or section too many, where one could stand."""
    ends = [position for position, part in enumerate(parts) if part in tuple("{};")]
    names = _names(parts)
    line = re.sub(r"\b[xKN]\b", lambda _: rng.choice(names), rng.choice(LINES)) if names else rng.choice(LINES)
    parts.insert(rng.choice(ends or [0]) + 1, f" {line} ")


def insert(rng: Random, parts: list[str]) -> None:
    """A token of the vocabulary too many."""
    parts.insert(_pick(rng, parts), f" {rng.choice(VOCABULARY)} ")


def remove_stretch(rng: Random, parts: list[str]) -> None:
    """Several tokens are missing."""
    start = _pick(rng, parts)
    del parts[start : start + rng.randint(2, 12)]


def repeat_stretch(rng: Random, parts: list[str]) -> None:
    """Several tokens stand twice."""
    start = _pick(rng, parts)
    parts[start:start] = parts[start : start + rng.randint(2, 30)]


def splice_lines(rng: Random, parts: list[str]) -> None:
    """Lines of another text among ours."""
    lines = "".join(parts).splitlines(keepends=True) or [""]
    others = rng.choice(sources()).splitlines(keepends=True)
    start, other = rng.randrange(len(lines)), rng.randrange(len(others))
    lines[start : start + rng.randrange(3)] = others[other : other + rng.randint(1, 3)]
    parts[:] = tokens("".join(lines))


def shuffle_lines(rng: Random, parts: list[str]) -> None:
    """Our lines in another order."""
    lines = "".join(parts).splitlines(keepends=True)
    if lines:
        first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
        parts[:] = tokens("".join(lines))


def truncate(rng: Random, parts: list[str]) -> None:
    """The end is missing, or the beginning."""
    text = "".join(parts)
    at = rng.randrange(len(text) + 1)
    parts[:] = tokens(text[:at] if rng.random() < 0.8 else text[at:])


def litter(rng: Random, parts: list[str]) -> None:
    """A character that no source needs."""
    text = "".join(parts)
    at = rng.randrange(len(text) + 1)
    odd = rng.choice((*ODD, *ODD, *BROKEN, chr(rng.randrange(0x20, 0xD800))))
    parts[:] = tokens(text[:at] + odd + text[at:])


def repeat_brackets(rng: Random, parts: list[str]) -> None:
    """Brackets, many times over."""
    brackets = [position for position, part in enumerate(parts) if part in tuple("{}()[]-;,")]
    if brackets:
        position = rng.choice(brackets)
        parts[position] *= rng.choice((2, 3, 50, 199, 201, 300))


_STEPS: tuple[Callable[[Random, list[str]], None], ...] = (
    *(
        delete,
        double,
        swap,
        swap_neighbours,
        replace,
        replace_alike,
        replace_kind,
        insert_line,
        insert,
        remove_stretch,
        repeat_stretch,
    ),
    *(splice_lines, shuffle_lines, truncate, litter, repeat_brackets),
)
_WEIGHTS = (10, 6, 5, 4, 12, 12, 40, 20, 10, 5, 5, 10, 3, 4, 6, 3)
