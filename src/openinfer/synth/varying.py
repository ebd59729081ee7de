"""Generalizes op calls whose extents vary from call to call to one call with dynamic sizes.

A graph whose sizes change from step to step then needs no new shaders in each step. An extent becomes a dynamic size
once it has had a second value; all others stay numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from openinfer.dtypes import DType
from openinfer.ir.expr import Ref
from openinfer.loops.dim import Dim, at
from openinfer.ops import Call, OpError, OpRecord, TensorType, infer

_MOST_KEYS = 4096
_LEAST_BOUND = 64
_MOST_ELEMENTS = 1 << 28
"""Calls whose tensors can exceed this at their bounds get shaders of their own: positions would need 64 bits."""


@dataclass(frozen=True)
class GeneralCall:
    """A call in which some extents are dynamic sizes, with their current values."""

    call: Call
    sizes: Mapping[str, int]


class VaryingExtents:
    """The extents seen in earlier calls of each op."""

    def __init__(self) -> None:
        self._first: dict[Any, tuple[int, ...]] = {}
        self._varying: dict[Any, set[int]] = {}

    def general(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> GeneralCall | None:
        """A complete call with sizes for extents that vary; None if none does, or if the op does not allow it."""
        kinds = (*call.inputs, *call.wanted)
        if any(one is not None and one.quant is not None for one in kinds):
            return None
        key = _key(record, call, stored)
        extents = tuple(extent for one in kinds if one is not None for extent in one.shape)
        if key not in self._first:
            if len(self._first) >= _MOST_KEYS:
                self._first.clear()
                self._varying.clear()
            self._first[key], self._varying[key] = extents, set()
            return None
        first, varying = self._first[key], self._varying[key]
        varying.update(place for place, extent in enumerate(extents) if extent != first[place])
        # Special cases: an extent of 1 broadcasts, and one of 0 has no elements.
        if not varying or any(extents[place] < 2 for place in varying):
            return None
        return _generalized(record, call, [(first[place], extent) for place, extent in enumerate(extents)], varying)


def _key(record: OpRecord, call: Call, stored: Sequence[DType | None]) -> Any:
    """The key shared by all calls that differ only in their extents."""
    kinds = [None if one is None else (one.dtype, len(one.shape)) for one in (*call.inputs, *call.wanted)]
    return record.name, repr(sorted(call.params.items())), tuple(kinds), len(call.inputs), tuple(stored)


def _generalized(
    record: OpRecord, call: Call, history: Sequence[tuple[int, int]], varying: set[int]
) -> GeneralCall | None:
    """The call with sizes for varying extents; those equal in both the first call and this one share a size."""
    sizes = {pair: f"s{number}" for number, pair in enumerate(dict.fromkeys(history[one] for one in sorted(varying)))}
    dims = {
        # All bounds differ, so that shape rules do not take different sizes for the same one.
        pair: Dim(max(_LEAST_BOUND, 1 << (2 * pair[1]).bit_length()) + number, Ref(name))
        for number, (pair, name) in enumerate(sizes.items())
    }
    places = iter(range(len(history)))

    def typed(one: TensorType | None) -> TensorType | None:
        if one is None:
            return None
        own = [(next(places), extent) for extent in one.shape]
        return replace(one, shape=tuple(dims[history[place]] if place in varying else n for place, n in own))

    inputs, wanted = tuple(map(typed, call.inputs)), tuple(map(typed, call.wanted))
    values = {name: pair[1] for pair, name in sizes.items()}
    try:
        made = infer(record, Call(inputs, call.params, wanted))
    except OpError:
        return None
    kinds = [one for one in (*made.inputs, *made.outputs) if one is not None]
    shapes = [tuple(at(extent, values) for extent in one.shape) for one in made.outputs]
    if shapes != [one.shape for one in call.outputs]:
        return None
    if any(prod(int(extent) for extent in one.shape) > _MOST_ELEMENTS for one in kinds):
        return None
    return GeneralCall(made, values)
