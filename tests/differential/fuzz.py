"""Random graphs without end: ``python -m tests.differential.fuzz --count 10000 --seed 1``.

Stops after the batch with the first failure, unless told to ``--keep-going``, and prints the smallest seed that fails;
``--seed N --count 1`` runs it again by itself. ``--sanitize`` compiles with ASan and UBSan (the process starts itself
again with their runtime). ``--vulkan`` runs them on a Vulkan device, ``--cuda`` on a GPU with CUDA
(``--emulated``: without one, by the emulator of the tests).
Graphs that fail are kept in ``build/fuzz``.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.differential.batches import BATCH, ON, Failure, judge_batch, setting
from tests.differential.campaign import Campaign, Job
from tests.differential.uses import PAIRS, hand


def judge(job: Job, folder: Path) -> Iterator[Failure]:
    """Judge the graphs of a job."""
    how = ON[job.on] if job.on else setting(job.seeds[0] // BATCH, sanitized=job.is_sanitized)
    return judge_batch(job.seeds, how, folder)


def covered(seeds: Sequence[int]) -> str:
    """How much of all ops and dtypes the graphs of some seeds have."""
    found = {pair for seed in seeds for pair in hand(seed)}
    return f"{len(found)} of {len(PAIRS)} pairs of op and dtype, {len({name for name, _ in found})} ops"


GRAPHS = Campaign("graph", "tests.differential.fuzz", BATCH, judge, covered)

if __name__ == "__main__":
    sys.exit(GRAPHS.main(__doc__))
