"""What structured statements mean to the interpreter: their definitions, not their loops."""

from typing import Any, Protocol

import numpy as np

from openinfer.loops.ir import Axis, Binary, Const, Order, Result, Scalar, Scan, Structure, Var


class Execution(Protocol):
    """What the interpreter does for a structure."""

    def value(self, scalar: Scalar) -> Any:
        """The value of an expression."""

    def set(self, var: Var, value: Any) -> None:
        """Give a variable a value."""

    def extent(self, axis: Axis) -> int:
        """How far an index runs."""

    def write(self, one: Result) -> None:
        """Write a result, where its variables have values."""


def meant(one: Structure, run: Execution) -> None:
    """Do what a structure says."""
    match one:
        case Scan():
            _scan(one, run)
        case Order():
            _order(one, run)
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
    """Finite factors that overflow, and then meet a 0, have the product 0."""
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
    """What a key is sorted by: NaN is larger than all numbers, and equal to itself."""
    is_nan = bool(np.isnan(key))
    return is_nan, 0 if is_nan else key
