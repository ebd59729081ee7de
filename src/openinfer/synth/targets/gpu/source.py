"""Assembles the printers of a project's source: those of C, with launches in place of calls."""

from openinfer.synth.memory.placed import Placed
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.cstyle.host.blocks import BlockPrinter
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.cstyle.library import PrintKernel
from openinfer.synth.targets.gpu.calls import DeviceCalls
from openinfer.synth.targets.gpu.waits import Waits
from openinfer.synth.targets.simt.machine import SimtMachine


def launching_printers(placed: Placed, name: str, machine: SimtMachine, printed: PrintKernel) -> SourcePrinters:
    """The printers of a project's source; ``printed`` prints kernels in the device's language."""
    file = HostFile(placed, name)
    sizes, pointers = SizePrinter(file), Pointers(file)
    waits = Waits(file, pointers)
    indices = IndexPrinter(file, sizes, pointers.pointer, waits.looked_at)
    calls = DeviceCalls(sizes, indices, waits, machine, printed)
    return SourcePrinters(file, sizes, pointers, calls, BlockPrinter(file, sizes, indices, calls))
