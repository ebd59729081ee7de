"""Index expressions in C: arithmetic that cannot overflow is plain, all other is checked while running.

Loop indices have 32 bits on devices with such addresses, if their ranges fit. Arithmetic on them has too if its result
fits, and 64 otherwise.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from openinfer.ir.expr import LEAST_INDEX as LEAST
from openinfer.ir.expr import MOST_INDEX as MOST
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Operator, Ref
from openinfer.synth.program.integers import Computed, IntegerFault, combined, constant, is_plain
from openinfer.synth.targets.cstyle.code import ExprText, Rank, joined

NARROW, WIDE = "int32_t", "int64_t"
_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}


@dataclass(frozen=True)
class Integer:
    """An expression, what it can be, and what can go wrong in computing it."""

    text: str
    range: Computed
    function: str = ""
    """The function of the runtime that computes it, if one does."""
    before: tuple[str, ...] = ()
    """Statements in front of the one that computes it: operands that must be computed first."""
    rank: Rank = Rank.ATOM
    """How tightly its text binds."""
    is_narrow: bool = False
    """Whether its text has 32 bits; otherwise it has 64."""

    @property
    def narrowed(self) -> str:
        """Its text with 32 bits, for one that fits."""
        return self.text if self.is_narrow else f"({NARROW}){self.code.inside(Rank.UNARY)}"

    @property
    def widened(self) -> "Integer":
        """The same with 64 bits."""
        return replace(self, text=f"({WIDE}){self.code.inside(Rank.UNARY)}", rank=Rank.UNARY, is_narrow=False)

    @property
    def code(self) -> ExprText:
        """Its text as an operand."""
        return ExprText(self.text, self.rank)

    @property
    def can_fail(self) -> bool:
        """Whether its text names ``bad``."""
        return self.range.can_fail

    @property
    def is_literal(self) -> bool:
        """Whether it is written as a plain number."""
        return self.text == str(self.range.least)


def fits_narrow(found: Computed) -> bool:
    """Whether 32 bits hold all of a range."""
    return found.least >= -(1 << 31) and found.most < 1 << 31


def number(value: int) -> Integer:
    """A constant; one that no int64_t holds cannot be computed."""
    found = constant(value)
    if found.can_fail:
        return Integer("oi_index_mul(INT64_MAX, 2, &bad)", found, function="oi_index_mul")
    if -(1 << 31) < value < 1 << 31:
        return Integer(str(value), found, rank=Rank.ATOM if value >= 0 else Rank.UNARY, is_narrow=True)
    return Integer(wide(value), found)


def wide(value: int) -> str:
    """A number as a constant of 64 bits.

    >>> wide(7), wide(-7), wide(-(1 << 63))
    ('INT64_C(7)', '(-INT64_C(7))', '(-INT64_C(9223372036854775807) - 1)')
    """
    if value == LEAST:
        return f"(-INT64_C({MOST}) - 1)"
    return f"(-INT64_C({-value}))" if value < 0 else f"INT64_C({value})"


class IntegerPrinter:
    """Prints expressions; ``named`` says what a name is, ``needs`` collects the functions that are called.

    C leaves open in which order it computes operands. ``temporary`` gives names to those that must be computed before
    others, since the first mistake counts; without it, any may.
    """

    def __init__(
        self, named: Callable[[str], Integer], needs: set[str], temporary: Callable[[], str] | None = None
    ) -> None:
        self._named = named
        self._needs = needs
        self._temporary = temporary

    def integer(self, expr: Expr) -> Integer:
        """An expression in C. Division rounds down."""
        match expr:
            case Num(value):
                found = number(value)
            case Ref(name):
                found = self._named(name)
            case Neg(operand):
                found = self._binary("-", number(0), self.integer(operand))
            case BinaryExpr(op, left, right):
                found = self._binary(op, self.integer(left), self.integer(right))
        if found.function:
            self._needs.add(found.function)
        return found

    def integers(self, exprs: Iterable[Expr]) -> list[Integer]:
        """Expressions that are computed in this order; the statements before them stand with the first."""
        before, found = self._in_order([self.integer(expr) for expr in exprs])
        return [replace(found[0], before=before), *found[1:]] if before else found

    def _in_order(self, integers: Sequence[Integer]) -> tuple[tuple[str, ...], list[Integer]]:
        """Statements, and integers behind them of which it does not matter any more which is computed first."""
        if self._temporary is None:
            return (), list(integers)
        before: list[str] = []
        found: list[Integer] = []
        for at, one in enumerate(integers):
            before += one.before
            own = one.range.faults
            later = frozenset[IntegerFault]().union(*(other.range.faults for other in integers[at + 1 :]))
            if own and later and len(own | later) > 1:
                name = self._temporary()
                before.append(f"const int64_t {name} = {one.text};")
                found.append(replace(one, text=name, function="", before=(), rank=Rank.ATOM, is_narrow=False))
            else:
                found.append(replace(one, before=()))
        return tuple(before), found

    def _binary(self, op: Operator, one: Integer, other: Integer) -> Integer:
        before, (left, right) = self._in_order((one, other))
        found = combined(op, one.range, other.range)
        if left.is_literal and right.is_literal and found.least == found.most and not found.can_fail:
            return number(found.least)
        if is_plain(op, one.range, other.range):
            is_narrow = left.is_narrow and right.is_narrow
            if is_narrow and not fits_narrow(found):
                is_narrow = False
                left, right = (left, right.widened) if left.is_literal else (left.widened, right)
            text = joined(left.code, op, right.code)
            return Integer(text.text, found, before=before, rank=text.rank, is_narrow=is_narrow)
        function = f"oi_index_{_NAMES[op]}"
        return Integer(f"{function}({left.text}, {right.text}, &bad)", found, function, before)


def can_fail(integers: Iterable[Integer]) -> bool:
    """Whether computing one of them can set ``bad``."""
    return any(one.can_fail for one in integers)
