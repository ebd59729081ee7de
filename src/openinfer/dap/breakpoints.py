"""Breakpoints as clients set them: on lines, ops, changes and values, each with a condition and a hit count."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openinfer.errors import ExecutionError
from openinfer.sim.commands import RefusedError
from openinfer.sim.listing import Listing
from openinfer.sim.stepper import Stepper
from openinfer.sim.stops import Stop, Stops
from openinfer.sim.views import ExecutionPoint


@dataclass
class _Hits:
    """A breakpoint with a hit count: it stops from the given hit on."""

    stop: Stop
    least: int
    met: int = field(default=0)

    def counted(self) -> Stop:
        if self.least <= 1:
            return self.stop
        before, after = self.stop.before, self.stop.after
        return Stop(
            f"{self.stop.text}, from time {self.least} on",
            None if before is None else lambda place: before(place) and self._is_enough(),
            None if after is None else lambda node: after(node) and self._is_enough(),
        )

    def _is_enough(self) -> bool:
        self.met += 1
        return self.met >= self.least


class Breakpoints:
    """The breakpoints of a client, set as stops of a stepper."""

    def __init__(self, stepper: Stepper, stops: Stops, listing: Listing) -> None:
        self._stepper = stepper
        self._stops = stops
        self._listing = listing
        self._set: dict[str, dict[int, _Hits]] = {}
        self._number = 0

    def set_lines(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Set all line breakpoints, in place of the previous ones."""
        return self._replaced("lines", asked, self._line)

    def _line(self, asked: dict[str, Any]) -> tuple[Stop, int | None]:
        line = int(asked["line"])
        first = self._listing.first_from(line)
        return self._stops.parsed(f"line {max(line, 0)}"), None if first is None else self._listing.line_of(first)

    def set_ops(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Set all breakpoints on ops, by name."""
        return self._replaced("ops", asked, lambda one: (self._stops.parsed(f"op {one['name']}"), None))

    def set_changes(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Set all breakpoints on changes of variables."""
        return self._replaced("changes", asked, lambda one: (self._stops.parsed(f"change {one['dataId']}"), None))

    def set_filters(self, filters: list[str]) -> list[dict[str, Any]]:
        """Set the breakpoints on values that are not finite."""
        asked = [{"filter": one} for one in filters]
        return self._replaced("filters", asked, lambda one: (self._stops.parsed(str(one["filter"])), None))

    def _replaced(
        self, group: str, asked: list[dict[str, Any]], parse: Callable[[dict[str, Any]], tuple[Stop, int | None]]
    ) -> list[dict[str, Any]]:
        """Replace the breakpoints of a group, all at once because the graph may be running."""
        kept: dict[int, _Hits] = {}
        answers: list[dict[str, Any]] = []
        for one in asked:
            self._number += 1
            try:
                stop, line = parse(one)
                kept[self._number] = _Hits(self._stops.only_where(stop, _said(one, "condition")), _least(one))
            except RefusedError as error:
                answers.append({"id": self._number, "verified": False, "message": str(error)})
                continue
            answers.append({"id": self._number, "verified": True, **({"line": line} if line is not None else {})})
        self._set[group] = kept
        self._stepper.stops = {number: hits.counted() for own in self._set.values() for number, hits in own.items()}
        return answers

    def hold_at(self, place: ExecutionPoint) -> bool:
        """Whether a breakpoint stops before the node at a place; one that cannot be evaluated does."""

        def holds(stop: Stop) -> bool:
            try:
                return stop.before is not None and stop.before(place)
            except ExecutionError:
                return True

        held = [holds(one) for one in self._stepper.stops.values()]  # evaluate all of them: some count
        return any(held)

    def count_again(self) -> None:
        """Reset the hit counts, because the run begins again."""
        for hits in (one for group in self._set.values() for one in group.values()):
            hits.met = 0


def _said(asked: dict[str, Any], key: str) -> str:
    return str(asked.get(key) or "").strip()


def _least(asked: dict[str, Any]) -> int:
    """The hit from which on a breakpoint stops."""
    text = _said(asked, "hitCondition").removeprefix(">=").strip() or "1"
    if not text.isdecimal():
        message = f"the hit count is {text!r:.40}, which is not a number"
        raise RefusedError(message)
    return int(text)
