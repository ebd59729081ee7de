"""What computes the ops of a graph: NumPy in this process, or a device provided by another package."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from openinfer.backends import registered
from openinfer.device import Device
from openinfer.dtypes import DType
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ops import Array, Call, OpError, OpRecord, ReferenceKernel


class NodeKernel(Protocol):
    """An op with types and parameters resolved. Calling it computes the results."""

    @property
    def call(self) -> Call:
        """The complete call of the op."""

    def __call__(self, arrays: Sequence[Array | None], /) -> tuple[Array, ...]:
        """Compute the results in storage form; raises ``OpError`` if there is none."""


@runtime_checkable
class Backend(Protocol):
    """A device that computes ops, one node at a time. The simulator itself does everything else in a step."""

    @property
    def is_flushing(self) -> bool:
        """Whether subnormal numbers may be flushed to zero."""

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
        """Create the kernel of a complete call; ``stored`` are the dtypes that the operands are stored in.

        Raises ``OpError`` if the device cannot compute it.
        """

    def prepare(self, kernels: Sequence[NodeKernel]) -> Sequence[OpError | None]:
        """Prepare kernels together, before the first of them runs; returns the error of each, or None."""

    def taken(self) -> int | None:
        """The device time of this thread's last kernel in nanoseconds; None if the device has no clock of its own."""


class HostBackend:
    """The reference implementation on NumPy."""

    is_flushing = False

    def kernel(self, record: OpRecord, call: Call, stored: Sequence[DType | None]) -> NodeKernel:
        """The reference kernel."""
        return ReferenceKernel(record, call, stored)

    def prepare(self, kernels: Sequence[NodeKernel]) -> Sequence[OpError | None]:
        """Nothing to prepare."""
        return [None] * len(kernels)

    def taken(self) -> int | None:
        """None: there is no clock of its own."""
        return None


HOST: Backend = HostBackend()


class DescribedDevice(Protocol):
    """A description of a device, as the synthesizer takes it."""

    @property
    def title(self) -> str:
        """The device's name for people."""


def backend_of(device: Device | str | DescribedDevice | Backend) -> Backend:
    """The backend of a device: NumPy for the CPU; otherwise the one that the package has registered."""
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
