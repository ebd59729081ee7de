"""Breakpoints of the debugger: those on a place stop before its node, those on a value after the node that wrote it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph
from openinfer.errors import nearest
from openinfer.ir import Access, Loop, Node
from openinfer.ir.rules import node_name
from openinfer.ops import Array
from openinfer.sim.breakpoints import on_change, on_nan, on_write
from openinfer.sim.commands import PLACES, RefusedError
from openinfer.sim.executor import NodeView
from openinfer.sim.listing import Listing
from openinfer.sim.views import ExecutionPoint, access_in

_DIGITS = re.compile(r"[0-9]{1,12}")
_COMPARISON = re.compile(r"(.+?)\s*(<=|>=|==|!=|<|>)\s*(\S+)")
_OF = re.compile(r"(min|max|mean|nan|inf)\s*(?:\((.+)\)|\s(.+))")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_MEASURE: dict[str, Callable[[Array], Any]] = {
    "min": lambda value: np.nanmin(value) if not np.isnan(value).all() else [],
    "max": lambda value: np.nanmax(value) if not np.isnan(value).all() else [],
    "mean": lambda value: np.nanmean(value) if not np.isnan(value).all() else [],
    "nan": lambda value: np.isnan(value).sum(),
    "inf": lambda value: np.isinf(value).sum(),
}
"""Measures over all elements; empty if there are none to measure."""


@dataclass(frozen=True)
class Stop:
    """A breakpoint: ``before`` tests the next node, ``after`` the one that has been executed."""

    text: str
    before: Callable[[ExecutionPoint], bool] | None = None
    after: Callable[[NodeView], bool] | None = None


class Stops:
    """Parses the arguments of ``break``."""

    def __init__(self, bound: BoundGraph, listing: Listing) -> None:
        self._bound = bound
        self._listing = listing
        self._nodes: list[Node] = list(bound.graph.walk())
        self._indices = {node.index for node in self._nodes}
        self._bodies: dict[str, set[int]] = {}
        """For each loop index name, the first nodes in the bodies of its loops."""
        for node in self._nodes:
            if isinstance(node.kind, Loop) and node.body:
                self._bodies.setdefault(node.kind.index, set()).add(node.body[0].index)

    def parsed(self, text: str) -> Stop:
        """The breakpoint that a text describes."""
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        match word:
            case _ if _DIGITS.fullmatch(word):
                return self._at_node(int(word))
            case "node" if _DIGITS.fullmatch(rest):
                return self._at_node(int(rest))
            case "line" if _DIGITS.fullmatch(rest):
                return self._at_line(int(rest))
            case "op" if rest:
                return self._at_op(rest)
            case "write" if rest:
                return Stop(f"write {self.variable(rest)}", after=on_write(rest).test)
            case "change" if rest:
                return Stop(f"change {self.variable(rest)}", after=on_change(rest).test)
            case "nan":
                return Stop(f"nan {self.variable(rest)}" if rest else "nan", after=on_nan(rest or None).test)
            case "if" if rest:
                return self._condition(rest)
        message = f"cannot understand {text!r:.60}; {PLACES}"
        raise RefusedError(message)

    def variable(self, name: str) -> str:
        """Require that a name is a variable's, and return it."""
        if name not in self._bound.vars:
            message = f"there is no variable {name!r:.60}; {nearest(name, self._bound.vars) or 'vars lists them'}"
            raise RefusedError(message)
        return name

    # --- before a node --------------------------------------------------------------------------------------------

    def _at_node(self, index: int) -> Stop:
        if index not in self._indices:
            message = f"there is no node {index}; the last one is {max(self._indices)}"
            raise RefusedError(message)
        line = self._listing.line_of(index)
        return _at(self._listing.copies_of(index), f"node {index}, line {line}")

    def _at_line(self, line: int) -> Stop:
        index = self._listing.first_from(line)
        if index is None:
            message = f"no node begins on line {line} or after it; the last line is {self._listing.count}"
            raise RefusedError(message)
        found = self._listing.line_of(index)
        moved = "" if found == line else f", the first with a node from line {line} on"
        return _at(self._listing.copies_of(index), f"line {found}, node {index}{moved}")

    def _at_op(self, name: str) -> Stop:
        found = frozenset(node.index for node in self._nodes if node_name(node) == name)
        if not found:
            known = {node_name(node) or "" for node in self._nodes} - {""}
            advice = nearest(name, known) or f"there are {', '.join(sorted(known))}"
            message = f"no node is called {name!r:.60}; {advice}"
            raise RefusedError(message)
        return _at(found, f"op {name}, {len(found)} node{'s' * (len(found) > 1)}")

    def _at_iteration(self, index: str, holds: Callable[[int], bool], text: str) -> Stop:
        """Stop at the start of iterations whose index satisfies a condition."""
        firsts = self._bodies[index]
        return Stop(text, before=lambda p: p.node is not None and p.node.index in firsts and holds(p.indices[index]))

    # --- after a node ---------------------------------------------------------------------------------------------

    def _condition(self, text: str) -> Stop:
        found = parsed_condition(text)
        if str(found.access) in self._bodies and found.measure is None:
            return self._at_iteration(found.access.base, lambda index: found.holds(np.asarray(index)), f"if {text}")
        self.variable(found.access.base)
        return Stop(f"if {text}", after=_Written(found))

    def only_where(self, stop: Stop, condition: str) -> Stop:
        """Restrict a breakpoint by a condition."""
        if not condition:
            return stop
        found = parsed_condition(condition)
        self._require_known(found.access.base)
        before, after = stop.before, stop.after
        return Stop(
            f"{stop.text}, if {condition}",
            None if before is None else lambda place: before(place) and found.holds(place.read(found.access)),
            None if after is None else lambda node: after(node) and found.holds(node.read(found.access)),
        )

    def _require_known(self, name: str) -> None:
        """Refuse names that are neither an index nor a variable, of the graph or of a block."""
        if name not in self._bodies and not any(one.rpartition(".")[2] == name for one in self._bound.vars):
            self.variable(name)


@dataclass(frozen=True)
class ValueCondition:
    """A comparison with a number: of a measure of a variable, or of any of its elements."""

    access: Access
    measure: Callable[[Array], Any] | None
    compare: Callable[[Any, Any], Any]
    limit: float

    def holds(self, value: Array) -> bool:
        """Whether a value satisfies the condition."""
        number = value.astype(np.float64)
        judged = number if self.measure is None else self.measure(number)
        return bool(np.any(self.compare(judged, self.limit)))


def parsed_condition(text: str) -> ValueCondition:
    """Parse a condition.

    >>> parsed_condition("max(h) > 3").holds(np.array([1, 4]))
    True
    """
    parts = _COMPARISON.fullmatch(text.strip())
    limit = None if parts is None else _number(parts[3])
    if parts is None or limit is None:
        message = f"cannot understand {text!r:.60}; a condition is like max(h) > 3, h[0] <= 1e-6, l == 2"
        raise RefusedError(message)
    of = _OF.fullmatch(parts[1])
    measure = None if of is None else _MEASURE[of[1]]
    return ValueCondition(parsed_access(parts[1] if of is None else of[2] or of[3]), measure, _COMPARE[parts[2]], limit)


@dataclass(frozen=True)
class _Written:
    """Tests a variable whenever a node writes it."""

    condition: ValueCondition

    def __call__(self, node: NodeView) -> bool:
        access = self.condition.access
        return access.base in node.written and self.condition.holds(node.read(access))


def _at(indices: frozenset[int], text: str) -> Stop:
    return Stop(text, before=lambda place: place.node is not None and place.node.index in indices)


def parsed_access(text: str) -> Access:
    """A variable or part of it."""
    try:
        return access_in(text.strip())
    except ValueError as error:
        message = f"{text.strip()!r:.60} is not a variable: {error}"
        raise RefusedError(message) from error


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if isnan(value) else value
