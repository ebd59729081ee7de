"""``openinfer inspect``, ``verify`` and ``demo``: looking at model files."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from openinfer.cli.options import AsJson
from openinfer.errors import OpenInferError
from openinfer.oinf import ModelLoader, SizeVar, TensorSpec, save_file
from openinfer.oinf.atomic import write_failed
from openinfer.oinf.diff import diff
from openinfer.oinf.report import describe, summary, summary_facts
from openinfer.oinf.terminal import progress_bar
from openinfer.oinf.verify import failure_json, run

File = Annotated[str, typer.Argument(metavar="FILE.oinf", help="The model file.")]
TensorNamesOption = Annotated[
    list[str] | None, typer.Option("--tensor", metavar="NAME", help="Only this tensor (repeatable).")
]
AsSummary = Annotated[bool, typer.Option("--summary", help="Print a few lines for release notes.")]


def inspect(
    file: File,
    tensor: TensorNamesOption = None,
    other: Annotated[
        str | None, typer.Option("--diff", metavar="OTHER.oinf", help="Say how FILE differs from this one.")
    ] = None,
    stats: Annotated[bool, typer.Option(help="Read the tensors for statistics and histograms.")] = True,
    as_json: AsJson = False,
    as_summary: AsSummary = False,
) -> None:
    """Describe a model file: sizes, metadata, tensors with previews and statistics.

    With --diff, the exit status is 1 when the files differ; --tensor then compares only these tensors.
    """
    try:
        with ModelLoader.open(file) as model:
            if other is not None:
                _print_diff(model, other, tensor, as_json=as_json)
            elif as_summary:
                typer.echo(json.dumps(summary_facts(model), indent=2) if as_json else summary(model))
            else:
                _print_report(model, tensor, stats=stats, as_json=as_json)
    except OpenInferError as error:
        if not as_json:
            raise
        typer.echo(failure_json(file, error))
        raise typer.Exit(1) from error


def _print_report(model: ModelLoader, tensor: list[str] | None, *, stats: bool, as_json: bool) -> None:
    total = sum(model.info(name).nbytes for name in tensor or model.tensors)
    with progress_bar("reading", total) as advance:
        report = describe(model, tensor, with_statistics=stats, advance=advance)
    typer.echo(report.to_json() if as_json else report.text())


def _print_diff(model: ModelLoader, path: str, names: list[str] | None, *, as_json: bool) -> None:
    with ModelLoader.open(path) as other:
        differences = diff(model, other, names)
    if as_json:
        typer.echo(json.dumps([difference.facts() for difference in differences], indent=2, allow_nan=False))
    else:
        typer.echo("\n".join(difference.line() for difference in differences) or "no differences")
    if differences:
        raise typer.Exit(1)


def verify(
    file: File,
    tensor: TensorNamesOption = None,
    check: Annotated[
        list[str] | None, typer.Option(metavar="MODULE:FUNCTION", help="Also run your own check (repeatable).")
    ] = None,
    as_json: AsJson = False,
    as_summary: AsSummary = False,
) -> None:
    """Check every byte of a model file and describe it; the exit status is 1 for a bad file."""
    raise typer.Exit(run(file, tensor, check or [], as_json=as_json, as_summary=as_summary))


def demo(
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where to write the model.")] = Path("build/demo"),
) -> None:
    """Author a small model, check it and show what it holds."""
    path = folder / "mlp.oinf"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise write_failed(str(folder), error) from error
    rng = np.random.default_rng(1)
    sizes = {"B": 4, "D": 16, "H": 32, "O": 8}
    shapes = {"w1": ("D", "H"), "b1": ("H",), "w2": ("H", "O"), "b2": ("O",)}
    tensors = {
        name: TensorSpec(rng.normal(size=[sizes[d] for d in dims]).astype(np.float32)) for name, dims in shapes.items()
    }
    save_file(path, tensors, {name: SizeVar(value).value for name, value in sizes.items()})
    raise typer.Exit(run(str(path), None, [], as_json=False, as_summary=False))
