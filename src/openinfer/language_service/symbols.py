"""What names a text has, and where each of them stands: declared, written and read.

The names come from the syntax tree without its wrong statements; in those, tokens are looked at one by one, so that a
statement that is being typed knows its variables too.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from openinfer.language_service.text import TextRange


class SymbolKind(StrEnum):
    """What a name stands for."""

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
    """What a place does with a name."""

    DECLARE = "declare"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True)
class SourceSymbol:
    """A name: its kind, where it is declared, and where it can be used.

    ``block`` is the block that has it for itself, ``within`` the range in which it is known; both empty: everywhere.
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
    """A place where a name stands."""

    range: TextRange
    symbol: SourceSymbol
    role: SymbolRole = SymbolRole.READ


@dataclass(frozen=True)
class OutlineEntry:
    """A section, block, loop or scope, or a declaration in one, with the range of all of it and of its name."""

    name: str
    kind: str
    range: TextRange
    chosen: TextRange
    detail: str = ""
    children: tuple["OutlineEntry", ...] = ()


@dataclass(frozen=True)
class SymbolIndex:
    """All names of a text, in the order in which they stand there."""

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
        """Every name once."""
        return self._by_symbol

    def at(self, offset: int) -> Occurrence | None:
        """The name at a cursor: the one it stands in, else the one that ends there."""
        place = bisect_right(self._starts, offset)
        near = [one for one in self.occurrences[max(0, place - 2) : place] if one.range.touches(offset)]
        return near[-1] if near else None

    def of(self, symbol: SourceSymbol) -> list[Occurrence]:
        """All places of a name."""
        return self._by_symbol.get(symbol, [])

    def visible(self, offset: int, block: str) -> Iterator[SourceSymbol]:
        """The names that are known at a place inside a block."""
        for symbol in self._by_symbol:
            inside = symbol.within is None or symbol.within.touches(offset)
            if inside and symbol.block in ("", block) and symbol.kind is not SymbolKind.UNKNOWN:
                yield symbol

    def declared(self, name: str) -> Iterator[SourceSymbol]:
        """The names of this spelling that the text declares."""
        return (one for one in self._by_symbol if one.name == name and one.declared is not None)
