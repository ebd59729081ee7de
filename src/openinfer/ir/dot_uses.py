"""What the nodes of a picture read and write, with the labels of the edges."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openinfer.ir.expr import Expr, names
from openinfer.ir.graph import Assign, Await, Block, Loop, Node, Op, walk
from openinfer.ir.operand import Access, Operand, Single
from openinfer.ir.uses import node_uses
from openinfer.ir.values import VarValue


@dataclass(frozen=True)
class DrawnUse:
    """An operand of a node, with the label of its edge."""

    operand: Operand
    label: str = ""


def _use(operand: Operand, name: str | None = None) -> DrawnUse:
    shown = str(operand) if isinstance(operand, Access) and operand.bracketed else ""
    return DrawnUse(operand, f"{name}={shown}" if name and shown else name or shown)


def reads(node: Node) -> Iterator[DrawnUse]:
    """What a node reads, except names in indices; for awaited variables there are hand-over edges."""
    if not isinstance(node.kind, Await):
        yield from (_use(given.operand, given.name) for given in node_uses(node.kind).reads)


def writes(node: Node) -> Iterator[DrawnUse]:
    """What a node writes; a temporary is drawn where it gets its value, not where it is declared."""
    if not isinstance(node.kind, Assign):
        yield from map(_use, node_uses(node.kind).writes)


def parameters(node: Node) -> list[str]:
    """The parameters of a node that are names: of constants, or of values in the model."""
    attrs = node.kind.attrs if isinstance(node.kind, Op) else ()
    return [value.name for _, value in attrs if isinstance(value, VarValue)]


def index_exprs(node: Node) -> Iterator[Expr]:
    """The expressions in a node's brackets, loop bounds, and counter amounts."""
    yield from node_uses(node.kind).exprs
    for use in (*reads(node), *writes(node)):
        for index in use.operand.indices if isinstance(use.operand, Access) else ():
            parts = (index.value,) if isinstance(index, Single) else (index.start, index.end)
            yield from (part for part in parts if part is not None)


def names_written(node: Node) -> list[str]:
    """The variables that a node writes."""
    return [use.operand.base for use in writes(node) if isinstance(use.operand, Access)]


def written_first(block: Block) -> set[str]:
    """Temporaries written before they are read: they are drawn at the first write, not at the declaration."""
    by_writing: dict[str, bool] = {}
    for node in walk(block.nodes):
        exprs = index_exprs(node)
        read = [use.operand.base for use in reads(node) if isinstance(use.operand, Access)]
        for name in (*read, *(name for expr in exprs for name in names(expr))):
            by_writing.setdefault(name, False)
        for name in names_written(node):
            by_writing.setdefault(name, True)
    return {name for name, written in by_writing.items() if written}


def names_used(nodes: Iterable[Node]) -> Counter[str]:
    """How often nodes mention each variable."""
    return Counter(name for node in nodes for name in _all_names(node))


def _all_names(node: Node) -> Iterator[str]:
    yield from (one.operand.base for one in node_uses(node.kind).reads if isinstance(one.operand, Access))
    yield from names_written(node)
    yield from parameters(node)
    yield from (name for expr in index_exprs(node) for name in names(expr))


@dataclass(frozen=True)
class BodyUses:
    """What the nodes of a body read before writing it, what they write, and how often they use each name."""

    read: tuple[str, ...]
    written: tuple[str, ...]
    used: Counter[str]


def body_uses(nodes: Iterable[Node]) -> BodyUses:
    """The uses of a body that is drawn as one shape."""
    inside = list(walk(tuple(nodes)))
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for node in inside:
        own = names_written(node)
        before = Counter(_all_names(node)) - Counter(own)
        read.update((name, None) for name in before if name not in written)
        written.update((name, None) for name in own if not isinstance(node.kind, Assign))
    indices = {node.kind.index for node in inside if isinstance(node.kind, Loop)}
    return BodyUses(tuple(name for name in read if name not in indices), tuple(written), names_used(inside))
