"""Blocked summation: no 32-bit accumulator takes in more than a few hundred terms.

A single accumulator loses small terms: a million terms of 0.1 are off by 3 % in f32. A loop that adds up more terms
than a block is split into blocks, each with its own accumulator; nested loops have one accumulator per level.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.build import pair
from openinfer.loops.dim import span
from openinfer.loops.intervals import Interval, interval
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Bind,
    Const,
    Contraction,
    For,
    If,
    Let,
    Local,
    LoopKind,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    While,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed_statements, renamed, with_bodies

BLOCK = 256
"""The maximum number of terms per accumulator."""
LANES = 16
"""Lanes of a reduction loop: one vector or a few on any processor that has them; each lane is an accumulator."""
_UNKNOWN = 1 << 31
"""A bound that is not below this depends on unknown numbers, such as data."""


def blocked(statements: tuple[Statement, ...], most: int = BLOCK) -> tuple[Statement, ...]:
    """Split loops that add up more than ``most`` f32 terms into blocks."""
    return _SplitSums(most, _ranges(statements)).statements(statements)


def _ranges(statements: Sequence[Statement]) -> dict[str, Interval]:
    """The value ranges of loop indices and of named positions."""
    known: dict[str, Interval] = {}
    for one in walk(tuple(statements)):
        match one:
            case For(index=var, extent=extent):
                found = 0, max(interval(extent, known)[1] - 1, 0)
            case Let(var=var, value=value) if var.dtype is INDEX:
                found = interval(value, known)
            case _:
                continue
        low, high = known.get(var.name, found)
        known[var.name] = min(low, found[0]), max(high, found[1])
    return known


def _totals(loop: For) -> list[ScalarVar]:
    """The f32 variables that a loop only ever adds to, at any depth."""
    updates: dict[ScalarVar, int] = {}
    for one in walk(loop.body):
        if isinstance(one, SetLocal) and _added(one) is not None:
            updates[one.var] = updates.get(one.var, 0) + 1
    own = {one.var for one in walk(loop.body) if isinstance(one, Local | Let)}
    found = [var for var in updates if var.dtype.name == "f32" and var not in own]
    return [var for var in found if _mentions(loop.body, var) == updates[var]]


def _added(update: SetLocal) -> Scalar | None:
    """The term that an assignment adds to its variable; terms times 0, which only detect inf and NaN, do not count."""
    match update.value:
        case Binary(op="add", left=left, right=right) if update.var in (left, right):
            term = right if left == update.var else left
            is_nothing = isinstance(term, Binary) and term.op == "mul" and term.right == Const(0.0, term.dtype)
            return None if is_nothing or any(one == update.var for one in visit(term)) else term
        case _:
            return None


def _mentions(body: tuple[Statement, ...], var: ScalarVar) -> int:
    """Count reads of a variable and writes that do not add to it; contractions and while loops add 2 to rule it out."""
    count = 0
    for one in walk(body):
        count += sum(part == var for value in scalars(one) for part in visit(value))
        count += 2 if isinstance(one, Contraction | While) else 0
        count += 1 if isinstance(one, SetLocal) and one.var == var and _added(one) is None else 0
    return count


def _adds(body: tuple[Statement, ...], var: ScalarVar) -> bool:
    return any(isinstance(one, SetLocal) and one.var == var for one in walk(body))


def _additions(body: tuple[Statement, ...], totals: Sequence[ScalarVar]) -> int:
    """The most additions to a total per iteration, not counting inner loops, which have their own accumulators."""
    counts = [sum(isinstance(one, SetLocal) and one.var == var for one in _straight(body)) for var in totals]
    return max(1, *counts)


def _straight(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """The statements outside of inner loops."""
    for one in body:
        yield one
        if isinstance(one, If):
            yield from _straight((*one.then, *one.otherwise))


def _parts(totals: list[ScalarVar], loop: For) -> dict[str, ScalarVar]:
    """The partial accumulators that replace totals inside a loop."""
    return {var.name: replace(var, name=f"{var.name.partition('_of_')[0]}_of_{loop.index.name}") for var in totals}


def _around(
    totals: list[ScalarVar], parts: dict[str, ScalarVar], inner: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """Initialize the partial accumulators, run the statements that add to them, and add them to the totals."""
    return (
        *(Local(parts[var.name], Const(0.0, var.dtype)) for var in totals),
        *inner,
        *(SetLocal(var, Binary("add", var, parts[var.name])) for var in totals),
    )


@dataclass(frozen=True)
class _SplitSums:
    """Splits loops that add up more than ``most`` terms into blocks."""

    most: int
    known: Mapping[str, Interval]

    def statements(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """The statements with their loops in blocks."""
        return tuple(map(self._statement, body))

    def _statement(self, statement: Statement) -> Statement:
        match statement:
            case For(kind=LoopKind.SERIAL):
                totals = [var for var in _totals(statement) if self._terms(statement, var) > self.most]
                if totals:
                    return self._in_blocks(statement, totals)
        return with_bodies(statement, self.statements)

    def _trip_count(self, loop: For) -> int:
        """An upper bound on the trip count; a loop whose extent depends on data is assumed to be short."""
        extent = loop.extent
        if isinstance(extent, Const) and isinstance(extent.value, int):
            return span(extent.value)[1]
        most = interval(extent, self.known)[1]
        return max(most, 0) if most < _UNKNOWN else 1

    def _terms(self, loop: For, var: ScalarVar) -> int:
        """The most terms that a loop adds to a variable or, if it runs in lanes, to one accumulator."""
        rounds = self._trip_count(loop)
        if loop.bind is Bind.LANES:
            return max(rounds // LANES, min(rounds, LANES))
        return rounds * self._terms_of(loop.body, var)

    def _terms_of(self, body: tuple[Statement, ...], var: ScalarVar) -> int:
        count = 0
        for one in body:
            match one:
                case SetLocal() if one.var == var:
                    count += 1
                case For(bind=Bind.LANES) if _adds(one.body, var):
                    count += LANES
                case For():
                    count += self._trip_count(one) * self._terms_of(one.body, var)
                case If(then=then, otherwise=otherwise):
                    count += max(self._terms_of(then, var), self._terms_of(otherwise, var))
        return count

    def _in_blocks(self, loop: For, totals: list[ScalarVar]) -> For:
        """Split a loop that sums many terms into blocks of iterations; many blocks are split again."""
        block = BLOCK * LANES if loop.bind is Bind.LANES else BLOCK // min(_additions(loop.body, totals), BLOCK)
        if self._trip_count(loop) <= block:
            return self._by_level(loop, totals)
        name, parts = loop.index.name, _parts(totals, loop)
        first, count, number, inside = (ScalarVar(f"{name}_{what}") for what in ("first", "count", "block", "in"))
        moved = _at(renamed(loop.body, parts), loop.index, first + inside)
        inner = self._by_level(replace(loop, index=inside, extent=count, body=moved), list(parts.values()))
        body = (
            Let(first, number * Const(block, INDEX)),
            Let(count, pair("min", loop.extent - first, Const(block, INDEX))),
            *_around(totals, parts, (inner,)),
        )
        blocks = For(number, _blocks_of(loop.extent, block), body)
        return self._in_blocks(blocks, totals) if self._trip_count(blocks) > BLOCK else blocks

    def _by_level(self, loop: For, totals: list[ScalarVar]) -> For:
        """Give each iteration of an outer loop its own accumulators for the sums of its inner loops."""
        deep = [var for var in totals if any(isinstance(one, For) and _adds(one.body, var) for one in walk(loop.body))]
        if not deep or loop.bind is Bind.LANES:
            return loop
        parts = _parts(deep, loop)
        return replace(loop, body=_around(deep, parts, self.statements(renamed(loop.body, parts))))


def _blocks_of(extent: Scalar, block: int) -> Scalar:
    """The number of blocks of a loop."""
    if isinstance(extent, Const) and isinstance(extent.value, int):
        return Const((extent.value + (block - 1)) // block, INDEX)
    return (extent + (block - 1)) // block


def _at(body: tuple[Statement, ...], index: ScalarVar, place: Scalar) -> tuple[Statement, ...]:
    return changed_statements(body, lambda value: place if value == index else None)
