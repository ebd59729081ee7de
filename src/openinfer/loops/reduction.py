"""Reduction loops, whose iterations may run in lanes that are combined at the end.

Sums and products of floats are reordered, which their error bounds allow; all other results are the same.
"""

from dataclasses import dataclass

from openinfer.loops.ir import (
    Binary,
    Compare,
    Const,
    For,
    Let,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Store,
    scalars,
    visit,
)

_NEUTRAL = {"add": 0, "mul": 1}
_IDEMPOTENT = ("max", "min", "and", "or")


@dataclass(frozen=True)
class Reduction:
    """An accumulator of a loop: how its lanes are initialized, and how they are combined."""

    var: ScalarVar
    update: SetLocal

    @property
    def first(self) -> Scalar:
        """The initial value of a lane: the neutral element, or the variable's own value for idempotent operations."""
        value = self.update.value
        neutral = _NEUTRAL.get(value.op) if isinstance(value, Binary) else None
        return self.var if neutral is None else Const(neutral, self.var.dtype)

    def joined(self, lane: Scalar) -> Scalar:
        """The variable combined with a lane."""
        value = self.update.value
        match value:
            case Binary(op=op):
                return Binary(op, self.var, lane)
            case Select(cond=Compare(op=op)):
                return Select(Compare(op, lane, self.var), lane, self.var)
            case _:
                raise TypeError(value)


def reductions(loop: For) -> tuple[Reduction, ...]:
    """The accumulators of a loop; none if the loop does anything that lanes must not do."""
    updates = [statement for statement in loop.body if isinstance(statement, SetLocal)]
    variables = {update.var for update in updates}
    if len(variables) < len(updates) or not all(isinstance(one, Let | Store | SetLocal) for one in loop.body):
        return ()
    inside = [reduced_term(one) if isinstance(one, SetLocal) else None for one in loop.body]
    for statement, value in zip(loop.body, inside, strict=True):
        if isinstance(statement, SetLocal) and value is None:
            return ()
        seen = scalars(statement) if value is None else (value,)
        if any(one in variables for scalar in seen for one in visit(scalar)):
            return ()
    return tuple(Reduction(update.var, update) for update in updates)


def reduced_term(update: SetLocal) -> Scalar | None:
    """The term that an assignment combines with its variable; None if it is not a reduction."""
    var = update.var
    match update.value:
        case Binary(op=op, left=left, right=right) if op in (*_NEUTRAL, *_IDEMPOTENT):
            return right if left == var else left if right == var else None
        case Select(cond=Compare(op="gt" | "lt", left=value, right=old), then=then, otherwise=otherwise):
            return value if old == var and otherwise == var and then == value else None
        case _:
            return None
