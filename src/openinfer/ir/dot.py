"""Graphs as pictures, in the DOT language of Graphviz. Only writes text; the caller runs Graphviz.

A block is a column of nodes in program order. A variable is drawn anew each time it is written, below the node that
writes it, so that values flow down; a value that a block only reads is drawn once in each loop or scope that reads it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from openinfer.ir.dot_style import (
    BLOCK_BOX,
    BRANCH,
    CONSUMER_BOX,
    DEP,
    EMPTY,
    HAND_OVER,
    HEADER,
    INDEX,
    LINE_WIDTH,
    LOOP_BOX,
    ORDER,
    SCOPE_BOX,
    START,
    Cluster,
    Look,
    attributes,
    block_title,
    cropped,
    markup,
    model_tensor_look,
    node_look,
    variable_look,
)
from openinfer.ir.expr import Expr, names
from openinfer.ir.graph import (
    Assign,
    Await,
    Block,
    BlockCall,
    Branch,
    Dep,
    Graph,
    Loop,
    Node,
    Op,
    Scope,
    Yield,
    walk,
)
from openinfer.ir.operand import Access, Operand, Single
from openinfer.ir.rules import awaited, blocks_run, is_consumer, node_name
from openinfer.ir.uses import node_uses
from openinfer.ir.values import VarValue, quote


def graph_dot(graph: Graph) -> str:
    """The graph as DOT text, in ASCII; the same graph gives the same text.

    >>> from openinfer.ir.graph import Return
    >>> block = Block("entry", (Node(Return()),))
    >>> "block entry" in graph_dot(Graph.of((), (), (block,)))
    True
    """
    return "\n".join(_Drawing(graph).lines()) + "\n"


# --- what nodes touch -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Use:
    """An operand of a node, with what its edge says."""

    operand: Operand
    label: str = ""


def _use(operand: Operand, name: str | None = None) -> _Use:
    shown = str(operand) if isinstance(operand, Access) and operand.bracketed else ""
    return _Use(operand, f"{name}={shown}" if name and shown else name or shown)


def _reads(node: Node) -> Iterator[_Use]:
    """What a node reads, without the names in indices; what is awaited comes with the edges of a hand-over."""
    if not isinstance(node.kind, Await):
        yield from (_use(given.operand, given.name) for given in node_uses(node.kind).reads)


def _writes(node: Node) -> Iterator[_Use]:
    """What a node writes; a temporary is drawn where it gets a value."""
    if not isinstance(node.kind, Assign):
        yield from map(_use, node_uses(node.kind).writes)


def _parameters(node: Node) -> list[str]:
    """The parameters that are names: a constant's, or the model's."""
    attrs = node.kind.attrs if isinstance(node.kind, Op) else ()
    return [value.name for _, value in attrs if isinstance(value, VarValue)]


def _index_exprs(node: Node) -> Iterator[Expr]:
    """The expressions in a node's brackets, the bounds of loops, and what counters move by."""
    yield from node_uses(node.kind).exprs
    for use in (*_reads(node), *_writes(node)):
        for index in use.operand.indices if isinstance(use.operand, Access) else ():
            parts = (index.value,) if isinstance(index, Single) else (index.start, index.end)
            yield from (part for part in parts if part is not None)


def _names_written(node: Node) -> list[str]:
    return [use.operand.base for use in _writes(node) if isinstance(use.operand, Access)]


# --- the picture ----------------------------------------------------------------------------------------------------


_Places = dict[str, list[tuple[int, int]]]
"""For each variable the yields or awaits that name it, and its place there."""


def _by_name(nodes: Sequence[tuple[str, Yield | Await]]) -> _Places:
    found: _Places = {}
    for number, (_, kind) in enumerate(nodes):
        for place, name in enumerate(kind.vars):
            found.setdefault(name, []).append((number, place))
    return found


class _Drawing:
    """The clusters and edges of the whole graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.temporaries = {node.kind.name: node.kind for node in graph.walk() if isinstance(node.kind, Assign)}
        self.node_ids = (f"n{number}" for number in count())
        self.variable_ids = (f"v{number}" for number in count())
        self.drawn: set[str] = set()
        self.edges: list[tuple[str, str, Look]] = []
        self.blocks: dict[str, _BlockDrawing] = {}
        self._own: dict[str, tuple[set[str], list[str]]] = {}
        self._written: dict[str, set[str]] = {}
        self._consumers: dict[str, list[str]] = {}
        for block in graph.blocks.values():
            for name in awaited(block) if is_consumer(block) else ():
                self._consumers.setdefault(name, []).append(block.name)

    def lines(self) -> Iterator[str]:
        """The DOT text, line by line."""
        for number, block in enumerate(self.graph.blocks.values()):
            drawing = self.blocks[block.name] = _BlockDrawing(self, block, f"b{number}")
            drawing.draw()
        self._branches()
        self._hand_overs()
        yield "digraph openinfer {"
        yield from (f"    {line}" for line in HEADER)
        for cluster in (*(drawing.cluster for drawing in self.blocks.values()), *self._untouched()):
            yield from cluster.lines("    ")
        for tail, head, look in self.edges:
            yield f"    {tail} -> {head}{' ' + attributes(look) if look else ''};"
        yield "}"

    def edge(self, tail: str, head: str, text: str = "", look: Look | None = None) -> Look:
        """Add an edge, with a label where there is something to say."""
        shown = {"label": f"<&#160;{markup(cropped(text))}&#160;>"} if text else {}
        self.edges.append((tail, head, shown | (look or {})))
        return self.edges[-1][2]

    def variable(self, name: str, cluster: Cluster) -> str:
        """Draw a variable in a cluster; the id of its shape."""
        self.drawn.add(name)
        return self.shape(variable_look(name, self.graph.vars.get(name), self.temporaries.get(name)), cluster)

    def shape(self, look: Look, cluster: Cluster) -> str:
        """Draw a variable or a tensor of the model."""
        shape = next(self.variable_ids)
        cluster.add(shape, look)
        return shape

    def _untouched(self) -> Iterator[Cluster]:
        """A box for what is declared and never used."""
        rest = [name for name in (*self.graph.vars, *self.temporaries) if name not in self.drawn]
        if rest:
            cluster = Cluster("cluster_unused", "<I>not used by any node</I>", SCOPE_BOX)
            for name in rest:
                self.variable(name, cluster)
            yield cluster

    def _branches(self) -> None:
        for drawing in self.blocks.values():
            for tail, branch in drawing.branches:
                for target, text in ((branch.then_block, branch.cond or ""), (branch.else_block, f"not {branch.cond}")):
                    if target in self.blocks:
                        head = self.blocks[target]
                        self.edge(tail, head.steps[0], text, {**BRANCH, "lhead": head.cluster.id})

    def _hand_overs(self) -> None:
        """Dotted edges from each yield to the awaits that it wakes."""
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
        """Edges from the yields to those of the awaits that share a variable; both by variables as well."""
        few, many = (given, wanted) if len(given) < len(wanted) else (wanted, given)
        shared: dict[tuple[int, int], list[tuple[int, str]]] = {}
        for name in few:
            for tail, place in given.get(name, ()) if name in many else ():
                for head, _ in wanted[name]:
                    shared.setdefault((tail, head), []).append((place, name))
        for (tail, head), found in sorted(shared.items()):
            text = ", ".join(name for _, name in sorted(found))
            self.edge(yields[tail][0], awaits[head][0], text, HAND_OVER)

    def written_by(self, blocks: Iterable[str | None]) -> set[str]:
        """The variables that blocks write, and the blocks that they branch to."""
        known = [self._written_by(name) for name in blocks if name is not None and name in self.graph.blocks]
        return known[0] if len(known) == 1 else set[str]().union(*known)

    def _written_by(self, first: str) -> set[str]:
        """The same for one block: those that it branches to come before it. In a cycle, some know less than all."""
        waiting = [first]
        begun: set[str] = set()
        while waiting:
            name = waiting[-1]
            own, called = self._own_writes(name)
            rest = [one for one in called if one not in self._written and one not in begun]
            if name in self._written or not rest:
                waiting.pop()
                self._written.setdefault(name, own.union(*(self._written.get(one, ()) for one in called)))
                continue
            begun.add(name)
            waiting += rest
        return self._written[first]

    def _own_writes(self, name: str) -> tuple[set[str], list[str]]:
        """The variables that the nodes of a block write, and the blocks that it branches to."""
        if name not in self._own:
            nodes = list(walk(self.graph.blocks[name].nodes))
            targets = [one for node in nodes for one in blocks_run(node)]
            called = [one for one in dict.fromkeys(targets) if one in self.graph.blocks]
            written = {one for node in nodes for one in _names_written(node)}
            self._own[name] = written - self.graph.blocks[name].locals, called
        return self._own[name]

    def consumers(self, variables: Sequence[str]) -> Iterator[str]:
        """The blocks that entry waits for."""
        yield from dict.fromkeys(block for name in variables for block in self._consumers.get(name, ()))


class _BlockDrawing:
    """One block: its box, and which shape holds the current value of each variable."""

    def __init__(self, drawing: _Drawing, block: Block, name: str) -> None:
        self.drawing = drawing
        self.block = block
        self.name = name
        # What wakes a consumer comes from entry, on the left: its title must not stand in the way.
        style = CONSUMER_BOX if is_consumer(block) else BLOCK_BOX
        self.cluster = Cluster(f"cluster_{name}", block_title(block), style)
        self.places: dict[str, Cluster] = {}
        """Which box each node and shape is in."""
        self.steps: list[str] = []
        """The ids of the drawn nodes, in program order."""
        self.named: list[str] = []
        """The ids of all nodes."""
        self.places_of: dict[str | None, list[int]] = {}
        """The places in that list of the nodes that ``dep`` calls by a name."""
        self.deps: list[tuple[str, Dep, int]] = []
        self.branches: list[tuple[str, Branch]] = []
        self.yields: list[tuple[str, Yield]] = []
        self.awaits: list[tuple[str, Await]] = []
        self.current: dict[str, str] = {}
        """The shape of each variable that was written in this block."""
        self.read_only: dict[str, dict[str, str]] = {}
        """The shapes of each other one, by box."""
        self.came_from: dict[str, str] = {}
        """The branch or await that left a new value in a variable."""
        self.fresh: dict[str, Look] = {}
        """The shapes that the last node wrote, with the look of the edges to them."""
        self.written_first = _written_first(block)

    def draw(self) -> None:
        """Draw all nodes."""
        if not is_consumer(self.block):
            self._step(f"{self.name}_start", self.cluster, START, ())
        self._body(self.block.nodes, self.cluster, ())
        for name, dep, position in self.deps:
            self._dep(name, dep, position)

    def _body(self, nodes: Sequence[Node], cluster: Cluster, indices: tuple[str, ...]) -> None:
        before = len(self.steps)
        for node in nodes:
            name = next(self.drawing.node_ids)
            self.places_of.setdefault(node_name(node), []).append(len(self.named))
            self.named.append(name)
            match node.kind:
                case Scope(title, body):
                    text = f"scope {markup(cropped(quote(title)))}"
                    self._body(body, cluster.inside(f"cluster_{name}", text, SCOPE_BOX), indices)
                case Loop():
                    self._loop(name, node.kind, cluster, indices)
                case Dep():
                    self.deps.append((name, node.kind, len(self.named)))
                case Assign(variable):
                    if variable not in self.written_first:
                        self.current[variable] = self._variable(variable, cluster)
                case _:
                    self._node(name, node, cluster, indices)
        if len(self.steps) == before:
            self._step(f"{cluster.id}_empty", cluster, EMPTY, ())

    def _loop(self, name: str, loop: Loop, cluster: Cluster, indices: tuple[str, ...]) -> None:
        bounds = [self._value(Access(used), cluster) for used in self._scalars((loop.start, loop.end), indices)]
        title = cropped(f"loop {loop.name} ({loop.index} in {loop.start}..{loop.end})", 2 * LINE_WIDTH)
        inner = cluster.inside(f"cluster_{name}", markup(title), LOOP_BOX)
        first = len(self.steps)
        self._body(loop.body, inner, (*indices, loop.index))
        for bound in bounds:
            self.drawing.edge(bound, self.steps[first], look={**INDEX, "lhead": inner.id, "minlen": "2"})

    def _node(self, name: str, node: Node, cluster: Cluster, indices: tuple[str, ...]) -> None:
        declared = self.drawing.graph.vars
        read = [(self._value(use.operand, cluster), use.label) for use in _reads(node)]
        read += [(self._value(Access(used), cluster), "") for used in _parameters(node) if used in declared]
        scalars = [self._value(Access(used), cluster) for used in self._scalars(_index_exprs(node), indices)]
        # While others work, the nodes that entry runs stay together, and the gap is before its await.
        weight = "1" if isinstance(node.kind, Await) else "8"
        self._step(name, cluster, node_look(node), [shape for shape, _ in read], weight)
        for shape, text in read:
            self._data(shape, name, text)
        for shape in scalars:
            self._data(shape, name, "", INDEX)
        self.fresh = {}
        for use in _writes(node):
            if isinstance(use.operand, Access):
                shape = self.current[use.operand.base] = self._variable(use.operand.base, cluster)
                self.fresh[shape] = self.drawing.edge(name, shape, use.label)
        self._leave(name, node)

    def _leave(self, name: str, node: Node) -> None:
        """Note what goes on elsewhere because of a node."""
        match node.kind:
            case Branch(_, then_block, else_block):
                self.branches.append((name, node.kind))
                self._renew(self.drawing.written_by((then_block, else_block)), name)
            case BlockCall(block, _, outputs):
                self.branches.append((name, Branch(None, block)))
                self._renew(self.drawing.written_by((block,)) - {one.base for one in outputs}, name)
            case Await(variables):
                self.awaits.append((name, node.kind))
                consumers = self.drawing.consumers(variables) if self.block.name == "entry" else ()
                self._renew({*variables, *self.drawing.written_by(consumers)}, name)
            case Yield():
                self.yields.append((name, node.kind))

    def _step(self, name: str, cluster: Cluster, look: Look, read: Sequence[str], weight: str = "8") -> None:
        """Draw a node below the one before it. Where a value goes from one to the other, that shows the order."""
        cluster.add(name, look)
        self.places[name] = cluster
        flowing = [shape for shape in read if shape in self.fresh]
        if flowing:
            self.fresh[flowing[0]]["weight"] = "8"
        elif self.steps:
            # Between boxes there must be room for what the one writes last and what the other reads first.
            distance = {} if self.places[self.steps[-1]] is cluster else {"minlen": "3" if self.fresh else "2"}
            self.drawing.edge(self.steps[-1], name, look={**ORDER, "weight": weight, **distance})
        self.steps.append(name)

    def _data(self, shape: str, step: str, text: str, look: Look | None = None) -> None:
        """An edge from a value to its reader. One between boxes is longer, so that what the reader reads first fits."""
        shown = dict(look or {})
        if self.places[shape] is not self.places[step]:
            shown["minlen"] = "2"
        if shape in self.fresh:
            shown["weight"] = "8"
        self.drawing.edge(shape, step, text, shown)

    def _variable(self, name: str, cluster: Cluster) -> str:
        shape = self.drawing.variable(name, cluster)
        self.places[shape] = cluster
        return shape

    def _is_variable(self, name: str) -> bool:
        return name in self.drawing.graph.vars or name in self.drawing.temporaries

    def _value(self, operand: Operand, cluster: Cluster) -> str:
        """The shape that holds what an operand names; drawn where there is none yet."""
        name = str(operand) if not isinstance(operand, Access) else operand.base
        shape = self.current.get(name) or self.read_only.get(name, {}).get(cluster.id)
        if shape is not None:
            return shape
        if not isinstance(operand, Access) or not self._is_variable(name):
            shape = self.drawing.shape(model_tensor_look(name), cluster)
            self.places[shape] = cluster
        else:
            shape = self._variable(name, cluster)
        self.read_only.setdefault(name, {})[cluster.id] = shape
        source = self.came_from.pop(name, None)
        if source is not None:
            self.current[name] = shape
            look = self.drawing.edge(source, shape)
            if source == self.steps[-1]:
                self.fresh[shape] = look
        return shape

    def _scalars(self, exprs: Iterable[Expr], indices: tuple[str, ...]) -> list[str]:
        """The variables in expressions, each once; the other names are loop indices and sizes."""
        used = dict.fromkeys(name for expr in exprs for name in names(expr))
        return [name for name in used if name not in indices and self._is_variable(name)]

    def _renew(self, variables: set[str], source: str) -> None:
        """Somebody else has written variables: what was drawn of them is old."""
        for name in variables:
            self.current.pop(name, None)
            self.came_from[name] = source
            self.read_only.pop(name, None)

    def _dep(self, name: str, dep: Dep, position: int) -> None:
        """An edge between the two partners; where one is missing, a node that says so."""
        earlier, later = self.places_of.get(dep.after, []), self.places_of.get(dep.before, [])
        before, behind = bisect_left(earlier, position) - 1, bisect_left(later, position)
        if before >= 0 and behind < len(later):
            self.drawing.edge(self.named[earlier[before]], self.named[later[behind]], "dep", DEP)
        else:
            self.cluster.add(name, node_look(Node(dep)))


def _written_first(block: Block) -> set[str]:
    """The temporaries whose zeros are never read: they are drawn where they are first written, not where declared."""
    by_writing: dict[str, bool] = {}
    for node in walk(block.nodes):
        exprs = _index_exprs(node)
        read = [use.operand.base for use in _reads(node) if isinstance(use.operand, Access)]
        for name in (*read, *(name for expr in exprs for name in names(expr))):
            by_writing.setdefault(name, False)
        for name in _names_written(node):
            by_writing.setdefault(name, True)
    return {name for name, written in by_writing.items() if written}
