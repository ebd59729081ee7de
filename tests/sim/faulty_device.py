"""A device that is made up, and computes wrongly."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openinfer.dtypes import DType
from openinfer.ops import Array, Call, OpError, OpRecord
from openinfer.sim.backend import HostBackend, NodeKernel


class Faulty(HostBackend):
    """A device that gets one op wrong by a factor, from some call on."""

    def __init__(self, op: str, factor: float, right: int = 0) -> None:
        self.op, self.factor, self.right = op, factor, right
        self.prepared: list[str] = []

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
        own = super().kernel(record, call, stored)
        device = self

        class Kernel:
            name = record.name

            @property
            def call(self) -> Call:
                return own.call

            def __call__(self, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
                results = own(arrays)
                if record.name != device.op:
                    return results
                device.right -= 1
                return tuple(one * np.float32(1 if device.right >= 0 else device.factor) for one in results)

        return Kernel()

    def prepare(self, kernels: Sequence[Any]) -> Sequence[OpError | None]:
        self.prepared += [one.name for one in kernels]
        return [None] * len(kernels)

    def taken(self) -> int | None:
        return 12_345
