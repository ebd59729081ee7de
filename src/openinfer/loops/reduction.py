"""Reduction loops: their iterations may run in lanes that are combined at the end.

Sums and products of floats come out in another order, which their bounds allow; everything else comes out the same.
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
    """An accumulator of a loop: the initial value of its lanes, and how two of them are combined."""

    var: ScalarVar
    update: SetLocal

    @property
    def first(self) -> Scalar:
        """What a lane begins with: what changes nothing, or the variable's own value where it may count twice."""
        value = self.update.value
        neutral = _NEUTRAL.get(value.op) if isinstance(value, Binary) else None
        return self.var if neutral is None else Const(neutral, self.var.dtype)

    def joined(self, lane: Scalar) -> Scalar:
        """The variable's value with that of a lane."""
        value = self.update.value
        match value:
            case Binary(op=op):
                return Binary(op, self.var, lane)
            case Select(cond=Compare(op=op)):
                return Select(Compare(op, lane, self.var), lane, self.var)
            case _:
                raise TypeError(value)


def reductions(loop: For) -> tuple[Reduction, ...]:
    """The accumulators of a loop; none if it does anything that lanes must not."""
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
    """What an assignment adds to its variable, or compares with it; None where it does something else."""
    var = update.var
    match update.value:
        case Binary(op=op, left=left, right=right) if op in (*_NEUTRAL, *_IDEMPOTENT):
            return right if left == var else left if right == var else None
        case Select(cond=Compare(op="gt" | "lt", left=value, right=old), then=then, otherwise=otherwise):
            return value if old == var and otherwise == var and then == value else None
        case _:
            return None
