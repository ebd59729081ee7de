"""What depends on where output goes: progress bars show on a terminal only; a pipe may be closed early."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def close_quietly() -> None:
    """After the reader of our output has gone away: let the interpreter's own flush find nothing to complain about."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to be told how much more is done; draws on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount: progress.advance(task, amount)
