"""``openinfer batch`` beside a bare loop over the compiled module: ``make bench-batch``.

MiniLM over the rows of Parquet files, with one instance and with one for each core, in turns with a loop over the same
rows in memory by as many threads: rows a second for each core, and which part of the loop's they are. The same by
processor time, which others on the machine take less away from.
"""

import argparse
import os
import shutil
import statistics
import threading
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from bench.minilm import GRAPH, minilm

from openinfer.scale import BatchRun, run_local

FOLDER = Path("build/bench/batch")
GOAL = 0.9


def written(rows: int, tokens: int) -> Path:
    ids = np.random.default_rng(0).integers(1000, 30522, (rows, tokens)).astype(np.int32)
    lists = [
        pa.FixedSizeListArray.from_arrays(pa.array(one.reshape(-1)), tokens) for one in (ids, np.ones_like(ids, bool))
    ]
    path = FOLDER / "rows.parquet"
    pq.write_table(pa.table({"ids": lists[0], "mask": lists[1]}), path, row_group_size=max(rows // 8, 1))
    return path


@dataclass(frozen=True)
class Rate:
    """Rows a second for each core: by the clock, and by processor time."""

    clock: float
    processor: float


def bare(run: BatchRun, threads: int, rows: int, tokens: int) -> Rate:
    """A loop over the module in each thread."""
    predictor = run.predictor()
    modules = [predictor._module, *(predictor._module.another() for _ in range(threads - 1))]
    ids = np.random.default_rng(0).integers(1000, 30522, (rows, 1, tokens)).astype(np.int32)
    mask = np.ones((1, tokens), bool)

    def loop(place: int) -> None:
        for row in ids[place::threads]:
            modules[place](ids=row, mask=mask)

    start, used = perf_counter(), process_time()
    others = [threading.Thread(target=loop, args=(place,)) for place in range(1, threads)]
    for thread in others:
        thread.start()
    loop(0)
    for thread in others:
        thread.join()
    return Rate(rows / (perf_counter() - start) / threads, rows / (process_time() - used))


def batch(run: BatchRun, instances: int, rows: int) -> Rate:
    """From files to files; compiling is not counted, the first part is not either."""
    shutil.rmtree(run.output, ignore_errors=True)
    times: list[tuple[float, float, int]] = []
    run_local(run, instances, lambda done, _total: times.append((perf_counter(), process_time(), done)))
    first, last = times[0], times[-1]
    assert last[2] == rows
    counted = last[2] - first[2]
    return Rate(counted / (last[0] - first[0]) / instances, counted / (last[1] - first[1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.batching", description=__doc__)
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = minilm(1, given.tokens)
    model.saved(FOLDER).close()
    path, sizes = written(given.rows, given.tokens), dict(model.settled)
    run = BatchRun(str(GRAPH), (str(path),), str(FOLDER / "out"), str(FOLDER / "model.oinf"), sizes=sizes, part_rows=1)
    for instances in sorted({1, len(os.sched_getaffinity(0))}):
        loops, runs = [], []
        for _ in range(given.rounds):
            loops.append(bare(run, instances, given.rows, given.tokens))
            runs.append(batch(run, instances, given.rows))
        for kind in ("clock", "processor"):
            own, others = ([getattr(one, kind) for one in found] for found in (runs, loops))
            ratio = statistics.median(one / other for one, other in zip(own, others, strict=True))
            print(
                f"{instances} instances, by the {kind}: {statistics.median(own):.1f} rows/s a core; "
                f"bare loop {statistics.median(others):.1f}; {ratio:.3f} of it, median of {given.rounds} (goal {GOAL})"
            )


if __name__ == "__main__":
    main()
