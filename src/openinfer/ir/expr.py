"""Integer expressions over sizes, loop indices and scalar variables: in dimensions, indices and loop bounds.

Expressions are compared by value. Their text has as few parentheses as possible and reads back to the same expression.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Operator = Literal["+", "-", "*", "/", "%"]
MAX_DEPTH = 200
_RANK: dict[str, int] = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_UNARY_RANK = 3


class TooDeepError(ValueError):
    """An expression nested deeper than anyone writes by hand."""


@dataclass(frozen=True, slots=True)
class Num:
    """An integer."""

    value: int
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of a size, a loop index or a scalar variable."""

    name: str
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Neg:
    """The negative of an expression."""

    operand: "Expr"
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _deeper(self.operand.depth))

    def __str__(self) -> str:
        return f"-{_wrapped(self.operand, _UNARY_RANK)}"


@dataclass(frozen=True, slots=True)
class Binary:
    """Two expressions and an operator; division floors.

    >>> str(Binary("*", Num(3), Binary("+", Ref("D"), Num(1))))
    '3*(D+1)'
    """

    op: Operator
    left: "Expr"
    right: "Expr"
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _deeper(max(self.left.depth, self.right.depth)))

    def __str__(self) -> str:
        rank = _RANK[self.op]
        return f"{_wrapped(self.left, rank)}{self.op}{_wrapped(self.right, rank + 1)}"


Expr = Num | Ref | Neg | Binary


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        message = f"the expression is nested more than {MAX_DEPTH} deep"
        raise TooDeepError(message)
    return depth + 1


def _wrapped(expr: Expr, rank: int) -> str:
    match expr:
        case Binary() if _RANK[expr.op] < rank:
            return f"({expr})"
        case Num() if expr.value < 0 and rank > 1:
            return f"({expr})"
        case Neg() if rank > 1:
            return f"({expr})"
    return str(expr)


def negate(expr: Expr) -> Expr:
    """The negative of an expression; that of a number is a number.

    >>> negate(Num(3))
    Num(value=-3)
    """
    return Num(-expr.value) if isinstance(expr, Num) else Neg(expr)


def names(expr: Expr) -> Iterator[str]:
    """The names an expression refers to, from left to right.

    >>> list(names(Binary("+", Ref("D"), Neg(Ref("i")))))
    ['D', 'i']
    """
    match expr:
        case Ref():
            yield expr.name
        case Neg():
            yield from names(expr.operand)
        case Binary():
            yield from names(expr.left)
            yield from names(expr.right)


def evaluate(expr: Expr, lookup: Callable[[str], int]) -> int:
    """The value of an expression; ``lookup`` gives the values of names. Division by zero raises ZeroDivisionError.

    >>> evaluate(Binary("/", Num(-7), Num(2)), {}.__getitem__)
    -4
    """
    match expr:
        case Num():
            return expr.value
        case Ref():
            return lookup(expr.name)
        case Neg():
            return -evaluate(expr.operand, lookup)
        case Binary():
            left, right = evaluate(expr.left, lookup), evaluate(expr.right, lookup)
            match expr.op:
                case "+":
                    return left + right
                case "-":
                    return left - right
                case "*":
                    return left * right
                case "/":
                    return left // right
                case "%":
                    return left % right


def constant(expr: Expr) -> int | None:
    """The value of an expression without names, or None.

    >>> constant(Binary("*", Num(3), Num(4))), constant(Ref("D"))
    (12, None)
    """
    if any(True for _ in names(expr)):
        return None
    try:
        return evaluate(expr, lambda _name: 0)
    except ZeroDivisionError:
        return None
