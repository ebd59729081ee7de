"""Simplifies extents over dynamic sizes, so that terms that cancel disappear."""

from collections.abc import Mapping

from openinfer.ir.expr import Expr, evaluate, parts_of, quotients
from openinfer.ir.polynomial import expr_of as form_expr
from openinfer.loops.dim import Dim, sizes_in

DynamicSizes = Mapping[str, int]
"""The dynamic sizes by name."""


def tidied(value: int, sizes: DynamicSizes) -> int:
    """An extent without terms that cancel; unchanged if that is no shorter.

    >>> from openinfer.ir.expr import Ref
    >>> sizes = {name: Dim(8, Ref(name)) for name in "PT"}
    >>> tidied(sizes["P"] + sizes["T"] - sizes["P"], sizes)
    T
    """
    if not isinstance(value, Dim):
        return value
    names = sizes_in(value)
    short = form_expr(value.form, names)
    if short is None or not names <= sizes.keys() or _count(short) >= _count(value.expr):
        return value
    return evaluate(short, sizes.__getitem__)


def has_quotient(extent: int) -> bool:
    """Whether an extent contains a division, which may round down."""
    return isinstance(extent, Dim) and any(quotients(extent.expr))


def _count(expr: Expr) -> int:
    return sum(1 for _ in parts_of(expr))
