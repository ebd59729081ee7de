"""Contractions as plain loops: what they mean, for targets and for sums that are better taken one by one."""

from openinfer.loops.build import cast
from openinfer.loops.ir import (
    ACCUMULATOR,
    INDEX,
    Assign,
    Binary,
    Const,
    Contraction,
    For,
    If,
    Local,
    LoopKind,
    Statement,
    Store,
    Var,
)


def expanded(one: Contraction) -> tuple[Statement, ...]:
    """A contraction as plain loops: what a target without a generator of its own does."""
    total = Var(ACCUMULATOR, one.accumulator)
    left, right = (cast(factor, one.accumulator) for factor in one.factors)
    add: Statement = Assign(total, Binary("add", total, Binary("mul", left, right)))
    if one.valid is not None:
        add = If(one.valid, (add,))
    inner: tuple[Statement, ...] = (add,)
    for variable, extent in zip(reversed(one.bound), reversed(one.reduced), strict=True):
        inner = (For(variable, Const(extent, INDEX), inner),)
    body: tuple[Statement, ...] = (
        Local(total, Const(0, one.accumulator)),
        *inner,
        Store(one.out, one.out_index, one.epilogue),
    )
    for variable, extent in zip(reversed(one.free), reversed(one.extents), strict=True):
        body = (For(variable, Const(extent, INDEX), body, LoopKind.PARALLEL),)
    return body
