"""What checking has found so far, and what it says about names it does not know."""

from collections.abc import Iterable

from openinfer.errors import Code, Diagnostic, GraphPlace, nearest

_MOST_ADVISED = 20


class ReportedError(Exception):
    """Something cannot be judged, because what it depends on has been reported already."""


class Problems:
    """Diagnostics in the order they were found.

    Looking for the nearest name costs more than everything else a problem costs, so only the first ones get that.
    """

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self._advised = 0

    def report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        """Add a problem."""
        self.found.append(Diagnostic(code, message, span, advice))

    def nearest(self, name: str, *candidates: Iterable[str]) -> str | None:
        """Advice that names the nearest candidates; none after the first few times."""
        return nearest(name, [one for group in candidates for one in group]) if self.may_search() else None

    def may_search(self) -> bool:
        """Whether this problem is among the first few, whose advice may take a search."""
        self._advised += 1
        return self._advised <= _MOST_ADVISED

    @property
    def has_errors(self) -> bool:
        """Whether something was found that is more than a warning."""
        return any(not problem.code.is_warning for problem in self.found)
