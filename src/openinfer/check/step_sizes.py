"""Dynamic sizes during a step: bound by the first values that have them, and fixed from then on."""

from collections.abc import Iterable, Mapping

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.equations import solved, solved_together
from openinfer.check.sizes import SizeError, dimension, evaluate_evenly
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ir.expr import BinaryExpr, Expr, Num, Ref, evaluate, interval, names
from openinfer.ir.expr import Neg as Negative
from openinfer.loops.dim import expr_of
from openinfer.ops import OpError, Shape, TensorType


class StepSizes:
    """The sizes of one step: those of the bound graph, and dynamic ones once they are known."""

    def __init__(self, bound: BoundGraph, dynamic: Mapping[str, int] | None = None) -> None:
        self._bound = bound
        self._fixed = bound.sizes
        self._bounds = bound.bounds
        self.dynamic: dict[str, int] = dict(dynamic or {})

    def forked(self) -> "StepSizes":
        """A copy of the sizes for a consumer. What it binds stays its own, so entry does not depend on the schedule."""
        return StepSizes(self._bound, self.dynamic)

    def join(self, other: "StepSizes", block: str) -> None:
        """Merge the sizes of a consumer that entry awaits; both must agree."""
        for name, value in other.dynamic.items():
            own = self.dynamic.setdefault(name, value)
            if own != value:
                message = f"the dynamic size {name!r} is {own} here, but the block {block!r} found it to be {value}"
                raise SizeError(Code.SIZE_CONFLICT, message)

    def lookup(self, name: str) -> int:
        """The current value of a size."""
        if name in self._fixed:
            return self._fixed[name]
        value = self.dynamic.get(name)
        if value is None and name not in self._bounds:
            message = f"{name!r} has no value here: it is not a size, a scalar, or the index of an enclosing loop"
            raise SizeError(Code.UNKNOWN_SIZE, message)
        if value is None:
            message = f"the dynamic size {name!r} has no value yet: no input or slice that has it came before"
            raise SizeError(Code.SIZE_CONFLICT, message)
        return value

    def shape(self, variable: BoundVar) -> Shape:
        """The current shape of a variable."""
        if not variable.is_dynamic:
            return variable.shape
        try:
            if variable.dims is None:
                return tuple(evaluate(expr_of(extent), self.lookup) for extent in variable.shape)
            return tuple(dimension(dim, self.dynamic, self.lookup) for dim in variable.dims)
        except SizeError as error:
            raise OpError(error.code, f"{variable.name!r} has no shape yet: {error.message}") from error

    def agree(self, variable: BoundVar, shape: Shape, what: str) -> None:
        """Match a value's shape with a variable: bind the sizes that it determines, and compare the rest."""
        if variable.dims is None:
            self._agree_with_inferred(variable, shape, what)
            return
        if not variable.is_dynamic:
            if shape != variable.shape:
                raise _disagreement(variable, shape, what)
            return
        if len(shape) != len(variable.dims):
            raise _disagreement(variable, shape, what)
        pairs = list(zip(variable.dims, shape, strict=True))
        # One dimension may bind a size that another one, such as T*U, needs first.
        alone = [pair for pair in pairs if self._sizes_in(pair[0]) < 2]
        sums = [pair for pair in pairs if self._sizes_in(pair[0]) > 1]
        for dim, extent in alone:
            self._settle(variable, dim, extent)
            self._agree(variable, dim, extent, shape, what)
        while len(self.dynamic) < len(self._bounds) and any(self._settle(variable, *pair) for pair in sums):
            pass
        for dim, extent in sums:
            self._agree(variable, dim, extent, shape, what)

    def _sizes_in(self, dim: Expr) -> int:
        return len({name for name in names(dim) if name in self._bounds})

    def agree_together(self, shapes: Mapping[str, Shape], *, complete: bool = True) -> None:
        """Match the shapes of a step's inputs, solving for the sizes that all of them determine together.

        The order of insertion or declaration does not matter. A size left undetermined is an error, unless these are
        not all of the inputs yet.
        """
        variables = [self._bound.vars[name] for name in self._bound.vars if name in shapes]
        for variable in variables:
            if len(shapes[variable.name]) != len(variable.dims or ()):
                raise _located(variable, _disagreement(variable, shapes[variable.name], _inserted(variable)))
        equations = [
            (variable, dim, extent)
            for variable in variables
            for dim, extent in zip(variable.dims or (), shapes[variable.name], strict=True)
        ]
        # Dimensions that are just a size come first, so that errors point to sums that disagree, not to their terms.
        self._solve(sorted(equations, key=lambda one: not isinstance(one[1], Ref)))
        unknown = self._unknown(dim for _, dim, _ in equations)
        if complete and unknown:
            raise self._undecided(equations, unknown)
        for variable in variables:
            if not self._unknown(variable.dims or ()):
                try:
                    self.agree(variable, shapes[variable.name], _inserted(variable))
                except OpError as error:
                    raise _located(variable, error) from error

    def require_possible(self, variable: BoundVar, shape: Shape, what: str) -> None:
        """Refuse a shape that a variable can never have, whatever other values determine about its dynamic sizes."""
        if variable.dims is None or not variable.is_dynamic or len(shape) != len(variable.dims):
            self.agree(variable, shape, what)
            return
        pairs = list(zip(variable.dims, shape, strict=True))
        while any(self._settle(variable, *pair) for pair in pairs):
            pass
        least, most = ({**self._fixed, **one, **self.dynamic} for one in (dict.fromkeys(self._bounds, 0), self._bounds))
        for dim, extent in pairs:
            if not self._unknown([dim]):
                self._agree(variable, dim, extent, shape, what)
                continue
            span = _span(dim, least, most)
            if span is not None and not span[0] <= extent <= span[1]:
                message = f"{what} is {TensorType(variable.dtype, shape)}, but '{dim}' of {variable.name!r}"
                raise OpError(Code.SIZE_CONFLICT, f"{message} is at most {span[1]}, and at least {max(span[0], 0)}")

    def _unknown(self, dims: Iterable[Expr]) -> list[str]:
        """The dynamic sizes in dimensions that have no value yet."""
        return sorted({name for dim in dims for name in names(dim) if name in self._bounds} - self.dynamic.keys())

    def _solve(self, equations: list[tuple[BoundVar, Expr, int]]) -> None:
        """Solve equations for sizes: first those with one unknown, then linear systems."""
        while True:
            for variable, dim, extent in equations:
                try:
                    found = self._settle(variable, dim, extent)
                except OpError as error:
                    raise _located(variable, error) from error
                if found:
                    break
            else:
                lines = [(dim, extent) for _, dim, extent in equations if self._unknown([dim])]
                together = solved_together(lines, self._unknown(dim for dim, _ in lines), self.dynamic, self.lookup)
                if not together:
                    return
                for name, value in together.items():
                    if value.denominator != 1 or not 0 <= value <= self._bounds[name]:
                        self._no_value(name, str(value), [one for one in equations if name in names(one[1])])
                    self.dynamic[name] = int(value)

    def _no_value(self, name: str, value: str, equations: list[tuple[BoundVar, Expr, int]]) -> None:
        said = " and ".join(f"'{dim}' of {variable.name!r} to be {extent}" for variable, dim, extent in equations)
        message = f"the dynamic size {name!r} would be {value} for {said}; it is at most {self._bounds[name]}"
        raise _located(equations[0][0], OpError(Code.SIZE_CONFLICT, message))

    def _undecided(self, equations: list[tuple[BoundVar, Expr, int]], unknown: list[str]) -> ExecutionError:
        known = [one for one in equations if self._unknown([one[1]])]
        said = " and ".join(f"'{dim}' of {variable.name!r} is {extent}" for variable, dim, extent in known)
        sizes = " and ".join(map(repr, unknown))
        message = f"the inputs do not say what the dynamic sizes {sizes} are: all they say is that {said}"
        advice = f"an input with a dimension that is {unknown[0]} itself would decide it"
        return _located(known[0][0], OpError(Code.SIZE_CONFLICT, message, advice=advice))

    def _agree_with_inferred(self, variable: BoundVar, shape: Shape, what: str) -> None:
        """Match the shape of a temporary typed by ops: it has one shape per step, even if no op has written it yet."""
        if len(shape) == len(variable.shape):
            pairs = [(expr_of(wanted), extent) for wanted, extent in zip(variable.shape, shape, strict=True)]
            while any(self._settle(variable, *pair) for pair in pairs):
                pass
        if shape != self.shape(variable):
            raise _disagreement(variable, shape, what, self.dynamic)

    def _settle(self, variable: BoundVar, dim: Expr, extent: int) -> bool:
        """Bind the unknown size of a dimension, if there is exactly one."""
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
            raise _disagreement(variable, shape, what, self.dynamic if self._sizes_in(dim) else None)

    def _bind(self, name: str, dim: Expr, extent: int, variable: BoundVar) -> None:
        """Solve ``dim == extent`` for the only unknown size."""
        value = solved(dim, name, extent, self.dynamic, self.lookup, self._bounds[name])
        if value is None or not 0 <= value <= self._bounds[name]:
            found = "no value" if value is None else str(value)
            message = f"the dynamic size {name!r} would be {found} for '{dim}' of {variable.name!r} to be {extent}"
            raise OpError(Code.SIZE_CONFLICT, f"{message}; it is at most {self._bounds[name]}")
        self.dynamic[name] = value


def _span(dim: Expr, least: Mapping[str, int], most: Mapping[str, int]) -> tuple[int, int] | None:
    """The minimum and maximum of a dimension; None if it divides."""
    match dim:
        case Num(value):
            return value, value
        case Ref(name):
            return least[name], most[name]
        case Negative(operand):
            own = _span(operand, least, most)
            return None if own is None else (-own[1], -own[0])
        case BinaryExpr(op, left, right):
            one, other = _span(left, least, most), _span(right, least, most)
            return None if op in "/%" or one is None or other is None else interval(op, one, other)


def _disagreement(variable: BoundVar, shape: Shape, what: str, dynamic: Mapping[str, int] | None = None) -> OpError:
    found = TensorType(variable.dtype, shape)
    declared = ", ".join(map(str, variable.shape if variable.dims is None else variable.dims))
    known = f" with {', '.join(f'{name}={value}' for name, value in dynamic.items())}" if dynamic else ""
    wanted = f"{variable.dtype.name}[{declared}]{known}" if dynamic else str(variable.type)
    code = Code.SIZE_CONFLICT if dynamic else Code.SHAPE_MISMATCH
    return OpError(code, f"{what} is {found}, but {variable.name!r} is {wanted}")


def _inserted(variable: BoundVar) -> str:
    return f"the inserted {variable.name!r}"


def _located(variable: BoundVar, error: OpError) -> ExecutionError:
    """The error for an input, located at its declaration."""
    span = variable.decl.span if variable.decl else None
    return ExecutionError(Diagnostic(error.code, error.message, span, error.advice))
