"""Legal graphs give one result whatever the schedule; illegal ones are refused before anything runs."""

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from tests.sim.concurrent_graphs import made_illegal, random_graph

from openinfer import Executor, Graph, Simulator, graph
from openinfer.check import check
from openinfer.errors import Code, Diagnostic
from openinfer.lang import parse
from openinfer.sim.step import Choose
from openinfer.sim.task import Task

GRAPHS = 24
SCHEDULES = 50
STEPS = 2
CONCURRENCY = ("E4", "E6")


def interleaving(seed: int) -> Choose:
    """A scheduler that runs any task that can, one node at a time."""
    rng = np.random.default_rng(seed)

    def choose(tasks: Sequence[Task]) -> Task:
        return tasks[int(rng.integers(len(tasks)))]

    return choose


def consumers_first(tasks: Sequence[Task]) -> Task:
    return tasks[-1]


def outcome(parsed: Graph, scheduler: "str | Choose") -> bytes:
    executor: Executor = Simulator(scheduler=scheduler).make_executor(parsed)
    for _ in range(STEPS):
        executor.run_step()
    state = executor.save_state()
    assert state is not None
    return state


@pytest.mark.parametrize("seed", range(GRAPHS))
def test_a_legal_graph_gives_one_result_under_fifty_schedules(seed: int) -> None:
    text = random_graph(seed)
    parsed = graph(text)
    wanted = outcome(parsed, "sequential")
    assert outcome(parsed, consumers_first) == wanted
    for schedule in range(SCHEDULES - 12):
        assert outcome(parsed, interleaving(schedule)) == wanted, (text, schedule)
    for _ in range(10):
        assert outcome(parsed, "threaded") == wanted, text
    leftover = [thread.name for thread in threading.enumerate() if thread.name.startswith("openinfer")]
    assert leftover == []


@pytest.mark.parametrize("seed", range(200))
def test_an_illegal_graph_is_refused_when_it_is_bound(seed: int) -> None:
    text = made_illegal(random_graph(seed), seed)
    # Structural rules refuse some of them before binding, which is as good.
    parsed = parse(text)
    found = _errors(parsed.problems) or _errors(check(parsed.graph).problems)
    assert found, text
    assert all(code[:2] in CONCURRENCY for code in found), found


def _errors(problems: Iterable[Diagnostic]) -> list[Code]:
    return [problem.code for problem in problems if not problem.code.is_warning]


def test_random_graphs_have_several_consumers_and_hand_overs() -> None:
    texts = [random_graph(seed) for seed in range(GRAPHS)]
    assert any("consumer2" in text for text in texts)
    assert any("await h0, h1" in text or "await h1, h0" in text for text in texts)
    assert any("loop" in text for text in texts)
