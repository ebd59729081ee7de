"""The state of an instance as Python sees it: its own bytes, or a mirror of a device's."""

import ctypes
from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ops import Array
from openinfer.synth.run.library import Instance


@dataclass(frozen=True)
class StateMemory:
    """Bytes of a state. A mirror must be refreshed before reads, and written back after writes."""

    array: Array
    device: Instance | None = None
    """The instance whose device has the memory."""

    def look(self, offset: int, nbytes: int) -> None:
        """Refresh the array from the device."""
        if self.device is not None and nbytes and self._called("oi_look", offset, nbytes) >= 0:
            raise _lost()

    def put(self, offset: int, nbytes: int) -> None:
        """Write the array back to the device."""
        if self.device is not None and nbytes:
            self._called("oi_upload", offset, nbytes)
            if self.device.function("oi_settle")(ctypes.c_void_p(self.device.context.device)) >= 0:
                raise _lost()

    def _called(self, name: str, offset: int, nbytes: int) -> int:
        assert self.device is not None
        function = self.device.function(name)
        function.restype = ctypes.c_int32 if name == "oi_look" else None
        place = ctypes.c_void_p(self.array.ctypes.data + offset)
        found = function(ctypes.c_void_p(self.device.context.device), place, ctypes.c_size_t(nbytes))
        return -1 if found is None else int(found)


def _lost() -> ExecutionError:
    return ExecutionError(Diagnostic(Code.NO_GPU, "the device is lost", None, "build the module again"))
