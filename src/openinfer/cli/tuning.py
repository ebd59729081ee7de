"""``--tune`` and related options: tiles chosen by measuring, and files of measurements."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openinfer.cli.stepping import progress_bar
from openinfer.errors import Code, Diagnostic, ExecutionError

if TYPE_CHECKING:
    from openinfer.synth.targets.target import Passes
    from openinfer.synth.tuning.records import Record

TuneOption = Annotated[
    bool, typer.Option("--tune", help="Choose the tiles of products by measuring on this machine, where none is known.")
]
TuneSeconds = Annotated[
    float,
    typer.Option("--tune-seconds", metavar="S", min=0.0, max=3600.0, help="With --tune: seconds for each product."),
]
TunedFile = Annotated[
    str | None,
    typer.Option(
        "--tuned",
        metavar="FILE.json",
        help="Choices that were measured; with --tune, new ones are written to it (else to the cache of builds).",
    ),
]
NoTuned = Annotated[
    bool, typer.Option("--no-tuned", help="Choose all tiles by rule: what was measured does not count.")
]


@dataclass(frozen=True)
class Tuning:
    """The options: whether to measure, for how long, and the file with choices."""

    measures: bool
    seconds: float
    file: str | None
    is_off: bool

    @contextmanager
    def passes(self, passes: "Passes") -> "Iterator[Passes]":
        """The passes that the options ask for. Measured choices are written at once, product by product."""
        from openinfer.synth.tuning.records import Tuned

        if self.is_off and (self.measures or self.file is not None):
            message = "cannot be combined with --tune or --tuned"
            raise typer.BadParameter(message, param_hint="--no-tuned")
        if self.is_off:
            yield replace(passes, tuned=Tuned())
        elif not self.measures:
            yield passes if self.file is None else replace(passes, tuned=Tuned.load(self.file))
        else:
            with self._measuring(passes) as found:
                yield found

    @contextmanager
    def _measuring(self, passes: "Passes") -> "Iterator[Passes]":
        from openinfer.synth.tuning.records import Tuned
        from openinfer.synth.tuning.tune import Tune

        path = self._path()
        known = Tuned.load(path) if os.path.lexists(path) else Tuned()
        measured: list[Record] = []
        with progress_bar("measuring tiles") as update:

            def note(done: int, total: int, record: "Record") -> None:
                nonlocal known
                known = known.including(record)
                known.save(path)
                measured.append(record)
                update(done, total)

            yield replace(passes, tuned=known, tune=Tune(self.seconds, after_product=note))
        typer.echo(_found(measured, path), err=True)

    def _path(self) -> Path:
        from openinfer.synth.run.cache import own_cache

        if self.file is not None:
            return Path(self.file)
        try:
            return own_cache() / "tuned.json"
        except OSError as error:
            message = f"what is measured cannot be kept in the cache: {error.strerror or error}"
            advice = "name a file to keep it in: --tuned FILE.json"
            raise ExecutionError(Diagnostic(Code.WRITE_FAILED, message, None, advice)) from error


def _found(measured: "Sequence[Record]", path: Path) -> str:
    """A summary of the measurements, and how to use them again."""
    if not measured:
        return "tiles: nothing to measure; products are small, dynamic, or known"
    better = sum(record.choice is not None for record in measured)
    count = f"{len(measured)} product{'s' * (len(measured) > 1)} measured, {better} faster than by rule"
    return f"tiles: {count}; --tuned {path} takes them from there"
