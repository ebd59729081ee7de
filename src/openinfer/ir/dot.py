"""Graphs as pictures, in the DOT language of Graphviz. Only writes text; the caller runs Graphviz.

A block is a column of nodes in program order; a long one is split into several. A variable is drawn anew below each
node that writes it, so that values flow down; a value that a block only reads is drawn once per loop or scope that
reads it. Weights are shown inside the nodes that read them.
"""

from collections.abc import Iterator, Sequence

from openinfer.ir.dot_block import BlockDrawing
from openinfer.ir.dot_legend import BRANCH, HAND_OVER, legend
from openinfer.ir.dot_sheet import DotOptions, Sheet
from openinfer.ir.dot_style import HEADER, SCOPE_BOX, Cluster, attributes
from openinfer.ir.graph import Await, Graph, Yield
from openinfer.ir.rules import is_consumer

_PLAIN = DotOptions()


def graph_dot(graph: Graph, options: DotOptions = _PLAIN) -> str:
    """The graph as DOT text, in ASCII; equal graphs give equal text.

    >>> from openinfer.ir.graph import Block, Node, Return
    >>> block = Block("entry", (Node(Return()),))
    >>> "block entry" in graph_dot(Graph.of((), (), (block,)))
    True
    """
    return "\n".join(_Drawing(Sheet(graph, options)).lines()) + "\n"


_Places = dict[str, list[tuple[int, int]]]
"""For each variable, the yields or awaits that name it, and its position in each."""


def _by_name(nodes: Sequence[tuple[str, Yield | Await]]) -> _Places:
    found: _Places = {}
    for number, (_, kind) in enumerate(nodes):
        for place, name in enumerate(kind.vars):
            found.setdefault(name, []).append((number, place))
    return found


class _Drawing:
    """The clusters and edges of the whole graph."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.blocks: dict[str, BlockDrawing] = {}

    def lines(self) -> Iterator[str]:
        """The DOT text, line by line."""
        for number, (block, flow) in enumerate(self.sheet.flow.blocks()):
            drawing = self.blocks[block.name] = BlockDrawing(self.sheet, block, f"b{number}")
            drawing.draw(flow.edges)
        self._branches()
        self._hand_overs()
        clusters = [*(drawing.cluster for drawing in self.blocks.values()), *self._untouched()]
        yield "digraph openinfer {"
        yield from (f"    {line}" for line in (*HEADER, legend(self.sheet.marks)))
        for cluster in clusters:
            yield from cluster.lines("    ")
        for tail, head, look in self.sheet.edges:
            yield f"    {tail} -> {head}{' ' + attributes(look) if look else ''};"
        yield "}"

    def _untouched(self) -> Iterator[Cluster]:
        """A box for declared variables that nothing uses."""
        known = (*self.sheet.graph.vars, *self.sheet.temporaries)
        rest = [name for name in known if name not in self.sheet.drawn]
        if rest:
            cluster = Cluster("cluster_unused", "<I>not used by any node</I>", SCOPE_BOX)
            for name in rest:
                self.sheet.variable(name, cluster)
            yield cluster

    def _branches(self) -> None:
        for drawing in self.blocks.values():
            for tail, branch in drawing.branches:
                for target, text in ((branch.then_block, branch.cond or ""), (branch.else_block, f"not {branch.cond}")):
                    if target in self.blocks:
                        head = self.blocks[target]
                        self.sheet.edge(tail, head.steps[0], text, BRANCH, {"lhead": head.cluster.id})

    def _hand_overs(self) -> None:
        """Draw dotted edges from each yield to the awaits that it wakes."""
        entry = self.blocks.get("entry")
        if entry is None:
            return
        given, wanted = _by_name(entry.yields), _by_name(entry.awaits)
        for drawing in self.blocks.values():
            if is_consumer(drawing.block):
                self._wake(entry.yields, given, drawing.awaits, _by_name(drawing.awaits))
                self._wake(drawing.yields, _by_name(drawing.yields), entry.awaits, wanted)

    def _wake(
        self, yields: Sequence[tuple[str, Yield]], given: _Places, awaits: Sequence[tuple[str, Await]], wanted: _Places
    ) -> None:
        """Draw edges from yields to the awaits that share a variable; ``given`` and ``wanted`` index them by it."""
        few, many = (given, wanted) if len(given) < len(wanted) else (wanted, given)
        shared: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for name in few:
            for tail, place in given.get(name, ()) if name in many else ():
                for head, _ in wanted[name]:
                    shared.setdefault((tail, head), []).append((place, name))
        for (tail, head), found in sorted(shared.items()):
            text = ", ".join(name for _, name in sorted(found))
            self.sheet.edge(yields[tail][0], awaits[head][0], text, HAND_OVER)
