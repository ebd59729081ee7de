"""Assembles the printers of a project's source: those that all targets share, with the calls of C."""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from openinfer.synth.devices.isa import is_microcontroller
from openinfer.synth.memory.placed import Placed
from openinfer.synth.targets.c.calls import CCalls
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.blocks import BlockPrinter, HostCalls
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.cstyle.library import KernelLibrary


class LibraryCalls(HostCalls, Protocol):
    """The calls of a target, and the kernels called so far."""

    @property
    def kernels(self) -> KernelLibrary:
        """The functions of kernels, and the calls to them in source order."""


@dataclass(frozen=True)
class SourcePrinters:
    """The printers that write into one file."""

    file: HostFile
    sizes: SizePrinter
    pointers: Pointers
    calls: LibraryCalls
    blocks: BlockPrinter


def source_printers(placed: Placed, name: str, isa: str = "generic", index_bits: int = 64) -> SourcePrinters:
    """The printers of a project's source, for an instruction set and a width of positions."""
    file = HostFile(placed, name, index_bits)
    sizes, pointers = SizePrinter(file), Pointers(file)
    indices = IndexPrinter(file, sizes, pointers.pointer)
    kernels = partial(printed, isa=isa, index_bits=index_bits, bounds=placed.program.sizes)
    calls = CCalls(file, sizes, indices, pointers, kernels, MemoryCalls(folds=is_microcontroller(isa)))
    return SourcePrinters(file, sizes, pointers, calls, BlockPrinter(file, sizes, indices, calls))
