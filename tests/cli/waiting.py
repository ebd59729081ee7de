"""Waiting for another process by what it has computed, which holds on a busy machine too."""

import os
import time
from pathlib import Path

import pytest


def wait_for_work(process: int, seconds: float = 0.5) -> None:
    """Until a process has computed that long: it has left what it was doing, however busy the machine is."""
    ticks = seconds * os.sysconf("SC_CLK_TCK")
    stop = None
    for _ in range(600):
        times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        used = int(times[11]) + int(times[12])  # user, system
        stop = used + ticks if stop is None else stop
        if used >= stop:
            return
        time.sleep(0.05)
    pytest.fail("the process computes nothing")
