"""``openinfer bench``: where the time of a step goes, kernel by kernel, and what this machine could do at best."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openinfer.cli.devices import device_called
from openinfer.cli.graph import GraphFile, loaded_graph
from openinfer.cli.options import InputOptions, LoadState, ModelPath, SizeOptions, StrictOption, parsed_sizes
from openinfer.cli.stepping import Progress, errors_as_json, guarded, step_bar
from openinfer.cli.synth import DeviceOption, Threads, project_called
from openinfer.cli.tuning import NoTuned, TunedFile, TuneOption, TuneSeconds, Tuning
from openinfer.oinf import ModelLoader
from openinfer.oinf.atomic import atomic_file

if TYPE_CHECKING:
    from openinfer.synth.devices.description import DeviceArch
    from openinfer.synth.plan import Plan
    from openinfer.synth.report.profile import KernelProfile, Profile, Times
    from openinfer.synth.targets.target import Passes

_HEADS = ("kernel", "nodes", "calls", "time", "share", "operations", "bytes", "GFLOP/s", "GB/s", "roofline", "bound")
_TO_THE_LEFT = ("kernel", "nodes", "bound")
_MOST_NODES = 8
"""The most nodes of a kernel to list; the facts contain all of them."""


class TableOrder(StrEnum):
    """The order of the table."""

    TIME = "time"
    SHARE = "share"
    NODE = "node"


StepsOption = Annotated[
    int, typer.Option("--steps", metavar="N", min=1, help="Steps to time as a whole, and again kernel by kernel.")
]
WarmupOption = Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Untimed warm-up steps before.")]
ByNode = Annotated[bool, typer.Option("--by-node", help="A row for each call site of a kernel, not for each kernel.")]
SortOption = Annotated[
    TableOrder, typer.Option("--sort", help="The order of rows: longest first, or that of the graph.")
]
TopOption = Annotated[int | None, typer.Option("--top", metavar="N", min=1, help="Show at most N rows.")]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write facts for a program; - prints them, and nothing else."),
]


def bench(
    graph: GraphFile,
    model: ModelPath = None,
    device: DeviceOption = "host",
    size: SizeOptions = None,
    inputs: InputOptions = None,
    load_state: LoadState = None,
    threads: Threads = None,
    tune: TuneOption = False,
    tune_seconds: TuneSeconds = 1.0,
    tuned: TunedFile = None,
    no_tuned: NoTuned = False,
    steps: StepsOption = 20,
    warmup: WarmupOption = 3,
    by_node: ByNode = False,
    sort: SortOption = TableOrder.TIME,
    top: TopOption = None,
    strict: StrictOption = False,
    json_file: JsonFile = None,
) -> None:
    """Compile a graph for this machine, and show how long each kernel of a step takes and how long it had to.

    Every step gets the same inputs, those of a first step (made up where there are none: floats randn:0, others zeros),
    and begins with the same state. The roofline is measured in the same run: arithmetic and memory of this machine,
    with the threads of the code.
    """
    progress = Progress()
    with errors_as_json() if json_file == "-" else nullcontext(), guarded(progress), ExitStack() as opened:
        from openinfer.cli.app import print_diagnostics
        from openinfer.cli.compiled import require_runnable

        called, sizes, arch = project_called(None, graph), parsed_sizes(size), device_called(device)
        if json_file != "-":
            print_diagnostics(arch.warnings)
        require_runnable(arch)
        source = loaded_graph(graph)
        data = opened.enter_context(ModelLoader.open(model)) if model is not None else None

        from openinfer.synth.pipeline import Synthesizer

        with Tuning(tune, tune_seconds, tuned, no_tuned).passes(_passes(arch, threads)) as passes:
            synthesizer = Synthesizer.from_arch(arch, name=called, passes=passes)
            plan = synthesizer.synthesize(data, source, sizes=sizes, strict=strict)
        values = _first_inputs(plan, inputs)
        progress.steps = warmup + 2 * steps
        with step_bar(progress.steps) as advance:
            profile = plan.profile(
                values,
                steps=steps,
                warmup=warmup,
                state=load_state,
                cc=arch.toolchain.cc or "gcc",
                after_step=_noted(progress, advance),
            )
        if json_file is not None:
            _write(profile, json_file, progress)
        if json_file != "-":
            _print(profile, by_node=by_node, sort=sort, top=top)


def _passes(arch: "DeviceArch", threads: int | None) -> "Passes":
    from openinfer.synth.targets.cpu.divide import Divide
    from openinfer.synth.targets.target import Passes

    return replace(Passes.preferred(arch), divide=Divide(threads))


def _first_inputs(plan: "Plan", texts: list[str] | None) -> Mapping[str, Any]:
    """The inputs of a first step, given or made up."""
    from openinfer.cli.compiled import made_up
    from openinfer.cli.feeds import parsed_inputs
    from openinfer.cli.inputs import InputSource

    bound, feeds = plan.project.program.bound, parsed_inputs(texts)
    with InputSource(bound, made_up(bound, feeds) | feeds) as source:
        return source.values(0)


def _noted(progress: Progress, advance: Callable[[], None]) -> Callable[[float], None]:
    def note(seconds: float) -> None:
        progress.seconds.append(seconds)
        advance()

    return note


def _write(profile: "Profile", path: str, progress: Progress) -> None:
    text = json.dumps({"ok": True, **profile.facts()}, indent=2, allow_nan=False)
    if path == "-":
        typer.echo(text)
        return
    with atomic_file(path) as sink:
        sink.write(f"{text}\n".encode())
    progress.written.append(path)


# --- report -----------------------------------------------------------------------------------------------------------


def _print(profile: "Profile", *, by_node: bool, sort: TableOrder, top: int | None) -> None:
    rows = ordered(profile.calls if by_node else profile.kernels, sort)
    shown = rows[:top]
    typer.echo(_summary(profile) + "\n")
    _print_table([_cells(profile, one) for one in shown])
    if len(shown) < len(rows):
        typer.echo(
            f"and {len(rows) - len(shown)} more, {_percent(sum(one.share for one in rows[len(shown) :]))} of a step"
        )
    typer.echo("".join(f"\n{_short(profile, one)}\n{_nodes(one)}" for one in shown if one.nodes))
    typer.echo(advice(profile))


def ordered(kernels: "Sequence[KernelProfile]", sort: TableOrder) -> "list[KernelProfile]":
    """Kernels in the order of the table."""
    match sort:
        case TableOrder.TIME:
            return sorted(kernels, key=lambda one: -one.seconds)
        case TableOrder.SHARE:
            return sorted(kernels, key=lambda one: -one.share)
        case TableOrder.NODE:
            return sorted(kernels, key=lambda one: [node.index for node in one.nodes])


def _summary(profile: "Profile") -> str:
    from openinfer.oinf.report import size_text

    roofline, threads = profile.roofline, profile.roofline.threads
    share = _percent(profile.between / profile.timed.median)
    speeds = f"{roofline.operations / 1e9:.3g} GFLOP/s of f32, {roofline.bandwidth / 1e9:.3g} GB/s"
    lines = [
        f"{profile.name} for {profile.device} ({profile.isa}), {threads} thread{'s' * (threads != 1)}",
        f"  roofline  {speeds} when {size_text(roofline.nbytes)} are read again and again, as steps do",
        f"  step      {_times(profile.untimed)}",
        f"  timed     {_times(profile.timed)}: {profile.overhead:+.1%} for the clock",
        f"  between   {time_text(profile.between)} of it ({share}) outside of kernels",
    ]
    if profile.restores_state:
        lines.append("  state     restored before each step, so that all steps are alike")
    return "\n".join(lines)


def _times(times: "Times") -> str:
    low, high = times.middle
    spread = f"half of them from {time_text(low)} to {time_text(high)}, the least {time_text(times.least)}"
    return f"{time_text(times.median)} in the median of {len(times.all)}, {spread}"


def _cells(profile: "Profile", one: "KernelProfile") -> tuple[str, ...]:
    from openinfer.oinf.report import size_text

    indices = [str(node.index) for node in one.nodes]
    known = (_short(profile, one), ", ".join([*indices[:3], *["..."] * (len(indices) > 3)]), f"{one.calls:,}")
    if not one.calls:
        return (*known, *[""] * (len(_HEADS) - len(known)))
    return (
        *known,
        time_text(one.seconds),
        _percent(one.share),
        f"{one.cost.operations:,}",
        size_text(one.cost.nbytes),
        f"{one.operations_per_second / 1e9:.3g}",
        f"{one.bytes_per_second / 1e9:.3g}",
        _percent(one.efficiency),
        one.bound,
    )


def _short(profile: "Profile", one: "KernelProfile") -> str:
    return one.name.removeprefix(f"{profile.name}_")


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """A table on a terminal; elsewhere lines of any length, so that a program can search them."""
    if not rows:
        typer.echo("no kernels")
    elif sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD)
        for head in _HEADS:
            table.add_column(head, justify="left" if head in _TO_THE_LEFT else "right")
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
    else:
        widths = [max(len(row[column]) for row in [_HEADS, *rows]) for column in range(len(_HEADS))]
        for row in [_HEADS, *rows]:
            cells = zip(_HEADS, row, widths, strict=True)
            line = (f"{cell:<{width}}" if head in _TO_THE_LEFT else f"{cell:>{width}}" for head, cell, width in cells)
            typer.echo("  ".join(line).rstrip())


def _nodes(one: "KernelProfile") -> str:
    more = len(one.nodes) - _MOST_NODES
    return "".join(f"    {node}\n" for node in one.nodes[:_MOST_NODES]) + f"    and {more} more\n" * (more > 0)


def advice(profile: "Profile") -> str:
    """Which kernel to look at first, and why."""
    one = profile.first
    if one is None:
        return "Every kernel is as fast as this machine allows: there is nothing to gain."
    lines = list(dict.fromkeys(node.line for node in one.nodes if node.line is not None))
    where = f" (line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:_MOST_NODES]))})" if lines else ""
    limit = "its arithmetic" if one.bound == "compute" else "the memory it must touch"
    threads = profile.roofline.threads
    parts = f", and runs on {one.threads} of {threads} threads" if one.threads < threads else ""
    taken = f"{_percent(one.share)} of a step, {time_text(one.seconds)}"
    return (
        f"Look at {_short(profile, one)}{where} first: it takes {taken},"
        f" where {limit} takes {time_text(one.seconds - one.gain)}{parts};"
        f" at its roofline a step would be {time_text(one.gain)} shorter, more than any other kernel can give."
    )


def time_text(seconds: float) -> str:
    """A time with three significant digits.

    >>> time_text(0.0123456), time_text(2.5e-6)
    ('12.3 ms', '2.5 us')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:,.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
