"""Index expressions in the sequencer, checked for overflow and division by zero as they are computed."""

from collections.abc import Callable
from dataclasses import dataclass

from openinfer.ir.expr import LEAST_INDEX, BinaryExpr, Expr, Neg, Num, Operator, Ref
from openinfer.loops.build import cast
from openinfer.loops.ir import Binary, BinaryOp, Const, Scalar, ScalarVar, Select
from openinfer.synth.memory.checks.records import IndexFailure
from openinfer.synth.program.integers import Computed, combined, constant, is_plain
from openinfer.synth.targets.vhdl.code import I64, SequencerCode, conjunction, integer

_TOO_LONG, _BY_ZERO = 1, 2


@dataclass(frozen=True)
class FoundInteger:
    """An integer and its range."""

    value: Scalar
    range: Computed


class IndexCode:
    """Computes expressions; ``named`` resolves names. The first error wins."""

    def __init__(self, code: SequencerCode, named: Callable[[str], FoundInteger]) -> None:
        self._code = code
        self._named = named
        self._bad: ScalarVar | None = None

    @property
    def bad(self) -> ScalarVar:
        """1 if a result needs more than 64 bits, 2 after a division by zero, else 0."""
        if self._bad is None:
            self._bad = self._code.local(integer(0), (0, 2), "bad")
        return self._bad

    def begin(self) -> None:
        """Clear the error."""
        self._bad = None

    def integer(self, expr: Expr) -> FoundInteger:
        """Compute an expression. Division rounds down."""
        match expr:
            case Num(value):
                found = constant(value)
                if found.can_fail:
                    self._wrong(integer(0).eq(0), _TOO_LONG)
                    return FoundInteger(integer(0), found)
                return FoundInteger(integer(value), found)
            case Ref(name):
                return self._of_name(name)
            case Neg(operand):
                return self._binary("-", FoundInteger(integer(0), constant(0)), self.integer(operand))
            case BinaryExpr(op, left, right):
                return self._binary(op, self.integer(left), self.integer(right))

    def _of_name(self, name: str) -> FoundInteger:
        found = self._named(name)
        if found.value.dtype.name == "u64":
            value = self._code.let(found.value)
            self._wrong(value > 2**63 - 1, _TOO_LONG)
            return FoundInteger(self._code.let(Binary("and", value, _like(2**63 - 1, value))), found.range)
        return found

    def _binary(self, op: Operator, left: FoundInteger, right: FoundInteger) -> FoundInteger:
        found = combined(op, left.range, right.range)
        one, other = (self._wide(each.value) for each in (left, right))
        if is_plain(op, left.range, right.range):
            return FoundInteger(self._code.let(Binary(_OPS[op], one, other)), found)
        match op:
            case "+":
                return FoundInteger(self._sum(one, other), found)
            case "-":
                return FoundInteger(self._difference(one, other), found)
            case "*":
                return FoundInteger(self._product(one, other), found)
            case _:
                return FoundInteger(self._quotient(op, one, other), found)

    def _wide(self, value: Scalar) -> Scalar:
        return self._code.let(cast(value, I64))

    def _wrong(self, condition: Scalar, what: int) -> None:
        bad = self.bad
        with self._code.when(conjunction([bad.eq(0), condition])):
            self._code.set(bad, integer(what))

    def _sum(self, one: Scalar, other: Scalar) -> Scalar:
        made = self._code.let(one + other)
        self._wrong(((one ^ made) & (other ^ made)) < 0, _TOO_LONG)
        return made

    def _difference(self, one: Scalar, other: Scalar) -> Scalar:
        made = self._code.let(one - other)
        self._wrong(((one ^ other) & (one ^ made)) < 0, _TOO_LONG)
        return made

    def _product(self, one: Scalar, other: Scalar) -> Scalar:
        made = self._code.let(one * other)
        by = self._code.let(Select(one.eq(0), integer(1), one))
        back = self._code.let(made // by)
        least = conjunction([one.eq(-1), other.eq(LEAST_INDEX)])
        self._wrong(conjunction([one.ne(0), Binary("or", back.ne(other), least)]), _TOO_LONG)
        return made

    def _quotient(self, op: str, one: Scalar, other: Scalar) -> Scalar:
        self._wrong(other.eq(0), _BY_ZERO)
        if op == "/":
            self._wrong(conjunction([other.eq(-1), one.eq(LEAST_INDEX)]), _TOO_LONG)
        by = self._code.let(Select(other.eq(0), integer(1), other))
        rest = self._code.let(one % by)
        is_off = self._code.let(conjunction([rest.ne(0), Binary("xor", one < 0, by < 0)]))
        if op == "/":
            return self._code.let(one // by - Select(is_off, integer(1), integer(0)))
        return self._code.let(Select(is_off, rest + by, rest))

    # --- failures -------------------------------------------------------------------------------------------------

    def fail_if_bad(self, failure: IndexFailure, others: Scalar | None = None) -> None:
        """Fail if an expression could not be computed, or if the condition ``others`` holds."""
        if self._bad is not None:
            self._code.fail_if(self._bad.eq(_BY_ZERO), failure.by_zero)
            self._code.fail_if(self._bad.eq(_TOO_LONG), failure.too_long)
        if others is not None:
            assert failure.otherwise is not None
            self._code.fail_if(others, failure.otherwise)


_OPS: dict[str, BinaryOp] = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}


def _like(value: int, other: Scalar) -> Scalar:
    return Const(value, other.dtype)
