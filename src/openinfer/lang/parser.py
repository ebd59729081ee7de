"""Parses source text to a syntax tree, or to all of its syntax errors.

The grammar is in ``grammar.lark``. After an error, the parser continues: with a missing token inserted if that helps,
otherwise after the broken statement.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from lark import Lark, Token, Tree, UnexpectedToken
from lark.lexer import Lexer

from openinfer.errors import Advice, Code, Diagnostic, Fix, FixPlace, Source, Span, fixes_of, nearest
from openinfer.lang.habits import HabitPlace, Hint, hint
from openinfer.lang.tokens import CONTEXTUAL, STATEMENT_WORDS, SYMBOLS, WORDS, SourceToken, tokens

MAX_DEPTH = 200
MAX_ERRORS = 20
_MISSING = ("_SEMICOLON", "_RPAR", "_RSQB", "_COLON", "_COMMA", "_INTO", "_EQUALS", "_LBRACE")
_OPENING = {"_LBRACE": "_RBRACE", "_LPAR": "_RPAR", "_LSQB": "_RSQB"}
_SECTION = ("BLOCK", "MEMORY", "SIZES", "STATE")
_STATEMENT = {"OP", "ASSIGN", "RETURN"}
_CONTINUED = {"else", "elif", "case", "except", "finally"}
_LONGEST_STATEMENT = 400
_VALUE = {"INT", "IDENT", "MINUS"}

_ALL_WORDS = WORDS | CONTEXTUAL
_SHOWN = {name: f"'{symbol}'" for symbol, name in SYMBOLS.items()}
_SHOWN |= {name: f"'{word}'" for word, name in _ALL_WORDS.items()}
_SHOWN |= {
    "IDENT": "a name",
    "INT": "an integer",
    "FLOAT": "a number",
    "STRING": "a string",
    "BOOL": "'true' or 'false'",
    "SPECIAL": "'inf' or 'nan'",
    "DTYPE": "a dtype",
    "MEMORY": "a memory section",
    "OPERATOR": "an operator",
    "SIZE_RELATION": "':=' or '<='",
    "$END": "the end of the text",
}


class _NoLexer(Lexer):
    """An empty lexer: the grammar declares its terminals, and the tokens come from ``tokens``."""

    __future_interface__ = 2

    def __init__(self, lexer_conf: Any) -> None:
        del lexer_conf

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Token]:
        """Return no tokens; they are fed one by one."""
        del lexer_state, parser_state
        return iter(())


@cache
def _grammar() -> Lark:
    text = (files("openinfer.lang") / "grammar.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer=_NoLexer, maybe_placeholders=False)


def parse_tree(source: Source) -> tuple[Tree[SourceToken] | None, list[Diagnostic]]:
    """Parse a text to a syntax tree and the errors found; the tree is None if there are any."""
    parse = _Parse(source)
    tree = parse.run()
    return (None if parse.problems else tree), parse.problems


@dataclass(frozen=True)
class RecoveredTree:
    """A partial parse for editors, where the text is wrong most of the time."""

    tree: Tree[SourceToken] | None
    """The correct statements and declarations; None if there are too many errors."""
    problems: list[Diagnostic]
    tokens: list[SourceToken]
    """All tokens, including those of broken statements."""


def recovered_tree(source: Source) -> RecoveredTree:
    """Parse a text and leave out what is wrong; bodies still open end with the text.

    >>> found = recovered_tree(Source("g.oig", "block entry { op neg(x) >> y; op ne"))
    >>> [child.data for child in found.tree.find_data("op")], len(found.problems)
    (['op'], 1)
    """
    parse = _Parse(source)
    tree = parse.run()
    if tree is None and len(parse.problems) < MAX_ERRORS:
        tree = parse.closed()
    read = parse.fed[-1].end_pos if parse.fed else 0
    rest = tokens(source.text[read:], lambda: ())
    moved = (SourceToken(one.type, one.value, one.start_pos + read, one.end_pos + read) for one in rest)
    return RecoveredTree(tree, parse.problems, [*parse.fed, *moved])


class _Parse:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Diagnostic] = []
        self.state: Any = _grammar().parse_interactive("").parser_state
        self.open: list[SourceToken] = []
        self.previous: SourceToken | None = None
        self.skipping = False
        self.skipped_braces = 0
        self.in_header = False
        self.start = 0
        self.inside: list[str] = []
        self.fed: list[SourceToken] = []

    def run(self) -> Tree[SourceToken] | None:
        for token in tokens(self.source.text, self._accepted):
            self.fed.append(token)
            closes_nothing = token.type == "_RBRACE" and not any(one.type == "_LBRACE" for one in self.open)
            if not self._track_depth(token):
                return None
            if closes_nothing and not self.skipping:
                # Before accepting this token, the parser would reduce everything so far to a complete graph.
                self._unexpected(token)
                self.skipping = True
            elif self.skipping:
                self._resume(token)
            else:
                self._feed(token)
            self._track_statement(token)
            self.previous = token
            if len(self.problems) >= MAX_ERRORS:
                return None
        return self._finish()

    def _accepted(self) -> Any:
        return self.state.parse_conf.states[self.state.position]

    def _track_depth(self, token: SourceToken) -> bool:
        """Track open brackets; False if they are nested too deeply to continue."""
        if token.type in _OPENING:
            self.open.append(token)
            # Bodies are counted separately, and the deepest expression may be in an index of an op's operand.
            # So every graph that can be built can be printed and parsed.
            braces = sum(other.type == "_LBRACE" for other in self.open)
            if braces > MAX_DEPTH or len(self.open) - braces > MAX_DEPTH + 2:
                self._report(Code.TOO_DEEP, f"brackets are nested more than {MAX_DEPTH} deep", token)
                return False
        elif self.open and token.type == _OPENING[self.open[-1].type]:
            self.open.pop()
        return True

    def _track_statement(self, token: SourceToken) -> None:
        """Track where the statement starts, and the kinds of braces open around it."""
        if token.type == "_LBRACE":
            first = re.match(r"\w+", self._statement(token.start_pos))
            word = first.group() if first else ""
            self.inside.append(CONTEXTUAL.get(word, word.upper()).lstrip("_"))
        elif token.type == "_RBRACE" and self.inside:
            self.inside.pop()
        if token.type in ("_LBRACE", "_RBRACE", "_SEMICOLON"):
            self.start = token.end_pos

    def _statement(self, end: int) -> str:
        """The statement up to an offset, without whitespace and comments before its first word."""
        text = self.source.text[self.start : end]
        return re.sub(r"\A(?:\s+|//[^\n]*|/\*.*?\*/)+", "", text, count=1, flags=re.DOTALL)

    def _feed(self, token: SourceToken) -> None:
        try:
            self.state.feed_token(token)
        except UnexpectedToken:
            missing = None if self._is_habit(token) else self._missing(token)
            if missing is None:
                self._unexpected(token)
                self.skipping = True
                self._resume(token)
                return
            if missing == "_SEMICOLON" and self.previous is not None:
                end = self.previous.end_pos
                advice = Advice("statements and declarations end with ';'", Fix(";", place=FixPlace.END))
                self._report(Code.SYNTAX, "missing ';' here", SourceToken("_SEMICOLON", "", end, end), advice)
            else:
                self._unexpected(token)
            self.state.feed_token(SourceToken(missing, "", token.start_pos, token.start_pos))
            self.state.feed_token(token)

    def _is_habit(self, token: SourceToken) -> bool:
        """Whether more is wrong than a missing token: ``axes=(0, 1)``, ``return op ...``, ``f32 init(0)``."""
        if self.previous is None:
            return False
        pair = (self.previous.type, token.value)
        is_attribute = self.previous.type in ("DTYPE", "_RSQB") and token.value in ("init", "ref", "table", "fixed")
        return token.type == "_COMMA" or pair == ("RETURN", "op") or (is_attribute and self.inside[-1:] == ["MEMORY"])

    def _finish(self) -> Tree[SourceToken] | None:
        end = SourceToken("$END", "", len(self.source.text), len(self.source.text))
        try:
            tree: Tree[SourceToken] = self.state.feed_token(end, is_end=True)
        except UnexpectedToken:
            if not self.skipping:
                self._unexpected(end)
            return None
        return tree

    def closed(self) -> Tree[SourceToken] | None:
        """The tree of the correct parts, with open bodies closed at the end."""
        place = len(self.source.text)
        while True:
            if self._takes("$END") or not self._unwind("_RBRACE"):
                break
            self.state.feed_token(SourceToken("_RBRACE", "", place, place))
        if not self._takes("$END") and not self._unwind("$END"):
            return None
        tree: Tree[SourceToken] = self.state.feed_token(SourceToken("$END", "", place, place), is_end=True)
        return tree

    # --- recovery -------------------------------------------------------------------------------------------------

    def _missing(self, token: SourceToken) -> str | None:
        """A token that, inserted here, makes the following one acceptable; None if there is none."""
        # A name at the start of a statement is more likely a misspelt word than the first of several names.
        tried = [name for name in _MISSING if name != "_COMMA" or "_EQUALS" not in self._accepted()]
        return next((name for name in tried if self._takes(name, token.type)), None)

    def _takes(self, *names: str) -> bool:
        """Whether the parser accepts these tokens next."""
        if names[0] not in self._accepted():
            return False
        trial = self.state.copy(deepcopy_values=False)
        try:
            for name in names:
                trial.feed_token(SourceToken(name, "", 0, 0), is_end=name == "$END")
        except UnexpectedToken:
            return False
        return True

    def _resume(self, token: SourceToken) -> None:
        """Resume after a ``;``, or at a ``}`` or a new section, in the current body."""
        if token.type == "_LBRACE":
            self.skipped_braces += 1
        elif self.skipped_braces:
            self.skipped_braces -= token.type == "_RBRACE"
            if not self.skipped_braces:
                self.skipping = not self._unwind("_RBRACE")
        elif self.in_header:
            self.in_header = token.type != "_RPAR"
        elif token.type == "_SEMICOLON":
            self.skipping = not self._unwind("_RBRACE")
        elif token.type in ("_RBRACE", *_SECTION) and self._unwind(token.type):
            self.skipping = False
            self.state.feed_token(token)

    def _unwind(self, name: str) -> bool:
        """Pop what has been read of the broken statement, back to a state that accepts ``name``."""
        states = self.state.parse_conf.states
        closed = 0  # a body that has ended is not the current one, even if it is not reduced yet
        for depth in range(len(self.state.state_stack) - 1, -1, -1):
            if depth < len(self.state.value_stack):
                kind = getattr(self.state.value_stack[depth], "type", None)
                closed += (kind == "_RBRACE") - (kind == "_LBRACE" and closed > 0)
            if closed:
                continue
            accepted = states[self.state.state_stack[depth]]
            if name in accepted and (name != "_RBRACE" or _is_body(accepted)):
                del self.state.state_stack[depth + 1 :]
                del self.state.value_stack[depth:]
                return True
        return False

    # --- messages -------------------------------------------------------------------------------------------------

    def _unexpected(self, token: SourceToken) -> None:
        # The table also lists tokens that only end a phrase in another context, so each one is tried.
        expected = {name for name in self._accepted() if (name.isupper() or name == "$END") and self._takes(name)}
        if token.type in ("BAD_STRING", "BAD_COMMENT"):
            what = "string" if token.type == "BAD_STRING" else "comment"
            return self._report(Code.UNTERMINATED, f"this {what} is never closed", token)
        before = self._statement(token.start_pos)
        if self.problems and re.match(rf"(?:{'|'.join(_CONTINUED)})\b", before + token.value):
            return None  # belongs to the previous statement, which has been reported
        found = self._hint(token, before)
        if self._is_meant_as_name(token, expected) and (found is None or token.type == "DTYPE"):
            return self._reserved(token, before)
        self.in_header = re.match(r"for\s*\(", before + token.value) is not None
        if found is not None and found.message is not None:
            start = token.start_pos - len(before)
            end = start + len((before + token.value).split(maxsplit=1)[0].partition("(")[0])
            return self._report(Code.SYNTAX, found.message, SourceToken("", "", start, end), found.advice)
        advice = found.advice if found is not None else self._advice(token, expected)
        message = f"expected {_describe(expected)}, found {_found(token)}"
        return self._report(Code.SYNTAX, message, token, advice, self._unclosed(token))

    def _hint(self, token: SourceToken, before: str) -> Hint | None:
        if token.type == "$END":
            return None
        after = self.source.text[token.end_pos : token.end_pos + _LONGEST_STATEMENT]
        inside = self.inside[-1] if self.inside else ""
        declared = {one.value for one, following in pairwise(self.fed) if following.type == "_COLON"}
        return hint(HabitPlace(inside, before[-_LONGEST_STATEMENT:], token.value, after, declared))

    def _is_meant_as_name(self, token: SourceToken, expected: set[str]) -> bool:
        """Whether a reserved word is used as a name; at the start of a statement, only if ``=`` follows."""
        if "IDENT" not in expected or token.value not in WORDS:
            return False
        return not _STATEMENT & expected or re.match(r"\s*=", self.source.text[token.end_pos :]) is not None

    def _reserved(self, token: SourceToken, before: str) -> None:
        """Report a reserved word used as a name."""
        kind = "a dtype" if token.type == "DTYPE" else "a reserved word"
        advice = Advice(f"choose another name, such as '{token.value}_'", Fix(f"{token.value}_", token.value))
        following = re.match(r"\s+([A-Za-z_]\w*)", self.source.text[token.end_pos :])
        if token.type == "DTYPE" and following and not before:
            new = f"{following[1]}: {token.value}"
            advice = Advice(f"the name comes first: {new}", Fix(new, token.value + following[0]))
        self._report(Code.RESERVED_WORD, f"'{token.value}' is {kind} and cannot be a name", token, advice)

    def _advice(self, token: SourceToken, expected: set[str]) -> str | None:
        words = [word for word, name in _ALL_WORDS.items() if word not in ("in", "fmt") and name != "DTYPE"]
        if self.previous is not None and self.previous.type == "IDENT" and "_EQUALS" in expected:
            if self._statement(token.start_pos).strip() != self.previous.value:
                return None
            return self._misspelt(self.previous, token)
        if token.type != "IDENT" or "IDENT" in expected:
            return None
        if "DTYPE" in expected:
            words += [word for word, name in WORDS.items() if name == "DTYPE"]
        return nearest(token.value, [word for word in words if _ALL_WORDS[word] in expected])

    def _misspelt(self, word: SourceToken, token: SourceToken) -> str | None:
        """Advice about the word before a token. The error is at the token, so the fix includes it."""
        near = nearest(word.value, STATEMENT_WORDS)
        if near is None:
            return None
        old = self.source.text[word.start_pos : token.end_pos]
        return Advice(near, *(Fix(fix.new + old.removeprefix(word.value), old) for fix in fixes_of(near)))

    def _unclosed(self, token: SourceToken) -> tuple[str, ...]:
        if token.type != "$END" or not self.open:
            return ()
        opening = self.open[-1]
        line, column = self.source.position(opening.start_pos)
        return (f"the '{opening.value}' at {line}:{column} is never closed",)

    def _report(
        self, code: Code, message: str, token: SourceToken, advice: str | None = None, notes: tuple[str, ...] = ()
    ) -> None:
        span = Span(self.source, token.start_pos, token.end_pos)
        self.problems.append(Diagnostic(code, message, span, advice, notes))


def _is_body(accepted: Any) -> bool:
    """Whether a state is between the statements or declarations of a body."""
    return set(accepted) >= _STATEMENT or ("IDENT" in accepted and len([n for n in accepted if n.isupper()]) <= 2)


def _describe(expected: set[str]) -> str:
    """The expected tokens in words."""
    parts = []
    rest = set(expected)
    if rest >= _STATEMENT:
        parts.append("a statement")
        rest &= {"_RBRACE"}
    elif {"MEMORY", "BLOCK"} <= rest:
        parts.append("a section or a block")
        rest &= {"$END", "_RBRACE"}
    elif rest >= _VALUE:
        parts.append("a value" if "STRING" in rest else "an expression")
        rest -= {"INT", "IDENT", "MINUS", "_LPAR", "STRING", "BOOL", "DTYPE", "FLOAT", "SPECIAL", "MODEL", "_LSQB"}
    if {"OPERATOR", "MINUS"} <= rest:
        rest -= {"OPERATOR", "MINUS"}
    parts += sorted(_SHOWN.get(name, name) for name in rest)
    if len(parts) > 6:
        parts = [*parts[:6], "..."]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


def _found(token: SourceToken) -> str:
    if token.type == "$END":
        return "the end of the text"
    if token.type == "UNKNOWN":
        return f"the character {token.value!r}"
    return f"'{token.value if len(token.value) <= 40 else token.value[:37] + '...'}'"
