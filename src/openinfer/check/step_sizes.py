"""Dynamic sizes during a step: bound by the first value that has them, and the same from then on."""

from collections.abc import Mapping
from fractions import Fraction
from operator import add, mul, sub, truediv

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.sizes import Lookup, SizeError, dimension, evaluate_evenly
from openinfer.errors import Code
from openinfer.ir.expr import Binary, Expr, Neg, Num, Ref, names
from openinfer.ops import OpError, Shape, TensorType

_MOST_TRIED = 1 << 16
"""How many values of a size are tried where a dimension such as T*T is no line."""


class StepSizes:
    """The sizes of one step: those of the bound graph, and dynamic ones as they become known."""

    def __init__(self, bound: BoundGraph, dynamic: Mapping[str, int] | None = None) -> None:
        self._bound = bound
        self._fixed = bound.sizes
        self._bounds = bound.bounds
        self.dynamic: dict[str, int] = dict(dynamic or {})

    def forked(self) -> "StepSizes":
        """The same sizes for a consumer. What it binds is its own, so that no schedule decides what entry knows."""
        return StepSizes(self._bound, self.dynamic)

    def join(self, other: "StepSizes", block: str) -> None:
        """Entry awaits a consumer: what each of them bound must agree."""
        for name, value in other.dynamic.items():
            own = self.dynamic.setdefault(name, value)
            if own != value:
                message = f"the dynamic size {name!r} is {own} here, but the block {block!r} found it to be {value}"
                raise SizeError(Code.SIZE_CONFLICT, message)

    def lookup(self, name: str) -> int:
        """The value of a size now."""
        if name in self._fixed:
            return self._fixed[name]
        value = self.dynamic.get(name)
        if value is None and name not in self._bounds:
            message = f"{name!r} has no value here: it is no size, no scalar, and the index of no loop around"
            raise SizeError(Code.UNKNOWN_SIZE, message)
        if value is None:
            message = f"the dynamic size {name!r} has no value yet: no input or slice that has it came before"
            raise SizeError(Code.SIZE_CONFLICT, message)
        return value

    def shape(self, variable: BoundVar) -> Shape:
        """The shape of a variable now."""
        if not variable.is_dynamic or variable.dims is None:
            return variable.shape
        try:
            return tuple(dimension(dim, self.dynamic, self.lookup) for dim in variable.dims)
        except SizeError as error:
            raise OpError(error.code, f"{variable.name!r} has no shape yet: {error.message}") from error

    def agree(self, variable: BoundVar, shape: Shape, what: str) -> None:
        """A value of this shape becomes the variable's: bind sizes that it is the first to have, compare the rest."""
        if variable.dims is None:
            return
        if not variable.is_dynamic:
            if shape != variable.shape:
                raise _disagreement(variable, shape, what)
            return
        if len(shape) != len(variable.dims):
            raise _disagreement(variable, shape, what)
        pairs = list(zip(variable.dims, shape, strict=True))
        # One dimension may bind what another one, such as T*U, needs to know first.
        while len(self.dynamic) < len(self._bounds) and any(self._settle(variable, *pair) for pair in pairs):
            pass
        for dim, extent in pairs:
            self._agree(variable, dim, extent, shape, what)

    def _settle(self, variable: BoundVar, dim: Expr, extent: int) -> bool:
        """Bind the only size of a dimension that is not known yet, if that is so."""
        unknown = {name for name in names(dim) if name in self._bounds and name not in self.dynamic}
        if len(unknown) != 1:
            return False
        self._bind(unknown.pop(), dim, extent, variable)
        return True

    def _agree(self, variable: BoundVar, dim: Expr, extent: int, shape: Shape, what: str) -> None:
        try:
            wanted = evaluate_evenly(dim, self.dynamic, self.lookup)
        except SizeError as error:
            raise OpError(error.code, f"{what} does not fit {variable.name!r}: {error.message}") from error
        if wanted != extent:
            raise _disagreement(variable, shape, what, self.dynamic)

    def _bind(self, name: str, dim: Expr, extent: int, variable: BoundVar) -> None:
        """Solve ``dim == extent`` for the one size that is not known yet."""
        value = _solved(dim, name, extent, self.dynamic, self.lookup, self._bounds[name])
        if value is None or not 0 <= value <= self._bounds[name]:
            found = "no value" if value is None else str(value)
            message = f"the dynamic size {name!r} would be {found} for '{dim}' of {variable.name!r} to be {extent}"
            raise OpError(Code.SIZE_CONFLICT, f"{message}; it is at most {self._bounds[name]}")
        self.dynamic[name] = value


def _solved(dim: Expr, name: str, extent: int, known: Mapping[str, int], lookup: Lookup, bound: int) -> int | None:
    """The size at which a dimension has an extent: computed where the dimension is linear in it, else searched."""

    def value(size: int) -> int | None:
        try:
            return evaluate_evenly(dim, {**known, name: size}, lookup)
        except SizeError:
            return None

    try:
        at_zero = _fraction(dim, {**known, name: 0}, lookup)
        slope = _fraction(dim, {**known, name: 1}, lookup) - at_zero
        guess = (extent - at_zero) / slope
    except ZeroDivisionError:
        guess = Fraction(1, 2)
    if guess.denominator == 1 and value(int(guess)) == extent:
        return int(guess)
    return next((size for size in range(min(bound, _MOST_TRIED) + 1) if value(size) == extent), None)


def _fraction(dim: Expr, values: Mapping[str, int], lookup: Lookup) -> Fraction:
    """The value of a dimension that need not divide evenly."""
    match dim:
        case Num(value):
            return Fraction(value)
        case Ref(name):
            return Fraction(values[name] if name in values else lookup(name))
        case Neg(operand):
            return -_fraction(operand, values, lookup)
        case Binary(op, left, right):
            one, other = _fraction(left, values, lookup), _fraction(right, values, lookup)
            found: Fraction = {"+": add, "-": sub, "*": mul, "/": truediv}[op](one, other)
            return found


def _disagreement(variable: BoundVar, shape: Shape, what: str, dynamic: Mapping[str, int] | None = None) -> OpError:
    found = TensorType(variable.dtype, shape)
    declared = ", ".join(map(str, variable.dims or ()))
    known = f" with {', '.join(f'{name}={value}' for name, value in dynamic.items())}" if dynamic else ""
    wanted = f"{variable.dtype.name}[{declared}]{known}" if dynamic else str(variable.type)
    code = Code.SIZE_CONFLICT if dynamic else Code.SHAPE_MISMATCH
    return OpError(code, f"{what} is {found}, but {variable.name!r} is {wanted}")
