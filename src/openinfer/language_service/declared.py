"""The names that a syntax tree declares, collected before any of their uses."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lark import Tree

from openinfer.lang.tokens import SourceToken
from openinfer.lang.trees import STree, word
from openinfer.language_service.symbols import SourceSymbol, SymbolKind
from openinfer.language_service.text import TextRange

_MADE_BY = ("inferred_op", "effect_read")
_BODIES = frozenset({"wrapped", "graph", "sizes", "block", "loop", "loop_body", "scope"})


def place_of(token: object) -> TextRange:
    """The range of a token."""
    assert isinstance(token, SourceToken)
    return TextRange(token.start_pos, token.end_pos)


def leaves(tree: STree) -> Iterator[SourceToken]:
    """The tokens below a tree, in order."""
    for child in tree.children:
        if isinstance(child, Tree):
            yield from leaves(child)
        else:
            yield child


def extent_of(tree: STree) -> TextRange:
    """From the first to the last token of a tree, which excludes brackets and semicolons at its end."""
    tokens = list(leaves(tree))
    return TextRange(tokens[0].start_pos, tokens[-1].end_pos) if tokens else TextRange(0, 0)


@dataclass
class Declared:
    """The declared names by kind."""

    sizes: dict[str, SourceSymbol] = field(default_factory=dict)
    variables: dict[str, SourceSymbol] = field(default_factory=dict)
    """Those of sections, and temporaries that all blocks share."""
    blocks: dict[str, SourceSymbol] = field(default_factory=dict)
    own: dict[str, dict[str, SourceSymbol]] = field(default_factory=dict)
    """The variables and indices local to each block with parameters."""


def declared_in(tree: STree) -> Declared:
    """The names that a text declares; of several declarations of a name, the first counts."""
    found = Declared()
    for size in _trees(tree, "size"):
        _add(found.sizes, size.children[0], SymbolKind.SIZE)
    for section in _trees(tree, "memory", "state"):
        kind = word(section.children[0])
        for variable in section.children[1:]:
            assert isinstance(variable, Tree)
            _add(found.variables, variable.children[0], SymbolKind.VARIABLE, detail=kind)
    blocks = list(_trees(tree, "block"))
    for block in blocks:
        _add(found.blocks, block.children[1], SymbolKind.BLOCK)
    for block in blocks:
        _block(found, block)
    return found


def _trees(tree: STree, *kinds: str) -> Iterator[STree]:
    """The subtrees of some kinds, in text order."""
    for child in tree.children:
        if isinstance(child, Tree):
            if child.data in kinds:
                yield child
            if child.data in _BODIES:
                yield from _trees(child, *kinds)


def _block(found: Declared, block: STree) -> None:
    name = word(block.children[1])
    params = next((one for one in block.children if isinstance(one, Tree) and one.data == "params"), None)
    if params is None:
        _temporaries(found.variables, block, "")
        return
    own = found.own.setdefault(name, {})
    for param in params.children:
        assert isinstance(param, Tree)
        words = [one.value for one in param.children if isinstance(one, SourceToken)]
        kind = SymbolKind.INDEX if words[1:] == ["index"] else SymbolKind.VARIABLE
        _add(own, param.children[0], kind, name, "parameter")
    _temporaries(own, block, name)


def _temporaries(known: dict[str, SourceSymbol], block: STree, own: str) -> None:
    for statement in _trees(block, "assign", *_MADE_BY):
        if statement.data == "assign":
            _add(known, statement.children[1], SymbolKind.TEMPORARY, own)
            continue
        names = statement.children[0]
        assert isinstance(names, Tree)
        for token in names.children:
            _add(known, token, SymbolKind.TEMPORARY, own)


def _add(known: dict[str, SourceSymbol], token: object, kind: SymbolKind, block: str = "", detail: str = "") -> None:
    assert isinstance(token, SourceToken)
    known.setdefault(token.value, SourceSymbol(token.value, kind, place_of(token), block, detail=detail))
