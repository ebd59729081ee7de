"""Scalar expressions in VHDL. Loads, long products and divisions are computed beforehand and are variables here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from openinfer.dtypes import DType
from openinfer.loops.dim import Dim, span
from openinfer.loops.intervals import Interval
from openinfer.loops.ir import (
    Binary,
    Bits,
    Cast,
    Compare,
    Const,
    Round,
    Scalar,
    ScalarVar,
    Select,
    Unary,
)
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, WireRanges, WireType, of_dtype, wire


class UncomputableError(Exception):
    """An operation that no circuit computes; the message continues a sentence that begins with the node."""


@dataclass(frozen=True)
class Wire:
    """A VHDL expression and its type."""

    text: str
    type: WireType

    def to(self, other: WireType) -> str:
        """The number in another type: extended, or truncated to its low bits."""
        if self.type == other:
            return self.text
        if other == BOOLEAN:
            return f"({self.text} /= 0)"
        return f"{'oi_s' if other.kind == 'signed' else 'oi_u'}({self.text}, {other.bits})"


@dataclass(frozen=True)
class WireVariable:
    """A VHDL variable of a kernel."""

    name: str
    type: WireType
    storage: DType | None = None
    """The dtype of a float, which is only moved, as its stored bits."""


_INTEGERS = 1 << 31
_WORDS = {"eq": "=", "ne": "/=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SIGNS = {"add": "+", "sub": "-"}


def number(value: int, type_: WireType) -> str:
    r"""A constant.

    >>> number(-3, WireType("signed", 4)), number(1 << 40, WireType("unsigned", 41))[:18]
    ('to_signed(-3, 4)', 'unsigned\'("1000000')
    """
    if type_ == BOOLEAN:
        return "true" if value else "false"
    if -_INTEGERS < value < _INTEGERS:
        return f"to_{type_.kind}({value}, {type_.bits})"
    return f'{type_.kind}\'("{value & ((1 << type_.bits) - 1):0{type_.bits}b}")'


def stored_bits(value: float, dtype: DType) -> int:
    """The stored bits of a float."""
    return int.from_bytes(np.asarray(value).astype(dtype.array).tobytes(), "little")


@dataclass
class Expressions:
    """Prints expressions over the variables in scope at some point of a kernel."""

    variables: dict[str, WireVariable] = field(default_factory=dict)
    known: dict[str, Interval] = field(default_factory=dict)
    dims: dict[Const, WireVariable] = field(default_factory=dict)
    """Extents that the sequencer computes, and the ports that carry them."""
    contents: Mapping[str, Interval] = field(default_factory=dict)
    """Ranges of weight elements, by buffer name."""
    in_logic: bool = False
    """Whether products are adders in logic because multipliers are needed elsewhere."""
    products: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The printed products that use multipliers so far, and the widths of their factors."""

    def __post_init__(self) -> None:
        self.ranges = WireRanges(self.known, self.contents)

    def declare(self, var: ScalarVar, made: WireVariable, ends: Interval | None) -> None:
        """Bind a name to a variable from here on."""
        self.variables[var.name] = made
        self.known.pop(var.name, None)
        if ends is not None:
            self.known[var.name] = ends
        self.ranges.forget()

    def type_of(self, value: Scalar) -> WireType:
        """The VHDL type of an expression."""
        if value.dtype.kind == "bool":
            return BOOLEAN
        return wire(value.dtype, self.ranges.of(value))

    def text(self, value: Scalar, type_: WireType) -> str:
        """Print an expression, converted to a type."""
        return self.value(value).to(type_)

    def value(self, value: Scalar) -> Wire:
        """Print an expression."""
        if value.dtype.kind == "float":
            raise UncomputableError("computes with floats")
        known = self.constant(value)
        if known is not None:
            # Some tools do not fold constants.
            own = self.type_of(value)
            return Wire(number(known, own), own)
        match value:
            case Const(Dim()):
                return self._dim(value)
            case Const(constant):
                own = self.type_of(value)
                return Wire(number(int(constant), own), own)
            case ScalarVar(name):
                made = self.variables[name]
                return Wire(made.name, made.type)
            case Compare(op, left, right):
                one, other = self._alike(left, right)
                return Wire(f"({one} {_WORDS[op]} {other})", BOOLEAN)
            case Select(cond, then, otherwise):
                own = self.type_of(value)
                parts = self.text(cond, BOOLEAN), self.text(then, own), self.text(otherwise, own)
                return Wire(f"oi_sel({', '.join(parts)})", own)
            case Cast(operand):
                return self._cast(value, operand)
            case Round(operand, storage) if storage.kind != "float":
                kept = wire(storage, of_dtype(storage)) if storage.kind != "bool" else BOOLEAN
                return self._as(Wire(self.text(operand, kept), kept), value)
            case Bits(operand, storage=None) if operand.dtype.kind != "float":
                full = wire(operand.dtype, of_dtype(operand.dtype))
                return self._as(Wire(self.text(operand, full), full), value)
            case Unary(op, operand):
                return self._unary(op, operand, value)
            case Binary():
                return self._binary(value)
            case _:
                raise UncomputableError("computes with floats")

    def constant(self, value: Scalar) -> int | None:
        """The value of a constant expression, else None; variables and extents never count as constant."""
        if value.dtype.kind in ("bool", "float") or not isinstance(value, Binary | Cast | Unary | Select):
            return int(value.value) if isinstance(value, Const) and not isinstance(value.value, Dim) else None
        least, most = self.ranges.of(value)
        return least if least == most else None

    def _as(self, made: Wire, value: Scalar) -> Wire:
        own = self.type_of(value)
        return Wire(made.to(own), own)

    def _cast(self, value: Scalar, operand: Scalar) -> Wire:
        """Integers wrap: high bits that do not fit are dropped."""
        if operand.dtype.kind == "float":
            raise UncomputableError("computes with floats")
        return self._as(self.value(operand), value)

    def _dim(self, value: Const) -> Wire:
        if value not in self.dims:
            assert isinstance(value.value, Dim)
            type_ = wire(value.dtype, span(value.value))
            self.dims[value] = WireVariable(f"extent{len(self.dims)}", type_)
        found = self.dims[value]
        return Wire(found.name, found.type)

    def _alike(self, left: Scalar, right: Scalar) -> tuple[str, str]:
        """Two values in a common type."""
        one, other = self.value(left), self.value(right)
        if BOOLEAN in (one.type, other.type):
            return one.to(BOOLEAN), other.to(BOOLEAN)
        common = WireType(one.type.kind, max(one.type.bits, other.type.bits))
        return one.to(common), other.to(common)

    def _unary(self, op: str, operand: Scalar, value: Scalar) -> Wire:
        own = self.type_of(value)
        if own == BOOLEAN:
            return Wire(f"(not {self.text(operand, BOOLEAN)})", own)
        if op == "popcount":
            bits = WireType("unsigned", operand.dtype.bits)
            return Wire(Wire(f"oi_popcount({self.text(operand, bits)})", WireType("unsigned", 7)).to(own), own)
        one = self.text(operand, own)
        match op:
            case "neg":
                return Wire(f"(-{one})" if own.kind == "signed" else f"oi_neg({one})", own)
            case "not":
                return Wire(f"(not {one})", own)
            case "abs":
                # Use the operand's width: its minimum may need more bits than the result.
                wide = self.value(operand)
                return Wire(Wire(f"oi_abs({wide.text})", WireType("unsigned", wide.type.bits)).to(own), own)
            case _:
                raise UncomputableError("computes with floats")

    def _binary(self, value: Binary) -> Wire:
        own, op = self.type_of(value), value.op
        if own == BOOLEAN:
            return Wire(f"({self.text(value.left, own)} {op} {self.text(value.right, own)})", own)
        if op in _SIGNS:
            return Wire(f"({self.text(value.left, own)} {_SIGNS[op]} {self.text(value.right, own)})", own)
        if op == "mul":
            return Wire(self._product(value, own).to(own), own)
        if op in ("shl", "shr"):
            return self._shift(value, own)
        if op in ("div", "rem"):
            return self._power(value, own)
        one_text, other_text = self._alike(value.left, value.right)
        bits = max(self.value(value.left).type.bits, self.value(value.right).type.bits)
        text = f"({one_text} {op} {other_text})" if op in ("and", "or", "xor") else f"oi_{op}({one_text}, {other_text})"
        return Wire(Wire(text, WireType(own.kind, bits)).to(own), own)

    def _product(self, value: Binary, own: WireType) -> Wire:
        """A product. Multiplication by a constant becomes shifts and adds, which saves multipliers."""
        for left, right in ((value.left, value.right), (value.right, value.left)):
            if isinstance(right, Const) and not isinstance(right.value, Dim):
                return Wire(times(self.text(left, own), int(right.value), own), own)
        one, other = self.value(value.left), self.value(value.right)
        both = WireType(own.kind, one.type.bits + other.type.bits)
        if self.in_logic:
            return Wire(f"oi_product({one.text}, {other.text})", both)
        made = Wire(f"({one.text} * {other.text})", both)
        self.products[made.text] = one.type.bits, other.type.bits
        return made

    def _shift(self, value: Binary, own: WireType) -> Wire:
        amount = self.value(value.right)
        by = f"oi_u({amount.text}, {amount.type.bits})"
        if value.op == "shl":
            return Wire(f"oi_shl({self.text(value.left, own)}, {by})", own)
        left = self.value(value.left)
        return Wire(Wire(f"oi_shr({left.text}, {by})", left.type).to(own), own)

    def _power(self, value: Binary, own: WireType) -> Wire:
        """Division of a non-negative number by a power of two."""
        by, left = power_of(value), self.value(value.left)
        assert by is not None, "other divisions have been computed before"
        if value.op == "div":
            return Wire(Wire(f"shift_right({left.text}, {by})", left.type).to(own), own)
        low = Wire(f"oi_u({left.text}, {max(by, 1)})", WireType("unsigned", max(by, 1)))
        return Wire(low.to(own) if by else number(0, own), own)

    # --- floats ---------------------------------------------------------------------------------------------------

    def storage_of(self, value: Scalar) -> DType:
        """The storage dtype of a float that is only moved."""
        match value:
            case ScalarVar(name) if self.variables[name].storage is not None:
                found = self.variables[name].storage
                assert found is not None
                return found
            case Select(_, Const(), otherwise):
                return self.storage_of(otherwise)
            case Select(_, then, _):
                return self.storage_of(then)
            case Const():
                return value.dtype
            case _:
                raise UncomputableError("computes with floats")

    def moved(self, value: Scalar, storage: DType) -> str:
        """A float that is only moved, as its stored bits."""
        own = WireType("unsigned", storage.bits)
        match value:
            case ScalarVar(name) if self.variables[name].storage is storage:
                return self.variables[name].name
            case Select(cond, then, otherwise):
                parts = self.text(cond, BOOLEAN), self.moved(then, storage), self.moved(otherwise, storage)
                return f"oi_sel({', '.join(parts)})"
            case Const(constant):
                return number(stored_bits(constant, storage), own)
            case Round(operand, rounded) if rounded is storage:
                return self.moved(operand, storage)
            case _:
                raise UncomputableError("computes with floats")


def times(text: str, factor: int, type_: WireType) -> str:
    """A number times a constant, modulo the type's width, as sums and differences of shifted copies.

    >>> times("x", 7, WireType("signed", 9))
    '(shift_left(x, 3) - x)'
    """
    terms: list[tuple[str, int]] = []
    at, rest = 0, factor & ((1 << type_.bits) - 1)
    while rest and at < type_.bits:
        if rest & 1:
            digit = 2 - (rest & 3)
            terms.append(("+" if digit > 0 else "-", at))
            rest -= digit
        rest >>= 1
        at += 1
    if not terms:
        return number(0, type_)
    terms.sort(key=lambda one: (one[0] == "-", -one[1]))
    shifted = [(sign, f"shift_left({text}, {by})" if by else text) for sign, by in terms]
    made = shifted[0][1] if shifted[0][0] == "+" else f"({number(0, type_)} - {shifted[0][1]})"
    for sign, one in shifted[1:]:
        made = f"({made} {sign} {one})"
    return made


def power_of(value: Binary) -> int | None:
    """The exponent of a constant divisor that is a power of two, else None."""
    if not isinstance(value.right, Const) or isinstance(value.right.value, Dim):
        return None
    divisor = int(value.right.value)
    return divisor.bit_length() - 1 if divisor > 0 and divisor & (divisor - 1) == 0 else None
