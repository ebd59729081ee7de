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

from tests.synth.in_c import Prepared, judge
from tests.synth.standalone import SANITIZERS, Toolchain, run_cases
from tests.synth.suite_cases import chosen, variants

from openinfer.dtypes import DTYPES
from openinfer.ops import OPS
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.c import bare_metal
from openinfer.synth.targets.cpu.machine import CORTEX_M, PRESETS, CpuMachine, runnable

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

    @property
    def targets(self) -> tuple[CpuMachine, ...]:
        """All devices."""
        return (self.target, *self.others)


@dataclass
class Verdict:
    """How many cases of which op and dtype were right, and what was wrong with the others."""

    passed: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "Verdict") -> None:
        """Count the cases of another verdict too."""
        self.passed += other.passed
        self.failures += other.failures


def batches(run: Run, names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Pieces of work: an op and some of its dtypes."""
    for name in names:
        record = OPS[name]
        each = max(1, len(chosen(name, record.dtypes[0], run.targets, run.most)))
        step = max(1, BATCH // each)
        for start in range(0, len(record.dtypes), step):
            yield name, tuple(dtype.name for dtype in record.dtypes[start : start + step])


def work(run: Run, name: str, dtypes: Sequence[str]) -> Verdict:
    """Compile and run the cases of an op for some dtypes."""
    record, verdict = OPS[name], Verdict()
    cases: list[tuple[str, Prepared]] = []
    for dtype in dtypes:
        for case in chosen(name, DTYPES[dtype], run.targets, run.most):
            cases += [(dtype, made) for made in variants(record, case, len(cases), run.targets)]
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
    for device, cc, level in product(devices, options.cc, options.level):
        target = replace(DEVICES[device], index_bits=32 if device == "cortex-m4" else options.address_bits)
        flags = (f"-O{level}", *target.flags, *(SANITIZERS if options.sanitize else ()))
        toolchain = Toolchain(cc, flags)
        if options.aarch64:
            toolchain = Toolchain(AARCH64[0], (*flags, "-static"), AARCH64[1])
        elif options.board:
            toolchain = on_board(flags, options.board)
        elif DEVICES[device] not in (*runnable(), CORTEX_M):
            sys.exit(f"this machine cannot run code for {device}: neon needs --aarch64")
        if not toolchain.is_here():
            sys.exit(f"this machine has no {' or no '.join([toolchain.cc, *toolchain.runner])}")
        yield Run(target, toolchain, None if options.cases == 0 else options.cases)


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
    parser.add_argument("--address-bits", type=int, choices=[32, 64], default=64, help="the width of positions")
    parser.add_argument("--cases", type=int, default=4, help="of each op and dtype; half as many stretched; 0: all")
    parser.add_argument("--record", action="store_true", help=f"note what passed in {RECORD.name}")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ops", nargs="+", default=[], help="only these")
    return parser.parse_args()


def main() -> int:
    options, wrong = parsed(), 0
    for run in runs_of(options):
        start = perf_counter()
        verdict = verdict_of(run, options.ops or sorted({record.name for record in OPS.values()}), options.workers)
        width = f"{run.target.index_bits}-bit positions with"
        how = " ".join([run.target.isa, width, *run.toolchain.runner, run.toolchain.cc, *run.toolchain.flags])
        right, pairs = sum(verdict.passed.values()), len(verdict.passed)
        print(f"{how}: {right} cases of {pairs} ops and dtypes are right, ", end="")
        print(f"{len(verdict.failures)} wrong ({perf_counter() - start:.0f} s)", flush=True)
        wrong += len(verdict.failures)
        if options.record and not verdict.failures and not options.ops and options.address_bits == 64:
            recorded(RECORD, device_of(run), verdict)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
