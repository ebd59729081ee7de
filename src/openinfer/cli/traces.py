"""``openinfer trace`` and ``trace-diff``: what a step did, and where two runs diverge."""

import json
from contextlib import nullcontext
from enum import StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.graph import GraphFile, Output
from openinfer.cli.options import (
    AsJson,
    InputOptions,
    Level,
    LoadState,
    ModelPath,
    NodeBudget,
    RunsOn,
    Scheduler,
    SchedulerOption,
    SizeOptions,
    StepCount,
    StrictOption,
)
from openinfer.cli.stepping import Progress, errors_as_json, guarded, run_steps, step_count
from openinfer.errors import OpenInferError, counted
from openinfer.lang.source import read_source
from openinfer.oinf.atomic import atomic_file

if TYPE_CHECKING:
    from openinfer.sim import Executor
    from openinfer.sim.compare import TraceComparison


_MOST_NAMED = 10


class Format(StrEnum):
    """The file format of a trace."""

    JSON = "json"
    CHROME = "chrome"


WhichStep = Annotated[
    int | None, typer.Option("--step", metavar="K", min=0, help="Which step, counted from 0; else the last.")
]
LevelOption = Annotated[Level | None, typer.Option("--level", help="'full' adds types, parameters and values.")]
FormatOption = Annotated[Format, typer.Option("--format", help="'chrome' opens in Perfetto.")]


def trace(
    graph: GraphFile,
    model: ModelPath = None,
    size: SizeOptions = None,
    inputs: InputOptions = None,
    steps: StepCount = None,
    step: WhichStep = None,
    level: LevelOption = None,
    form: FormatOption = Format.JSON,
    output: Output = None,
    load_state: LoadState = None,
    scheduler: SchedulerOption = Scheduler.SEQUENTIAL,
    node_budget: NodeBudget = None,
    device: RunsOn = "cpu",
    strict: StrictOption = False,
) -> None:
    """Run steps of a graph and write what one of them did, node by node.

    A step that fails is written as far as it came; the exit status is then 1. Inputs are as for 'openinfer run'.
    """
    level = _recorded(steps, step, level)
    progress = Progress()
    with guarded(progress):
        # Imported here because the other commands need neither the simulator nor its op records.
        from openinfer.cli.inputs import prepared

        executor, source = prepared(
            graph,
            model,
            size,
            inputs,
            strict=strict,
            scheduler=scheduler,
            node_budget=node_budget,
            level=level,
            device=device,
        )
        if load_state is not None:
            executor.load_state(load_state)
        with source:
            progress.steps = step_count(source, steps if step is None else step + 1)
            try:
                run_steps(executor, source, progress, lambda _number: None)
            except OpenInferError:
                if progress.is_inside_step:
                    _deliver(executor, form, output)
                raise
        _deliver(executor, form, output)


def _recorded(steps: int | None, step: int | None, level: Level | None) -> Level:
    """The requested level, from the option or the environment; an impossible step or level is wrong usage."""
    if level is Level.OFF:
        message = "'off' records nothing"
        raise typer.BadParameter(message, param_hint="--level")
    if step is not None and steps is not None and step >= steps:
        message = f"of {counted(steps, 'step')}, counted from 0, the last is {steps - 1}"
        raise typer.BadParameter(message, param_hint="--step")
    from openinfer.sim.simulator import trace_from_environment

    found = level or Level(trace_from_environment()[0])
    return found if found is not Level.OFF else Level.BASIC


def _deliver(executor: "Executor", form: Format, output: str | None) -> None:
    from openinfer.sim import chrome_trace

    if form is Format.CHROME:
        text = json.dumps(chrome_trace(executor.events), allow_nan=False)
    else:
        text = json.dumps(executor.trace(), indent=2, allow_nan=False)
    if executor.dropped_events:
        typer.echo(f"the trace is not complete: {executor.dropped_events} more events were not kept", err=True)
    if output is None or output == "-":
        typer.echo(text)
        return
    with atomic_file(output) as sink:
        sink.write(f"{text}\n".encode())


def trace_diff(
    one: Annotated[str, typer.Argument(metavar="A.json", help="A trace, as 'openinfer trace' writes it.")],
    other: Annotated[str, typer.Argument(metavar="B.json", help="Another.")],
    tolerance: Annotated[
        float,
        typer.Option(min=0.0, metavar="T", help="Numbers are the same that differ by at most T * max(1, |a|, |b|)."),
    ] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Find the first node where two runs part, and say by how much; the exit status is 1 if they do.

    Traces of level basic have no values and can be compared only by what was executed. Times do not count.
    """
    if not isfinite(tolerance):
        message = f"{tolerance} is not a number to compare with"
        raise typer.BadParameter(message, param_hint="--tolerance")
    from openinfer.sim.compare import compare, read_trace

    with errors_as_json() if as_json else nullcontext():
        found = compare(read_trace(read_source(one), one), read_trace(read_source(other), other), tolerance)
    typer.echo(json.dumps(found.facts(), indent=2, allow_nan=False) if as_json else _text(found, tolerance))
    if found.difference is not None:
        raise typer.Exit(1)


def _text(found: "TraceComparison", tolerance: float) -> str:
    lines = []
    difference = found.difference
    if difference is None:
        beyond = f" beyond {tolerance:g}" if tolerance else ""
        lines.append(f"no difference{beyond} in {counted(found.events[0], 'event')}")
    elif difference.what == "end":
        longer, shorter = ("A", "B") if difference.other is None else ("B", "A")
        lines.append(f"{shorter} ends where {longer} continues with {difference.event.title}")
    else:
        event = difference.event
        task = f" of {event.thread!r}" if event.thread != "entry" else ""
        lines.append(f"the runs diverge at {event.title}, event {event.position}{task}, by {difference.what}")
        lines += [f"  {deviation}" for deviation in difference.deviations]
    if found.absent and found.with_values:
        nodes = {event.node_index: event.absent for event in found.absent}
        count = len(found.absent)
        lines.append(f"the values of {count} event{'s' * (count != 1)} could not be compared, for one trace has none:")
        lines += [f"  node {node}: {reason}" for node, reason in list(nodes.items())[:_MOST_NAMED]]
        more = len(nodes) - _MOST_NAMED
        lines += [f"  and {more} more nodes"] * (more > 0)
        lines.append("code that is synthesized with --no-fuse has them all")
    if not found.with_values:
        lines.append("only what was executed could be compared: values are in traces of --level full")
    return "\n".join(lines)
