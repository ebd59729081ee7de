"""One call at a time, several instances side by side, and life after a fork."""

import multiprocessing
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from openinfer import Code, ExecutionError, Simulator, Synthesizer, graph
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes

LONG = graph("""
dynamic { x: f32[2]; m: i32; } persistent { n: i32; } volatile { y: f32[2]; }
block entry { cache.increment n; loop r (i in 0..m) { op add(x, y) >> y; } return y, n; }
""")
FOREVER = 2**31 - 1
WIDE = """
dynamic { x: f32[64, 64]; } persistent { total: f32[64]; } volatile { y: f32[64, 64]; z: f32[64, 64]; s: f32[64]; }
block entry {
    op matmul(x, x) >> y; op softmax(y) >> z; op sum_axis(z, axis=0) >> s; op add(s, total) >> total; return z;
}
"""


def executor() -> Any:
    return Simulator().make_executor(LONG)


def module() -> Any:
    return Synthesizer(name="calls").synthesize(None, LONG).build()


@pytest.mark.parametrize("made", [executor, module])
def test_a_second_call_is_refused_while_one_runs_and_does_not_disturb_it(made: Callable[[], Any]) -> None:
    runs = made()
    state = runs.save_state()
    runs.insert(x=[1.0, 2.0], m=FOREVER)
    caught: list[Code] = []

    def step() -> None:
        try:
            runs.run_step()
        except ExecutionError as error:
            caught.append(error.code)

    thread = threading.Thread(target=step)
    thread.start()
    while not runs._calls.is_running:
        time.sleep(0.001)
    verbs: list[Callable[[], Any]] = [
        runs.run_step,
        runs.reset,
        runs.save_state,
        lambda: runs(x=[1.0, 2.0], m=1),
        lambda: runs.insert(m=1),
        lambda: runs.load_state(state),
        lambda: runs.fetch("n"),
        lambda: runs.fetch_view("n"),
        lambda: runs.fetch_tensor("n"),
    ]
    verbs += [runs.begin_step, runs.cancel, lambda: next(runs.iterate())] if made is executor else []
    verbs += [lambda: runs.insert_view(x=np.ones(2, np.float32))] if made is module else []
    for verb in verbs:
        with pytest.raises(ExecutionError) as refused:
            verb()
        assert refused.value.code is Code.BUSY
    runs.interrupt()
    thread.join()
    assert caught == [Code.INTERRUPTED]
    assert runs.save_state() == state
    assert runs(x=[1.0, 2.0], m=2)["y"].tolist() == [2, 4]


def wide(threads: int = 2) -> Plan:
    passes = Passes(divide=Divide(threads, 0.0))
    return Synthesizer(name="wide", passes=passes).synthesize(None, graph(WIDE))


def run(runs: Any, seed: int, steps: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [runs(x=rng.normal(size=(64, 64)).astype(np.float32)) for _ in range(steps)] + [runs.fetch("total")]


def same(found: list[Any], wanted: list[Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_instances_run_side_by_side_and_share_nothing() -> None:
    own = wide()
    makers: list[Callable[[], Any]] = [own.build, own.build, lambda: Simulator().make_executor(graph(WIDE))] * 2
    wanted = [run(made(), seed, 20) for seed, made in enumerate(makers)]
    runs = [made() for made in makers]
    found: list[list[Any]] = [[] for _ in makers]
    threads = [
        threading.Thread(target=lambda place=place, one=one: found[place].extend(run(one, place, 20)))
        for place, one in enumerate(runs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(one, other) for one, other in zip(found, wanted, strict=True))


def in_child(runs: Any, queue: Any) -> None:
    queue.put(run(runs, 3, 2))


def test_a_module_goes_on_in_a_forked_process_and_in_its_parent() -> None:
    runs = wide(3).build()
    run(runs, 1, 2)
    forked = multiprocessing.get_context("fork")
    queues = [forked.Queue() for _ in range(2)]
    children = [forked.Process(target=in_child, args=(runs, queue)) for queue in queues]
    for child in children:
        child.start()
    found = [queue.get(timeout=300) for queue in queues]
    for child in children:
        child.join()
    wanted = run(runs, 3, 2)
    assert all(same(one, wanted) for one in found)
    assert [child.exitcode for child in children] == [0, 0]


FORK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.synth.test_calls import run, wide
module = wide(3).build()
run(module, 1, 2)
children = []
for steps in (0, 2):
    pid = os.fork()
    if pid == 0:
        run(module, 3, steps)
        sys.exit()  # as any program ends, with everything torn down
    children.append(pid)
run(module, 3, 2)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
"""


def test_forked_processes_end() -> None:
    """Threads do not survive a fork, and must not be waited for, whether or not the child has run a step."""
    root = str(Path(__file__).parents[2])
    ended = subprocess.run([sys.executable, "-c", FORK, root], timeout=300, check=False, cwd=root)
    assert ended.returncode == 0


MAIN = """
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "wide.h"
static _Alignas(64) unsigned char arena[WIDE_ARENA_BYTES], state[WIDE_STATE_BYTES];
static float x[64 * 64], first[64 * 64];
static wide_context c;
static int step(void)
{
    wide_outputs out;
    if (wide_step(&c, &(wide_inputs){ x }, &out)) return 1;
    if (first[0] == 0) memcpy(first, out.z, sizeof first);
    return memcmp(first, out.z, sizeof first) != 0;
}

int main(void)
{
    for (int i = 0; i < 64 * 64; ++i) x[i] = (float)(i % 7);
    if (wide_init(&c, arena, sizeof arena, state, sizeof state, arena, 0) || wide_start_threads(&c)) return 2;
    if (step()) return 3;
    for (int round = 0; round < 3; ++round) {
        const pid_t child = fork();
        if (child == 0 && round > 0) { /* which has a child of its own, with threads or without */
            const pid_t grandchild = fork();
            int status = 0;
            if (step()) exit(4);
            if (grandchild == 0) exit(0);
            if (waitpid(grandchild, &status, 0) != grandchild || status != 0) exit(5);
        }
        if (step()) exit(6);
        if (child == 0) {
            wide_stop_threads(&c);
            exit(step() || wide_start_threads(&c) || step() ? 7 : 0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) {
            printf("the child ended with %d\\n", status);
            return 8;
        }
    }
    wide_stop_threads(&c);
    return 0;
}
"""


def test_a_c_program_forks(tmp_path: Path) -> None:
    own = wide(3)
    own.emit(tmp_path)
    (tmp_path / "main.c").write_text(MAIN, encoding="ascii")
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-Iinclude", *own.project.options.flags]
    subprocess.run(["gcc", *flags, "main.c", "src/wide.c", "src/kernels.c", "-o", "forks"], check=True, cwd=tmp_path)
    ended = subprocess.run(["./forks"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300)
    assert ended.returncode == 0, ended.stdout
