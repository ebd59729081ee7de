"""The split pass: cuts a bound graph at scopes and loops of its entry block into graphs of their own.

A stage begins at each cut. It awaits, as inputs, what it needs of earlier stages, and yields, as outputs, what later
ones need. Running the stages in order, each on what it awaits, computes the same as the whole graph.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from openinfer.check.bound import BoundGraph
from openinfer.errors import Code, Diagnostic, GraphError, nearest
from openinfer.ir import Assign, Graph, Loop, Node, Scope
from openinfer.ir.expr import Num
from openinfer.ir.graph import Return
from openinfer.ir.rules import is_consumer
from openinfer.stages.counters import with_counters
from openinfer.stages.extents import loop_range
from openinfer.stages.stage_graph import stage_graph
from openinfer.stages.values import Handover, handovers


@dataclass(frozen=True)
class Cut:
    """Where a stage begins: at a scope of the entry block, or at an iteration of one of its loops.

    >>> Cut.of("pool"), Cut.of("layers[3]")
    (Cut(name='pool', index=None), Cut(name='layers', index=3))
    """

    name: str
    index: int | None = None

    @classmethod
    def of(cls, text: str) -> "Cut":
        """Parse a cut: ``NAME`` or ``NAME[INDEX]``."""
        head, bracket, tail = text.rpartition("[")
        if not bracket or not tail.endswith("]"):
            return cls(text)
        if not (tail[:-1].isascii() and tail[:-1].isdigit()):
            raise _refused(f"cannot cut at {text!r}", 'write "NAME" or "NAME[3]"')
        return cls(head, int(tail[:-1]))

    def __str__(self) -> str:
        return self.name if self.index is None else f"{self.name}[{self.index}]"


@dataclass(frozen=True)
class GraphStage:
    """A part of a graph as a graph of its own, and the values it exchanges with other stages."""

    name: str
    graph: Graph
    awaits: tuple[str, ...]
    """Its inputs: inputs of the whole graph, and what earlier stages yield."""
    yields: tuple[str, ...]
    """Its outputs: outputs of the whole graph, and what later stages await."""
    carried: tuple[str, ...]
    """Values that bypass it, from earlier stages to later ones."""
    has_state: bool


def split(bound: BoundGraph, cuts: Sequence[Cut | str]) -> tuple[GraphStage, ...]:
    """Split a graph into stages, in order; an error if it cannot be cut.

    >>> from openinfer import graph
    >>> from openinfer.check import bind
    >>> text = '''dynamic { x: f32[2]; } block entry { scope "a" { op add(x, 1) >> x; } scope "b" { op mul(x, 2) >> x; }
    ...     return x; }'''
    >>> [(one.name, one.awaits, one.yields) for one in split(bind(graph(text)), ["b"])]
    [('start', ('x',), ('x',)), ('b', ('x',), ('x',))]
    """
    known = {node.kind.name for node in bound.source.blocks["entry"].nodes if isinstance(node.kind, Scope | Loop)}
    wanted = [_cut_of(one, known) if isinstance(one, str) else one for one in cuts]
    if not wanted:
        raise _refused("no cut is given", "name a scope of the entry block")
    _require_plain(bound.source)
    names, parts = _parts(bound, wanted)
    parts = with_counters(bound, parts)
    made = []
    for name, part, passed in zip(names, parts, handovers(bound, parts), strict=True):
        made.append(_stage(bound, name, part, passed))
    return tuple(made)


def _cut_of(text: str, known: Collection[str]) -> Cut:
    """Parse a cut, given the known names: a scope may have brackets in its name."""
    return Cut(text) if text in known else Cut.of(text)


def _stage(bound: BoundGraph, name: str, part: tuple[Node, ...], passed: Handover) -> GraphStage:
    graph = stage_graph(bound, part, passed)
    return GraphStage(name, graph, passed.awaits, passed.yields, passed.carried, bool(passed.state))


def _require_plain(graph: Graph) -> None:
    """Refuse graphs with consumer blocks, which cannot be cut."""
    consumers = [block.name for block in graph.blocks.values() if is_consumer(block)]
    if consumers:
        message = f"the graph yields values to the block {consumers[0]!r}, which runs concurrently with entry"
        raise _refused(message, "only graphs whose blocks run in sequence can be cut")


def _parts(bound: BoundGraph, cuts: Sequence[Cut]) -> tuple[list[str], list[tuple[Node, ...]]]:
    """The names of all parts, and the nodes of each, without the return of entry."""
    entry = bound.source.blocks["entry"].nodes
    names, parts, current, left = ["start"], list[tuple[Node, ...]](), list[Node](), list(cuts)
    for node in (one for one in entry if not isinstance(one.kind, Return)):
        rest, is_begun = node, False
        while left and _is_at(rest, left[0]) and not (is_begun and left[0].index is None):
            before, rest = _divided(bound, rest, left[0])
            parts.append((*current, *before))
            names.append(str(left.pop(0)))
            current, is_begun = [], True
        current.append(rest)
    if left:
        raise _unknown(entry, left[0])
    parts.append(tuple(current))
    if all(isinstance(node.kind, Assign) for node in parts[0]):  # nothing to run before the first cut
        names, parts = names[1:], [(*parts[0], *parts[1]), *parts[2:]]
    return names, parts


def _is_at(node: Node, cut: Cut) -> bool:
    if cut.index is None:
        return isinstance(node.kind, Scope | Loop) and node.kind.name == cut.name
    return isinstance(node.kind, Loop) and node.kind.name == cut.name


def _divided(bound: BoundGraph, node: Node, cut: Cut) -> tuple[list[Node], Node]:
    """Split a node into what comes before a cut and what comes after it."""
    if cut.index is None:
        return [], node
    assert isinstance(node.kind, Loop)
    found = loop_range(bound, node.kind)
    if found is None:
        raise _refused(f"the range of the loop {cut.name!r} is not known before a step", "cut at a scope")
    if not found.start < cut.index < found.stop:
        raise _refused(f"the loop {cut.name!r} runs from {found.start} to {found.stop}: it cannot be cut at {cut}")
    first, second = Num(cut.index), Num(found.stop)
    before = replace(node, kind=replace(node.kind, start=Num(found.start), end=first))
    return [before], replace(node, kind=replace(node.kind, start=first, end=second))


def _unknown(entry: Sequence[Node], cut: Cut) -> GraphError:
    known = [node.kind.name for node in entry if isinstance(node.kind, Scope | Loop)]
    if cut.name in known:
        return _refused(
            f"the cut at {str(cut)!r} does not come after the one before it", "cuts are in the graph's order"
        )
    advice = nearest(cut.name, known) or f"there are {', '.join(known) or 'none'}"
    return _refused(f"the entry block has no scope or loop {cut.name!r}", advice)


def _refused(message: str, advice: str | None = None) -> GraphError:
    return GraphError(Diagnostic(Code.NOT_SPLIT, message, None, advice))
