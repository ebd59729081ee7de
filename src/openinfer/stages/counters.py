"""Counters that several stages read: each stage has a copy and advances it as the whole graph does."""

from collections.abc import Sequence
from dataclasses import replace

from openinfer.check.bound import BoundGraph
from openinfer.check.effects import EffectsOf
from openinfer.ir import CacheDecrement, CacheIncrement, MemoryKind, Node
from openinfer.ir.expr import names

Counting = CacheIncrement | CacheDecrement
StageParts = Sequence[tuple[Node, ...]]


def with_counters(bound: BoundGraph, parts: StageParts) -> list[tuple[Node, ...]]:
    """Add increments to the parts that read another part's counter, so that they maintain copies.

    A counter is a persistent integer that is only written by increments in entry, by known amounts. A stage before the
    increment counts at its end, one after it at its beginning; so both see the same values as in the whole graph.
    """
    found = [list(part) for part in parts]
    effects = EffectsOf(bound.source, bound.vars.keys())
    touched = [_touched(effects, part) for part in parts]
    for name in _counters(bound, effects, parts):
        own = [(place, node) for place, part in enumerate(parts) for node in part if _counts(node, name)]
        for place, names_here in enumerate(touched):
            if name in names_here:
                behind = [replace(node) for other, node in own if other < place]
                ahead = [replace(node) for other, node in own if other > place]
                found[place] = [*behind, *found[place], *ahead]
    return [tuple(part) for part in found]


def _touched(effects: EffectsOf, part: Sequence[Node]) -> set[str]:
    whole = (effects.reached.whole(effects.nodes[node.index]) for node in part)
    return {name for one in whole for name in one.touches}


def _counts(node: Node, name: str) -> bool:
    return isinstance(node.kind, Counting) and node.kind.target == name


def _counters(bound: BoundGraph, effects: EffectsOf, parts: StageParts) -> list[str]:
    """Persistent scalars that only known increments write, and that more than one part touches."""
    found = []
    for name, variable in bound.vars.items():
        if variable.kind is not MemoryKind.PERSISTENT or variable.is_table or variable.shape:
            continue
        writers = [
            node for part in parts for node in part if name in effects.reached.whole(effects.nodes[node.index]).writes
        ]
        uses = sum(name in _touched(effects, part) for part in parts)
        if uses > 1 and writers and all(_is_known(bound, node) for node in writers):
            found.append(name)
    return found


def _is_known(bound: BoundGraph, node: Node) -> bool:
    return isinstance(node.kind, Counting) and set(names(node.kind.amount)) <= bound.sizes.keys()
