"""Random programs without end: ``python -m tests.differential.program_fuzz --count 20000 --seed 1``.

As ``tests.differential.fuzz``, for whole programs: of the first that fails in a batch only what matters is shown, and
kept in ``build/fuzz``, with the inputs of its steps.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential.batches import ON, Failure, Setting
from tests.differential.campaign import Campaign, Job
from tests.differential.programs.batches import BATCH, judge_batch, judge_programs, setting
from tests.differential.programs.constructs import CONSTRUCTS, constructs
from tests.differential.programs.reducing import reduced
from tests.differential.programs.structures import program_of
from tests.differential.programs.tree import Program

COUNTED = 300


def judge(job: Job, folder: Path) -> Iterator[Failure]:
    """Judge the programs of a job; the first that fails is made smaller, unless failures are only counted."""
    how = ON[job.on] if job.on else setting(job.seeds[0] // BATCH, sanitized=job.is_sanitized)
    for place, failure in enumerate(judge_batch(job.seeds, how, folder)):
        yield failure if place or job.is_counted else smaller(failure, how)


def smaller(failure: Failure, how: Setting) -> Failure:
    """A failure with a program that has less in it and fails the same way."""
    found = [failure]

    def fails(program: Program) -> bool:
        with TemporaryDirectory() as folder:
            own = [one for one in judge_programs([program], how, Path(folder)) if one.kind == failure.kind]
        found.extend(own)
        return bool(own)

    program = reduced(program_of(failure.seed, has_heap=how.has_heap), fails)
    steps = "".join(
        f"// step {place} {step.before}: { {name: value.tolist() for name, value in step.inputs.items()} }\n"
        for place, step in enumerate(program.steps)
    )
    text = f"{program}{steps}"
    last = [one for one in found if one.text == str(program)]
    message = last[-1].message if last else failure.message
    return replace(failure, text=text, message=f"{message}\n{how.device}, {how.toolchain}\n{text}")


def covered(seeds: Sequence[int]) -> str:
    """How many of some programs have each construct."""
    counts: Counter[str] = Counter()
    for seed in seeds[:COUNTED]:
        how = setting(seed // BATCH)
        counts.update(constructs(program_of(seed, has_heap=how.has_heap)))
    named = ", ".join(f"{name} {counts[name]}" for name in CONSTRUCTS)
    return f"of {len(seeds[:COUNTED])} programs have: {named}"


PROGRAMS = Campaign("program", "tests.differential.program_fuzz", BATCH, judge, covered)

if __name__ == "__main__":
    sys.exit(PROGRAMS.main(__doc__))
