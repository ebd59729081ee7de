"""``--stop-after`` and ``--print-after``: inspect synthesis after a step of the pipeline."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openinfer.synth.pipeline import Stage, StageResult
    from openinfer.synth.plan import Plan

StopAfter = Annotated[
    str | None,
    typer.Option(
        "--stop-after",
        metavar="STEP",
        help="Show what a step of the pipeline made and stop: bind, decompose, simplify, fuse, schedule, place, emit.",
    ),
]
PrintAfter = Annotated[
    list[str] | None,
    typer.Option("--print-after", metavar="STEP", help="Show what a step made and go on (repeatable); or 'all'."),
]


@dataclass
class Looking:
    """Where to inspect the pipeline, and what was seen."""

    stop: "Stage | None"
    wanted: frozenset["Stage"]
    seen: dict[str, str] = field(default_factory=dict)

    @classmethod
    def called(cls, stop: str | None, shown: Iterable[str] | None) -> "Looking":
        """Parse options to steps of the pipeline; one that does not exist is an error that lists them."""
        from openinfer.synth.pipeline import Stage, stage_called

        names = list(shown or ())
        wanted = set(Stage) if "all" in names else {stage_called(name) for name in names}
        last = stage_called(stop) if stop is not None else None
        return cls(last, frozenset(wanted | ({last} if last is not None else set())))

    def through(self, pipeline: "Iterable[StageResult]") -> "Plan | None":
        """Run the pipeline as far as wanted, and return the plan if it gets that far."""
        for reached in pipeline:
            if reached.stage in self.wanted:
                self.seen[reached.stage.value] = reached.text()
            if reached.stage is self.stop or reached.plan is not None:
                return reached.plan
        return None

    def refuse(self, others: Mapping[str, bool]) -> None:
        """Reject options that need the steps after the stop."""
        needless = [name for name, is_given in others.items() if is_given]
        if self.stop is not None and self.stop != "emit" and needless:
            message = f"nothing is left to do for {', '.join(needless)} after {self.stop.value!r}"
            raise typer.BadParameter(message, param_hint="--stop-after")

    def text(self) -> str:
        """What was seen, as text."""
        return "\n\n".join(f"--- after {stage} ---\n{text.rstrip()}" for stage, text in self.seen.items())
