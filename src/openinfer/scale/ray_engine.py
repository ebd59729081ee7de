"""A run on a cluster: parts go to a pool of Ray Data actors, each of which compiles for its own processor.

Actors access files by the paths of the run, so these must be valid on all machines. If an actor is lost, another one
redoes its part; a part appears complete, and only once.
"""

from collections.abc import Callable
from typing import Any

import ray
import ray.data

from openinfer.scale.run import BatchPart, BatchReport, BatchRun, claimed_folder, part_path, planned, run_part
from openinfer.synth.devices.description import arch_of


class PartActor:
    """Processes parts of a run; Ray places it where a core is free."""

    def __init__(self, run: BatchRun, parts: list[BatchPart]) -> None:
        self._run = run
        self._parts = {part.index: part for part in parts}
        self._predictor = run.predictor()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Process the parts with the given indices and return their row counts; skip parts already written."""
        parts = [self._parts[int(index)] for index in batch["part"]]
        for part in parts:
            if not part_path(self._run, part).exists():
                run_part(self._run, self._predictor, part)
        return {"part": batch["part"], "rows": [part.rows for part in parts]}


def run_ray(
    run: BatchRun,
    actors: int | None = None,
    after_part: Callable[[int, int], None] = lambda _done, _total: None,
) -> BatchReport:
    """Run over all files on the cluster that this process is connected to, else on a local one."""
    if not ray.is_initialized():
        ray.init(ignore_reinit_error=True, log_to_driver=False)
    predictor, parts = planned(run)
    total = sum(part.rows for part in parts)
    with claimed_folder(run, predictor, parts) as left:
        done = total - sum(part.rows for part in left)
        after_part(done, total)
        if not left:
            return BatchReport(len(parts), total, len(parts))
        resources: Callable[[], dict[str, float]] = ray.cluster_resources
        most = actors or max(int(resources().get("CPU", 1)), 1)
        is_gpu = run.device != "host" and arch_of(run.device).api == "cuda"
        rows = ray.data.from_items([{"part": part.index} for part in left], override_num_blocks=len(left)).map_batches(
            PartActor,
            fn_constructor_args=(run, parts),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(left))),
            num_cpus=1,
            num_gpus=1 if is_gpu else None,
        )
        for row in rows.iter_rows():
            done += int(row["rows"])
            after_part(done, total)
        return BatchReport(len(parts), total, len(parts) - len(left))
