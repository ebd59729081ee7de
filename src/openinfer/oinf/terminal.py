"""What depends on where output goes: progress bars appear on a terminal only, and a pipe may be closed early."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from openinfer.errors import Code, Diagnostic


def close_quietly() -> None:
    """Point standard output at the null device, so that the interpreter's final flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output_failure(error: OSError) -> Diagnostic:
    """The diagnostic for standard output that cannot be written: full, or gone. Other errors are raised again."""
    if error.filename is not None:
        raise error
    close_quietly()
    return Diagnostic(Code.WRITE_FAILED, f"cannot write to standard output: {error.strerror or error}")


def open_closed_streams() -> None:
    """Open closed standard streams on the null device; otherwise the next file opened would take their place."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with each amount done; draws on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount: progress.advance(task, amount)
