"""``openinfer split``: split a graph into stages of a pipeline."""

import json
from contextlib import nullcontext
from typing import Annotated

import typer

from openinfer.check import bind
from openinfer.cli.graph import GraphFile
from openinfer.cli.options import AsJson, ModelPath, SizeOptions, parsed_sizes
from openinfer.cli.stepping import Progress, errors_as_json, guarded
from openinfer.errors import counted
from openinfer.lang import load_graph
from openinfer.oinf import ModelLoader

CutOptions = Annotated[
    list[str],
    typer.Option("--at", metavar="SCOPE|LOOP[I]", help="A stage begins there (repeatable, in the graph's order)."),
]
StagesFolder = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="A folder for each stage goes there.")]


def split(
    graph: GraphFile,
    at: CutOptions,
    output: StagesFolder,
    model: ModelPath = None,
    size: SizeOptions = None,
    as_json: AsJson = False,
) -> None:
    """Cut a graph at scopes or loops of its entry block into stages, each a graph and a model of its own.

    Run one after the other, on what each awaits of those before it, they give what the whole graph gives;
    openinfer.stages.Pipeline runs them in processes, RayPipeline on a cluster.
    """
    with errors_as_json() if as_json else nullcontext(), guarded(Progress()):
        from openinfer.stages import split as split_graph
        from openinfer.stages import write_stages

        with nullcontext() if model is None else ModelLoader.open(model) as opened:
            bound = bind(load_graph(graph), opened, parsed_sizes(size))
            stages = split_graph(bound, at)
            written = write_stages(output, bound, stages)
        if as_json:
            facts = [{"name": one.name, "await": one.awaits, "yield": one.yields} for one in written.stages]
            typer.echo(json.dumps({"ok": True, "stages": facts}))
            return
        for place, one in enumerate(written.stages):
            typer.echo(f"stage-{place} {one.name}: {', '.join(one.awaits)} -> {', '.join(one.yields)}")
        typer.echo(f"{counted(len(stages), 'stage')}: {output}")
