"""What runs at the same time must not touch the same variables, unless nobody writes them.

A consumer runs from the yield that completes what it awaits to entry's first await of something it yields back, or to
the end of the step. What it awaits it has as a copy of its own.
"""

from dataclasses import dataclass

from openinfer.check.effects import EffectsOf
from openinfer.errors import Code, Diagnostic
from openinfer.ir import Await, Block, Graph, Node, Yield
from openinfer.ir.rules import awaited, is_consumer


@dataclass(frozen=True)
class _Consumer:
    block: Block
    start: int
    end: int
    """Positions in entry between which it may run, exclusive of both hand-overs."""
    touches: frozenset[str]
    writes: frozenset[str]

    @property
    def copies(self) -> frozenset[str]:
        return frozenset(awaited(self.block))


def concurrency_problems(graph: Graph, effects: EffectsOf) -> list[Diagnostic]:
    """Everything that could give two schedules different results."""
    entry = graph.blocks["entry"]
    consumers = [block for block in graph.blocks.values() if is_consumer(block)]
    problems = [*_tables(graph, entry), *_unsatisfied(entry, consumers)]
    if problems or not consumers:
        return problems
    running = [_running(entry, block, effects) for block in consumers]
    return [*_away(entry, effects), *_races(entry, running, effects), *_rivals(running)]


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


def _unsatisfied(entry: Block, consumers: list[Block]) -> list[Diagnostic]:
    """Variables yielded a second time, and awaits that come before a consumer can have started."""
    found: list[Diagnostic] = []
    yielded: set[str] = set()
    for node in entry.nodes:
        if isinstance(node.kind, Yield):
            for name in node.kind.vars:
                if name in yielded:
                    message = f"{name!r} is yielded twice in a step, but a consumer runs once"
                    found.append(Diagnostic(Code.NEVER_SATISFIED, message, node.span))
            yielded |= set(node.kind.vars)
        elif isinstance(node.kind, Await):
            for block in consumers:
                late = sorted(set(awaited(block)) - yielded)
                if late and set(node.kind.vars) & set(awaited(block)):
                    message = f"the block {block.name!r} also awaits {late[0]!r}, which is yielded only after this"
                    found.append(Diagnostic(Code.NEVER_SATISFIED, message, node.span))
    return found


def _running(entry: Block, block: Block, effects: EffectsOf) -> _Consumer:
    needed = set(awaited(block))
    start, end = len(entry.nodes), len(entry.nodes)
    last = block.nodes[-1].kind
    returned = set(last.vars) if isinstance(last, Yield) else set()
    for position, node in enumerate(entry.nodes):
        if isinstance(node.kind, Yield) and needed:
            needed -= set(node.kind.vars)
            start = position if not needed else start
        elif isinstance(node.kind, Await) and position > start and returned & set(node.kind.vars):
            end = min(end, position)
    own = effects.block(block.name)
    body = [effects.nodes[node.index] for node in block.nodes[1:] if not isinstance(node.kind, Yield)]
    writes = frozenset().union(*(one.writes for one in body)) if body else frozenset()
    touches = frozenset().union(*(one.touches for one in body)) if body else frozenset()
    assert own.touches >= touches
    return _Consumer(block, start, end, touches, writes)


def _away(entry: Block, effects: EffectsOf) -> list[Diagnostic]:
    """Entry touching what it has yielded and not yet awaited."""
    found: list[Diagnostic] = []
    away: dict[str, Node] = {}
    for node in entry.nodes:
        if isinstance(node.kind, Await):
            for name in node.kind.vars:
                away.pop(name, None)
            continue
        touched = sorted(effects.nodes[node.index].touches & away.keys())
        if touched and not isinstance(node.kind, Yield):
            message = f"{touched[0]!r} is touched here, but it has been yielded and not awaited"
            found.append(Diagnostic(Code.TOUCHED_WHILE_YIELDED, message, node.span, f"await {touched[0]} first"))
        if isinstance(node.kind, Yield):
            away |= dict.fromkeys(node.kind.vars, node)
    return found


def _races(entry: Block, running: list[_Consumer], effects: EffectsOf) -> list[Diagnostic]:
    """Entry and a consumer, or two consumers, where one writes what the other touches while both run."""
    found: list[Diagnostic] = []
    for consumer in running:
        for node in entry.nodes[consumer.start + 1 : consumer.end]:
            own = effects.nodes[node.index]
            if isinstance(node.kind, Yield | Await):
                continue
            shared = (own.writes & consumer.touches) | (own.touches & consumer.writes)
            for name in sorted(shared - consumer.copies):
                message = (
                    f"{name!r} is touched here while the block {consumer.block.name!r} runs, and one of them writes it"
                )
                advice = f"await what {consumer.block.name!r} yields first, or yield {name} to it"
                found.append(Diagnostic(Code.RACE, message, node.span, advice))
    return found


def _rivals(running: list[_Consumer]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for position, one in enumerate(running):
        for other in running[position + 1 :]:
            both = sorted(one.writes & other.writes & one.copies & other.copies)
            for name in both:
                message = f"the blocks {one.block.name!r} and {other.block.name!r} both write {name!r}"
                found.append(Diagnostic(Code.TWO_WRITERS, message, other.block.nodes[0].span))
            if one.start >= other.end or other.start >= one.end:
                continue
            shared = (one.writes & other.touches) | (one.touches & other.writes)
            for name in sorted(shared - (one.copies & other.copies)):
                message = (
                    f"the blocks {one.block.name!r} and {other.block.name!r} run at the same time,"
                    f" and one of them writes {name!r}"
                )
                found.append(Diagnostic(Code.RACE, message, other.block.nodes[0].span))
    return found
