"""Renames what a text declares, and rejects names that would clash."""

from openinfer.ir.words import RESERVED
from openinfer.language_service.analysis import TextAnalysis
from openinfer.language_service.symbols import RENAMED, Occurrence, SourceSymbol, SymbolKind
from openinfer.language_service.text import TextEdit

_NAMESPACES = {
    SymbolKind.SIZE: "size",
    SymbolKind.VARIABLE: "value",
    SymbolKind.TEMPORARY: "value",
    SymbolKind.INDEX: "value",
    SymbolKind.BLOCK: "block",
    SymbolKind.LOOP: "loop",
}
"""Names in the same namespace are told apart by spelling alone."""


class RenameRefusedError(Exception):
    """Something cannot be renamed, or not to this name; the text says why."""


def renamed_at(analysis: TextAnalysis, offset: int) -> Occurrence:
    """The name at an offset, if the text can choose another one."""
    found = analysis.index.at(offset)
    if found is None:
        message = "there is no name here"
        raise RenameRefusedError(message)
    symbol = found.symbol
    if symbol.kind not in RENAMED:
        what = "is declared nowhere" if symbol.kind is SymbolKind.UNKNOWN else f"is the name of an {symbol.kind.value}"
        message = f"{symbol.name!r} {what}; it cannot be renamed here"
        raise RenameRefusedError(message)
    if symbol.declared is None:
        message = f"{symbol.name!r} comes from the model or the caller; it cannot be renamed here"
        raise RenameRefusedError(message)
    if symbol.kind is SymbolKind.BLOCK and symbol.name == "entry":
        message = "execution starts at 'entry'; it has to be called so"
        raise RenameRefusedError(message)
    return found


def rename(analysis: TextAnalysis, offset: int, new_name: str) -> list[TextEdit]:
    """The edits that rename the symbol at an offset everywhere."""
    symbol = renamed_at(analysis, offset).symbol
    if analysis.recovered.problems:
        message = "the text has errors of syntax; a name in them could be missed"
        raise RenameRefusedError(message)
    _require_name(new_name)
    _require_free(analysis, symbol, new_name)
    _require_not_linked(analysis, symbol)
    return [TextEdit(one.range, new_name) for one in analysis.index.of(symbol)]


def _require_name(name: str) -> None:
    if not (name.isascii() and name.isidentifier()):
        message = f"{name!r:.60} is not a name: letters, digits and underscores, no digit in front"
        raise RenameRefusedError(message)
    if name in RESERVED:
        message = f"{name!r} is a word of the language"
        raise RenameRefusedError(message)


def _require_free(analysis: TextAnalysis, symbol: SourceSymbol, name: str) -> None:
    """Reject a name that is taken, or that something else would shadow."""
    if symbol.kind is SymbolKind.LOOP:
        return
    for other in analysis.index.symbols:
        if other.name != name or other == symbol or not _meet(symbol, other):
            continue
        where = ""
        if other.declared is not None:
            line, column = analysis.source.position(other.declared.start)
            where = f", at {line}:{column}"
        kind = "a name that is declared nowhere" if other.kind is SymbolKind.UNKNOWN else f"a {other.kind.value}"
        message = f"there is {kind} {name!r} already{where}"
        raise RenameRefusedError(message)


def _meet(one: SourceSymbol, other: SourceSymbol) -> bool:
    """Whether two symbols of one name would clash: at most their positions would tell them apart."""
    spaces = _NAMESPACES.get(one.kind), _NAMESPACES.get(other.kind, "value")
    if other.kind not in _NAMESPACES and other.kind is not SymbolKind.UNKNOWN:
        return False
    # In index expressions a name is an index, a variable or a size.
    shared = spaces[0] == spaces[1] or set(spaces) == {"size", "value"}
    inside = one.within is None or other.within is None
    apart = one.within is not None and other.within is not None
    overlap = apart and _overlap(one, other)
    same_block = not one.block or not other.block or one.block == other.block
    return shared and same_block and (inside or overlap)


def _overlap(one: SourceSymbol, other: SourceSymbol) -> bool:
    assert one.within is not None
    assert other.within is not None
    return one.within.start <= other.within.end and other.within.start <= one.within.end


def _require_not_linked(analysis: TextAnalysis, symbol: SourceSymbol) -> None:
    """Reject a variable that the model fills by name: it would lose its value."""
    model = analysis.model
    if symbol.kind is not SymbolKind.VARIABLE or model is None or symbol.block:
        return
    decl = analysis.graph.vars.get(symbol.name)
    if decl is None or decl.ref_name is not None or decl.pattern is not None:
        return
    if symbol.name in model.tensors or symbol.name in model.metadata_info:
        message = f'the model fills {symbol.name!r} by its name; add @ref("{symbol.name}") to it first'
        raise RenameRefusedError(message)
