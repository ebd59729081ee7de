"""Measures the roofline of this machine."""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files

import numpy as np

from openinfer.synth.report.roofline import Roofline
from openinfer.synth.run.build import library_of
from openinfer.synth.targets.cpu.machine import CpuMachine

_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
_LEAST, _MOST = 16 << 10, 256 << 20
"""The fewest bytes that each thread reads, and the most that all of them read together."""
_LINE = 64
_WINDOWS, _SECONDS = 25, 0.002
"""The number and the length of measurements, of which the best counts. Other processes are less likely to disturb short
ones.
"""


def measured_roofline(target: CpuMachine, flags: tuple[str, ...], cc: str, threads: int, nbytes: int) -> Roofline:
    """The roofline of this machine for code with these vectors, on ``threads`` threads that read ``nbytes`` in all."""
    width = max(target.vector_bits // 8, 4)
    library = _library(
        cc, (*_FLAGS, *flags, f"-DVECTOR_BYTES={width}", f"-DVECTOR_REGISTERS={target.vector_registers}")
    )
    share = max(min(nbytes, _MOST) // threads, _LEAST) // 4096 * 4096
    memory = np.ones(threads * share + _LINE, np.uint8)
    first = memory.ctypes.data + -memory.ctypes.data % _LINE

    def operations(_thread: int, start: float) -> float:
        return float(library.roofline_operations(ctypes.c_double(start), ctypes.c_double(_SECONDS)))

    def read(thread: int, start: float) -> float:
        place = ctypes.c_void_p(first + thread * share)
        times = ctypes.c_double(start), ctypes.c_double(_SECONDS)
        return float(library.roofline_bytes(place, ctypes.c_int64(share), *times))

    with ThreadPoolExecutor(threads) as pool:

        def best(rate: Callable[[int, float], float]) -> float:
            """The best combined rate of all threads, running at the same time."""
            starts = (library.roofline_start() for _ in range(_WINDOWS))
            return max(sum(pool.map(rate, range(threads), [start] * threads)) for start in starts)

        return Roofline(best(operations), best(read), threads, threads * share)


def _library(cc: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    text = (files("openinfer.synth.run") / "roofline.c").read_text(encoding="ascii")
    library = library_of({"roofline.c": text}, ("roofline.c",), cc, flags)
    for function in (library.roofline_start, library.roofline_operations, library.roofline_bytes):
        function.restype = ctypes.c_double
    return library
