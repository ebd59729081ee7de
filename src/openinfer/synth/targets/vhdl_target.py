"""The VHDL target for FPGAs: files from ``targets.vhdl``, simulations from ``run``."""

import sys
from dataclasses import dataclass, replace
from typing import Any

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.placed import MemoryRules, Placed
from openinfer.synth.report.profile import Profile
from openinfer.synth.run.circuit import CircuitModule, TracedCircuitModule, built_circuit
from openinfer.synth.run.timed import TimedRun
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.target import BuildOptions, Pass, Passes, Target
from openinfer.synth.targets.vhdl.facts import circuit_facts
from openinfer.synth.targets.vhdl.machine import FpgaMachine, fpga_machine
from openinfer.synth.targets.vhdl.project import VhdlProject
from openinfer.synth.targets.vhdl_footprint import circuit_footprint


def vhdl_target(arch: DeviceArch) -> Target[VhdlProject]:
    """The target for an FPGA; any other device is refused (E801)."""
    own = _Fpga(arch, fpga_machine(arch))
    return Target(
        name="vhdl",
        machine=own.machine,
        dialect=None,
        supports=frozenset({Feature.I64, Feature.STORE8, Feature.STORE16}),
        numerics=Numerics(),
        alignment=8,  # the widest element
        index_bits=32,
        max_argument_bytes=sys.maxsize,
        max_buffer_bytes=sys.maxsize,
        passes=_passes,
        project=own.project,
        build=_built,
        profile=_profile,
        on_device=True,
        footprint=circuit_footprint,
        facts=_facts,
    )


@dataclass(frozen=True)
class _Fpga:
    """An FPGA that circuits are generated for."""

    arch: DeviceArch
    machine: FpgaMachine

    def project(self, placed: Placed, options: ProjectOptions) -> VhdlProject:
        return VhdlProject(placed, replace(options, device=self.arch.title, isa="vhdl"), self.machine)


def _passes(_wanted: Passes, _rules: MemoryRules) -> tuple[Pass, ...]:
    return ()


def _built(project: VhdlProject, options: BuildOptions) -> CircuitModule | TracedCircuitModule:
    return built_circuit(project, options.cc, options.flags, options.trace)


def _profile(_project: VhdlProject, _cc: str, _trial: TimedRun) -> Profile:
    message = "a circuit has no times on this machine; the module's 'cycles' are the clocks of its last step"
    raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message))


def _facts(project: VhdlProject) -> dict[str, Any]:
    """The plan's facts beyond those of all targets."""
    return {"circuit": circuit_facts(project)}
