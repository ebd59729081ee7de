"""Random programs with calls, without end: ``python -m tests.differential.call_fuzz --count 2000 --seed 1``.

The programs of ``tests.differential.program_fuzz``, in which statements have become blocks with parameters.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.differential.batches import Failure, Setting
from tests.differential.campaign import Campaign, Job
from tests.differential.programs.batches import BATCH, judge_programs, setting
from tests.differential.programs.outlining import called_of
from tests.differential.programs.reducing import reduced
from tests.differential.programs.tree import Call, Program, walk

COUNTED = 100


def judge_calls(seeds: Sequence[int], how: Setting, folder: Path) -> Iterator[Failure]:
    """Judge the programs with calls of some seeds."""
    return judge_programs([called_of(seed, has_heap=how.has_heap) for seed in seeds], how, folder)


def judge(job: Job, folder: Path) -> Iterator[Failure]:
    """Judge the programs of a job; the first that fails is made smaller."""
    how = setting(job.seeds[0] // BATCH, sanitized=job.is_sanitized)
    for place, failure in enumerate(judge_calls(job.seeds, how, folder)):
        yield failure if place else smaller(failure, how)


def smaller(failure: Failure, how: Setting) -> Failure:
    """A failure with a program that has less in it and fails the same way."""

    def fails(program: Program) -> bool:
        with TemporaryDirectory() as folder:
            return any(one.kind == failure.kind for one in judge_programs([program], how, Path(folder)))

    program = reduced(called_of(failure.seed, has_heap=how.has_heap), fails)
    return replace(failure, text=str(program), message=f"{failure.message}\n{how.device}, {how.toolchain}\n{program}")


def covered(seeds: Sequence[int]) -> str:
    """How many calls some programs have."""
    programs = [called_of(seed) for seed in seeds[:COUNTED]]
    calls = [one for program in programs for body in program.blocks.values() for one in walk(body)]
    return f"{len(programs)} programs have {sum(isinstance(one, Call) for one in calls)} calls"


CALLS = Campaign("call", "tests.differential.call_fuzz", BATCH, judge, covered)

if __name__ == "__main__":
    sys.exit(CALLS.main(__doc__))
