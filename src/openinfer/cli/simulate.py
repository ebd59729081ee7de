"""``openinfer run``: run steps of a graph, with inputs from files or made up, and outputs to files."""

import os
from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated

import typer

from openinfer.cli.graph import GraphFile
from openinfer.cli.options import (
    AsJson,
    InputOptions,
    Level,
    LoadState,
    ModelPath,
    NodeBudget,
    OutputOptions,
    RunsOn,
    SaveState,
    Scheduler,
    SchedulerOption,
    SizeOptions,
    StepCount,
    StrictOption,
)
from openinfer.cli.stepping import Progress, errors_as_json, guarded, run_steps, step_count

TraceLevelOption = Annotated[Level | None, typer.Option("--trace-level", help="How much to record of each step.")]


class ComparedWith(StrEnum):
    """The reference that nodes are compared with."""

    CPU = "cpu"


CompareOption = Annotated[
    ComparedWith | None, typer.Option("--compare", help="Compare every node with what the CPU computes.")
]


def run(
    graph: GraphFile,
    model: ModelPath = None,
    size: SizeOptions = None,
    inputs: InputOptions = None,
    steps: StepCount = None,
    output: OutputOptions = None,
    load_state: LoadState = None,
    save_state: SaveState = None,
    scheduler: SchedulerOption = Scheduler.SEQUENTIAL,
    node_budget: NodeBudget = None,
    trace_level: TraceLevelOption = None,
    device: RunsOn = "cpu",
    compare: CompareOption = None,
    strict: StrictOption = False,
    as_json: AsJson = False,
) -> None:
    """Run steps of a graph and show or write the results.

    Generated inputs differ from step to step and are always the same for a seed: step i, counted from 0, has the
    numbers of numpy.random.default_rng([SEED, i]). Files are written when all steps have succeeded, each complete or
    not at all. bf16 and f8 are written as f32, types narrower than a byte as int8 or uint8; no value changes.

    With --compare cpu every node is computed on the CPU too, from the same operands; the first one whose result its op
    does not allow ends the run with an error, and the exit status is 1.
    """
    progress = Progress()
    with errors_as_json() if as_json else nullcontext(), guarded(progress):
        # Imported here because the other commands need neither the simulator nor its op records.
        from openinfer.cli.inputs import prepared
        from openinfer.cli.outputs import Results, default_outputs, parsed_outputs

        wanted = parsed_outputs(output, save_state)
        level = trace_level if trace_level or as_json or "OPENINFER_TRACE" in os.environ else Level.OFF
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
            compare=None if compare is None else compare.value,
        )
        results = Results(executor, wanted or default_outputs(executor.bound), save_state)
        if load_state is not None:
            executor.load_state(load_state)
        with source:
            progress.steps = step_count(source, steps)
            run_steps(executor, source, progress, results.keep)
        for path in results.write():
            progress.written.append(path)
        typer.echo(results.json(progress.seconds) if as_json else results.text(progress.seconds))
        if compare is not None and not as_json:
            typer.echo("every node computes what the CPU does, as far as its op promises")
