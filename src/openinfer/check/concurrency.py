"""What runs at the same time must not touch the same variables, unless nobody writes them.

A consumer runs from the yield that completes what it awaits to entry's first await of something it yields back, or to
the end of the step; when all has been yielded again, it runs again. What it awaits it has as a copy of its own.
"""

from bisect import bisect
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from openinfer.check.bound import Effects
from openinfer.check.effects import EffectsOf
from openinfer.errors import Code, Diagnostic
from openinfer.ir import Assign, Await, Block, Graph, Node, Yield, walk
from openinfer.ir.rules import awaited, is_consumer


@dataclass(frozen=True)
class _Consumer:
    """One run of a consumer."""

    block: Block
    start: int
    end: int
    """Positions in entry between which it may run, exclusive of both hand-overs."""
    touches: frozenset[str]
    writes: frozenset[str]
    copies: frozenset[str]
    """What it awaits."""

    @property
    def first(self) -> Node:
        """The ``await`` it begins with."""
        return self.block.nodes[0]


def concurrency_problems(graph: Graph, effects: EffectsOf, temporaries: Set[str]) -> list[Diagnostic]:
    """Everything that could give two schedules different results."""
    entry = graph.blocks["entry"]
    consumers = [block for block in graph.blocks.values() if is_consumer(block)]
    hand_overs = _hand_overs(entry, consumers)
    problems = [*_tables(graph, entry), *hand_overs.late]
    if problems or not consumers:
        return problems
    running = _running(entry, consumers, hand_overs.starts, effects)
    found = [
        *_away(entry, effects),
        *_unassigned(entry, running, temporaries),
        *_races(entry, running, effects),
        *_rivals(running),
    ]
    return list(dict.fromkeys(found))  # what is wrong with every run of a consumer is said once


def _tables(graph: Graph, entry: Block) -> list[Diagnostic]:
    """Tables handed over: there is no copy of one for each consumer."""
    found: list[Diagnostic] = []
    for node in entry.nodes:
        for name in node.kind.vars if isinstance(node.kind, Yield) else ():
            if name in graph.vars and graph.vars[name].is_indexed:
                advice = "let one block touch it while the others run, and await what that block yields"
                message = f"{name!r} is a table; only single values are handed over"
                found.append(Diagnostic(Code.BAD_YIELD, message, node.span, advice))
    return found


@dataclass
class _HandOvers:
    """What entry's yields start and its awaits wait for in vain, in the order of its nodes."""

    starts: dict[str, list[int]]
    """Where each consumer starts: where all it awaits has been yielded, and where all has been yielded again."""
    late: list[Diagnostic]
    """Awaits that come before a consumer can have started."""


def _hand_overs(entry: Block, consumers: list[Block]) -> _HandOvers:
    takers: dict[str, list[Block]] = {}
    for block in consumers:
        for name in dict.fromkeys(awaited(block)):
            takers.setdefault(name, []).append(block)
    missing = {block.name: {*awaited(block)} for block in consumers}
    found = _HandOvers({block.name: [] for block in consumers}, [])
    for position, node in enumerate(entry.nodes):
        if not isinstance(node.kind, Yield | Await):
            continue
        touched = {block.name: block for name in node.kind.vars for block in takers.get(name, [])}
        for block in touched.values():
            rest, own = missing[block.name], {*awaited(block)}
            if isinstance(node.kind, Yield):
                rest -= set(node.kind.vars)
                if not rest:
                    found.starts[block.name].append(position)
                    missing[block.name] = own
            elif rest != own and set(node.kind.vars) & (own - rest):
                late = min(rest)
                message = f"the block {block.name!r} also awaits {late!r}, which is yielded only after this"
                advice = f"yield {late} before this await"
                found.late.append(Diagnostic(Code.NEVER_SATISFIED, message, node.span, advice))
    return found


def _running(
    entry: Block, consumers: list[Block], starts: Mapping[str, list[int]], effects: EffectsOf
) -> list[_Consumer]:
    """Every run of a consumer: when it is, and what it does meanwhile."""
    waited: dict[str, list[int]] = {}
    for position, node in enumerate(entry.nodes):
        for name in node.kind.vars if isinstance(node.kind, Await) else ():
            waited.setdefault(name, []).append(position)
    found = []
    for block in consumers:
        last = block.nodes[-1].kind
        returned = last.vars if isinstance(last, Yield) else ()
        own = [effects.nodes[node.index] for node in block.nodes[1:] if not isinstance(node.kind, Yield)]
        writes = frozenset[str]().union(*(one.writes for one in own))
        reads = frozenset[str]().union(*(one.reads for one in own))
        ends = sorted(position for name in returned for position in waited.get(name, ()))
        for start in starts[block.name]:
            place = bisect(ends, start)
            end = ends[place] if place < len(ends) else len(entry.nodes)
            found.append(_Consumer(block, start, end, reads | writes, writes, frozenset(awaited(block))))
    return found


def _away(entry: Block, effects: EffectsOf) -> Iterator[Diagnostic]:
    """Entry touching what it has yielded and not yet awaited."""
    away: set[str] = set()
    for node in entry.nodes:
        if isinstance(node.kind, Await):
            away -= set(node.kind.vars)
        elif isinstance(node.kind, Yield):
            away |= set(node.kind.vars)
        else:
            for name in sorted(effects.nodes[node.index].touches & away):
                message = f"{name!r} is touched here, but it has been yielded and not awaited"
                yield Diagnostic(Code.TOUCHED_WHILE_YIELDED, message, node.span, f"await {name} first")


def _unassigned(entry: Block, running: list[_Consumer], temporaries: Set[str]) -> Iterator[Diagnostic]:
    """Consumers that start before entry has assigned a temporary that they touch."""
    assigned_at = {
        inner.kind.name: position
        for position, node in enumerate(entry.nodes)
        for inner in walk((node,))
        if isinstance(inner.kind, Assign)
    }
    for consumer in running:
        for name in sorted(consumer.touches & temporaries):
            if assigned_at[name] > consumer.start:
                message = f"{name!r} is used by the block {consumer.block.name!r}, which starts before it is assigned"
                yield Diagnostic(
                    Code.USED_BEFORE_ASSIGN, message, consumer.first.span, f"move 'assign {name}: ...' before the yield"
                )


def _races(entry: Block, running: list[_Consumer], effects: EffectsOf) -> Iterator[Diagnostic]:
    """Entry and a consumer where one writes what the other touches while both run."""
    starts: dict[int, list[_Consumer]] = {}
    for consumer in running:
        starts.setdefault(consumer.start, []).append(consumer)
    touchers: dict[str, list[_Consumer]] = {}
    for position, node in enumerate(entry.nodes):
        own = _own_effects(node, effects)
        for name in sorted(own.touches & touchers.keys()):
            touchers[name] = [consumer for consumer in touchers[name] if consumer.end > position]
            for consumer in touchers[name]:
                if name in own.writes or name in consumer.writes:
                    yield _race(node, name, consumer)
        for consumer in starts.get(position, ()):
            for name in consumer.touches - consumer.copies:
                touchers.setdefault(name, []).append(consumer)


def _own_effects(node: Node, effects: EffectsOf) -> Effects:
    """What entry does itself; an ``await`` gives it the values that come back."""
    if isinstance(node.kind, Await):
        return Effects(writes=frozenset(node.kind.vars))
    return effects.nodes[node.index]


def _race(node: Node, name: str, consumer: _Consumer) -> Diagnostic:
    block = consumer.block.name
    message = f"{name!r} is touched here while the block {block!r} runs, and one of them writes it"
    advice = f"await what {block!r} yields first, or yield {name} to it"
    return Diagnostic(Code.RACE, message, node.span, advice)


def _rivals(running: list[_Consumer]) -> Iterator[Diagnostic]:
    """Consumers that write the same variable they both await, or that share another one while both run."""
    touchers: dict[str, list[_Consumer]] = {}
    for consumer in running:
        for name in consumer.touches:
            touchers.setdefault(name, []).append(consumer)
    for name, consumers in sorted(touchers.items()):
        if len(consumers) > 1:
            yield from _two_writers(name, consumers)
            yield from _sharing(name, consumers)


def _two_writers(name: str, consumers: list[_Consumer]) -> Iterator[Diagnostic]:
    found = {consumer.block.name: consumer for consumer in consumers if name in consumer.writes & consumer.copies}
    writers = list(found.values())
    for other in writers[1:]:
        message = f"the blocks {writers[0].block.name!r} and {other.block.name!r} both write {name!r}"
        advice = "give one of them a variable of its own to write"
        yield Diagnostic(Code.TWO_WRITERS, message, other.first.span, advice)


def _sharing(name: str, consumers: list[_Consumer]) -> Iterator[Diagnostic]:
    """Each consumer is compared with the one before it that runs longest: that is enough to find every conflict."""
    longest: dict[tuple[bool, bool], _Consumer] = {}
    for consumer in sorted(consumers, key=lambda one: (one.start, one.end)):
        role = (name in consumer.writes, name in consumer.copies)
        for (writes, copies), other in longest.items():
            conflict = (writes or role[0]) and not (copies and role[1])
            if conflict and other.end > consumer.start:
                message = (
                    f"the blocks {other.block.name!r} and {consumer.block.name!r} run at the same time,"
                    f" and one of them writes {name!r}"
                )
                yield Diagnostic(Code.RACE, message, consumer.first.span)
                break
        if role not in longest or longest[role].end < consumer.end:
            longest[role] = consumer
