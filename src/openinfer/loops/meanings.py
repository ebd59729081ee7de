"""The semantics of structured statements, for the interpreter: their definitions, not their loops."""

from typing import Any, Protocol

import numpy as np

from openinfer.loops.build import cast
from openinfer.loops.ir import Attend, Axis, Binary, Const, Math, Order, Result, Scalar, ScalarVar, Scan, Structure


class Execution(Protocol):
    """What the interpreter provides to structures."""

    def value(self, scalar: Scalar) -> Any:
        """The value of an expression."""

    def set(self, var: ScalarVar, value: Any) -> None:
        """Set a variable."""

    def extent(self, axis: Axis) -> int:
        """The extent of an axis."""

    def write(self, one: Result) -> None:
        """Write a result, whose variables have been set."""


def meant(one: Structure, run: Execution) -> None:
    """Execute a structure."""
    match one:
        case Scan():
            _scan(one, run)
        case Order():
            _order(one, run)
        case Attend():
            _attend(one, run)
        case _:
            raise TypeError(one)


def _scan(one: Scan, run: Execution) -> None:
    places = range(run.extent(one.axis))
    total, is_finite = run.value(Const(one.initial, one.accumulator)), True
    for place in reversed(places) if one.is_reversed else places:
        run.set(one.axis.index, np.int64(place))
        if one.is_exclusive:
            _write_total(one, run, total, is_finite=is_finite)
        term = run.value(one.term)
        is_finite = is_finite and bool(np.isfinite(term))
        run.set(one.total, total)
        total = run.value(Binary(one.op, one.total, one.term))
        if not one.is_exclusive:
            _write_total(one, run, total, is_finite=is_finite)


def _write_total(one: Scan, run: Execution, total: Any, *, is_finite: bool) -> None:
    """Write a total; a product of finite factors that overflows and then meets a 0 is 0."""
    is_lost = one.op == "mul" and one.accumulator.kind == "float" and is_finite and bool(np.isnan(total))
    run.set(one.total, run.value(Const(0, one.accumulator)) if is_lost else total)
    run.write(one.out)


def _order(one: Order, run: Execution) -> None:
    keys = []
    for place in range(run.extent(one.axis)):
        run.set(one.axis.index, np.int64(place))
        keys.append(run.value(one.key))
    found = sorted(range(len(keys)), key=lambda place: _rank(keys[place]), reverse=one.is_descending)
    for rank in range(run.extent(one.rank)):
        run.set(one.rank.index, np.int64(rank))
        run.set(one.ranked, keys[found[rank]])
        run.set(one.origin, np.int64(found[rank]))
        for result in one.outs:
            run.write(result)


def _rank(key: Any) -> tuple[bool, Any]:
    """The sort key of a key: NaN is larger than all numbers, and equal to itself."""
    is_nan = bool(np.isnan(key))
    return is_nan, 0 if is_nan else key


def _attend(one: Attend, run: Execution) -> None:
    for head, row in np.ndindex(run.extent(one.head), run.extent(one.row)):
        run.set(one.head.index, np.int64(head))
        run.set(one.row.index, np.int64(row))
        scores = [_score(one, run, key) for key in range(run.extent(one.key))]
        top = max((score for score in scores if not np.isnan(score)), default=-np.inf)
        weights = {}
        for key, score in enumerate(scores):
            if score != -np.inf:
                run.set(one.total, score - top if top != -np.inf else score)
                weights[key] = run.value(Math("exp", (one.total,)))
        total = sum(weights.values(), start=run.value(Const(0, one.accumulator)))
        for column in range(run.extent(one.column)):
            run.set(one.column.index, np.int64(column))
            mean = run.value(Const(0, one.accumulator))
            for key, weight in weights.items():
                run.set(one.key.index, np.int64(key))
                mean = mean + weight / total * run.value(cast(one.values.scalar, one.accumulator))
            run.set(one.total, mean)
            run.write(one.out)


def _score(one: Attend, run: Execution, key: int) -> Any:
    """The score of the current query and a key; -inf if the key is hidden."""
    run.set(one.key.index, np.int64(key))
    total = run.value(Const(0, one.accumulator))
    for place in range(run.extent(one.depth)):
        run.set(one.depth.index, np.int64(place))
        query, other = (run.value(cast(element.scalar, one.accumulator)) for element in (one.queries, one.keys))
        total = total + query * other
    run.set(one.total, total)
    score = run.value(one.score)
    is_late = one.until is not None and key > run.value(one.until)
    is_early = one.after is not None and key <= run.value(one.after)
    return type(score)(-np.inf) if is_late or is_early else score
