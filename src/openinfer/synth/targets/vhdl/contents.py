"""The values of a circuit's weights: they are part of the circuit and determine the widths of its wires."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import unpack
from openinfer.loops.intervals import Interval
from openinfer.loops.text import kernel_text
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import KernelStep, Weight

WeightNumbers = npt.NDArray[np.int64]


class WeightContents:
    """Reads the weights of a program."""

    def __init__(self, placed: Placed) -> None:
        self._placed = placed
        self._ranges: dict[Weight, Interval] = {}

    def numbers(self, weight: Weight) -> Iterator[WeightNumbers]:
        """The elements of each tensor that an operand can refer to, in order."""
        dtype = weight.dtype
        for name in filter(None, weight.names):
            data = np.frombuffer(self._placed.weights.data(name, weight.part, dtype), np.uint8)
            elements = (
                unpack(data, dtype, 0, data.size * 8 // dtype.bits) if dtype.is_packed else data.view(dtype.array)
            )
            yield elements.astype(np.int64)

    def range(self, weight: Weight) -> Interval | None:
        """The smallest and largest element; None for u64, packed weights and everything but integers."""
        if weight.dtype.kind not in ("int", "uint") or weight.packing is not None or weight.dtype.name == "u64":
            return None
        if weight not in self._ranges:
            ends = [(int(one.min()), int(one.max())) for one in self.numbers(weight) if one.size]
            self._ranges[weight] = (min((one for one, _ in ends), default=0), max((one for _, one in ends), default=0))
        return self._ranges[weight]

    @cached_property
    def by_kernel(self) -> dict[str, dict[str, Interval]]:
        """By kernel text, the element ranges of the buffers that are weights in all calls."""
        found: dict[str, dict[str, Interval]] = {}
        for step in self._placed.program.steps():
            if isinstance(step, KernelStep):
                now = self._of(step)
                text = kernel_text(step.kernel)
                before = found.get(text, now)
                found[text] = {name: _union(before[name], now[name]) for name in before if name in now}
        return found

    def _of(self, step: KernelStep) -> dict[str, Interval]:
        found: dict[str, Interval] = {}
        for buffer, operand in zip(step.kernel.inputs, step.inputs, strict=True):
            ends = self.range(operand) if isinstance(operand, Weight) else None
            if ends is not None:
                found[buffer.name] = ends
        return found


def _union(one: Interval, other: Interval) -> Interval:
    return min(one[0], other[0]), max(one[1], other[1])
