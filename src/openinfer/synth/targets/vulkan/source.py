"""The printers of a Vulkan project's source, put together: those of C, with launches in place of calls."""

from openinfer.synth.memory.placed import Placed
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.c.source import SourcePrinters
from openinfer.synth.targets.cstyle.host.blocks import BlockPrinter
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.vulkan.calls import VulkanCalls
from openinfer.synth.targets.vulkan.waits import Waits


def launching_printers(placed: Placed, name: str, machine: SimtMachine, numerics: Numerics) -> SourcePrinters:
    """The printers of a project's source, for a device."""
    file = HostFile(placed, name)
    sizes, pointers = SizePrinter(file), Pointers(file)
    waits = Waits(file, pointers)
    indices = IndexPrinter(file, sizes, pointers.pointer, waits.looked_at)
    calls = VulkanCalls(sizes, indices, waits, machine, numerics)
    return SourcePrinters(file, sizes, pointers, calls, BlockPrinter(file, sizes, indices, calls))
