"""The source of a graph for a debugger: lines, and the positions of nodes in them."""

from bisect import bisect_left
from collections.abc import Mapping

from openinfer.errors import DocumentSpan, Source, Span, printable
from openinfer.ir import Graph, Node
from openinfer.ir.text import node_head
from openinfer.lang.source import parse


class Listing:
    r"""Numbered lines: the source of a graph, or its canonical text if it comes from JSON or from a program.

    >>> from openinfer.lang import graph
    >>> listing = Listing(graph("volatile { y: f32; }\nblock entry {\n    op neg(y) >> y;\n    return;\n}"))
    >>> listing.line_of(0), listing.lines(3, 4)
    (3, [(3, '    op neg(y) >> y;'), (4, '    return;')])
    """

    def __init__(self, graph: Graph, origins: Mapping[int, int] | None = None) -> None:
        places = [node.span for node in graph.walk()]
        if not all(isinstance(place, Span) for place in places):
            file = next((place.file for place in places if isinstance(place, DocumentSpan)), "<graph>")
            places = [node.span for node in parse(graph.to_text(), f"{file} (canonical text)").graph.walk()]
        spans = [place for place in places if isinstance(place, Span)]
        self._source: Source = spans[0].source
        self._origins = origins or {}
        self._lines = [span.source.position(span.start)[0] for span in spans]
        self._first = {line: index for index, line in reversed([*enumerate(self._lines)])}
        self._starts = sorted(self._first)
        self.count = self._source.text.count("\n") + (not self._source.text.endswith("\n"))

    @property
    def name(self) -> str:
        """The name of the source."""
        return printable(self._source.name)

    @property
    def text(self) -> str:
        """The source itself."""
        return self._source.text

    def line_of(self, index: int) -> int:
        """The line where a node starts, or where the node that it is a copy of starts."""
        return self._lines[self._origins.get(index, index)]

    def copies_of(self, index: int) -> frozenset[int]:
        """A node and all of its copies."""
        return frozenset((index, *(copy for copy, origin in self._origins.items() if origin == index)))

    def first_from(self, line: int) -> int | None:
        """The first node that starts on this line or on the next line with a node; None if there is none."""
        at = bisect_left(self._starts, line)
        return self._first[self._starts[at]] if at < len(self._starts) else None

    def lines(self, first: int, last: int) -> list[tuple[int, str]]:
        """Lines by number, both ends included, clipped to the source."""
        numbers = range(max(1, first), min(last, self.count) + 1)
        return [(number, printable(self._source.line(number).replace("\t", "    "))) for number in numbers]


def head(node: Node) -> str:
    """A node on one line."""
    return printable(node_head(node))
