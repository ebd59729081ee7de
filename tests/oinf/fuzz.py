"""The long version of the mutant tests: ``python -m tests.oinf.fuzz --count 200000 --seed N``.

Files that fail are kept in ``build/fuzz``. The work is done in a child process, so that a file that kills the reader
with a signal is found and kept too.
"""

import argparse
import multiprocessing
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from tests.oinf.corpus import seeds
from tests.oinf.mutants import Mutant, mutant, truncations
from tests.oinf.oracle import Figures, HangError, Judge, scratch_folder

KEPT = Path("build/fuzz")
MOST_FAILURES = 20
PROGRESS_EVERY = 2000


def main() -> int:
    """Run, print the figures, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000, help="mutants to judge, besides all truncations")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with scratch_folder() as folder:
        worker = multiprocessing.get_context("fork").Process(
            target=_work, args=(options.count, options.seed, folder), daemon=True
        )
        worker.start()
        worker.join()
        if worker.exitcode is not None and worker.exitcode < 0:
            KEPT.mkdir(parents=True, exist_ok=True)
            kept = KEPT / f"signal{-worker.exitcode}-{options.seed}.oinf"
            shutil.copyfile(folder / "mutant.oinf", kept)
            print(f"\nkilled by signal {-worker.exitcode}; see {kept}")
        return 0 if worker.exitcode == 0 else 1


def _work(count: int, seed: int, folder: Path) -> None:
    start = perf_counter()
    failures = 0
    with Judge(folder) as judge:
        for number, made in enumerate(_everything(count, seed, judge.figures)):
            failures += not _passes(judge, made, number)
            if failures >= MOST_FAILURES:
                break
            if number % PROGRESS_EVERY == 0:
                _progress(judge.figures, count, failures)
    seconds = perf_counter() - start
    judged = judge.figures.mutants + judge.figures.truncations
    print(file=sys.stderr)
    print(*judge.figures.table(), sep="\n")
    print(f"time             {seconds:.0f} s ({1000 * seconds / max(1, judged):.2f} s per 1000)")
    print(f"failures         {failures}" + (f", kept in {KEPT}" if failures else ""))
    sys.exit(1 if failures else 0)


def _everything(count: int, seed: int, figures: Figures) -> Iterator[Mutant]:
    for name in seeds():
        for made in truncations(name):
            figures.truncations += 1
            yield made
    for index in range(count):
        figures.mutants += 1
        yield mutant(seed, index)


def _passes(judge: Judge, made: Mutant, number: int) -> bool:
    try:
        judge.judge(made, copy=number % 4 == 0)
    except (Exception, HangError):  # noqa: BLE001  (whatever a mutant causes is what we are looking for)
        _keep(made, number)
        return False
    return True


def _keep(made: Mutant, number: int) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{number}.oinf").write_bytes(made.data)
    (KEPT / f"{number}.txt").write_text(traceback.format_exc())
    print(f"\nFAILED {made.label}\n{traceback.format_exc(limit=-2)}", file=sys.stderr)


def _progress(figures: Figures, count: int, failures: int) -> None:
    line = f"{figures.truncations} truncations, {figures.mutants}/{count} mutants, {failures} failures"
    print(f"\r{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
