"""``openinfer pack``: pack weights of other formats into a model file."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from math import inf
from typing import Annotated

import typer

from openinfer.oinf.options import size_options
from openinfer.oinf.pack import PackedTensor, PackJob, PackOptions, PackReport
from openinfer.oinf.report import size_text
from openinfer.oinf.sources import open_source
from openinfer.oinf.terminal import progress_bar

Rules = list[str] | None


def pack(
    weights: Annotated[
        list[str], typer.Argument(metavar="WEIGHTS...", help=".safetensors (or its index), .npz, .pt, .oinf files.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE.oinf", help="The model file to write.")],
    rename: Annotated[Rules, typer.Option(metavar="REGEX=REPL", help="Rename tensors, in the order given.")] = None,
    cast: Annotated[Rules, typer.Option(metavar="GLOB=DTYPE", help="Cast tensors, e.g. '*.weight=bf16'.")] = None,
    quantize: Annotated[
        Rules,
        typer.Option(
            metavar="GLOB=SPEC",
            help="Quantize, e.g. '*.weight=i8:symmetric:per_channel:axis=0' or '*.weight=u4:per_group'.",
        ),
    ] = None,
    fold_batch_norm: Annotated[
        Rules,
        typer.Option(
            metavar="LAYER=NORM[:eps=E]",
            help="Fold a batch norm into the weights and bias of the layer before it, e.g. 'net.*.conv=net.*.bn'.",
        ),
    ] = None,
    size: Annotated[Rules, typer.Option(metavar="NAME=N", help="Add a size variable.")] = None,
    meta: Annotated[Rules, typer.Option(metavar="KEY=VALUE[:DTYPE]", help="Add a metadata value.")] = None,
    include: Annotated[Rules, typer.Option(metavar="GLOB", help="Take only tensors that match.")] = None,
    exclude: Annotated[Rules, typer.Option(metavar="GLOB", help="Leave out tensors that match.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts for a program.")] = False,
) -> None:
    """Pack weights into one .oinf file, a piece at a time; a failed run leaves no file behind.

    --include and --exclude look at the names in WEIGHTS; --fold-batch-norm, --cast and --quantize at the names after
    --rename.
    """
    options = PackOptions(
        rename or (),
        cast or (),
        quantize or (),
        include or (),
        exclude or (),
        size_options(size or ()),
        meta or (),
        fold_batch_norm or (),
    )
    with ExitStack() as resources:
        job = PackJob([open_source(path, resources) for path in weights], options)
        with progress_bar("packing", job.nbytes) as advance:
            report = job.write(output, lambda _name, count: advance(count))
    typer.echo(json.dumps(report.facts(), indent=2, allow_nan=False) if as_json else "\n".join(_report_lines(report)))


def _report_lines(report: PackReport) -> Sequence[str]:
    rows: list[tuple[str, ...]] = [("tensor", "from", "to", "max error", "rms error", "SNR dB")]
    rows += [_row(tensor) for tensor in report.tensors]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"skipped, not a tensor: {name}" for name in report.skipped]
    count = f"{len(report.tensors)} tensor{'s' * (len(report.tensors) != 1)}"
    return [*lines, "", f"{report.path}: {count}, {size_text(report.file_size)}"]


def _row(tensor: PackedTensor) -> tuple[str, ...]:
    target = tensor.quantization or tensor.dtype.name
    shape = f"[{', '.join(map(str, tensor.shape))}]"
    if tensor.loss is None:
        return (tensor.name, f"{tensor.source_type}{shape}", target, "", "", "")
    snr = "" if tensor.loss.snr_db == inf else f"{tensor.loss.snr_db:.1f}"
    return (
        tensor.name,
        f"{tensor.source_type}{shape}",
        target,
        f"{tensor.loss.largest:.3g}",
        f"{tensor.loss.rms:.3g}",
        snr,
    )
