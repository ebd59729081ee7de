"""Synchronizes host and device where the host reads device memory, which may wait for launches, or has changed it."""

from dataclasses import dataclass

from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile


@dataclass(frozen=True)
class Waits:
    """Prints the lines that synchronize."""

    file: HostFile
    pointers: Pointers

    def looked_at(self, value: Value, depth: int) -> None:
        """Makes a value visible to the host."""
        self.file.line(depth, f"if (look(c, {self._place(value)})) return 1;")

    def changed(self, value: Value, depth: int) -> None:
        """Makes what the host has written visible to the device."""
        self.file.line(depth, f"oi_upload(c->device, {self._place(value)});")

    def _place(self, value: Value) -> str:
        return f"{self.pointers.pointer(value)}, {max(value.nbytes, 1)}"
