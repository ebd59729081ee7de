"""Every op on every dtype in generated C, on a device, with a compiler: ``python -m tests.synth.suite``.

``--record`` notes in a file what passed; the page of ops is made from it.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from tests.differential.building import Toolchain as ProjectToolchain
from tests.synth.in_c import Prepared, judge
from tests.synth.in_threads import WORTH, Asked, Setting, answered, asked, hosted
from tests.synth.large_cases import CONVOLUTIONS, large_cases
from tests.synth.standalone import SANITIZERS, Toolchain, run_cases
from tests.synth.suite_cases import chosen, small_ones_too, variants

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.c import bare_metal
from openinfer.synth.targets.cpu.machine import CORTEX_M, GENERIC, PRESETS, CpuMachine, runnable

RECORD = Path(__file__).resolve().parents[2] / "docs" / "tested_ops.json"
BATCH = 160
"""Cases of one program: compilers take longer than in proportion to the length of a file."""
DEVICES = {**PRESETS, "cortex-m4": CORTEX_M}
BOARD = ("qemu-system-arm", "-M", bare_metal.BOARD, "-nographic", "-monitor", "none", "-serial", "none")
"""What runs programs of a Cortex-M4, with semihosting as its input and output."""
_LINKED = ("--specs=rdimon.specs", "-nostartfiles")
_ALIGNED = """#include <malloc.h>
#include <stdlib.h>
void _fini(void);
__attribute__((weak)) void _fini(void) {}
static inline int posix_memalign(void **made, size_t alignment, size_t bytes)
{
    *made = memalign(alignment, bytes);
    return *made == NULL;
}
"""
"""What the library of microcontrollers lacks."""
AARCH64: tuple[str, tuple[str, ...]] = ("aarch64-linux-gnu-gcc", ("qemu-aarch64",))


@dataclass(frozen=True)
class Run:
    """A device, how its code is compiled, and how many cases are taken of each dtype (None: all)."""

    target: CpuMachine
    toolchain: Toolchain
    most: int | None
    others: tuple[CpuMachine, ...] = ()
    """Devices whose code is in the same programs."""
    known: tuple[CpuMachine, ...] = ()
    """Devices with a run of their own. Code that equals theirs is here in two cases of each op and dtype, no more."""
    threads: tuple[int, ...] = ()
    """Numbers of threads that must give the bits of one; none: kernels are called by themselves."""
    dtypes: frozenset[str] = frozenset()
    """Only these; none: all."""

    @property
    def targets(self) -> tuple[CpuMachine, ...]:
        """All devices."""
        return (self.target, *self.others)


@dataclass
class Verdict:
    """How many cases of which op and dtype were right, and what was wrong with the others."""

    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    divided: Counter[str] = field(default_factory=Counter)
    """The cases of an op whose work threads shared."""

    def add(self, other: "Verdict") -> None:
        """Count the cases of another verdict too."""
        self.passed += other.passed
        self.failures += other.failures
        self.divided += other.divided


def batches(run: Run, names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Pieces of work: an op and some of its dtypes."""
    for name in names:
        record = OPS[name]
        each = max(1, len(chosen(name, record.dtypes[0], run.targets, run.most)))
        step = max(1, BATCH // each)
        own = [dtype.name for dtype in record.dtypes if not run.dtypes or dtype.name in run.dtypes]
        yield from ((name, tuple(own[start : start + step])) for start in range(0, len(own), step))


def work(run: Run, name: str, dtypes: Sequence[str]) -> Verdict:
    """Compile and run the cases of an op for some dtypes."""
    if run.threads:
        return work_in_threads(run, name, dtypes)
    record, verdict = OPS[name], Verdict()
    cases: list[tuple[str, Prepared]] = []
    for dtype in dtypes:
        picked = chosen(name, DTYPES[dtype], run.targets, run.most)
        for place, case in enumerate(picked):
            known = () if place in (0, len(picked) - 1) else run.known
            cases += [(dtype, made) for made in variants(record, case, len(cases), run.targets, known)]
    with TemporaryDirectory(prefix="suite-") as folder:
        try:
            outcomes = run_cases([one for _, one in cases], run.toolchain, Path(folder))
        except AssertionError as error:
            verdict.failures.append(f"'{name}' {' '.join(dtypes)}: {error}")
            return verdict
    for (dtype, one), outcome in zip(cases, outcomes, strict=True):
        try:
            assert not outcome.damage, f"'{name}' {outcome.damage}"
            judge(one, outcome.results, outcome.status)
        except AssertionError as error:
            shapes = [None if array is None else array.shape for array in one.case.arrays]
            verdict.failures.append(f"{error}\n    {dtype} {shapes} {dict(one.case.params)}")
        else:
            verdict.passed[name, dtype] += 1
    return verdict


def work_in_threads(run: Run, name: str, dtypes: Sequence[str]) -> Verdict:
    """The same as programs on one thread and on several, whose results must have the same bits."""
    record, verdict = OPS[name], Verdict()
    small: list[Asked] = []
    large: list[Asked] = []
    for dtype in dtypes:
        small += asked(record, chosen(name, DTYPES[dtype], run.targets, run.most))
        large += asked(record, list(large_cases(name, DTYPES[dtype])))
    toolchain = ProjectToolchain(run.toolchain.cc, run.toolchain.flags)
    setting = Setting(hosted(run.target), run.threads, toolchain)
    with TemporaryDirectory(prefix="suite-") as folder:
        try:
            with small_ones_too():
                found = answered([*small, *large], setting, Path(folder) / "small")
            if name in CONVOLUTIONS:
                with small_ones_too(gain=0.0):
                    found += answered([*small, *large], setting, Path(folder) / "lists")
            found += answered(large, replace(setting, worth=WORTH), Path(folder) / "usual")
        except AssertionError as error:
            verdict.failures.append(f"'{name}' {' '.join(dtypes)}: {error}")
            return verdict
    for one in found:
        case = one.asked.case
        try:
            assert not one.differences, f"'{name}': {'; '.join(one.differences)}"
            judge(one.asked, one.results, 0)
        except AssertionError as error:
            shapes = [None if array is None else array.shape for array in case.arrays]
            kind = "weights" if one.asked.has_weights else "values"
            verdict.failures.append(f"{error}\n    {case.dtypes[0]} {shapes} {kind} {dict(case.params)}")
        else:
            verdict.passed[name, str(case.dtypes[0])] += 1
            verdict.divided[name] += one.is_divided
    return verdict


def verdict_on(run: Run, name: str) -> Verdict:
    """The verdict on one op, on all its dtypes."""
    total = Verdict()
    for batch in batches(run, [name]):
        total.add(work(run, *batch))
    return total


def verdict_of(run: Run, names: Sequence[str], workers: int) -> Verdict:
    """The verdict on all of these ops; what fails is printed at once."""
    total = Verdict()
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(work, *zip(*((run, *batch) for batch in batches(run, names)), strict=True)):
            total.add(found)
            for failure in found.failures:
                print(failure, flush=True)
    return total


@dataclass(frozen=True)
class Device:
    """What ops ran on, for the page of ops."""

    name: str
    compiler: str
    flags: str
    runner: str = ""


def device_of(run: Run) -> Device:
    """The device of a run, with the compiler as it calls itself."""
    version = subprocess.run([run.toolchain.cc, "--version"], capture_output=True, text=True, check=True).stdout
    toolchain = run.toolchain
    return Device(run.target.isa, version.splitlines()[0], " ".join(toolchain.flags), " ".join(toolchain.runner))


def recorded(path: Path, device: Device, verdict: Verdict, refused: Collection[tuple[str, str]] = frozenset()) -> None:
    """Note what passed on this device, in place of what was noted before: a line for each op; 0 where it is refused."""
    known = json.loads(path.read_text("ascii")) if path.exists() else {}
    ops: dict[str, dict[str, int]] = {}
    for (name, dtype), count in sorted(verdict.passed.items()):
        ops.setdefault(name, {})[dtype] = count
    for name, dtype in sorted(refused):
        ops.setdefault(name, {})[dtype] = 0
    known[device.name] = {**asdict(device), "ops": ops}
    parts = [f'"{name}": {_device_text(facts)}' for name, facts in sorted(known.items())]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="ascii")


def _device_text(facts: dict[str, Any]) -> str:
    lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(counts)}" for name, counts in facts["ops"].items())
    heads = "".join(f'  "{key}": {json.dumps(facts[key])},\n' for key in ("compiler", "flags", "runner"))
    return f'{{\n{heads}  "ops": {{\n{lines}\n  }}\n}}'


def runs_of(options: argparse.Namespace) -> Iterator[Run]:
    """Every device with every compiler at every level that was asked for."""
    devices = [target.isa for target in runnable()] if options.device == ["host"] else options.device
    others: tuple[CpuMachine, ...] = ()
    if options.together:
        others = tuple(replace(DEVICES[device], index_bits=options.address_bits) for device in devices[:-1])
        devices = devices[-1:]
    for device, cc, level in product(devices, options.cc, options.level):
        target = replace(DEVICES[device], index_bits=32 if device == "cortex-m4" else options.address_bits)
        known = (replace(GENERIC, index_bits=target.index_bits),) if device != GENERIC.isa and options.cases else ()
        if options.portable:
            target = replace(target, isa=f"portable-{device}", dot=True)
        # What an instruction would take, its replacement may have no use for.
        spare = ("-Wno-unused-variable",) if options.portable else ()
        flags = (f"-O{level}", *target.flags, *spare, *(SANITIZERS if options.sanitize else ()))
        toolchain = Toolchain(cc, flags)
        if options.aarch64:
            toolchain = Toolchain(AARCH64[0], (*flags, "-static"), AARCH64[1])
        elif options.board:
            toolchain = on_board(flags, options.board)
        elif DEVICES[device] not in (*runnable(), CORTEX_M) and not options.portable:
            sys.exit(f"this machine cannot run code for {device}: neon needs --aarch64; or use --portable")
        if not toolchain.is_here():
            sys.exit(f"this machine has no {' or no '.join([toolchain.cc, *toolchain.runner])}")
        most, threads = None if options.cases == 0 else options.cases, tuple(options.threads)
        yield Run(target, toolchain, most, others, known, threads, frozenset(options.dtypes))


def on_board(flags: tuple[str, ...], folder: Path) -> Toolchain:
    """Programs of a Cortex-M4 in an emulator; how they start is written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "startup.c").write_text(bare_metal.startup(), "ascii")
    (folder / "mps2.ld").write_text(bare_metal.linker_script(), "ascii")
    (folder / "board.h").write_text(_ALIGNED, "ascii")
    arch = DeviceArch.named("cortex-m4").toolchain
    linked = ("-include", str(folder / "board.h"), *_LINKED, "-T", str(folder / "mps2.ld"), str(folder / "startup.c"))
    return Toolchain(str(arch.cc), (*flags, *arch.cflags, *linked), (*BOARD, "-semihosting", "-kernel"))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    devices = ["host", *sorted(DEVICES)]
    parser.add_argument("--device", nargs="+", choices=devices, default=["host"], help="host: all this machine runs")
    parser.add_argument("--cc", nargs="+", default=["gcc"])
    parser.add_argument(
        "--level", nargs="+", default=["3"], choices=["0", "1", "2", "3", "s"], help="the compiler's -O"
    )
    parser.add_argument("--sanitize", action="store_true", help="address and undefined behaviour sanitizers")
    parser.add_argument("--aarch64", action="store_true", help="64-bit Arm programs in QEMU")
    parser.add_argument("--board", type=Path, help="a Cortex-M4 board in QEMU; a folder for what its programs need")
    parser.add_argument(
        "--portable", action="store_true", help="a device's schedules without its instructions: runs everywhere"
    )
    parser.add_argument(
        "--together", action="store_true", help="the code of all devices in programs for the last, what is equal once"
    )
    parser.add_argument("--address-bits", type=int, choices=[32, 64], default=64, help="the width of positions")
    parser.add_argument("--cases", type=int, default=4, help="of each op and dtype; half as many stretched; 0: all")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[], help="whole programs: these numbers must give the bits of one"
    )
    parser.add_argument("--record", action="store_true", help=f"note what passed in {RECORD.name}")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ops", nargs="+", default=[], help="only these")
    parser.add_argument("--dtypes", nargs="+", default=[], choices=sorted(DTYPES), help="only these")
    return parser.parse_args()


def main() -> int:
    options, wrong = parsed(), 0
    for run in runs_of(options):
        start = perf_counter()
        verdict = verdict_of(run, options.ops or sorted({record.name for record in OPS.values()}), options.workers)
        width = f"{run.target.index_bits}-bit positions with"
        devices = "+".join(target.isa for target in (*run.others, run.target))
        how = " ".join([devices, width, *run.toolchain.runner, run.toolchain.cc, *run.toolchain.flags])
        right, pairs = sum(verdict.passed.values()), len(verdict.passed)
        print(f"{how}: {right} cases of {pairs} ops and dtypes are right, ", end="")
        print(f"{len(verdict.failures)} wrong ({perf_counter() - start:.0f} s)", flush=True)
        if run.threads:
            numbers = ", ".join(map(str, run.threads))
            print(
                f"  on {numbers} threads the bits of one; {sum(verdict.divided.values())} cases were divided",
                flush=True,
            )
        wrong += len(verdict.failures)
        is_usual = options.address_bits == 64 and not any(
            (options.portable, options.threads, options.dtypes, options.together)
        )
        if options.record and not verdict.failures and not options.ops and is_usual:
            recorded(RECORD, device_of(run), verdict)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
