"""``Synthesizer``: compiles a graph and a model to a plan for a device. The pipeline is one function."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from openinfer.check import bind
from openinfer.device import Device
from openinfer.errors import Code, Diagnostic, GraphError, nearest
from openinfer.ir import Graph
from openinfer.oinf.model import ModelLoader
from openinfer.synth.devices.description import DeviceArch, DeviceSpec, arch_of
from openinfer.synth.lower.graph import lowered
from openinfer.synth.memory.placed import place
from openinfer.synth.memory.regions import regions_for
from openinfer.synth.passes.fuse.ledger import InexactNode
from openinfer.synth.plan import Plan
from openinfer.synth.program.text import bound_text, program_text
from openinfer.synth.program.verify import Verifier
from openinfer.synth.report.report import arena_report, files_text
from openinfer.synth.targets.project import ProjectOptions, Weights
from openinfer.synth.targets.target import Passes, target_of


class Stage(StrEnum):
    """The steps of the pipeline, in order."""

    BIND = "bind"
    DECOMPOSE = "decompose"
    SIMPLIFY = "simplify"
    FUSE = "fuse"
    SCHEDULE = "schedule"
    PLACE = "place"
    EMIT = "emit"


def stage_called(name: str) -> Stage:
    """The pipeline step with this name.

    >>> stage_called("fuse")
    <Stage.FUSE: 'fuse'>
    """
    if name not in tuple(Stage):
        steps = ", ".join(Stage)
        advice = "; ".join(filter(None, (nearest(name, [stage.value for stage in Stage]), f"the steps are {steps}")))
        raise GraphError(Diagnostic(Code.UNKNOWN_STAGE, f"the pipeline has no step {name[:80]!r}", None, advice))
    return Stage(name)


@dataclass(frozen=True)
class StageResult:
    """The result of one pipeline step. ``text`` renders it, even after later steps have run."""

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
        """``passes`` overrides the passes that the device prefers."""
        self._arch = arch_of(device)
        self._target = target_of(self._arch)
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

    def synthesize(
        self,
        model: ModelLoader | None,
        graph: Graph,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
    ) -> Plan:
        """Run the whole pipeline and return the plan."""
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
    ) -> Iterator[StageResult]:
        """Run the pipeline one step at a time. Each step's program is verified; disabled steps change nothing."""
        verified, passes = Verifier().verified, self._passes
        bound = bind(graph, model, sizes, strict=strict)
        yield StageResult(Stage.BIND, partial(bound_text, bound))

        short = () if self._target.dialect is None else self._target.dialect.about
        program = verified(lowered(bound, self._target.structures, short), Stage.DECOMPOSE)
        yield StageResult(Stage.DECOMPOSE, partial(program_text, program))

        if passes.simplify is not None:
            program = verified(passes.simplify.run(program), Stage.SIMPLIFY)
        yield StageResult(Stage.SIMPLIFY, partial(program_text, program))

        fuse = passes.fuse
        inexact: tuple[InexactNode, ...] = ()
        if passes.schedule and self._target.rewritten is not None:
            program, inexact = self._target.rewritten(program, passes)
        if fuse is not None and passes.schedule:
            fuse = replace(fuse, is_launch=self._target.is_launch, rules=self._target.fusion_rules)
            program = program if self._target.prepared is None else self._target.prepared(program)
        program, ledger = fuse.run(program) if fuse is not None else (program, ())
        verified(program, Stage.FUSE)
        yield StageResult(Stage.FUSE, partial(program_text, program))

        rules = self._target.rules(passes)
        for one in self._target.passes(passes, rules):
            program = verified(one(program), Stage.SCHEDULE)
        yield StageResult(Stage.SCHEDULE, partial(program_text, program))

        placed = place(program, rules)
        yield StageResult(Stage.PLACE, partial(arena_report, program, placed.memory))

        project = self._target.project(placed, ProjectOptions(name=self._name, weights=self._weights))
        regions = regions_for(self._arch, placed.memory_bytes)
        plan = Plan(project, ledger, self._arch, self._target, regions, inexact)
        yield StageResult(Stage.EMIT, lambda: files_text(plan.files()), plan)
