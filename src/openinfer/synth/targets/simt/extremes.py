"""Where extremes are, as two reductions: first the extreme, then the first or last place that has it.

The loop of an ``argmax`` has a value and a place that change together. Threads cannot share such a loop, but they can
share each of these two, the second of which finds its elements in registers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from openinfer.dtypes import DTYPES
from openinfer.loops.build import cast, pair, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.expand_order import before
from openinfer.loops.ir import INDEX, Const, For, If, Let, Local, Scalar, ScalarVar, SetLocal, Statement
from openinfer.loops.rewrite import Statements, renamed
from openinfer.synth.targets.simt.threads import int_extent
from openinfer.synth.targets.simt.wide import FreshNames

_MOST = 2**31
"""Places that a 32-bit integer can count."""


def with_separate_places(body: Sequence[Statement], names: FreshNames) -> Statements:
    """Statements with each loop that looks for the place of an extreme as two loops."""
    found: list[Statement] = []
    for one in body:
        search = _Search.of(one) if isinstance(one, For) else None
        found += [one] if search is None else search.separate(names)
    return tuple(found)


@dataclass(frozen=True)
class _Search:
    """A loop nest in which a value and its place replace the best ones so far."""

    loops: tuple[For, ...]
    value: Let
    best: ScalarVar
    place: ScalarVar
    at: Scalar
    """The place of an iteration."""
    op: str
    """``max`` or ``min``."""
    is_first: bool
    """Whether the first of equal elements is looked for, not the last."""

    @classmethod
    def of(cls, loop: For) -> "_Search | None":
        """What a loop looks for; None if it does something else."""
        loops = [loop]
        while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], For):
            loops.append(loops[-1].body[0])
        if any(not isinstance(one.extent, Const) or is_symbolic(int_extent(one.extent)) for one in loops):
            return None
        match loops[-1].body:
            case (
                Let(var=var) as value,
                If(cond, (SetLocal(best, new), SetLocal(place, at)), ()),
            ) if new == var and place.dtype is INDEX and best.dtype is var.dtype and var.dtype.kind != "bool":
                for op in ("max", "min"):
                    for is_first in (True, False):
                        if cond == _beats(var, best, op=op, is_first=is_first):
                            return cls(tuple(loops), value, best, place, at, op, is_first)
        return None

    @property
    def total(self) -> int:
        """The number of iterations."""
        found = 1
        for one in self.loops:
            found *= int_extent(one.extent)
        return found

    def separate(self, names: FreshNames) -> Statements:
        """The extreme, then its place."""
        extreme = SetLocal(self.best, pair(self.op, self.best, self.value.var))
        kind = DTYPES["i32" if self.total < _MOST else "i64"]
        count, own = names.var("place", kind), names.var(self.value.var.name, self.value.var.dtype)
        nowhere = Const(self.total if self.is_first else -1, kind)
        here = own.eq(self.best)
        if own.dtype.kind == "float":
            # If the extreme is no NaN, neither is any element.
            here = here | unary("isnan", own)
        nearest = pair("min" if self.is_first else "max", count, select(here, cast(self.at, kind), nowhere))
        again = (Let(own, self.value.value), SetLocal(count, nearest))
        indices = {one.index.name: names.var(one.index.name) for one in self.loops}
        return (
            self._nested((self.value, extreme)),
            Local(count, nowhere),
            *renamed((self._nested(again),), indices),
            SetLocal(self.place, cast(count, INDEX)),
        )

    def _nested(self, body: Statements) -> Statement:
        for one in reversed(self.loops):
            body = (For(one.index, one.extent, body, one.kind),)
        (made,) = body
        return made


def _beats(value: Scalar, best: Scalar, *, op: str, is_first: bool) -> Scalar:
    """Whether a later value replaces the best so far, as lowerings write it."""
    if is_first:
        return before(value > best if op == "max" else value < best, value, best)
    as_good = value >= best if op == "max" else value <= best
    return as_good | unary("isnan", value) if value.dtype.kind == "float" else as_good
