"""A graph as the page draws it: containers, nodes, edges and types, as plain values.

Long bodies are divided into segments, so that no container shows more than fits a screen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openinfer.check.bound import BoundGraph
from openinfer.check.type_texts import linked_variables, variable_types
from openinfer.errors import Span
from openinfer.ir import Assign, Block, BlockCall, Branch, Graph, Loop, Node, Op, Scope
from openinfer.ir.flow import FlowSource, GraphFlow, node_id
from openinfer.ir.rules import node_name
from openinfer.ir.text import node_head
from openinfer.studio.document import CheckedText

MOST_SHOWN = 60
"""The most children of a container before they are divided into segments, and of a graph before it opens collapsed."""
SEGMENT = 40
_LONGEST = 300
"""The most characters of a node's text."""


def graph_facts(checked: CheckedText) -> dict[str, Any] | None:
    """The picture of a graph, or None if a text has none.

    >>> from openinfer.studio.document import CheckedWith, checked_text
    >>> text = "dynamic { x: f32; } volatile { y: f32; } block entry { op neg(x) >> y; return y; }"
    >>> found = graph_facts(checked_text(text, CheckedWith()))
    >>> [node["label"] for node in found["nodes"]], found["edges"]
    (['x', 'neg', 'return'], [['entry/x', 'n0', 'x', 'data'], ['n0', 'n1', 'y', 'data']])
    """
    if checked.graph is None:
        return None
    return _Picture(checked.graph, checked.bound).facts()


@dataclass
class _Picture:
    graph: Graph
    bound: BoundGraph | None
    nodes: list[dict[str, Any]] = field(default_factory=list)
    containers: list[dict[str, Any]] = field(default_factory=list)
    edges: list[list[str]] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        flow = GraphFlow(self.graph, linked_variables(self.bound))
        for block, found in flow.blocks():
            place = f"b:{block.name}"
            title = f"block {block.name}"
            self._container(place, None, "block", title, block.span, sum(1 for _ in _shown(block)))
            for source in found.sources:
                self.nodes.append(self._source(source, place))
            self._children(block.nodes, place, found.weights, block.name)
            self.edges += [[one.source, one.target, one.variable, one.kind] for one in found.edges]
        return {
            "nodes": self.nodes,
            "containers": self.containers,
            "edges": self.edges,
            "types": self._types(),
            "count": self.graph.node_count,
            "collapsed": self.graph.node_count > MOST_SHOWN,
            "bound": self.bound is not None,
        }

    # --- containers and nodes -------------------------------------------------------------------------------------

    def _children(self, body: Sequence[Node], parent: str, weights: Mapping[int, tuple[str, ...]], block: str) -> None:
        nodes = [node for node in body if not isinstance(node.kind, Assign)]
        if len(nodes) > MOST_SHOWN:
            self._segments(nodes, parent, weights, block)
            return
        for node in nodes:
            self._child(node, parent, weights, block)

    def _segments(self, nodes: list[Node], parent: str, weights: Mapping[int, tuple[str, ...]], block: str) -> None:
        """Divide long sequences into segments, of larger size while there are too many of them."""
        size = SEGMENT
        while len(nodes) > size * MOST_SHOWN:
            size *= SEGMENT
        for start in range(0, len(nodes), size):
            part = nodes[start : start + size]
            place = f"{parent}/{part[0].index}-{size}"
            title = f"nodes {part[0].index} – {part[-1].index}"  # noqa: RUF001  (a range, in print)
            self._container(place, parent, "segment", title, part[0].span, _count(part))
            self._children(part, place, weights, block)

    def _child(self, node: Node, parent: str, weights: Mapping[int, tuple[str, ...]], block: str) -> None:
        kind = node.kind
        if isinstance(kind, Loop | Scope):
            title = f"loop {kind.name}" if isinstance(kind, Loop) else f"scope {kind.name}"
            detail = f"{kind.index} in {kind.start}..{kind.end}" if isinstance(kind, Loop) else ""
            what = "loop" if isinstance(kind, Loop) else "scope"
            self._container(node_id(node), parent, what, title, node.span, _count(node.body), detail)
            self._children(kind.body, node_id(node), weights, block)
            return
        self.nodes.append(
            {
                "id": node_id(node),
                "index": node.index,
                "parent": parent,
                "kind": "op" if isinstance(kind, Op) else type(kind).__name__.lower(),
                "label": _label(node),
                "text": node_head(node)[:_LONGEST],
                "line": _line(node.span),
                "weights": list(weights.get(node.index, ())),
                "runs": _runs(node),
            }
        )

    def _container(
        self, place: str, parent: str | None, kind: str, title: str, span: object, count: int, detail: str = ""
    ) -> None:
        self.containers.append(
            {
                "id": place,
                "parent": parent,
                "kind": kind,
                "label": title[:_LONGEST],
                "detail": detail[:_LONGEST],
                "line": _line(span),
                "count": count,
            }
        )

    def _source(self, source: FlowSource, parent: str) -> dict[str, Any]:
        declared = self.graph.vars.get(source.variable)
        return {
            "id": source.id,
            "index": None,
            "parent": parent,
            "kind": source.kind,
            "label": source.variable,
            "text": "" if declared is None else f"{declared.kind.value} {source.variable}",
            "line": None if declared is None else _line(declared.span),
            "weights": [],
            "runs": [],
        }

    def _types(self) -> Mapping[str, str]:
        """The types of variables; those of a block are named ``block.name``."""
        if self.bound is not None:
            return variable_types(self.bound)
        return {name: f"{one.dtype.name}[{', '.join(map(str, one.dims))}]" for name, one in self.graph.vars.items()}


def _shown(block: Block) -> Iterator[Node]:
    todo = list(block.nodes)
    while todo:
        node = todo.pop()
        todo += node.body
        if not isinstance(node.kind, Assign):
            yield node


def _count(body: Sequence[Node]) -> int:
    """The number of nodes in a body, nested ones included, without declarations."""
    count, todo = 0, list(body)
    while todo:
        node = todo.pop()
        count += not isinstance(node.kind, Assign)
        todo += node.body
    return count


def _label(node: Node) -> str:
    kind = node.kind
    if isinstance(kind, Branch):
        return f"branch {kind.then_block}" if kind.cond is None else f"branch {kind.cond}"
    if isinstance(kind, BlockCall):
        return f"call {kind.block}"
    return (node_name(node) or type(kind).__name__.lower())[:_LONGEST]


def _runs(node: Node) -> list[str]:
    match node.kind:
        case Branch(_, then_block, else_block):
            return [f"b:{one}" for one in (then_block, else_block) if one is not None]
        case BlockCall(block):
            return [f"b:{block}"]
    return []


def _line(span: object) -> int | None:
    return span.source.position(span.start)[0] if isinstance(span, Span) else None
