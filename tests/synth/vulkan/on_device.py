"""Single ops through their lowering, the schedule of launches, GLSL and a Vulkan device.

The cases of an op are in one shader, behind a specialization constant; many shaders are run by one program.
"""

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from tests.synth.in_c import call_of, loaded, stored_bytes
from tests.synth.vulkan.compiler import compile_many, program

from openinfer.dtypes import Array, Bytes, DType
from openinfer.loops.dim import at
from openinfer.loops.expand import plain
from openinfer.loops.ir import Kernel
from openinfer.loops.verify import verify
from openinfer.ops import Call, Case, OpRecord, TensorType
from openinfer.ops.lower.kernel import kernel_of
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.vulkan import GLSLANG
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.gpu.arguments import Given, LaunchCode
from openinfer.synth.targets.simt.launches import Launches, group_of
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.simt.schedule import STRUCTURES, scheduled
from openinfer.synth.targets.vulkan.dialect import glsl
from openinfer.synth.targets.vulkan.features import features_of
from openinfer.synth.targets.vulkan.shader import group_line, launch_code, shader

NAMED = os.environ.get("OPENINFER_TEST_DEVICE", "lavapipe")
"""The device that is tested, by the name of its file."""
DEVICE = DeviceArch.named(NAMED)
MACHINE, NUMERICS = replace(simt_machine(DEVICE), least_row=2, long_row=64, least_block=2), Numerics.of(DEVICE)
"""Small cases are scheduled as if they were large."""
SCHEDULE = scheduled
RUNNER = Path(__file__).with_name("runner.c")
SPECIALIZED = "layout(constant_id = 0) const uint chosen = 0u;\nlayout(local_size_x_id = 1) in;\n"
"""Which launch runs, and the threads of its groups."""
FLAGS = ("-V", "--target-env", "vulkan1.2")
GOOD = 0xFFFFFFFF
INPUT, OUTPUT, SCRATCH = range(3)
KINDS = {Given.MEMORY: 0, Given.STATUS: 1, Given.NUMBER: 2, Given.SIZE: 2}


@dataclass(frozen=True)
class Job:
    """A kernel as launches, and what it is called with."""

    launches: Launches
    codes: tuple[LaunchCode, ...]
    inputs: tuple[Bytes, ...]
    outputs: tuple[TensorType, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """One case of an op."""

    record: OpRecord
    case: Case
    call: Call
    job: Job
    dtype: DType
    """The one that it is a case of."""


@dataclass(frozen=True)
class Outcome:
    """What a case did: results and status, or what ended the program."""

    results: tuple[Array, ...] = ()
    status: int = 0
    damage: str = ""


@dataclass
class Module:
    """A shader with the launches of some kernels."""

    jobs: list[Job] = field(default_factory=list)
    numerics: Numerics = NUMERICS

    @property
    def codes(self) -> list[LaunchCode]:
        return [code for one in self.jobs for code in one.codes]

    @property
    def features(self) -> frozenset[Feature]:
        """What it needs of a device."""
        return frozenset({Feature.ADDRESSES}).union(*(features_of(code.code, self.numerics) for code in self.codes))

    def text(self) -> str:
        calls = " ".join(f"case {number}: {code.name}(); break;" for number, code in enumerate(self.codes))
        text = shader(self.codes, MACHINE.group, self.numerics, f"switch (chosen) {{ {calls} }}")
        return text.replace(group_line(MACHINE.group), SPECIALIZED, 1)


def job_of(
    kernel: Kernel,
    number: int,
    inputs: Sequence[Bytes],
    outputs: Sequence[TensorType],
    numerics: Numerics = NUMERICS,
    sizes: Mapping[str, int] | None = None,
) -> Job:
    """A kernel for a device that rounds so; its functions are numbered."""
    launches = SCHEDULE(kernel, MACHINE)
    for launch in launches.launches:
        assert verify(launch.kernel) == [], f"a launch of '{kernel.name}' breaks rules of the loop IR"
    names = (f"case{number}_{place}" for place in range(len(launches.launches)))
    codes = tuple(launch_code(one, name, numerics) for one, name in zip(launches.launches, names, strict=True))
    return Job(launches, codes, tuple(inputs), tuple(outputs), sizes or {})


def prepared(record: OpRecord, case: Case, number: int, dtype: DType, numerics: Numerics = NUMERICS) -> Prepared:
    call = call_of(record, case)
    pairs = zip(case.arrays, case.dtypes, strict=True)
    inputs = [stored_bytes(array, kind) for array, kind in pairs if array is not None and kind is not None]
    kernel = plain(kernel_of(record, call, case.dtypes, glsl(numerics).about), STRUCTURES)
    return Prepared(record, case, call, job_of(kernel, number, inputs, call.outputs, numerics), dtype)


def module_file(folder: Path, place: int) -> Path:
    """Where the module of a number is, compiled."""
    return folder / f"m{place}.spv"


def compiled(text: str, folder: Path, place: int) -> Path:
    """A shader as SPIR-V."""
    result = module_file(folder, place)
    source = result.with_suffix(".comp")
    source.write_text(text, encoding="ascii")
    command = [GLSLANG, *FLAGS, "-o", str(result), str(source)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{source}\n{ended.stdout[:3000]}"
    assert "WARNING" not in ended.stdout, ended.stdout[:3000]
    return result


def all_compiled(texts: Sequence[str], folder: Path) -> list[Path]:
    """Shaders as SPIR-V, in one process where there is the program for it."""
    command = program()
    if command is None:
        return [compiled(text, folder, place) for place, text in enumerate(texts)]
    results = [module_file(folder, place) for place in range(len(texts))]
    for result, text in zip(results, texts, strict=True):
        result.with_suffix(".comp").write_text(text, encoding="ascii")
    compile_many([(result.with_suffix(".comp"), "", result) for result in results], command)
    return results


@cache
def runner() -> Path:
    """The program that runs shaders."""
    for tool, package in (("glslangValidator", "glslang-tools"), ("gcc", "gcc")):
        assert shutil.which(tool), f"these tests need {tool}: apt-get install {package}"
    program = Path(mkdtemp(prefix="vulkan-")) / "runner"
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", str(program), str(RUNNER), "-lvulkan"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{ended.stderr[:2000]}\napt-get install libvulkan-dev mesa-vulkan-drivers"
    return program


def run_modules(modules: Sequence[Module], folder: Path, *, validate: bool = False) -> list[Outcome]:
    """The outcomes of all kernels of all modules, in their order."""
    files = all_compiled([module.text() for module in modules], folder)
    requests: list[tuple[Job, bytes]] = []
    for place, module in enumerate(modules):
        number = 0
        for one in module.jobs:
            requests.append((one, _request(one, place, number)))
            number += len(one.codes)
    command = [str(runner()), *(["--validate"] if validate else []), *map(str, files)]
    outcomes: list[Outcome] = []
    while len(outcomes) < len(requests):
        outcomes += _run(requests[len(outcomes) :], command)
    return outcomes


def _run(requests: Sequence[tuple[Job, bytes]], command: Sequence[str]) -> list[Outcome]:
    """The outcomes up to and with the first kernel that ends the program."""
    data = b"".join(data for _, data in requests)
    ended = subprocess.run(command, input=data, capture_output=True, check=False, env=environment())
    outcomes: list[Outcome] = []
    place = 0
    for one, _ in requests:
        sizes = [kind.nbytes for kind in one.outputs]
        if len(ended.stdout) - place < 8 + sum(sizes):
            report = ended.stderr.decode(errors="replace")[:2000]
            return [*outcomes, Outcome(damage=f"the program ended ({ended.returncode}): {report}")]
        status, is_damaged = struct.unpack_from("<II", ended.stdout, place)
        place += 8
        results = []
        for size, kind in zip(sizes, one.outputs, strict=True):
            results.append(loaded(np.frombuffer(ended.stdout, np.uint8, size, place).copy(), kind))
            place += size
        damage = "memory next to a buffer was written" if is_damaged else ""
        outcomes.append(Outcome(tuple(results), int(status != GOOD), damage))
    assert ended.returncode == 0, ended.stderr[:2000]
    return outcomes


def on_lavapipe() -> dict[str, str]:
    """What an environment says so that lavapipe is the only driver, unless another was asked for."""
    drivers = sorted(map(str, Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json")))
    return {"VK_ICD_FILENAMES": drivers[0]} if drivers and "VK_ICD_FILENAMES" not in os.environ else {}


def environment() -> dict[str, str]:
    """This process's, so that lavapipe is the only driver."""
    return {**os.environ, **on_lavapipe()}


def _request(one: Job, module: int, first: int) -> bytes:
    kernel, scratch = one.launches.kernel, one.launches.scratch
    facts = [(INPUT, data.nbytes) for data in one.inputs]
    facts += [(OUTPUT, kind.nbytes) for kind in one.outputs]
    facts += [(SCRATCH, buffer.dtype.nbytes(int(np.prod(buffer.shape)))) for buffer in scratch]
    places = {buffer.name: place for place, buffer in enumerate((*kernel.inputs, *kernel.outputs, *scratch))}
    numbers = [len(facts), len(one.codes), *(part for fact in facts for part in fact)]
    for place, (launch, code) in enumerate(zip(one.launches.launches, one.codes, strict=True)):
        group = group_of(launch.kernel, MACHINE.group)
        groups = -(-at(launch.threads, one.sizes) // group)
        numbers += [module, first + place, group, groups, len(code.arguments)]
        values = {Given.MEMORY: places, Given.SIZE: one.sizes}
        for argument in code.arguments:
            numbers += [KINDS[argument.kind], values.get(argument.kind, {}).get(argument.name, place)]
    return struct.pack(f"<{len(numbers)}I", *numbers) + b"".join(data.tobytes() for data in one.inputs)


def with_ordered_launches(name: str) -> DeviceArch:
    """A shipped device on which launches wait by themselves for those before them."""
    document = DeviceArch.named(name).to_json()
    return DeviceArch.from_json({**document, "features": {**document["features"], "ordered_launches": True}})


def counted(module: CompiledModule, name: str) -> int:
    """How often an instance has submitted or recorded something, or how often the last submission waited."""
    function = module._instance.function(name)
    function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    return int(function(module._context.device))
