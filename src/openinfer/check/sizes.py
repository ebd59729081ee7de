"""Resolves sizes: from the caller, the ``sizes`` section, the model's variables, or integer metadata, in this order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import count
from operator import index
from typing import Any

from openinfer.check.order import after_needs
from openinfer.check.problems import Problems, ReportedError
from openinfer.errors import Code, Diagnostic, Span, nearest
from openinfer.ir import Graph, Loop, Scope
from openinfer.ir.advice import VARYING
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref, evaluate, names
from openinfer.ir.values import VarValue
from openinfer.oinf.model import ModelLoader

Lookup = Callable[[str], int]
LARGEST = 1 << 47
"""The largest size: the limit of what a machine can address."""
_LARGEST_BETWEEN = 1 << 4096
"""The largest intermediate result in computing a size."""
_MOST_SAMPLES = 64
_VARYING = dict.fromkeys(("None", "dynamic", "any"), VARYING)


class SizeError(Exception):
    """A size that has no value; the message says why."""

    def __init__(self, code: Code, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice


class Sizes:
    """The sizes of a graph. ``fixed`` ones never change; ``bounds`` are the maximum values of dynamic ones."""

    def __init__(self, graph: Graph, model: ModelLoader | None, given: Mapping[str, int], problems: Problems) -> None:
        self._graph = graph
        self._model = model
        self._given = given
        self._problems = problems
        self._broken: set[str] = set()
        self.missing: dict[str, None] = {}
        """Sizes that were looked up and have no value, in order of lookup."""
        self.fixed: dict[str, int] = {}
        self.bounds: dict[str, int] = {}
        self._resolve_given()
        for name in self._in_order():
            self._resolve_declared(name)

    def _resolve_given(self) -> None:
        if self._given:
            self._require_mentioned()
        for name, value in self._given.items():
            number = _integer(value)
            if number is None or not 0 <= number <= LARGEST:
                message = f"the size {name!r} is an integer from 0 to 2**47, not {value!r:.60}"
                self._problems.found.append(Diagnostic(Code.BAD_SHAPE, message))
                self._broken.add(name)
            else:
                self.fixed[name] = number

    def _require_mentioned(self) -> None:
        """Refuse names that neither the graph nor the model has: a misspelt one would silently have no effect."""
        known = dict.fromkeys((*self._graph.sizes, *mentioned_sizes(self._graph)))
        if self._model is not None:
            known |= dict.fromkeys((*self._model.sizevars, *self._model.metadata_info))
        for name in self._given:
            if name not in known:
                advice = nearest(str(name), known)
                if advice is None and known:
                    advice = f"sizes are {', '.join(list(known)[:8])}"
                message = f"the graph has no size {name!r}"
                self._problems.found.append(Diagnostic(Code.UNKNOWN_SIZE, message, None, advice))
                self._broken.add(name)

    def _in_order(self) -> Iterator[str]:
        """The declared sizes in dependency order; validation has excluded cycles."""
        declared = self._graph.sizes
        return after_needs(declared, lambda size: [one for one in names(declared[size].value) if one in declared])

    def _resolve_declared(self, name: str) -> None:
        """Resolve a declared size; the caller's value takes precedence over the graph's."""
        decl = self._graph.sizes[name]
        if name in self._broken or (name in self.fixed and decl.relation == ":="):
            return
        try:
            value = self._declared_value(name)
        except ReportedError:
            self._broken.add(name)
        except SizeError as error:
            self._problems.report(error.code, error.message, decl.span, error.advice)
            self._broken.add(name)
        else:
            if name not in self.fixed:
                (self.bounds if decl.relation == "<=" else self.fixed)[name] = value
            elif self.fixed[name] > value:
                message = f"the size {name!r} is given as {self.fixed[name]}, but the graph says it is at most {value}"
                self._problems.report(Code.SIZE_CONFLICT, message, decl.span)

    def _declared_value(self, name: str) -> int:
        decl = self._graph.sizes[name]
        value = self.at_most(decl.value)
        dynamic = [other for other in names(decl.value) if other in self.bounds]
        if decl.relation == ":=" and dynamic:
            message = f"the size {name!r} is fixed, but it depends on {dynamic[0]!r}, which is dynamic"
            raise SizeError(Code.BAD_SHAPE, message, f"write '{decl.value}' where it is used, or '{name} <= ...'")
        return value

    def lookup(self, name: str) -> int:
        """The value of a resolved size, or the bound of a dynamic one."""
        found = self.get(name)
        if found is None and self._model is not None and name in self._model.metadata_info:
            kind = self._model.metadata_info[name].type_name
            raise SizeError(
                Code.UNKNOWN_SIZE, f"the entry {name!r} of the model's metadata is {kind}, which cannot be a size"
            )
        if found is None:
            self.missing[name] = None
            known = self._problems.nearest(name, self.known())
            advice = known or _VARYING.get(
                name, "sizes come from --size or sizes={...}, a 'sizes' section or the model"
            )
            raise SizeError(Code.UNKNOWN_SIZE, f"there is no size {name!r}", advice)
        return found

    def get(self, name: str) -> int | None:
        """The value or bound of a size, or None; raises if its declaration is wrong."""
        if name in self._broken:
            raise ReportedError
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

    def known(self) -> Iterator[str]:
        """All names that have a value."""
        yield from self.fixed
        yield from self.bounds
        if self._model is not None:
            yield from self._model.sizevars
            yield from self._model.metadata_info

    def at_most(self, expr: Expr) -> int:
        """The value of a dimension with dynamic sizes at their bounds."""
        return dimension(expr, {}, self.lookup)

    def is_dynamic(self, expr: Expr) -> bool:
        """Whether an expression contains a dynamic size."""
        return any(name in self.bounds for name in names(expr))

    def sample(self, dimensions: Iterable[Expr]) -> dict[str, int] | None:
        """Other values for the dynamic sizes, near their bounds and distinct, for which all dimensions have values.

        A graph whose types match at the bounds only by coincidence does not match there.
        """
        if not self.bounds or all(bound < 2 for bound in self.bounds.values()):
            return None
        wanted = {expr for expr in dimensions if self.is_dynamic(expr)}
        for values in self._samples():
            if all(_has_value(expr, values, self.lookup) for expr in wanted):
                return values
        return None

    def _samples(self) -> Iterator[dict[str, int]]:
        for distance in range(1, _MOST_SAMPLES + 1):
            steps = count(distance)
            yield {name: max(1, bound - next(steps)) for name, bound in self.bounds.items()}
        # If a dimension divides by more than that, fractions of the bound keep it divisible.
        for divisor in (2, 3, 4, 5, 7, 8):
            yield {name: max(1, bound // divisor) for name, bound in self.bounds.items()}


def trial_sizes(bounds: Mapping[str, int]) -> list[dict[str, int]]:
    """Trial values of the dynamic sizes: at the bounds, below them and distinct, at 1 and at 0.

    >>> trial_sizes({"T": 8})
    [{'T': 8}, {'T': 5}, {'T': 1}, {'T': 0}]
    >>> trial_sizes({})
    [{}]
    """
    below = {name: max(0, bound * 5 // 8 - place) for place, (name, bound) in enumerate(bounds.items())}
    trials = [dict(bounds), below, *({name: min(n, bound) for name, bound in bounds.items()} for n in (1, 0))]
    return [trial for place, trial in enumerate(trials) if trial not in trials[:place]]


def mentioned_sizes(graph: Graph) -> list[str]:
    """The names in a graph's dimensions, bounds, indices and parameters; each is a size unless shadowed.

    >>> from openinfer.lang import graph
    >>> mentioned_sizes(graph("dynamic { x: f32[B]; } block entry { loop l (i in 0..L) { barrier; } return x; }"))
    ['B', 'L']
    """
    kinds = (node.kind for node in graph.walk())
    nodes = [replace(kind, body=()) if isinstance(kind, Loop | Scope) else kind for kind in kinds]
    params = [param for block in graph.blocks.values() for param in block.params or ()]
    return list(dict.fromkeys(_names_in([*graph.sizes.values(), *graph.vars.values(), *params, *nodes])))


def _names_in(parts: Iterable[object]) -> Iterator[str]:
    """The names in the expressions and parameters of declarations and nodes."""
    stack = list(parts)[::-1]
    while stack:
        one = stack.pop()
        match one:
            case Ref(name) | VarValue(name):
                yield name
            case tuple():
                stack += one[::-1]
            case Span():
                pass
            case _ if is_dataclass(one):
                stack += [getattr(one, part.name) for part in fields(one)][::-1]


def _integer(value: Any) -> int | None:
    """The value of a Python or NumPy integer; None for anything else."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def _has_value(expr: Expr, values: Mapping[str, int], lookup: Lookup) -> bool:
    try:
        dimension(expr, values, lookup)
    except SizeError:
        return False
    return True


def dimension(expr: Expr, values: Mapping[str, int], lookup: Lookup) -> int:
    """The value of an expression as a dimension, which must divide evenly and not be negative."""
    value = evaluate_evenly(expr, values, lookup)
    if value < 0:
        raise SizeError(Code.BAD_SHAPE, f"the dimension '{expr}' is {value}")
    if value > LARGEST:
        raise SizeError(Code.BAD_SHAPE, f"the dimension '{expr}' is {value}, more than any machine can hold")
    return value


def evaluate_evenly(expr: Expr, values: Mapping[str, int], lookup: Lookup) -> int:
    """The value of an expression over sizes; divisions with a remainder are refused."""
    match expr:
        case Num(value):
            return value
        case Ref(name):
            return values[name] if name in values else lookup(name)
        case Neg(operand):
            return -evaluate_evenly(operand, values, lookup)
        case BinaryExpr(op, left, right):
            one, other = evaluate_evenly(left, values, lookup), evaluate_evenly(right, values, lookup)
            if op in "/%" and other == 0:
                raise SizeError(Code.BAD_SHAPE, f"'{expr}' divides by zero: '{right}' is 0")
            if op == "/" and one % other:
                raise SizeError(Code.BAD_SHAPE, f"'{expr}' does not divide evenly: {one} / {other}")
            found = evaluate(BinaryExpr(op, Num(one), Num(other)), lookup)
            if abs(found) > _LARGEST_BETWEEN:
                raise SizeError(Code.BAD_SHAPE, f"'{expr}' is a number with more than a thousand digits")
            return found
