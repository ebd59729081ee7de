"""Many projects compiled into one library, and modules whose memory is watched.

Arenas are filled with rubbish before every step, and there are bytes around arena, state and weights that must stay.
"""

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
from tests.differential.cuda_code import cuda_library
from tests.differential.device_code import ALIASES, HEADER, HOST, SharedHost, compile_all, host_objects

from openinfer.ops import Array
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.state_memory import StateMemory
from openinfer.synth.targets.c.project import Project
from openinfer.synth.targets.cuda.project import CudaProject
from openinfer.synth.targets.project import EmittedProject
from openinfer.synth.targets.vulkan.buildfiles import LIBRARIES
from openinfer.synth.targets.vulkan.project import VulkanProject

GUARD = 256
CANARY = 0xA5
RUBBISH = 0xFD
"""Bytes of a NaN with a strange payload, and of integers that are far from zero."""
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-fno-omit-frame-pointer")


@dataclass(frozen=True)
class Toolchain:
    """A compiler with the options of one batch."""

    cc: str = "gcc"
    options: tuple[str, ...] = ("-O1",)


def library_of(projects: Sequence[EmittedProject], folder: Path, toolchain: Toolchain) -> ctypes.CDLL:
    """One library of projects with different names, made in a folder, which may be new."""
    folder.mkdir(exist_ok=True)
    kernels = [project for project in projects if isinstance(project, CudaProject)]
    if kernels:
        cuda_library(kernels, folder, (toolchain.cc, *FLAGS, *toolchain.options))
        return ctypes.CDLL(str(folder / "all.so"))
    flags = dict.fromkeys(flag for project in projects for flag in project.options.flags)
    common = [toolchain.cc, *FLAGS, *toolchain.options, *flags, "-fPIC", "-pthread"]
    # What a sanitizer needs loaded first is not for the compiler.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    sources, includes, aliases, hosts = [], [], [], dict[str, SharedHost]()
    for project in projects:
        assert isinstance(project, Project | VulkanProject)
        code = project.code()
        if isinstance(project, VulkanProject):
            host = SharedHost.of(project, code)
            code = {path: text for path, text in code.items() if path not in HOST}
            code |= {HEADER: host.header(project, code), ALIASES: host.aliases(project)}
            hosts[host.name] = host
            aliases.append(f"{project.name}/{ALIASES}")
            includes += [f"-I{project.name}/src", f"-I{project.name}/build"]
        own = folder / project.name
        for path, text in code.items():
            target = own / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="ascii")
        sources += [str(path.relative_to(folder)) for path in sorted((own / "src").glob("*.c"))]
        includes.append(f"-I{project.name}/include")
    compile_all([project for project in projects if isinstance(project, VulkanProject)], folder)
    objects = [one for host in hosts.values() for one in host_objects(host, tuple(common))]
    line = [*common, "-shared", *includes, *sources, *objects, *aliases, "-o", "all.so", *LIBRARIES * bool(hosts)]
    ended = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, f"{' '.join(common)}\n{ended.stderr[:4000]}"
    return ctypes.CDLL(str(folder / "all.so"))


@dataclass
class _Watched:
    """Memory with canaries around it."""

    raw: Array
    data: Array

    @classmethod
    def of(cls, nbytes: int, alignment: int) -> "_Watched":
        raw = np.full(nbytes + 2 * GUARD + alignment, CANARY, np.uint8)
        start = -raw.ctypes.data % alignment + GUARD
        data = raw[start : start + nbytes]
        data[:] = 0
        return cls(raw, data)

    @property
    def is_sound(self) -> bool:
        start = self.data.ctypes.data - self.raw.ctypes.data
        return bool((self.raw[:start] == CANARY).all() and (self.raw[start + self.data.size :] == CANARY).all())


@dataclass
class WatchedModule:
    """A compiled module, and all the memory it was given."""

    module: CompiledModule
    memories: list[_Watched] = field(default_factory=list)

    def run_step(self) -> None:
        """One step in an arena of rubbish; nothing outside the module's memory may change."""
        self.module._arena[:] = RUBBISH
        if self.module._project.placed.rules.on_device:
            # The device's own memory, which weights cannot be read back from.
            StateMemory(self.module._arena, self.module._instance).put(0, self.module._arena.size)
            self.module.run_step()
            return
        before = self.module._weights.copy()
        try:
            self.module.run_step()
        finally:
            assert all(memory.is_sound for memory in self.memories), "the code wrote outside its memory"
            assert np.array_equal(self.module._weights, before), "the code wrote into the weights"


@contextmanager
def _watching(found: list[_Watched]) -> Iterator[None]:
    def aligned(nbytes: int, alignment: int) -> Array:
        found.append(_Watched.of(nbytes, alignment))
        return found[-1].data

    with patch("openinfer.synth.run.step_memory._aligned", aligned):
        yield


def watched(project: EmittedProject, library: ctypes.CDLL) -> WatchedModule:
    """A module of a library, in memory with canaries."""
    assert isinstance(project, Project | CudaProject | VulkanProject)
    memories: list[_Watched] = []
    with _watching(memories):
        module = CompiledModule(project, library)
    assert memories, "a module's memory is made by _aligned"
    return WatchedModule(module, memories)
