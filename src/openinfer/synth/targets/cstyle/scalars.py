"""Scalar expressions in C.

Arithmetic means exactly what the loop IR says: integers wrap (unsigned arithmetic underneath), floats are not
contracted, minimum and maximum propagate NaN. Functions that C lacks are called ``oi_...``; the support code has them.
"""

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne

from openinfer.dtypes import DType
from openinfer.ir.expr import Binary as SizeBinary
from openinfer.ir.expr import Expr, Neg, Num, Ref
from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Bits,
    Buffer,
    Cast,
    Compare,
    Const,
    Load,
    Math,
    Round,
    Scalar,
    Select,
    Unary,
    Var,
    children,
)
from openinfer.loops.used import offset
from openinfer.synth.targets.cstyle.types import literal, scalar_type

_PLAIN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}
_COMPARED = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_CALLS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "rint": "rint", "trunc": "trunc"}


class ScalarPrinter:
    """Prints expressions and remembers which support functions they need."""

    def __init__(self, name_of: Callable[[Buffer], str]) -> None:
        self._name_of = name_of
        self.needs: set[str] = set()
        self.positions: set[str] = set()
        """Variables that are loop indices or computed from them: arithmetic on them cannot overflow."""
        self._in_offset = False

    def need(self, function: str) -> str:
        """The name of a support function, which is now needed."""
        self.needs.add(function)
        return function

    def text(self, value: Scalar) -> str:
        """An expression in C."""
        match value:
            case Const(number, dtype):
                return size_text(number.expr) if isinstance(number, Dim) else _constant(number, dtype)
            case Var(name):
                return name
            case Load(buffer, index):
                return self.load(buffer, self.offset(buffer, index))
            case Unary():
                return self._unary(value)
            case Binary():
                return self._binary(value)
            case Compare(op, left, right):
                return self._compare(op, left, right)
            case Select(cond, then, otherwise):
                return f"({self.text(cond)} ? {self.text(then)} : {self.text(otherwise)})"
            case Cast(operand, dtype):
                return self._cast(operand, dtype)
            case Bits(operand, dtype, storage):
                name = f"oi_bits_{operand.dtype.name}_{dtype.name}"
                if storage is not None:
                    name = f"oi_{'from' if dtype.kind == 'float' else 'to'}_{storage.name}"
                return f"{self.need(name)}({self.text(operand)})"
            case Round(operand, storage):
                return self._round(operand, storage)
            case Math(function, args):
                name = self.need(f"oi_{function}_{value.dtype.name}")
                return f"{name}({', '.join(map(self.text, args))})"
            case _:
                raise TypeError(value)

    def bare(self, value: Scalar) -> str:
        """An expression without parentheses around it, where a statement has its own or needs none."""
        text = self.text(value)
        return text[1:-1] if text.startswith("(") and _is_wrapped(text) else text

    # --- memory ---------------------------------------------------------------------------------------------------

    def offset(self, buffer: Buffer, index: tuple[Scalar, ...]) -> str:
        """The position of an element, counted in elements."""
        outside, self._in_offset = self._in_offset, True
        text = self.bare(offset(buffer, index))
        self._in_offset = outside
        return text

    def load(self, buffer: Buffer, offset: str) -> str:
        """An element in its compute type."""
        name, dtype = self._name_of(buffer), buffer.dtype
        if dtype.is_packed:
            return f"{self.need(f'oi_load_{dtype.name}')}({name}, {offset})"
        if dtype.name in ("f8", "bf16", "f16"):
            return f"{self.need(f'oi_from_{dtype.name}')}({name}[{offset}])"
        return f"({name}[{offset}] != 0)" if dtype.kind == "bool" else f"{name}[{offset}]"

    def store(self, buffer: Buffer, offset: str, value: Scalar) -> str:
        """A statement that puts a value into an element."""
        name, dtype, text = self._name_of(buffer), buffer.dtype, self.bare(value)
        if dtype.is_packed:
            return f"{self.need(f'oi_store_{dtype.name}')}({name}, {offset}, {text});"
        if dtype.name in ("f8", "bf16", "f16"):
            return f"{name}[{offset}] = {self.need(f'oi_to_{dtype.name}')}({text});"
        return f"{name}[{offset}] = {text};"

    def _round(self, operand: Scalar, storage: DType) -> str:
        text = self.text(operand)
        if storage.name in ("f8", "bf16", "f16"):
            self.need(f"oi_from_{storage.name}")
            self.need(f"oi_to_{storage.name}")
            return f"oi_from_{storage.name}(oi_to_{storage.name}({text}))"
        if storage.is_packed and not storage.values:
            return f"{self.need(f'oi_wrap_{storage.name}')}({text})"
        return text

    def _compare(self, op: str, left: Scalar, right: Scalar) -> str:
        """A comparison; one of integers whose outcome is known, in a form that compilers do not warn about."""
        outcome = _outcome(op, left, right)
        if outcome is not None:
            known = right if isinstance(left, Const) else left
            if isinstance(known, Const) and not isinstance(known.value, Dim):
                return "true" if outcome else "false"
            text = self.text(known)
            return f"(({text} ^ {text}) {'==' if outcome else '!='} 0)"
        return f"({self.text(left)} {_COMPARISONS[op]} {self.text(right)})"

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def _unary(self, value: Unary) -> str:
        dtype, text = value.operand.dtype, self.text(value.operand)
        suffix = "" if dtype.name == "f64" else "f"
        match value.op:
            case "neg":
                return f"(-{text})" if dtype.kind == "float" else self._wrapped("-", "0", text, dtype)
            case "abs" if dtype.kind == "float":
                return f"__builtin_fabs{suffix}({text})"
            case "abs":
                return text if dtype.kind == "uint" else f"{self.need(f'oi_abs_{dtype.name}')}({text})"
            case "not":
                if dtype.kind == "bool":
                    return f"(!{text})"
                if dtype.kind == "uint" and dtype.bits < 32:
                    # Where it could see the complement, gcc would call a comparison with it a mistake.
                    return f"{self.need(f'oi_not_{dtype.name}')}({text})"
                return f"(({scalar_type(dtype)})~{text})"
            case "popcount":
                return f"{self.need(f'oi_popcount_{dtype.name}')}({text})"
            case "isnan":
                return f"__builtin_isnan({text})"
            case "isinf":
                return f"(__builtin_isinf({text}) != 0)"
            case "signbit":
                return f"(__builtin_signbit({text}) != 0)"
            case _:
                name = f"oi_{_CALLS[value.op]}_{dtype.name}"
                return f"{self.need(name)}({text})"

    def _binary(self, value: Binary) -> str:
        dtype = value.dtype
        left, right = self.text(value.left), self.text(value.right)
        op = value.op
        if op == "xor" and dtype.kind == "bool":
            return self._compare("ne", value.left, value.right)
        if op in _BITS:
            sign = 2 * _BITS[op] if dtype.kind == "bool" else _BITS[op]
            text = f"({_hexadecimal(left) if op == 'xor' else left} {sign} {right})"
            return text if dtype.kind == "bool" or dtype.bits >= 32 else f"(({scalar_type(dtype)}){text})"
        if op in ("min", "max", "shl", "shr", "copysign", "nextafter"):
            name = self.need(f"oi_{op}_{dtype.name}")
            return f"{name}({left}, {right})"
        if op == "rem" and dtype.kind == "float":
            return f"{self.need(f'oi_fmod_{dtype.name}')}({left}, {right})"
        if dtype.kind == "float" or (dtype is INDEX and self.is_position(value)):
            return f"({left} {_PLAIN[op]} {right})"
        if op in ("div", "rem"):
            if dtype.kind == "uint":
                return f"(({scalar_type(dtype)})({left} {_PLAIN[op]} {right}))"
            return f"{self.need(f'oi_{op}_{dtype.name}')}({left}, {right})"
        return self._wrapped(_PLAIN[op], left, right, dtype)

    def is_position(self, value: Scalar) -> bool:
        """Whether an integer is a place in memory, and not one of the values there, which wrap."""
        if self._in_offset or isinstance(value, Const):
            return True
        if isinstance(value, Var):
            return value.name in self.positions
        return not isinstance(value, Load) and all(map(self.is_position, children(value)))

    def _wrapped(self, sign: str, left: str, right: str, dtype: DType) -> str:
        """Integer arithmetic modulo the width: unsigned underneath, where overflow is defined."""
        own = scalar_type(dtype)
        wide = f"uint{max(dtype.bits, 32)}_t"
        return f"(({own})(({wide}){left} {sign} ({wide}){right}))"

    def _cast(self, operand: Scalar, dtype: DType) -> str:
        text = self.text(operand)
        if dtype.kind == "bool":
            return f"({text} != 0)"
        return f"(({scalar_type(dtype)}){text})"


def _constant(number: float, dtype: DType) -> str:
    if dtype is INDEX and number > -(2**63):
        return f"({int(number)})" if number < 0 else str(int(number))
    return literal(number, dtype)


def share(count: str, parts: int) -> tuple[str, str]:
    """Where the share of a part begins and ends, of so many things.

    >>> share("12", 2), share("7", 2)
    (('part * 6', '(part + 1) * 6'), ('part * 7 / 2', '(part + 1) * 7 / 2'))
    """
    if count.isdecimal() and int(count) % parts == 0:
        each = str(int(count) // parts)
        return f"part * {each}", f"(part + 1) * {each}"
    return f"part * {count} / {parts}", f"(part + 1) * {count} / {parts}"


def size_text(expr: Expr, named: Callable[[str], str] = "s_{}".format) -> str:
    """An expression over dynamic sizes in C; ``named`` says what a size is called there."""
    match expr:
        case Num(value):
            return str(value) if value >= 0 else f"({value})"
        case Ref(name):
            return named(name)
        case Neg(operand):
            return f"(-{size_text(operand, named)})"
        case SizeBinary(op, left, right):
            one, other = size_text(left, named), size_text(right, named)
            # Sizes divide rounding down, C towards zero; divisors are positive.
            if op in "/%" and _may_be_negative(left):
                is_below = f"({one} % {other} < 0)"
                return f"({one} / {other} - {is_below})" if op == "/" else f"({one} % {other} + {is_below} * {other})"
            return f"({one} {op} {other})"


def _may_be_negative(expr: Expr) -> bool:
    """Whether a subtraction or a sign is anywhere in an expression over sizes, which are not negative."""
    match expr:
        case Num(value):
            return value < 0
        case Ref():
            return False
        case Neg():
            return True
        case SizeBinary(op, left, right):
            return op == "-" or _may_be_negative(left) or _may_be_negative(right)


def _is_wrapped(text: str) -> bool:
    """Whether the first parenthesis of a text closes at its end."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


def _hexadecimal(text: str) -> str:
    """A decimal number in front of ``^``: gcc 13 takes 2^8 and 10^3 for powers that went wrong."""
    digits = text.rstrip("uUlL")
    return hex(int(digits)) + text[len(digits) :] if digits.isdecimal() else text


def _is_truth(value: Scalar) -> bool:
    """Whether an integer is a truth value, 0 or 1: compilers see through casts, and warn of comparing it with more."""
    while isinstance(value, Cast) and value.dtype.kind != "float":
        value = value.operand
    return value.dtype.kind == "bool"


def _outcome(op: str, left: Scalar, right: Scalar) -> bool | None:
    """What a comparison of integers always says: of one with itself, or with the end of what its type holds."""
    if left.dtype.kind == "float":
        return None
    if left == right:
        return op in ("eq", "le", "ge")
    if isinstance(left, Const) and not isinstance(right, Const):
        return _outcome({"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}.get(op, op), right, left)
    if not isinstance(right, Const) or isinstance(right.value, Dim):
        return None
    if _is_truth(left):
        outcomes = {_COMPARED[op](truth, right.value) for truth in (0, 1)}
        return outcomes.pop() if len(outcomes) == 1 else None
    least, most = left.dtype.minimum, left.dtype.maximum
    ends = {"lt": (least, False), "ge": (least, True), "gt": (most, False), "le": (most, True)}
    end, outcome = ends.get(op, (None, False))
    return outcome if right.value == end else None
