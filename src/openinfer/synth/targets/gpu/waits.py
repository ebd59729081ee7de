"""Where the host looks at memory of the device, which may take waiting for launches, or has changed it."""

from dataclasses import dataclass

from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile


@dataclass(frozen=True)
class Waits:
    """Prints the lines."""

    file: HostFile
    pointers: Pointers

    def looked_at(self, value: Value, depth: int) -> None:
        """The host sees a value."""
        self.file.line(depth, f"if (look(c, {self._place(value)})) return 1;")

    def changed(self, value: Value, depth: int) -> None:
        """The device sees what the host has written."""
        self.file.line(depth, f"oi_upload(c->device, {self._place(value)});")

    def _place(self, value: Value) -> str:
        return f"{self.pointers.pointer(value)}, {max(value.nbytes, 1)}"
