"""What computes the ops of a graph: NumPy in this process, or a device that somebody else knows how to reach."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from openinfer.backends import registered
from openinfer.device import Device
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ops import Array, Call, OpError, OpRecord, ReferenceKernel


class NodeKernel(Protocol):
    """One op with types and parameters settled. Calling it computes."""

    @property
    def call(self) -> Call:
        """The op's call, complete."""

    def __call__(self, arrays: Sequence[Array | None], /) -> tuple[Array, ...]:
        """The results in stored form; ``OpError`` where the op has none."""


@runtime_checkable
class Backend(Protocol):
    """A device that computes ops, one node at a time. Everything else about a step is the simulator's own."""

    @property
    def is_flushing(self) -> bool:
        """Whether subnormal numbers may be taken for zero."""

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
        """A complete call made ready; ``stored`` are the dtypes the operands really have.

        ``OpError`` where the device cannot compute it.
        """

    def prepare(self, kernels: Sequence[NodeKernel]) -> Sequence[OpError | None]:
        """Make kernels ready together, before the first of them runs; what is wrong with each of them."""

    def taken(self) -> int | None:
        """The device's nanoseconds for the last kernel of this thread; None if only the caller's clock knows."""


class HostBackend:
    """NumPy."""

    is_flushing = False

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
        """The reference."""
        return ReferenceKernel(record, call, stored)

    def prepare(self, kernels: Sequence[NodeKernel]) -> Sequence[OpError | None]:
        """Nothing is to be done."""
        return [None] * len(kernels)

    def taken(self) -> int | None:
        """It has no clock of its own."""
        return None


HOST: Backend = HostBackend()


class DescribedDevice(Protocol):
    """A description of a device, as the synthesizer takes it."""

    @property
    def title(self) -> str:
        """What people call the device."""


def backend_of(device: Device | str | DescribedDevice | Backend) -> Backend:
    """What computes on a device: NumPy for the CPU; for any other one, what the package has registered."""
    if isinstance(device, Backend):
        return device
    if isinstance(device, str) and device == Device.CPU:
        return HOST
    found: Backend | None = registered(device)
    if found is None:
        name = device if isinstance(device, str) else device.title
        message = f"the simulator runs on the CPU and on Vulkan devices, not on {str(name)!r}"
        raise ExecutionError(Diagnostic(Code.WRONG_MOMENT, message, None, "use a Synthesizer for other devices"))
    return found
