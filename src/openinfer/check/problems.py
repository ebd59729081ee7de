"""Collects the problems of a check, with advice for unknown names."""

from collections.abc import Iterable

from openinfer.errors import Code, Diagnostic, GraphPlace, nearest

_MOST_ADVISED = 20


class ReportedError(Exception):
    """Checking cannot continue, because it depends on something that has already been reported."""


class Problems:
    """Diagnostics in the order in which they were found.

    Searching for the nearest name is by far the most expensive part of a problem, so only the first ones get it.
    """

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self._advised = 0

    def report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        """Add a problem."""
        self.found.append(Diagnostic(code, message, span, advice))

    def nearest(self, name: str, *candidates: Iterable[str]) -> str | None:
        """Advice that names the nearest candidates; None after the first problems."""
        return nearest(name, [one for group in candidates for one in group]) if self.may_search() else None

    def may_search(self) -> bool:
        """Whether this problem is one of the first, whose advice may take a search."""
        self._advised += 1
        return self._advised <= _MOST_ADVISED

    @property
    def has_errors(self) -> bool:
        """Whether there is a problem that is more than a warning."""
        return any(not problem.code.is_warning for problem in self.found)
