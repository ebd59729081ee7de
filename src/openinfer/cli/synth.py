"""``openinfer synth``: generate a folder of source code from a graph and a model, with a report on the result."""

import json
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openinfer.cli.devices import device_called
from openinfer.cli.graph import GraphFile, loaded_graph
from openinfer.cli.options import AsJson, InputOptions, ModelPath, SizeOptions, StepCount, StrictOption, parsed_sizes
from openinfer.cli.stages import Looking, PrintAfter, StopAfter
from openinfer.cli.stepping import Progress, errors_as_json, guarded
from openinfer.cli.tuning import NoTuned, TunedFile, TuneOption, TuneSeconds, Tuning
from openinfer.errors import Code, Diagnostic, GraphError, counted
from openinfer.oinf import ModelLoader
from openinfer.oinf.atomic import atomic_file

if TYPE_CHECKING:
    from openinfer.cli.compiled import SimulatedStep
    from openinfer.ir import Graph
    from openinfer.synth.devices.description import DeviceArch
    from openinfer.synth.plan import Plan
    from openinfer.synth.report.fabric import CircuitFootprint
    from openinfer.synth.report.footprint import Footprint
    from openinfer.synth.targets.target import Passes


class WeightsChoice(StrEnum):
    """Where generated code keeps its weights."""

    FILE = "file"
    ARRAY = "array"
    INCBIN = "incbin"


DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", "-d", metavar="NAME|FILE.json", help="'openinfer devices' lists the names; 'host' is this machine."
    ),
]
Folder = Annotated[
    str | None, typer.Option("--output", "-o", metavar="DIR", help="Where to write the project; else nothing is.")
]
NameOption = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="What files and functions are called; else as the graph.")
]
WeightsOption = Annotated[
    WeightsChoice,
    typer.Option("--weights", help="Weights in a file that is read, a C array, or included by the assembler."),
]
NoSimplify = Annotated[bool, typer.Option("--no-simplify", help="Nothing is computed beforehand, shared or left out.")]
NoFuse = Annotated[bool, typer.Option("--no-fuse", help="Give every node a kernel of its own.")]
NoSchedule = Annotated[bool, typer.Option("--no-schedule", help="Plain loops: no tiles, no packed weights.")]


class AllowChoice(StrEnum):
    """Computations that are faster but less exact, and used only where they are allowed."""

    WINOGRAD = "winograd"


AllowOption = Annotated[
    list[AllowChoice] | None,
    typer.Option("--allow", help="Compute less exactly where that is faster: convolutions of 3 x 3 by Winograd."),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, max=1024, help="Threads of a step; else one for each core."),
]
NoSelftest = Annotated[bool, typer.Option("--no-selftest", help="Do not run the simulator for a self-test.")]
MaxArena = Annotated[
    int | None, typer.Option("--max-arena", metavar="BYTES", min=0, help="Fail if a step needs a larger arena.")
]
Build = Annotated[bool, typer.Option("--build", help="Compile the code for this machine.")]
Run = Annotated[bool, typer.Option("--run", help="Compile it, run it, and compare it with the simulator.")]
TraceFile = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="With --run: write what the last step of the compiled code did, for 'openinfer trace-diff'.",
    ),
]


class RunReference(StrEnum):
    """The reference for the results of compiled code."""

    SIMULATOR = "simulator"
    C = "c"


AgainstOption = Annotated[
    RunReference, typer.Option("--against", help="With --run: compare with the simulator, or with C for this machine.")
]
ToleranceOption = Annotated[
    float, typer.Option(min=0.0, metavar="T", help="With --run: floats may differ by T * max(1, |a|, |b|).")
]
ReportOption = Annotated[
    bool,
    typer.Option("--report", help="Show kernels, what was fused and why not, and the arena; with -o, also a picture."),
]


def synth(
    graph: GraphFile,
    model: ModelPath = None,
    device: DeviceOption = "host",
    size: SizeOptions = None,
    output: Folder = None,
    name: NameOption = None,
    weights: WeightsOption = WeightsChoice.FILE,
    no_simplify: NoSimplify = False,
    no_fuse: NoFuse = False,
    no_schedule: NoSchedule = False,
    allow: AllowOption = None,
    threads: Threads = None,
    tune: TuneOption = False,
    tune_seconds: TuneSeconds = 1.0,
    tuned: TunedFile = None,
    no_tuned: NoTuned = False,
    max_arena: MaxArena = None,
    no_selftest: NoSelftest = False,
    build: Build = False,
    run: Run = False,
    inputs: InputOptions = None,
    steps: StepCount = None,
    trace: TraceFile = None,
    tolerance: ToleranceOption = 1e-4,
    against: AgainstOption = RunReference.SIMULATOR,
    report: ReportOption = False,
    stop_after: StopAfter = None,
    print_after: PrintAfter = None,
    strict: StrictOption = False,
    as_json: AsJson = False,
) -> None:
    """Write source code for a device that computes what a graph says.

    The project has a self-test: steps that the simulator ran, with the inputs given or, where there are none, made up
    (floats randn:0, others zeros). Where dynamic sizes are left open, they run at the bounds, then from a fresh start
    below them, at 1 and at 0. With --run, the compiled code runs the same steps here (on a Vulkan device, if it is for
    one), and the exit status is 1 if a result differs by more than the tolerance, or if a step that the simulator
    refuses is not refused.
    """
    progress = Progress()
    with errors_as_json() if as_json else nullcontext(), guarded(progress), ExitStack() as opened:
        from openinfer.cli.app import print_diagnostics

        looking = Looking.called(stop_after, print_after)
        if trace is not None and not run:
            message = "only a step that runs can be traced: add --run"
            raise typer.BadParameter(message, param_hint="--trace")
        looking.refuse({"--output": output is not None, "--build": build, "--run": run, "--report": report})
        called, sizes, arch = project_called(name, graph), parsed_sizes(size), device_called(device)
        if not as_json:
            print_diagnostics(arch.warnings)
        if build or run or tune:
            _require_runnable(arch)
        source = loaded_graph(graph)
        data = opened.enter_context(ModelLoader.open(model)) if model is not None else None
        work = _Work(source, data, sizes, strict)
        passes = _passes(arch, threads, simplifies=not no_simplify, fuses=not no_fuse, schedules=not no_schedule)
        passes = _allowing(passes, allow or [])
        with Tuning(tune, tune_seconds, tuned, no_tuned).passes(passes) as passes:
            plan = work.plan(arch, called, weights, passes, looking)
        if plan is None:
            typer.echo(json.dumps({"ok": True, "printed": looking.seen}, indent=2) if as_json else looking.text())
            return
        if max_arena is not None:
            _require_arena(plan, max_arena)
        facts: dict[str, Any] = {"ok": True, **plan.facts()} | ({"printed": looking.seen} if looking.seen else {})
        measured = plan.footprint() if report else None
        facts |= {} if measured is None else {"footprint": measured.facts()}
        tested = output is not None and not no_selftest
        values = work.simulated(plan, inputs, steps, progress) if run or tested else []
        if output is not None:
            pictures = {"arena.svg": _picture(plan)} if report else {}
            written = plan.emit(output, [step.golden() for step in values] if tested else [], pictures)
            facts |= {"folder": output, "files": _sizes(Path(output), written)}
        if build or run:
            known = work.in_c(plan, values) if run and against is RunReference.C else values
            facts |= _built(plan, known if run else None, tolerance, trace)
            if run:
                facts["run"]["against"] = against.value
        typer.echo(json.dumps(facts, indent=2) if as_json else _text(plan, facts, looking, report, measured))
        if run and not facts["run"]["ok"]:
            raise typer.Exit(1)


@dataclass(frozen=True)
class _Work:
    """A graph and what it is bound to, for both synthesis and simulation."""

    graph: "Graph"
    model: ModelLoader | None
    sizes: dict[str, int]
    strict: bool

    def plan(
        self, arch: "DeviceArch", name: str, weights: WeightsChoice, passes: "Passes", looking: Looking
    ) -> "Plan | None":
        # Imported here because the other commands need no passes and no op records.
        from openinfer.synth.pipeline import Synthesizer

        synthesizer = Synthesizer.from_arch(arch, name=name, passes=passes, weights=weights.value)
        return looking.through(synthesizer.pipeline(self.model, self.graph, sizes=self.sizes, strict=self.strict))

    def in_c(self, plan: "Plan", steps: "list[SimulatedStep]") -> "list[SimulatedStep]":
        """The same steps with the results of C for this machine."""
        from openinfer.cli.compiled import rerun
        from openinfer.synth.pipeline import Synthesizer

        made = Synthesizer(name=plan.project.name).synthesize(
            self.model, self.graph, sizes=self.sizes, strict=self.strict
        )
        return rerun(made.build(), steps)

    def simulated(
        self, plan: "Plan", inputs: list[str] | None, steps: int | None, progress: Progress
    ) -> "list[SimulatedStep]":
        from openinfer.cli.compiled import simulated
        from openinfer.sim import Simulator

        simulator = Simulator(self.model, sizes=self.sizes, strict=self.strict).with_trace("off")
        outputs = list(plan.project.program.outputs)
        return simulated(simulator.make_executor(self.graph), outputs, inputs, steps, progress)


def _require_runnable(arch: "DeviceArch") -> None:
    from openinfer.cli.compiled import require_runnable

    require_runnable(arch)


def _built(plan: "Plan", values: "list[SimulatedStep] | None", tolerance: float, trace: str | None) -> dict[str, Any]:
    from openinfer.cli.compiled import compared

    module = plan.build(plan.arch.toolchain.cc or "gcc", trace="off" if trace is None else "full")
    facts: dict[str, Any] = {"built": True} | ({} if values is None else {"run": compared(module, values, tolerance)})
    if trace is None:
        return facts
    with atomic_file(trace) as sink:
        sink.write(f"{json.dumps(module.trace(), indent=2, allow_nan=False)}\n".encode())
    return facts | {"trace": trace}


def project_called(name: str | None, graph: str) -> str:
    """The name of the project: the one given, which must be valid, else one close to the name of the graph file."""
    from openinfer.synth.targets.cstyle.names import project_name

    if name is None:
        return project_name("model" if graph == "-" else Path(graph).stem)
    if project_name(name) != name:
        message = f"{name[:80]!r} cannot be the name of files and functions in C; {project_name(name)!r} can"
        raise typer.BadParameter(message, param_hint="--name")
    return name


def _passes(arch: "DeviceArch", threads: int | None, *, simplifies: bool, fuses: bool, schedules: bool) -> "Passes":
    """The passes that remain after the options and the device's preferences."""
    from openinfer.synth.targets.cpu.divide import Divide
    from openinfer.synth.targets.target import NODE_BY_NODE, Passes

    passes = Passes.preferred(arch) if fuses else NODE_BY_NODE
    simplify = passes.simplify if simplifies else None
    return replace(passes, simplify=simplify, schedule=schedules, divide=Divide(threads))


def _allowing(passes: "Passes", allowed: list[AllowChoice]) -> "Passes":
    """Passes that may also do what the options allow."""
    from openinfer.synth.targets.target import Allowed

    return replace(passes, allow=passes.allow | {Allowed(one.value) for one in allowed})


def _require_arena(plan: "Plan", most: int) -> None:
    if plan.placed.arena_bytes <= most:
        return
    from openinfer.synth.report.report import arena_facts

    facts = arena_facts(plan.project.program, plan.memory)
    message = f"a step needs an arena of {plan.placed.arena_bytes:,} bytes, and {most:,} are allowed"
    sizes = {one["label"]: one["nbytes"] for one in facts["requests"]}
    notes = tuple(f"{label}: {sizes[label]:,} bytes" for label in facts["peak_owners"])
    least = f"{facts['lower_bound_bytes']:,}"
    advice = f"these are alive together where it is fullest; in this order {least} bytes are the least"
    raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, advice, notes))


# --- report -----------------------------------------------------------------------------------------------------------


def _picture(plan: "Plan") -> str:
    from openinfer.synth.report.arena_map import arena_svg
    from openinfer.synth.report.report import arena_positions, arena_requests

    program = plan.project.program
    return arena_svg(*arena_requests(program, plan.memory), arena_positions(program))


def _sizes(folder: Path, written: list[Path]) -> dict[str, int]:
    """The written files and their sizes."""
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(written)}


def _text(
    plan: "Plan", facts: dict[str, Any], looking: Looking, report: bool, measured: "Footprint | CircuitFootprint | None"
) -> str:
    parts = [looking.text(), _summary(facts)] if looking.seen else [_summary(facts)]
    parts += [] if measured is None else [measured.text()]
    if report:
        from openinfer.synth.report.circuit import circuit_text
        from openinfer.synth.report.report import arena_report, inexact_text, kernels_text, ledger_text, unmet_text

        parts += [kernels_text(facts["kernels"]), ledger_text(facts["ledger"])]
        parts += [circuit_text(facts["circuit"])] if "circuit" in facts else []
        parts += [inexact_text(facts["inexact"])] if "inexact" in facts else []
        parts += [unmet_text(facts["unmet"])] if facts["unmet"] else []
        parts.append(arena_report(plan.project.program, plan.memory))
    if "run" in facts:
        from openinfer.cli.compiled import run_text

        parts.append(run_text(facts["run"]))
    return "\n\n".join(parts)


def _summary(facts: dict[str, Any]) -> str:
    gap, fused = facts["memory"]["gap_bytes"], sum(entry["fused"] for entry in facts["ledger"])
    bound = f"{gap:,} bytes above the lower bound" if gap else "the least possible"
    tensors = len({one["tensor"] for one in facts["weights"]})
    calls = counted(len(facts["kernels"]), "call")
    within = {what: f", in {region}" for what, region in facts["regions"].items()}
    lines = [
        f"{facts['name']} for {facts['device']} ({facts['isa']})",
        f"  kernels  {calls} of {counted(len(facts['functions']), 'function')}, after {counted(fused, 'fusion')}",
        f"  arena    {facts['bytes']['arena']:,} bytes, {bound}{within.get('arena', '')}",
        f"  state    {facts['bytes']['state']:,} bytes{within.get('state', '')}",
        f"  weights  {facts['bytes']['weights']:,} bytes, {counted(tensors, 'tensor')}{within.get('weights', '')}",
    ]
    if "files" in facts:
        lines.append(f"  files    {len(facts['files'])} in {facts['folder']}")
    if "built" in facts:
        lines.append("  built    yes")
    if "trace" in facts:
        lines.append(f"  trace    {facts['trace']}")
    return "\n".join(lines)
