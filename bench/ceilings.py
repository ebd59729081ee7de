"""What this machine can do at most: multiply-adds without any loads, and reading memory of some size, over and over.

Small C code, compiled here for the vectors that generated code uses. One thread is measured by its own processor time,
which a busy machine does not change much; several by the clock, from the first that begins to the last that ends. The
fastest of many short rounds counts: others may want the machine too, and in a short time chances are that they do not.
"""

import ctypes
import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from openinfer.synth.c.support import support_code
from openinfer.synth.target import CpuTarget

CHAINS = 12
"""Independent sums of the multiply-adds: enough to hide how long one takes, few enough for registers."""
COUNT = 1_000_000
"""Rounds of multiply-adds in a measurement."""
AT_LEAST, AT_MOST = 1 << 26, 1 << 28
"""How many bytes a measurement reads, over and over where there are fewer, and beyond which more change nothing."""
ROUNDS = 25
FMA = """
void multiply_adds(long count)
{
    VECTOR s[CHAINS];
    for (int i = 0; i < CHAINS; ++i) for (int j = 0; j < LANES; ++j) s[i][j] = (float)(i + j);
    for (long n = 0; n < count; ++n) {
        STEPS
    }
    for (int i = 0; i < CHAINS; ++i) for (int j = 0; j < LANES; ++j) sink += s[i][j];
}
"""
READ = """
#include <stdint.h>
typedef uint64_t wide __attribute__((vector_size(64)));
uint64_t total(const wide *p, long count, long times)
{
    wide s[8] = { { 0 } };
    for (long t = 0; t < times; ++t) {
        for (long n = 0; n + 8 <= count; n += 8) for (int i = 0; i < 8; ++i) s[i] += p[n + i];
        __asm__ volatile("" ::: "memory");
    }
    return (s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7])[0];
}
"""


def compiled(text: str, name: str, folder: Path, target: CpuTarget) -> ctypes.CDLL:
    """C code as a library of this process."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(text, encoding="ascii")
    subprocess.run(["gcc", "-O3", *target.flags, "-fPIC", "-shared", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


class Ceilings:
    """The measurements, compiled into a folder."""

    def __init__(self, folder: Path, target: CpuTarget) -> None:
        self.lanes = target.lanes(32)
        vector = f"oi_f32x{self.lanes}"
        steps = " ".join(f"s[{i}] = oi_fma_f32x{self.lanes}(0.999f, s[{i}], s[{i}]);" for i in range(CHAINS))
        text = FMA.replace("STEPS", steps).replace("VECTOR", vector).replace("LANES", str(self.lanes))
        head = "#include <stdint.h>\nstatic volatile float sink;\n" + support_code({vector})
        self._fma = compiled(head + text.replace("CHAINS", str(CHAINS)), "fma", folder, target)
        self._read = compiled(READ, "read", folder, target)
        self._read.total.restype = ctypes.c_uint64

    def gflops(self, threads: int, rounds: int = ROUNDS) -> float:
        """Billions of multiplications and additions in a second."""
        parts = [lambda: self._fma.multiply_adds(ctypes.c_long(COUNT))] * threads
        return threads * COUNT * CHAINS * self.lanes * 2 / _fastest(parts, rounds) / 1e9

    def read_gb(self, nbytes: int, threads: int, rounds: int = ROUNDS) -> float:
        """Billions of bytes in a second, if threads read as many bytes over and over, each a part of its own."""
        count = max(min(nbytes, AT_MOST) // 64 // threads // 8 * 8, 8)
        data = np.ones(8 * (count * threads + 1), np.uint64)
        start = data.ctypes.data + -data.ctypes.data % 64
        times = max(AT_LEAST // (64 * count * threads), 1)

        def part(number: int) -> Callable[[], Any]:
            where = ctypes.c_void_p(start + 64 * count * number)
            return lambda: self._read.total(where, ctypes.c_long(count), ctypes.c_long(times))

        seconds = _fastest([part(number) for number in range(threads)], rounds)
        return 64 * count * threads * times / seconds / 1e9


def _fastest(parts: list[Callable[[], Any]], rounds: int) -> float:
    """Seconds that some calls take, each on a thread of its own, in the fastest round."""
    clock = time.thread_time if len(parts) == 1 else time.perf_counter
    times = []
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(rounds):
            before = clock()
            others = [pool.submit(part) for part in parts[1:]]
            parts[0]()
            for other in others:
                other.result()
            times.append(clock() - before)
    return min(times)


def second_cache_bytes() -> int:
    """The second cache of a core, where the system says how large it is; else what every machine has."""
    known = "SC_LEVEL2_CACHE_SIZE"
    found = os.sysconf(known) if known in os.sysconf_names else 0
    return found if found > 0 else 1 << 18
