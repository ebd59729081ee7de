"""Draws one block of a picture: its box, and which shape holds the current value of each variable."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from openinfer.ir.dot_columns import ColumnRuler
from openinfer.ir.dot_legend import CARRIED, COLLAPSED, CONTROL, DEP, FOLDED, INDEX, OP, ORDER, STATE, VALUE, LegendMark
from openinfer.ir.dot_legend import START as START_MARK
from openinfer.ir.dot_sheet import Sheet
from openinfer.ir.dot_style import (
    BLOCK_BOX,
    COLUMN_BOX,
    CONSUMER_BOX,
    EMPTY,
    LINE_WIDTH,
    LOOP_BOX,
    SCOPE_BOX,
    START,
    Cluster,
    Look,
    block_title,
    collapsed_look,
    column_look,
    cropped,
    markup,
    node_look,
)
from openinfer.ir.dot_uses import DrawnUse, body_uses, index_exprs, parameters, reads, writes, written_first
from openinfer.ir.expr import Expr, names
from openinfer.ir.flow import FlowEdge
from openinfer.ir.graph import (
    Assign,
    Await,
    Block,
    BlockCall,
    BlockParamKind,
    Branch,
    Dep,
    Loop,
    MemoryKind,
    Node,
    Return,
    Scope,
    Yield,
    walk,
)
from openinfer.ir.operand import Access, Operand
from openinfer.ir.rules import is_consumer, node_name
from openinfer.ir.values import quote

_CONTROL = Branch | BlockCall | Return | Yield | Await | Dep


class BlockDrawing:
    """Draws the nodes of a block from top to bottom."""

    def __init__(self, sheet: Sheet, block: Block, name: str) -> None:
        self.sheet = sheet
        self.block = block
        self.name = name
        # Entry, whose edges wake a consumer, is on the left; the title moves right to stay clear of them.
        style = CONSUMER_BOX if is_consumer(block) else BLOCK_BOX
        self.cluster = Cluster(f"cluster_{name}", block_title(block), style)
        self.places: dict[str, Cluster] = {}
        """The box that contains each node and shape."""
        self.steps: list[str] = []
        """The ids of the drawn nodes, in program order."""
        self.named: list[str] = []
        """The ids of all nodes; nodes in a collapsed body have the id of its shape."""
        self.places_of: dict[str | None, list[int]] = {}
        """Positions in ``named`` of the nodes that ``dep`` refers to by a name."""
        self.deps: list[tuple[str, Dep, int]] = []
        self.branches: list[tuple[str, Branch]] = []
        self.yields: list[tuple[str, Yield]] = []
        self.awaits: list[tuple[str, Await]] = []
        self.current: dict[str, str] = {}
        """The current shape of each variable written in this block."""
        self.read_only: dict[str, dict[str, str]] = {}
        """The shapes of variables not written here, by box."""
        self.came_from: dict[str, str] = {}
        """The branch or await that left a new value in a variable."""
        self.fresh: dict[str, Look] = {}
        """The shapes that the last node wrote, and the looks of the edges to them."""
        self.elsewhere: set[str] = set()
        """Variables written in earlier columns."""
        self.ends: list[str] = []
        """The last nodes of columns; the next node is drawn below them."""
        self.shown_as: dict[str, str] = {}
        """The step that represents each node: the node itself, its collapsed body, or the first node of a loop."""
        self.written: dict[tuple[str, str], str] = {}
        """The shape of each variable that a step wrote."""
        self.found: dict[str, str] = {}
        """Where persistent memory is first read, or first partly written."""
        self.params = {one.name: one.kind for one in block.params or ()}
        self.written_first = written_first(block)
        self.ruler = ColumnRuler(sheet.options.column, sheet.is_collapsed)

    def draw(self, edges: Iterable[FlowEdge]) -> None:
        """Draw all nodes, and the edges for what loops and persistent memory carry over."""
        if not is_consumer(self.block):
            self.sheet.marks.add(START_MARK)
            self._step(f"{self.name}_start", self.cluster, START, ())
        if self.sheet.is_collapsed(self.block) and self.block.nodes:
            self._collapsed(f"{self.name}_body", "the block's nodes", self.block.nodes, self.cluster, ())
        else:
            self._body(self.block.nodes, self.cluster, ())
        for name, dep, position in self.deps:
            self._dep(name, dep, position)
        self._carried(edges)

    # --- bodies ---------------------------------------------------------------------------------------------------

    def _body(self, nodes: Sequence[Node], cluster: Cluster, indices: tuple[str, ...]) -> None:
        before = len(self.steps)
        columns = self.ruler.columns(nodes)
        if len(columns) == 1:
            self._nodes(nodes, cluster, indices)
        else:
            self._columns(columns, cluster, indices)
        if len(self.steps) == before:
            self._step(f"{cluster.id}_empty", cluster, EMPTY, ())

    def _columns(self, columns: Sequence[Sequence[Node]], cluster: Cluster, indices: tuple[str, ...]) -> None:
        """Draw bodies side by side, without edges between them: a column draws again what an earlier one wrote."""
        boxes: list[str | Cluster] = []
        heads: list[str] = []
        ends: list[str] = []
        for number, nodes in enumerate(columns, 1):
            column = Cluster(f"{cluster.id}_c{number}", "", COLUMN_BOX)
            boxes.append(column)
            head = f"{column.id}_head"
            if heads:
                self._leave_column()
                column.add(head, column_look(number, len(columns)))
                self.places[head] = column
                self.steps.append(head)
            else:
                self._step(head, column, column_look(number, len(columns)), ())
            heads.append(head)
            self._nodes(nodes, column, indices)
            ends.append(self.steps[-1])
        # Graphviz places unconnected boxes from right to left, in order of appearance.
        cluster.members += reversed(boxes)
        cluster.members.append(f"{{rank=same; {'; '.join(heads)};}}")
        for left, right in pairwise(heads):
            self.sheet.hidden_edge(left, right)
        self.ends = ends[:-1]

    def _leave_column(self) -> None:
        self.elsewhere.update(self.current, self.came_from)
        for known in (self.current, self.came_from, self.read_only, self.fresh):
            known.clear()
        self.ends = []

    def _nodes(self, nodes: Sequence[Node], cluster: Cluster, indices: tuple[str, ...]) -> None:
        for node in nodes:
            name = f"n{node.index}"
            self._name(node, name)
            match node.kind:
                case Loop() | Scope() if node.body and self.sheet.is_collapsed(node):
                    self._collapsed(name, _title(node.kind), node.body, cluster, indices)
                case Scope(_, body):
                    title = markup(_title(node.kind))
                    self._body(body, cluster.inside(f"cluster_{name}", title, SCOPE_BOX), indices)
                case Loop():
                    self._loop(name, node.kind, cluster, indices)
                case Dep():
                    self.deps.append((name, node.kind, len(self.named)))
                case Assign(variable):
                    if variable not in self.written_first:
                        self.current[variable] = self._variable(variable, cluster)
                case _:
                    self._node(name, node, cluster, indices)

    def _name(self, node: Node, name: str) -> None:
        self.places_of.setdefault(node_name(node), []).append(len(self.named))
        self.named.append(name)
        self.shown_as[f"n{node.index}"] = name

    def _loop(self, name: str, loop: Loop, cluster: Cluster, indices: tuple[str, ...]) -> None:
        bounds = [self._value(Access(used), cluster) for used in self._scalars((loop.start, loop.end), indices)]
        inner = cluster.inside(f"cluster_{name}", markup(_title(loop)), LOOP_BOX)
        first = len(self.steps)
        self._body(loop.body, inner, (*indices, loop.index))
        self.shown_as[name] = self.steps[first]
        for bound in bounds:
            self.sheet.edge(bound, self.steps[first], "", INDEX, {"lhead": inner.id, "minlen": "2"})

    def _collapsed(
        self, name: str, title: str, body: Sequence[Node], cluster: Cluster, indices: tuple[str, ...]
    ) -> None:
        """Draw a body as one shape, with what it reads from outside and the results that are kept or read outside."""
        uses = body_uses(body)
        inside = list(walk(tuple(body)))
        known = [one for one in uses.read if one not in indices and self._is_variable(one)]
        weights = {one for one in uses.used if self.sheet.is_weight(one)}
        self.sheet.drawn |= {one for one in uses.used if self._is_variable(one)}
        self.sheet.marks.add(COLLAPSED)
        if weights:
            self.sheet.marks.add(FOLDED)
        # Nothing reads what a body declares before the body does.
        own = {node.kind.name for node in inside if isinstance(node.kind, Assign)}
        shown = [one for one in known if one not in weights and one not in own and self._is_outside(one, uses.used)]
        read = [self._value(Access(one), cluster) for one in shown]
        count = sum(not isinstance(node.kind, Assign) for node in inside)
        self._step(name, cluster, collapsed_look(title, count, len(weights)), read)
        for shape in read:
            self._data(shape, name, "")
        self.fresh = {}
        results = [one for one in uses.written if self._is_variable(one) and self._is_outside(one, uses.used)]
        for one in results:
            self._write(name, DrawnUse(Access(one)), cluster)
        for node in inside:
            self._name(node, name)
            if isinstance(node.kind, Dep):
                self.deps.append((name, node.kind, len(self.named)))
            self._leave(name, node)

    def _is_outside(self, name: str, used: dict[str, int]) -> bool:
        """Whether anything outside of a collapsed body uses a variable."""
        declared = self.sheet.graph.vars.get(name)
        is_given = declared is not None and declared.kind in (MemoryKind.DYNAMIC, MemoryKind.PERSISTENT)
        return is_given or self.sheet.used[name] > used[name]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, name: str, node: Node, cluster: Cluster, indices: tuple[str, ...]) -> None:
        declared = self.sheet.graph.vars
        folded = [use for use in reads(node) if self._is_folded(use.operand)]
        read = [(self._value(use.operand, cluster), use.label) for use in reads(node) if use not in folded]
        given = [used for used in parameters(node) if used in declared]
        self.sheet.drawn.update(used for used in given if self.sheet.is_weight(used))
        read += [(self._value(Access(used), cluster), "") for used in given if not self.sheet.is_weight(used)]
        scalars = [self._value(Access(used), cluster) for used in self._scalars(index_exprs(node), indices)]
        # Nodes that entry runs while others work stay together; the gap goes before its await.
        weight = "1" if isinstance(node.kind, Await) else "8"
        self.sheet.marks.add(CONTROL if isinstance(node.kind, _CONTROL) else OP)
        if folded:
            self.sheet.marks.add(FOLDED)
        look = node_look(node, [self.sheet.weight_text(use.operand, use.label) for use in folded])
        self._step(name, cluster, look, [shape for shape, _ in read], weight)
        for shape, text in read:
            self._data(shape, name, text)
        for shape in scalars:
            self._data(shape, name, "", INDEX)
        self.fresh = {}
        for use in writes(node):
            self._write(name, use, cluster)
        self._leave(name, node)

    def _is_folded(self, operand: Operand) -> bool:
        """Whether an operand is shown inside the node that reads it: a weight, a tensor of the model, or a literal."""
        if not self.sheet.options.folds_weights:
            return False
        if not isinstance(operand, Access):
            return True
        is_prefix = self.params.get(operand.base) is BlockParamKind.PREFIX
        return is_prefix or (self.sheet.is_weight(operand.base) and operand.base not in self.params)

    def _write(self, name: str, use: DrawnUse, cluster: Cluster) -> None:
        if isinstance(use.operand, Access):
            base = use.operand.base
            declared = self.sheet.graph.vars.get(base)
            if use.operand.bracketed and declared is not None and declared.kind is MemoryKind.PERSISTENT:
                self.found.setdefault(base, name)
            shape = self.current[base] = self.written[name, base] = self._variable(base, cluster)
            self.fresh[shape] = self.sheet.edge(name, shape, use.label)

    def _leave(self, name: str, node: Node) -> None:
        """Record the effects of a node outside of the block."""
        match node.kind:
            case Branch(_, then_block, else_block):
                self.branches.append((name, node.kind))
                self._renew(self.sheet.written_by((then_block, else_block)), name)
            case BlockCall(block, _, outputs):
                self.branches.append((name, Branch(None, block)))
                self._renew(self.sheet.written_by((block,)) - {one.base for one in outputs}, name)
            case Await(variables):
                self.awaits.append((name, node.kind))
                consumers = self.sheet.consumers(variables) if self.block.name == "entry" else ()
                self._renew({*variables, *self.sheet.written_by(consumers)}, name)
            case Yield():
                self.yields.append((name, node.kind))

    def _step(self, name: str, cluster: Cluster, look: Look, read: Sequence[str], weight: str = "8") -> None:
        """Draw a node below the previous one; an order edge is only needed if no value flows between them."""
        cluster.add(name, look)
        self.places[name] = cluster
        flowing = [shape for shape in read if shape in self.fresh]
        if flowing:
            self.fresh[flowing[0]]["weight"] = "8"
        elif self.steps:
            # Leave room between boxes for what the previous node writes and this one reads.
            distance = {} if self.places[self.steps[-1]] is cluster else {"minlen": "3" if self.fresh else "2"}
            self.sheet.edge(self.steps[-1], name, "", ORDER, {"weight": weight, **distance})
        for end in self.ends:
            self.sheet.hidden_edge(end, name)
        self.ends = []
        self.steps.append(name)

    # --- values ---------------------------------------------------------------------------------------------------

    def _data(self, shape: str, step: str, text: str, mark: LegendMark = VALUE) -> None:
        """Draw an edge from a value to its reader; longer between boxes, to leave room for what the reader reads."""
        shown = {}
        if self.places[shape] is not self.places[step]:
            shown["minlen"] = "2"
        if shape in self.fresh:
            shown["weight"] = "8"
        self.sheet.edge(shape, step, text, mark, shown)

    def _variable(self, name: str, cluster: Cluster, *, is_elsewhere: bool = False) -> str:
        shape = self.sheet.variable(name, cluster, self.block.name, is_elsewhere=is_elsewhere)
        self.places[shape] = cluster
        return shape

    def _is_variable(self, name: str) -> bool:
        is_param = self.params.get(name) is BlockParamKind.TENSOR
        return is_param or name in self.sheet.graph.vars or name in self.sheet.temporaries

    def _value(self, operand: Operand, cluster: Cluster) -> str:
        """The shape that holds the value of an operand; drawn if there is none yet."""
        name = str(operand) if not isinstance(operand, Access) else operand.base
        shape = self.current.get(name) or self.read_only.get(name, {}).get(cluster.id)
        if shape is not None:
            return shape
        if not isinstance(operand, Access) or not self._is_variable(name):
            shape = self.sheet.model_tensor(name, cluster)
            self.places[shape] = cluster
        else:
            shape = self._variable(name, cluster, is_elsewhere=name in self.elsewhere)
            if name not in self.elsewhere:
                self.found.setdefault(name, shape)
        self.read_only.setdefault(name, {})[cluster.id] = shape
        source = self.came_from.pop(name, None)
        if source is not None:
            self.current[name] = shape
            look = self.sheet.edge(source, shape)
            if source == self.steps[-1]:
                self.fresh[shape] = look
        return shape

    def _scalars(self, exprs: Iterable[Expr], indices: tuple[str, ...]) -> list[str]:
        """The variables in expressions, without duplicates; other names are loop indices, sizes and folded weights."""
        used = dict.fromkeys(name for expr in exprs for name in names(expr))
        found = [name for name in used if name not in indices and self._is_variable(name)]
        self.sheet.drawn.update(name for name in found if self.sheet.is_weight(name))
        return [name for name in found if not self.sheet.is_weight(name)]

    def _renew(self, variables: set[str], source: str) -> None:
        """Invalidate the shapes of variables that something else has written."""
        for name in variables:
            self.current.pop(name, None)
            self.came_from[name] = source
            self.read_only.pop(name, None)
            self.elsewhere.discard(name)

    # --- edges besides the order of nodes --------------------------------------------------------------------------

    def _carried(self, edges: Iterable[FlowEdge]) -> None:
        """Draw edges from a loop's body to its next iteration, and from persistent memory to the next step."""
        kept: dict[str, str] = {}
        drawn: dict[tuple[str, str], None] = {}
        for one in edges:
            tail = self.shown_as.get(one.source, "")
            head = self.shown_as.get(one.target, "")
            tail = self.written.get((tail, one.variable), tail)
            if one.kind == "carried" and tail and head and self.shown_as[one.source] in self.places:
                is_inside = self.shown_as[one.source] == head and self.shown_as[one.source] != one.source
                if not is_inside:
                    drawn[tail, head] = None
            elif one.kind == "state" and one.variable in self.found:
                kept[one.variable] = tail
        for tail, head in drawn:
            self.sheet.edge(tail, head, "", CARRIED)
        for variable, tail in kept.items():
            if tail != self.found[variable]:
                self.sheet.edge(tail, self.found[variable], "", STATE)

    def _dep(self, name: str, dep: Dep, position: int) -> None:
        """Draw an edge between the two partners, or a node for the ``dep`` itself if one is missing."""
        earlier, later = self.places_of.get(dep.after, []), self.places_of.get(dep.before, [])
        before, behind = bisect_left(earlier, position) - 1, bisect_left(later, position)
        if before >= 0 and behind < len(later):
            tail, head = self.named[earlier[before]], self.named[later[behind]]
            if tail != head:
                self.sheet.edge(tail, head, "dep", DEP)
        elif name not in self.places:
            self.sheet.marks.add(CONTROL)
            self.cluster.add(name, node_look(Node(dep)))


def _title(kind: Loop | Scope) -> str:
    if isinstance(kind, Scope):
        return f"scope {cropped(quote(kind.name))}"
    return cropped(f"loop {kind.name} ({kind.index} in {kind.start}..{kind.end})", 2 * LINE_WIDTH)
