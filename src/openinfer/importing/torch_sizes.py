"""Dynamic dimensions of an exported program as bounded sizes of the language."""

import inspect
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

from openinfer.errors import Code, Diagnostic, ImportingError
from openinfer.importing.identifiers import Identifiers
from openinfer.importing.options import MOST
from openinfer.importing.problems import Unsupported
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, larger, smaller


class ProgramSizes:
    """The sizes of one program. Symbols must be named before extents are asked for."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        self._ranges = {str(symbol): bounds for symbol, bounds in ranges.items()}
        self._labels: dict[str, str] = {}
        self._names = Identifiers()
        self._dims: dict[str, int] = {}
        self._open: dict[str, str] = {}

    def name(self, symint: Any, label: str) -> None:
        """Name a dimension, if it is a symbol without a name."""
        expr = expression(symint)
        if expr is not None and expr.is_Symbol:
            self._labels.setdefault(str(expr), label)

    def extent(self, value: Any) -> int:
        """A dimension as a number, or as an expression over sizes."""
        expr = expression(value)
        return int(value) if expr is None else self._value(expr)

    def require_bounds(self) -> None:
        """Reject sizes without a bound, all at once."""
        if not self._open:
            return
        listed = ", ".join(map(repr, self._open.values()))
        count = len(self._open)
        message = f"{'a size has' if count == 1 else f'{count} sizes have'} no bound: {listed}"
        example = next(iter(self._open.values()))
        advice = f'give it one in dynamic_shapes: torch.export.Dim("{example}", max=128)'
        raise ImportingError(Diagnostic(Code.OPEN_SIZE, message, help=advice))

    @property
    def dynamic(self) -> dict[str, int]:
        """The sizes by their names in the graph."""
        return {str(dim.expr): dim for dim in self._dims.values() if isinstance(dim, Dim)}

    def _value(self, expr: Any) -> int:
        if expr.is_Symbol:
            return self._size(str(expr))
        if expr.is_Integer:
            return int(expr)
        parts = [self._value(part) for part in expr.args]
        kind = type(expr).__name__
        match kind:
            case "Add":
                return reduce(lambda one, other: one + other, parts)
            case "Mul":
                return reduce(lambda one, other: one * other, parts)
            case "Pow" if not isinstance(parts[1], Dim) and 0 < parts[1] < 8:
                return reduce(lambda one, other: one * other, [parts[0]] * parts[1])
            case "FloorDiv" | "CleanDiv":
                return parts[0] // parts[1]
            case "Mod" | "PythonMod":
                return parts[0] % parts[1]
            case "Max":
                return reduce(larger, parts)
            case "Min":
                return reduce(smaller, parts)
        raise Unsupported(f"a size is {expr}, and {kind} of sizes has no meaning here")

    def _size(self, symbol: str) -> int:
        found = self._dims.get(symbol)
        if found is not None:
            return found
        label = self._labels.get(symbol, symbol)
        bounds = self._ranges.get(symbol)
        upper = None if bounds is None else _finite(bounds.upper)
        if upper is None:
            if symbol.startswith("u"):
                raise Unsupported("a shape depends on data")
            self._open.setdefault(symbol, label)
            upper = 1
        made = self._dims[symbol] = Dim(upper, Ref(self._names.unique(label)))
        return made


def expression(value: Any) -> Any:
    """The expression of a symbolic integer, or None for a plain number."""
    node = getattr(value, "node", None)
    expr = None if node is None else node.expr
    return None if expr is None or expr.is_Integer else expr


def _finite(bound: Any) -> int | None:
    """An upper bound as a number; None for infinity, which has a type of its own."""
    text = str(bound)
    return int(text) if text.isdigit() and 0 < int(text) <= MOST else None


def dimension_names(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Any
) -> dict[int, dict[int, str]]:
    """The names that ``dynamic_shapes`` gives dimensions, by the id of the example tensor and the axis."""
    if not dynamic:
        return {}
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    spec = dynamic if isinstance(dynamic, Mapping) else dict(zip(given, dynamic, strict=False))
    found: dict[int, dict[int, str]] = {}
    for name, value in given.items():
        for tensor, axis, dim in _named(value, spec.get(name)):
            found.setdefault(id(tensor), {})[axis] = dim
    return found


def _named(value: Any, spec: Any) -> Iterator[tuple[Any, int, str]]:
    """The named dimensions of the tensors in a value, as its specification gives them."""
    if spec is None:
        return
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        pairs = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        for axis, dim in pairs:
            name = getattr(dim, "__name__", "")
            if name.isidentifier():
                yield value, int(axis), name
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, one in value.items():
            yield from _named(one, spec.get(key))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for one, own in zip(value, spec, strict=False):
            yield from _named(one, own)
