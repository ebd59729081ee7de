"""``openinfer lsp`` and ``openinfer dap``: the servers that editors start, on standard input and output."""

from typing import TYPE_CHECKING

from openinfer.errors import Code, Diagnostic, MissingExtraError

if TYPE_CHECKING:
    from openinfer.dap.adapter import LaunchRequest
    from openinfer.dap.session import DebugSession


def lsp() -> None:
    """Answer an editor about graphs (Language Server Protocol), on standard input and output.

    Editors start it: see docs/editor.md for VS Code, Neovim and Helix.
    """
    try:
        import pygls  # noqa: F401  (only whether it is there)
    except ImportError as error:
        message = "the language server needs pygls, which is not installed"
        help_line = 'pip install "openinfer[lsp]"'
        raise MissingExtraError(Diagnostic(Code.MISSING_EXTRA, message, None, help_line)) from error
    from openinfer.lsp.server import serve

    serve()


def dap() -> None:
    """Debug a graph from an editor (Debug Adapter Protocol), on standard input and output.

    Editors start it: see docs/editor.md. For the debugger in a terminal: openinfer step.
    """
    import os
    import sys

    # Imported here because the other commands need neither the simulator nor the parser.
    from openinfer.dap.adapter import Adapter
    from openinfer.dap.channel import Channel

    sink = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stray prints must not come between messages
    with sink:
        Adapter(Channel(sys.stdin.buffer, sink), _session).serve()


def _session(asked: "LaunchRequest") -> "DebugSession":
    """The session for a launch request, completed from the graph's project."""
    import typer

    from openinfer.cli.inputs import prepared
    from openinfer.cli.stepping import step_count
    from openinfer.dap.session import DebugSession
    from openinfer.lang.source import is_json, read_source
    from openinfer.language_service import surroundings_of
    from openinfer.sim import TraceLevel
    from openinfer.sim.commands import RefusedError

    text = "" if is_json(asked.graph) else read_source(asked.graph)
    given = surroundings_of(asked.graph, text).required()
    sizes = {**given.sizes, **asked.sizes}
    inputs = {**given.inputs, **asked.inputs}
    try:
        executor, source = prepared(
            asked.graph,
            asked.model or given.model,
            [f"{name}={value}" for name, value in sizes.items()],
            [f"{name}={value}" for name, value in inputs.items()],
            level=TraceLevel.BASIC,
        )
    except typer.BadParameter as error:
        raise RefusedError(error.message) from error
    steps = step_count(source, asked.steps or given.steps)
    return DebugSession(executor, source.values, steps, asked.graph, asked.state)
