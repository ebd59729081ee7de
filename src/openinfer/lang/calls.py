"""Builds the arguments and constraints of ops from syntax trees."""

from collections.abc import Iterator, Set
from dataclasses import replace
from itertools import chain, count
from types import MappingProxyType

from lark import Tree

from openinfer.errors import Advice, Code, Fix, FixPlace
from openinfer.ir.expr import Num
from openinfer.ir.graph import NO_CONSTRAINTS, CallArgument, Constraints, Input, MemoryKind
from openinfer.ir.operand import Literal
from openinfer.ir.values import AttrValue, InitValue, IntValue
from openinfer.lang.declarations import Declarations
from openinfer.lang.habits import as_op
from openinfer.lang.literals import Syntax
from openinfer.lang.tokens import SourceToken
from openinfer.lang.trees import STree, is_operand, word


class Calls:
    """Tells inputs from parameters, using declarations and the temporaries of all blocks."""

    def __init__(self, text: Declarations, temporaries: Set[str]) -> None:
        self._text = text
        self._temporaries = temporaries

    def arguments(self, trees: list[STree]) -> tuple[tuple[Input, ...], tuple[tuple[str, AttrValue], ...]]:
        """The inputs and parameters in the parentheses of an op."""
        inputs: list[Input] = []
        attrs: list[tuple[str, AttrValue]] = []
        seen: set[str] = set()
        for argument in trees[0].children if trees else []:
            assert isinstance(argument, Tree)
            *label, value = argument.children
            if not label:
                if seen:
                    message = "inputs by position come before arguments with a name"
                    self._text.report(Code.POSITIONAL_AFTER_NAMED, message, argument)
                else:
                    inputs += self._by_position(value)
                continue
            name = word(label[0])
            if name in seen:
                self._text.report(Code.REPEATED, f"the argument {name!r} is given twice", argument)
            seen.add(name)
            if self._is_input(value):
                inputs.append(Input(self._text.operand(value), name))
            else:
                found = self._text.value(value)
                attrs.append(
                    (name, replace(found, span=self._text.span(value)) if isinstance(found, InitValue) else found)
                )
        return tuple(inputs), tuple(attrs)

    def _by_position(self, value: Syntax) -> Iterator[Input]:
        """An argument without a name: an operand, or nothing if it is wrong."""
        if is_operand(value):
            yield Input(self._text.operand(value))
            return
        literal = self._text.value(value)
        if isinstance(literal, InitValue):
            yield Input(Literal(literal, self._text.span(value)))
            return
        if isinstance(value, SourceToken) and value.type == "DTYPE":
            message = f"'{value.value}' is a dtype and cannot be a variable"
            named = f"to={value.value}"
            advice = Advice(f"a parameter is given by name: {named}", Fix(named, place=FixPlace.WHOLE))
            return self._text.report(Code.RESERVED_WORD, message, value, advice)
        if isinstance(value, Tree) and value.data == "operation":
            message = "an input is a variable or a number, not an expression"
            return self._text.report(Code.SYNTAX, message, value, self._computed_first(value))
        message = "an input is a variable or a number; a parameter is given by name"
        return self._text.report(Code.SYNTAX, message, value, "write name=value")

    def _computed_first(self, value: STree) -> str:
        """Advice to compute an expression first, in a statement of its own."""
        span = self._text.span(value)
        expression = span.source.text[span.start : span.end]
        taken = {*self._text.vars, *self._temporaries}
        name = next(one for one in chain(["t"], (f"t{number}" for number in count(2))) if one not in taken)
        statement = as_op(name, expression)
        if statement is None:
            return "compute it first: t = op add(a, b);"
        used = Fix(name, place=FixPlace.WHOLE)
        return Advice(f"compute it first: {statement}", Fix(statement, place=FixPlace.BEFORE, more=(used,)))

    def call_argument(self, tree: Syntax) -> CallArgument:
        """An argument of a call: an operand, or an expression for an index."""
        assert isinstance(tree, Tree)
        (value,) = tree.children
        if is_operand(value):
            return self._text.operand(value)
        if isinstance(value, Tree) and value.data == "operation":
            expr = self._text.expr(value)
            return Literal(IntValue(expr.value), self._text.span(value)) if isinstance(expr, Num) else expr
        literal = self._text.value(value)
        assert isinstance(literal, InitValue)
        return Literal(literal, self._text.span(value))

    def _is_input(self, value: Syntax) -> bool:
        """Whether a named argument can only be an operand: parameters take only constants that are scalars."""
        if isinstance(value, Tree):
            return value.data in ("indexed", "model")
        if value.type != "IDENT":
            return False
        declared = self._text.vars.get(value.value)
        if declared is None:
            return value.value in self._temporaries
        return declared.kind is not MemoryKind.CONSTANT or bool(declared.dims)

    def constraints(self, trees: list[STree]) -> Constraints:
        """The constraints in the braces of an op or block."""
        found: dict[str, AttrValue] = {}
        for tree in trees:
            for item in tree.children:
                assert isinstance(item, Tree)
                key, value = item.children
                if word(key) in found:
                    self._text.report(Code.REPEATED, f"the constraint {word(key)!r} is given twice", item)
                found[word(key)] = self._text.value(value)
        return MappingProxyType(found) if found else NO_CONSTRAINTS
