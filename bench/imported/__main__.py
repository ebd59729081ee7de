"""``make bench-import``: the table of real models in ``docs/importing.md``.

Packages are downloaded, each model is imported and run in the simulator and in generated C beside ONNX Runtime on one
thread. A model at a time, in a process of its own with a limit; what is done is kept in ``build/models/results``, so
that the command can be interrupted and goes on where it was.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.imported.measure import Result, measured
from bench.imported.models import MODELS, RealModel

DOCUMENT = Path("docs/importing.md")
BEGIN, END = "<!-- make bench-import -->\n", "<!-- end -->\n"
HEAD = ("model", "nodes", "lines", "loops", "import, s", "steps", "simulator", "C", "C, ms", "ONNX Runtime, ms")


def result_path(folder: Path, model: RealModel) -> Path:
    """Where the result of a model is kept."""
    return folder / "results" / f"{model.name}.json"


def kept(folder: Path, model: RealModel) -> Result | None:
    """The result of an earlier run."""
    path = result_path(folder, model)
    return Result(**json.loads(path.read_text())) if path.exists() else None


def line(result: Result) -> str:
    """A row of the table."""
    apart = "" if result.runtime is None else f" ({result.runtime:.0e})"
    differences = (f"{one:.0e}{apart}" for one in (result.simulator, result.compiled))
    times = (f"{one:.3g}" if one < 100 else f"{one:.0f}" for one in (result.compiled_ms, result.runtime_ms))
    counts = (result.nodes, result.lines, result.loops, f"{result.import_s:.1f}", result.steps)
    return f"| {' | '.join(map(str, (result.name, *counts, *differences, *times)))} |"


def table(results: list[Result]) -> str:
    """All rows, with what they add up to."""
    rows = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|", *map(line, results)]
    return "\n".join(rows) + "\n"


def write(text: str) -> None:
    """Put the table between its marks in the document."""
    document = DOCUMENT.read_text()
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{DOCUMENT} has no {BEGIN!r}"
    assert end, f"{DOCUMENT} has no {END!r}"
    DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def run_one(model: RealModel, folder: Path, rounds: int) -> None:
    """Measure a model in this process and keep the result."""
    found = measured(model, folder, rounds, lambda what: print(f"  {model.name}: {what}", file=sys.stderr, flush=True))
    path = result_path(folder, model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.facts(), indent=1) + "\n")


def run_apart(model: RealModel, given: argparse.Namespace) -> str | None:
    """Measure a model in a process of its own; why there is no result."""
    command = [sys.executable, "-m", "bench.imported", "--here", model.name]
    command += ["--folder", str(given.folder), "--rounds", str(given.rounds)]
    try:
        done = subprocess.run(command, check=False, timeout=given.limit)
    except subprocess.TimeoutExpired:
        return f"not done after {given.limit} s"
    return None if done.returncode == 0 else f"failed with status {done.returncode}"


def options_of() -> argparse.Namespace:
    """What the command is told."""
    parser = argparse.ArgumentParser(prog="python -m bench.imported", description=__doc__)
    parser.add_argument("models", nargs="*", help="names of models; all without")
    parser.add_argument("--folder", type=Path, default=Path("build/models"), help="packages, imports and results")
    parser.add_argument("--rounds", type=int, default=15, help="how often C and ONNX Runtime are timed in turn")
    parser.add_argument("--limit", type=int, default=600, help="seconds that a model may take")
    parser.add_argument("--again", action="store_true", help="also the models that have results")
    parser.add_argument("--write", action="store_true", help=f"put the table of all into {DOCUMENT}")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = [model.name for model in MODELS]
    for name in given.models:
        if name not in names:
            parser.error(f"there is no model {name!r}; models are {', '.join(names)}")
    return given


def main() -> int:
    """Measure what has no result yet, print the table, and say whether all agree."""
    given = options_of()
    wanted = [model for model in MODELS if not given.models or model.name in given.models]
    if given.here:
        run_one(wanted[0], given.folder, given.rounds)
        return 0
    problems: list[str] = []
    start = time.perf_counter()
    for number, model in enumerate(wanted, 1):
        if given.again or kept(given.folder, model) is None:
            print(f"{number} of {len(wanted)}: {model.name}, {time.perf_counter() - start:.0f} s", file=sys.stderr)
            result_path(given.folder, model).unlink(missing_ok=True)
            problem = run_apart(model, given)
            problems += [f"{model.name}: {problem}"] if problem else []
    results = [found for model in wanted if (found := kept(given.folder, model)) is not None]
    problems += [f"{found.name}: does not agree" for found in results if not found.agrees]
    print(table(results))
    if given.write and not given.models and not problems:
        write(table(results))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
