"""What small networks in 8 bits take of a Cortex-M4: ``make bench-cortex-m``.

Code, stack, memory and flash are measured by the device's compiler, the instructions of a step by an emulator. Nothing
here depends on how busy this machine is. ``--before FOLDER`` also has the sources of an earlier checkout write the code
of the same graphs, and counts that: ``git worktree add FOLDER REVISION``.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from bench.cnns import ds_cnn
from bench.models import Model
from examples.digits.example import HERE as DIGITS
from examples.digits.example import held_out

from openinfer import ModelLoader, Synthesizer, load_graph, quantize
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.report.footprint import LEVEL, Footprint
from openinfer.synth.targets.c.bare_metal import EMULATED, SECTIONS, linker_script, startup
from openinfer.synth.targets.c.buildfiles import NUMERICS
from openinfer.synth.targets.c_footprint import counting_program

BUILD = Path("build/cortex-m").resolve()
NAME = "net"
EMIT = """
import sys
from openinfer import ModelLoader, Synthesizer, load_graph
graph, model, folder = sys.argv[1:]
own = Synthesizer("cortex-m4", name="net", weights="array")
own.synthesize(ModelLoader.open(model), load_graph(graph)).emit(folder)
"""
"""How any checkout writes a project."""


@dataclass(frozen=True)
class Network:
    """A graph of integers and its model, as files."""

    title: str
    graph: Path
    model: Path


def networks() -> Iterator[Network]:
    """The networks: the example's own graph of integers, and others as ``openinfer quantize`` makes them."""
    yield Network("digits, the example's graph in i8", DIGITS / "digits_i8.oig", DIGITS / "digits_i8.oinf")
    samples = {"image": held_out()[0][:40, np.newaxis]}
    report = quantize(DIGITS / "digits.oig", DIGITS / "digits.oinf", _folder("digits"), samples)
    yield Network("digits, quantized", Path(report.graph), Path(report.model))
    for blocks in (4, 5):
        yield _quantized(f"keyword spotter DS-CNN, {blocks} blocks", ds_cnn(blocks))


def _folder(name: str) -> Path:
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _quantized(title: str, model: Model) -> Network:
    folder = _folder(title.replace(" ", "-").replace(",", ""))
    (folder / "float.oig").write_text(model.text, encoding="utf-8")
    model.saved(folder).close()
    ((name, x),) = model.inputs.items()
    more = np.random.default_rng(12).normal(size=(3, *x.shape)).astype(np.float32)
    samples = {name: np.concatenate([x[None], more])}
    report = quantize(folder / "float.oig", folder / "model.oinf", folder, samples, observer="minmax", smooth=False)
    return Network(title, Path(report.graph), Path(report.model))


def measured(network: Network) -> Footprint:
    """What a network takes of the device."""
    with ModelLoader.open(network.model) as model:
        plan = Synthesizer("cortex-m4", name=NAME).synthesize(model, load_graph(network.graph))
        found = plan.footprint()
    assert isinstance(found, Footprint), "a microcontroller"
    if found.unmeasured:
        sys.exit(f"not measured: {'; '.join(found.unmeasured)} (make bench-cortex-m)")
    return found


def counted_before(network: Network, sources: Path) -> tuple[int, int]:
    """The bytes of code and the instructions of a step that other sources make of a network."""
    folder = _folder(f"before-{network.model.stem}-{network.graph.parent.name}")
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    files = [str(network.graph), str(network.model), str(folder)]
    subprocess.run([sys.executable, "-c", EMIT, *files], check=True, env=environment)
    (folder / "count.c").write_text(counting_program(NAME), encoding="ascii")
    for path, text in (("bare/startup.c", startup()), ("bare/mps2.ld", linker_script())):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="ascii")
    arch = DeviceArch.named("cortex-m4").toolchain
    flags = [*arch.cflags, *NUMERICS.split(), *SECTIONS.split()]
    common = [str(arch.cc), "-std=c11", LEVEL, *flags, "-Iinclude", "-Isrc"]
    own = [str(path.relative_to(folder)) for path in sorted(folder.glob("src/*.c"))]
    linked = ["--specs=rdimon.specs", "-nostartfiles", "-T", "bare/mps2.ld", "bare/startup.c", "-Wl,--gc-sections"]
    sources_of_program = ["count.c", "example/main.c", *own, f"-Wl,--wrap={NAME}_step", "-o", "counted"]
    subprocess.run([*common, *linked, *sources_of_program], check=True, cwd=folder)
    code = 0
    for source in ("src/kernels.c", f"src/{NAME}.c"):
        subprocess.run([*common, "-c", source, "-o", "one.o"], check=True, cwd=folder)
        said = subprocess.run(["arm-none-eabi-size", "one.o"], check=True, cwd=folder, capture_output=True, text=True)
        code += int(said.stdout.splitlines()[1].split()[0])
    command = [*EMULATED, "-icount", "shift=6", "-kernel", "counted"]
    ended = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    match = re.search(r"^instructions (\d+)$", ended.stdout, re.MULTILINE)
    if match is None:
        sys.exit(f"{network.title}: the earlier program does not run: {ended.stdout}{ended.stderr}")
    return code, int(match[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="an earlier checkout of this repository")
    options = parser.parse_args()
    heads = ["network", "code", "stack", "RAM", "flash", "instructions"]
    heads += ["code before", "instructions before", "fewer"] * bool(options.before)
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for network in networks():
        found = measured(network)
        numbers = [found.code, found.stack, found.ram, found.flash, found.instructions]
        row = [network.title, *(f"{number:,}" for number in numbers if number is not None)]
        if options.before:
            code, instructions = counted_before(network, options.before.resolve() / "src")
            row += [f"{code:,}", f"{instructions:,}", f"{instructions / found.instructions:.2f}x"]
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
