"""What is known about a text: its names, its graph, its problems, and the types that a model and sizes give it.

A text being typed is wrong most of the time. Its names come from its valid parts, and its types from the last version
that could be bound.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property

from openinfer.check import check
from openinfer.check.bound import BoundGraph
from openinfer.check.without_model import without_what_a_model_gives
from openinfer.collection import collection_paused
from openinfer.errors import Diagnostic, Source, Span
from openinfer.ir import Graph, Node
from openinfer.lang.lower import Parsed, lower
from openinfer.lang.parser import RecoveredTree, recovered_tree
from openinfer.lang.source import validated
from openinfer.language_service.indexing import index_of
from openinfer.language_service.project import Surroundings
from openinfer.language_service.symbols import SourceSymbol, SymbolIndex, SymbolKind
from openinfer.language_service.text import TextRange
from openinfer.oinf.model import ModelLoader

_TYPE = re.compile(r"(?:\s*\([^)]*\))?\s*:\s*([A-Za-z]\w*(?:\s*\[[^\];]*\])?)")
"""A type after a declared name."""
NO_GRAPH = Graph.of((), (), ())


@dataclass(frozen=True)
class TextAnalysis:
    """One version of a text and everything known about it."""

    source: Source
    recovered: RecoveredTree = field(repr=False)
    index: SymbolIndex = field(repr=False)
    graph: Graph = field(repr=False)
    """The graph; if there are errors, its valid part."""
    problems: tuple[Diagnostic, ...]
    surroundings: Surroundings
    model: ModelLoader | None = None
    bound: BoundGraph | None = field(default=None, repr=False)
    """The graph with its types, if there are no errors."""
    known: BoundGraph | None = field(default=None, repr=False)
    """``bound`` of this version, or else of the last one that had it."""

    @property
    def text(self) -> str:
        """The text."""
        return self.source.text

    @cached_property
    def _nodes(self) -> list[tuple[int, Node]]:
        found = [(node.span.start, node) for node in self.graph.walk() if isinstance(node.span, Span)]
        return sorted(found, key=lambda pair: (pair[0], pair[1].index))

    def node_at(self, offset: int) -> Node | None:
        """The last node that begins at or before an offset, if it contains the offset."""
        place = bisect_right(self._nodes, offset, key=lambda pair: pair[0])
        if not place:
            return None
        node = self._nodes[place - 1][1]
        return node if isinstance(node.span, Span) and offset <= node.span.end else None

    def nodes_with(self, kind: type) -> list[tuple[int, Node]]:
        """The nodes of a kind with their start offsets, in text order."""
        return [pair for pair in self._nodes if isinstance(pair[1].kind, kind)]

    def block_at(self, offset: int) -> str:
        """The name of the block around an offset, as the text has it; empty outside of blocks."""
        found = [one for one in self.index.outline if one.kind == "block" and one.range.touches(offset)]
        return found[-1].name if found else ""

    def types_of(self, symbol: SourceSymbol) -> list[str]:
        """The types of a variable; in a block with parameters, one per way in which it is called."""
        if self.known is not None:
            variables = self.known.vars
            if symbol.block:
                ends = f".{symbol.name}"
                names = [one for one in variables if one.startswith(f"{symbol.block}.") and one.endswith(ends)]
                return list(dict.fromkeys(str(variables[one].type) for one in names))
            if symbol.name in variables:
                return [str(variables[symbol.name].type)]
        return self._declared_type(symbol)

    def _declared_type(self, symbol: SourceSymbol) -> list[str]:
        if symbol.declared is None or symbol.kind not in (SymbolKind.VARIABLE, SymbolKind.TEMPORARY):
            return []
        found = _TYPE.match(self.text, symbol.declared.end)
        return [" ".join(found[1].split())] if found else []

    def range_of(self, problem: Diagnostic) -> TextRange:
        """The range of a problem; one without a place in the text is shown on the first line."""
        if isinstance(problem.span, Span) and problem.span.source.name == self.source.name:
            return TextRange(problem.span.start, problem.span.end)
        first = self.text.find("\n")
        return TextRange(0, len(self.text) if first < 0 else first)


def analyse(
    text: str,
    name: str = "<graph>",
    surroundings: Surroundings | None = None,
    model: ModelLoader | None = None,
    before: TextAnalysis | None = None,
) -> TextAnalysis:
    """Analyse a text; ``before`` is an earlier version of it, whose types are used until there are new ones.

    >>> found = analyse("dynamic { x: f32[4]; } volatile { y: f32[5]; } block entry { op neg(x) >> y; return; }")
    >>> [str(problem.code) for problem in found.problems]
    ['E309']
    """
    source, given = Source(name, text), surroundings or Surroundings()
    with collection_paused():
        recovered = recovered_tree(source)
        index = index_of(recovered)
        sketch = Parsed(NO_GRAPH, []) if recovered.tree is None else lower(source, recovered.tree)
    parsed = Parsed(sketch.graph, recovered.problems) if recovered.problems else validated(source, sketch)
    bound, problems = _bound(parsed, model, given)
    known = bound or (before.known if before is not None else None)
    everything = (*given.problems, *problems)
    return TextAnalysis(source, recovered, index, parsed.graph, everything, given, model, bound, known)


def _bound(
    parsed: Parsed, model: ModelLoader | None, given: Surroundings
) -> tuple[BoundGraph | None, list[Diagnostic]]:
    if any(not problem.code.is_warning for problem in parsed.problems):
        return None, parsed.problems
    binding = check(parsed.graph, model, given.sizes)
    more = [problem for problem in binding.problems if problem not in parsed.problems]
    if model is None and (given.model is not None or not given.sizes):  # an unreadable model is reported
        more = without_what_a_model_gives(more)
    return binding.bound, [*parsed.problems, *more]
