"""Measures a circuit with the tools on this machine: clock cycles by GHDL, cells by yosys, frequency by nextpnr."""

import shutil
from pathlib import Path

import numpy as np

from openinfer.check.events import TraceLevel
from openinfer.errors import OpenInferError
from openinfer.ops import Array
from openinfer.synth.report.fabric import CircuitFootprint, mapped_cells, routed
from openinfer.synth.run.build import run_program, temporary_folder
from openinfer.synth.run.circuit import CircuitModule, built_circuit
from openinfer.synth.run.library import FLAGS
from openinfer.synth.targets.vhdl.project import VhdlProject


def circuit_footprint(project: VhdlProject) -> CircuitFootprint:
    """Everything that the tools on this machine can measure."""
    missing: list[str] = []
    if shutil.which("ghdl") is None:
        return CircuitFootprint(unmeasured=("nothing is measured: there is no ghdl",))
    clocks = _clocks(project, missing)
    used: dict[str, tuple[int, int | None]] = {}
    hertz: float | None = None
    place = project.machine.fpga.place
    if shutil.which("yosys") is None:
        missing.append("cells and memories are not measured: there is no yosys")
    else:
        is_placed = bool(place) and shutil.which(place[0]) is not None
        with temporary_folder() as folder:
            used, hertz = _built(project, folder, missing, is_placed=is_placed)
        if place and not is_placed:
            missing.append(f"the clock is not measured: there is no {place[0]}")
    return CircuitFootprint(clocks, used, hertz, tuple(missing))


def _clocks(project: VhdlProject, missing: list[str]) -> int | None:
    """The clock cycles of a step with inputs of 0 and sizes at their bounds."""
    try:
        module = built_circuit(project, "gcc", FLAGS, TraceLevel.OFF)
        assert isinstance(module, CircuitModule)
        inputs: dict[str, Array] = {
            name: np.zeros(tuple(map(int, value.shape)), value.dtype.array)
            for name, value in project.program.inputs.items()
        }
        module.insert(inputs)
        module.run_step()
    except OpenInferError as error:
        missing.append(f"clocks are not counted: a step with inputs of 0 fails ({error.code})")
        return None
    return module.cycles


def _built(
    project: VhdlProject, folder: Path, missing: list[str], *, is_placed: bool
) -> tuple[dict[str, tuple[int, int | None]], float | None]:
    """The results of ``make pnr``, or of ``make synth`` without placement."""
    for path, text in project.files(()).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text if isinstance(text, bytes) else text.encode())
    goal = "pnr" if is_placed else "synth"
    ended = run_program(["make", "-s", goal], folder)
    if ended.status:
        last = (ended.errors or ended.output).strip().splitlines()[-3:]
        missing.append(f"make {goal} fails: {' '.join(last)[:300]}")
        return {}, None
    if is_placed:
        return routed((folder / "build" / f"{project.name}.report.json").read_text("utf-8"))
    return mapped_cells((folder / "build" / f"{project.name}.stat").read_text("utf-8")), None
