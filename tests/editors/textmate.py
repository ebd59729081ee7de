"""A small TextMate engine: enough of it to run our grammar with Python's ``re``.

Follows the rules of the format: one line at a time; the leftmost match wins, among equals the first pattern; the end of
an open rule goes before its patterns; captures add scopes to parts of a match.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

Rule = dict[str, Any]
Scopes = tuple[str, ...]


@dataclass(frozen=True)
class Frame:
    """An open begin/end rule."""

    end: str | None
    rule: int
    scopes: Scopes


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Grammar:
    """A grammar that gives every character of a text its scopes."""

    def __init__(self, document: Rule) -> None:
        self.document = document
        self.rules: list[Rule] = [document]

    def patterns(self, rule: Rule) -> Iterator[Rule]:
        """The rules that a rule's patterns stand for, includes resolved."""
        for pattern in rule.get("patterns", ()):
            include = pattern.get("include")
            if include is None:
                yield pattern
            elif include in ("$self", "$base"):
                yield from self.patterns(self.document)
            else:
                target = self.document["repository"][include.removeprefix("#")]
                yield from [target] if "match" in target or "begin" in target else self.patterns(target)

    def scopes(self, text: str) -> list[Scopes]:
        """The scopes of each character, outermost first."""
        found: list[Scopes] = []
        stack = [Frame(None, 0, (self.document["scopeName"],))]
        for line in text.splitlines(keepends=True):
            found += self._line(line if line.endswith("\n") else line + "\n", stack)[: len(line)]
        return found

    def _line(self, line: str, stack: list[Frame]) -> list[Scopes]:
        found: list[Scopes] = [()] * len(line)
        at = 0
        steps = 0
        while True:
            steps += 1
            assert steps < 10_000, f"the grammar does not get on in {line!r}"
            frame = stack[-1]
            match, rule = self._next(line, at, frame)
            start = match.start() if match is not None else len(line)
            found[at:start] = [frame.scopes] * (start - at)
            if match is None:
                return found
            if rule is None:
                self._paint(found, match, frame.scopes, self.rules[frame.rule].get("endCaptures", {}))
                stack.pop()
            else:
                scopes = frame.scopes + ((rule["name"],) if "name" in rule else ())
                self._paint(found, match, scopes, rule.get("beginCaptures" if "begin" in rule else "captures", {}))
                if "begin" in rule:
                    self.rules.append(rule)
                    stack.append(Frame(rule["end"], len(self.rules) - 1, scopes))
                else:
                    assert match.end() > match.start(), f"{rule} matches nothing"
            at = match.end()

    def _next(self, line: str, at: int, frame: Frame) -> tuple[re.Match[str] | None, Rule | None]:
        best: tuple[re.Match[str] | None, Rule | None] = (None, None)
        if frame.end is not None:
            best = (compiled(frame.end).search(line, at), None)
        for rule in self.patterns(self.rules[frame.rule]):
            match = compiled(rule.get("match") or rule["begin"]).search(line, at)
            if match is not None and (best[0] is None or match.start() < best[0].start()):
                best = (match, rule)
        return best

    @staticmethod
    def _paint(found: list[Scopes], match: re.Match[str], scopes: Scopes, captures: dict[str, Rule]) -> None:
        found[match.start() : match.end()] = [scopes] * (match.end() - match.start())
        for number, capture in captures.items():
            start, end = match.span(int(number))
            if start >= 0:  # the group took part in the match
                found[start:end] = [(*scopes, capture["name"])] * (end - start)
