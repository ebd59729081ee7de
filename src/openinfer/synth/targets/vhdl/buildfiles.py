"""The Makefile and the README of a project for an FPGA."""

from collections.abc import Sequence

from openinfer.errors import counted
from openinfer.synth.devices.sections import Fpga
from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.machine import FpgaMachine
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.ports import MemoryShape
from openinfer.synth.targets.vhdl.sequencer import Sequencer

_GHDL = "--std=08 --workdir=build"


def makefile(name: str, rtl: Sequence[str], machine: FpgaMachine, shape: MemoryShape, tested: Sequence[str]) -> str:
    """``make`` analyses the circuit, ``make synth`` maps it, ``make pnr`` places and routes it.

    ``tested`` are the sources of a program that runs golden steps in a simulation: ``make sim``.
    """
    fpga = machine.fpga
    command = " ".join(fpga.synthesis) or "synth"
    # Blocks without a write port are the large ones, which yosys uses only for large memories.
    style = "" if shape.has_write_port else f'setattr -set ram_style \\"huge\\" {name}_ram/m:*; '
    place = " ".join(fpga.place)
    pnr = (
        f"""pnr: synth
	{place} --json build/{name}.json --top {name} {_result(fpga, name)} --report build/{name}.report.json
"""
        if place
        else """pnr: synth
	@echo "the device file has no place-and-route command (fpga.place)" && false
"""
    )
    sim = f"""sim: build/{name}.cf build/sim
	build/sim
build/sim: {" ".join(tested)}
	mkdir -p build
	$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude -o $@ $^

"""
    return f"""# Made by OpenInfer: do not edit.
RTL = {" ".join(rtl)}

.PHONY: all {"sim " * bool(tested)}check synth pnr driver clean

all: build/{name}.cf

build/{name}.cf: $(RTL)
	mkdir -p build
	ghdl -a {_GHDL} -Werror $(RTL)
	touch $@

{sim * bool(tested)}build/{name}.v: build/{name}.cf
	ghdl --synth {_GHDL} --out=verilog {name} > $@.ghdl
	awk -f synth/complete.awk $@.ghdl > $@

check: build/{name}.v
	yosys -q -p "read_verilog build/{name}.v; hierarchy -top {name}; proc; check -assert; \\
	select -assert-none t:\\$$dlatch"

synth: build/{name}.v
	yosys -q -p "read_verilog build/{name}.v; hierarchy -top {name}; {style}proc; check -assert; \\
	select -assert-none t:\\$$dlatch; {command} -top {name}; write_json build/{name}.json; \\
	tee -o build/{name}.stat stat"

{pnr}
driver: build/{name}.o
build/{name}.o: driver/{name}.c
	mkdir -p build
	$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude -c -o $@ $<

clean:
	rm -rf build
"""


def _result(fpga: Fpga, name: str) -> str:
    """The option of the place-and-route program that names its output file."""
    options = {"nextpnr-ice40": f"--asc build/{name}.asc", "nextpnr-ecp5": f"--textcfg build/{name}.config"}
    return options.get(fpga.place[0].rpartition("/")[2], f"--write build/{name}.routed.json")


def _clocks(clocks: Clocks) -> str:
    if clocks.exact is not None:
        return f"{clocks.exact:,} clocks"
    if clocks.most is None:
        return f"at least {clocks.least:,} clocks, depending on the data"
    return f"{clocks.least:,} to {clocks.most:,} clocks, depending on the data"


def _lanes(places: CircuitMap) -> str:
    lanes = places.shape.lanes
    if lanes is None:
        return ""
    multiply = "lanes multiply and add" if lanes.count > 1 else "lane multiplies and adds"
    words = counted(lanes.words, "word")
    return f"\n{lanes.count} {multiply}, with {words} of weights in a separate memory."


def _kept(name: str, places: CircuitMap) -> str:
    """The location of the weights, including those of the lanes."""
    shape = places.shape
    if not shape.has_enable:
        return ", which the configuration holds"
    which = [*["these"] * shape.rom_is_outside, *["those of the lanes"] * shape.lanes_are_outside]
    return f""". Not all weights fit in the device:
{" and ".join(which)} are in external memory, with the contents of `weights/{name}.hex` (32-bit words, one per line,
from address 0). The circuit requests a word with `mem_valid` and `mem_addr`, an address in bytes, and holds both until
`mem_ready` is 1 for one clock, with `mem_rdata`. It stalls while it waits; the numbers below do not include stalled
clocks"""


def readme(name: str, device: str, places: CircuitMap, sequencer: Sequencer, *, has_sim: bool) -> str:
    """The README: what the project contains, and how to use it."""
    kept = ", and as much again to roll back a step that fails" if places.keeps_state else ""
    sim = "| `make sim` | simulates steps, through the driver, and compares results | ghdl, a C compiler |\n"
    return f"""# {name}, as a circuit

Made by OpenInfer for the device {device}. VHDL-2008 with `numeric_std` alone; the entity is `{name}`.

| what | where |
|---|---|
| circuit | `rtl/`, in the order of the Makefile |
| test bench | `tb/`: transfers on the bus, by commands from the standard input |
| the circuit behind other buses | `rtl/{name}_spi.vhd`, `rtl/{name}_wishbone.vhd`, `rtl/{name}_axi4lite.vhd` |
| driver in C | `include/{name}.h`, `include/{name}_bus.h`, `driver/{name}.c` |

| command | what it does | needs |
|---|---|---|
| `make` | analyses the circuit | ghdl |
{sim * has_sim}| `make check` | looks for latches, and for what `check` of yosys finds | ghdl, yosys |
| `make synth` | maps the circuit; no latch and no warning of `check` | ghdl, yosys |
| `make pnr` | places and routes it | what the device file names |
| `make driver` | compiles the driver | a C compiler |

**Memory.** {counted(places.ram_bytes, "byte")} of read-write memory: the state,
{counted(places.state_bytes, "byte")}{kept}; the arena, {counted(places.arena_bytes, "byte")}.
Words have {counted(places.shape.ram_bytes, "byte")}. Weights have
{counted(places.rom_bytes, "byte")}{_kept(name, places)}.

**Circuit.** A sequencer of {counted(len(sequencer.code.machine.states), "state")}, and
{counted(len(sequencer.units), "kernel")}. A step that does not fail takes {_clocks(sequencer.clocks)}; `plan.json` has
the clocks of each kernel.{_lanes(places)}

**Bus.** Eight data bits, valid and ready; `rtl/oi_bus.vhd` documents the registers. The driver needs two functions
that write and read a register: pass them to `{name}_attach`, then call `{name}_init` and `{name}_step`
as on any device. The circuit's memory is undefined at power-on: `{name}_init` writes the initial state.
"""
