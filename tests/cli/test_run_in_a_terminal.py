"""``openinfer run`` in a terminal: its progress bar, and Ctrl-C."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.cli.test_run_command import DOUBLE, written
from tests.cli.waiting import wait_for_work


@pytest.fixture
def double(tmp_path: Path) -> str:
    return written(tmp_path, DOUBLE)


def wait_for(path: Path) -> None:
    """A step has ended when its trace is there."""
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    pytest.fail(f"no {path}")


ENDLESS_WORKER = """
dynamic { x: f32[4]; k: i32; }
volatile { a: f32[4]; y: f32[4]; }
block entry { transfer x >> a; yield a; await a; op neg(a) >> y; return y; }
block worker { await a; loop long (i in 0..k) { op mul(a, a) >> a; } yield a; }
"""


def interrupted(folder: Path, *arguments: str) -> str:
    """The message of a run that gets Ctrl-C when its first step has ended and been counted."""
    step_trace = folder / "step.json"
    command = [sys.executable, "-m", "openinfer", "run", *arguments, "--save-state", str(folder / "state")]
    environment = os.environ | {"OPENINFER_TRACE": str(step_trace)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **streams) as process:  # type: ignore[call-overload]
        wait_for(step_trace)
        wait_for_work(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert not (folder / "state").exists()
    assert not list(folder.glob(".oinf-*"))
    assert isinstance(err, str)
    return err


def test_ctrl_c_says_how_far_it_came_writes_nothing_and_exits_130(tmp_path: Path, double: str) -> None:
    message = interrupted(
        tmp_path, double, "-i", "x=1", "-i", "m=1", "--steps", "100000000", "-o", f"y=@{tmp_path}/y.npy"
    )
    assert message.startswith("interrupted after ")
    assert message.endswith(" of 100000000 steps; written: nothing\n")
    assert not (tmp_path / "y.npy").exists()


@pytest.mark.parametrize("scheduler", ["sequential", "threaded"])
def test_ctrl_c_ends_a_step_that_never_would(tmp_path: Path, scheduler: str) -> None:
    np.save(tmp_path / "k.npy", np.array([1, 2**31 - 1], np.int32))
    graph = written(tmp_path, ENDLESS_WORKER)
    message = interrupted(tmp_path, graph, "-i", "x=1", "-i", f"k=@{tmp_path}/k.npy[]", "--scheduler", scheduler)
    assert message == "interrupted after 1 of 2 steps; written: nothing\n"


def test_a_terminal_gets_a_progress_bar_over_steps(double: str) -> None:
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "openinfer", "run", double, "-i", "x=1", "-i", "m=1", "--steps", "1000"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=secondary, env=environment) as process:
        os.close(secondary)
        shown = b""
        while chunk := _read(primary):
            shown += chunk
        assert process.stdout is not None
        assert process.stdout.read().startswith(b"y: f32[6, 2]")
    os.close(primary)
    assert process.returncode == 0
    assert "steps" in shown.decode()
    assert "/1000" in shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""
