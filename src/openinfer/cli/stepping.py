"""Runs several steps for a command: how many, with a progress bar, and what Ctrl-C leaves behind."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import typer

from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError, counted

if TYPE_CHECKING:
    from openinfer.cli.inputs import InputSource
    from openinfer.sim import Executor

INTERRUPTED = 130
"""The exit status that shells give a command ended by Ctrl-C."""


@dataclass
class Progress:
    """How far a command has come, for the message when it is interrupted."""

    steps: int = 0
    seconds: list[float] = field(default_factory=list)
    """The time of each finished step."""
    written: list[str] = field(default_factory=list)
    is_inside_step: bool = False
    """Whether a step has begun and not ended."""

    def __str__(self) -> str:
        done = f"after {len(self.seconds)} of {counted(self.steps, 'step')}" if self.steps else "before the first step"
        return f"{done}; written: {', '.join(self.written) or 'nothing'}"


@contextmanager
def guarded(progress: Progress) -> Iterator[None]:
    """Ctrl-C ends the command with a message and its own exit status; a lack of memory is an ordinary error."""
    try:
        yield
    except KeyboardInterrupt as error:
        typer.echo(f"interrupted {progress}", err=True)
        raise typer.Exit(INTERRUPTED) from error
    except MemoryError as error:
        message = f"there is not enough memory to go on {progress}"
        raise ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, message)) from error


@contextmanager
def errors_as_json() -> Iterator[None]:
    """Print errors to standard output as facts for a program; the exit status is still 1."""
    try:
        yield
    except OpenInferError as error:
        facts = {"ok": False, "diagnostics": [diagnostic.facts() for diagnostic in error.diagnostics]}
        typer.echo(json.dumps(facts, indent=2))
        raise typer.Exit(1) from error


def step_count(source: "InputSource", wanted: int | None) -> int:
    """The number of steps to run: as requested, else one per slice of the inputs, else one."""
    available = source.steps
    if available is None:
        return 1 if wanted is None else wanted
    if available == 0 or (wanted or 0) > available:
        message = f"there are input values for {counted(available, 'step')}, not for {wanted or 'one'}"
        raise ExecutionError(Diagnostic(Code.NOT_INSERTED, message))
    return available if wanted is None else wanted


def run_steps(
    executor: "Executor", source: "InputSource", progress: Progress, after_step: Callable[[int], None]
) -> None:
    """Run ``progress.steps`` steps, calling a function after each with its number, counted from 0."""
    with step_bar(progress.steps) as advance:
        for number in range(progress.steps):
            executor.insert(source.values(number))
            progress.is_inside_step = True
            start = perf_counter()
            executor.run_step()
            seconds = perf_counter() - start
            progress.is_inside_step = False
            after_step(number)
            progress.seconds.append(seconds)
            advance()


@contextmanager
def step_bar(total: int) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each step; draws on standard error if that is a terminal."""
    with progress_bar("steps") as update:
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            update(done, total)

        update(done, total)
        yield advance


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields a function to call with the amount done and the total; draws on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
