"""The widths of integers in a circuit: the range of each expression decides its bits, not its dtype alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DType
from openinfer.loops.dim import Dim, span
from openinfer.loops.intervals import Interval, product_interval, quotient_interval, remainder_interval
from openinfer.loops.ir import (
    Binary,
    Bits,
    Cast,
    Compare,
    Const,
    Load,
    Round,
    Scalar,
    ScalarVar,
    Select,
    Unary,
    children,
    rebuilt,
)

WireKind = Literal["signed", "unsigned", "boolean"]


@dataclass(frozen=True)
class WireType:
    """The VHDL type of a value: an integer of some bits, or a boolean."""

    kind: WireKind
    bits: int = 1

    def __str__(self) -> str:
        return "boolean" if self.kind == "boolean" else f"{self.kind}({self.bits - 1} downto 0)"


BOOLEAN = WireType("boolean")


def of_dtype(dtype: DType) -> Interval:
    """The range of an integer dtype."""
    return int(dtype.minimum), int(dtype.maximum)


def wire(dtype: DType, ends: Interval) -> WireType:
    """The narrowest type for integers of a dtype within an interval.

    >>> from openinfer.dtypes import DTYPES
    >>> str(wire(DTYPES["i32"], (-3, 100))), str(wire(DTYPES["u8"], (0, 0)))
    ('signed(7 downto 0)', 'unsigned(0 downto 0)')
    """
    if dtype.kind == "bool":
        return BOOLEAN
    least, most = ends
    if dtype.kind == "uint":
        return WireType("unsigned", max(most.bit_length(), 1))
    return WireType("signed", max(most.bit_length(), (-least - 1).bit_length() if least < 0 else 0) + 1)


class WireRanges:
    """Ranges of expressions, given those of variables."""

    def __init__(self, known: Mapping[str, Interval], contents: Mapping[str, Interval]) -> None:
        self._known = known
        self._contents = contents
        self._found: dict[Scalar, Interval] = {}

    def of(self, value: Scalar) -> Interval:
        """The range of an integer expression."""
        if isinstance(value, ScalarVar):
            return self._known.get(value.name, of_dtype(value.dtype))
        if value not in self._found:
            least, most = of_dtype(value.dtype)
            exact = self._exact(value)
            fits = exact is not None and least <= exact[0] and exact[1] <= most
            self._found[value] = exact if exact is not None and fits else (least, most)
        return self._found[value]

    def forget(self) -> None:
        """Drop cached ranges, since variables change."""
        self._found.clear()

    def _exact(self, value: Scalar) -> Interval | None:
        """The range of the result before it wraps; None if only the dtype is known."""
        match value:
            case Const(number):
                return span(number) if isinstance(number, int) else (int(number), int(number))
            case Load(buffer=buffer):
                return self._contents.get(buffer.name, of_dtype(buffer.dtype))
            case Compare():
                return 0, 1
            case Select(_, then, otherwise):
                one, other = self.of(then), self.of(otherwise)
                return min(one[0], other[0]), max(one[1], other[1])
            case Cast(operand):
                return (0, 1) if operand.dtype.kind == "bool" else self.of(operand)
            case Round(operand, storage):
                ends, own = self.of(operand), of_dtype(storage)
                return ends if own[0] <= ends[0] and ends[1] <= own[1] else own
            case Unary(op, operand):
                return self._unary(op, operand)
            case Binary(op, left, right) if value.dtype.kind != "bool":
                found = _BINARY.get(op)
                return None if found is None else found(self.of(left), self.of(right))
            case Bits() | _:
                return None

    def _unary(self, op: str, operand: Scalar) -> Interval | None:
        if operand.dtype.kind == "bool":
            return None
        least, most = self.of(operand)
        match op:
            case "neg":
                return -most, -least
            case "not" if operand.dtype.kind == "int":
                return -1 - most, -1 - least
            case "abs":
                return (0 if least <= 0 <= most else min(abs(least), abs(most))), max(abs(least), abs(most))
            case "popcount":
                return 0, operand.dtype.bits
            case _:
                return None


def _shifted_right(one: Interval, other: Interval) -> Interval:
    least, most = max(other[0], 0), min(max(other[1], 0), 64)
    ends = [end >> by for end in one for by in (min(least, 64), most)]
    return min(ends), max(ends)


def _masked(one: Interval, other: Interval) -> Interval | None:
    """Bitwise and: at most the smaller of the operands that are not negative."""
    caps = [ends[1] for ends in (one, other) if ends[0] >= 0]
    return (0, min(caps)) if caps else None


_BINARY: Mapping[str, Callable[[Interval, Interval], Interval | None]] = {
    "add": lambda one, other: (one[0] + other[0], one[1] + other[1]),
    "sub": lambda one, other: (one[0] - other[1], one[1] - other[0]),
    "mul": product_interval,
    "div": quotient_interval,
    "rem": remainder_interval,
    "min": lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
    "max": lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
    "shr": _shifted_right,
    "and": _masked,
}


def unwrapped(value: Scalar, ranges: WireRanges) -> Scalar:
    """Remove casts that make arithmetic wrap where ranges prove that nothing wraps.

    >>> from openinfer.dtypes import DTYPES
    >>> i32, u32 = DTYPES["i32"], DTYPES["u32"]
    >>> x, y = ScalarVar("x", i32), ScalarVar("y", i32)
    >>> wrapping = Cast(Binary("mul", Cast(x, u32), Cast(y, u32)), i32)
    >>> unwrapped(wrapping, WireRanges({"x": (-9, 9), "y": (0, 99)}, {})) == Binary("mul", x, y)
    True
    """
    parts = children(value)
    if not parts:
        return value
    value = rebuilt(value, tuple(unwrapped(part, ranges) for part in parts))
    match value:
        case Cast(Binary("add" | "sub" | "mul" as op, Cast(left), Cast(right), _)) | Cast(
            Binary("add" | "sub" | "mul" as op, Cast(left), Const() as right, _)
        ) if left.dtype == value.dtype and value.operand.dtype.bits == value.dtype.bits:
            other = Const(right.value, value.dtype) if isinstance(right, Const) else right
            found = Binary(op, left, other) if other.dtype == left.dtype else None
        case _:
            return value
    if found is None or value.dtype.kind != "int" or (isinstance(right, Const) and isinstance(right.value, Dim)):
        return value
    exact = _BINARY[op](ranges.of(found.left), ranges.of(found.right))
    least, most = of_dtype(value.dtype)
    return found if exact is not None and least <= exact[0] and exact[1] <= most else value
