"""Builds sizes, memory sections and attributes from syntax trees."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from lark import Tree

from openinfer.dtypes import dtype_of
from openinfer.errors import Advice, Code, Diagnostic, Fix, FixPlace
from openinfer.ir.expr import Expr
from openinfer.ir.graph import Attribute, MemoryKind, SizeDecl, VarDecl
from openinfer.ir.values import AttrValue, StrValue, VarValue, as_expr, init_value
from openinfer.lang.literals import Literals, Syntax
from openinfer.lang.tokens import SourceToken

_KINDS = {
    "dynamic": MemoryKind.DYNAMIC,
    "inputs": MemoryKind.DYNAMIC,
    "volatile": MemoryKind.VOLATILE,
    "outputs": MemoryKind.VOLATILE,
    "constant": MemoryKind.CONSTANT,
    "constants": MemoryKind.CONSTANT,
    "persistent": MemoryKind.PERSISTENT,
}
Arguments = list[tuple[str | None, AttrValue, Syntax]]


class Declarations(Literals):
    """Collects the declarations of one source."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.sizes: dict[str, SizeDecl] = {}
        self.vars: dict[str, VarDecl] = {}

    def section(self, tree: Tree[SourceToken]) -> None:
        """Add a section of sizes or variables."""
        head, *entries = tree.children
        assert isinstance(head, SourceToken)
        for entry in entries:
            assert isinstance(entry, Tree)
            if tree.data == "sizes":
                self._size(entry)
            elif tree.data == "state":
                self._variable(entry, MemoryKind.PERSISTENT)
            else:
                self._variable(entry, _KINDS[head.value])
        if head.value == "constants":
            self._old_spelling("constant", head)

    def _old_spelling(self, current: str, where: Syntax) -> None:
        message = "this spelling is accepted but not the current one"
        advice = Advice(f"write '{current}' ('openinfer fmt' does)", Fix(current, place=FixPlace.WHOLE))
        self.problems.append(Diagnostic(Code.OLD_SPELLING, message, self.span(where), advice))

    def _size(self, tree: Tree[SourceToken]) -> None:
        name, relation, value = tree.children
        assert isinstance(name, SourceToken)
        assert isinstance(relation, SourceToken)
        if name.value in self.sizes:
            self.report(Code.DUPLICATE_DECLARATION, f"the size {name.value!r} is declared twice", name)
        how: Literal[":=", "<="] = ":=" if relation.value == ":=" else "<="
        self.sizes[name.value] = SizeDecl(name.value, how, self.expr(value), self.span(tree))

    def _variable(self, tree: Tree[SourceToken], kind: MemoryKind) -> None:
        name = tree.children[0]
        assert isinstance(name, SourceToken)
        parts = {
            str(child.data): child for child in tree.children if isinstance(child, Tree) and child.data != "attribute"
        }
        dtype = next(t for t in tree.children if isinstance(t, SourceToken) and t.type == "DTYPE")
        indices = parts.get("table_indices")
        decl = VarDecl(
            name.value,
            kind,
            dtype_of(dtype.value),
            self.dims(parts.get("dims")),
            table_indices=() if indices is None else self._distinct(indices),
            span=self.span(tree),
        )
        seen: set[str] = set()
        for child in tree.children:
            if isinstance(child, Tree) and child.data == "attribute":
                decl = self._attribute(decl, child, seen)
        if name.value in self.vars:
            self.report(Code.DUPLICATE_DECLARATION, f"the variable {name.value!r} is declared twice", name)
        self.vars[name.value] = decl

    def dims(self, tree: Tree[SourceToken] | None) -> tuple[Expr, ...]:
        """The dimensions of a type."""
        return () if tree is None else tuple(self.expr(child) for child in tree.children)

    def _distinct(self, tree: Tree[SourceToken]) -> tuple[str, ...]:
        found: list[str] = []
        for token in tree.children:
            assert isinstance(token, SourceToken)
            if token.value in found:
                self.report(Code.REPEATED, f"the index {token.value!r} is given twice", token)
            found.append(token.value)
        return tuple(dict.fromkeys(found))

    # --- attributes -----------------------------------------------------------------------------------------------

    def _attribute(self, decl: VarDecl, tree: Tree[SourceToken], seen: set[str]) -> VarDecl:
        token = tree.children[0]
        assert isinstance(token, SourceToken)
        if token.type == "PATTERN":
            self._old_spelling("@pattern", token)
        if token.value in seen:
            self.report(Code.REPEATED, f"the attribute '@{token.value}' is given twice", token)
            return decl
        seen.add(token.value)
        arguments = self._arguments(tree.children[1]) if len(tree.children) > 1 else []
        known = _KNOWN.get(token.value)
        if known is None:
            plain = tuple((name, value) for name, value, _ in arguments)
            return replace(decl, attrs=(*decl.attrs, Attribute(token.value, plain)))
        updated = known(self, decl, arguments)
        if updated is None:
            self.report(Code.BAD_ATTRIBUTE, f"'@{token.value}' is written {_FORMS[token.value]}", tree)
            return decl
        return updated

    def _arguments(self, syntax: Syntax) -> Arguments:
        assert isinstance(syntax, Tree)
        found: Arguments = []
        for argument in syntax.children:
            assert isinstance(argument, Tree)
            *name, value = argument.children
            label = name[0].value if name and isinstance(name[0], SourceToken) else None
            if label is not None and any(label == other for other, _, _ in found):
                self.report(Code.REPEATED, f"the argument {label!r} is given twice", argument)
                continue
            if label is None and any(other is not None for other, _, _ in found):
                message = "arguments by position come before those with a name"
                self.report(Code.POSITIONAL_AFTER_NAMED, message, argument)
            found.append((label, self.value(value), argument))
        return found

    def init(self, decl: VarDecl, arguments: Arguments) -> VarDecl | None:
        """``@init(value)``, converted to the variable's type."""
        if len(arguments) != 1 or arguments[0][0] is not None:
            return None
        value = init_value(arguments[0][1], decl.dtype)
        if value is None:
            message = f"{arguments[0][1]} is not a value of {decl.dtype.name}"
            self.report(Code.BAD_ATTRIBUTE, message, arguments[0][2])
            return decl
        return replace(decl, init=value)

    def ref(self, decl: VarDecl, arguments: Arguments) -> VarDecl | None:
        """``@ref("name")``."""
        text = _only_string(arguments)
        return None if text is None else replace(decl, ref_name=text)

    def pattern(self, decl: VarDecl, arguments: Arguments) -> VarDecl | None:
        """``@pattern("name.{index}")``."""
        text = _only_string(arguments)
        return None if text is None else replace(decl, pattern=text)

    def table(self, decl: VarDecl, arguments: Arguments) -> VarDecl | None:
        """``@table``."""
        return None if arguments else replace(decl, table=True)

    def auto_dim(self, decl: VarDecl, arguments: Arguments) -> VarDecl | None:
        """``@auto_dim(i, j)``."""
        names = [value.name for name, value, _ in arguments if name is None and isinstance(value, VarValue)]
        return replace(decl, auto_dim=tuple(names)) if names and len(names) == len(arguments) else None

    def fixed(self, decl: VarDecl, arguments: Arguments) -> VarDecl | None:
        """``@fixed(i=1024, j=256)``."""
        bounds = [(name, as_expr(value)) for name, value, _ in arguments]
        found = tuple((name, bound) for name, bound in bounds if name is not None and bound is not None)
        return replace(decl, fixed=found) if found and len(found) == len(arguments) else None


_KNOWN: dict[str, Callable[[Declarations, VarDecl, Arguments], VarDecl | None]] = {
    "init": Declarations.init,
    "ref": Declarations.ref,
    "pattern": Declarations.pattern,
    "table": Declarations.table,
    "auto_dim": Declarations.auto_dim,
    "fixed": Declarations.fixed,
}
_FORMS = {
    "init": "@init(5.0): one number, true or false",
    "ref": '@ref("name")',
    "pattern": '@pattern("name.{index}")',
    "table": "@table, without arguments",
    "auto_dim": "@auto_dim(i, j), with the names of the variable's indices",
    "fixed": "@fixed(i=1024, j=256), with a bound for each index",
}


def _only_string(arguments: Arguments) -> str | None:
    if len(arguments) != 1 or arguments[0][0] is not None or not isinstance(arguments[0][1], StrValue):
        return None
    return arguments[0][1].value
