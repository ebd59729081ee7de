"""The names of a text, and where each of them is declared, written and read.

Names come from the syntax tree, which has no invalid statements; in those, tokens are classified one by one, so that
a statement being typed knows its variables, too.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from openinfer.language_service.text import TextRange


class SymbolKind(StrEnum):
    """What a name refers to."""

    SIZE = "size"
    VARIABLE = "variable"
    TEMPORARY = "temporary"
    INDEX = "index"
    BLOCK = "block"
    LOOP = "loop"
    OP = "op"
    PARAMETER = "parameter"
    """The name of an argument of an op."""
    ATTRIBUTE = "attribute"
    CONSTRAINT = "constraint"
    ENTRY = "entry"
    """A tensor or metadata entry of the model."""
    UNKNOWN = "unknown"


RENAMED = frozenset(
    {
        *(SymbolKind.SIZE, SymbolKind.VARIABLE, SymbolKind.TEMPORARY, SymbolKind.INDEX),
        *(SymbolKind.BLOCK, SymbolKind.LOOP),
    }
)
"""The kinds of names that the text itself chooses."""


class SymbolRole(StrEnum):
    """What an occurrence does with a name."""

    DECLARE = "declare"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True)
class SourceSymbol:
    """A name: its kind, where it is declared, and where it can be used.

    ``block`` is the block that it is local to, ``within`` the range in which it is known; both empty means everywhere.
    ``detail`` is what it belongs to: the section of a variable, the op of a parameter.
    """

    name: str
    kind: SymbolKind
    declared: TextRange | None = None
    block: str = ""
    within: TextRange | None = None
    detail: str = ""


@dataclass(frozen=True)
class Occurrence:
    """One occurrence of a name."""

    range: TextRange
    symbol: SourceSymbol
    role: SymbolRole = SymbolRole.READ


@dataclass(frozen=True)
class OutlineEntry:
    """A section, block, loop or scope, or a declaration in one, with its full range and the range of its name."""

    name: str
    kind: str
    range: TextRange
    chosen: TextRange
    detail: str = ""
    children: tuple["OutlineEntry", ...] = ()


@dataclass(frozen=True)
class SymbolIndex:
    """All names of a text, in text order."""

    occurrences: tuple[Occurrence, ...] = ()
    outline: tuple[OutlineEntry, ...] = field(default=(), repr=False)

    @cached_property
    def _starts(self) -> list[int]:
        return [one.range.start for one in self.occurrences]

    @cached_property
    def _by_symbol(self) -> dict[SourceSymbol, list[Occurrence]]:
        found: dict[SourceSymbol, list[Occurrence]] = {}
        for one in self.occurrences:
            found.setdefault(one.symbol, []).append(one)
        return found

    @property
    def symbols(self) -> Iterable[SourceSymbol]:
        """Every symbol once."""
        return self._by_symbol

    def at(self, offset: int) -> Occurrence | None:
        """The name at a cursor: the one that contains it, else the one that ends there."""
        place = bisect_right(self._starts, offset)
        near = [one for one in self.occurrences[max(0, place - 2) : place] if one.range.touches(offset)]
        return near[-1] if near else None

    def of(self, symbol: SourceSymbol) -> list[Occurrence]:
        """All occurrences of a symbol."""
        return self._by_symbol.get(symbol, [])

    def visible(self, offset: int, block: str) -> Iterator[SourceSymbol]:
        """The symbols that are visible at an offset inside a block."""
        for symbol in self._by_symbol:
            inside = symbol.within is None or symbol.within.touches(offset)
            if inside and symbol.block in ("", block) and symbol.kind is not SymbolKind.UNKNOWN:
                yield symbol

    def declared(self, name: str) -> Iterator[SourceSymbol]:
        """The symbols of this name that the text declares."""
        return (one for one in self._by_symbol if one.name == name and one.declared is not None)
