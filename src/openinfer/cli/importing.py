"""``openinfer import``: models of other formats as graphs and model files."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.pack import Rules

if TYPE_CHECKING:
    from openinfer.importing.finish import Imported


def import_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="An ONNX or a GGUF model.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What the files are called.")] = None,
    size: Annotated[
        Rules,
        typer.Option(
            metavar="N=VALUE|N<=BOUND|N=EXPR", help="Fix a symbolic dimension, keep it dynamic, or compute it: 32*n."
        ),
    ] = None,
    state: Annotated[
        Rules, typer.Option(metavar="OUT=IN", help="Tie an output to an input; * matches the same text in both.")
    ] = None,
    fix: Annotated[Rules, typer.Option(metavar="INPUT=VALUE", help="Make an input a constant.")] = None,
    drop: Annotated[
        Rules,
        typer.Option(metavar="OUT", help="Drop an output, and everything that only it needs; * matches any text."),
    ] = None,
    no_loops: Annotated[bool, typer.Option("--no-loops", help="Unroll repeated layers.")] = False,
    no_idioms: Annotated[
        bool, typer.Option("--no-idioms", help="Leave written-out norms and the like as they are.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts for a program.")] = False,
) -> None:
    """Import a model: DIR/NAME.oig is its graph, DIR/NAME.oinf has its weights.

    Every symbolic dimension needs a --size. A dimension without a name is called by its input: --size 'input[0]=1'.
    """
    # Imported here: the other commands do not need it, and it takes nearly half of their startup time.
    from openinfer.importing.gguf import run_gguf_import
    from openinfer.importing.onnx import run_import
    from openinfer.importing.options import ImportOptions, fixed_inputs, size_choices, state_pairs
    from openinfer.importing.problems import bad_file

    if model.endswith((".pt", ".pt2", ".pth")):
        advice = "load it in Python, if you trust it, and give it to openinfer.importing.import_torch"
        raise bad_file(model, "a PyTorch file can run code when it is loaded", advice)
    choices, pairs, fixed = size_choices(size or ()), state_pairs(state or ()), fixed_inputs(fix or ())
    options = ImportOptions(name, choices, pairs, fixed, tuple(drop or ()), loops=not no_loops, idioms=not no_idioms)
    report = (run_gguf_import if _is_gguf(model) else run_import)(model, output, options)
    typer.echo(json.dumps(report.facts(), indent=2) if as_json else "\n".join(_lines(report)))


def _is_gguf(path: str) -> bool:
    """Whether a file is a GGUF model, by its first bytes or else by its name."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF" or path.endswith(".gguf")
    except (OSError, ValueError):
        return path.endswith(".gguf")


def _lines(report: "Imported") -> list[str]:
    lines = [f"graph: {report.graph}", f"model: {report.model}"]
    lines[1:1] = [] if report.prefill is None else [f"prefill: {report.prefill}"]
    for title, names in (("inputs", report.inputs), ("outputs", report.outputs), ("states", report.states)):
        lines += [f"{title}:"] if names else []
        lines += [f"  {one}" if one == other else f"  {one} is {other}" for one, other in names.items()]
    return lines
