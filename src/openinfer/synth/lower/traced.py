"""Integers that record comparisons: the path conditions under which a shape rule gives its answer.

Shape rules are Python. To find the sizes that one rejects, it is run at chosen sizes with such integers, which record
every comparison that other sizes could decide differently.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from openinfer.ir.expr import Operator, Ref
from openinfer.loops.dim import Dim, Symbolic, expr_of, form, span
from openinfer.synth.program.ir import Comparison

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
}


@dataclass
class Path:
    """The comparisons of one run with their outcomes, in order."""

    taken: list[tuple[Comparison, bool]] = field(default_factory=list)

    def size(self, name: str, value: int, bound: int) -> "Traced":
        """A dynamic size with its value in this run."""
        return Traced(value, Dim(bound, Ref(name)), self)

    def ask(self, op: Literal["==", "<"], left: int, right: int) -> bool:
        """The outcome of a comparison; it is recorded if other sizes could change it."""
        answer = plain(left) == plain(right) if op == "==" else plain(left) < plain(right)
        one, other = symbol(left), symbol(right)
        apart = one - other
        least, most = span(apart)
        is_decided = isinstance(form(apart), int) or least > 0 or most < 0 or (op == "<" and least >= 0)
        asked = (Comparison(op, expr_of(one), expr_of(other)), answer)
        if not is_decided and asked not in self.taken:
            self.taken.append(asked)
        return answer


class Traced(Symbolic):
    """An integer computed from dynamic sizes; ``symbol`` is its symbolic value."""

    symbol: int
    path: Path

    def __new__(cls, value: int, symbol: int, path: Path) -> "Traced":
        """A value in this run, with its symbolic value."""
        made = super().__new__(cls, value)
        made.symbol = symbol
        made.path = path
        return made

    def _with(self, op: Operator, other: Any, *, swapped: bool = False) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            own = self._settled()  # e.g. a float: Python's arithmetic
            return _PYTHON[op](other, own) if swapped else _PYTHON[op](own, other)
        left, right = (other, self) if swapped else (self, other)
        if op in "/%" and self.path.ask("==", right, 0):
            raise ZeroDivisionError
        value = _PYTHON[op](plain(left), plain(right))
        return Traced(value, _PYTHON[op](symbol(left), symbol(right)), self.path)

    def __neg__(self) -> "Traced":
        return Traced(-plain(self), -self.symbol, self.path)

    def _settled(self) -> int:
        """The plain number; what is computed from it holds for this number only, so that becomes a condition."""
        self.path.ask("==", self, value := plain(self))
        return value

    def __bool__(self) -> bool:
        return not self.path.ask("==", self, 0)

    def __hash__(self) -> int:
        return hash(self._settled())

    def __float__(self) -> float:
        return float(self._settled())

    def __truediv__(self, other: Any) -> Any:
        return self._settled() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._settled()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and self.path.ask("==", self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: int) -> bool:
        return self.path.ask("<", self, other)

    def __gt__(self, other: int) -> bool:
        return self.path.ask("<", other, self)

    def __le__(self, other: int) -> bool:
        return not self.path.ask("<", other, self)

    def __ge__(self, other: int) -> bool:
        return not self.path.ask("<", self, other)


def symbol(value: int) -> int:
    """The symbolic value of an integer."""
    return value.symbol if isinstance(value, Traced) else value


def plain(value: int) -> int:
    """The plain number."""
    return int.__add__(value, 0) if isinstance(value, Traced) else value
