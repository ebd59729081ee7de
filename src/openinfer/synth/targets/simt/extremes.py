"""Where extremes are, as two reductions: first the extreme, then the first or last place that has it.

The loop of an ``argmax`` has a value and a place that change together. Threads cannot share such a loop, but they can
share each of these two, the second of which finds its elements in registers. Few threads run it: only those that have
found the extreme of the row among their own elements.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

from openinfer.dtypes import DTYPES
from openinfer.loops.build import bits, cast, pair, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.expand_order import before
from openinfer.loops.ir import INDEX, Binary, Const, For, If, Let, Local, Scalar, ScalarVar, Select, SetLocal, Statement
from openinfer.loops.reduction import reduced_term
from openinfer.loops.rewrite import Statements, renamed
from openinfer.synth.targets.simt.row_loops import RowItem, RowLoop
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
        kind = DTYPES["i32" if self.total < _MOST else "i64"]
        count, own = names.var("place", kind), names.var(self.value.var.name, self.value.var.dtype)
        nowhere = Const(self.total if self.is_first else -1, kind)
        here = _is_here(own, self.best)
        nearest = pair("min" if self.is_first else "max", count, select(here, cast(self.at, kind), nowhere))
        again = (Let(own, self.value.value), SetLocal(count, nearest))
        indices = {one.index.name: names.var(one.index.name) for one in self.loops}
        return (
            *self._extreme(names),
            Local(count, nowhere),
            *renamed((self._nested(again),), indices),
            SetLocal(self.place, cast(count, INDEX)),
        )

    def _extreme(self, names: FreshNames) -> Statements:
        """The extreme: NaN if an element is NaN, which comparisons alone would leave out."""
        value, best = self.value.var, self.best
        better = SetLocal(best, select(value > best if self.op == "max" else value < best, value, best))
        if best.dtype.kind != "float":
            return (self._nested((self.value, better)),)
        kind = _bits_of(best).dtype
        most = names.var("most", kind)
        return (
            Local(most, Const(0, kind)),
            self._nested((self.value, better, SetLocal(most, pair("max", most, _bits_of(value))))),
            SetLocal(best, select(_is_nan(most), Const(nan, best.dtype), best)),
        )

    def _nested(self, body: Statements) -> Statement:
        for one in reversed(self.loops):
            body = (For(one.index, one.extent, body, one.kind),)
        (made,) = body
        return made


def searched(items: Sequence[RowItem]) -> dict[RowLoop, ScalarVar]:
    """Loops that look for an extreme of an earlier one among the same elements, with the variable that has it.

    Nothing that such a loop has loaded is used after it.
    """
    found: dict[RowLoop, ScalarVar] = {}
    for end, one in enumerate(items):
        if not isinstance(one, RowLoop) or any(_is_alike(other, one) for other in items[end + 1 :]):
            continue
        for begin, other in enumerate(items[:end]):
            between = [each for each in items[begin + 1 : end] if isinstance(each, SetLocal)]
            best = _wanted(other, one, between) if isinstance(other, RowLoop) and _is_alike(other, one) else None
            found |= {} if best is None else {one: best}
    return found


def _is_alike(one: RowItem, other: RowLoop) -> bool:
    """Whether a thread has the same elements in both loops."""
    return isinstance(one, RowLoop) and one.shape == other.shape


def has_extreme(part: ScalarVar, best: ScalarVar) -> Scalar:
    """Whether a thread whose own extreme is ``part`` may have the place of the extreme of a row."""
    here = part.eq(best)
    return here | unary("isnan", best) if best.dtype.kind == "float" else here


def _wanted(first: RowLoop, second: RowLoop, between: Sequence[SetLocal]) -> ScalarVar | None:
    """The extreme that the first loop finds if all that the second one does is look for its place."""
    match second.body:
        case (Let(var=own, value=value), SetLocal(count, Binary("min" | "max", left, Select(cond, _, Const())))):
            if left != count:
                return None
        case _:
            return None
    values = {one.var: one.value for one in first.body if isinstance(one, Let)}
    for each in first.reductions:
        term = reduced_term(each.update)
        if (
            not isinstance(term, ScalarVar)
            or term not in values
            or first.alike((values[term],)) != second.alike((value,))
        ):
            continue
        is_extreme = isinstance(each.update.value, Select) and cond == _is_here(own, each.var)
        is_float = is_extreme and each.var.dtype.kind == "float"
        most = [one.var for one in first.reductions if is_float and reduced_term(one.update) == _bits_of(term)]
        if is_extreme and _is_whole(each.var, most, between):
            return each.var
    return None


def _bits_of(value: ScalarVar) -> Scalar:
    """The bits of a float without its sign: whole numbers, of which those of NaN are the largest."""
    kind = DTYPES[f"i{value.dtype.bits}"]
    return Binary("and", bits(value, kind), Const(2 ** (kind.bits - 1) - 1, kind))


def _is_nan(most: ScalarVar) -> Scalar:
    """Whether such bits are those of NaN."""
    return most > (0x7F800000 if most.dtype.bits == 32 else 0x7FF0000000000000)


def _is_whole(best: ScalarVar, most: Sequence[ScalarVar], between: Sequence[SetLocal]) -> bool:
    """Whether an extreme becomes NaN if the largest bits are those of one, and nothing else changes it."""
    match [one for one in between if one.var in (best, *most)]:
        case []:
            return best.dtype.kind != "float"
        case [SetLocal(var, Select(cond, Const(number), other))]:
            return var == other == best and any(cond == _is_nan(one) for one in most) and isnan(number)
        case _:
            return False


def _is_here(own: ScalarVar, best: ScalarVar) -> Scalar:
    """Whether an element is the extreme, or comes before all others since it is NaN."""
    here = own.eq(best)
    # If the extreme is no NaN, neither is any element.
    return here | unary("isnan", own) if own.dtype.kind == "float" else here


def _beats(value: Scalar, best: Scalar, *, op: str, is_first: bool) -> Scalar:
    """Whether a later value replaces the best so far, as lowerings write it."""
    if is_first:
        return before(value > best if op == "max" else value < best, value, best)
    as_good = value >= best if op == "max" else value <= best
    return as_good | unary("isnan", value) if value.dtype.kind == "float" else as_good
