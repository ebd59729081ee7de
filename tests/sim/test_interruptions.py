"""Ctrl-C can come between any two instructions of Python: the step has then happened, or it has not."""

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from tests.everything import HAS_EVERYTHING

from openinfer import Executor, Simulator, graph

STEP = graph("""
    dynamic { x: f32[3]; }
    volatile { y: f32[3]; }
    persistent { step: i32; total: f32[3]; K(t): f32[3] @table; N(l, r): f32[1, 3] @table @auto_dim(r); }
    block entry {
        assign row: f32[1, 3];
        op reshape(x, shape=[1, 3]) >> row;
        op add(total, x) >> total;
        cache.write x >> K[step];
        loop l (l in 0..2+step) {
            cache.write row >> N[l, step..step+1];
        }
        cache.increment step;
        yield y;
        await y;
        op add(total, y) >> total;
        return;
    }
    block consumer {
        await y;
        op add(x, y) >> y;
        yield y;
    }
""")
EVERY = 31 if HAS_EVERYTHING else 67
"""Every so many places are tried; a prime, so that loops are not always met at the same one."""
CLOSELY = ("_changing", "begin", "commit", "_take", "_leave")
"""Functions in which every place is tried: what they change must be found again by a rollback or a second commit."""


class Interruption:
    """Raises KeyboardInterrupt before the instruction of a number, counting those of the package or of one function."""

    def __init__(self, at: int, function: str | None = None) -> None:
        self._at = at
        self._function = function
        self.count = 0

    def enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Follow the functions of the package."""
        if "openinfer" not in frame.f_code.co_filename or self._function not in (None, frame.f_code.co_name):
            return None
        if frame.f_code.co_name == "run_step":
            return None  # nothing but a `with lock:`, between whose instructions no signal is handled
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._each

    def _each(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            self.count += 1
            if self.count == self._at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._each


def fed(scheduler: str) -> Executor:
    """Two steps have happened, and the third has its input."""
    executor = Simulator(scheduler=scheduler).make_executor(STEP)
    for last in (3.0, 4.0):
        executor.insert(x=[1.0, 2.0, last])
        executor.run_step()
    executor.insert(x=[5.0, 6.0, 7.0])
    return executor


def interrupted(scheduler: str, at: int, function: str | None) -> tuple[Executor, int]:
    """A step that was interrupted before an instruction, and how many there were."""
    executor, interruption = fed(scheduler), Interruption(at, function)
    before = sys.gettrace()
    sys.settrace(interruption.enter)
    try:
        executor.run_step()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return executor, interruption.count


def require_all_or_nothing(scheduler: str, every: int, function: str | None = None) -> None:
    """Try an interruption before every so manyth instruction."""
    untouched, threads = fed(scheduler), threading.active_count()
    before = untouched.save_state()
    untouched.run_step()
    after = untouched.save_state()
    _, count = interrupted(scheduler, 0, function)
    assert count > every
    for at in range(1, count + 1, every):
        executor, _ = interrupted(scheduler, at, function)
        assert not executor.is_suspended
        assert threading.active_count() == threads
        if executor.save_state() == before:
            executor.run_step()  # the input is still there
        assert executor.save_state() == after


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_an_interruption_anywhere_leaves_all_of_a_step_or_nothing_of_it(scheduler: str) -> None:
    require_all_or_nothing(scheduler, EVERY)


@pytest.mark.parametrize("function", CLOSELY)
def test_an_interruption_between_two_things_that_belong_together_leaves_all_or_nothing(function: str) -> None:
    require_all_or_nothing("sequential", 1, function)


def test_a_commit_that_was_interrupted_is_completed_and_the_executor_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = fed("sequential")
    clear, calls = type(executor._memory.inputs), 0

    class Interrupting(clear):  # type: ignore[misc, valid-type]
        def clear(self) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise KeyboardInterrupt
            super().clear()

    monkeypatch.setattr(executor._memory, "inputs", Interrupting(executor._memory.inputs))
    with pytest.raises(KeyboardInterrupt):
        executor.run_step()
    assert executor.fetch("step") == 3
    executor.insert(x=[0.0, 0.0, 0.0])
    executor.run_step()
    assert executor.fetch("step") == 4
