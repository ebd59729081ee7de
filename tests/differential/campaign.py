"""What all fuzzers of generated code share: seeds in batches, processes, progress, sanitizers, accounts of failures."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.differential.batches import Failure
from tests.synth.cuda.emulator import on_emulator
from tests.synth.vulkan.on_device import on_lavapipe

KEPT = Path("build/fuzz")
PRELOADED = ("libasan.so", "libubsan.so")
LONGEST = 240.0
"""Seconds that a batch may take on a GPU, where a kernel may never end."""
BATCHES_ON_GPU = 2
"""Batches that make one there: each is a process, and what all programs share is compiled once in it."""


@dataclass(frozen=True)
class Job:
    """Seeds of one batch: they have the same setting."""

    seeds: tuple[int, ...]
    is_sanitized: bool = False
    on: str = ""
    """The interface of the device that they run on; nothing for this machine's processor."""
    is_counted: bool = False
    """Whether failures are only counted, and not made smaller."""


@dataclass(frozen=True)
class Tally:
    """What became of a run: the seeds that were judged, and those that failed."""

    seeds: tuple[int, ...]
    failed: Mapping[int, str]
    """What is wrong with those that failed, by seed."""
    seconds: float

    @property
    def done(self) -> int:
        return len(self.seeds)

    @property
    def right(self) -> int:
        return self.done - len(self.failed)


Judge = Callable[[Job, Path], Iterator[Failure]]


@dataclass(frozen=True)
class Campaign:
    """Something that is made from seeds and judged in batches; ``module`` is run with ``python -m``."""

    what: str
    module: str
    batch: int
    judge: Judge
    covered: Callable[[Sequence[int]], str]
    """What a run has covered, in words."""

    def jobs(self, first: int, count: int, kind: Job | None = None) -> Iterator[Job]:
        """Seeds in batches whose borders do not depend on where one begins, so that a seed always means the same."""
        size = self.batch * (BATCHES_ON_GPU if kind is not None and kind.on == "cuda" else 1)
        start = first
        while start < first + count:
            end = min(first + count, (start // size + 1) * size)
            yield replace(kind or Job(()), seeds=tuple(range(start, end)))
            start = end

    def main(self, description: str | None) -> int:
        """Run, print what was covered, and return 1 if anything failed."""
        options = self.options(description)
        if options.sanitize and not os.environ.get("LD_PRELOAD"):
            return self.sanitized(sys.argv[1:]).returncode
        os.environ.update(on_lavapipe() if options.vulkan else on_emulator() if options.emulated else {})
        found = self.judged(options)
        if found.failed and not options.keep_going:
            return 1
        print(f"\n{found.right} of {found.done} {self.what}s agree in {found.seconds:.0f} s")
        print(self.covered(found.seeds))
        return 1 if found.failed else 0

    def judged(self, options: argparse.Namespace) -> Tally:
        """Judge what the options say, and print progress and failures."""
        start = perf_counter()
        seeds: list[int] = []
        failed: dict[int, str] = {}
        on = "vulkan" if options.vulkan else "cuda" if options.cuda else ""
        kind = Job((), options.sanitize, on, options.keep_going)
        every = list(self.jobs(options.seed, options.count, kind))
        end = start + options.seconds if options.seconds else inf
        for job, failures in self._results(every, options.processes, end):
            if perf_counter() > end:
                break
            seeds += job.seeds
            self._progress(len(seeds), options.count, perf_counter() - start)
            failed |= {failure.seed: failure.message for failure in failures}
            if failures:
                print(self._account(failures), flush=True)
                if not options.keep_going:
                    break
        return Tally(tuple(sorted(seeds)), failed, perf_counter() - start)

    def options(self, description: str | None, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """What is asked for by the words of the command, or by these."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--count", type=int, default=10_000, help=f"{self.what}s to judge")
        parser.add_argument("--seed", type=int, default=1, help="the first of them")
        parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
        parser.add_argument("--seconds", type=float, help=f"end after so many, with the {self.what}s judged so far")
        parser.add_argument("--sanitize", action="store_true", help="with ASan and UBSan")
        parser.add_argument("--vulkan", action="store_true", help="on a Vulkan device, as lavapipe is")
        parser.add_argument("--cuda", action="store_true", help="on a GPU with CUDA")
        parser.add_argument("--emulated", action="store_true", help="with --cuda: by an emulator, where there is none")
        parser.add_argument("--keep-going", action="store_true", help=f"judge all {self.what}s, even after a failure")
        return parser.parse_args(arguments)

    def _results(self, every: Sequence[Job], processes: int, end: float) -> Iterator[tuple[Job, list[Failure]]]:
        if processes == 1 or len(every) == 1:
            yield from ((job, run(self.judge, job)) for job in every)
        elif any(job.on == "cuda" for job in every):
            yield from on_gpu(self.judge, every, processes, end)
        else:
            with ProcessPoolExecutor(processes) as pool:
                try:
                    yield from zip(every, pool.map(partial(run, self.judge), every), strict=True)
                finally:
                    pool.shutdown(cancel_futures=True)

    def _progress(self, done: int, count: int, seconds: float) -> None:
        rate = f"{done:,}/{count:,} {self.what}s, {seconds:.0f} s"
        if sys.stdout.isatty():
            print(f"\r{rate}", end="", flush=True)
        elif done % 200 < self.batch:
            print(rate, flush=True)

    def _account(self, failures: Sequence[Failure]) -> str:
        KEPT.mkdir(parents=True, exist_ok=True)
        first = min(failures, key=lambda failure: failure.seed)
        kept = KEPT / f"{self.what}-{first.seed}.oig"
        kept.write_text(first.text)
        return (
            f"\nFAILED seed {first.seed}: {first.message[:3000]}\n"
            f"kept in {kept}; again: python -m {self.module} --seed {first.seed} --count 1"
        )

    def sanitized(self, arguments: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
        """The module in a process that has the runtime of the sanitizers in front of everything else."""
        found = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in PRELOADED]
        environment = {
            **os.environ,
            "LD_PRELOAD": " ".join(found),
            # Python keeps memory until its end, and that is no leak of ours.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        }
        command = [sys.executable, "-m", self.module, *arguments, "--processes", "1"]
        return subprocess.run(command, env=environment, check=False)


def run(judge: Judge, job: Job) -> list[Failure]:
    """Judge the seeds of a job; those that fail together with others also say so by themselves."""
    with TemporaryDirectory() as folder:
        try:
            return list(judge(job, Path(folder)))
        except AssertionError as error:
            if len(job.seeds) == 1:
                return [Failure(job.seeds[0], str(error), "")]
    return [failure for seed in job.seeds for failure in run(judge, replace(job, seeds=(seed,)))]


def on_gpu(judge: Judge, every: Sequence[Job], processes: int, end: float) -> Iterator[tuple[Job, list[Failure]]]:
    """Jobs in processes of their own, in the order in which they end; those that still run at a time are given up."""

    def judged(job: Job) -> list[Failure] | None:
        left = end - perf_counter()
        return apart(judge, job, min(LONGEST, left)) if left > 0 else None

    with ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(judged, job): job for job in every}
        try:
            for one in as_completed(running):
                found = one.result()
                if found is not None:
                    yield running[one], found
        finally:
            pool.shutdown(cancel_futures=True)


def apart(judge: Judge, job: Job, longest: float = LONGEST) -> list[Failure]:
    """The same in a process of its own: a kernel that fails loses the device for its process, and one may never end."""
    ways = get_context("forkserver")  # a process that has used CUDA cannot hand it on by a fork
    here, there = ways.Pipe(duplex=False)
    process = ways.Process(target=_tell, args=(judge, job, there))
    process.start()
    there.close()
    try:
        found = here.recv() if here.poll(longest) else f"no answer within {longest:.0f} s"
    except EOFError:
        found = "the process ended without an answer"
    finally:
        process.kill()
        process.join()
        here.close()
    return [Failure(seed, f"with its batch: {found}", "") for seed in job.seeds] if isinstance(found, str) else found


def _tell(judge: Judge, job: Job, there: Connection) -> None:
    there.send(run(judge, job))
