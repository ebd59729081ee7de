"""The width of positions, in a language that has two types for them.

A position has the narrower type if all its values are proved to fit, and arithmetic has it if all operands and the
exact result fit. Everything else has the wider type; where both meet, the language itself widens the narrower one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref
from openinfer.ir.expr import interval as size_interval
from openinfer.loops.dim import Dim, span
from openinfer.loops.intervals import Interval, RangeFacts, facts_of, fits, interval
from openinfer.loops.ir import (
    INDEX,
    Binary,
    Buffer,
    Cast,
    Const,
    Contraction,
    Kernel,
    Let,
    Local,
    Round,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Unary,
    walk,
)
from openinfer.loops.locals import local_ranges
from openinfer.synth.targets.cstyle.code import ExprText, Rank
from openinfer.synth.targets.cstyle.dialect import Dialect

NARROW_BITS = 32
_LIMIT = 2 ** (NARROW_BITS - 1)
_HALF = _LIMIT // 2
"""The sum of two numbers of smaller magnitude fits."""


def is_small(*ends: int) -> bool:
    """Whether numbers, and the sum of any two of them, fit the narrower type."""
    return all(-_HALF < one < _HALF for one in ends)


def fits_narrow(ends: Interval) -> bool:
    """Whether the narrower type holds all of an interval."""
    return ends[0] >= -_LIMIT and ends[1] < _LIMIT


@dataclass
class Widths:
    """What is known about the positions in a kernel: their ranges, and which have the narrower type."""

    dialect: Dialect
    ranges: dict[str, Interval] = field(default_factory=dict)
    """The ranges of integer variables, where more is known about them than their type."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """The dynamic sizes that have the narrower type, with their bounds."""
    locals: Mapping[str, Interval] = field(default_factory=dict)
    """The ranges of mutable integer variables."""
    unsigned: set[str] = field(default_factory=set)
    """Signed variables that the code keeps in an unsigned type: their code may have another value, modulo the type."""
    coordinates: Mapping[str, Interval] = field(default_factory=dict)
    """The ranges of named positions that are always in bounds where they are used, whatever their values may be."""
    names_wider: bool = False
    """Whether code names the wider type."""
    _narrow: set[str] = field(default_factory=set)
    _facts: RangeFacts = ()

    @property
    def has_two(self) -> bool:
        """Whether the language has a narrower type for positions."""
        return self.dialect.narrow is not None

    def of(self, ends: Interval) -> str:
        """The type of a position with this range."""
        if self.dialect.narrow is not None and fits_narrow(ends):
            return self.dialect.narrow
        return self.wider()

    def wider(self) -> str:
        """The wider type, for code that names it."""
        self.names_wider = True
        return self.dialect.index

    def interval(self, value: Scalar) -> Interval:
        """The range of an integer at the point where it is computed."""
        return interval(value, self.ranges, facts=self._facts if self.has_two else None)

    def of_constant(self, let: Let) -> Interval:
        """The range of a named integer, wherever it is used."""
        ends = self.interval(let.value)
        if not self.has_two or let.var.dtype is not INDEX or fits_narrow(ends):
            return ends
        return self.coordinates.get(let.var.name, ends)

    def fits(self, value: Binary) -> bool:
        """Whether the result of arithmetic fits its type, at the point where it is computed."""
        return fits(value, self.ranges, self._facts)

    def declare(self, name: str, ends: Interval | None) -> str:
        """Declares a variable with a range, None if nothing is known about it; returns its type."""
        self._narrow.discard(name)
        self.ranges.pop(name, None)
        if ends is None:
            return self.wider()
        self.ranges[name] = ends
        if self.has_two and fits_narrow(ends):
            self._narrow.add(name)
        return self.of(ends)

    def narrowed(self, one: Let | Local | SetLocal, code: ExprText) -> ExprText:
        """The code of a value, in the type of the variable that it is assigned to."""
        if one.var.dtype is not INDEX or not self.is_narrow(one.var) or self.is_narrow(one.value):
            return code
        return ExprText(self.dialect.converted(DTYPES["i32"], code.inside(Rank.UNARY)), Rank.UNARY)

    def partial(self, var: ScalarVar, names: Iterable[str], *, is_product: bool) -> str:
        """Declares the names of a variable's partial results; returns their type."""
        if var.dtype is not INDEX:
            return self.dialect.type_of(var.dtype)
        ends = self.ranges.get(var.name)
        if ends is not None:
            # A partial sum begins at 0, whatever the variable was before, and changes by no more than the variable can.
            ends = min(ends[0], ends[0] - ends[1]), max(ends[1], ends[1] - ends[0])
        is_known = ends is not None and is_small(*ends) and not is_product
        for name in names:
            self.declare(name, ends if is_known else None)
        return self.wider() if ends is None or not is_known else self.of(ends)

    @contextmanager
    def analysed(self, body: tuple[Statement, ...]) -> Iterator[None]:
        """A context for statements that a template adds; their names say nothing about those outside."""
        before, ranges = self.locals, dict(self.ranges)
        self.locals = {**before, **local_ranges(body)}
        yield
        self.locals = before
        self.ranges.clear()
        self.ranges.update(ranges)

    @contextmanager
    def where(self, condition: Scalar, *, holds: bool) -> Iterator[None]:
        """A context for code that is computed only where a condition holds, or does not."""
        before = self._facts
        self._facts = (*before, *facts_of(condition, self.ranges, before, holds=holds))
        yield
        self._facts = before

    @contextmanager
    def inside(self, buffer: Buffer, index: tuple[Scalar, ...]) -> Iterator[None]:
        """A context for code that computes an element's position: its index was checked, or is always in bounds."""
        before = self._facts
        if self.has_two:
            pairs = zip(index, buffer.shape, strict=True)
            found = tuple((one, (0, span(extent)[1] - 1)) for one, extent in pairs if not isinstance(one, Const))
            self._facts = (*before, *found)
        yield
        self._facts = before

    def is_narrow(self, value: Scalar) -> bool:
        """Whether the code of a position has the narrower type."""
        if not self.has_two:
            return False
        match value:
            case Const(Dim() as number):
                return self.holds(number)
            case Const(number):
                return abs(number) < _LIMIT  # the minimum has no literal
            case ScalarVar(name):
                return name in self._narrow
            case Cast():
                return fits_narrow(self.interval(value))
            case Select(condition, then, otherwise):
                with self.where(condition, holds=True):
                    is_then = self.is_narrow(then)
                with self.where(condition, holds=False):
                    return is_then and self.is_narrow(otherwise)
            case Unary("neg", operand):
                return self.is_narrow(operand) and self._fits(Binary("sub", Const(0, INDEX), operand))
            case Binary(op, left, right):
                return self.is_narrow(left) and self.is_narrow(right) and self._is_narrow_result(op, value)
            case _:
                return False

    def _is_narrow_result(self, op: str, value: Binary) -> bool:
        if op in ("add", "sub", "mul"):
            return self._fits(value)
        if op in ("div", "rem"):
            return self.interval(value.right)[0] >= 1
        return op in ("min", "max", "and", "or", "xor")

    def _fits(self, value: Binary) -> bool:
        return fits(value, self.ranges, self._facts, NARROW_BITS)

    def is_wide(self, value: Scalar) -> bool:
        """Whether the code of an integer has the width of its type: 64-bit literals are written as if they had 32."""
        if value.dtype.bits <= NARROW_BITS:
            return True
        if value.dtype is INDEX and self.is_narrow(value):
            return False
        match value:
            case Const(number):
                return not isinstance(number, Dim) and abs(number) >= _LIMIT
            case Select(_, left, right) | Binary("add" | "sub" | "mul" | "and" | "or" | "xor", left, right):
                return self.is_wide(left) or self.is_wide(right)
            case Unary("neg", operand) | Round(operand):
                return self.is_wide(operand)
            case Cast(operand) if self.is_same_type(value, operand):
                return self.is_wide(operand)
            case _:
                return True

    def is_same_type(self, value: Cast, operand: Scalar) -> bool:
        """Whether a cast changes nothing: the code of its operand has the same type, or is a literal."""
        if self._type(operand) == self._type(value):
            return operand.dtype is value.dtype or not self._wraps(value)
        is_number = isinstance(operand, Const) and not isinstance(operand.value, Dim)
        return is_number and operand.dtype is INDEX and self.dialect.type_of(value.dtype) == self.dialect.index

    def _wraps(self, value: Cast) -> bool:
        """Whether a cast changes numbers, though their code keeps its type."""
        low, high = self.interval(value.operand)
        fits_type = value.dtype.minimum <= low and high <= value.dtype.maximum
        return value.dtype.name in self.dialect.wraps and not fits_type

    def _type(self, value: Scalar) -> str:
        is_narrow = value.dtype is INDEX and self.is_narrow(value)
        return self.dialect.narrow or "" if is_narrow else self.dialect.type_of(value.dtype)

    # --- dynamic sizes --------------------------------------------------------------------------------------------

    def holds(self, number: Dim) -> bool:
        """Whether an extent and all parts of its expression fit the narrower type."""
        return _held(number.expr, self.sizes) is not None

    def size_named(self, number: Dim) -> Callable[[str], str]:
        """The names of sizes in the code of an extent: they are widened if it does not fit."""
        if not self.sizes or self.holds(number):
            return "s_{}".format

        def widened(name: str) -> str:
            own = f"s_{name}"
            return self.dialect.cast.format(type=self.wider(), value=own) if name in self.sizes else own

        return widened


def narrow_sizes(kernel: Kernel, bounds: Mapping[str, int]) -> dict[str, int]:
    """The dynamic sizes that have the narrower type in a kernel, given the bounds of all.

    Templates print extents, and arithmetic on them, without casts: all must fit, or else no size is narrower.
    """
    found = {name: bound for name, bound in bounds.items() if 0 <= bound < _LIMIT}
    for one in walk(kernel.body):
        if isinstance(one, Contraction):
            extents = [extent for extent in (*one.extents, *one.reduced) if isinstance(extent, Dim)]
            if extents and (one.template is not None or any(_held(dim.expr, found) is None for dim in extents)):
                return {}
    return found


def _held(expr: Expr, bounds: Mapping[str, int]) -> Interval | None:
    """The range of an expression over sizes; None if it, or a part of it, may not fit the narrower type."""
    match expr:
        case Num(value):
            ends: Interval = (value, value)
        case Ref(name):
            if name not in bounds:
                return None
            ends = (0, bounds[name])
        case Neg(operand):
            inside = _held(operand, bounds)
            if inside is None:
                return None
            ends = (-inside[1], -inside[0])
        case BinaryExpr(op, left, right):
            one, other = _held(left, bounds), _held(right, bounds)
            if one is None or other is None:
                return None
            ends = size_interval(op, one, other)
    return ends if fits_narrow(ends) else None
