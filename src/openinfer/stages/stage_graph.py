"""The graph of one stage: its nodes, the blocks they run, and declarations of everything they name."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from openinfer.check.bound import BoundGraph
from openinfer.ir import Assign, Dep, Graph, MemoryKind, Node, VarDecl, walk
from openinfer.ir.expr import Num
from openinfer.ir.graph import Block, Return, SizeDecl
from openinfer.ir.rules import blocks_run, node_name
from openinfer.stages.values import Handover, dims_of


def stage_graph(bound: BoundGraph, part: Sequence[Node], passed: Handover) -> Graph:
    """A part of a graph as a graph of its own. Known sizes are declared with their values, dynamic ones with bounds."""
    blocks = _blocks_run(bound.source, part)
    nodes = [*_assigned(bound, part, passed), *_without_lost_deps(part), Node(Return(passed.yields))]
    entry = replace(bound.source.blocks["entry"], nodes=tuple(nodes))
    declared = _declarations(bound, passed)
    sizes = [SizeDecl(name, ":=", Num(value)) for name, value in sorted(bound.sizes.items())]
    sizes += [SizeDecl(name, "<=", Num(value)) for name, value in sorted(bound.bounds.items())]
    return Graph.of(sizes, declared, [entry, *blocks])


def _declarations(bound: BoundGraph, passed: Handover) -> Iterable[VarDecl]:
    for name, variable in bound.vars.items():
        if name in passed.awaits:
            yield VarDecl(name, MemoryKind.DYNAMIC, variable.dtype, dims_of(bound, name))
        elif variable.decl is not None and name in passed.touched:
            is_input = variable.kind is MemoryKind.DYNAMIC  # not awaited, so the stage writes it before reading it
            yield replace(variable.decl, kind=MemoryKind.VOLATILE) if is_input else variable.decl


def _assigned(bound: BoundGraph, part: Sequence[Node], passed: Handover) -> Iterable[Node]:
    """Declare temporaries that an earlier part assigns and that this one reuses for its own values."""
    own = {node.kind.name for node in walk(part) if isinstance(node.kind, Assign)}
    for name, variable in bound.vars.items():
        is_elsewhere = name in own or name in passed.awaits or name in bound.locals
        if variable.decl is None and name in passed.touched and not is_elsewhere:
            yield Node(Assign(name, variable.dtype, dims_of(bound, name)))


def _blocks_run(graph: Graph, part: Sequence[Node]) -> list[Block]:
    """The blocks that nodes run, transitively, in graph order."""
    found: set[str] = set()
    todo = [name for node in walk(part) for name in blocks_run(node)]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [other for node in walk(graph.blocks[name].nodes) for other in blocks_run(node)]
    return [block for name, block in graph.blocks.items() if name in found]


def _without_lost_deps(part: Sequence[Node]) -> list[Node]:
    """Drop dependencies on nodes of other parts, which run before or after anyway."""
    found = []
    for place, node in enumerate(part):
        if isinstance(node.kind, Dep):
            before = {node_name(one) for one in walk(part[:place])}
            after = {node_name(one) for one in walk(part[place + 1 :])}
            if node.kind.after not in before or node.kind.before not in after:
                continue
        found.append(node)
    return found
