"""``openinfer draw``: a picture of a graph, rendered by Graphviz."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.options import ModelPath, SizeOptions, parsed_sizes
from openinfer.errors import Code, Diagnostic, OpenInferError, printable

if TYPE_CHECKING:
    from openinfer.ir import Graph
    from openinfer.ir.dot_sheet import DotOptions

TIMEOUT_SECONDS = 60
LARGE = 60
"""The most nodes of a graph that ``--collapse auto`` leaves expanded."""
INSTALL_HELP = "install Graphviz, for example: apt-get install graphviz; or write a .dot file"
_BEGINNINGS = {"svg": (b"<?xml", b"<svg"), "png": (b"\x89PNG\r\n\x1a\n",), "pdf": (b"%PDF-",)}
"""The first bytes of a picture in each format."""


def draw(
    graph_path: Annotated[str, typer.Argument(metavar="GRAPH", help="The graph: an .oig or .json file.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="A .svg, .png, .pdf or .dot file; - prints the DOT text."),
    ] = "-",
    model: ModelPath = None,
    size: SizeOptions = None,
    collapse: Annotated[
        list[str] | None,
        typer.Option(
            "--collapse",
            metavar="WHAT",
            help="Draw as one shape (repeatable): loops, scopes, blocks, the name of one, or auto: all of them, where "
            f"the graph has more than {LARGE} nodes.",
        ),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Draw weights as shapes of their own, not in the nodes that read them.")
    ] = False,
    column: Annotated[
        int | None,
        typer.Option(
            "--column", metavar="N", min=0, help="The most nodes of a column; 0: one column. Else as the graph needs."
        ),
    ] = None,
) -> None:
    """Draw a graph: blocks, loops and scopes as boxes, variables coloured by memory kind, and a legend.

    With a model or sizes, variables have the types that they are bound to. Pictures are made by Graphviz; the DOT
    text needs nothing.
    """
    form = "dot" if output == "-" else PurePath(output).suffix.removeprefix(".").lower()
    if form not in ("dot", *_BEGINNINGS):
        message = f"cannot tell the kind of picture from {output!r}; the name must end in .svg, .png, .pdf or .dot"
        raise typer.BadParameter(message, param_hint="--output")
    # Imported here because the other commands need neither the parser nor its grammar.
    from openinfer.ir.dot import graph_dot
    from openinfer.lang import load_graph
    from openinfer.oinf.atomic import atomic_file

    graph = load_graph(graph_path)
    text = graph_dot(graph, _options(graph, model, size, collapse or [], column, folds=not weights))
    if output == "-":
        typer.echo(text, nl=False)
        return
    picture = text.encode("ascii") if form == "dot" else render(text, form)
    with atomic_file(output) as sink:
        sink.write(picture)


def _options(
    graph: "Graph", model: str | None, size: list[str] | None, collapse: list[str], column: int | None, *, folds: bool
) -> "DotOptions":
    """The drawing options; with a model or sizes, the graph is bound to them."""
    from openinfer.ir.dot_sheet import DotOptions

    types: Mapping[str, str] = {}
    linked: frozenset[str] = frozenset()
    if model is not None or size:
        from openinfer.check import bind
        from openinfer.check.type_texts import linked_variables, variable_types
        from openinfer.oinf import ModelLoader

        bound = bind(graph, None if model is None else ModelLoader.open(model), parsed_sizes(size))
        types, linked = variable_types(bound), linked_variables(bound)
    return DotOptions(types, linked, folds, _collapsed(graph, collapse), column)


def _collapsed(graph: "Graph", wanted: list[str]) -> frozenset[str]:
    from openinfer.ir import Loop, Scope
    from openinfer.ir.dot_sheet import BLOCKS, LOOPS, SCOPES

    kinds = {LOOPS, SCOPES, BLOCKS}
    named = {node.kind.name for node in graph.walk() if isinstance(node.kind, Loop | Scope)}
    unknown = [one for one in wanted if one not in kinds | named | graph.blocks.keys() | {"auto"}]
    if unknown:
        message = f"no block, loop or scope is called {unknown[0]!r}; loops, scopes, blocks and auto are for all"
        raise typer.BadParameter(message, param_hint="--collapse")
    chosen = {one for one in wanted if one != "auto"}
    return frozenset(chosen | kinds if "auto" in wanted and graph.node_count > LARGE else chosen)


def render(dot_text: str, form: str) -> bytes:
    """Render a DOT text with Graphviz as ``svg``, ``png`` or ``pdf``."""
    program = shutil.which("dot")
    if program is None:
        raise OpenInferError(Diagnostic(Code.MISSING_TOOL, "there is no program 'dot' on the PATH", help=INSTALL_HELP))
    command = [program, f"-T{form}"]
    try:
        done = subprocess.run(  # noqa: S603  (Graphviz, found on the PATH; the text is ours)
            command, input=dot_text.encode("ascii"), capture_output=True, check=False, timeout=TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise _failed(program, f"it was not done after {TIMEOUT_SECONDS} seconds") from error
    except OSError as error:
        raise _failed(program, error.strerror or str(error)) from error
    if done.returncode:
        raise _failed(program, _first_line(done.stderr) or f"exit status {done.returncode}")
    if not done.stdout.startswith(_BEGINNINGS[form]):
        raise _failed(program, _first_line(done.stderr) or f"its output is not in {form.upper()} format")
    return done.stdout


def _first_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[0])[:200] if lines else ""


def _failed(program: str, reason: str) -> OpenInferError:
    message = f"{program!r} could not draw the graph: {reason}"
    return OpenInferError(
        Diagnostic(
            Code.MISSING_TOOL, message, help="openinfer studio shows large graphs; a .dot file needs no Graphviz"
        )
    )
