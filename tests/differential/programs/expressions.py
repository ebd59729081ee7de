"""Index expressions and slices of random programs."""

from tests.differential.programs.making import Env, Making
from tests.differential.programs.numbers import FLOATS, INTEGERS
from tests.differential.programs.tree import Decl, Expr, Slice, Statement

Body = list[Statement]
NUMBERS = (*INTEGERS, *FLOATS)


def bounds(decl: Decl) -> list[int | None]:
    """What the indices of a table stay below."""
    fixed = dict(decl.fixed)
    return [decl.entries or fixed.get(name) for name in decl.indices]


def term(making: Making, env: Env) -> Expr:
    """A name or a small number for an index expression."""
    names: list[Expr] = [name for name, _ in env.indices]
    names += making.integers(env)
    names += [size for size in making.sizes if size not in making.free_sizes or making.chance(0.1)]
    return making.pick(names) if names and making.chance(0.85) else making.number(0, 3)


def expression(making: Making, env: Env) -> Expr:
    """A term, or two of them."""
    first = term(making, env)
    if making.chance(0.6):
        return first
    operator = making.pick("++-*/%")
    second: Expr = making.number(1, 3) if operator in "*/%" else term(making, env)
    return (operator, first, second)


def index(making: Making, env: Env, bound: int | None) -> Expr:
    """An index below a bound; sometimes one that only a running step can judge."""
    room = bound or 4
    choice = making.rng.random()
    known = [name for name, end in env.indices if end is not None and end <= room]
    if known and choice < 0.35:
        return making.pick(known)
    if choice < 0.55:
        return making.number(0, room - 1)
    counters = [name for name in making.integers(env) if name[0] in "nm"]
    if counters and choice < 0.68:
        return making.pick(counters)
    return ("%", expression(making, env), making.number(max(1, room - 1), room))


def part(making: Making, env: Env, extent: int | None, *, whole: float = 0.3) -> tuple[Slice, int | None]:
    """A slice and its length, where that is always the same."""
    if making.chance(whole):
        return Slice(), extent
    room = extent or 4
    if making.chance(0.5):
        start = making.number(0, room - 1)
        end = making.number(start, room)
        return Slice(start, end), end - start
    if making.chance(0.3) and extent is not None:
        return Slice(making.pick((None, 0)), -1), max(0, extent - 1)
    start_at = index(making, env, room)
    if making.chance(0.4):
        return Slice(start_at, ("+", start_at, 1)), 1
    return Slice(making.pick((None, 0, 1)), ("%", expression(making, env), room + 1)), None
