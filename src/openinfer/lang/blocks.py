"""Builds block parameters from syntax trees."""

from lark import Tree

from openinfer.dtypes import dtype_of
from openinfer.errors import Code, nearest
from openinfer.ir.graph import BlockParam, BlockParamKind
from openinfer.lang.declarations import Declarations
from openinfer.lang.tokens import SourceToken
from openinfer.lang.trees import STree, word

_WORDS = {"index": BlockParamKind.INDEX, "prefix": BlockParamKind.PREFIX}


def params_of(text: Declarations, tree: STree) -> tuple[BlockParam, ...]:
    """The parameters in the parentheses of a block."""
    found: dict[str, BlockParam] = {}
    for part in tree.children:
        assert isinstance(part, Tree)
        param = _param(text, part)
        if param.name in found:
            message = f"the parameter {param.name!r} is declared twice"
            text.report(Code.DUPLICATE_DECLARATION, message, part.children[0])
        found.setdefault(param.name, param)
    return tuple(found.values())


def _param(text: Declarations, tree: STree) -> BlockParam:
    name, kind, *dims = tree.children
    assert isinstance(kind, SourceToken)
    span = text.span(tree)
    if kind.type == "DTYPE":
        extents = dims[0] if dims and isinstance(dims[0], Tree) else None
        return BlockParam(word(name), BlockParamKind.TENSOR, dtype_of(kind.value), text.dims(extents), span)
    if kind.value not in _WORDS:
        message = f"a parameter is a tensor, an index or a prefix table, not {kind.value!r}"
        advice = (
            nearest(kind.value, _WORDS) or f"{word(name)}: f32[N]  or  {word(name)}: index  or  {word(name)}: prefix"
        )
        text.report(Code.SYNTAX, message, kind, advice)
    return BlockParam(word(name), _WORDS.get(kind.value, BlockParamKind.INDEX), span=span)
