"""The long version of the mutant tests: ``python -m tests.lang.fuzz --count 500000 --seed N``.

Texts that fail are kept in ``build/fuzz``.
"""

import argparse
import sys
import traceback
from pathlib import Path
from time import perf_counter

from tests.lang.mutants import Mutant, mutant
from tests.lang.oracle import Figures, judge

KEPT = Path("build/fuzz")
MOST_FAILURES = 20
PROGRESS_EVERY = 1000


def main() -> int:
    """Run, print the figures, and return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500_000, help="mutants to judge")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start = perf_counter()
    figures = Figures()
    failures = 0
    for index in range(options.count):
        failures += not _passes(mutant(options.seed, index), figures, f"{options.seed}-{index}")
        if failures >= MOST_FAILURES:
            break
        if index % PROGRESS_EVERY == 0 and sys.stdout.isatty():
            print(f"\r{index:,}/{options.count:,} mutants, {failures} failures", end="", flush=True)
    seconds = perf_counter() - start
    if sys.stdout.isatty():
        print()
    print(*figures.table(), sep="\n")
    print(f"time             {seconds:>9.0f} s ({1000 * seconds / max(1, figures.texts):.2f} s per 1000)")
    print(f"failures         {failures:>9}" + (f", kept in {KEPT}" if failures else ""))
    return 1 if failures else 0


def _passes(made: Mutant, figures: Figures, name: str) -> bool:
    try:
        judge(made.text, figures, made.label)
    except Exception:  # noqa: BLE001  (whatever a mutant causes is what we are looking for)
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{name}.oig").write_bytes(made.text.encode("utf-8", "surrogatepass"))
        (KEPT / f"{name}.txt").write_text(f"{made.label}\n{traceback.format_exc()}", encoding="utf-8", errors="replace")
        print(f"\nFAILED {made.label}\n{traceback.format_exc(limit=-2)}"[:2000], file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
