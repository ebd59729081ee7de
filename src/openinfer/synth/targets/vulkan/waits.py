"""Where the host waits for what it has launched: before it looks at memory, or changes it."""

from dataclasses import dataclass

from openinfer.synth.program.ir import Value
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile


@dataclass(frozen=True)
class Waits:
    """Prints the lines that wait."""

    file: HostFile
    pointers: Pointers

    def settle(self, depth: int) -> None:
        """Waits for all that is recorded."""
        self.file.line(depth, "if (settle(c)) return 1;")

    def looked_at(self, value: Value, depth: int) -> None:
        """Waits if something that is recorded writes a scalar."""
        self._awaited(value, "false", depth)

    def changed(self, value: Value, depth: int) -> None:
        """Waits if something that is recorded works on a scalar."""
        self._awaited(value, "true", depth)

    def _awaited(self, value: Value, is_written: str, depth: int) -> None:
        place = f"{self.pointers.pointer(value)}, {max(value.nbytes, 1)}, {is_written}"
        self.file.line(depth, f"if (oi_is_awaited(c->device, {place}) && settle(c)) return 1;")
