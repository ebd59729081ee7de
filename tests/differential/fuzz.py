"""Random graphs without end: ``python -m tests.differential.fuzz --count 10000 --seed 1``.

Stops after the batch with the first failure, unless told to ``--keep-going``, and prints the smallest seed that fails;
``--seed N --count 1`` runs it again by itself. ``--sanitize`` compiles with ASan and UBSan (the process starts itself
again with their runtime).
Graphs that fail are kept in ``build/fuzz``.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.differential.batches import BATCH, Failure, judge_batch, setting
from tests.differential.uses import PAIRS, hand

KEPT = Path("build/fuzz")
PRELOADED = ("libasan.so", "libubsan.so")


@dataclass(frozen=True)
class Job:
    """Seeds of one batch: they have the same setting."""

    seeds: tuple[int, ...]
    is_sanitized: bool


def jobs(first: int, count: int, *, is_sanitized: bool) -> Iterator[Job]:
    """Seeds in batches whose borders do not depend on where one begins, so that a seed always means the same."""
    start = first
    while start < first + count:
        end = min(first + count, (start // BATCH + 1) * BATCH)
        yield Job(tuple(range(start, end)), is_sanitized)
        start = end


def run(job: Job) -> list[Failure]:
    """Judge the graphs of a job; those that fail together with others also say so by themselves."""
    how = setting(job.seeds[0] // BATCH, sanitized=job.is_sanitized)
    with TemporaryDirectory() as folder:
        try:
            return list(judge_batch(job.seeds, how, Path(folder)))
        except AssertionError as error:
            if len(job.seeds) == 1:
                return [Failure(job.seeds[0], str(error), "")]
    return [failure for seed in job.seeds for failure in run(Job((seed,), job.is_sanitized))]


def main() -> int:
    """Run, print what was covered, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="graphs to judge")
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sanitize", action="store_true", help="with ASan and UBSan")
    parser.add_argument("--keep-going", action="store_true", help="judge all graphs, even after a failure")
    options = parser.parse_args()
    if options.sanitize and not os.environ.get("LD_PRELOAD"):
        return sanitized(sys.argv[1:]).returncode
    start, done, failed = perf_counter(), 0, 0
    covered: set[tuple[str, str]] = set()
    every = list(jobs(options.seed, options.count, is_sanitized=options.sanitize))
    for job, failures in _results(every, options.processes):
        done += len(job.seeds)
        covered |= {pair for seed in job.seeds for pair in hand(seed)}
        _progress(done, options.count, perf_counter() - start)
        if failures:
            print(_account(failures), flush=True)
            failed += len({failure.seed for failure in failures})
            if not options.keep_going:
                return 1
    print(f"\n{done - failed} of {done} graphs agree in {perf_counter() - start:.0f} s")
    print(f"{len(covered)} of {len(PAIRS)} pairs of op and dtype, {len({name for name, _ in covered})} ops")
    return 1 if failed else 0


def _results(every: Sequence[Job], processes: int) -> Iterator[tuple[Job, list[Failure]]]:
    if processes == 1 or len(every) == 1:
        yield from ((job, run(job)) for job in every)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield from zip(every, pool.map(run, every), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _progress(done: int, count: int, seconds: float) -> None:
    rate = f"{done:,}/{count:,} graphs, {seconds:.0f} s"
    if sys.stdout.isatty():
        print(f"\r{rate}", end="", flush=True)
    elif done % 200 < BATCH:
        print(rate, flush=True)


def _account(failures: Sequence[Failure]) -> str:
    KEPT.mkdir(parents=True, exist_ok=True)
    first = min(failures, key=lambda failure: failure.seed)
    kept = KEPT / f"graph-{first.seed}.oig"
    kept.write_text(first.text)
    return (
        f"\nFAILED seed {first.seed}: {first.message[:3000]}\n"
        f"kept in {kept}; again: python -m tests.differential.fuzz --seed {first.seed} --count 1"
    )


def sanitized(arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """This module in a process that has the runtime of the sanitizers in front of everything else."""
    found = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in PRELOADED]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(found),
        # Python keeps memory until its end, and that is no leak of ours.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    command = [sys.executable, "-m", "tests.differential.fuzz", *arguments, "--processes", "1"]
    return subprocess.run(command, env=environment, check=False)


if __name__ == "__main__":
    sys.exit(main())
