"""Value ranges of integer variables, including those that change in loops.

Loops are analysed again and again with the ranges found so far, until nothing changes. Ranges that still grow then are
widened to the limits of the type, and narrowed again by conditions. A variable that only counts is analysed at once: it
changes as often as the loops around it run.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from openinfer.loops.intervals import Interval, facts_of, interval, of_type
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Combine,
    For,
    If,
    Let,
    Local,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    While,
    walk,
)

_MOST_PASSES = 4
"""The number of passes over the loops before growing ranges are widened."""
LocalRanges = dict[str, Interval]


def local_ranges(body: tuple[Statement, ...]) -> LocalRanges:
    """The range of each integer ``Local`` in a kernel, whose name has one type.

    Values that threads combine are left out, positions excepted: those are places that one of the threads has found.

    >>> from openinfer.loops.ir import Const
    >>> width, limit = ScalarVar("width"), Const(100, INDEX)
    >>> doubled = While(width < limit, (SetLocal(width, width * 2),))
    >>> local_ranges((Local(width, Const(1, INDEX)), doubled))
    {'width': (1, 198)}
    """
    limits = _limits(body)
    if not limits:
        return {}
    table: LocalRanges = {}
    for number in range(_MOST_PASSES):
        found = _joined(table, _Pass(limits, table).run(body))
        if found == table:
            return table
        table = found if number < _MOST_PASSES - 1 else _widened(table, found, limits)
    while (found := _joined(table, _Pass(limits, table).run(body))) != table:
        table = _widened(table, found, limits)
    for _ in range(2):
        table = _Pass(limits, table).run(body)
    return table


def _limits(body: tuple[Statement, ...]) -> LocalRanges:
    """The variables to analyse, with the limits of their types."""
    every = list(walk(body))
    combined = {var for one in every if isinstance(one, Combine) for var in (*one.variables, *one.before)}
    combined = {var for var in combined if var.dtype is not INDEX}
    variables = {one.var for one in every if isinstance(one, Local)}
    several = {one.name for one in variables if any(one.name == other.name and one != other for other in variables)}
    return {
        one.name: of_type(one.dtype)
        for one in variables - combined
        if one.dtype.kind in ("int", "uint") and one.name not in several
    }


def _joined(one: Mapping[str, Interval], other: Mapping[str, Interval]) -> LocalRanges:
    return {name: _union(one.get(name, ends), ends) for name, ends in other.items()}


def _union(one: Interval, other: Interval) -> Interval:
    return min(one[0], other[0]), max(one[1], other[1])


def _widened(before: LocalRanges, now: LocalRanges, limits: LocalRanges) -> LocalRanges:
    """Widen ranges to the limits of the type, on the sides where they have grown."""
    return {
        name: (
            limits[name][0] if low < before[name][0] else low,
            limits[name][1] if high > before[name][1] else high,
        )
        for name, (low, high) in now.items()
    }


@dataclass
class _Pass:
    """One pass over all statements, given the ranges found before."""

    limits: Mapping[str, Interval]
    """The variables that are analysed, with the limits of their types."""
    table: Mapping[str, Interval]
    _found: LocalRanges = field(default_factory=dict)
    _grown: LocalRanges = field(default_factory=dict)
    """How much counting lowers or raises variables."""
    _runs: list[int | None] = field(default_factory=list)
    """The maximum trip count of each enclosing loop; None if unknown."""
    _declared: dict[str, int] = field(default_factory=dict)
    """The loop depth at which each variable is declared."""

    def run(self, body: tuple[Statement, ...]) -> LocalRanges:
        """The ranges found in this pass."""
        self._body(body, {})
        found = {}
        for name, (low, high) in self._found.items():
            least, most = self.limits[name]
            less, more = self._grown.get(name, (0, 0))
            found[name] = (low + less, high + more) if least <= low + less and high + more <= most else (least, most)
        return found

    def _body(self, body: Sequence[Statement], known: LocalRanges) -> None:
        for statement in body:
            match statement:
                case Let(var, value) if var.dtype.kind in ("int", "uint"):
                    known[var.name] = interval(value, known, facts=())
                case Local(var, value) if var.name in self.limits:
                    self._declared[var.name] = len(self._runs)
                    self._take(var, interval(value, known, facts=()))
                    known[var.name] = self._anywhere(var)
                case Local(var):
                    known.pop(var.name, None)
                case SetLocal(var, value) if var.name in self.limits:
                    self._assigned(var, value, known)
                case For(index, extent, inside):
                    count = max(interval(extent, known, facts=())[1], 0)
                    self._loop(inside, count, {**known, index.name: (0, max(count - 1, 0))}, None)
                    self._forget(inside, known)
                case While(condition, inside):
                    self._loop(inside, None, dict(known), condition)
                    self._forget(inside, known)
                case If(condition, then, otherwise):
                    for part, holds in ((then, True), (otherwise, False)):
                        self._body(part, _where(condition, known, holds=holds))
                    self._forget((*then, *otherwise), known)

    def _loop(self, body: Sequence[Statement], count: int | None, known: LocalRanges, condition: Scalar | None) -> None:
        self._forget(body, known)
        inside = known if condition is None else _where(condition, known)
        self._runs.append(count)
        self._body(body, inside)
        self._runs.pop()

    def _assigned(self, var: ScalarVar, value: Scalar, known: LocalRanges) -> None:
        """The effect of an assignment on a range; counting applies as often as the assignment is reached."""
        runs = self._runs[self._declared[var.name] :]
        match value:
            case Binary("add", left, right) if var in (left, right) and None not in runs:
                low, high = interval(right if left == var else left, known, facts=())
                for count in runs:
                    low, high = low * (count or 0), high * (count or 0)
                less, more = self._grown.get(var.name, (0, 0))
                self._grown[var.name] = less + min(low, 0), more + max(high, 0)
            case _:
                self._take(var, interval(value, known, facts=()))
        known[var.name] = self._anywhere(var)

    def _take(self, var: ScalarVar, ends: Interval) -> None:
        self._found[var.name] = _union(self._found.get(var.name, ends), ends)

    def _anywhere(self, var: ScalarVar) -> Interval:
        """The range of a variable wherever it is read; in the first pass, the range found so far."""
        return self.table.get(var.name, self._found[var.name])

    def _forget(self, body: Iterable[Statement], known: LocalRanges) -> None:
        """After statements that assign variables, only what holds everywhere is known of them."""
        for one in walk(tuple(body)):
            if isinstance(one, SetLocal) and one.var.name in self._found:
                known[one.var.name] = self._anywhere(one.var)


def _where(condition: Scalar, known: LocalRanges, *, holds: bool = True) -> LocalRanges:
    """The ranges of variables where a condition holds, or where it does not."""
    facts = facts_of(condition, known, holds=holds)
    return {**known, **{value.name: ends for value, ends in facts if isinstance(value, ScalarVar)}}
