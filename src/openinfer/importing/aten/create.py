"""Ops that create tensors from nothing or from a shape, and arithmetic on sizes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from openinfer.importing.aten.context import AtenContext, AtenResults, aten_op, python_op, word
from openinfer.importing.draft import DraftOperand, extent, known
from openinfer.importing.extents import tidied
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import Dim, is_same, is_symbolic, larger, smaller

_FILLS = {"zeros": 0, "ones": 1, "empty": 0, "full": None}
_NAMES = {
    f"{before}{name}{behind}": value
    for name, value in _FILLS.items()
    for before, behind in (("", ""), ("new_", ""), ("", "_like"))
}


@aten_op(*_NAMES, "fill", "zero", "empty_strided", "new_empty_strided")
def _fill(n: AtenContext) -> AtenResults:
    """Fill with one number; ``empty`` fills with zero."""
    shape = n.ints("size") if "size" in n.values else tuple(n.x.shape)
    value = _NAMES.get(word(n), 0)
    if value is None or word(n) == "fill":
        given = n.values.get("fill_value", n.values.get("value"))
        return n.emit.full(n.as_operand(given, n.dtype), shape)
    return n.emit.full(n.emit.scalar(value, n.dtype), shape)


@aten_op("scalar_tensor")
def _scalar(n: AtenContext) -> AtenResults:
    return n.operand("s", n.dtype)


@aten_op("arange")
def _arange(n: AtenContext) -> AtenResults:
    start, end, step = (n.values.get(name, default) for name, default in (("start", 0), ("end", 0), ("step", 1)))
    if not all(isinstance(one, int) for one in (start, end, step)):
        if not all(isinstance(one, int | float) and not isinstance(one, Dim) for one in (start, end, step)):
            raise Unsupported("its ends are computed from data")
        return known(np.arange(start, end, step).astype(n.dtype.array), n.dtype)
    if is_symbolic(step) or (step < 0 and (is_symbolic(start) or is_symbolic(end))) or step == 0:
        raise Unsupported("its step depends on a size, or it counts down from a size")
    between = tidied(end - start if step > 0 else start - end, n.emit.sizes)
    count = larger(between if abs(step) == 1 else (between + abs(step) - 1) // abs(step), 0)
    if not is_symbolic(count) and not is_symbolic(start):
        return known((np.arange(count) * step + start).astype(n.dtype.array), n.dtype)
    ramp: DraftOperand = n.emit.ramp(count)
    ramp = ramp if step == 1 else n.emit.op("mul", ramp, known(np.int64(step)))
    ramp = ramp if is_same(start, 0) else n.emit.op("add", ramp, extent(start))
    return n.cast(ramp, n.dtype)


@aten_op("linspace")
def _linspace(n: AtenContext) -> AtenResults:
    count = n.integer("steps")
    if is_symbolic(count):
        raise Unsupported("its length depends on a size")
    return known(np.linspace(n.real("start"), n.real("end"), count).astype(n.dtype.array), n.dtype)


@aten_op("eye")
def _eye(n: AtenContext) -> AtenResults:
    rows = n.integer("n")
    columns = n.integer("m", rows)
    places = [n.emit.ramp(one) for one in (rows, columns)]
    same = n.emit.op("eq", n.emit.op("unsqueeze", places[0], axes=(1,)), n.emit.op("unsqueeze", places[1], axes=(0,)))
    return n.cast(same, n.dtype)


@aten_op(
    *("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "bernoulli", "multinomial"),
    *("normal", "uniform", "normal_functional"),
)
def _random(_node: AtenContext) -> AtenResults:
    raise Unsupported("it draws random numbers, and a graph gives the same result each time", "make it an input")


# --- sizes ------------------------------------------------------------------------------------------------------------


@aten_op("sym_size")
def _size(n: AtenContext) -> AtenResults:
    return n.x.shape[n.axis(n.integer("dim"))]


@aten_op("sym_numel")
def _numel(n: AtenContext) -> AtenResults:
    count: int = 1
    for one in n.x.shape:
        count = count * one
    return count


def _floored(one: int, other: int) -> int:
    return one // other


def _ratio(one: Any, other: Any) -> Any:
    if not isinstance(one, Dim) and not isinstance(other, Dim):
        return one / other
    found = one // other
    if isinstance(other, Dim) or not is_same(found * other, one):
        raise Unsupported("a size is divided, and the remainder matters")
    return found


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "_operator.add": lambda one, other: one + other,
    "_operator.sub": lambda one, other: one - other,
    "_operator.mul": lambda one, other: one * other,
    "_operator.neg": lambda one: -one,
    "_operator.floordiv": _floored,
    "_operator.mod": lambda one, other: one % other,
    "_operator.truediv": _ratio,
    "torch.sym_max": larger,
    "torch.sym_min": smaller,
    "torch.sym_int": lambda one: one if isinstance(one, Dim) else int(one),
    "torch.sym_float": lambda one: one if isinstance(one, Dim) else float(one),
    "math.trunc": lambda one: one if isinstance(one, Dim) else math.trunc(one),
    "math.floor": lambda one: one if isinstance(one, Dim) else math.floor(one),
    "math.ceil": lambda one: one if isinstance(one, Dim) else math.ceil(one),
}


@python_op(*_ARITHMETIC)
def _arithmetic(n: AtenContext) -> AtenResults:
    given = list(n.values.values())
    if not all(isinstance(one, int | float) for one in given):
        raise Unsupported("it computes with numbers that depend on data")
    return _ARITHMETIC[n.node.op](*given)


@python_op("_operator.getitem")
def _getitem(n: AtenContext) -> AtenResults:
    results, place = n.values["0"], n.values["1"]
    found = results[place]
    if found is None:
        raise Unsupported(f"result {place} of the node that it reads is not supported")
    return found
