"""Constant folding: ops on known tensors, computed by their references or symbolically over dynamic sizes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from openinfer.dtypes import Array
from openinfer.importing.draft import KnownTensor, known
from openinfer.loops.dim import Dim, is_same, larger, smaller, span
from openinfer.ops import OPS, Call, ReferenceKernel
from openinfer.ops.types import OpError

_SMALL = 1 << 20
"""Results of up to this many bytes are folded whatever the size of the inputs."""
_HIGHEST_POWER = 8
_MOST_EXTENTS = 4096
"""Tensors of dynamic sizes with more elements than any shape has stay in the graph."""


def folded(op: str, call: Call, inputs: Sequence[KnownTensor | None]) -> tuple[KnownTensor, ...] | None:
    """The results of an op on known tensors, or None if it should stay in the graph."""
    if any(one is not None and one.has_sizes for one in inputs):
        return _over_sizes(op, call, inputs)
    if any(isinstance(extent, Dim) for output in call.outputs for extent in output.shape):
        return None
    if any(isinstance(one, Dim) for value in call.params.values() if isinstance(value, tuple) for one in value):
        return None
    own = sum(one.array.nbytes for one in inputs if one is not None)
    if sum(output.nbytes for output in call.outputs) > 4 * own + _SMALL:
        return None
    kernel = ReferenceKernel(OPS[op], call, [None if one is None else one.dtype for one in inputs])
    try:
        with np.errstate(all="ignore"):
            results = kernel([None if one is None else one.array for one in inputs])
    except (OpError, MemoryError):
        return None
    return tuple(KnownTensor(output.dtype, result) for output, result in zip(call.outputs, results, strict=True))


def _over_sizes(op: str, call: Call, inputs: Sequence[KnownTensor | None]) -> tuple[KnownTensor, ...] | None:
    arrays = [None if one is None else _objects(one.array) for one in inputs]
    if sum(array.size for array in arrays if array is not None) > _MOST_EXTENTS:
        return None
    if sum(output.size for output in call.outputs) > _MOST_EXTENTS:
        return None
    if op in _MOVES:
        results = OPS[op].reference(call, *_indexed(op, inputs, arrays))
        results = results if isinstance(results, tuple) else (results,)
        return tuple(known(one, output.dtype) for one, output in zip(results, call.outputs, strict=True))
    if op in ("sum_axis", "prod_axis") and arrays[0] is not None:
        function = np.sum if op == "sum_axis" else np.prod
        axes = call.params["axes"]
        found = function(arrays[0], axis=None if axes is None else tuple(axes), keepdims=call.params["keepdims"])
        return (known(found, call.outputs[0].dtype),)
    rule = _ELEMENTWISE.get(op)
    if rule is None or call.outputs[0].dtype.kind not in ("int", "uint", "bool"):
        return None
    shaped = np.broadcast_arrays(*[array for array in arrays if array is not None])
    flat = [rule(*elements) for elements in zip(*(array.reshape(-1) for array in shaped), strict=True)]
    if any(one is None for one in flat):
        return None
    found = np.empty(len(flat), object)
    found[:] = flat
    return (known(found.reshape(shaped[0].shape), call.outputs[0].dtype),)


def _objects(array: Array) -> Array:
    if array.dtype == object:
        return array
    found = np.empty(array.shape, object)
    found[...] = array.tolist() if array.ndim else array.item()
    return found


def _indexed(op: str, inputs: Sequence[KnownTensor | None], arrays: Sequence[Array | None]) -> list[Array | None]:
    """Indices stay integers; at this point they never depend on sizes."""
    if op not in ("gather", "take_along", "gather_nd") or inputs[1] is None:
        return list(arrays)
    return [arrays[0], inputs[1].array]


_MOVES = frozenset(
    (
        *("reshape", "flatten", "squeeze", "unsqueeze", "transpose", "flip", "concat"),
        *("stack", "split", "slice", "expand", "tile", "gather"),
    )
)


def _divided(one: int, other: int) -> int | None:
    """A truncating quotient, computed as a floor where neither operand is negative; else None."""
    if span(one)[0] < 0 or span(other)[0] < (0 if isinstance(other, Dim) else 1):
        return None
    return one // other


def _power(one: int, other: int) -> int | None:
    """A small power as repeated multiplication, else None."""
    if isinstance(other, Dim) or not 0 <= other <= _HIGHEST_POWER:
        return None
    found: int = 1
    for _ in range(other):
        found = found * one
    return found


def _compared(decide: Callable[[tuple[int, int], tuple[int, int]], bool | None]) -> Callable[[int, int], bool | None]:
    return lambda one, other: decide(span(one), span(other))


def _equal(one: int, other: int) -> bool | None:
    if is_same(one, other):
        return True
    first, second = span(one), span(other)
    return False if first[1] < second[0] or second[1] < first[0] else None


def _not(value: bool | None) -> bool | None:  # noqa: FBT001  (an operand)
    return None if value is None else not value


def _less(one: tuple[int, int], other: tuple[int, int]) -> bool | None:
    return True if one[1] < other[0] else False if one[0] >= other[1] else None


def _chosen(cond: Any, one: Any, other: Any) -> Any:
    return one if cond else other


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lambda one, other: one + other,
    "sub": lambda one, other: one - other,
    "mul": lambda one, other: one * other,
    "div": _divided,
    "floor_div": lambda one, other: one // other if isinstance(other, Dim) or other > 0 else None,
    "mod": lambda one, other: one % other if isinstance(other, Dim) or other > 0 else None,
    "pow": _power,
    "square": lambda one: one * one,
    "neg": lambda one: -one,
    "abs": lambda one: one if span(one)[0] >= 0 else None,
    "min": smaller,
    "max": larger,
    "eq": _equal,
    "ne": lambda one, other: _not(_equal(one, other)),
    "lt": _compared(_less),
    "gt": _compared(lambda one, other: _less(other, one)),
    "ge": _compared(lambda one, other: _not(_less(one, other))),
    "le": _compared(lambda one, other: _not(_less(other, one))),
    "where": _chosen,
    "cast": lambda one: one,
}
