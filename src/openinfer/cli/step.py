"""``openinfer step``: the debugger, in a terminal or with commands from a pipe."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openinfer.cli.options import (
    InputOptions,
    LoadState,
    ModelPath,
    NodeBudget,
    RunsOn,
    SizeOptions,
    StepCount,
    StrictOption,
)
from openinfer.cli.stepping import INTERRUPTED, step_count

if TYPE_CHECKING:
    from openinfer.check.bound import BoundVar
    from openinfer.ops import Shape
    from openinfer.sim.commands import Line
    from openinfer.sim.debugger import Debugger

_STYLES: dict[str, dict[str, Any]] = {
    "title": {"bold": True},
    "current": {"fg": typer.colors.GREEN, "bold": True},
    "stop": {"fg": typer.colors.YELLOW},
    "watch": {"fg": typer.colors.CYAN},
    "error": {"fg": typer.colors.RED},
}
_WHOLE = ("error", "text")
"""Styles of lines that are not truncated."""
_NARROWEST = 20


def step(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help="The graph: an .oig or .json file.")],
    model: ModelPath = None,
    size: SizeOptions = None,
    inputs: InputOptions = None,
    steps: StepCount = None,
    load_state: LoadState = None,
    node_budget: NodeBudget = None,
    device: RunsOn = "cpu",
    strict: StrictOption = False,
) -> None:
    """Step through a graph: next, step, continue, break, watch, print, edit; help lists all commands.

    Ctrl-C halts a run after the node that is being executed; a second one gives the step up, as if it had not begun.
    Commands can come from a pipe; they are shown with their answers, and the exit status is 1 if one of them failed.
    """
    if graph == "-":
        message = "standard input is where commands come from; name a file"
        raise typer.BadParameter(message, param_hint="GRAPH")
    # Imported here because the other commands need neither the simulator nor its op records.
    from openinfer.cli.inputs import prepared
    from openinfer.sim import TraceLevel
    from openinfer.sim.debugger import Debugger

    executor, source = prepared(
        graph, model, size, inputs, strict=strict, node_budget=node_budget, level=TraceLevel.BASIC, device=device
    )
    with source:
        debugger = Debugger(executor, source.values, steps=step_count(source, steps), values=_value, state=load_state)
        _show(debugger.start())
        if sys.stdin.isatty():
            _converse(debugger)
        else:
            _follow(debugger, sys.stdin)


# --- commands ---------------------------------------------------------------------------------------------------------


def _converse(debugger: "Debugger") -> None:
    """Prompt for commands until there are no more."""
    from openinfer.sim.debugger import PROMPT

    _lenient(sys.stdin)
    _edit_lines(debugger)
    while not debugger.is_over:
        try:
            line = input(PROMPT)
            with _interruptible(debugger.interrupt):
                _show(debugger.execute(line))
        except EOFError:
            typer.echo()
            return
        except KeyboardInterrupt:
            typer.echo("\n(quit or Ctrl-D leaves)")


def _follow(debugger: "Debugger", script: Iterable[str]) -> None:
    """Execute commands from a pipe, showing each before its answer."""
    from openinfer.sim.debugger import PROMPT

    _lenient(sys.stdin)
    is_interrupted = False

    def interrupt() -> None:
        nonlocal is_interrupted
        is_interrupted = True
        debugger.interrupt()

    for line in script:
        if line.lstrip().startswith("#"):
            continue
        typer.echo(PROMPT + line.strip())
        with _interruptible(interrupt):
            _show(debugger.execute(line))
        if is_interrupted:
            raise typer.Exit(INTERRUPTED)
        if debugger.is_over:
            break
    if debugger.failures:
        raise typer.Exit(1)


def _lenient(stream: object) -> None:
    """Replace bytes that are not text, which must not end a session."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="replace")


@contextmanager
def _interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call a function on Ctrl-C."""
    previous = signal.signal(signal.SIGINT, lambda _number, _frame: interrupt())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _edit_lines(debugger: "Debugger") -> None:
    """Line editing, history and completion, if Python was built with them."""
    try:
        import readline
    except ImportError:
        return

    def complete(text: str, state: int) -> str | None:
        found = debugger.completions(text, readline.get_line_buffer())
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" \t\n[],=()<>")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _value(variable: "BoundVar", text: str, shape: "Shape") -> Any:
    """A value for ``edit``, in one of the forms of ``--input``."""
    from openinfer.cli.feeds import parsed_inputs, supply
    from openinfer.sim.commands import RefusedError

    try:
        feed = parsed_inputs([f"{variable.name}={text}"])[variable.name]
    except typer.BadParameter as error:
        raise RefusedError(error.message) from error
    with ExitStack() as resources:
        found = supply(variable, feed, resources)
        return found.value(0, shape if found.shape is None else found.shape)


# --- output -----------------------------------------------------------------------------------------------------------


def _show(lines: "Iterable[Line]") -> None:
    is_terminal = sys.stdout.isatty()
    width = max(_NARROWEST, shutil.get_terminal_size().columns) if is_terminal else None
    is_coloured = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in lines:
        text = line.text if line.style in _WHOLE else _cut(line.text, width)
        style = _STYLES.get(line.style) if is_coloured else None
        typer.echo(_encodable(typer.style(text, **style) if style else text))


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[: width - 3]}..."


def _encodable(text: str) -> str:
    """A text in which characters that the output cannot encode are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
