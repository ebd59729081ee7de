"""Dimensions of a model as extents: numbers, dynamic sizes, and expressions over their names."""

import re
from collections.abc import Callable, Iterable, Mapping

from openinfer.errors import Code, Diagnostic, ImportingError, nearest
from openinfer.importing.identifiers import Identifiers
from openinfer.importing.onnx_model import OnnxDim, OnnxValueInfo
from openinfer.importing.options import SizeExpression, SizeWord
from openinfer.importing.problems import bad_option
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, span
from openinfer.tensor import MAX_DIMS

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][\w.]*)|(//|[-+*/()]))")
_DEEPEST = 60


class ModelSizes:
    """The sizes of one model: the caller's choices by name, and the extents that follow from them."""

    def __init__(self, choices: Mapping[str, SizeWord]) -> None:
        self._choices = dict(choices)
        self._names = Identifiers()
        self._dims: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        self._seen: set[str] = set()
        self._open: set[str] = set()

    def shape(self, info: OnnxValueInfo) -> tuple[int, ...]:
        """The extents of an input; a size without a choice is recorded as missing and counts as 1."""
        dims = info.dims or ()
        if len(dims) > MAX_DIMS:
            raise bad_option(f"the input {info.name!r:.60} has {len(dims)} dimensions, and {MAX_DIMS} are the most")
        return tuple(self._extent(info.name, place, dim) for place, dim in enumerate(dims))

    def pass_over(self, infos: Iterable[OnnxValueInfo]) -> None:
        """Accept choices for the dimensions of outputs, though nothing needs them."""
        for info in infos:
            for place, dim in enumerate(info.dims or ()):
                self._seen.update((dim.name, f"{info.name}[{place}]", *_words(dim.name)))

    def pass_over_places(self, places: Iterable[str]) -> None:
        """Accept choices for extents inside of the model."""
        self._seen.update(places)

    def require_all(self) -> None:
        """Reject sizes without a choice, all at once, and choices for sizes that do not exist."""
        if self._missing:
            listed = ", ".join(
                repr(name) if name == where else f"{name!r} ({where})" for name, where in self._missing.items()
            )
            example = " ".join(f"--size '{name}=1'" for name in self._missing)
            count = len(self._missing)
            message = f"{'a size has' if count == 1 else f'{count} sizes have'} no value: {listed}"
            advice = f"{example}; NAME<=BOUND keeps a size dynamic, NAME=32*n makes it a multiple of another"
            raise ImportingError(Diagnostic(Code.OPEN_SIZE, message, help=advice))
        unknown = [name for name in self._choices if name not in self._seen]
        if unknown:
            known = sorted(self._seen - {""})
            advice = nearest(unknown[0], known) or f"its sizes are {', '.join(map(repr, known[:20]))}"
            raise bad_option(f"the model has no size {unknown[0]!r:.100}", advice if known else "it has none")

    @property
    def dynamic(self) -> dict[str, int]:
        """The dynamic sizes by their names in the graph."""
        return {str(dim.expr): dim for dim in self._dims.values() if isinstance(dim, Dim) and isinstance(dim.expr, Ref)}

    @property
    def bounds(self) -> tuple[tuple[str, int], ...]:
        """The dynamic sizes by their names in the graph, with their bounds."""
        return tuple((name, int(dim)) for name, dim in self.dynamic.items())

    def _extent(self, name: str, place: int, dim: OnnxDim) -> int:
        where = f"{name}[{place}]"
        if dim.value is not None:
            self._seen.add(where)
            return dim.value
        if where in self._choices:
            self._seen.update((where, dim.name))
            return self._size(where, where)
        if not dim.name:
            return self._size(where, where)
        if dim.name in self._choices or not _is_expression(dim.name):
            return self._size(dim.name, where)
        return _Expression(dim.name, lambda word: self._size(word, where)).value()

    def _size(self, name: str, where: str) -> int:
        self._seen.add(name)
        found = self._dims.get(name)
        if found is not None:
            return found
        choice = self._choices.get(name)
        if choice is None:
            self._missing.setdefault(name, where)
            return 1
        if isinstance(choice, SizeExpression):
            made = self._computed(name, choice.text, where)
        elif choice.is_bound:
            made = Dim(choice.value, Ref(self._names.unique(name)))
        else:
            made = choice.value
        self._dims[name] = made
        return made

    def _computed(self, name: str, text: str, where: str) -> int:
        """A size that the caller defines as an expression over others."""
        if name in self._open:
            raise bad_option(f"the size {name!r:.100} is computed from itself")
        self._open.add(name)
        try:
            found = _Expression(text, lambda word: self._size(word, where)).value()
        except (ValueError, ZeroDivisionError) as error:
            raise bad_option(f"{text!r:.60}, the size {name!r:.60}, is not an expression: {error}") from error
        self._open.remove(name)
        if span(found)[0] < 0:
            raise bad_option(f"{text!r:.60}, the size {name!r:.60}, can be less than 0")
        return found


def _words(text: str) -> list[str]:
    return [match[2] for match in _TOKEN.finditer(text) if match[2] and match[2] != "floor"]


def _is_expression(text: str) -> bool:
    """Whether a dimension is computed from others: it has an operator and parses as an expression.

    >>> _is_expression("past + sequence"), _is_expression("DynamicDimension.0"), _is_expression("a-b c")
    (True, False, False)
    """
    if not re.search(r"[-+*/(]", text):
        return False
    try:
        _Expression(text, lambda _word: 4).value()
    except (ValueError, ZeroDivisionError):
        return False
    return True


class _Expression:
    """Evaluates an expression over names with ``+ - * /`` and ``floor``; division rounds down."""

    def __init__(self, text: str, lookup: Callable[[str], int]) -> None:
        self._tokens: list[str] = []
        place = 0
        while place < len(text.rstrip()):
            match = _TOKEN.match(text, place)
            if match is None:
                message = "not an expression"
                raise ValueError(message)
            self._tokens.append(match[0].strip())
            place = match.end()
        self._lookup = lookup
        self._depth = 0

    def value(self) -> int:
        found = self._sum()
        if self._tokens:
            message = "not an expression"
            raise ValueError(message)
        return found

    def _take(self) -> str:
        if not self._tokens:
            message = "the expression ends too early"
            raise ValueError(message)
        return self._tokens.pop(0)

    def _sum(self) -> int:
        found = self._product()
        while self._tokens[:1] and self._tokens[0] in "+-":
            operator, other = self._take(), self._product()
            found = found + other if operator == "+" else found - other
        return found

    def _product(self) -> int:
        found = self._factor()
        while self._tokens[:1] and self._tokens[0] in ("*", "/", "//"):
            operator, other = self._take(), self._factor()
            found = found * other if operator == "*" else found // other
        return found

    def _factor(self) -> int:
        self._depth += 1
        if self._depth > _DEEPEST:
            message = "the expression is nested too deep"
            raise ValueError(message)
        word = self._take()
        if word == "-":
            found = -self._factor()
        elif word == "(" or (word == "floor" and self._tokens[:1] == ["("]):
            if word == "floor":
                self._take()
            found = self._sum()
            if self._take() != ")":
                message = "a parenthesis is open"
                raise ValueError(message)
        elif word.isdigit():
            found = int(word)
        elif word[0].isalpha() or word[0] == "_":
            found = self._lookup(word)
        else:
            message = "not an expression"
            raise ValueError(message)
        self._depth -= 1
        return found
