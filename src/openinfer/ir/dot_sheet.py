"""What the blocks of a picture share: edges, variables, what is folded and collapsed, and which block writes what."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from openinfer.ir.dot_legend import ELSEWHERE, MEMORY, VALUE, LegendMark
from openinfer.ir.dot_style import (
    LINE_WIDTH,
    Cluster,
    Look,
    cropped,
    from_elsewhere,
    markup,
    model_tensor_look,
    variable_look,
)
from openinfer.ir.dot_uses import names_used, names_written
from openinfer.ir.flow import GraphFlow
from openinfer.ir.graph import Assign, Block, Graph, Loop, Node, Scope, walk
from openinfer.ir.operand import Access, Operand
from openinfer.ir.rules import awaited, blocks_run, is_consumer
from openinfer.ir.text import type_text

_LEAST_NAME = 12
"""The fewest characters shown of a weight's name, however long its type is."""
LOOPS, SCOPES, BLOCKS = "loops", "scopes", "blocks"


@dataclass(frozen=True)
class DotOptions:
    """Options of a picture."""

    types: Mapping[str, str] = field(default_factory=dict)
    """The types of variables, if a model determines them; variables of a block are keyed ``block.name``."""
    linked: frozenset[str] = frozenset()
    """The variables that are known to be filled from the model."""
    folds_weights: bool = True
    """Whether weights are shown inside the nodes that read them."""
    collapsed: frozenset[str] = frozenset()
    """What is drawn as one shape: ``loops``, ``scopes``, ``blocks`` (all but entry), or single ones by name."""
    column: int | None = None
    """The most nodes per column; 0 for a single column; None chooses by the length of the graph."""


class Sheet:
    """The canvas that blocks are drawn on."""

    def __init__(self, graph: Graph, options: DotOptions) -> None:
        self.graph = graph
        self.options = options
        self.flow = GraphFlow(graph, options.linked)
        self.temporaries = {node.kind.name: node.kind for node in graph.walk() if isinstance(node.kind, Assign)}
        self.drawn: set[str] = set()
        self.edges: list[tuple[str, str, Look]] = []
        self.marks: set[LegendMark] = set()
        self.used = names_used(graph.walk())
        self._variable_ids = (f"v{number}" for number in count())
        self._own: dict[str, tuple[set[str], list[str]]] = {}
        self._written: dict[str, set[str]] = {}
        self._consumers: dict[str, list[str]] = {}
        for block in graph.blocks.values():
            for name in awaited(block) if is_consumer(block) else ():
                self._consumers.setdefault(name, []).append(block.name)

    def edge(self, tail: str, head: str, text: str = "", mark: LegendMark = VALUE, look: Look | None = None) -> Look:
        """Add an edge, labelled if there is text."""
        self.marks.add(mark)
        shown = {"label": f"<&#160;{markup(cropped(text))}&#160;>"} if text else {}
        self.edges.append((tail, head, shown | mark.look | (look or {})))
        return self.edges[-1][2]

    def hidden_edge(self, tail: str, head: str) -> None:
        """Keep two shapes in order without drawing an edge."""
        self.edges.append((tail, head, {"style": "invis"}))

    def variable(self, name: str, cluster: Cluster, block: str = "", *, is_elsewhere: bool = False) -> str:
        """Draw a variable in a cluster, and return the id of its shape."""
        self.drawn.add(name)
        declared = self.graph.vars.get(name)
        self.marks.add(MEMORY[declared.kind.value if declared is not None else "temporary"])
        look = variable_look(name, declared, self.temporaries.get(name), self._type(name, block))
        if is_elsewhere:
            self.marks.add(ELSEWHERE)
        return self._shape(from_elsewhere(look) if is_elsewhere else look, cluster)

    def model_tensor(self, name: str, cluster: Cluster) -> str:
        """Draw a tensor that is referred to by its name in the model."""
        self.marks.add(MEMORY["constant"])
        return self._shape(model_tensor_look(name), cluster)

    def _shape(self, look: Look, cluster: Cluster) -> str:
        shape = next(self._variable_ids)
        cluster.add(shape, look)
        return shape

    def _type(self, name: str, block: str) -> str:
        types = self.options.types
        return types.get(f"{block}.{name}") or types.get(name, "")

    # --- what is not drawn separately -----------------------------------------------------------------------------

    def is_weight(self, name: str) -> bool:
        """Whether a variable is shown inside the nodes that read it."""
        return self.options.folds_weights and name in self.flow.weights

    def weight_text(self, operand: Operand, label: str) -> str:
        """The text for a weight folded into a node."""
        base = operand.base if isinstance(operand, Access) else ""
        declared = self.graph.vars.get(base)
        self.drawn.add(base)
        shown = self._type(base, "")
        if not shown and declared is not None:
            shown = type_text(declared.dtype.name, declared.dims)
        named = f"{label}={operand}" if label and label != str(operand) and "=" not in label else label or str(operand)
        return f"{cropped(named, max(LINE_WIDTH - len(shown) - 1, _LEAST_NAME))} {shown}".strip()

    def is_collapsed(self, what: Block | Node) -> bool:
        """Whether a block, loop or scope is drawn as one shape."""
        chosen = self.options.collapsed
        if isinstance(what, Block):
            return what.name in chosen or (BLOCKS in chosen and what.name != "entry")
        match what.kind:
            case Loop(name):
                return LOOPS in chosen or name in chosen
            case Scope(name):
                return SCOPES in chosen or name in chosen
        return False

    # --- which block writes what ------------------------------------------------------------------------------------

    def written_by(self, blocks: Iterable[str | None]) -> set[str]:
        """The variables that blocks, and the blocks that they run, write."""
        known = [self._written_by(name) for name in blocks if name is not None and name in self.graph.blocks]
        return known[0] if len(known) == 1 else set[str]().union(*known)

    def _written_by(self, first: str) -> set[str]:
        """The same for one block, after the blocks that it runs. Results are incomplete for some blocks of a cycle."""
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
        """The variables that the nodes of a block write, and the blocks that they run."""
        if name not in self._own:
            nodes = list(walk(self.graph.blocks[name].nodes))
            targets = [one for node in nodes for one in blocks_run(node)]
            called = [one for one in dict.fromkeys(targets) if one in self.graph.blocks]
            written = {one for node in nodes for one in names_written(node)}
            self._own[name] = written - self.graph.blocks[name].locals, called
        return self._own[name]

    def consumers(self, variables: Sequence[str]) -> Iterator[str]:
        """The consumers that entry waits for."""
        yield from dict.fromkeys(block for name in variables for block in self._consumers.get(name, ()))
