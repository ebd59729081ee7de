"""Batches in processes of their own: one that never ends, or ends its process, is a failure of its seeds."""

import os
from collections.abc import Iterator
from math import inf
from pathlib import Path
from threading import Event

from tests.differential.batches import Failure
from tests.differential.campaign import Campaign, Job, apart, on_gpu


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


def test_on_a_gpu_jobs_that_cannot_begin_in_time_are_not_counted() -> None:
    jobs = [*Campaign("seed", "nothing", 1, odd, repr).jobs(0, 4, Job((), on="cuda"))]
    assert [job.seeds for job in jobs] == [(0, 1), (2, 3)]
    found = {job.seeds: [one.seed for one in failures] for job, failures in on_gpu(odd, jobs, 2, inf)}
    assert found == {(0, 1): [1], (2, 3): [3]}
    assert [*on_gpu(odd, jobs, 2, -inf)] == []
