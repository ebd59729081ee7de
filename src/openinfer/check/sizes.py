"""The values of sizes: the caller's, then the ``sizes`` section, then the model's variables, then integer metadata."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from openinfer.errors import Code, Diagnostic, GraphPlace, nearest
from openinfer.ir import Graph
from openinfer.ir.expr import Binary, Expr, Neg, Num, Ref, evaluate, names
from openinfer.oinf.model import ModelLoader

Lookup = Callable[[str], int]
LARGEST = 1 << 47
"""No size is larger than what a machine can address."""


class SizeError(Exception):
    """A size that has no value, in words."""

    def __init__(self, code: Code, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice


class Sizes:
    """The sizes of one graph. ``fixed`` never change; ``bounds`` are the largest values of dynamic ones."""

    def __init__(self, graph: Graph, model: ModelLoader | None, given: Mapping[str, int]) -> None:
        self._graph = graph
        self._model = model
        self._given = given
        self.fixed: dict[str, int] = {}
        self.bounds: dict[str, int] = {}
        self.problems: list[Diagnostic] = []
        self._resolve_given()
        for size in graph.sizes.values():
            self._declared(size.name)

    def _resolve_given(self) -> None:
        for name, value in self._given.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
                message = f"the size {name!r} is an integer from 0 to 2**47, not {value!r:.60}"
                self.problems.append(Diagnostic(Code.BAD_SHAPE, message))
            else:
                self.fixed[name] = value

    def _declared(self, name: str, span: GraphPlace | None = None) -> None:
        """Settle a size of the ``sizes`` section, and those it depends on; validation has excluded cycles."""
        decl = self._graph.sizes[name]
        is_given = name in self._given
        if name in self.bounds or (name in self.fixed and (not is_given or decl.relation == ":=")):
            return  # settled; what the caller gives comes before what the graph says
        try:
            value = self.at_most(decl.value)
        except SizeError as error:
            span = decl.span or span
            self.problems.append(Diagnostic(error.code, error.message, span, error.advice))
            self.fixed.setdefault(name, 1)
            return
        if not is_given:
            (self.bounds if decl.relation == "<=" else self.fixed)[name] = value
        elif self.fixed.get(name, 0) > value:
            message = f"the size {name!r} is given as {self._given[name]}, but the graph says it is at most {value}"
            self.problems.append(Diagnostic(Code.SIZE_CONFLICT, message, decl.span))

    def lookup(self, name: str) -> int:
        """The value of a settled size, or the bound of a dynamic one."""
        found = self.get(name)
        if found is None:
            advice = nearest(name, self.known()) or "sizes come from sizes={...}, a 'sizes' section or the model"
            raise SizeError(Code.UNKNOWN_SIZE, f"there is no size {name!r}", advice)
        return found

    def get(self, name: str) -> int | None:
        """The value or bound of a size, or None."""
        if name in self._graph.sizes and name not in self.fixed and name not in self.bounds:
            self._declared(name)
        if name in self.bounds:
            return self.bounds[name]
        if name not in self.fixed:
            value = self._of_model(name)
            if value is None:
                return None
            self.fixed[name] = value
        return self.fixed[name]

    def _of_model(self, name: str) -> int | None:
        if self._model is None:
            return None
        if name in self._model.sizevars:
            return self._model.sizevars[name]
        value = self._model.metadata[name] if name in self._model.metadata_info else None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def known(self) -> list[str]:
        """Every name that has a value."""
        model = [*self._model.sizevars, *self._model.metadata_info] if self._model is not None else []
        return [*self.fixed, *self.bounds, *model]

    def at_most(self, expr: Expr) -> int:
        """The value of a dimension with dynamic sizes at their bounds."""
        return dimension(expr, self.bounds | self.fixed, self.lookup)

    def is_dynamic(self, expr: Expr) -> bool:
        """Whether a dynamic size occurs in an expression."""
        return any(self.get(name) is not None and name in self.bounds for name in names(expr))

    def sample(self, dimensions: Iterable[Expr]) -> dict[str, int] | None:
        """Other values for the dynamic sizes, near their bounds and apart from each other, that all dimensions have.

        A graph whose types fit at the bounds only by accident does not fit there.
        """
        if not self.bounds or all(bound < 2 for bound in self.bounds.values()):
            return None
        wanted = [expr for expr in dimensions if self.is_dynamic(expr)]
        for distance in range(1, 65):
            steps = count(distance)
            values = {name: max(1, bound - next(steps)) for name, bound in self.bounds.items()}
            if all(_has_value(expr, values, self.lookup) for expr in wanted):
                return values
        return None


def _has_value(expr: Expr, values: Mapping[str, int], lookup: Lookup) -> bool:
    try:
        dimension(expr, values, lookup)
    except SizeError:
        return False
    return True


def dimension(expr: Expr, values: Mapping[str, int], lookup: Lookup) -> int:
    """The value of an expression as a dimension: it divides evenly and is not negative."""
    value = evaluate_evenly(expr, values, lookup)
    if value < 0:
        raise SizeError(Code.BAD_SHAPE, f"the dimension '{expr}' is {value}")
    if value > LARGEST:
        raise SizeError(Code.BAD_SHAPE, f"the dimension '{expr}' is {value}, more than any machine can hold")
    return value


def evaluate_evenly(expr: Expr, values: Mapping[str, int], lookup: Lookup) -> int:
    """The value of an expression over sizes, refusing divisions that leave something over."""
    match expr:
        case Num(value):
            return value
        case Ref(name):
            return values[name] if name in values else lookup(name)
        case Neg(operand):
            return -evaluate_evenly(operand, values, lookup)
        case Binary(op, left, right):
            one, other = evaluate_evenly(left, values, lookup), evaluate_evenly(right, values, lookup)
            if op in "/%" and other == 0:
                raise SizeError(Code.BAD_SHAPE, f"'{expr}' divides by zero: '{right}' is 0")
            if op == "/" and one % other:
                raise SizeError(Code.BAD_SHAPE, f"'{expr}' does not divide evenly: {one} / {other}")
            return evaluate(Binary(op, Num(one), Num(other)), lookup)
