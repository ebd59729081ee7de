"""The text being edited, and everything that is known about it after each keystroke."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from openinfer.check import check
from openinfer.check.bound import BoundGraph
from openinfer.errors import Code, Diagnostic, OpenInferError, Span, fixes_of
from openinfer.ir import Graph
from openinfer.lang import parse
from openinfer.lang.source import unknown_ops
from openinfer.oinf.model import ModelLoader

_OF_THE_MODEL = (Code.UNKNOWN_SIZE, Code.UNKNOWN_LINK)
"""Errors of a graph that needs a model, or sizes, to be bound."""


@dataclass(frozen=True)
class CheckedWith:
    """The context in which a text is checked."""

    name: str = "graph.oig"
    model: ModelLoader | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True)
class CheckedText:
    """A text, its graph as far as it has one, and its problems."""

    text: str
    surroundings: CheckedWith
    graph: Graph | None
    bound: BoundGraph | None
    problems: tuple[Diagnostic, ...]
    needs_model: bool = False
    """Whether types are unknown only because neither a model nor sizes were given."""

    @cached_property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The problems that are not warnings."""
        return tuple(problem for problem in self.problems if not problem.code.is_warning)

    def require_bound(self) -> BoundGraph:
        """The bound graph; if there is none, the errors are raised."""
        if self.bound is not None:
            return self.bound
        if self.errors:
            raise OpenInferError(*self.errors)
        advice = "start the studio with --model FILE.oinf, or with --size NAME=N for each open size"
        raise OpenInferError(Diagnostic(Code.UNKNOWN_SIZE, "the graph needs a model or sizes to run", None, advice))

    def problem_facts(self) -> list[dict[str, object]]:
        """The problems as plain values, with their character ranges and the fixes that their help names."""
        return [
            one.facts() | self._offsets(one) | {"fixes": [fix.title for fix in fixes_of(one.help)]}
            for one in self.problems
        ]

    def _offsets(self, problem: Diagnostic) -> dict[str, object]:
        span = problem.span
        if not isinstance(span, Span):
            return {}
        return {"from": page_offset(self.text, span.start), "to": page_offset(self.text, span.end)}


def page_offset(text: str, offset: int) -> int:
    r"""An offset in UTF-16 units, as pages count: characters outside the basic plane count as two.

    >>> page_offset("\N{ROCKET}x", 1), text_offset("\N{ROCKET}x", 2)
    (2, 1)
    """
    return offset + sum(character > "\uffff" for character in text[:offset])


def text_offset(text: str, offset: int) -> int:
    """An offset in characters, from a page's UTF-16 units."""
    return len(text.encode("utf-16-le")[: 2 * offset].decode("utf-16-le", "ignore"))


def checked_text(text: str, surroundings: CheckedWith) -> CheckedText:
    """Parse and check a text; problems are returned and never raised.

    >>> found = checked_text("volatile { y: f32; } block entry { op neg(y) >> z; return; }", CheckedWith())
    >>> [problem.code.value for problem in found.errors], found.bound
    (['E201'], None)
    """
    try:
        parsed = parse(text, surroundings.name, strict=surroundings.strict)
    except OpenInferError as error:
        return CheckedText(text, surroundings, None, None, error.diagnostics)
    if any(not problem.code.is_warning for problem in parsed.problems):
        graph = parsed.graph if parsed.graph.blocks else None
        return CheckedText(text, surroundings, graph, None, tuple(parsed.problems))
    unknown = tuple(unknown_ops(parsed.graph))
    if unknown:
        return CheckedText(text, surroundings, parsed.graph, None, (*parsed.problems, *unknown))
    return _bound_text(text, surroundings, parsed.graph, tuple(parsed.problems))


def _bound_text(text: str, with_: CheckedWith, graph: Graph, found: tuple[Diagnostic, ...]) -> CheckedText:
    try:
        binding = check(graph, with_.model, with_.sizes, strict=with_.strict)
    except OpenInferError as error:
        return CheckedText(text, with_, graph, None, (*found, *error.diagnostics))
    more = tuple(problem for problem in binding.problems if problem not in found)
    is_bare = with_.model is None and not with_.sizes
    if is_bare and any(problem.code in _OF_THE_MODEL for problem in more):
        return CheckedText(text, with_, graph, None, found, needs_model=True)
    return CheckedText(text, with_, graph, binding.bound, (*found, *more))
