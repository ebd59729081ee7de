"""What this machine can do at most, as ``openinfer bench`` measures it, in the units of the benchmarks."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from openinfer.synth.run.roofline import measured_roofline
from openinfer.synth.targets.cpu.machine import CpuMachine

IN_MEMORY = 1 << 28
"""Bytes that are in no cache."""
IN_FIRST_CACHE = 1 << 14
_HANDOVER = Path(__file__).with_name("handover.c")


class Ceilings:
    """The measurements, for code with the vectors of a processor."""

    def __init__(self, target: CpuMachine) -> None:
        self._target = target
        self._gflops: dict[int, float] = {}

    def gflops(self, threads: int) -> float:
        """Billions of multiplications and additions in a second; measured once."""
        if threads not in self._gflops:
            found = measured_roofline(self._target, self._target.flags, "gcc", threads, IN_FIRST_CACHE)
            self._gflops[threads] = found.operations / 1e9
        return self._gflops[threads]

    def read_gb(self, nbytes: int, threads: int) -> float:
        """Billions of bytes in a second, if threads read as many bytes over and over, each a part of its own."""
        return measured_roofline(self._target, self._target.flags, "gcc", threads, nbytes).bandwidth / 1e9


def second_cache_bytes() -> int:
    """The second cache of a core, where the system says how large it is; else what every machine has."""
    known = "SC_LEVEL2_CACHE_SIZE"
    found = os.sysconf(known) if known in os.sysconf_names else 0
    return found if found > 0 else 1 << 18


def handover_ns() -> float:
    """How long a number takes to a thread on another core and back.

    Virtual machines move their processors: two that shared a cache a minute ago may not do so now, and threads that
    read what the other has written then take much longer.
    """
    with TemporaryDirectory() as folder:
        program = f"{folder}/handover"
        subprocess.run(["gcc", "-O2", "-std=c11", "-pthread", str(_HANDOVER), "-o", program], check=True)
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
