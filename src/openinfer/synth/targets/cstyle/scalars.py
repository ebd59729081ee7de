"""Scalar expressions in a C-family language.

Arithmetic means exactly what the loop IR says: integers wrap (unsigned arithmetic underneath), floats are not
contracted, minimum and maximum propagate NaN. Functions that a language lacks are named ``oi_...`` and come from the
support code.
"""

from collections.abc import Callable
from math import copysign

from openinfer.dtypes import DTYPES, DType
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref
from openinfer.loops.dim import Dim
from openinfer.loops.intervals import Interval, fits, interval
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
    ScalarVar,
    Select,
    SetLocal,
    Unary,
    children,
)
from openinfer.loops.used import offset
from openinfer.synth.targets.cstyle.code import ExprText, Rank, chosen, joined
from openinfer.synth.targets.cstyle.dialect import Dialect
from openinfer.synth.targets.cstyle.outcomes import REFLEXIVE, is_truth, outcome_of
from openinfer.synth.targets.cstyle.support import Need, need_name
from openinfer.synth.targets.cstyle.widths import NARROW_BITS, Widths
from openinfer.synth.targets.cstyle.wrapping import OPERATORS, WrappingArithmetic

_BITS = {"and": "&", "or": "|", "xor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

_ZERO = ExprText("0")


_MOST_BITS = 31
"""Saturation is to fewer bits than the integers have."""


class ScalarPrinter:
    """Prints expressions and remembers which support functions they need."""

    def __init__(self, dialect: Dialect, name_of: Callable[[Buffer], str]) -> None:
        self.dialect = dialect
        self._name_of = name_of
        self.needs: set[Need] = set()
        self.types: set[str] = set()
        """The dtypes whose types the code names, or whose numbers it has."""
        self.positions: set[str] = set()
        """Variables that are loop indices or computed from them: arithmetic on them cannot overflow."""
        self.widths = Widths(dialect)
        self.ranges = self.widths.ranges
        self._in_offset = False
        self._wrapping = WrappingArithmetic(self.code, self.converted, dialect, self.widths)

    def counts(self, *variables: ScalarVar, most: int | None = None) -> str:
        """Declares loop indices, with an upper bound if one is known; returns their type."""
        for one in variables:
            self.positions.add(one.name)
            self.widths.declare(one.name, None if most is None else (0, most))
        return self.widths.wider() if most is None else self.widths.of((0, most))

    def need(self, function: Need) -> str:
        """The name of a support function, which is recorded as needed."""
        self.needs.add(function)
        return need_name(function)

    def type_of(self, dtype: DType) -> str:
        """The type of a value, which is recorded as named."""
        _name_type(self, dtype)
        return self.dialect.type_of(dtype)

    def converted(self, dtype: DType, code: ExprText) -> ExprText:
        """A cast of an expression."""
        _name_type(self, dtype)
        return ExprText(self.dialect.converted(dtype, code.inside(self.dialect.cast_takes)), Rank.UNARY)

    def text(self, value: Scalar) -> str:
        """An expression as text on its own: in a statement, as an argument or an index."""
        return self.code(value).text

    def operand(self, value: Scalar) -> str:
        """An expression as text that can be an operand of any operator."""
        return self.code(value).atom

    def code(self, value: Scalar) -> ExprText:
        """An expression, and its precedence."""
        match value:
            case Const(number, dtype):
                if isinstance(number, Dim):
                    return size_code(
                        number.expr,
                        self.widths.size_named(number),
                        self.dialect.whole,
                        negative_remainders=self.dialect.negative_remainders,
                    )
                return self._constant(number, dtype)
            case ScalarVar(name):
                return ExprText(name)
            case Load(buffer, index):
                return self.load(buffer, self.offset(buffer, index))
            case Unary():
                return self._unary(value)
            case Binary():
                return self._binary(value)
            case Compare(op, left, right):
                return self._compare(op, left, right)
            case Select(cond, then, otherwise):
                asked = self.code(cond)
                with self.widths.where(cond, holds=True):
                    first = self.code(then)
                with self.widths.where(cond, holds=False):
                    return chosen(asked, first, self.code(otherwise))
            case Cast():
                return self._cast(value)
            case Bits():
                return _bits(self, value)
            case Round(operand, storage):
                return self._round(operand, storage)
            case Math(function, args):
                return self._function(function, value.dtype, *(_term(self, one) for one in args), about=value.about)
            case _:
                raise TypeError(value)

    def constant(self, let: Let) -> str:
        """The declaration of a named value."""
        is_integer = let.var.dtype.kind in ("int", "uint")
        ends = self.widths.of_constant(let) if is_integer else None
        _name_stored(self, let.value)
        text = self._declared(self.dialect.constant, let, ends)
        if let.var.dtype is INDEX and self.is_position(let.value):
            self.positions.add(let.var.name)
        if ends is not None:
            self.ranges[let.var.name] = ends
        return text

    def variable(self, local: Local) -> str:
        """The declaration of a variable."""
        return self._declared(self.dialect.variable, local, self.widths.locals.get(local.var.name))

    def assigned(self, one: SetLocal) -> str:
        """The assignment of a variable."""
        return f"{one.var.name} = {self.widths.narrowed(one, self.code(one.value)).text};"

    def _declared(self, template: str, one: Let | Local, ends: Interval | None) -> str:
        code = _term(self, one.value)
        if one.var.dtype is INDEX:
            kind = self.widths.declare(one.var.name, ends)
        else:
            kind = self.type_of(one.var.dtype)
            if ends is None:
                self.ranges.pop(one.var.name, None)
            else:
                self.ranges[one.var.name] = ends
        exact = self.dialect.exact if one.var.dtype.kind == "float" else ""
        return f"{exact}{template.format(type=kind, name=one.var.name)} = {self.widths.narrowed(one, code).text};"

    # --- memory ---------------------------------------------------------------------------------------------------

    def offset(self, buffer: Buffer, index: tuple[Scalar, ...]) -> str:
        """The position of an element, counted in elements."""
        with self.widths.inside(buffer, index):
            return self.position(offset(buffer, index)).text

    def position(self, value: Scalar) -> ExprText:
        """A position in memory: its arithmetic cannot overflow."""
        outside, self._in_offset = self._in_offset, True
        found = self.code(value)
        self._in_offset = outside
        return found

    def load(self, buffer: Buffer, offset: str) -> ExprText:
        """An element in its compute type."""
        name, dtype = self._name_of(buffer), buffer.dtype
        if dtype.is_packed:
            function = self.need(f"oi_load_{dtype.name}")
            return ExprText(self.dialect.packed_load.format(function=function, name=name, at=offset))
        element = self.dialect.place(buffer, name, offset)
        if dtype.is_small_float:
            return ExprText(f"{self.need(f'oi_from_{dtype.name}')}({element})")
        if dtype.name in self.dialect.wraps:
            return ExprText(self.dialect.cast.format(type=self.type_of(dtype), value=element))
        return joined(ExprText(element), "!=", _ZERO) if dtype.kind == "bool" else ExprText(element)

    def store(self, buffer: Buffer, offset: str, value: Scalar) -> str:
        """A statement that stores a value in an element."""
        name, dtype, text = self._name_of(buffer), buffer.dtype, self.text(value)
        if dtype.is_packed:
            function = self.need(f"oi_store_{dtype.name}")
            return f"{self.dialect.packed_store.format(function=function, name=name, at=offset, value=text)};"
        if dtype.is_small_float:
            text = f"{self.need(f'oi_to_{dtype.name}')}({text})"
        if dtype.name in self.dialect.store_types:
            self.types.add(self.dialect.store_types[dtype.name])
        _name_stored(self, value)
        return self.dialect.store(dtype, self.dialect.place(buffer, name, offset), text)

    def _round(self, operand: Scalar, storage: DType) -> ExprText:
        code = _term(self, operand)
        if storage.is_small_float:
            self.need(f"oi_from_{storage.name}")
            self.need(f"oi_to_{storage.name}")
            return ExprText(f"oi_from_{storage.name}(oi_to_{storage.name}({code.text}))")
        if storage.is_packed and not storage.values:
            return ExprText(f"{self.need(f'oi_wrap_{storage.name}')}({code.text})")
        return code

    def _compare(self, op: str, left: Scalar, right: Scalar) -> ExprText:
        """A comparison; if it is of integers and its outcome is known, in a form that compilers do not warn about."""
        outcome = outcome_of(op, left, right, self.widths)
        if outcome is not None:
            return _known(self, right if isinstance(left, Const) else left, outcome=outcome)
        codes = self.code(left), self.code(right)
        if codes[0].text == codes[1].text and left.dtype.kind != "float":
            # Operands that differ may be spelled alike: the absolute value of an unsigned number is the number.
            return _known(self, left, outcome=op in REFLEXIVE)
        if (op, left.dtype.name) in self.dialect.functions:
            return self._function(op, left.dtype, *codes)
        return joined(codes[0], _COMPARISONS[op], codes[1])

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def _function(self, name: str, dtype: DType, *operands: ExprText, about: DType | None = None) -> ExprText:
        """A call of a builtin of the language, or of a support function."""
        kind = self.dialect.kind_of(dtype)
        own = None if about is None else self.dialect.about.get((name, about.name))
        own = own or self.dialect.functions.get((name, kind))
        if own is not None:
            if own.need:
                self.need(own.need)
            self.types |= set(own.types)
            return ExprText(own.text.format(*(one.inside(own.takes) for one in operands)), own.rank)
        return ExprText(f"{self.need(f'oi_{name}_{kind}')}({', '.join(one.text for one in operands)})")

    def _unary(self, value: Unary) -> ExprText:
        dtype, code = value.operand.dtype, self.code(value.operand)
        match value.op:
            case "neg" if dtype.kind == "float":
                # Two minus signs in a row would be another operator.
                return ExprText(f"-{code.atom if code.text.startswith('-') else code.inside(Rank.UNARY)}", Rank.UNARY)
            case "neg":
                negative = Binary("sub", Const(0, dtype), value.operand)
                is_position = dtype is INDEX and self.widths.has_two
                return self._position(negative, ExprText("0"), code) if is_position else self._wrapping.code(negative)
            case "abs" if dtype.kind == "uint":
                return code
            case "not" if dtype.kind == "bool":
                return ExprText(f"!{code.inside(Rank.UNARY)}", Rank.COMPARISON)
            case "not" if is_truth(value.operand):  # compilers warn about the complement of a truth value
                ones = Const(dtype.maximum if dtype.kind == "uint" else -1, dtype)
                return self.code(Binary("xor", value.operand, ones))
            case _:
                return self._function(value.op, dtype, code, about=value.about)

    def _binary(self, value: Binary) -> ExprText:
        dtype = value.dtype
        limited = _limited(value) if self.dialect.saturates else None
        if limited is not None:
            operand, name, bits = limited
            return ExprText(f"{self.need(name)}({_limitable(self, operand)}, {bits})")
        left, right = _term(self, value.left), _term(self, value.right)
        op = value.op
        if op == "xor" and dtype.kind == "bool":
            return self._compare("ne", value.left, value.right)
        if op in _BITS:
            if dtype.kind == "bool":
                return joined(left, 2 * _BITS[op], right)
            code = joined(_hexadecimal(left) if op == "xor" else left, _BITS[op], right)
            return code if dtype.bits >= 32 or dtype.name in self.dialect.wraps else self.converted(dtype, code)
        if op == "rem" and _is_open_remainder(value, self.widths):
            is_narrow = dtype is INDEX and self.widths.is_narrow(value)
            return self._function(op, DTYPES["i32"] if is_narrow else dtype, left, right)
        if dtype is INDEX and self.widths.has_two:
            return self._position(value, left, right)
        if op not in OPERATORS:
            return self._function(op, dtype, left, right)
        if op == "rem" and dtype.kind == "float":
            return self._function("fmod", dtype, left, right)
        is_near = value.about is not None and (op, value.about.name) in self.dialect.about
        if is_near or (op, dtype.name) in self.dialect.functions:
            return self._function(op, dtype, left, right, about=value.about)
        if dtype.kind == "float" or (dtype is INDEX and self.is_position(value)):
            return joined(left, OPERATORS[op], right)
        if op in ("add", "sub", "mul"):
            return self._wrapping.code(value)
        if dtype.kind == "uint":
            return self.converted(dtype, joined(left, OPERATORS[op], right))
        # With a positive divisor, the operator cannot fail.
        is_plain = interval(value.right, self.ranges)[0] >= 1
        return joined(left, OPERATORS[op], right) if is_plain else self._function(op, dtype, left, right)

    def _position(self, value: Binary, left: ExprText, right: ExprText) -> ExprText:
        """Arithmetic on positions of two types: in the narrower one if all of it fits, else in the wider one."""
        op, widths = value.op, self.widths
        is_narrow = widths.is_narrow(value)
        is_known = op in OPERATORS and (op not in ("div", "rem") or widths.interval(value.right)[0] >= 1)
        if not is_known:
            return self._function(op, DTYPES["i32"] if is_narrow else INDEX, left, right)
        if op in ("add", "sub", "mul") and not (is_narrow or self.is_position(value) or fits(value, self.ranges)):
            return self._wrapping.code(value)
        if not is_narrow and widths.is_narrow(value.left) and widths.is_narrow(value.right):
            left = self.converted(INDEX, left)
        return joined(left, OPERATORS[op], right)

    def is_position(self, value: Scalar) -> bool:
        """Whether an integer is a position in memory, rather than a value from memory, which wraps."""
        if self._in_offset or isinstance(value, Const):
            return True
        if isinstance(value, ScalarVar):
            return value.name in self.positions
        return not isinstance(value, Load) and all(map(self.is_position, children(value)))

    def _cast(self, value: Cast) -> ExprText:
        operand, dtype, code = value.operand, value.dtype, _term(self, value.operand)
        if dtype.kind == "bool":
            return joined(code, "!=", _ZERO)
        if self.widths.is_same_type(value, operand):
            return code  # A position of the same width.
        is_narrow = dtype is INDEX and self.widths.is_narrow(value)
        function = None if is_narrow else self.dialect.casts.get((operand.dtype.name, self.dialect.kind_of(dtype)))
        if function is not None:
            return ExprText(f"{self.need(function)}({code.text})")
        return self.converted(DTYPES["i32"] if is_narrow else dtype, code)

    def _constant(self, number: float, dtype: DType) -> ExprText:
        is_plain = dtype.kind == "int" and dtype.bits == 64 and number > -(2**63)
        text = self.dialect.whole(int(number)) if is_plain else self.dialect.literal(number, dtype)
        special = self.dialect.special(number, dtype)
        if special is not None:
            self.need(special)
        elif dtype.bits <= NARROW_BITS or dtype.kind != "int" or abs(number) >= 2 ** (NARROW_BITS - 1):
            # Small signed numbers of 64 bits are spelled as those of 32.
            _name_type(self, dtype)
        return ExprText(text, Rank.UNARY if text.startswith("-") else Rank.ATOM)


def _known(printer: ScalarPrinter, operand: Scalar, *, outcome: bool) -> ExprText:
    """The outcome of a comparison, computed from an operand unless compilers take the number without a warning."""
    is_number = isinstance(operand, Const) and not isinstance(operand.value, Dim)
    if is_number or printer.dialect.known_outcomes:
        return ExprText(printer.dialect.literal(outcome, BOOL))
    code = printer.code(operand)
    return joined(joined(code, "^", code), "==" if outcome else "!=", _ZERO)


def _bits(printer: ScalarPrinter, value: Bits) -> ExprText:
    """The bits of a value. In support code, those of a small float have a type of their own width."""
    operand, dtype, storage, dialect = value.operand, value.dtype, value.storage, printer.dialect
    text = printer.text(operand)
    if storage is None:
        return ExprText(f"{printer.need(f'oi_bits_{operand.dtype.name}_{dtype.name}')}({text})")
    if dtype.kind == "float":
        text = f"{dialect.stored_type(storage)}({text})" if operand.dtype.name in dialect.wraps else text
        return ExprText(f"{printer.need(f'oi_from_{storage.name}')}({text})")
    code = ExprText(f"{printer.need(f'oi_to_{storage.name}')}({text})")
    return printer.converted(dtype, code) if dtype.name in dialect.wraps else code


def _name_type(printer: ScalarPrinter, dtype: DType) -> None:
    """Records that code names the type of a dtype, unless it is that of a wider one."""
    if dtype.compute.name not in printer.dialect.wraps:
        printer.types.add(dtype.compute.name)


def _name_stored(printer: ScalarPrinter, value: Scalar) -> None:
    """Records the type of a constant that is stored, or has a name: converted to fewer bits, it is one of these."""
    if isinstance(value, Const) and value.dtype.name in printer.dialect.wraps:
        printer.types.add(value.dtype.name)


def _is_open_remainder(value: Binary, widths: Widths) -> bool:
    """Whether the language leaves a remainder undefined, since an operand may be negative."""
    if widths.dialect.negative_remainders or (value.dtype is not INDEX and value.dtype.kind != "int"):
        return False
    return min(widths.interval(one)[0] for one in (value.left, value.right)) < 0


def _limitable(printer: ScalarPrinter, value: Scalar) -> str:
    """A value that is saturated afterwards: ``steps`` and sums with them need no limits of their own before that."""
    match value:
        case Binary("add", Unary("steps") as steps, point):
            return f"{printer.need('oi_qadd')}({_limitable(printer, steps)}, {printer.text(point)})"
        case Unary("steps", operand):
            return f"{printer.need('oi_whole_f32')}({printer.text(operand)})"
        case _:
            return printer.text(value)


def _term(printer: ScalarPrinter, value: Scalar) -> ExprText:
    """An operand of arithmetic, or a value that may become one; 0 is spelled as the dialect's ``zeros`` say."""
    zeros = printer.dialect.zeros
    match value:
        case Const(number, dtype) if dtype.name in zeros and number == 0:
            text = printer.need(zeros[dtype.name])
            return ExprText(text) if copysign(1, number) > 0 else ExprText(f"-{text}", Rank.UNARY)
        case _:
            return printer.code(value)


def size_code(
    expr: Expr,
    named: Callable[[str], str] = "s_{}".format,
    whole: Callable[[int], str] = str,
    *,
    negative_remainders: bool = True,
) -> ExprText:
    """An expression over dynamic sizes; ``named`` gives the name of a size in the code, ``whole`` spells a number.

    ``negative_remainders``: whether ``%`` of negative numbers means what it does in C.
    """
    match expr:
        case Num(value):
            return ExprText(whole(value), Rank.ATOM if value >= 0 else Rank.UNARY)
        case Ref(name):
            return ExprText(named(name))
        case Neg(operand):
            code = size_code(operand, named, whole, negative_remainders=negative_remainders)
            return ExprText(f"-{code.atom}", Rank.UNARY)
        case BinaryExpr(op, left, right):
            one, other = (
                size_code(part, named, whole, negative_remainders=negative_remainders) for part in (left, right)
            )
            found = joined(one, op, other)
            if op not in "/%" or not _may_be_negative(left):
                return found
            # Division of sizes rounds down, that of these languages towards zero; divisors are positive.
            below = joined(joined(one, "%", other), "<", _ZERO)
            if not negative_remainders:
                quotient = joined(one, "/", other)
                above = joined(joined(quotient, "*", other), ">", one)
                below = ExprText(f"{above.text} ? 1 : 0", Rank.CHOICE)  # a bool may not be a number either
                found = found if op == "/" else joined(one, "-", joined(quotient, "*", other))
            return joined(found, "-", below) if op == "/" else joined(found, "+", joined(below, "*", other))


def _may_be_negative(expr: Expr) -> bool:
    """Whether an expression over sizes, which are not negative, contains a subtraction or a minus sign."""
    match expr:
        case Num(value):
            return value < 0
        case Ref():
            return False
        case Neg():
            return True
        case BinaryExpr(op, left, right):
            return op == "-" or _may_be_negative(left) or _may_be_negative(right)


def _hexadecimal(code: ExprText) -> ExprText:
    """A decimal number before ``^`` in hexadecimal: gcc 13 takes 2^8 and 10^3 for mistaken powers."""
    digits = code.text.rstrip("uUlL")
    return ExprText(hex(int(digits)) + code.text[len(digits) :]) if digits.isdecimal() else code


def _limited(value: Binary) -> tuple[Scalar, str, int] | None:
    """Matches saturation to a number of bits: the operand, the function that saturates it, and the number of bits."""
    match value:
        case Binary("max", Binary("min", operand, Const(high)), Const(low)) if value.dtype.name == "i32":
            bits = int(high).bit_length()
            if not 0 < bits < _MOST_BITS or high != (1 << bits) - 1:
                return None
            if low == -high - 1:
                return operand, "oi_ssat", bits + 1
            return (operand, "oi_usat", bits) if low == 0 else None
        case _:
            return None
