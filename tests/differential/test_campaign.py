"""Batches in processes of their own: one that never ends, or ends its process, is a failure of its seeds."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from tests.differential.batches import Failure
from tests.differential.campaign import Job, apart


def never(job: Job, folder: Path) -> Iterator[Failure]:
    Event().wait()
    return iter(())


def ended(job: Job, folder: Path) -> Iterator[Failure]:
    os._exit(3)


def odd(job: Job, folder: Path) -> Iterator[Failure]:
    return (Failure(seed, "odd", "") for seed in job.seeds if seed % 2)


def test_a_batch_that_gives_no_answer_is_a_failure_of_all_its_seeds() -> None:
    found = apart(never, Job((4, 5)), 0.1)
    assert [(one.seed, one.message) for one in found] == [
        (4, "with its batch: no answer within 0 s"),
        (5, "with its batch: no answer within 0 s"),
    ]
    (one,) = apart(ended, Job((7,)))
    assert one.message == "with its batch: the process ended without an answer"
    assert [one.seed for one in apart(odd, Job((1, 2, 3)))] == [1, 3]
