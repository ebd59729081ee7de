"""``Synthesizer``: a graph and a model in, a plan for a device out. The pipeline is one function."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Literal

from openinfer.check import bind
from openinfer.device import Device
from openinfer.errors import Code, Diagnostic, GraphError, nearest
from openinfer.ir import Graph
from openinfer.oinf.model import ModelLoader
from openinfer.synth.devices.description import DeviceArch, DeviceSpec, arch_of
from openinfer.synth.lower.graph import lowered
from openinfer.synth.memory.placed import MemoryRules, place
from openinfer.synth.memory.regions import regions_for
from openinfer.synth.passes.fuse.fuse import Fuse
from openinfer.synth.passes.simplify import Simplify
from openinfer.synth.plan import Plan
from openinfer.synth.program.ir import Program
from openinfer.synth.program.text import bound_text, program_text
from openinfer.synth.program.verify import Verifier
from openinfer.synth.report.report import arena_report, files_text
from openinfer.synth.targets.c.project import Project, ProjectOptions
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.cpu.machine import cpu_target
from openinfer.synth.targets.cpu.schedule import Schedule
from openinfer.synth.tuning.records import Tuned, shipped
from openinfer.synth.tuning.tune import Tune, Workshop

Weights = Literal["file", "array", "incbin"]


class Stage(StrEnum):
    """The steps of the pipeline, in their order."""

    BIND = "bind"
    DECOMPOSE = "decompose"
    SIMPLIFY = "simplify"
    FUSE = "fuse"
    SCHEDULE = "schedule"
    PLACE = "place"
    EMIT = "emit"


def stage_called(name: str) -> Stage:
    """The step of the pipeline that has a name.

    >>> stage_called("fuse")
    <Stage.FUSE: 'fuse'>
    """
    if name not in tuple(Stage):
        steps = ", ".join(Stage)
        advice = "; ".join(filter(None, (nearest(name, [stage.value for stage in Stage]), f"the steps are {steps}")))
        raise GraphError(Diagnostic(Code.UNKNOWN_STAGE, f"the pipeline has no step {name[:80]!r}", None, advice))
    return Stage(name)


@dataclass(frozen=True)
class Passes:
    """The optional steps of the pipeline; without ``schedule`` everything is computed in plain loops, by one thread."""

    simplify: Simplify | None = field(default_factory=Simplify)
    fuse: Fuse | None = field(default_factory=Fuse)
    schedule: bool = True
    divide: Divide = field(default_factory=Divide)
    tune: Tune | None = None
    """Tiles are chosen by measuring on this machine, where ``tuned`` does not know them."""
    tuned: Tuned | None = None
    """What was measured before; None means the records that are shipped, or nothing where it is measured now."""
    undo: bool | None = None
    """Whether a step that fails is taken back, which takes memory; None means where there is an operating system."""

    @classmethod
    def preferred(cls, arch: DeviceArch) -> "Passes":
        """What a device's description asks for."""
        wishes = arch.preferences
        if wishes.prefer_fusion is False:
            return NODE_BY_NODE
        return cls() if wishes.max_kernel_ops is None else cls(fuse=Fuse(max_kernel_ops=wishes.max_kernel_ops))


NODE_BY_NODE = Passes(Simplify(fold=False, share=False, drop=False), fuse=None)
"""Every node keeps a kernel of its own, also where nobody reads its result."""


@dataclass(frozen=True)
class Reached:
    """A step of the pipeline that has been done. ``text`` shows what it made, also after later ones."""

    stage: Stage
    text: Callable[[], str]
    plan: Plan | None = None
    """The plan, at the last step."""


class Synthesizer:
    """Turns graphs into source code for a device.

    >>> from openinfer.lang import graph
    >>> g = graph("dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op add(x, x) >> y; return; }")
    >>> Synthesizer(Device.CPU).synthesize(None, g).memory.peak
    64
    """

    def __init__(
        self,
        device: Device | DeviceSpec | DeviceArch | str = Device.CPU,
        *,
        name: str = "model",
        passes: Passes | None = None,
        weights: Weights = "file",
    ) -> None:
        """``passes`` are what is done, whatever the device prefers; without them, its preferences decide."""
        self._arch = arch_of(device)
        self._target = cpu_target(self._arch)
        self._name = name
        self._passes = passes or Passes.preferred(self._arch)
        self._weights = weights

    @classmethod
    def from_arch(
        cls, arch: DeviceArch, *, name: str = "model", passes: Passes | None = None, weights: Weights = "file"
    ) -> "Synthesizer":
        """A synthesizer for a described device."""
        return cls(arch, name=name, passes=passes, weights=weights)

    def __repr__(self) -> str:
        return f"<Synthesizer for {self._arch.title}>"

    def _divide(self) -> Divide:
        """The pass that divides kernels among threads: a device without an operating system has one."""
        wanted = self._passes.divide
        most = wanted.threads or self._arch.cpu.cores or 1
        return replace(wanted, threads=most if self._arch.features.hosted else 1)

    def _tuned(self, program: Program, workshop: Workshop) -> Tuned:
        """What is known about the tiles of a program, when all has been measured that should be."""
        tune, known = self._passes.tune, self._passes.tuned
        if tune is None:
            return shipped() if known is None else known
        return tune.run(program, known or Tuned(), workshop)

    def synthesize(
        self,
        model: ModelLoader | None,
        graph: Graph,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
    ) -> Plan:
        """The plan of a graph: the whole pipeline."""
        *_, last = self.pipeline(model, graph, sizes=sizes, strict=strict)
        assert last.plan is not None
        return last.plan

    def pipeline(
        self,
        model: ModelLoader | None,
        graph: Graph,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
    ) -> Iterator[Reached]:
        """The pipeline, one step at a time. Programs are verified after each; steps that are off change nothing."""
        verified, passes = Verifier().verified, self._passes
        bound = bind(graph, model, sizes, strict=strict)
        yield Reached(Stage.BIND, partial(bound_text, bound))

        program = verified(lowered(bound), Stage.DECOMPOSE)
        yield Reached(Stage.DECOMPOSE, partial(program_text, program))

        if passes.simplify is not None:
            program = verified(passes.simplify.run(program), Stage.SIMPLIFY)
        yield Reached(Stage.SIMPLIFY, partial(program_text, program))

        program, ledger = passes.fuse.run(program) if passes.fuse is not None else (program, ())
        verified(program, Stage.FUSE)
        yield Reached(Stage.FUSE, partial(program_text, program))

        if passes.schedule:
            workshop = Workshop(self._target, self._divide(), self._rules(), self._options())
            choose = self._tuned(program, workshop).choose(workshop.processor)
            program = Schedule(self._target, choose).run(program)
            program = verified(workshop.divide.run(program), Stage.SCHEDULE)
        yield Reached(Stage.SCHEDULE, partial(program_text, program))

        placed = place(program, self._rules())
        yield Reached(Stage.PLACE, partial(arena_report, program, placed.memory))

        project = Project(placed, self._options())
        plan = Plan(project, ledger, self._arch, regions_for(self._arch, placed.memory_bytes))
        yield Reached(Stage.EMIT, lambda: files_text(plan.files()), plan)

    def _rules(self) -> MemoryRules:
        is_hosted = bool(self._arch.features.hosted)
        rolls_back = is_hosted if self._passes.undo is None else self._passes.undo
        return MemoryRules(64, has_heap=is_hosted, is_hosted=is_hosted, rolls_back=rolls_back)

    def _options(self) -> ProjectOptions:
        return ProjectOptions(
            name=self._name,
            weights=self._weights,
            device=self._arch.title,
            flags=(*self._target.flags, *self._arch.toolchain.cflags),
            isa=self._target.isa,
            cc=self._arch.toolchain.cc,
        )
