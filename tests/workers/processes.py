"""Modules in processes of their own: the same results, errors with their codes, and life after a killed process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import numpy as np
import pytest

from openinfer.errors import ExecutionError, OpenInferError
from openinfer.workers import Recipe, WorkerGroup

DOUBLE = """sizes { B <= 8; } dynamic { x: f32[B]; n: i64; } volatile { y: f32[B]; z: bf16[B]; k: i64 @init(0); }
block entry { op add(x, x) >> y; op cast(y, to=bf16) >> z; loop rounds (i in 0..n) { op add(k, 1) >> k; }
return y, z, k; }"""
SUM = """dynamic { x: f32; } persistent { n: f32; } volatile { y: f32; }
block entry { op add(n, x) >> n; op add(n, 0) >> y; return y; }"""
X = np.float32(1.0)


def group(folder: Path, text: str, size: int = 1) -> WorkerGroup:
    (folder / "graph.oig").write_text(text)
    return WorkerGroup(Recipe(str(folder / "graph.oig")), size)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerGroup]:
    found = group(tmp_path_factory.mktemp("worker"), DOUBLE)
    yield found
    found.close()


def test_a_worker_gives_what_a_module_gives(workers: WorkerGroup) -> None:
    found = workers.module()({"x": np.arange(3, dtype=np.float32), "n": np.int64(4)})
    assert found["y"].tolist() == [0, 2, 4]
    assert (found["z"].dtype.name, found["z"].astype(np.float32).tolist()) == ("bfloat16", [0, 2, 4])
    assert found["k"] == 4
    assert workers.module()({"x": np.zeros(0, np.float32), "n": np.int64(0)})["y"].shape == (0,)


def test_errors_keep_their_codes(workers: WorkerGroup) -> None:
    module = workers.module()
    for inputs, code in (
        ({"x": np.zeros(9, np.float32), "n": np.int64(0)}, "E312"),
        ({"x": np.zeros(1, np.float32)}, "E508"),
    ):
        with pytest.raises(OpenInferError) as caught:
            module(inputs)
        assert caught.value.code == code


def test_a_step_of_a_worker_can_be_interrupted(workers: WorkerGroup) -> None:
    module, is_over = workers.module(), threading.Event()

    def interrupt() -> None:
        while not is_over.wait(0.1):  # a step that has not begun forgets what was asked before
            module.interrupt()

    again = threading.Thread(target=interrupt)
    again.start()
    with pytest.raises(ExecutionError, match="E411"):
        module({"x": np.zeros(1, np.float32), "n": np.int64(1 << 60)})
    is_over.set()
    again.join()
    assert module({"x": np.ones(1, np.float32), "n": np.int64(0)})["y"] == 2


def test_another_process_takes_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    losses: list[int] = []
    (tmp_path / "graph.oig").write_text(DOUBLE)
    workers = WorkerGroup(Recipe(str(tmp_path / "graph.oig")), 1, losses.append)
    module, first = workers.module(), workers.workers[0].pid
    assert first is not None
    killer = threading.Timer(0.2, os.kill, (first, signal.SIGKILL))
    killer.start()
    with pytest.raises(ExecutionError, match="E910"):
        module({"x": np.zeros(1, np.float32), "n": np.int64(1 << 60)})
    assert module({"x": np.ones(1, np.float32), "n": np.int64(1)})["y"] == 2
    assert losses == [first]
    assert workers.workers[0].pid != first
    workers.close()


def test_a_state_goes_with_its_process_and_comes_back_from_its_file(tmp_path: Path) -> None:
    workers = group(tmp_path, SUM)
    module, other = workers.module(), workers.module()
    assert (module({"x": X})["y"], module({"x": X})["y"], other({"x": X})["y"]) == (1, 2, 1)
    module.save_state(tmp_path / "state.oinf")
    pid = workers.workers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while not module.is_lost:
        threading.Event().wait(0.01)
    for use in (lambda: module({"x": X}), lambda: module.save_state(tmp_path / "state.oinf")):
        with pytest.raises(ExecutionError, match="E910"):
            use()
    module.load_state(tmp_path / "state.oinf")
    assert module({"x": X})["y"] == 3
    other.reset()
    assert other({"x": X})["y"] == 1
    workers.close()


def test_a_graph_that_cannot_be_built_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(OpenInferError) as caught:
        group(tmp_path, "block entry { nonsense }")
    assert str(caught.value.code).startswith("E1")


def test_a_worker_ends_with_whoever_started_it(tmp_path: Path) -> None:
    workers = group(tmp_path, SUM)
    process = workers.workers[0]._process
    assert process is not None
    workers.close()
    assert process.poll() is not None
    with pytest.raises(ExecutionError, match="E910"):
        workers.module()


STARTER = """
import sys, threading
import numpy as np
from openinfer.workers import Recipe, WorkerGroup
workers = WorkerGroup(Recipe(sys.argv[1]), 1)
endless = {"x": np.zeros(1, np.float32), "n": np.int64(1 << 60)}
threading.Thread(target=workers.module(), args=(endless,)).start()
print(workers.workers[0].pid, flush=True)
"""


def test_a_worker_in_an_endless_step_ends_with_a_killed_process_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "graph.oig").write_text(DOUBLE)
    command = [sys.executable, "-c", STARTER, str(tmp_path / "graph.oig")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        worker = int(starter.stdout.readline())
        sleep(1.0)  # the step has most likely begun; the worker must end either way
        starter.kill()
    for _ in range(600):
        if not Path(f"/proc/{worker}").exists():
            return
        sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker goes on without the process that started it")
