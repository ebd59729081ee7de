"""Detects races: what runs concurrently must not touch the same variables, unless nothing writes them.

A consumer runs from the yield that completes what it awaits to entry's first await of something it yields back, or to
the end of the step; when everything has been yielded again, it runs again. It has its own copy of what it awaits.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import islice

from openinfer.check.effects import EffectsOf
from openinfer.check.reach import NameBits, Reach
from openinfer.errors import Advice, Code, Diagnostic, Fix, FixPlace
from openinfer.ir import Assign, Await, Block, Graph, Node, Yield, walk
from openinfer.ir.rules import awaited, is_consumer

MOST_RACES = 100
"""The maximum number of races reported; there can be one for every pair of nodes."""


@dataclass(frozen=True)
class _Consumer:
    """One run of a consumer."""

    block: Block
    start: int
    end: int
    """The hand-over positions in entry, both exclusive, between which it may run."""
    reach: Reach
    copies: int
    """The variables it awaits, as bits."""

    @property
    def first(self) -> Node:
        """The ``await`` at its beginning."""
        return self.block.nodes[0]

    @property
    def shared(self) -> Reach:
        """What it touches, except its own copies."""
        return Reach(self.reach.reads & ~self.copies, self.reach.writes & ~self.copies)

    @property
    def copied(self) -> Reach:
        """What it touches among its own copies."""
        return Reach(self.reach.reads & self.copies, self.reach.writes & self.copies)

    def clashes(self, other: "_Consumer") -> int:
        """The variables that one writes and the other touches, except those of which both have copies."""
        return _clashes(self.reach, other.reach) & ~(self.copies & other.copies)


def _clashes(one: Reach, other: Reach) -> int:
    return (one.writes & other.touches) | (one.touches & other.writes)


class _Running:
    """Intervals of positions, with the variables touched during each, in a segment tree."""

    def __init__(self, positions: int) -> None:
        self._size = max(positions, 1)
        self._reach: dict[int, Reach] = {}

    def add(self, first: int, last: int, reach: Reach) -> None:
        """Add an interval, from the first position to the last, both inclusive."""
        begin, end = first + self._size, last + 1 + self._size
        while begin < end:
            if begin % 2:
                self._reach[begin] = self._reach.get(begin, _NOTHING) | reach
                begin += 1
            if end % 2:
                end -= 1
                self._reach[end] = self._reach.get(end, _NOTHING) | reach
            begin, end = begin // 2, end // 2

    def at(self, position: int) -> Reach:
        """All variables touched at a position."""
        found, node = _NOTHING, position + self._size
        while node:
            found |= self._reach.get(node, _NOTHING)
            node //= 2
        return found


_NOTHING = Reach()


def concurrency_problems(graph: Graph, effects: EffectsOf, temporaries: Set[str]) -> list[Diagnostic]:
    """All problems that could make the result depend on the schedule."""
    entry = graph.blocks["entry"]
    consumers = [block for block in graph.blocks.values() if is_consumer(block)]
    hand_overs = _hand_overs(entry, consumers)
    problems = [*_tables(graph, entry), *hand_overs.late]
    if problems or not consumers:
        return problems
    running = _running(entry, consumers, hand_overs.starts, effects)
    bits = effects.reached.bits
    found = [
        *_away(entry, effects),
        *_unassigned(entry, running, temporaries, bits),
        *islice(_races(entry, running, effects), MOST_RACES),
        *_two_writers(running, bits),
        *islice(_sharing(len(entry.nodes), running, bits), MOST_RACES),
    ]
    return list(dict.fromkeys(found))  # a problem of all runs of a consumer is reported once


def _tables(graph: Graph, entry: Block) -> list[Diagnostic]:
    """Tables that are handed over: consumers cannot have copies of them."""
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
    """What the yields of entry start, and which of its awaits come too early, in node order."""

    starts: dict[str, list[int]]
    """Where each consumer starts: the positions where all that it awaits has been yielded, or yielded again."""
    late: list[Diagnostic]
    """Awaits that come before the consumer can have started."""


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
                advice = Advice(f"yield {late} before this await", Fix(f"yield {late};", place=FixPlace.BEFORE))
                found.late.append(Diagnostic(Code.NEVER_SATISFIED, message, node.span, advice))
    return found


def _running(
    entry: Block, consumers: list[Block], starts: Mapping[str, list[int]], effects: EffectsOf
) -> list[_Consumer]:
    """Every run of a consumer, with its interval and what it touches."""
    waited: dict[str, list[int]] = {}
    for position, node in enumerate(entry.nodes):
        for name in node.kind.vars if isinstance(node.kind, Await) else ():
            waited.setdefault(name, []).append(position)
    found = []
    for block in consumers:
        last = block.nodes[-1].kind
        returned = last.vars if isinstance(last, Yield) else ()
        reach = _NOTHING
        for node in block.nodes[1:]:
            if not isinstance(node.kind, Yield):
                reach |= effects.reached.of(effects.nodes[node.index])
        copies = effects.reached.bits.of(awaited(block))
        ends = sorted(position for name in returned for position in waited.get(name, ()))
        for start in starts[block.name]:
            place = bisect(ends, start)
            end = ends[place] if place < len(ends) else len(entry.nodes)
            found.append(_Consumer(block, start, end, reach, copies))
    return found


def _away(entry: Block, effects: EffectsOf) -> Iterator[Diagnostic]:
    """Uses in entry of variables that it has yielded and not yet awaited; through other blocks, only the first."""
    away: set[str] = set()
    bits, away_bits = effects.reached.bits, 0
    for node in entry.nodes:
        if isinstance(node.kind, Await):
            away -= set(node.kind.vars)
            away_bits &= ~bits.of(node.kind.vars)
        elif isinstance(node.kind, Yield):
            away |= set(node.kind.vars)
            away_bits |= bits.of(node.kind.vars)
        elif away:
            own = effects.nodes[node.index]
            through = effects.reached.called(own).touches & away_bits if own.calls else 0
            for name in sorted({*(own.touches & away), *islice(bits.each(through), 1)}):
                message = f"{name!r} is touched here, but it has been yielded and not awaited"
                advice = Advice(f"await {name} first", Fix(f"await {name};", place=FixPlace.BEFORE))
                yield Diagnostic(Code.TOUCHED_WHILE_YIELDED, message, node.span, advice)


def _unassigned(entry: Block, running: list[_Consumer], temporaries: Set[str], bits: NameBits) -> Iterator[Diagnostic]:
    """Consumers that start before entry has assigned a temporary that they use; only the first one of each."""
    assigned = [
        (position, inner.kind.name)
        for position, node in enumerate(entry.nodes)
        for inner in walk((node,))
        if isinstance(inner.kind, Assign)
    ]
    done, waiting = 0, bits.of(temporaries)
    for consumer in sorted(running, key=lambda one: one.start):
        begin, done = done, bisect(assigned, consumer.start, key=lambda one: one[0])
        waiting &= ~bits.of(name for _, name in assigned[begin:done])
        for name in islice(bits.each(consumer.reach.touches & waiting), 1):
            message = f"{name!r} is used by the block {consumer.block.name!r}, which starts before it is assigned"
            yield Diagnostic(
                Code.USED_BEFORE_ASSIGN, message, consumer.first.span, f"move 'assign {name}: ...' before the yield"
            )


def _races(entry: Block, running: list[_Consumer], effects: EffectsOf) -> Iterator[Diagnostic]:
    """Races between entry and a consumer: one writes what the other touches while both run."""
    bits, active = effects.reached.bits, _Running(len(entry.nodes))
    for consumer in running:
        active.add(consumer.start + 1, consumer.end - 1, consumer.shared)
    for position, node in enumerate(entry.nodes):
        own = _own_reach(node, effects)
        for name in bits.each(_clashes(own, active.at(position))):
            one = bits.of((name,))
            for consumer in running:
                is_active = consumer.start < position < consumer.end
                if is_active and one & _clashes(own, consumer.shared):
                    yield _race(node, name, consumer)


def _own_reach(node: Node, effects: EffectsOf) -> Reach:
    """What entry itself touches at a node; an ``await`` writes the variables that come back."""
    if isinstance(node.kind, Await):
        return Reach(writes=effects.reached.bits.of(node.kind.vars))
    return effects.reached.of(effects.nodes[node.index])


def _race(node: Node, name: str, consumer: _Consumer) -> Diagnostic:
    block = consumer.block.name
    message = f"{name!r} is touched here while the block {block!r} runs, and one of them writes it"
    advice = f"await what {block!r} yields first, or yield {name} to it"
    return Diagnostic(Code.RACE, message, node.span, advice)


def _two_writers(running: list[_Consumer], bits: NameBits) -> Iterator[Diagnostic]:
    """Pairs of consumers that write the same variable, which both await."""
    writers: dict[str, dict[str, _Consumer]] = {}
    for consumer in running:
        for name in bits.each(consumer.copied.writes):
            writers.setdefault(name, {}).setdefault(consumer.block.name, consumer)
    for name, found in sorted(writers.items()):
        first, *others = found.values()
        for other in others:
            message = f"the blocks {first.block.name!r} and {other.block.name!r} both write {name!r}"
            advice = "give one of them a variable of its own to write"
            yield Diagnostic(Code.TWO_WRITERS, message, other.first.span, advice)


def _sharing(positions: int, running: Iterable[_Consumer], bits: NameBits) -> Iterator[Diagnostic]:
    """Races between consumers: one writes what the other touches while both run, unless both have copies."""
    shared, copied = _Running(positions), _Running(positions)
    earlier: list[_Consumer] = []
    for consumer in sorted(running, key=lambda one: (one.start, one.end)):
        start = consumer.start
        found = _clashes(consumer.reach, shared.at(start)) | _clashes(consumer.shared, copied.at(start))
        for name in bits.each(found):
            one = bits.of((name,))
            other = next(other for other in earlier if other.end > start and one & consumer.clashes(other))
            message = (
                f"the blocks {other.block.name!r} and {consumer.block.name!r} run at the same time,"
                f" and one of them writes {name!r}"
            )
            yield Diagnostic(Code.RACE, message, consumer.first.span)
        shared.add(start, consumer.end - 1, consumer.shared)
        copied.add(start, consumer.end - 1, consumer.copied)
        earlier.append(consumer)
