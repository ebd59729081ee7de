"""``openinfer draw``: a picture of a graph, by way of Graphviz."""

import shutil
import subprocess
from pathlib import PurePath
from typing import Annotated

import typer

from openinfer.errors import Code, Diagnostic, OpenInferError, printable

TIMEOUT_SECONDS = 60
INSTALL_HELP = "install Graphviz, for example: apt-get install graphviz; or write a .dot file"
_BEGINNINGS = {"svg": (b"<?xml", b"<svg"), "png": (b"\x89PNG\r\n\x1a\n",), "pdf": (b"%PDF-",)}
"""How a picture of each format begins."""


def draw(
    graph_path: Annotated[str, typer.Argument(metavar="GRAPH", help="The graph: an .oig or .json file.")],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="A .svg, .png, .pdf or .dot file; - prints the DOT text."),
    ] = "-",
) -> None:
    """Draw a graph: blocks, loops and scopes as boxes, variables coloured by memory kind.

    Pictures are made by Graphviz; the DOT text needs nothing.
    """
    form = "dot" if output == "-" else PurePath(output).suffix.removeprefix(".").lower()
    if form not in ("dot", *_BEGINNINGS):
        message = f"cannot tell the kind of picture from {output!r}; the name must end in .svg, .png, .pdf or .dot"
        raise typer.BadParameter(message, param_hint="--output")
    # Here, not above: the other commands need neither the parser nor its grammar.
    from openinfer.ir.dot import graph_dot
    from openinfer.lang import load_graph
    from openinfer.oinf.atomic import atomic_file

    text = graph_dot(load_graph(graph_path))
    if output == "-":
        typer.echo(text, nl=False)
        return
    picture = text.encode("ascii") if form == "dot" else render(text, form)
    with atomic_file(output) as sink:
        sink.write(picture)


def render(dot_text: str, form: str) -> bytes:
    """The picture that Graphviz makes of a DOT text: ``svg``, ``png`` or ``pdf``."""
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
        raise _failed(program, _first_line(done.stderr) or f"its output is no {form.upper()} picture")
    return done.stdout


def _first_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return printable(lines[0])[:200] if lines else ""


def _failed(program: str, reason: str) -> OpenInferError:
    message = f"{program!r} could not draw the graph: {reason}"
    return OpenInferError(Diagnostic(Code.MISSING_TOOL, message, help="a .dot file needs no Graphviz"))
