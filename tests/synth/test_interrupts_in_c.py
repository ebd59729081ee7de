"""A long step of compiled code ends when it is told to, and has then not happened; and it knows its budget."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sim.test_interruptions import Interruption
from tests.synth.flags import USUAL

from openinfer import Code, ExecutionError, Simulator, Synthesizer, graph
from openinfer.errors import OpenInferError
from openinfer.synth.plan import Plan
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes

TEXT = """
dynamic { x: f32[4]; m: i32; } constant { five: i32 @init(5); }
persistent { n: i32; last: f32[4]; K(t): f32[4] @table; }
volatile { y: f32[4]; is_long: bool; }
block entry {
    cache.increment n; cache.write x >> K[n]; transfer x >> last;
    op gt(m, five) >> is_long;
    loop r (i in 0..m) {
        op add(x, y) >> y;
        loop s (j in 0..2) { scope "inner" { op add(last, y) >> last; } }
        branch is_long more less;
    }
    return y, n;
}
block more { op add(last, last) >> last; loop e (k in 0..2) { } return; }
block less { return; }
"""
FOREVER = 2**31 - 1


def plan(device: str | None = None) -> Plan:
    passes = Passes(divide=Divide(1))
    made = Synthesizer(name="watched", passes=passes) if device is None else Synthesizer(device, name="watched")
    return made.synthesize(None, graph(TEXT))


def feed(runs: Any, turns: int) -> None:
    runs.insert(x=np.arange(4, dtype=np.float32), m=turns)


def during(runs: Any, action: Callable[[], None]) -> threading.Thread:
    """Do something as soon as a call is running."""

    def wait() -> None:
        while not runs._calls.is_running:
            time.sleep(0.001)
        time.sleep(0.02)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("trace", ["off", "basic"])
def test_control_c_ends_a_step_that_has_then_not_happened(trace: str) -> None:
    module = plan().build(flags=USUAL, trace=trace)
    feed(module, 3)
    module.run_step()
    before = module.save_state()
    feed(module, FOREVER)
    thread = during(module, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        module.run_step()
    thread.join()
    assert module.save_state() == before
    feed(module, 3)
    module.run_step()
    assert module.fetch("n") == 2


def test_whatever_a_signals_handler_raises_ends_the_step() -> None:
    module = plan().build(flags=USUAL)
    feed(module, FOREVER)

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError("time is up")

    previous = signal.signal(signal.SIGALRM, ring)
    thread = during(module, lambda: os.kill(os.getpid(), signal.SIGALRM))
    try:
        with pytest.raises(TimeoutError, match="time is up"):
            module.run_step()
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, previous)
    assert module.fetch("n") == 0


def test_a_handler_that_returns_lets_the_step_go_on_and_another_thread_can_end_it() -> None:
    module = plan().build(flags=USUAL)
    feed(module, FOREVER)
    heard: list[Code] = []

    def note(_number: int, _frame: object) -> None:
        try:
            module.fetch("n")  # from inside the step
        except ExecutionError as error:
            heard.append(error.code)

    def act() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        while not heard:
            time.sleep(0.001)
        module.interrupt()

    previous = signal.signal(signal.SIGUSR1, note)
    thread = during(module, act)
    try:
        with pytest.raises(ExecutionError) as caught:
            module.run_step()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, previous)
    assert caught.value.code is Code.INTERRUPTED
    assert heard == [Code.BUSY]
    assert module.fetch("n") == 0


def outcome(runs: Any, turns: int) -> str:
    feed(runs, turns)
    try:
        runs.run_step()
    except OpenInferError as error:
        return str(error.code)
    return f"{runs.fetch('n')} {runs.fetch('last').tolist()}"


def test_the_budget_counts_nodes_as_the_simulator_does() -> None:
    own, g = plan(), graph(TEXT)
    for budget in (0, 5, 6, 17, 18, 19, 35, 36, 37, 60, 90, 120, None):
        module = own.build(flags=USUAL, node_budget=budget)
        executor = Simulator(node_budget=budget).make_executor(g)
        for turns in (0, 2, 7):
            assert outcome(module, turns) == outcome(executor, turns), (budget, turns)


def test_a_budget_is_a_number_and_only_hosted_code_counts() -> None:
    for wrong in (-1, 2.5, True, "many"):
        with pytest.raises(ExecutionError) as caught:
            plan().build(node_budget=wrong)  # type: ignore[arg-type]
        assert caught.value.code is Code.BAD_PARAMETER


def test_code_without_an_operating_system_asks_nobody() -> None:
    bounded = graph(TEXT.replace("K(t): f32[4] @table", "K(t): f32[4] @table @fixed(t=4)"))
    own = Synthesizer("generic", name="bare").synthesize(None, bounded)
    text = "".join(str(content) for path, content in own.files().items() if path.endswith((".c", ".h")))
    for word in ("is_over", "interrupt(", "timespec", "__atomic", "is_busy", "set_budget"):
        assert word not in text, word
    with pytest.raises(ExecutionError) as caught:
        own.build(node_budget=5)
    assert caught.value.code is Code.BAD_PARAMETER
    module = own.build(flags=USUAL)
    feed(module, 3)
    module.run_step()
    assert module.fetch("n") == 1


MAIN = """
#include <stdio.h>
#include <string.h>
#include "watched.h"
#define CHECK(what) do { if (!(what)) { printf("line %d: %s\\n", __LINE__, #what); return 1; } } while (0)
static _Alignas(64) unsigned char arena[WATCHED_ARENA_BYTES], state[WATCHED_STATE_BYTES];
static watched_context c;
static const float x[4] = { 1, 2, 3, 4 };
static int busy, asked;
static int stop(void *user)
{
    watched_outputs out;
    watched_tensor tensor;
    unsigned char saved[64];
    int32_t m = 1;
    asked += 1;
    busy += watched_step(&c, &(watched_inputs){ x, &m }, &out) == WATCHED_ERROR_BUSY;
    busy += watched_reset(&c) == WATCHED_ERROR_BUSY;
    busy += watched_fetch(&c, "n", &tensor) == WATCHED_ERROR_BUSY;
    busy += watched_save_state(&c, saved, sizeof saved) == WATCHED_ERROR_BUSY;
    busy += watched_load_state(&c, saved, sizeof saved) == WATCHED_ERROR_BUSY;
    busy += watched_reserve(&c, 0, (const int64_t[]){ 1 }) == WATCHED_ERROR_BUSY;
    return user == &c;
}

int main(void)
{
    watched_outputs out;
    int32_t few = 2, many = INT32_MAX;
    CHECK(watched_init(&c, arena, sizeof arena, state, sizeof state, state, 0) == WATCHED_OK);
    watched_set_interrupt(&c, stop, &c);
    CHECK(watched_step(&c, &(watched_inputs){ x, &many }, &out) == WATCHED_ERROR_INTERRUPTED);
    CHECK(asked == 1 && busy == 6 && strstr(watched_last_error(&c), "interrupted") != NULL);
    watched_set_interrupt(&c, NULL, NULL);
    CHECK(watched_step(&c, &(watched_inputs){ x, &few }, &out) == WATCHED_OK && *out.n == 1);
    watched_set_budget(&c, 1000);
    CHECK(watched_step(&c, &(watched_inputs){ x, &many }, &out) == WATCHED_ERROR_BUDGET);
    watched_set_budget(&c, -1);
    CHECK(watched_step(&c, &(watched_inputs){ x, &few }, &out) == WATCHED_OK && *out.n == 2);
    watched_free(&c);
    return 0;
}
"""


def test_a_c_program_interrupts_bounds_and_is_told_when_a_context_is_busy(tmp_path: Path) -> None:
    own = plan()
    own.emit(tmp_path)
    (tmp_path / "main.c").write_text(MAIN, encoding="ascii")
    flags = ["-std=c11", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Iinclude"]
    sources = ["main.c", "src/watched.c", "src/kernels.c"]
    command = ["gcc", *flags, "-Wall", "-Wextra", "-Werror", *own.project.options.flags, *sources, "-o", "watched"]
    subprocess.run(command, check=True, cwd=tmp_path)
    ended = subprocess.run(["./watched"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-3000:]


def test_an_interruption_of_the_caller_leaves_all_of_a_step_or_nothing_of_it() -> None:
    """Before any instruction of Python's around the code: a step that has happened has also used up its inputs."""
    module = plan().build(flags=USUAL)
    before = module.save_state()
    feed(module, 2)
    module.run_step()
    after = module.save_state()

    def interrupted(at: int) -> int:
        module.reset()
        feed(module, 2)
        interruption, tracing = Interruption(at), sys.gettrace()
        sys.settrace(interruption.enter)
        try:
            module.run_step()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracing)
        return interruption.count

    for at in range(1, interrupted(0) + 1):
        interrupted(at)
        if module.save_state() == before:
            module.run_step()  # the inputs are still there
        assert module.save_state() == after
        with pytest.raises(ExecutionError) as caught:
            module.run_step()
        assert caught.value.code is Code.NOT_INSERTED
