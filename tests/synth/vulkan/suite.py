"""Every op on every dtype on a Vulkan device: ``python -m tests.synth.vulkan.suite``.

``--record`` notes in a file what passed; the page of ops is made from it.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from traceback import format_exc

from tests.synth.in_c import cases_of, judge
from tests.synth.suite import RECORD, Device, Verdict, recorded
from tests.synth.vulkan.on_device import (
    FLAGS,
    MACHINE,
    NUMERICS,
    Module,
    Outcome,
    Prepared,
    module_file,
    prepared,
    run_modules,
)
from tests.synth.vulkan.spirv import problems

from openinfer.loops.ir import Alloc, Space, walk
from openinfer.ops import OPS, OpRecord
from openinfer.ops.agreement import Contract
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.vulkan import GLSLANG
from openinfer.synth.targets.facts import Numerics

FLUSHES = NUMERICS.subnormals == "flushed"
_AT_ONCE = 8
"""Ops of one program."""
_IN_A_SHADER = 4
"""Cases of one shader: a device reads all of it for each of them, and each shader takes a while to compile."""


def cases(record: OpRecord, most: int | None, numerics: Numerics = NUMERICS, stride: int = 1) -> list[Prepared]:
    """The cases of an op on all its dtypes, or each ``stride``-th of them, for a device that rounds like this."""
    found = [(dtype, case) for dtype in record.dtypes for case in cases_of(record.name, dtype, most)][::stride]
    return [prepared(record, case, number, dtype, numerics) for number, (dtype, case) in enumerate(found)]


def module_of(found: Sequence[Prepared], numerics: Numerics = NUMERICS) -> Module:
    """A shader for some cases."""
    return Module([one.job for one in found], numerics)


def verdict_of(
    names: Sequence[str], most: int | None, *, validate: bool = False, numerics: Numerics = NUMERICS
) -> Verdict:
    """The verdict on these ops on all their dtypes."""
    verdict = Verdict()
    found = [part for name in names for part in _parts(cases(OPS[name], most, numerics))]
    modules = [module_of(one, numerics) for one in found]
    with TemporaryDirectory(prefix="vulkan-") as folder:
        outcomes = run_modules(modules, Path(folder), validate=validate)
        for place, (part, module) in enumerate(zip(found, modules, strict=True)):
            wrong = problems(module_file(Path(folder), place), module.features)
            verdict.failures += [f"the shader of '{part[0].record.name}': {what}" for what in wrong]
    for one, outcome in zip(chain.from_iterable(found), outcomes, strict=True):
        _judged(one, outcome, verdict)
    return verdict


def _parts(found: Sequence[Prepared]) -> Iterator[Sequence[Prepared]]:
    """Cases that are in one shader: the memory of the groups of all of them counts, though each has its own."""
    part: list[Prepared] = []
    for one in found:
        is_full = len(part) == _IN_A_SHADER or sum(map(_shared_bytes, (*part, one))) > MACHINE.shared_bytes
        if part and is_full:
            yield part
            part = []
        part.append(one)
    if part:
        yield part


def _shared_bytes(one: Prepared) -> int:
    inside = (part for launch in one.job.launches.launches for part in walk(launch.kernel.body))
    shared = (part.buffer for part in inside if isinstance(part, Alloc) and part.buffer.space is Space.GROUP)
    return sum(buffer.dtype.nbytes(prod(buffer.shape)) for buffer in shared)


def _judged(one: Prepared, outcome: Outcome, verdict: Verdict) -> None:
    dtype = one.dtype.name
    try:
        assert not outcome.damage, f"'{one.record.name}' {outcome.damage}"
        _require_right(one, outcome)
    except AssertionError as error:
        shapes = [None if array is None else array.shape for array in one.case.arrays]
        verdict.failures.append(f"'{one.record.name}' {dtype} {shapes} {dict(one.case.params)}: {error}")
    else:
        verdict.passed[one.record.name, dtype] += 1


def _require_right(one: Prepared, outcome: Outcome) -> None:
    """Where a device takes subnormal numbers for zero, what it then computes is right, too."""
    try:
        judge(one, outcome.results, outcome.status)
    except AssertionError:
        contract = Contract(one.record, one.call, one.case.dtypes)
        arrays = one.case.arrays
        if outcome.status or not FLUSHES or contract.disagreement(arrays, outcome.results, is_flushed=True):
            raise


def batches(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Ops that one program runs."""
    for start in range(0, len(names), _AT_ONCE):
        yield tuple(names[start : start + _AT_ONCE])


def verdicts(names: Sequence[str], most: int | None, processes: int, *, validate: bool = False) -> Iterator[Verdict]:
    """The verdicts on some ops at a time; what ends a program is a failure of all of its ops."""
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(partial(_verdict, most, validate), batches(names))


def _verdict(most: int | None, validate: bool, names: tuple[str, ...]) -> Verdict:
    try:
        return verdict_of(names, most, validate=validate)
    except Exception:  # noqa: BLE001  (one program must not end the others)
        return Verdict(failures=[f"{', '.join(names)}: {format_exc(limit=-2)}"])


def device_here() -> Device:
    """The device of this machine, with the compiler of shaders as it calls itself."""
    version = subprocess.run([GLSLANG, "--version"], capture_output=True, text=True, check=True).stdout
    arch = DeviceArch.detect("vulkan")
    name = "lavapipe" if arch.device.vendor == "mesa" else arch.title
    return Device(name, version.splitlines()[0], " ".join(FLAGS), str(arch.device.driver))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=4, help="of each op and dtype; 0: all")
    everything = sorted({record.name for record in OPS.values()})
    parser.add_argument("--ops", nargs="+", default=everything, help="only these")
    parser.add_argument("--validate", action="store_true", help="with the validation layer")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", action="store_true", help=f"note what passed in {RECORD.name}")
    options = parser.parse_args()
    start, total = perf_counter(), Verdict()
    for found in verdicts(options.ops, options.cases or None, options.processes, validate=options.validate):
        total.add(found)
        for failure in found.failures:
            print(failure, flush=True)
    right, pairs, wrong = sum(total.passed.values()), len(total.passed), len(total.failures)
    print(f"{right} cases of {pairs} ops and dtypes are right, {wrong} wrong ({perf_counter() - start:.0f} s)")
    if options.record and not wrong and options.ops == everything:
        recorded(RECORD, device_here(), total)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
