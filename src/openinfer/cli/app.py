"""The ``openinfer`` command: one small function per subcommand.

Exit status: 0 success, 1 invalid input, 2 wrong usage.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from openinfer import __version__
from openinfer.cli.batch import batch
from openinfer.cli.bench import bench
from openinfer.cli.devices import devices
from openinfer.cli.draw import draw
from openinfer.cli.editor import dap, lsp
from openinfer.cli.explain import explain
from openinfer.cli.graph import check, convert, fmt
from openinfer.cli.importing import import_model
from openinfer.cli.model import demo, inspect, verify
from openinfer.cli.ops import ops
from openinfer.cli.pack import pack
from openinfer.cli.quantize import quantize
from openinfer.cli.serve import serve
from openinfer.cli.simulate import run
from openinfer.cli.split import split
from openinfer.cli.step import step
from openinfer.cli.studio import studio
from openinfer.cli.synth import synth
from openinfer.cli.traces import trace, trace_diff
from openinfer.errors import Diagnostic, OpenInferError
from openinfer.oinf.terminal import close_quietly, open_closed_streams, output_failure


def _unwrapped(command: Callable[..., object]) -> str:
    """The docstring of a command with each paragraph on one line, to be wrapped to the width of the terminal."""
    return "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))


app = typer.Typer(
    name="openinfer",
    help="Explicit inference graphs: check, simulate and step them, then synthesize plain source code.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    *(check, run, step, studio, trace, trace_diff, synth, bench, serve, batch, split, fmt, draw),
    *(import_model, inspect, verify, pack, quantize, ops, devices, explain, demo, lsp, dap),
):
    name = "import" if command is import_model else None  # import is a keyword of Python
    app.command(name, help=_unwrapped(command))(command)
app.add_typer(convert)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"openinfer {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> int:
    """Run the command line and return its exit status."""
    open_closed_streams()
    try:
        try:
            with _cleaning_up_when_terminated():
                app()
        finally:
            sys.stdout.flush()
    except OpenInferError as error:
        print_diagnostics(error.diagnostics)
        return 1
    except BrokenPipeError:
        close_quietly()
        return 0
    except OSError as error:
        print_diagnostics([output_failure(error)])
        return 1
    return 0


@contextmanager
def _cleaning_up_when_terminated() -> Iterator[None]:
    """Exit on termination signals as on Ctrl-C, so that temporary files are removed."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    mine = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        mine = []
    for one in mine:
        signal.signal(one, leave)
    try:
        yield
    finally:
        for one in mine:
            signal.signal(one, signal.SIG_DFL)


def print_diagnostics(diagnostics: Iterable[Diagnostic]) -> None:
    """Print diagnostics on standard error, coloured on a terminal. If it cannot be written, nothing can be shown."""
    for diagnostic in diagnostics:
        first, _, rest = diagnostic.render().partition("\n")
        kind, _, message = first.partition(": ")
        color = typer.colors.YELLOW if diagnostic.code.is_warning else typer.colors.RED
        with suppress(OSError):
            typer.secho(kind, fg=color, bold=True, nl=False, err=True)
            typer.echo(f": {message}" + (f"\n{rest}" if rest else ""), err=True)
