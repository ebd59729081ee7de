"""``openinfer quantize``: turn a float graph into one of 8-bit integers, with scales from samples."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from openinfer.cli.options import AsJson, parsed_sizes
from openinfer.cli.pack import Rules
from openinfer.cli.stepping import progress_bar


def quantize(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="A graph: .oig source or .json.")],
    model: Annotated[str, typer.Option("--model", "-m", metavar="FILE.oinf", help="The weights of the graph.")],
    output: Annotated[str, typer.Option("--output-dir", "-o", metavar="DIR", help="The folder to write into.")],
    calibrate: Annotated[
        str | None,
        typer.Option(metavar="FILE.npz", help="Inputs by name, samples first; NAME.0, NAME.1 ... if shapes differ."),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What the files are called; else GRAPH_i8.")] = None,
    size: Annotated[Rules, typer.Option(metavar="NAME=N", help="Settle a size (repeatable).")] = None,
    observer: Annotated[
        str, typer.Option(metavar="KIND", help="How ranges are chosen: mse, minmax, percentile, percentile:99.9.")
    ] = "mse",
    keep: Annotated[
        Rules, typer.Option(metavar="GLOB", help="Leave layers in floats, by result, weights, scope or block.")
    ] = None,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Zero has the code zero everywhere.")] = False,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Weights in 8 bits, arithmetic in floats; needs no samples.")
    ] = False,
    no_smoothing: Annotated[
        bool, typer.Option("--no-smoothing", help="Outliers of values do not move into weights.")
    ] = False,
    least_cosine: Annotated[
        float | None,
        typer.Option(metavar="C", help="Leave layers in floats until each output has this cosine for each sample."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE.npy", help="The right class of each sample: count before and after.")
    ] = None,
    result: Annotated[
        str | None, typer.Option("--output", metavar="NAME", help="The output that --labels are for; else the first.")
    ] = None,
    evaluate: Annotated[
        str | None, typer.Option(metavar="FILE.npz", help="Other inputs to compare on, which --labels belong to.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Quantize a float graph: DIR/NAME.oig computes in 8-bit integers, DIR/NAME.oinf has its weights.

    The graph runs on the samples to find the range of each value; what happens to every layer and output is reported.
    A graph with persistent variables takes the samples as steps, in order.
    """
    # Imported here because the other commands need neither the simulator nor its op records.
    from openinfer.quantizing import quantize as quantized

    report = quantized(
        graph,
        model,
        output,
        calibrate,
        name=name,
        sizes=parsed_sizes(size),
        observer=observer,
        keep=keep or (),
        symmetric=symmetric,
        weights_only=weights_only,
        smooth=not no_smoothing,
        least_cosine=least_cosine,
        labels=labels,
        judge=result,
        evaluate=evaluate,
        progress=_bar,
    )
    typer.echo(json.dumps(report.facts(), indent=2, allow_nan=False) if as_json else "\n".join(report.lines()))


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    with progress_bar(what) as update:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            update(done, total)

        yield advance
