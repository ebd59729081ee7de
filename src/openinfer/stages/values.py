"""Data flow between stages: the values that each one needs and makes, and the persistent memory it owns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from openinfer.check.bound import BoundGraph
from openinfer.check.effects import EffectsOf
from openinfer.check.reach import Effects
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Assign, Loop, MemoryKind, Node, Scope, Single, walk
from openinfer.ir.expr import Expr, Ref, names
from openinfer.ir.graph import BlockCall, Op
from openinfer.ir.operand import Access
from openinfer.ir.uses import node_uses
from openinfer.loops.dim import expr_of
from openinfer.stages.counters import Counting


@dataclass(frozen=True)
class Handover:
    """The values that one stage exchanges with the others."""

    awaits: tuple[str, ...]
    yields: tuple[str, ...]
    carried: tuple[str, ...]
    state: frozenset[str]
    """Its persistent variables."""
    touched: frozenset[str]
    """Every variable that it reads or writes."""


class _Values:
    """The variables that the parts of a graph read and write."""

    def __init__(self, bound: BoundGraph, parts: Sequence[tuple[Node, ...]]) -> None:
        self.bound = bound
        self.effects = EffectsOf(bound.source, bound.vars.keys())
        self.reads, self.writes = [], []
        for part in parts:
            whole = [self.whole(node) for node in part]
            self.reads.append(frozenset[str]().union(*(one.reads for one in whole)))
            self.writes.append(frozenset[str]().union(*(one.writes for one in whole)))

    def whole(self, node: Node) -> Effects:
        """The effects of a node, including the blocks it runs."""
        return self.effects.reached.whole(self.effects.nodes[node.index])

    def needed(self, nodes: Iterable[Node], read_last: frozenset[str]) -> set[str]:
        """Variables live before some nodes: their incoming value is read in them, or is still the value after them."""
        written: set[str] = set()
        found = self._needed(nodes, written)
        return found | (read_last - written)

    def _needed(self, nodes: Iterable[Node], written: set[str]) -> set[str]:
        """Variables whose incoming value is read; ``written`` gets those that are certainly overwritten as a whole."""
        found: set[str] = set()
        for node in nodes:
            match node.kind:
                case Scope(_, body):
                    found |= self._needed(body, written)
                case Loop(_, _, _, _, body):  # may have zero trips, so its writes are not certain
                    own = set(names(node.kind.start)) | set(names(node.kind.end))
                    found |= (own & self.bound.vars.keys()) - written
                    found |= self._needed(body, set(written)) - written
                case Assign(name):
                    written.add(name)
                case _:
                    found |= self._of_node(node, written)
        return found

    def _of_node(self, node: Node, written: set[str]) -> set[str]:
        uses, whole = node_uses(node.kind), self.whole(node)
        outputs = (
            {one.base for one in uses.writes if not one.bracketed} if isinstance(node.kind, Op | BlockCall) else set()
        )
        reads = set(whole.reads) | (set(whole.writes) - outputs)
        found = reads - written
        written |= outputs - reads
        return found


def handovers(bound: BoundGraph, parts: Sequence[tuple[Node, ...]]) -> list[Handover]:
    """The handovers of parts that run in order."""
    values = _Values(bound, parts)
    states = _states(values, parts)
    inputs = {name for name, one in bound.vars.items() if one.kind is MemoryKind.DYNAMIC}
    made = [set[str]() for _ in parts]
    before = set(inputs)
    for place in range(len(parts)):
        made[place] = set(before)
        before |= {name for name in values.writes[place] if name not in states[place]} | states[place]
    live = set(bound.output_names)
    found: list[Handover] = []
    for place in reversed(range(len(parts))):
        produced = values.writes[place] | states[place]
        yields = frozenset(live & produced)
        needed = values.needed(parts[place], yields) - states[place]
        awaits = needed & made[place]
        awaits |= _for_sizes(values, parts[place], awaits | yields, awaits, made[place])
        carried = live - yields
        touched = frozenset(values.reads[place] | values.writes[place] | awaits | yields)
        found.append(
            Handover(_sorted(bound, awaits), _sorted(bound, yields), _sorted(bound, carried), states[place], touched)
        )
        live = carried | awaits
    return found[::-1]


def _sorted(bound: BoundGraph, wanted: Iterable[str]) -> tuple[str, ...]:
    """Sort names: outputs of the graph in the order of its return, then others in declaration order."""
    names_there = set(wanted)
    order = dict.fromkeys((*bound.output_names, *bound.vars))
    return tuple(name for name in order if name in names_there)


def _for_sizes(
    values: _Values, part: Sequence[Node], shown: set[str] | frozenset[str], awaits: set[str], known: set[str]
) -> set[str]:
    """Additional values that a stage awaits because their shapes determine its dynamic sizes."""
    bound = values.bound
    used = {name for one in (*values_touched(values, part), *shown) for name in _sizes_of(bound, one)}
    used |= {name for node in walk(part) for expr in node_uses(node.kind).exprs for name in names(expr)}
    missing = (used & bound.bounds.keys()) - {name for one in awaits for name in _plain_sizes(bound, one)}
    found: set[str] = set()
    for size in sorted(missing):
        givers = [name for name in bound.vars if name in known and size in _plain_sizes(bound, name)]
        if givers and not any(size in _plain_sizes(bound, one) for one in found):
            found.add(givers[0])
    return found


def values_touched(values: _Values, part: Sequence[Node]) -> set[str]:
    """Every variable that a part touches."""
    return {name for node in part for name in values.whole(node).touches}


def dims_of(bound: BoundGraph, name: str) -> tuple[Expr, ...]:
    """The dimensions of a variable, declared or inferred."""
    variable = bound.vars[name]
    return variable.dims if variable.dims is not None else tuple(expr_of(extent) for extent in variable.shape)


def _sizes_of(bound: BoundGraph, name: str) -> set[str]:
    return {size for expr in dims_of(bound, name) for size in names(expr)}


def _plain_sizes(bound: BoundGraph, name: str) -> set[str]:
    return {expr.name for expr in dims_of(bound, name) if isinstance(expr, Ref)}


# --- persistent memory ------------------------------------------------------------------------------------------------


def _states(values: _Values, parts: Sequence[tuple[Node, ...]]) -> list[frozenset[str]]:
    """The persistent variables of each part; an error if two parts share one."""
    found: list[set[str]] = [set() for _ in parts]
    for name, variable in values.bound.vars.items():
        if variable.kind is not MemoryKind.PERSISTENT:
            continue
        users = [place for place in range(len(parts)) if name in values.reads[place] | values.writes[place]]
        if len(users) > 1 and not (_is_counted(values, parts, name) or _is_divided(values, parts, name)):
            message = f"stages {users[0]} and {users[1]} would both work on the persistent variable {name!r}"
            advice = "cut where each is used on one side only"
            span = None if variable.decl is None else variable.decl.span
            raise GraphError(Diagnostic(Code.NOT_SPLIT, message, span, advice))
        for place in users:
            found[place].add(name)
    return [frozenset(one) for one in found]


def _is_counted(values: _Values, parts: Sequence[tuple[Node, ...]], name: str) -> bool:
    """Whether every part that touches a variable increments it by itself, or nothing writes it at all."""
    writers = [node for part in parts for node in part if name in values.whole(node).writes]
    users = [part for part in parts if any(name in values.whole(node).touches for node in part)]
    counting = [sum(isinstance(one.kind, Counting) and one.kind.target == name for one in part) for part in users]
    return all(isinstance(one.kind, Counting) for one in writers) and len(set(counting)) == 1


def _is_divided(values: _Values, parts: Sequence[tuple[Node, ...]], name: str) -> bool:
    """Whether parts access disjoint entries of a table, selected by their own iterations of a loop that was cut."""
    places: set[tuple[int, str]] = set()
    for part in parts:
        for node in part:
            if name not in values.whole(node).touches:
                continue
            if not isinstance(node.kind, Loop) or values.whole(node) != values.effects.nodes[node.index]:
                return False
            for access in _accesses(node.kind.body, name):
                own = [
                    place
                    for place, index in enumerate(access.indices)
                    if isinstance(index, Single) and index.value == Ref(node.kind.index)
                ]
                if not own:
                    return False
                places.add((own[0], node.kind.name))
    return len(places) == 1


def _accesses(nodes: Sequence[Node], name: str) -> Iterable[Access]:
    for node in walk(nodes):
        uses = node_uses(node.kind)
        for one in (*(given.operand for given in uses.reads), *uses.writes):
            if isinstance(one, Access) and one.base == name:
                yield one
