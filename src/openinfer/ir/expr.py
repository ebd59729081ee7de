"""Integer expressions over sizes, loop indices and scalar variables, for dimensions, indices and loop bounds.

Expressions compare by value. Their text has as few parentheses as possible and parses back to the same expression.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Operator = Literal["+", "-", "*", "/", "%"]
MAX_DEPTH = 200
_RANK: dict[str, int] = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}
_UNARY_RANK = 3


class TooDeepError(ValueError):
    """The expression is nested too deeply to be written by hand."""


@dataclass(frozen=True, slots=True)
class Num:
    """An integer."""

    value: int
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to a size, a loop index or a scalar variable."""

    name: str
    depth: int = field(default=0, init=False, compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Neg:
    """The negation of an expression."""

    operand: "Expr"
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _deeper(self.operand.depth))

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True, slots=True)
class BinaryExpr:
    """A binary operation on two expressions; division floors.

    >>> str(BinaryExpr("*", Num(3), BinaryExpr("+", Ref("D"), Num(1))))
    '3*(D+1)'
    """

    op: Operator
    left: "Expr"
    right: "Expr"
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _deeper(max(self.left.depth, self.right.depth)))

    def __str__(self) -> str:
        return _text(self)


Expr = Num | Ref | Neg | BinaryExpr


ONE = Num(1)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        message = f"the expression is nested more than {MAX_DEPTH} deep"
        raise TooDeepError(message)
    return depth + 1


def _text(expr: Expr) -> str:
    """An expression with as few parentheses as possible. Not recursive: it is printed deep inside nested bodies."""
    parts: list[str] = []
    stack: list[str | tuple[Expr, int]] = [(expr, 0)]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        inner, rank = item
        pieces: list[str | tuple[Expr, int]]
        match inner:
            case BinaryExpr():
                own = _RANK[inner.op]
                pieces = [(inner.left, own), inner.op, (inner.right, own + 1)]
            case Neg():
                pieces = ["-", (inner.operand, _UNARY_RANK)]
            case _:
                pieces = [str(inner)]
        stack.extend(reversed(["(", *pieces, ")"] if _needs_parentheses(inner, rank) else pieces))
    return "".join(parts)


def _needs_parentheses(expr: Expr, rank: int) -> bool:
    match expr:
        case BinaryExpr():
            return _RANK[expr.op] < rank
        case Num():
            return expr.value < 0 and rank > 1
        case Neg():
            return rank > 1
    return False


def negate(expr: Expr) -> Expr:
    """Negate an expression; a number stays a number.

    >>> negate(Num(3))
    Num(value=-3)
    """
    return Num(-expr.value) if isinstance(expr, Num) else Neg(expr)


def names(expr: Expr) -> Iterator[str]:
    """The names that an expression refers to, from left to right.

    >>> list(names(BinaryExpr("+", Ref("D"), Neg(Ref("i")))))
    ['D', 'i']
    """
    todo = [expr]
    while todo:
        match todo.pop():
            case Ref(name):
                yield name
            case Neg(operand):
                todo.append(operand)
            case BinaryExpr(_, left, right):
                todo += (right, left)


LEAST_INDEX, MOST_INDEX = -(1 << 63), (1 << 63) - 1
"""Indices, and all intermediate results of computing one, are 64-bit integers."""


def evaluate(expr: Expr, lookup: Callable[[str], int]) -> int:
    """The value of an expression; ``lookup`` gives the values of names. Division by zero raises ZeroDivisionError.

    >>> evaluate(BinaryExpr("/", Num(-7), Num(2)), {}.__getitem__)
    -4
    """
    match expr:
        case Num():
            return expr.value
        case Ref():
            return lookup(expr.name)
        case Neg():
            return -evaluate(expr.operand, lookup)
        case BinaryExpr():
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


def evaluate_checked(expr: Expr, lookup: Callable[[str], int]) -> int:
    """The value of an index expression in 64-bit arithmetic, as in generated code.

    Raises OverflowError if a name or an intermediate result needs more bits, ZeroDivisionError for a division by zero.

    >>> evaluate_checked(BinaryExpr("*", Num(3), Ref("n")), {"n": 4}.__getitem__)
    12
    """
    match expr:
        case Num():
            found = expr.value
        case Ref():
            found = lookup(expr.name)
        case Neg():
            found = -evaluate_checked(expr.operand, lookup)
        case BinaryExpr():
            left, right = evaluate_checked(expr.left, lookup), evaluate_checked(expr.right, lookup)
            found = evaluate(BinaryExpr(expr.op, Num(left), Num(right)), lookup)
    if not LEAST_INDEX <= found <= MOST_INDEX:
        message = f"'{expr}' is {found}"
        raise OverflowError(message)
    return found


def interval(op: Operator, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """The minimum and maximum of a result, given those of the operands; divisions by zero are left out.

    >>> interval("-", (0, 8), (1, 3)), interval("/", (4, 4), (0, 2)), interval("%", (0, 9), (4, 4))
    ((-3, 7), (2, 4), (0, 3))
    """
    if op in "/%":
        sides = [(max(right[0], 1), right[1]), (right[0], min(right[1], -1))]
        divisors = [one for least, most in sides if least <= most for one in (least, most)]
        if not divisors:
            return 0, 0
        if op == "%":
            least, most = min(divisors) + 1, max(divisors) - 1
            return min(least, 0), max(min(most, left[1]) if left[0] >= 0 and least > 0 else most, 0)
        ends = [one // other for one in left for other in divisors]
    else:
        ends = [evaluate(BinaryExpr(op, Num(one), Num(other)), lambda _name: 0) for one in left for other in right]
    return min(ends), max(ends)


def parts_of(expr: Expr) -> Iterator[Expr]:
    """An expression and all of its subexpressions."""
    stack = [expr]
    while stack:
        one = stack.pop()
        yield one
        if isinstance(one, Neg):
            stack.append(one.operand)
        elif isinstance(one, BinaryExpr):
            stack += [one.left, one.right]


def quotients(expr: Expr) -> Iterator[BinaryExpr]:
    """The divisions in an expression.

    >>> [str(one) for one in quotients(BinaryExpr("+", BinaryExpr("/", Ref("T"), Num(2)), Num(1)))]
    ['T/2']
    """
    return (one for one in parts_of(expr) if isinstance(one, BinaryExpr) and one.op == "/")


def constant(expr: Expr) -> int | None:
    """The value of an expression without names; None if there are names.

    >>> constant(BinaryExpr("*", Num(3), Num(4))), constant(Ref("D"))
    (12, None)
    """
    return constants(expr)[id(expr)]


def constants(expr: Expr) -> dict[int, int | None]:
    """The values of all subexpressions, keyed by identity; None for names and divisions by zero."""
    found: dict[int, int | None] = {}

    def value(part: Expr) -> int | None:
        match part:
            case Num(number):
                result: int | None = number
            case Neg(operand):
                inner = value(operand)
                result = None if inner is None else -inner
            case BinaryExpr(op, left, right):
                one, other = value(left), value(right)
                if one is None or other is None or (op in "/%" and other == 0):
                    result = None
                else:
                    result = evaluate(BinaryExpr(op, Num(one), Num(other)), lambda _name: 0)
            case _:
                result = None
        found[id(part)] = result
        return result

    value(expr)
    return found
