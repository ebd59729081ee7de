"""Consumers that run again in a step: in C as in the simulator, and each time with the values of that moment."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.sim.concurrent_graphs import random_graph
from tests.synth.both_ways import agree

from openinfer import Executor, Simulator, graph
from openinfer.sim.task import Task

TWICE = """
dynamic { x: f32[3]; }
volatile { first: f32[3]; kept: f32[3]; y: f32[3]; seen: f32[3]; }
persistent { runs: i32; log(t): f32[3] @table @fixed(t=8); }
block entry {
    yield x;
    await x;
    transfer x >> first;
    transfer x >> kept;
    op add(x, x) >> x;
    yield x;
    await x;
    op add(x, first) >> y;
    yield x;
    await x;
    return y, kept, seen, first;
}
block scale { await x; op mul(x, x) >> x; yield x; }
block watch { await x; op add(seen, x) >> seen; cache.write x >> log[runs]; cache.increment runs; yield x; }
"""
SWAPPED = """
dynamic { x: f32[3]; y: f32[3]; }
volatile { t: f32[3]; }
block entry {
    yield x, y;
    await x, y;
    transfer x >> t; transfer y >> x; transfer t >> y;
    yield y;
    yield x;
    await y, x;
    return x, y, t;
}
block work { await x, y; branch inner; op add(y, y) >> y; yield x, y; }
block inner { op sub(x, y) >> x; return; }
"""
ONE, TWO = np.array([1, 2, 3], np.float32), np.array([5, -1, 2], np.float32)


def test_every_run_has_the_values_of_its_moment() -> None:
    agree(TWICE, inputs=lambda step: {"x": ONE + step}, steps=2)
    agree(SWAPPED, inputs=lambda step: {"x": ONE + step, "y": TWO}, steps=2)
    ready = Simulator().make_executor(graph(TWICE))
    ready(x=ONE)
    # x, x squared (twice), and that squared again: what `watch` sees is what was yielded each time.
    assert ready.fetch("log").tolist() == [[1, 2, 3], [2, 8, 18], [4, 64, 324]]
    assert ready.fetch("kept").tolist() == [1, 4, 9]


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_with_a_second_round_are_the_same_in_c(seed: int) -> None:
    found = [text for text in map(random_graph, range(60)) if text.count("    yield h0") > 1]
    agree(found[seed * 3], steps=2, flags=("-std=c11", "-O0", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"))


def test_steps_and_traces_show_every_run() -> None:
    def consumers_first(tasks: Sequence[Task]) -> Task:
        return tasks[-1]

    def ran(ready: Executor) -> list[str]:
        return [event.block_name for event in ready.events if event.kind == "Yield" and event.thread != "entry"]

    for scheduler in ("sequential", "threaded", consumers_first):
        ready = Simulator(scheduler=scheduler).with_trace("basic").make_executor(graph(TWICE))
        ready(x=ONE)
        assert sorted(ran(ready)) == ["scale"] * 3 + ["watch"] * 3
    ready = Simulator().with_trace("basic").make_executor(graph(TWICE))
    ready.insert(x=ONE)
    for _ in ready.iterate():
        pass
    assert sorted(ran(ready)) == ["scale"] * 3 + ["watch"] * 3
    assert ready.fetch("y").tolist() == [5, 68, 333]
