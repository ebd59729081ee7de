"""``openinfer lsp`` and ``openinfer dap``: what editors start, on standard input and output."""

from openinfer.errors import Code, Diagnostic, MissingExtraError


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
