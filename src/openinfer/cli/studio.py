"""``openinfer studio``: a graph in the browser."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.options import InputOptions, ModelPath, SizeOptions, StrictOption, parsed_sizes
from openinfer.errors import Code, Diagnostic, MissingExtraError, OpenInferError

if TYPE_CHECKING:
    from openinfer.check.bound import BoundGraph
    from openinfer.sim.stepper import Inputs
    from openinfer.studio.workspace import Workspace

_NEW = """// A new graph. Write ops here; the picture follows.

dynamic {
    x: f32[8];
}

volatile {
    y: f32[8];
}

block entry {
    op relu(x) >> y;
    return y;
}
"""


def studio(
    graph: Annotated[
        str | None, typer.Argument(metavar="[GRAPH]", help="The graph: an .oig or .json file; without one, a new one.")
    ] = None,
    model: ModelPath = None,
    size: SizeOptions = None,
    inputs: InputOptions = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=1, help="How many steps to step through.")] = 1,
    device: Annotated[
        str, typer.Option("--device", "-d", metavar="NAME|FILE.json", help="What code is shown for at first.")
    ] = "host",
    trace: Annotated[
        list[str] | None, typer.Option("--trace", metavar="FILE", help="A trace to look at (repeatable).")
    ] = None,
    export: Annotated[
        str | None,
        typer.Option("--export", metavar="FILE.html", help="Write one read-only file with everything, and end."),
    ] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address; open nothing.")] = False,
    strict: StrictOption = False,
) -> None:
    """Look at a graph in the browser: picture, text, steps, timeline, memory and code, which know of each other.

    The page is served to this machine only, under an address with a token that is new each time. Inputs that are not
    given are made up: floats randn:0, others zeros. Ctrl-C ends it.
    """
    work = opened_workspace(graph, model, size, strict=strict, inputs=inputs or [], device=device, steps=steps)
    for path in trace or ():
        from openinfer.lang.source import read_source

        work.trace_file(Path(path).name, read_source(path))
    if export is not None:
        _export(work, export)
        return
    _serve(work, port, opens=not no_browser)


def opened_workspace(
    path: str | None,
    model: str | None = None,
    size: list[str] | None = None,
    *,
    strict: bool = False,
    inputs: Sequence[str] = (),
    device: str = "host",
    steps: int = 1,
) -> "Workspace":
    """The workspace of the page, from the options of the command."""
    # Imported here because the other commands need none of this.
    from openinfer.cli.devices import device_called
    from openinfer.cli.feeds import parsed_inputs
    from openinfer.lang.source import is_json, load_graph, read_source
    from openinfer.oinf import ModelLoader
    from openinfer.studio.document import CheckedWith
    from openinfer.studio.workspace import Settings, Workspace

    sizes = parsed_sizes(size)
    parsed_inputs(inputs)
    is_source = path is not None and not is_json(path)
    text = _NEW if path is None else read_source(path) if is_source else load_graph(path).to_text()
    loader = ModelLoader.open(model) if model is not None else None
    name = Path(path).name if path is not None else "untitled.oig"
    return Workspace(
        text,
        CheckedWith(name, loader, sizes, strict),
        Settings(_made_inputs, device_called, tuple(inputs), device, steps),
        Path(path) if path is not None and is_source else None,
    )


def _made_inputs(bound: "BoundGraph", texts: Sequence[str]) -> "Inputs":
    """The inputs that texts give; missing ones are made up."""
    from openinfer.cli.compiled import made_up
    from openinfer.cli.feeds import parsed_inputs
    from openinfer.cli.inputs import InputSource

    try:
        feeds = parsed_inputs(texts)
    except typer.BadParameter as error:
        raise OpenInferError(Diagnostic(Code.BAD_PARAMETER, error.message)) from error
    source = InputSource(bound, made_up(bound, feeds) | feeds)
    limit = source.steps
    return lambda step: source.values(step if limit is None else min(step, limit - 1))


def _export(work: "Workspace", path: str) -> None:
    from openinfer.oinf.atomic import atomic_file
    from openinfer.studio.export import exported

    text = exported(work)
    with atomic_file(path) as sink:
        sink.write(text.encode())
    typer.echo(f"{path}: {len(text) / 1e6:.1f} MB, needs nothing else")


def _serve(work: "Workspace", port: int, *, opens: bool) -> None:
    try:
        from openinfer.studio.server import StudioServer
    except ImportError as error:
        message = "the studio needs the packages starlette and uvicorn, which are not installed"
        raise MissingExtraError(
            Diagnostic(Code.MISSING_EXTRA, message, help="pip install 'openinfer[studio]'")
        ) from error
    server = StudioServer(work, port)
    server.run(_announced(opens=opens))


def _announced(*, opens: bool) -> Callable[[str], None]:
    def announce(url: str) -> None:
        typer.echo(f"openinfer studio is at {url}\nCtrl-C ends it.")
        if opens:
            import webbrowser

            webbrowser.open(url)

    return announce
