"""Expressions and operands from the text that JSON documents hold them in.

A small recursive reader: JSON must be readable without the language's parser, which stands above this package.
"""

import json
import re
from functools import lru_cache
from typing import TypeVar

from openinfer.ir.expr import MAX_DEPTH, Binary, Expr, Num, Ref, TooDeepError, negate
from openinfer.ir.graph import Input
from openinfer.ir.operand import Access, Index, ModelRef, Operand, Single, Slice
from openinfer.ir.words import RESERVED

_TOKEN = re.compile(r"\s*(?:(\.\.|[-+*/%()\[\],=])|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|(\"(?:[^\"\\\n]|\\[^\n])*\"))")
_MAX_TEXT = 10_000
T = TypeVar("T")


class OperandError(ValueError):
    """A text that is no expression or operand."""


@lru_cache(maxsize=4096)
def parse_expr(text: str) -> Expr:
    """An integer expression.

    >>> parse_expr("3*D+1")
    Binary(op='+', left=Binary(op='*', left=Num(value=3), right=Ref(name='D')), right=Num(value=1))
    """
    reader = _Reader(text)
    return reader.finished(reader.expr())


@lru_cache(maxsize=4096)
def parse_operand(text: str) -> Operand:
    """A variable, an entry of a table, or a tensor of the model."""
    reader = _Reader(text)
    return reader.finished(reader.operand())


@lru_cache(maxsize=4096)
def parse_input(text: str) -> Input:
    """An operand of an op, with the name of the input in front where it has one: ``x`` or ``a=x``."""
    reader = _Reader(text)
    if len(reader.tokens) > 1 and reader.tokens[1] == "=":
        name = reader.name()
        reader.position += 1
        return reader.finished(Input(reader.operand(), name))
    return reader.finished(Input(reader.operand()))


def parse_access(text: str) -> Access:
    """A variable or an entry of a table."""
    operand = parse_operand(text)
    if isinstance(operand, ModelRef):
        message = "a tensor of the model cannot be written"
        raise OperandError(message)
    return operand


class _Reader:
    def __init__(self, text: str) -> None:
        if len(text) > _MAX_TEXT:
            message = f"{len(text)} characters are too many for an operand"
            raise OperandError(message)
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
            left = Binary("+" if operator == "+" else "-", left, right)
        self.depth -= 1
        return left

    def term(self) -> Expr:
        left = self.unary()
        while self.peek() in ("*", "/", "%"):
            operator = self.peek()
            self.position += 1
            right = self.unary()
            left = Binary("*" if operator == "*" else "/" if operator == "/" else "%", left, right)
        return left

    def unary(self) -> Expr:
        negative = False
        while self.take("-"):
            negative = not negative
        if self.take("("):
            inner = self.expr()
            self.expect(")")
        elif self.peek().isdecimal():
            if len(self.peek()) > 20:
                message = "an integer of more than 20 digits"
                raise OperandError(message)
            inner = Num(int(self.peek()))
            self.position += 1
        else:
            inner = Ref(self.name())
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
