"""Single ops through their lowering, the schedule of launches and CUDA: ``python -m tests.synth.cuda.kernels``.

Compiles the kernels of every op on every dtype; it takes no GPU.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.synth.in_c import call_of, cases_of, stored_bytes
from tests.synth.vulkan.on_device import Job, Prepared

from openinfer.dtypes import DType
from openinfer.loops.expand import plain
from openinfer.loops.verify import verify
from openinfer.ops import OPS, Case, OpRecord
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.targets.cuda.buildfiles import architecture_flag
from openinfer.synth.targets.cuda.dialect import FLAGS
from openinfer.synth.targets.cuda.kernel import launch_code, support_text
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.simt.schedule import STRUCTURES, scheduled

MACHINE = replace(simt_machine(DeviceArch.named("h200")), least_row=2, long_row=64, least_block=2)
"""Small cases are scheduled as if they were large."""
NVCC = ("nvcc", *FLAGS, architecture_flag("sm_90a"), "-Werror", "all-warnings")
CLANG = (
    *("clang", "-x", "cuda", "-std=c++17", "--cuda-device-only", "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_70"),
    *(
        "-ffp-contract=off",
        "-Wall",
        "-Werror",
        "-Wno-unknown-cuda-version",
        "-Wno-unused",
        "-Wno-undefined-internal",
        "-S",
    ),
)
BUILTINS = Path(__file__).with_name("builtins.h")
"""What CUDA's headers would say: clang comes without them."""


def prepared(record: OpRecord, case: Case, number: int, dtype: DType) -> Prepared:
    """A case of an op, whose kernels are numbered."""
    call = call_of(record, case)
    pairs = zip(case.arrays, case.dtypes, strict=True)
    inputs = [stored_bytes(array, kind) for array, kind in pairs if array is not None and kind is not None]
    launches = scheduled(plain(kernel_of(record, call, case.dtypes), STRUCTURES), MACHINE)
    for launch in launches.launches:
        assert verify(launch.kernel) == [], f"a launch of '{record.name}' breaks rules of the loop IR"
    names = (f"{record.name}_{number}_{place}" for place in range(len(launches.launches)))
    pairs_of = zip(launches.launches, names, strict=True)
    codes = tuple(launch_code(one, name, MACHINE.group) for one, name in pairs_of)
    return Prepared(record, case, call, Job(launches, codes, tuple(inputs), call.outputs), dtype)


def cases(record: OpRecord, most: int | None) -> list[Prepared]:
    """The cases of an op, on all its dtypes."""
    found = [(dtype, case) for dtype in record.dtypes for case in cases_of(record.name, dtype, most)]
    return [prepared(record, case, number, dtype) for number, (dtype, case) in enumerate(found)]


def source(found: Sequence[Prepared]) -> str:
    """The kernels of some cases, as one file."""
    codes = [code for one in found for code in one.job.codes]
    needs = {need for one in codes for need in one.code.needs}
    return "\n".join([support_text(needs), *(one.code.text for one in codes)])


def compiled(text: str, folder: Path, compiler: str, *flags: str) -> str:
    """The assembly that a compiler makes of kernels."""
    file, result = folder / "kernels.cu", folder / "kernels.ptx"
    file.write_text(text, encoding="ascii")
    command = [*NVCC, "-ptx"] if compiler == "nvcc" else [*CLANG, "-include", str(BUILTINS)]
    ended = subprocess.run(
        [*command, *flags, "-o", str(result), str(file)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{compiler}: {file}\n{ended.stderr[:3000]}"
    return result.read_text(encoding="utf-8")


def compilers() -> list[str]:
    """Those of this machine: that of CUDA, and clang, which knows the language but not its headers."""
    found = [one for one in ("nvcc", "clang") if shutil.which(one)]
    assert found, "these tests need a compiler for GPUs of NVIDIA: apt-get install clang"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1, help="of each op and dtype; 0: all")
    options = parser.parse_args()
    start, bad, count = perf_counter(), 0, 0
    compiler = compilers()[0]
    for name in sorted({record.name for record in OPS.values()}):
        found = cases(OPS[name], options.cases or None)
        count += len({one.dtype for one in found})
        try:
            with TemporaryDirectory(prefix="cuda-") as folder:
                compiled(source(found), Path(folder), compiler)
        except AssertionError as error:
            bad += 1
            print(f"'{name}': {error}", flush=True)
    print(f"{compiler} took {count} ops and dtypes, but for {bad} ops ({perf_counter() - start:.0f} s)")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
