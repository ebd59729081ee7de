"""A canonical form of integer expressions, which makes equal ones comparable however they are written.

A form is a polynomial over names with integer coefficients. Divisions and remainders, which round, are names of their
own, after whole multiples of the divisor have been taken out. Equal forms have equal values wherever both are defined;
the converse does not hold.
"""

from collections.abc import Set
from functools import partial, reduce

from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Operator, Ref

Form = tuple[tuple[tuple[str, ...], int], ...]
"""Terms in order: the names that are multiplied, with repetition, and the coefficient."""
_MOST_TERMS = 256


def form_of(expr: Expr) -> Form:
    """The canonical form of an expression.

    >>> from openinfer.ir.operand_text import parse_expr
    >>> form_of(parse_expr("2*(T+1)")) == form_of(parse_expr("2+T*2"))
    True
    >>> form_of(parse_expr("T/2*2")) == form_of(parse_expr("T")), form_of(parse_expr("(4*T+7)/2"))
    (False, (((), 3), (('T',), 2)))
    """
    match expr:
        case Num(value):
            return _ordered({(): value})
        case Ref(name):
            return _ordered({(name,): 1})
        case Neg(operand):
            return _product(_ordered({(): -1}), form_of(operand))
        case BinaryExpr(op, left, right):
            return combined(op, form_of(left), form_of(right))


def constant_of(form: Form) -> int | None:
    """The value of a form; None if it contains names.

    >>> constant_of(form_of(BinaryExpr("-", Ref("T"), Ref("T")))), constant_of(form_of(Ref("T")))
    (0, None)
    """
    if not form:
        return 0
    return form[0][1] if len(form) == 1 and form[0][0] == () else None


def expr_of(form: Form, names: Set[str]) -> Expr | None:
    """The expression of a form; None if it contains names other than the given ones.

    >>> str(expr_of((((), 3), (("T",), -2), (("T", "T"), 1)), {"T"})), expr_of((((), 0),), set())
    ('3+(-2)*T+T*T', Num(value=0))
    """
    found: Expr | None = None
    for factors, number in form:
        if not names >= set(factors):
            return None
        refs: list[Expr] = [*map(Ref, factors)]
        term = reduce(partial(BinaryExpr, "*"), refs if number == 1 and refs else [Num(number), *refs])
        found = term if found is None else BinaryExpr("+", found, term)
    return found or Num(0)


def _text(form: Form) -> str:
    """A form as part of a name; unlike its repr, it grows no faster than the form."""
    return f"({'+'.join('*'.join((str(factor), *names)) for names, factor in form)})"


def _ordered(terms: dict[tuple[str, ...], int]) -> Form:
    return tuple(sorted((names, factor) for names, factor in terms.items() if factor))


def combined(op: Operator, one: Form, other: Form) -> Form:
    """The form of an operator applied to two forms."""
    match op:
        case "+":
            return _sum(one, other)
        case "-":
            return _sum(one, _product(_ordered({(): -1}), other))
        case "*":
            return _product(one, other)
        case _:
            return _rounded(op, one, other)


def _sum(one: Form, other: Form) -> Form:
    terms = dict(one)
    for names, factor in other:
        terms[names] = terms.get(names, 0) + factor
    return _ordered(terms)


def _product(one: Form, other: Form) -> Form:
    if len(one) * len(other) > _MOST_TERMS:
        # Products of long sums have too many terms, so the product becomes a single name.
        first, second = sorted((one, other))
        return _ordered({(f"{_text(first)}*{_text(second)}",): 1})
    terms: dict[tuple[str, ...], int] = {}
    for left, factor in one:
        for right, other_factor in other:
            names = tuple(sorted((*left, *right)))
            terms[names] = terms.get(names, 0) + factor * other_factor
    return _ordered(terms)


def _rounded(op: Operator, one: Form, other: Form) -> Form:
    """The form of a division or remainder: whole multiples of the divisor divide exactly; only the rest rounds."""
    divisor = constant_of(other)
    if not divisor or divisor < 0:
        return _ordered({(f"{_text(one)}{op}{_text(other)}",): 1})
    rest = _ordered({names: factor % divisor for names, factor in one})
    rounded: Form = ()
    value = constant_of(rest)  # less than the divisor
    if value is None:
        rounded = _ordered({(f"{_text(rest)}{op}{_text(other)}",): 1})
    elif op == "%":
        rounded = rest
    return rounded if op == "%" else _sum(_ordered({names: factor // divisor for names, factor in one}), rounded)
