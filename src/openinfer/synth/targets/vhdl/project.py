"""A project for an FPGA: VHDL, a test bench, a C driver, and build files."""

import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property

from openinfer.errors import GraphError
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.c.buildfiles import weight_files
from openinfer.synth.targets.c.code_files import CodeFiles
from openinfer.synth.targets.c.host_source import HostSource
from openinfer.synth.targets.c.hosted_project import HostedProject
from openinfer.synth.targets.c.selftest import selftest
from openinfer.synth.targets.cstyle.fold import folded
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.library import KernelLibrary, UsedKernel
from openinfer.synth.targets.cstyle.statements import Printed
from openinfer.synth.targets.project import Files, Golden, ProjectOptions
from openinfer.synth.targets.vhdl.adapters import adapter_benches, adapter_files, bench_text
from openinfer.synth.targets.vhdl.buildfiles import makefile, readme
from openinfer.synth.targets.vhdl.host import DriverSource, bus_header, quiet, resource
from openinfer.synth.targets.vhdl.lanes import lanes_text
from openinfer.synth.targets.vhdl.machine import FpgaMachine
from openinfer.synth.targets.vhdl.map import memory_map
from openinfer.synth.targets.vhdl.memories import ram_text, rom_text
from openinfer.synth.targets.vhdl.names import circuit_name
from openinfer.synth.targets.vhdl.outside import image, image_text, memory_ports_of, weights_text
from openinfer.synth.targets.vhdl.sequencer import Sequencer
from openinfer.synth.targets.vhdl.top import product_bits, product_text, sequencer_text, top_text
from openinfer.synth.targets.vhdl.unit import Gate, KernelUnit

_MADE = "-- Made by OpenInfer: do not edit.\n"
_BANNER = "/* Made by OpenInfer. */\n"


class VhdlProject(HostedProject):
    """The files of a program, and the facts about them that others need."""

    def __init__(self, placed: Placed, options: ProjectOptions, machine: FpgaMachine) -> None:
        super().__init__(HostSource(circuit_name(options.name), quiet(placed), options))
        self.machine = machine
        self.places = memory_map(placed, machine)
        self.sequencer = self._sequencer(placed)
        if self.sequencer.problems:
            raise GraphError(*dict.fromkeys(self.sequencer.problems))
        self._driver = DriverSource(self._host, self.places, self.sequencer.traces)
        self._driver_text = self._driver.text()
        self._words = HostFile(placed, self.name)
        self.reported: tuple[Reported, ...] = self.sequencer.traces.reported
        """The rows that trace stops report to the host."""

    def _sequencer(self, placed: Placed) -> Sequencer:
        """The sequencer and its kernels, with products in logic if the device has too few multipliers."""
        places, lanes = self.places, self.places.lanes
        if self.machine.has_multipliers(lanes):
            found = Sequencer(placed, places, self.name, in_logic=False)
            if self.machine.has_multipliers(lanes, found.products):
                return found
        return Sequencer(placed, places, self.name, in_logic=True)

    @property
    def build_options(self) -> ProjectOptions:
        """The options; they already have everything a compiler must be told."""
        return self.options

    @cached_property
    def kernels(self) -> KernelLibrary:
        """The kernels as entities."""
        library = KernelLibrary(self.name, _unprinted)
        for unit in self.sequencer.units.values():
            code = Printed(
                self._entities[unit.name], "", unit.kernel.doc, (), (), frozenset(), (), unit.kernel.can_fail
            )
            library.add(UsedKernel(unit.name, unit.kernel, 1, code), unit.steps)
        return library

    # --- files ----------------------------------------------------------------------------------------------------

    @cached_property
    def _entities(self) -> dict[str, str]:
        return {unit.name: unit.text(self.about(unit)) for unit in self.sequencer.units.values()}

    def about(self, unit: KernelUnit) -> list[str]:
        """The nodes that a kernel computes, in words."""
        nodes = sorted({node for step in unit.steps for node in _nodes(step)})
        return [self._words.title(node) for node in nodes]

    @cached_property
    def rtl(self) -> dict[str, str]:
        """The circuit's files, in analysis order."""
        name = self.name
        texts = {
            "rtl/oi.vhd": resource("rtl", "support.vhd"),
            "rtl/oi_bus.vhd": resource("rtl", "bus.vhd"),
            **self._memories(),
            **self._shared(),
            **{f"rtl/{own}.vhd": text for own, text in self._entities.items()},
            f"rtl/{name}_sequencer.vhd": sequencer_text(self.sequencer),
            f"rtl/{name}.vhd": top_text(self.sequencer),
        }
        return {path: f"{_MADE}{text}" for path, text in texts.items()}

    @cached_property
    def adapters(self) -> dict[str, str]:
        """The adapters to other buses, in analysis order."""
        ports = memory_ports_of(self.places.shape)
        return {path: f"{_MADE}{text}" for path, text in adapter_files(self.name, ports).items()}

    def _memories(self) -> dict[str, str]:
        """The RAM, the ROM, and the entity that fetches weights from outside."""
        name, places, shape = self.name, self.places, self.places.shape
        found = {f"rtl/{name}_ram.vhd": ram_text(name, places.ram_bytes, shape)}
        if not shape.rom_is_outside:
            data, gate = places.rom.data(self.blob), Gate(shape.has_enable)
            found[f"rtl/{name}_rom.vhd"] = rom_text(name, data, shape.rom_bits, shape.rom_bytes, gate)
        if shape.has_enable:
            found[f"rtl/{name}_weights.vhd"] = weights_text(name, places, self.blob)
        return found

    def _shared(self) -> dict[str, str]:
        """What kernels share: the lanes, and a multiplier in logic where the device has too few."""
        found, lanes, units = {}, self.places.lanes, [*self.sequencer.units.values()]
        shape = self.places.shape
        gate = Gate(shape.has_enable)
        if lanes is not None:
            text = lanes_text(self.name, lanes.shape, lanes.words, gate, are_outside=shape.lanes_are_outside)
            found[f"rtl/{self.name}_lanes.vhd"] = text
        if any(unit.uses_product for unit in units):
            found[f"rtl/{self.name}_product.vhd"] = product_text(self.name, *product_bits(units), gate)
        return found

    @property
    def bench(self) -> dict[str, str]:
        """The test bench."""
        return {f"tb/{self.name}_tb.vhd": bench_text(self.name, memory_ports_of(self.places.shape))}

    @property
    def adapter_benches(self) -> dict[str, str]:
        """The test benches of the adapters."""
        return adapter_benches(self.name, memory_ports_of(self.places.shape))

    @property
    def memory_files(self) -> dict[str, str]:
        """The contents of outside memory, for test benches and for whoever fills it."""
        if not self.places.shape.has_enable:
            return {}
        return {f"weights/{self.name}.hex": image_text(image(self.places, self.blob))}

    def code(self) -> dict[str, str]:
        """The driver's sources."""
        return self._code(_BANNER, 0)

    def _code(self, banner: str, crc: int) -> dict[str, str]:
        files = CodeFiles(self.name, self.placed, self.kernels, frozenset(self._driver.printers.file.needs), str)
        return {
            f"include/{self.name}.h": folded(self._host.header(banner, crc)),
            f"include/{self.name}_bus.h": banner + bus_header(self.name),
            f"driver/{self.name}.c": banner + folded(self._driver_text),
            "include/runtime.h": banner + folded(files.runtime()),
        }

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files but the plan, by path; with golden values, also a program that runs them in a simulation."""
        banner = self._host.banner()
        circuit = {**self.rtl, **self.adapters, **self.bench, **self.adapter_benches}
        found: Files = {**circuit, **self.memory_files, **self._code(banner, zlib.crc32(self.blob))}
        found |= weight_files(self.name, self.options.weights, self.blob, self.placed.rules.alignment, banner)
        if golden:
            found["tb/main.c"] = banner + folded(selftest(self, golden))
            found["tb/simulation.c"] = banner + resource("tb", "simulation.c").replace("NAME", self.name)
        found["synth/complete.awk"] = resource("synth", "complete.awk")
        found["Makefile"] = makefile(self.name, list(circuit), self.machine, self.places.shape, self._tested(golden))
        found["README.md"] = readme(self.name, self.options.device, self.places, self.sequencer, has_sim=bool(golden))
        return found

    def _tested(self, golden: Sequence[Golden]) -> tuple[str, ...]:
        """The sources of the program that runs golden steps."""
        weights = {"file": (), "array": ("src/weights.c",), "incbin": ("src/weights.S",)}[self.options.weights]
        return ("tb/main.c", "tb/simulation.c", *self.sources, *weights) if golden else ()

    # --- for modules ----------------------------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that are compiled for the host."""
        return (f"driver/{self.name}.c",)

    @property
    def shaders(self) -> Mapping[str, str]:
        """None."""
        return {}

    @property
    def libraries(self) -> tuple[str, ...]:
        """None."""
        return ()

    def timed_code(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The unchanged code: the circuit counts its own clocks."""
        return self.code(), self.sources


def _nodes(step: KernelStep) -> tuple[int, ...]:
    return step.nodes or (step.node,)


def _unprinted(*_: object) -> Printed:
    raise NotImplementedError
