"""The same run on a cluster of Ray: four nodes, two of which are killed. ``make test-serve`` installs Ray."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster
from tests.scale.test_batch import graph, results, written

from openinfer.scale import BatchRun, Predictor, run_local
from openinfer.scale.ray_engine import run_ray

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    found.workers = [found.add_node(num_cpus=1) for _ in range(3)]
    ray.init(address=found.address, log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


def test_nodes_are_killed_and_nothing_is_lost_or_twice(cluster: Any, tmp_path: Path) -> None:
    files = tuple(written(tmp_path, files=6, rows=200, groups=10))
    local = BatchRun(graph(tmp_path), files, str(tmp_path / "local"), part_rows=10)
    run_local(local)
    killed = threading.Event()
    times: dict[Path, int] = {}

    def after_part(done: int, total: int) -> None:
        if done >= total // 4 and not killed.is_set():
            killed.set()
            times.update((path, path.stat().st_mtime_ns) for path in (tmp_path / "ray").glob("part-*"))
            for node in cluster.workers[:2]:
                cluster.remove_node(node, allow_graceful=False)

    report = run_ray(BatchRun(graph(tmp_path), files, str(tmp_path / "ray"), part_rows=10), after_part=after_part)
    assert killed.is_set()
    assert report.rows == 1200
    assert results(tmp_path / "ray") == results(tmp_path / "local")
    assert all(path.stat().st_mtime_ns == time for path, time in times.items()), "no part was written twice"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("node")
def test_a_predictor_is_a_function_of_ray_data(tmp_path: Path) -> None:
    text = (
        "sizes { B <= 4; } dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op add(x, x) >> y; return y; }"
    )
    data = ray.data.from_items([{"x": np.float32(number), "id": number} for number in range(20)])
    found = data.map_batches(
        Predictor, fn_constructor_kwargs={"graph": graph(tmp_path, text)}, batch_format="numpy", concurrency=2
    )
    assert sorted((row["id"], row["y"]) for row in found.take_all()) == [(number, 2 * number) for number in range(20)]
