"""Every op on every dtype on a GPU with CUDA: ``python -m tests.synth.cuda.suite``."""

import argparse
import ctypes
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from traceback import format_exc
from typing import Any

import numpy as np
from tests.synth.cuda.kernels import MACHINE, NVCC, cases, source
from tests.synth.in_c import judge, loaded
from tests.synth.suite import Device, Verdict
from tests.synth.vulkan.on_device import GOOD, Job, Outcome, Prepared

from openinfer.loops.dim import at
from openinfer.ops import OPS
from openinfer.synth.targets.cuda.tile_code import tile_bytes
from openinfer.synth.targets.gpu.arguments import Given
from openinfer.synth.targets.simt.launches import group_of

RUNNER = Path(__file__).with_name("runner.cu")
POISON = 0xCD
"""What memory holds before launches write it."""


def library(found: Sequence[Prepared], folder: Path) -> Path:
    """The kernels of some cases, with what runs them, compiled."""
    names = ", ".join(f"(const void *){code.name}" for one in found for code in one.job.codes)
    table = f"static const void *const runner_kernels[] = {{ {names} }};\n"
    file, result = folder / "kernels.cu", folder / "kernels.so"
    file.write_text(f"{source(found)}\n{table}{RUNNER.read_text('ascii')}", encoding="ascii")
    command = [*NVCC, "-shared", "-Xcompiler", "-fPIC", "-o", str(result), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[:3000]
    return result


def opened(result: Path) -> ctypes.CDLL:
    """The same, to be called."""
    made = ctypes.CDLL(str(result))
    made.runner_new.restype = ctypes.c_uint64
    return made


class _Memory:
    """Buffers on the device."""

    def __init__(self, made: ctypes.CDLL) -> None:
        self._library = made
        self._all: list[int] = []

    def new(self, nbytes: int, data: Any = None, fill: int = POISON) -> int:
        pointer = None if data is None else data.ctypes.data_as(ctypes.c_void_p)
        address = int(self._library.runner_new(pointer, ctypes.c_uint64(nbytes), fill))
        assert address, "there is no memory on the device"
        self._all.append(address)
        return address

    def get(self, address: int, nbytes: int) -> tuple[Any, bool]:
        found = np.zeros(nbytes, np.uint8)
        place = found.ctypes.data_as(ctypes.c_void_p)
        return found, bool(self._library.runner_get(ctypes.c_uint64(address), place, ctypes.c_uint64(nbytes)))

    def free(self) -> None:
        for one in self._all:
            self._library.runner_free(ctypes.c_uint64(one))


def outcome_of(made: ctypes.CDLL, one: Job, first: int) -> Outcome:
    """What a job does, whose launches are the kernels from a number on."""
    memory = _Memory(made)
    kernel, scratch = one.launches.kernel, one.launches.scratch
    addresses = [memory.new(data.nbytes, np.ascontiguousarray(data)) for data in one.inputs]
    addresses += [memory.new(kind.nbytes) for kind in one.outputs]
    addresses += [memory.new(buffer.dtype.nbytes(int(np.prod(buffer.shape)))) for buffer in scratch]
    places = dict(zip((buffer.name for buffer in (*kernel.inputs, *kernel.outputs, *scratch)), addresses, strict=True))
    status = memory.new(4, fill=0xFF)
    for number, (launch, code) in enumerate(zip(one.launches.launches, one.codes, strict=True)):
        group = group_of(launch.kernel, MACHINE.group)
        known = {Given.MEMORY: places, Given.SIZE: one.sizes, Given.STATUS: {"": status}, Given.NUMBER: {"": number}}
        values = [known[argument.kind][argument.name] for argument in code.arguments]
        given = (ctypes.c_uint64 * max(len(values), 1))(*values)
        groups = -(-at(launch.threads, one.sizes) // group)
        if groups:
            wrong = made.runner_launch(first + number, groups, group, tile_bytes(launch.kernel), given, len(values))
            assert wrong == 0, f"launch {number} is refused: error {wrong} of CUDA"
    assert made.runner_settle() == 0, "the device is lost"
    results, is_whole = [], True
    first_output = len(one.inputs)
    for address, kind in zip(addresses[first_output:], one.outputs, strict=False):
        data, is_good = memory.get(address, kind.nbytes)
        results.append(loaded(data, kind))
        is_whole = is_whole and is_good
    word, _ = memory.get(status, 4)
    memory.free()
    damage = "" if is_whole else "memory next to a buffer was written"
    return Outcome(tuple(results), int(int(word.view(np.uint32)[0]) != GOOD), damage)


def verdict_of(name: str, most: int | None, known: Path | None = None) -> Verdict:
    """The verdict on an op, on all its dtypes; whatever happens becomes a failure of it.

    What was compiled before, for as many cases, need not be again.
    """
    verdict = Verdict()
    try:
        found = cases(OPS[name], most)
        with TemporaryDirectory(prefix="cuda-") as folder:
            made = opened(known or library(found, Path(folder)))
        number = 0
        for one in found:
            _judged(one, made, number, verdict)
            number += len(one.job.codes)
    except Exception:  # noqa: BLE001  (one op must not end the others)
        verdict.failures.append(f"'{name}': {format_exc(limit=-2)}")
    return verdict


def _judged(one: Prepared, made: ctypes.CDLL, first: int, verdict: Verdict) -> None:
    dtype = one.dtype.name
    try:
        outcome = outcome_of(made, one.job, first)
        assert not outcome.damage, f"'{one.record.name}' {outcome.damage}"
        judge(one, outcome.results, outcome.status)
    except AssertionError as error:
        shapes = [None if array is None else array.shape for array in one.case.arrays]
        verdict.failures.append(f"'{one.record.name}' {dtype} {shapes} {dict(one.case.params)}: {error}")
    else:
        verdict.passed[one.record.name, dtype] += 1


def verdicts(names: Sequence[str], most: int | None, processes: int) -> Iterator[Verdict]:
    """The verdicts on ops: each has a process of its own, since a fault loses its device."""
    with ProcessPoolExecutor(processes, get_context("forkserver"), max_tasks_per_child=1) as pool:
        yield from pool.map(partial(verdict_of, most=most), names)


def device_here() -> Device:
    """The GPU of this machine, with the compiler as it calls itself."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")[0].split(", ")
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    version = next(line for line in said.splitlines() if "release" in line)
    return Device(name, version, " ".join(NVCC[1:]), f"NVIDIA {driver}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1, help="of each op and dtype; 0: all")
    everything = sorted({record.name for record in OPS.values()})
    parser.add_argument("--ops", nargs="+", default=everything, help="only these")
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    start, total = perf_counter(), Verdict()
    for found in verdicts(options.ops, options.cases or None, options.processes):
        total.add(found)
        for failure in found.failures:
            print(failure, flush=True)
    right, pairs, wrong = sum(total.passed.values()), len(total.passed), len(total.failures)
    print(f"{right} cases of {pairs} ops and dtypes are right, {wrong} wrong ({perf_counter() - start:.0f} s)")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
