"""Integer arithmetic that wraps at its width, as the loop IR defines it.

Signed overflow is undefined in C. Where intervals do not prove that a signed result fits, the arithmetic is unsigned
and the result is cast back. Integers of fewer than 32 bits are promoted to ``int``, which most of their results fit.
"""

from collections.abc import Callable
from dataclasses import dataclass

from openinfer.dtypes import DTYPES, INDEX, DType
from openinfer.loops.dim import Dim
from openinfer.loops.intervals import Interval, result_interval
from openinfer.loops.ir import Binary, Cast, Const, Scalar, ScalarVar, visit
from openinfer.synth.targets.cstyle.code import ExprText, Rank, joined
from openinfer.synth.targets.cstyle.dialect import Dialect
from openinfer.synth.targets.cstyle.widths import Widths, fits_narrow

OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}


@dataclass(frozen=True)
class WrappingArithmetic:
    """Prints sums, differences and products of integers; ``text_of`` prints their operands, ``converted`` casts."""

    text_of: Callable[[Scalar], ExprText]
    converted: Callable[[DType, ExprText], ExprText]
    dialect: Dialect
    widths: Widths

    def code(self, value: Binary) -> ExprText:
        """Signed arithmetic where it cannot wrap, otherwise unsigned arithmetic and a cast."""
        dtype = value.dtype
        is_unsigned = dtype.kind == "uint" and dtype.bits >= 32
        if is_unsigned or self._is_exact(value):
            return joined(self.text_of(value.left), OPERATORS[value.op], self.text_of(value.right))
        promoted = self._promoted(value) if self.dialect.promotes else None
        if promoted is not None:
            return self.converted(dtype, promoted[0])
        return self.converted(dtype, self._modulo(value, DTYPES[f"u{max(dtype.bits, 32)}"]))

    def _is_exact(self, value: Binary) -> bool:
        """Whether the result has the full width of its type and signed arithmetic cannot overflow."""
        return value.dtype.kind == "int" and self.widths.is_wide(value) and self.widths.fits(value)

    def _promoted(self, value: Scalar) -> tuple[ExprText, Interval] | None:
        """Arithmetic on small integers as the language does it, before the cast back; None if ``int`` may overflow."""
        if not _is_small(value.dtype) or any(map(self._is_kept_unsigned, visit(value))):
            return None
        match value:
            case Binary("add" | "sub" | "mul" as op, left, right) if not self._is_exact(value):
                one, other = self._promoted(left), self._promoted(right)
                ends = None if one is None or other is None else result_interval(op, one[1], other[1])
                if one is None or other is None or ends is None or not fits_narrow(ends):
                    return None
                return joined(one[0], OPERATORS[op], other[0]), ends
            case Const(number):
                text = self.dialect.literal(number, DTYPES["i32"])
                return ExprText(text, Rank.UNARY if number < 0 else Rank.ATOM), (int(number), int(number))
            case _:
                return self.text_of(value), self.widths.interval(value)

    def _is_kept_unsigned(self, value: Scalar) -> bool:
        return isinstance(value, ScalarVar) and value.name in self.widths.unsigned

    def _modulo(self, value: Binary, wide: DType) -> ExprText:
        """The same arithmetic on unsigned operands."""
        one, other = (self._unsigned(part, wide) for part in (value.left, value.right))
        if isinstance(value.left, Const) and isinstance(value.right, Const):
            one, other = (self.converted(wide, self.text_of(part)) for part in (value.left, value.right))
        return joined(one, OPERATORS[value.op], other)

    def _unsigned(self, value: Scalar, wide: DType) -> ExprText:
        """An operand converted to the unsigned type; nested arithmetic that wraps anyway needs no cast in between."""
        match value:
            case Const(number) if not isinstance(number, Dim) and 0 <= number < 2**32:
                return ExprText(self.dialect.literal(number, DTYPES["u32"]))
            case Binary("add" | "sub" | "mul", dtype=dtype) if _wraps_at(dtype, wide) and not self._is_exact(value):
                return self._modulo(value, wide)
            case Cast(operand, dtype) if dtype is not INDEX and dtype.bits == wide.bits and _is_integer(operand):
                return self.converted(wide, self.text_of(operand))
            case _:
                return self.converted(wide, self.text_of(value))


def _is_small(dtype: DType) -> bool:
    """Whether a type is of integers that are promoted."""
    return dtype is not INDEX and dtype.kind in ("int", "uint") and dtype.bits < 32


def _is_integer(value: Scalar) -> bool:
    return value.dtype.kind in ("int", "uint")


def _wraps_at(dtype: DType, wide: DType) -> bool:
    """Whether signed arithmetic of a type wraps at the width of an unsigned one."""
    return dtype is not INDEX and dtype.kind == "int" and dtype.bits == wide.bits
