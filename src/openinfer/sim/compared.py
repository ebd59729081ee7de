"""Checks a device: every node is also computed on the CPU, from the same operands, and compared.

An error in one node therefore never shows up at another: each node is held to the contract of its own op.
"""

from collections.abc import Sequence

from openinfer.dtypes import DType
from openinfer.errors import Code
from openinfer.ops import Array, Call, OpError, OpRecord
from openinfer.ops.agreement import Contract
from openinfer.sim.backend import Backend, NodeKernel


class ComparedBackend:
    """A backend whose results are compared with the reference; a difference raises E808 at the node."""

    def __init__(self, device: Backend) -> None:
        self._device = device
        self.kernels = 0
        """The number of kernels that have run and were correct."""

    @property
    def is_flushing(self) -> bool:
        """As for the device."""
        return self._device.is_flushing

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
        """The device's kernel together with the reference."""
        return _ComparedKernel(self, self._device.kernel(record, call, stored), Contract(record, call, stored))

    def prepare(self, kernels: Sequence[NodeKernel]) -> Sequence[OpError | None]:
        """As for the device."""
        return self._device.prepare([one.own for one in kernels if isinstance(one, _ComparedKernel)])

    def taken(self) -> int | None:
        """As for the device."""
        return self._device.taken()


class _ComparedKernel:
    def __init__(self, backend: ComparedBackend, own: NodeKernel, contract: Contract) -> None:
        self.own = own
        self.call = own.call
        self._backend = backend
        self._contract = contract

    def __call__(self, arrays: Sequence[Array | None], /) -> tuple[Array, ...]:
        results = self.own(arrays)  # if there is no result, the device's kernel asks the reference why
        try:
            found = self._contract.disagreement(arrays, results, is_flushed=self._backend.is_flushing)
        except OpError as error:
            message = f"the device computes what the CPU refuses: {error.message}"
            raise OpError(Code.DIFFERENT_RESULT, message) from error
        if found is not None:
            which = f" (its result number {found.output})" if len(results) > 1 else ""
            raise OpError(Code.DIFFERENT_RESULT, f"the device computes {found}{which}")
        self._backend.kernels += 1
        return results
