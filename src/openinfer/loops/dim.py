"""Symbolic extents: integers that are expressions over dynamic sizes.

A ``Dim`` is an integer, its value at the bounds of the sizes, that remembers how it was computed. Shape rules and
lowerings written for integers work on it unchanged; what they compute from it is again a ``Dim``.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openinfer.ir.expr import (
    BinaryExpr,
    Expr,
    Neg,
    Num,
    Operator,
    TooDeepError,
    evaluate,
    interval,
    names,
    parts_of,
    quotients,
)
from openinfer.ir.polynomial import Form, combined, constant_of, form_of
from openinfer.ir.polynomial import expr_of as form_expr

MOST_PARTS = 50_000
"""The maximum length of an extent's expression."""
_FEW_PARTS, _SHALLOW = 128, 32
"""Expressions shorter and shallower than this keep the form they were written in, for readers of the code."""
_LARGEST_FOLDED = 2**31
"""The numbers of an expression are folded up to this one, so that they overflow nowhere."""


class Symbolic(int):
    """An integer with symbolic arithmetic: a subclass implements all operators in one method."""

    @abstractmethod
    def _with(self, op: Operator, other: Any, *, swapped: bool = False) -> Any:
        """The result of an operator on this integer and another; ``swapped`` if this one is the right operand."""

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("/", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("/", other, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._with("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._with("%", other, swapped=True)


class Dim(Symbolic):
    """An integer with the expression it was computed from.

    >>> from openinfer.ir.expr import Ref
    >>> length = Dim(128, Ref("T"))
    >>> str((2 * length + 1).expr), 2 * length + 1
    ('2*T+1', 2*T+1)
    """

    expr: Expr
    span: tuple[int, int]
    """Its minimum and maximum over all sizes: 4/T is largest where T is smallest."""
    parts: int
    """The length of the expression as code, where a floor division prints both operands twice."""
    _form: Form | None

    def __new__(cls, value: int, expr: Expr, span: tuple[int, int] | None = None, parts: int = 1) -> "Dim":
        """The value at the bounds, and the expression; without a span, anything from zero to the value is possible."""
        made = super().__new__(cls, value)
        made.expr, made.parts = expr, parts
        made.span = span or (0, value)
        made._form = None
        return made

    @property
    def form(self) -> Form:
        """The expression in canonical form."""
        if self._form is None:
            self._form = form_of(self.expr)
        return self._form

    def _with(self, op: Operator, other: Any, *, swapped: bool = False) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        value = evaluate(BinaryExpr(op, Num(int(left)), Num(int(right))), lambda _name: 0)
        return _simplified(op, left, right, value)

    def __neg__(self) -> "Dim":
        return Dim(-int(self), Neg(self.expr), (-self.span[1], -self.span[0]), self.parts + 1)

    def __repr__(self) -> str:
        return f"{self.expr}"


def form(value: int) -> Form | int:
    """A comparison key: equal for extents that are equal for all dynamic sizes.

    >>> from openinfer.ir.expr import Ref
    >>> length = Dim(8, Ref("T"))
    >>> form(length * 2) == form(length + length), form(length) == form(8)
    (True, False)
    """
    if not isinstance(value, Dim):
        return value
    number = constant_of(value.form)
    return value.form if number is None else number


def is_same(one: int, other: int) -> bool:
    """Whether two extents are equal for all dynamic sizes."""
    return form(one) == form(other)


def is_same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two shapes are equal for all dynamic sizes."""
    return len(one) == len(other) and all(map(is_same, one, other))


def is_multiple(value: int, of: int) -> bool:
    """Whether an extent is a multiple of a number for all dynamic sizes; no, if that is not simple to tell.

    >>> from openinfer.ir.expr import Ref
    >>> length = Dim(8, Ref("T"))
    >>> is_multiple(length * 16 + 8, 8), is_multiple(length * 4, 8), is_multiple(24, 8)
    (True, False, True)
    """
    found = form(value)
    return found % of == 0 if isinstance(found, int) else all(count % of == 0 for _, count in found)


def expr_of(value: int) -> Expr:
    """The expression of an extent; a plain integer becomes a number."""
    return value.expr if isinstance(value, Dim) else Num(value)


def _simplified(op: Operator, left: int, right: int, value: int) -> int:
    """The result, with identities such as ``x + 0`` and ``x * 1`` applied."""
    if op == "*" and any(one == 0 and not isinstance(one, Dim) for one in (left, right)):
        return 0
    for neutral, kept in (((op, right), left), ((op, left), right)):
        is_number = not isinstance(neutral[1], Dim)
        if is_number and ((op == "+" and neutral[1] == 0) or (op == "*" and neutral[1] == 1)):
            return kept
    if not isinstance(right, Dim) and ((op == "-" and right == 0) or (op == "/" and right == 1)):
        return left
    if op == "/" and is_same(left, right):
        return 1  # also for 0 / 0, as with zero heads: nothing is computed then
    ends, parts = interval(op, span(left), span(right)), _joined_parts(op, left, right)
    if parts <= _FEW_PARTS and max(expr_of(left).depth, expr_of(right).depth) < _SHALLOW:
        found = _folded(op, left, right) or BinaryExpr(op, expr_of(left), expr_of(right))
        return Dim(value, found, ends, parts)
    forms = [one.form if isinstance(one, Dim) else form_of(Num(one)) for one in (left, right)]
    joined = combined(op, *forms)
    shorter = _shorter(op, left, right, joined)
    if isinstance(shorter, Num):
        return shorter.value
    if shorter is not None:
        parts = max(_count(shorter), _parts(left) if any(quotients(shorter)) else 0)
    if parts > MOST_PARTS:
        message = f"the extent is an expression of more than {MOST_PARTS:,} parts"
        raise TooDeepError(message)
    made = Dim(value, shorter or BinaryExpr(op, expr_of(left), expr_of(right)), ends, parts)
    made._form = joined
    return made


def _parts(value: int) -> int:
    return value.parts if isinstance(value, Dim) else 1


def _joined_parts(op: Operator, left: int, right: int) -> int:
    return (_parts(left) + _parts(right)) * (2 if op in "/%" else 1) + 1


def _count(expr: Expr) -> int:
    return sum(1 for _ in parts_of(expr))


def _shorter(op: Operator, left: int, right: int, joined: Form) -> Expr | None:
    """The result with like terms combined or constants folded, if that is shorter."""
    if len(joined) < _FEW_PARTS:
        found = form_expr(joined, sizes_in(left) | sizes_in(right))
        if found is not None and _count(found) <= _parts(left) + _parts(right):
            return found
    return _folded(op, left, right)


def _folded(op: Operator, left: int, right: int) -> Expr | None:
    """The result where one operand is a number that joins one in the other, as in ``T-2+1`` and ``3*(2*T)``."""
    for one, other in ((left, right), (right, left)):
        inner = expr_of(one)
        if isinstance(other, Dim) or not isinstance(inner, BinaryExpr):
            continue
        if op == "*" and inner.op == "*":
            return _folded_product(inner, other)
        if inner.op in "+-" and isinstance(inner.right, Num) and (op == "+" or (op == "-" and one is left)):
            number = (inner.right.value if inner.op == "+" else -inner.right.value) + (other if op == "+" else -other)
            return _plus(inner.left, number)
    return None


def _folded_product(inner: BinaryExpr, factor: int) -> Expr | None:
    """A product times a number, if the product has a number of its own."""
    match inner.left, inner.right:
        case (Num(number), rest) if abs(number * factor) <= _LARGEST_FOLDED:
            return BinaryExpr("*", Num(number * factor), rest)
        case (rest, Num(number)) if abs(number * factor) <= _LARGEST_FOLDED:
            return BinaryExpr("*", rest, Num(number * factor))
        case _:
            return None


def _plus(expr: Expr, number: int) -> Expr | None:
    if abs(number) > _LARGEST_FOLDED:
        return None
    if number == 0:
        return expr
    return BinaryExpr("+" if number > 0 else "-", expr, Num(abs(number)))


def span(value: int) -> tuple[int, int]:
    """The minimum and maximum of an extent over all sizes."""
    return value.span if isinstance(value, Dim) else (value, value)


def larger(one: int, other: int) -> int:
    """The larger of two extents for all sizes: one plus their difference times a quotient that is 0 or 1.

    >>> from openinfer.ir.expr import Ref
    >>> rest = larger(Dim(8, Ref("T")) - 3, 0)
    >>> [at(rest, {"T": size}) for size in (0, 3, 4, 8)], rest.span
    ([0, 0, 1, 5], (0, 5))
    """
    apart = one - other
    least, most = span(apart)
    if least >= 0:
        return one
    if most <= 0:
        return other
    reach = max(-least, most + 1)
    found = other + apart * ((apart + reach) // reach)
    ends = (max(span(one)[0], span(other)[0]), max(span(one)[1], span(other)[1]))
    return Dim(max(int(one), int(other)), expr_of(found), ends, _parts(found))


def smaller(one: int, other: int) -> int:
    """The smaller of two extents for all sizes."""
    found = one - larger(one - other, 0)
    ends = (min(span(one)[0], span(other)[0]), min(span(one)[1], span(other)[1]))
    return Dim(int(found), found.expr, ends, found.parts) if isinstance(found, Dim) else found


def most_elements(shape: Iterable[int]) -> int:
    """The most elements that a tensor of a shape can have.

    >>> from openinfer.ir.expr import Ref
    >>> heads = Dim(2, Ref("H"))
    >>> most_elements((4 // heads, 3)), most_elements((heads, 3))
    (12, 6)
    """
    count: int = 1
    for extent in shape:
        count = extent * count
    return max(span(count)[1], 0)


def is_symbolic(value: int) -> bool:
    """Whether an extent depends on a dynamic size."""
    return isinstance(value, Dim)


def at(value: int, sizes: Mapping[str, int]) -> int:
    """The value of an extent at given sizes."""
    return evaluate(value.expr, sizes.__getitem__) if isinstance(value, Dim) else value


def sizes_in(value: int) -> set[str]:
    """The dynamic sizes an extent depends on."""
    return set(names(value.expr)) if isinstance(value, Dim) else set()
