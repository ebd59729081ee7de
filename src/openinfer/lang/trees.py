"""Accessors shared by all statements of the syntax tree."""

from lark import Tree

from openinfer.lang.literals import Syntax
from openinfer.lang.tokens import SourceToken

STree = Tree[SourceToken]


def word(syntax: Syntax) -> str:
    """The text of a token."""
    assert isinstance(syntax, SourceToken), syntax
    return syntax.value


def parts_of(tree: STree) -> dict[str, list[STree]]:
    """The subtrees of a statement, by kind."""
    found: dict[str, list[STree]] = {}
    for child in tree.children:
        if isinstance(child, Tree):
            found.setdefault(str(child.data), []).append(child)
    return found


def names_of(tree: STree) -> tuple[str, ...]:
    """The names listed in a statement."""
    trees = [child for child in tree.children if isinstance(child, Tree) and child.data == "names"]
    return tuple(word(token) for child in trees for token in child.children)


def is_operand(syntax: Syntax) -> bool:
    """Whether syntax can only be an operand: a name, or something with brackets."""
    return syntax.type == "IDENT" if isinstance(syntax, SourceToken) else syntax.data in ("indexed", "model")
