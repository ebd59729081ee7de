"""Scalar expressions in a C-family language.

Arithmetic means exactly what the loop IR says: integers wrap (unsigned arithmetic underneath), floats are not
contracted, minimum and maximum propagate NaN. Functions that a language lacks are called ``oi_...``; the support code
has them.
"""

from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne

from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import Binary as SizeBinary
from openinfer.ir.expr import Expr, Neg, Num, Ref
from openinfer.loops.dim import Dim
from openinfer.loops.ir import (
    BOOL,
    INDEX,
    Binary,
    Bits,
    Buffer,
    Cast,
    Compare,
    Const,
    Let,
    Load,
    Local,
    Math,
    Round,
    Scalar,
    Select,
    Unary,
    Var,
    children,
)
from openinfer.loops.used import offset
from openinfer.synth.targets.cstyle.dialect import Dialect
from openinfer.synth.targets.cstyle.support import Need, need_name

_PLAIN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%"}
_COMPARED = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class ScalarPrinter:
    """Prints expressions and remembers which support functions they need."""

    def __init__(self, dialect: Dialect, name_of: Callable[[Buffer], str]) -> None:
        self.dialect = dialect
        self._name_of = name_of
        self.needs: set[Need] = set()
        self.positions: set[str] = set()
        """Variables that are loop indices or computed from them: arithmetic on them cannot overflow."""
        self._in_offset = False

    def need(self, function: Need) -> str:
        """The name of a support function, which is now needed."""
        self.needs.add(function)
        return need_name(function)

    def text(self, value: Scalar) -> str:
        """An expression as text."""
        match value:
            case Const(number, dtype):
                return size_text(number.expr) if isinstance(number, Dim) else self._constant(number, dtype)
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
                return self._function(function, value.dtype, *map(self.text, args))
            case _:
                raise TypeError(value)

    def bare(self, value: Scalar) -> str:
        """An expression without parentheses around it, where a statement has its own or needs none."""
        text = self.text(value)
        return text[1:-1] if text.startswith("(") and _is_wrapped(text) else text

    def constant(self, let: Let) -> str:
        """The declaration of a value with a name."""
        return self._declared(self.dialect.constant, let)

    def variable(self, local: Local) -> str:
        """The declaration of a variable."""
        return self._declared(self.dialect.variable, local)

    def _declared(self, template: str, one: Let | Local) -> str:
        head = template.format(type=self.dialect.type_of(one.var.dtype), name=one.var.name)
        return f"{head} = {self.text(one.value)};"

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
            return self.dialect.packed_load.format(function=self.need(f"oi_load_{dtype.name}"), name=name, at=offset)
        element = self.dialect.element.format(name=name, at=offset)
        if dtype.is_small_float:
            return f"{self.need(f'oi_from_{dtype.name}')}({element})"
        return f"({element} != 0)" if dtype.kind == "bool" else element

    def store(self, buffer: Buffer, offset: str, value: Scalar) -> str:
        """A statement that puts a value into an element."""
        name, dtype, text = self._name_of(buffer), buffer.dtype, self.bare(value)
        if dtype.is_packed:
            function = self.need(f"oi_store_{dtype.name}")
            return f"{self.dialect.packed_store.format(function=function, name=name, at=offset, value=text)};"
        if dtype.is_small_float:
            text = f"{self.need(f'oi_to_{dtype.name}')}({text})"
        return f"{self.dialect.element.format(name=name, at=offset)} = {text};"

    def _round(self, operand: Scalar, storage: DType) -> str:
        text = self.text(operand)
        if storage.is_small_float:
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
                return self.dialect.literal(outcome, BOOL)
            text = self.text(known)
            return f"(({text} ^ {text}) {'==' if outcome else '!='} 0)"
        return f"({self.text(left)} {_COMPARISONS[op]} {self.text(right)})"

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def _function(self, name: str, dtype: DType, *operands: str) -> str:
        """A call of what the language has itself, or of a support function."""
        kind = self.dialect.index_dtype if dtype is INDEX else dtype.name
        own = self.dialect.functions.get((name, kind))
        if own is not None:
            return own.format(*operands)
        return f"{self.need(f'oi_{name}_{kind}')}({', '.join(operands)})"

    def _unary(self, value: Unary) -> str:
        dtype, text = value.operand.dtype, self.text(value.operand)
        match value.op:
            case "neg":
                return f"(-{text})" if dtype.kind == "float" else self._wrapped("-", "0", text, dtype)
            case "abs" if dtype.kind == "uint":
                return text
            case "not" if dtype.kind == "bool":
                return f"(!{text})"
            case _:
                return self._function(value.op, dtype, text)

    def _binary(self, value: Binary) -> str:
        dtype = value.dtype
        left, right = self.text(value.left), self.text(value.right)
        op = value.op
        if op == "xor" and dtype.kind == "bool":
            return self._compare("ne", value.left, value.right)
        if op in _BITS:
            sign = 2 * _BITS[op] if dtype.kind == "bool" else _BITS[op]
            text = f"({_hexadecimal(left) if op == 'xor' else left} {sign} {right})"
            return text if dtype.kind == "bool" or dtype.bits >= 32 else f"({self.dialect.converted(dtype, text)})"
        if op not in _PLAIN:
            return self._function(op, dtype, left, right)
        if op == "rem" and dtype.kind == "float":
            return self._function("fmod", dtype, left, right)
        if dtype.kind == "float" or (dtype is INDEX and self.is_position(value)):
            return f"({left} {_PLAIN[op]} {right})"
        if op in ("div", "rem"):
            if dtype.kind == "uint":
                return f"({self.dialect.converted(dtype, f'({left} {_PLAIN[op]} {right})')})"
            return self._function(op, dtype, left, right)
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
        wide = DTYPES[f"u{max(dtype.bits, 32)}"]
        one, other = (self.dialect.converted(wide, text) for text in (left, right))
        return f"({self.dialect.converted(dtype, f'({one} {sign} {other})')})"

    def _cast(self, operand: Scalar, dtype: DType) -> str:
        text = self.text(operand)
        if dtype.kind == "bool":
            return f"({text} != 0)"
        if self.dialect.type_of(dtype) == self.dialect.type_of(operand.dtype):
            return text  # A position that is as wide.
        return f"({self.dialect.converted(dtype, text)})"

    def _constant(self, number: float, dtype: DType) -> str:
        if dtype.kind == "int" and dtype.bits == 64 and number > -(2**63):
            return f"({int(number)})" if number < 0 else str(int(number))
        return self.dialect.literal(number, dtype)


def size_text(expr: Expr, named: Callable[[str], str] = "s_{}".format) -> str:
    """An expression over dynamic sizes; ``named`` says what a size is called there."""
    match expr:
        case Num(value):
            return str(value) if value >= 0 else f"({value})"
        case Ref(name):
            return named(name)
        case Neg(operand):
            return f"(-{size_text(operand, named)})"
        case SizeBinary(op, left, right):
            one, other = size_text(left, named), size_text(right, named)
            # Sizes divide rounding down, these languages towards zero; divisors are positive.
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
