"""The C target for processors: schedules from ``targets.cpu``, files from ``targets.c``, modules from ``run``."""

import sys
from dataclasses import dataclass, replace
from functools import partial

from openinfer.check.events import TraceLevel
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.isa import is_microcontroller
from openinfer.synth.memory.alignment import ALIGNMENT
from openinfer.synth.memory.placed import MemoryRules, Placed, place
from openinfer.synth.memory.weights import weights_in
from openinfer.synth.passes.fuse.ledger import InexactNode
from openinfer.synth.passes.winograd import AllowedWinograd
from openinfer.synth.program.ir import Program
from openinfer.synth.report.profile import Profile
from openinfer.synth.run.module import CompiledModule, built
from openinfer.synth.run.timed import TimedRun, profiled, roofline_of
from openinfer.synth.run.traced import traced
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.c.project import Project
from openinfer.synth.targets.c_footprint import footprint
from openinfer.synth.targets.cpu.border import border_rule
from openinfer.synth.targets.cpu.channels_last import ChannelsLast
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.find_byte_taps import is_byte_windows
from openinfer.synth.targets.cpu.machine import CpuMachine, cpu_machine
from openinfer.synth.targets.cpu.reshapes import FreeReshapes
from openinfer.synth.targets.cpu.schedule import Schedule
from openinfer.synth.targets.cpu.shared import SharePanels
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.target import Allowed, BuildOptions, Pass, Passes, Target
from openinfer.synth.tuning.records import Tuned, shipped
from openinfer.synth.tuning.tune import Workshop

_KERNELS = frozenset({Feature.F64, Feature.I64, Feature.STORE8, Feature.STORE16})
"""The features that C has on every processor."""


def c_target(arch: DeviceArch) -> Target[Project]:
    """The target for a processor; any other device is refused (E801)."""
    own = _Processor(arch, cpu_machine(arch))
    return Target(
        name="c",
        machine=own.machine,
        dialect=C,
        supports=_KERNELS | ({Feature.HOSTED} if own.is_hosted else set()),
        numerics=Numerics(),
        alignment=ALIGNMENT,
        index_bits=own.machine.index_bits,
        max_argument_bytes=sys.maxsize,
        max_buffer_bytes=sys.maxsize,
        passes=own.passes,
        rewritten=own.rewritten,
        fusion_rules=(border_rule(partial(is_byte_windows, target=own.machine)),) if own.machine.vector_bits else (),
        project=own.project,
        build=_built,
        profile=own.profile,
        footprint=footprint if is_microcontroller(own.machine.isa) else None,
    )


@dataclass(frozen=True)
class _Processor:
    """A processor that C is generated for."""

    arch: DeviceArch
    machine: CpuMachine

    @property
    def is_hosted(self) -> bool:
        return bool(self.arch.features.hosted)

    def project(self, placed: Placed, options: ProjectOptions) -> Project:
        has_halves = any(one.dtype.name == "f16" for one in weights_in(placed.program))
        halves = self.machine.half_flags if has_halves else ()
        flags = (*self.machine.flags, *halves, *self.arch.toolchain.cflags)
        own = replace(options, flags=flags, isa=self.machine.isa, index_bits=self.machine.index_bits)
        return Project(placed, replace(own, cc=self.arch.toolchain.cc, device=self.arch.title))

    def rewritten(self, program: Program, wanted: Passes) -> tuple[Program, tuple[InexactNode, ...]]:
        """Rewrites convolutions with Winograd transforms, if allowed and the machine has vectors to tile products."""
        if not self.machine.vector_bits:
            return program, ()
        return AllowedWinograd(Allowed.WINOGRAD in wanted.allow).run(program)

    def passes(self, wanted: Passes, rules: MemoryRules) -> tuple[Pass, ...]:
        if not wanted.schedule:
            return ()
        divide = self._divide(wanted.divide or Divide())

        def race(program: Program) -> Project:
            return self.project(place(program, rules), ProjectOptions(name="race"))

        workshop = Workshop(self.machine, divide, race)

        def schedule(program: Program) -> Program:
            choose = _tuned(program, wanted, workshop).choose(workshop.processor)
            # Where code must be small, reshapes become moves, which need no code if both sides share memory.
            own = FreeReshapes().run(program) if self.machine.words else program
            own = ChannelsLast(self.machine).run(own)
            return SharePanels().run(Schedule(self.machine, choose).run(own))

        return schedule, divide.run

    def _divide(self, wanted: Divide) -> Divide:
        """The pass that divides kernels among threads; a device without an operating system has one thread."""
        most = wanted.threads or self.arch.cpu.cores or 1
        return replace(wanted, threads=most if self.is_hosted else 1)

    def profile(self, project: Project, cc: str, trial: TimedRun) -> Profile:
        return profiled(project, cc, trial, partial(roofline_of, project, self.machine, cc, trial.inputs))


def _tuned(program: Program, wanted: Passes, workshop: Workshop) -> Tuned:
    """The tuning records for a program's tiles, after any requested measurements."""
    if wanted.tune is None:
        return shipped() if wanted.tuned is None else wanted.tuned
    return wanted.tune.run(program, wanted.tuned or Tuned(), workshop)


def _built(project: Project, options: BuildOptions) -> CompiledModule:
    if options.trace is TraceLevel.OFF:
        return built(project, options.cc, options.flags, options.node_budget, options.weights)
    return traced(project, options.cc, options.flags, options.trace, options.node_budget, options.weights)
