"""Parses expressions and operands as JSON documents write them.

A small recursive-descent parser of its own: JSON must be readable without the language's parser, which is a higher
layer.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from openinfer.ir.expr import MAX_DEPTH, BinaryExpr, Expr, Num, Ref, TooDeepError, negate
from openinfer.ir.graph import Input
from openinfer.ir.operand import Access, Index, ModelRef, Operand, Single, Slice
from openinfer.ir.words import RESERVED

_TOKEN = re.compile(
    r"\s*(?:(\.\.|[-+*/%()\[\],=])|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|(\"[^\"\\\n]*+(?:\\[^\n][^\"\\\n]*+)*+\"))"
)
_LARGEST, _SMALLEST = 2**64 - 1, -(2**63)
_MAX_REMEMBERED = 200
T = TypeVar("T")


class OperandError(ValueError):
    """A text that is not an expression or operand."""


def _remembered(parser: Callable[[str], T]) -> Callable[[str], T]:
    """Cache a parser's results for short texts, which documents repeat; long texts would fill memory."""
    cached = lru_cache(maxsize=4096)(parser)
    return wraps(parser)(lambda text: cached(text) if len(text) <= _MAX_REMEMBERED else parser(text))


@_remembered
def parse_expr(text: str) -> Expr:
    """Parse an integer expression.

    >>> parse_expr("3*D+1")
    BinaryExpr(op='+', left=BinaryExpr(op='*', left=Num(value=3), right=Ref(name='D')), right=Num(value=1))
    """
    reader = _Reader(text)
    return reader.finished(reader.expr())


@_remembered
def parse_operand(text: str) -> Operand:
    """Parse a variable, an entry of a table, or a tensor of the model."""
    reader = _Reader(text)
    return reader.finished(reader.operand())


@_remembered
def parse_input(text: str) -> Input:
    """Parse an operand of an op, with the input's name in front if there is one: ``x`` or ``a=x``."""
    reader = _Reader(text)
    if len(reader.tokens) > 1 and reader.tokens[1] == "=":
        name = "block" if reader.peek() == "block" else reader.name()
        reader.position = 2
        return reader.finished(Input(reader.operand(), name))
    return reader.finished(Input(reader.operand()))


def parse_access(text: str) -> Access:
    """Parse a variable or an entry of a table."""
    operand = parse_operand(text)
    if not isinstance(operand, Access):
        message = "a tensor of the model cannot be written"
        raise OperandError(message)
    return operand


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.position = 0
        self.depth = 0
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                message = f"{text!r:.80} is not an operand"
                raise OperandError(message)
            self.tokens.append(match.group().strip())
            at = match.end()

    def finished(self, value: T) -> T:
        if self.position != len(self.tokens):
            message = f"{self.tokens[self.position]!r:.40} is not expected"
            raise OperandError(message)
        return value

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, wanted: str) -> bool:
        if self.peek() != wanted:
            return False
        self.position += 1
        return True

    def expect(self, wanted: str) -> None:
        if not self.take(wanted):
            message = f"expected {wanted!r}, found {self.peek()!r:.40}"
            raise OperandError(message)

    def name(self) -> str:
        word = self.peek()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word) or word in RESERVED:
            message = f"expected a name, found {word!r:.40}"
            raise OperandError(message)
        self.position += 1
        return word

    def expr(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"the expression is nested more than {MAX_DEPTH} deep"
            raise TooDeepError(message)
        left = self.term()
        while self.peek() in ("+", "-"):
            operator = self.peek()
            self.position += 1
            right = self.term()
            left = BinaryExpr("+" if operator == "+" else "-", left, right)
        self.depth -= 1
        return left

    def term(self) -> Expr:
        left = self.unary()
        while self.peek() in ("*", "/", "%"):
            operator = self.peek()
            self.position += 1
            right = self.unary()
            left = BinaryExpr("*" if operator == "*" else "/" if operator == "/" else "%", left, right)
        return left

    def unary(self) -> Expr:
        negative = False
        while self.take("-"):
            negative = not negative
        if self.take("("):
            inner = self.expr()
            self.expect(")")
        elif self.peek().isdecimal():
            inner = Num(_sixty_four_bits(int(self.peek()) if len(self.peek()) <= 20 else _LARGEST + 1))
            self.position += 1
        else:
            inner = Ref(self.name())
        if isinstance(inner, Num) and negative:
            return Num(_sixty_four_bits(-inner.value))
        return negate(inner) if negative else inner

    def operand(self) -> Operand:
        if self.take("model"):
            return self._model()
        name = self.name()
        if not self.take("["):
            return Access(name)
        if self.take("]"):
            return Access(name, (), bracketed=True)
        indices = [self._index()]
        while self.take(","):
            indices.append(self._index())
        self.expect("]")
        return Access(name, tuple(indices), bracketed=True)

    def _model(self) -> ModelRef:
        self.expect("[")
        formatted = self.take("fmt")
        if formatted:
            self.expect("(")
        text = self.peek()
        if not text.startswith('"'):
            message = "expected a string"
            raise OperandError(message)
        self.position += 1
        if formatted:
            self.expect(")")
        self.expect("]")
        return ModelRef(json.loads(text, strict=False), formatted)

    def _index(self) -> Index:
        if self.peek() in (",", "]"):
            return Slice()
        start = None if self.peek() == ".." else self.expr()
        if not self.take(".."):
            assert start is not None
            return Single(start)
        return Slice(start, None if self.peek() in (",", "]") else self.expr())


def _sixty_four_bits(value: int) -> int:
    if not _SMALLEST <= value <= _LARGEST:
        message = "an integer that does not fit in 64 bits"
        raise OperandError(message)
    return value
