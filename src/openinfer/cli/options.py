"""Options that several commands share. Light: importing it loads neither the parser nor the simulator."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from openinfer.errors import OinfError
from openinfer.oinf.options import size_options

ModelPath = Annotated[
    str | None, typer.Option("--model", "-m", metavar="FILE.oinf", help="The model that the graph is bound to.")
]
SizeOptions = Annotated[list[str] | None, typer.Option("--size", metavar="NAME=N", help="Settle a size (repeatable).")]
InputOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="An input (repeatable): @x.npy, @f.npz:key, randn:SEED, uniform:SEED, randint:SEED[:LOW..HIGH], zeros, "
        "ones, arange, a number, or a JSON list. @x.npy[] takes one slice of the first axis per step.",
    ),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Unknown attributes are errors.")]
NodeBudget = Annotated[
    int | None, typer.Option("--node-budget", metavar="N", min=1, help="Stop a step that executes more nodes.")
]
LoadState = Annotated[
    str | None, typer.Option("--load-state", metavar="FILE", help="Begin with the persistent memory saved here.")
]
SaveState = Annotated[
    str | None, typer.Option("--save-state", metavar="FILE", help="Write persistent memory here at the end.")
]
StepCount = Annotated[
    int | None,
    typer.Option("--steps", metavar="N", min=1, help="How many steps; else one for each slice of @x.npy[], or one."),
]
OutputOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="NAME[=@FILE]",
        help="Show this variable, or write it to an .npy or .npz file (repeatable); @y.npy[] stacks all steps. "
        "Without it: what the graph returns, else what it declares and writes, but for persistent memory.",
    ),
]
RunsOn = Annotated[
    str,
    typer.Option(
        "--device",
        "-d",
        metavar="cpu|NAME|FILE.json",
        help="Compute the nodes there: cpu, vulkan, or the description of a Vulkan device, such as lavapipe.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print facts for a program.")]


class Scheduler(StrEnum):
    """How consumers of ``yield`` run."""

    SEQUENTIAL = "sequential"
    THREADED = "threaded"


SchedulerOption = Annotated[
    Scheduler, typer.Option("--scheduler", help="Run consumers of yield in one thread, or each in its own.")
]


class Level(StrEnum):
    """How much of a step is recorded, by the names of the simulator's own levels."""

    OFF = "off"
    BASIC = "basic"
    FULL = "full"


def parsed_sizes(texts: Iterable[str] | None) -> dict[str, int]:
    """Sizes from ``NAME=N`` options; a malformed one is wrong usage.

    >>> parsed_sizes(["T=5"])
    {'T': 5}
    """
    try:
        return size_options(texts or ())
    except OinfError as error:
        found = error.diagnostics[0]
        raise typer.BadParameter("; ".join(filter(None, (found.message, found.help))), param_hint="--size") from error
