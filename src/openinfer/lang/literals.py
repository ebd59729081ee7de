"""Builds expressions, values and operands from syntax trees."""

import json
import re
from typing import Any

from lark import Tree

from openinfer.dtypes import dtype_of
from openinfer.errors import Advice, Code, Diagnostic, Fix, FixPlace, Source, Span
from openinfer.ir.expr import BinaryExpr, Expr, Num, Operator, Ref, TooDeepError, negate
from openinfer.ir.operand import Access, Index, Literal, ModelRef, Operand, Single, Slice
from openinfer.ir.values import (
    AttrValue,
    BoolValue,
    DTypeList,
    DTypeValue,
    ExprList,
    ExprValue,
    FloatList,
    FloatValue,
    InitValue,
    IntValue,
    StrValue,
    VarValue,
)
from openinfer.lang.tokens import SourceToken

Syntax = Tree[SourceToken] | SourceToken
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_BRACKETS = ("_LSQB", "_COMMA", "_RSQB")
_LARGEST = 2**64 - 1
_SMALLEST = -(2**63)
_INFINITE = Advice("write inf if you mean infinity", Fix("inf", place=FixPlace.WHOLE))


class Literals:
    """Builds the values of one source and collects their problems."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Diagnostic] = []

    def report(self, code: Code, message: str, where: Syntax | Span, advice: str | None = None) -> None:
        """Add an error at a piece of syntax."""
        span = where if isinstance(where, Span) else self.span(where)
        self.problems.append(Diagnostic(code, message, span, advice))

    def span(self, first: Syntax, last: Syntax | None = None) -> Span:
        """The span from the start of one piece of syntax to the end of another."""
        return Span(self.source, _start(first), _end(first if last is None else last))

    # --- numbers and strings --------------------------------------------------------------------------------------

    def integer(self, token: SourceToken) -> int:
        """An integer literal; one larger than any dtype holds is refused."""
        digits = token.value.replace("_", "")
        if len(digits) <= 80 and re.fullmatch(r"0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+", digits):
            base = {"x": 16, "b": 2}.get(digits[1:2].lower(), 10)
            value = int(digits[2:] if base != 10 else digits, base)
            if value <= _LARGEST:
                return value
        self.report(Code.BAD_NUMBER, "this integer does not fit in 64 bits", token)
        return 0

    def floating(self, token: SourceToken) -> float:
        """A float literal, ``inf`` or ``nan``."""
        value = float(token.value.replace("_", ""))
        if token.type == "FLOAT" and value == float("inf"):
            self.report(Code.BAD_NUMBER, "this number is too large for f64", token, _INFINITE)
        return value

    def string(self, token: SourceToken) -> str:
        """A string literal, with JSON escapes."""
        try:
            text: str = json.loads(token.value, strict=False)
            text.encode("utf-8")
        except ValueError:
            self.report(Code.BAD_STRING, "this string has a bad escape", token, r"use \", \\, \n, \t or \uXXXX")
            return ""
        return text

    # --- expressions ----------------------------------------------------------------------------------------------

    def expr(self, syntax: Syntax) -> Expr:
        """An integer expression."""
        if isinstance(syntax, SourceToken):
            return Ref(syntax.value) if syntax.type == "IDENT" else Num(self.integer(syntax))
        try:
            return self._operation(list(syntax.children))
        except TooDeepError as error:
            self.report(Code.TOO_DEEP, str(error), syntax)
            return Num(0)

    def _operation(self, items: list[Syntax]) -> Expr:
        """A sequence of operands and operators, by precedence; uses two stacks and no recursion."""
        operands: list[Expr] = []
        operators: list[str] = []
        negative = False
        expects_operand = True
        for item in items:
            if isinstance(item, SourceToken) and item.type in ("MINUS", "OPERATOR"):
                if expects_operand:
                    negative = not negative
                    continue
                while operators and _RANK[operators[-1]] >= _RANK[item.value]:
                    _apply(operands, operators.pop())
                operators.append(item.value)
                expects_operand = True
            else:
                operand = self.expr(item)
                operands.append(self._negated(operand, item) if negative else operand)
                negative, expects_operand = False, False
        while operators:
            _apply(operands, operators.pop())
        return operands[0]

    def _negated(self, operand: Expr, where: Syntax) -> Expr:
        found = negate(operand)
        if isinstance(found, Num) and found.value < _SMALLEST:
            self.report(Code.BAD_NUMBER, "this negative integer does not fit in 64 bits", where)
        return found

    # --- operands -------------------------------------------------------------------------------------------------

    def access(self, syntax: Syntax) -> Access:
        """A variable, or a selection from it in brackets."""
        if isinstance(syntax, Tree) and syntax.data in ("access", "operand"):
            return self.access(syntax.children[0])
        span = self.span(syntax)
        if isinstance(syntax, SourceToken):
            return Access(syntax.value, span=span)
        name = syntax.children[0]
        assert isinstance(name, SourceToken)
        indices = [child for child in syntax.children if isinstance(child, Tree)]
        found = tuple(self._index(index) for index in indices)
        whole = len(indices) == 1 and _is_empty(indices[0])
        return Access(name.value, () if whole else found, bracketed=True, span=span)

    def _index(self, syntax: Syntax) -> Index:
        assert isinstance(syntax, Tree)
        if not syntax.children:
            return Slice()
        (inner,) = syntax.children
        if not isinstance(inner, Tree) or inner.data != "slice":
            return Single(self.expr(inner))
        before, after = None, None
        for part in inner.children:
            if isinstance(part, SourceToken) and part.type == "RANGE":
                continue
            if _start(part) < _range_position(inner):
                before = self.expr(part)
            else:
                after = self.expr(part)
        return Slice(before, after)

    def operand(self, syntax: Syntax) -> Operand:
        """A variable, an entry of a table, a tensor of the model, or a literal."""
        if isinstance(syntax, Tree) and syntax.data == "operand":
            return self.operand(syntax.children[0])
        if isinstance(syntax, Tree) and syntax.data == "model":
            words = {token.type: token for token in syntax.children if isinstance(token, SourceToken)}
            return ModelRef(self.string(words["STRING"]), "FMT" in words, self.span(syntax))
        if isinstance(syntax, Tree) and syntax.data == "literal":
            return Literal(self._literal(syntax), self.span(syntax))
        return self.access(syntax)

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, syntax: Syntax) -> AttrValue:
        """The value of a parameter, an attribute's argument or a constraint."""
        if isinstance(syntax, SourceToken):
            match syntax.type:
                case "INT":
                    return IntValue(self.integer(syntax))
                case "IDENT":
                    return VarValue(syntax.value)
                case "STRING":
                    return StrValue(self.string(syntax))
                case "BOOL":
                    return BoolValue(syntax.value == "true")
                case _:
                    return DTypeValue(dtype_of(syntax.value))
        match syntax.data:
            case "number":
                return self._number(syntax)
            case "list":
                return self._list(syntax)
            case "operation":
                expr = self.expr(syntax)
                return IntValue(expr.value) if isinstance(expr, Num) else ExprValue(expr)
            case _:
                self.report(Code.SYNTAX, "a value cannot be an element of a table here", syntax)
                return IntValue(0)

    def _literal(self, syntax: Tree[SourceToken]) -> InitValue:
        *minus, last = syntax.children
        if isinstance(last, Tree):
            return self._number(last)
        if last.type == "BOOL":
            return BoolValue(last.value == "true")
        found = Num(self.integer(last))
        number = self._negated(found, last) if minus else found
        return IntValue(number.value if isinstance(number, Num) else 0)

    def _number(self, syntax: Tree[SourceToken]) -> FloatValue:
        token = syntax.children[-1]
        assert isinstance(token, SourceToken)
        value = self.floating(token)
        return FloatValue(-value if len(syntax.children) == 2 else value)

    def _list(self, syntax: Tree[SourceToken]) -> AttrValue:
        items = [item for item in syntax.children if isinstance(item, Tree) or item.type not in _BRACKETS]
        if any(isinstance(item, SourceToken) and item.type == "DTYPE" for item in items):
            return self._dtypes(items)
        if any(isinstance(item, Tree) and item.data == "number" for item in items):
            return FloatList(tuple(self._as_float(item) for item in items))
        return ExprList(tuple(self.expr(item) for item in items))

    def _dtypes(self, items: list[Syntax]) -> DTypeList:
        found = []
        for item in items:
            if isinstance(item, SourceToken) and item.type == "DTYPE":
                found.append(dtype_of(item.value))
            else:
                self.report(Code.SYNTAX, "a list holds dtypes or numbers, not both", item)
        return DTypeList(tuple(found))

    def _as_float(self, item: Syntax) -> FloatValue:
        if isinstance(item, Tree) and item.data == "number":
            return self._number(item)
        expr = self.expr(item)
        if isinstance(expr, Num):
            return FloatValue(float(expr.value))
        self.report(Code.SYNTAX, "a list of floats cannot hold an expression over sizes", item)
        return FloatValue(0.0)


def _apply(operands: list[Expr], operator: Any) -> None:
    right = operands.pop()
    op: Operator = operator
    operands.append(BinaryExpr(op, operands.pop(), right))


def _start(syntax: Syntax) -> int:
    token = _edge(syntax, 1)
    return 0 if token is None else token.start_pos


def _end(syntax: Syntax) -> int:
    token = _edge(syntax, -1)
    return 0 if token is None else token.end_pos


def _edge(syntax: Syntax, step: int) -> SourceToken | None:
    """The first or last token of a piece of syntax; None for empty brackets."""
    if not isinstance(syntax, Tree):
        return syntax
    found = (_edge(child, step) for child in syntax.children[::step])
    return next((token for token in found if token is not None), None)


def _is_empty(index: Syntax) -> bool:
    return isinstance(index, Tree) and not index.children


def _range_position(syntax: Tree[SourceToken]) -> int:
    return next(part.start_pos for part in syntax.children if isinstance(part, SourceToken) and part.type == "RANGE")
