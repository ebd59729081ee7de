"""``openinfer batch``: run a graph over the rows of files."""

import glob
import json
from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated

import typer

from openinfer.cli.graph import GraphFile
from openinfer.cli.options import AsJson, ModelPath, SizeOptions, parsed_sizes
from openinfer.cli.serve import missing_extra
from openinfer.cli.stepping import Progress, errors_as_json, guarded, progress_bar
from openinfer.cli.synth import DeviceOption
from openinfer.errors import BatchError, Code, Diagnostic, counted


class EngineChoice(StrEnum):
    """Where a run executes."""

    LOCAL = "local"
    RAY = "ray"


InputFiles = Annotated[
    list[str], typer.Option("--input", "-i", metavar="'FILES.parquet'", help="Files, or a pattern (repeatable).")
]
OutputFolder = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="A file for each part goes there.")]
EngineOption = Annotated[EngineChoice, typer.Option("--engine", help="This machine's cores, or a cluster of Ray.")]
ColumnOptions = Annotated[
    list[str] | None, typer.Option("--column", metavar="INPUT=COLUMN", help="The column of an input (repeatable).")
]
KeepOptions = Annotated[
    list[str] | None, typer.Option("--keep", metavar="COLUMN", help="Copy this column to the output (repeatable).")
]
WorkerCount = Annotated[
    int | None,
    typer.Option("--instances", min=1, max=4096, help="Parts that run in parallel; default: one for each core."),
]
PartRows = Annotated[
    int, typer.Option("--part-rows", min=1, help="The most rows of a part; row groups are joined up to it.")
]


def batch(
    graph: GraphFile,
    inputs: InputFiles,
    output: OutputFolder,
    model: ModelPath = None,
    device: DeviceOption = "host",
    size: SizeOptions = None,
    engine: EngineOption = EngineChoice.LOCAL,
    column: ColumnOptions = None,
    keep: KeepOptions = None,
    instances: WorkerCount = None,
    part_rows: PartRows = 65_536,
    as_json: AsJson = False,
) -> None:
    """Run a graph over the rows of Parquet files, and write its outputs as columns.

    Each part of the input becomes a file of the output, which appears complete or not at all. A run that was stopped
    goes on with the parts that are missing when the same command is given again.
    """
    progress = Progress()
    with errors_as_json() if as_json else nullcontext(), guarded(progress):
        sizes, columns = parsed_sizes(size), _columns(column)
        try:
            from openinfer.scale.run import BatchRun, run_local
        except ModuleNotFoundError as error:
            raise missing_extra(error, "batch") from error
        run = BatchRun(graph, _files(inputs), output, model, device, sizes, columns, tuple(keep or ()), part_rows)
        with progress_bar("rows") as update:
            if engine is EngineChoice.LOCAL:
                report = run_local(run, instances, update)
            else:
                try:
                    from openinfer.scale.ray_engine import run_ray
                except ModuleNotFoundError as error:
                    raise missing_extra(error, "scale") from error
                report = run_ray(run, instances, update)
        if as_json:
            typer.echo(json.dumps({"ok": True, **vars(report)}))
            return
        before = f", {report.done_before} of them were there already" if report.done_before else ""
        typer.echo(f"{counted(report.rows, 'row')} in {counted(report.parts, 'part')}{before}: {output}")


def _files(patterns: list[str]) -> tuple[str, ...]:
    found = []
    for pattern in patterns:
        names = sorted(glob.glob(pattern, recursive=True))
        if not names:
            raise BatchError(Diagnostic(Code.BAD_BATCH, f"no file matches {pattern!r}"))
        found += names
    return tuple(dict.fromkeys(found))


def _columns(texts: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts or ()]
    if not all(name and equals and column for name, equals, column in pairs):
        raise typer.BadParameter("write INPUT=COLUMN", param_hint="--column")
    return {name: column for name, _, column in pairs}
