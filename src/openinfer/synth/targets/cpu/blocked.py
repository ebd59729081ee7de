"""Sums of many floats as sums of partial sums: no accumulator of 32 bits takes in more than a few hundred terms.

One accumulator loses what is small beside it: a million terms of 0.1 are 3 % off in f32. A loop that adds up more than
a block of terms adds up blocks, each in an accumulator of its own, and nested loops have one for every level.
"""

from dataclasses import replace

from openinfer.loops.build import pair
from openinfer.loops.dim import span
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
"""The most terms that one accumulator takes in."""
LANES = 16
"""Lanes of a reduction loop: a vector, or a few, on every processor that has them; each is an accumulator."""


def blocked(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """Statements whose loops add up floats of 32 bits in blocks, where they add up many."""
    return tuple(_blocked(one) for one in statements)


def _blocked(statement: Statement) -> Statement:
    match statement:
        case For(kind=LoopKind.SERIAL):
            totals = [var for var in _totals(statement) if _terms(statement, var) > BLOCK]
            return _in_blocks(statement, totals) if totals else with_bodies(statement, blocked)
        case _:
            return with_bodies(statement, blocked)


def _totals(loop: For) -> list[ScalarVar]:
    """The floats of 32 bits that a loop only adds to, wherever in it."""
    updates: dict[ScalarVar, int] = {}
    for one in walk(loop.body):
        if isinstance(one, SetLocal) and _added(one) is not None:
            updates[one.var] = updates.get(one.var, 0) + 1
    own = {one.var for one in walk(loop.body) if isinstance(one, Local | Let)}
    found = [var for var in updates if var.dtype.name == "f32" and var not in own]
    return [var for var in found if _mentions(loop.body, var) == updates[var]]


def _added(update: SetLocal) -> Scalar | None:
    """What an assignment adds to its variable; terms times 0 only detect infinities and NaN."""
    match update.value:
        case Binary(op="add", left=left, right=right) if update.var in (left, right):
            term = right if left == update.var else left
            is_nothing = isinstance(term, Binary) and term.op == "mul" and term.right == Const(0.0, term.dtype)
            return None if is_nothing or any(one == update.var for one in visit(term)) else term
        case _:
            return None


def _mentions(body: tuple[Statement, ...], var: ScalarVar) -> int:
    """How often a variable is read or, other than by adding to it, written; a contraction counts as many times."""
    count = 0
    for one in walk(body):
        count += sum(part == var for value in scalars(one) for part in visit(value))
        count += 2 if isinstance(one, Contraction | While) else 0
        count += 1 if isinstance(one, SetLocal) and one.var == var and _added(one) is None else 0
    return count


def _rounds(loop: For) -> int:
    """How often a loop runs at most; one whose extent is computed is taken for short."""
    extent = loop.extent
    return span(extent.value)[1] if isinstance(extent, Const) and isinstance(extent.value, int) else 1


def _terms(loop: For, var: ScalarVar) -> int:
    """How many terms a loop adds to a variable at most, not counting what lanes take in."""
    rounds = _rounds(loop)
    if loop.bind is Bind.LANES:
        return max(rounds // LANES, min(rounds, LANES))
    return rounds * _terms_of(loop.body, var)


def _terms_of(body: tuple[Statement, ...], var: ScalarVar) -> int:
    count = 0
    for one in body:
        match one:
            case SetLocal() if one.var == var:
                count += 1
            case For(bind=Bind.LANES) if _adds(one.body, var):
                count += LANES
            case For():
                count += _rounds(one) * _terms_of(one.body, var)
            case If(then=then, otherwise=otherwise):
                count += max(_terms_of(then, var), _terms_of(otherwise, var))
    return count


def _adds(body: tuple[Statement, ...], var: ScalarVar) -> bool:
    return any(isinstance(one, SetLocal) and one.var == var for one in walk(body))


def _parts(totals: list[ScalarVar], loop: For) -> dict[str, ScalarVar]:
    """Accumulators that stand for totals inside a loop."""
    return {var.name: replace(var, name=f"{var.name.partition('_of_')[0]}_of_{loop.index.name}") for var in totals}


def _around(
    totals: list[ScalarVar], parts: dict[str, ScalarVar], inner: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """Statements that add to the parts, between their beginnings and what becomes of them."""
    return (
        *(Local(parts[var.name], Const(0.0, var.dtype)) for var in totals),
        *inner,
        *(SetLocal(var, Binary("add", var, parts[var.name])) for var in totals),
    )


def _in_blocks(loop: For, totals: list[ScalarVar]) -> For:
    """A loop that sums many terms, over blocks of its iterations, which are nested if there are many."""
    block = BLOCK * LANES if loop.bind is Bind.LANES else BLOCK
    if _rounds(loop) <= block:
        return _by_level(loop, totals)
    assert isinstance(loop.extent, Const)
    extent = loop.extent.value
    assert isinstance(extent, int)
    name, parts = loop.index.name, _parts(totals, loop)
    first, count, number, inside = (ScalarVar(f"{name}_{what}") for what in ("first", "count", "block", "in"))
    moved = _at(renamed(loop.body, parts), loop.index, first + inside)
    inner = _by_level(replace(loop, index=inside, extent=count, body=moved), list(parts.values()))
    body = (
        Let(first, number * Const(block, INDEX)),
        Let(count, pair("min", loop.extent - first, Const(block, INDEX))),
        *_around(totals, parts, (inner,)),
    )
    blocks = For(number, Const((extent + (block - 1)) // block, INDEX), body)
    return _in_blocks(blocks, totals) if _rounds(blocks) > BLOCK else blocks


def _by_level(loop: For, totals: list[ScalarVar]) -> For:
    """A loop over loops: their sums go into accumulators of each iteration."""
    deep = [var for var in totals if any(isinstance(one, For) and _adds(one.body, var) for one in walk(loop.body))]
    if not deep or loop.bind is Bind.LANES:
        return loop
    parts = _parts(deep, loop)
    return replace(loop, body=_around(deep, parts, blocked(renamed(loop.body, parts))))


def _at(body: tuple[Statement, ...], index: ScalarVar, place: Scalar) -> tuple[Statement, ...]:
    return changed_statements(body, lambda value: place if value == index else None)
